import { readDuration } from '../../base/quantity.ts';
import type { BrokerSpec } from '../../broker/broker-spec.ts';
import { DURATION_SCHEMA } from '../../config/duration-schema.ts';
import { printable } from '../../config/problem.ts';
import type { MemberReport, Members } from '../../config/source-kinds.ts';
import type { SourceKind } from '../source-kind.ts';
import { wrongFilter } from './filter.ts';
import type { MqttValue, TimeUnit } from './mqtt-value.ts';

const PORTS: Readonly<Record<string, number>> = { 'mqtt:': 1883, 'mqtts:': 8883, 'ws:': 80, 'wss:': 443 };
const SCHEMES = Object.keys(PORTS);
const POINTER = { type: 'string', pattern: '^(/.*)?$', title: 'a JSON pointer' };
const FILE = { type: 'string', minLength: 1, maxLength: 1024, title: 'a file' };
const SEVEN_DAYS = '7d';
/** MQTT counts seconds in 32 bits, of which the last value means "never". */
const MAX_EXPIRY_MS = (2 ** 32 - 2) * 1000;

/** An MQTT broker: `broker: { mqtt: "mqtt://127.0.0.1:1883" }`. */
export const MQTT: SourceKind<BrokerSpec, MqttValue> = {
  kind: 'mqtt',
  example: 'mqtt: mqtt://…',
  publishes: 'topic',
  sourceMembers: {
    mqtt: {
      type: 'string',
      title: 'the address of an MQTT broker',
      description: 'An MQTT broker, subscribed to.',
      examples: ['mqtt://127.0.0.1:1883', 'mqtts://broker.example:8883'],
    },
    version: {
      enum: [5, 3],
      default: 5,
      description: 'MQTT version; 3 is 3.1.1. With 5, a broker that responds that it does not support 5 gets 3.1.1.',
    },
    username: { type: 'string', minLength: 1, maxLength: 1024, title: 'a user name', examples: ['gw'] },
    password_file: { ...FILE, description: 'A file that holds the password.', examples: ['broker-password'] },
    ca: { ...FILE, description: 'PEM of the authority of the other side.', examples: ['site-ca.pem'] },
    cert: { ...FILE, description: 'PEM of the certificate that this gateway shows.', examples: ['gateway.pem'] },
    key: { ...FILE, description: 'PEM of the key of `cert`.', examples: ['gateway-key.pem'] },
    client_id: {
      type: 'string',
      minLength: 1,
      maxLength: 128,
      title: 'a client id',
      description: 'MQTT: derived from the gateway unless told; the same for its life.',
      examples: ['gw-17'],
    },
    qos: { enum: [0, 1, 2], default: 1, description: 'MQTT: of the subscriptions; 0 has no promise.' },
    share: {
      type: 'string',
      pattern: '^[^/+#\\u0000]{1,128}$',
      title: 'the name of a group',
      description: 'MQTT: agents of one group share the messages between them.',
      examples: ['gateways'],
    },
    member: {
      type: 'string',
      pattern: '^\\d{1,2}/\\d{1,2}$',
      title: 'a number of a group, like 2/3',
      description: 'Which agent of the group this is: values without a time get no time that another agent gives.',
      examples: ['2/3'],
    },
    session_expiry: {
      ...DURATION_SCHEMA,
      description: 'MQTT 5: how long the broker keeps messages for this gateway; 7d unless told.',
      examples: ['7d'],
    },
  },
  valueMembers: {
    topic: {
      type: 'string',
      minLength: 1,
      maxLength: 1024,
      title: 'an MQTT topic',
      description: 'MQTT: the topic that carries the value; + and # stand for others, {tag} for the name of the tag.',
      examples: ['site/ft101', 'plant/{tag}/flow'],
    },
    at: {
      ...POINTER,
      description: 'MQTT: where the number stands in a JSON message. Left out: the whole message is the number.',
      examples: ['/temp'],
    },
    time: { ...POINTER, description: 'MQTT: where the time of the value stands in a JSON message.', examples: ['/t'] },
    time_property: {
      type: 'string',
      minLength: 1,
      maxLength: 128,
      title: 'the name of a user property',
      description: 'MQTT 5: the user property that carries the time of the value, in place of `time`.',
      examples: ['timestamp'],
    },
    time_unit: {
      enum: ['s', 'ms', 'us', 'ns'],
      description: 'Unit of a time that is a number. Default: ms; a number that looks like seconds is then rejected.',
    },
    status: {
      ...POINTER,
      description: 'MQTT: where good, uncertain or bad stands in a JSON message.',
      examples: ['/quality'],
    },
  },
  needs: { member: 'topic', example: 'topic: site/ft101' },
  readSource: (raw, report) => readBroker('mqtt', raw, report),
  readValue,
  groupOf: ({ share }) => share,
  hasTime: ({ time, timeProperty }) => time !== undefined || timeProperty !== undefined,
  placeOf: placeOfBroker,
  addressOf: (_, { topic, at = '' }) => `${topic}${at === '' ? '' : ` ${at}`}`,
  async open(context) {
    const { MqttSource } = await import('./mqtt-source.ts');
    return new MqttSource(context, await context.notes());
  },
  async test(context) {
    const { testMqtt } = await import('./test-mqtt.ts');
    return testMqtt(context);
  },
  async *scan({ source, platformCaFile, clock, log, waitMs, signal }, what) {
    const { brokerBeside } = await import('../../broker/beside.ts');
    const { scanMqtt } = await import('./scan.ts');
    const { name, spec } = source;
    const broker = brokerBeside({ name, spec, platformCaFile, clock, logger: log });
    yield* scanMqtt({ broker, what, waitMs, clock, signal });
  },
};

export function placeOfBroker({ url }: BrokerSpec): { host: string; port: number } {
  const { protocol, hostname, port } = new URL(url);
  return { host: hostname.replace(/^\[(.*)\]$/, '$1'), port: Number(port || PORTS[protocol]) };
}

/** What stands of a broker in a source whose address is `member`. */
export function readBroker(member: 'mqtt' | 'sparkplug', raw: Members, report: MemberReport): BrokerSpec | undefined {
  const url = String(raw[member]);
  const wrong = wrongUrl(url);
  if (wrong !== undefined) {
    report.problem(member, `"${printable(url)}" ${wrong}`, 'write for example mqtt://127.0.0.1:1883');
    return undefined;
  }
  const expiry = readDuration(String(raw.session_expiry ?? SEVEN_DAYS));
  if (!('value' in expiry) || expiry.value > MAX_EXPIRY_MS) {
    const reason = 'reason' in expiry ? expiry.reason : 'is longer than MQTT can say';
    report.problem('session_expiry', `session_expiry "${raw.session_expiry}" ${reason}`, 'write for example 7d');
    return undefined;
  }
  const isSecure = /^(mqtts|wss):/i.test(url);
  for (const file of ['ca', 'cert', 'key'] as const) {
    if (raw[file] === undefined || isSecure) continue;
    report.problem(file, `${file} means nothing without TLS`, 'write mqtts:// or wss://, or remove it');
    return undefined;
  }
  if ((raw.cert === undefined) !== (raw.key === undefined)) {
    const [there, missing] = raw.cert === undefined ? ['key', 'cert'] : ['cert', 'key'];
    report.problem(there, `${there} stands without ${missing}`, `add ${missing}: with its file`);
    return undefined;
  }
  if (raw.password_file !== undefined && raw.username === undefined && !URL.parse(url)?.username) {
    report.problem('password_file', 'there is a password and no user name', 'add username:');
    return undefined;
  }
  return {
    url,
    version: raw.version === 3 ? 3 : 5,
    qos: (raw.qos ?? 1) as 0 | 1 | 2,
    sessionExpiryMs: expiry.value,
    ...(raw.username === undefined ? {} : { username: String(raw.username) }),
    ...(raw.client_id === undefined ? {} : { clientId: String(raw.client_id) }),
    ...(raw.share === undefined ? {} : { share: String(raw.share) }),
    ...(raw.password_file === undefined ? {} : { passwordFile: report.pathOf(String(raw.password_file)) }),
    ...(raw.ca === undefined ? {} : { caFile: report.pemPathOf('ca', String(raw.ca), 'certificate') }),
    ...(raw.cert === undefined ? {} : { certFile: report.pemPathOf('cert', String(raw.cert), 'certificate') }),
    ...(raw.key === undefined ? {} : { keyFile: report.pemPathOf('key', String(raw.key), 'key') }),
  };
}

function wrongUrl(text: string): string | undefined {
  const url = URL.parse(text);
  if (url === null || !/^[a-z]+:\/\//i.test(text)) return 'is not an address';
  if (!SCHEMES.includes(url.protocol)) return `begins with ${url.protocol}//, which mqtt does not know`;
  if (url.hostname === '') return 'names no host';
  if (url.protocol.startsWith('mqtt') && !/^\/?$/.test(url.pathname + url.search + url.hash)) {
    return 'has something after the port';
  }
  try {
    decodeURIComponent(url.username + url.password);
  } catch {
    return 'has a % in its user or password that stands for nothing (write %25)';
  }
  return undefined;
}

function readValue(raw: Members, report: MemberReport, template: Members): MqttValue | undefined {
  const topic = String(raw.topic);
  const wrong = wrongFilter(topic);
  if (wrong !== undefined) {
    const [reason, instead] = wrong;
    report.problem('topic', `topic "${printable(topic)}" ${reason}`, instead);
    return undefined;
  }
  if (raw.time_property !== undefined && raw.time !== undefined) {
    report.problem('time_property', 'time_property and time name two times', 'keep one of them');
    return undefined;
  }
  const pointers = readPointers(raw, report);
  const property = raw.time_property === undefined ? {} : { timeProperty: String(raw.time_property).toLowerCase() };
  return pointers && { topic, template: String(template.topic), ...pointers, ...property };
}

/** Where a message says what: `undefined` where that has a problem, which is reported. */
export function readPointers(
  raw: Members,
  report: MemberReport,
): Pick<MqttValue, 'at' | 'time' | 'timeUnit' | 'status'> | undefined {
  if (raw.time_unit !== undefined && raw.time === undefined && raw.time_property === undefined) {
    report.problem('time_unit', 'time_unit counts a time that is not there', 'add time: with a JSON pointer');
    return undefined;
  }
  const pointer = (member: string, text: unknown) =>
    text === undefined || text === '' ? {} : { [member]: String(text) };
  return {
    ...pointer('at', raw.at),
    ...pointer('time', raw.time),
    ...pointer('status', raw.status),
    ...(raw.time_unit === undefined ? {} : { timeUnit: raw.time_unit as TimeUnit }),
  };
}
