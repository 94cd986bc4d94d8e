import type { Broker } from '../../broker/broker.ts';
import { placeOf } from '../../broker/broker-spec.ts';
import type { Members } from '../../config/source-kinds.ts';
import { BROKER_MEMBERS, readBroker } from '../messages/message-members.ts';
import type { SourceKind } from '../source-kind.ts';
import type { SparkplugSpec, SparkplugValue } from './sparkplug-spec.ts';

const NAME = { type: 'string', pattern: '^[^/+#\\u0000]{1,256}$', minLength: 1 };

/** Edge nodes of a Sparkplug B broker: `cells: { sparkplug: "mqtt://127.0.0.1:1883", group: Plant1 }`. */
export const SPARKPLUG: SourceKind<SparkplugSpec, SparkplugValue> = {
  kind: 'sparkplug',
  example: 'sparkplug: mqtt://…',
  publishes: 'topic',
  sourceMembers: {
    sparkplug: {
      type: 'string',
      title: 'the address of an MQTT broker',
      description: 'MQTT broker of Sparkplug B edge nodes.',
      examples: ['mqtt://127.0.0.1:1883', 'mqtts://broker.example:8883'],
    },
    ...BROKER_MEMBERS,
    group: {
      ...NAME,
      title: 'the name of a group',
      description: 'Sparkplug: group of the edge nodes. Default: all groups.',
      examples: ['Plant1'],
    },
    primary_host: {
      ...NAME,
      title: 'the name of a host application',
      description: 'Sparkplug: host application name for STATE messages. Default: no STATE messages.',
      examples: ['tagferry'],
    },
    rebirth: {
      type: 'boolean',
      default: true,
      title: 'true or false',
      description: 'Sparkplug: request the birth certificate after a gap, at most every 20 s per node.',
    },
  },
  valueMembers: {
    metric: {
      type: 'string',
      minLength: 3,
      maxLength: 1024,
      title: 'the path of a metric',
      description: 'Sparkplug: edge-node/device/metric name, or edge-node/metric name.',
      examples: ['press-4/hydraulics/Pressure'],
    },
  },
  needs: { member: 'metric', example: 'metric: press-4/hydraulics/Pressure' },
  readSource(raw: Members, report) {
    const broker = readBroker('sparkplug', raw, report);
    if (broker === undefined) return undefined;
    return {
      ...broker,
      rebirth: raw.rebirth !== false,
      ...(raw.group === undefined ? {} : { group: String(raw.group) }),
      ...(raw.primary_host === undefined ? {} : { presence: `spBv1.0/STATE/${raw.primary_host}` }),
    };
  },
  readValue({ metric }: Members, report) {
    const path = String(metric);
    if (/^[^/+#]+\/./.test(path)) return { metric: path };
    const reason = `metric "${path}" must begin with the edge node`;
    return report.problem('metric', reason, 'set edge-node/device/metric name');
  },
  writing: {
    problem: () => undefined,
    storedFor: (_, raw) => (Number.isFinite(raw) ? raw : undefined),
    targetsOf(source, { metric }) {
      const { host, port } = placeOf(source.url);
      return [`${host.toLowerCase()} ${port} ${source.group ?? '+'}/${metric}`];
    },
  },
  placeOf: ({ url }) => placeOf(url),
  addressOf: (_, { metric }) => metric,
  async open(context) {
    const { SparkplugSource } = await import('./sparkplug-source.ts');
    return new SparkplugSource(context);
  },
  async *scan({ source, brokers, clock, signal }, what, waitMs) {
    const { scanSparkplug } = await import('./scan.ts');
    const broker = brokers.get(source.name) as Broker;
    yield* scanSparkplug({ broker, spec: source.spec, what, waitMs, clock, signal });
  },
};
