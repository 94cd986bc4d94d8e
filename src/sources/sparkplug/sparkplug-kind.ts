import type { Members } from '../../config/source-kinds.ts';
import { MQTT, placeOfBroker, readBroker } from '../mqtt/mqtt-kind.ts';
import type { SourceKind } from '../source-kind.ts';
import type { SparkplugSpec, SparkplugValue } from './sparkplug-spec.ts';

const { mqtt: _address, share: _share, ...BROKER_MEMBERS } = MQTT.sourceMembers;
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
      description: 'A broker on which edge nodes speak Sparkplug B.',
      examples: ['mqtt://127.0.0.1:1883', 'mqtts://broker.example:8883'],
    },
    ...BROKER_MEMBERS,
    group: {
      ...NAME,
      title: 'the name of a group',
      description: 'Sparkplug: of the edge nodes; left out, every group.',
      examples: ['Plant1'],
    },
    primary_host: {
      ...NAME,
      title: 'the name of a host application',
      description:
        'Sparkplug: the name under which this gateway tells the nodes that it is there (STATE). Left out: it does not.',
      examples: ['tagferry'],
    },
    rebirth: {
      type: 'boolean',
      default: true,
      title: 'true or false',
      description:
        'Sparkplug: a node of which something was missed is asked for its birth certificate, once a minute at most.',
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
    report.problem('metric', `metric "${path}" does not name its edge node`, 'write edge-node/device/metric name');
    return undefined;
  },
  placeOf: placeOfBroker,
  addressOf: (_, { metric }) => metric,
  async open(context) {
    const { SparkplugSource } = await import('./sparkplug-source.ts');
    return new SparkplugSource(context, await context.notes());
  },
  async test(context) {
    const { testSparkplug } = await import('./test-sparkplug.ts');
    return testSparkplug(context);
  },
  async *scan({ source, platformCaFile, clock, log, waitMs, signal }, what) {
    const { brokerBeside } = await import('../../broker/beside.ts');
    const { scanSparkplug } = await import('./scan-sparkplug.ts');
    const { name, spec } = source;
    const broker = brokerBeside({ name, spec, platformCaFile, clock, logger: log });
    yield* scanSparkplug({ broker, spec, what, waitMs, clock, signal });
  },
};
