/** Members of tags.yaml shared by message-based source kinds, and their parsers. */
import { readDuration } from '../../base/quantity.ts';
import type { BrokerSpec } from '../../broker/broker-spec.ts';
import { MAX_TOPIC_BYTES } from '../../broker/discards.ts';
import { DURATION_SCHEMA } from '../../config/duration-schema.ts';
import { addressCorrection, printable, printableAddress } from '../../config/problem.ts';
import type { MemberReport, Members } from '../../config/source-kinds.ts';
import type { MessageValue, TimeUnit } from './payload.ts';

const PORTS: Readonly<Record<string, number>> = { 'mqtt:': 1883, 'mqtts:': 8883, 'ws:': 80, 'wss:': 443 };
const SCHEMES = Object.keys(PORTS);
const POINTER = { type: 'string', pattern: '^(/.*)?$', title: 'a JSON pointer' };
const FILE = { type: 'string', minLength: 1, maxLength: 1024, title: 'a file' };
const SEVEN_DAYS = '7d';
/** MQTT encodes the session expiry as a 32-bit number of seconds; the highest value means "never". */
const MAX_EXPIRY_MS = (2 ** 32 - 2) * 1000;

/** Credentials and TLS of a broker or server. */
export const CONNECTION_MEMBERS = {
  username: { type: 'string', minLength: 1, maxLength: 1024, title: 'a user name', examples: ['gw'] },
  password_file: { ...FILE, description: 'File that contains the password.', examples: ['broker-password'] },
  ca: { ...FILE, description: 'PEM file of the CA that signed the server certificate.', examples: ['site-ca.pem'] },
  cert: { ...FILE, description: 'PEM file of the client certificate.', examples: ['gateway.pem'] },
  key: { ...FILE, description: 'PEM file of the key for `cert`.', examples: ['gateway-key.pem'] },
};

/** Members of every kind that connects to an MQTT broker. */
export const BROKER_MEMBERS = {
  ...CONNECTION_MEMBERS,
  version: {
    enum: [5, 3],
    default: 5,
    description: 'MQTT version; 3 means 3.1.1. If set to 5 and the broker rejects version 5, 3.1.1 is used.',
  },
  client_id: {
    type: 'string',
    minLength: 1,
    maxLength: 128,
    title: 'a client ID',
    description: 'MQTT: client ID. Default: a constant ID derived from the gateway.',
    examples: ['gw-17'],
  },
  qos: { enum: [0, 1, 2], default: 1, description: 'MQTT: QoS of the subscriptions. With 0, messages can be lost.' },
  session_expiry: {
    ...DURATION_SCHEMA,
    description: 'MQTT 5: how long the broker keeps messages for this gateway. Default: 7d.',
    examples: ['7d'],
  },
};

/** JSON pointers to the number, time and status in a message. */
export const POINTER_MEMBERS = {
  samples: {
    ...POINTER,
    description:
      'Pointer to a list of samples in a JSON message. at, time and status are then pointers in each sample. "" means the whole message.',
    examples: ['/samples'],
  },
  at: {
    ...POINTER,
    description: 'Pointer to the number in a JSON message. Default: the whole message is the number.',
    examples: ['/temp'],
  },
  time: { ...POINTER, description: 'Pointer to the time of the value in a JSON message.', examples: ['/t'] },
  time_unit: {
    enum: ['s', 'ms', 'us', 'ns'],
    description: 'Unit of a numeric time. Default: ms; a number that looks like seconds is then rejected.',
  },
  status: {
    ...POINTER,
    description: 'Pointer to good, uncertain or bad in a JSON message.',
    examples: ['/quality'],
  },
};

export function placeOfBroker({ url }: BrokerSpec): { host: string; port: number } {
  const { protocol, hostname, port } = new URL(url);
  return { host: hostname.replace(/^\[(.*)\]$/, '$1'), port: Number(port || PORTS[protocol]) };
}

/** Parses the broker settings of a source. `member` is the member that contains the broker address. */
export function readBroker(member: 'mqtt' | 'sparkplug', raw: Members, report: MemberReport): BrokerSpec | undefined {
  const url = String(raw[member]);
  const wrong = wrongUrl(url);
  if (wrong !== undefined) {
    const instead = addressCorrection(url, 'use a value such as mqtt://127.0.0.1:1883');
    report.problem(member, `"${printableAddress(url)}" ${wrong}`, instead);
    return undefined;
  }
  const expiry = readDuration(String(raw.session_expiry ?? SEVEN_DAYS));
  if (!('value' in expiry) || expiry.value > MAX_EXPIRY_MS) {
    const reason = 'reason' in expiry ? expiry.reason : 'exceeds the maximum of MQTT';
    report.problem('session_expiry', `session_expiry "${raw.session_expiry}" ${reason}`, 'use a value such as 7d');
    return undefined;
  }
  const isSecure = /^(mqtts|wss):/i.test(url);
  for (const file of ['ca', 'cert', 'key'] as const) {
    if (raw[file] === undefined || isSecure) continue;
    report.problem(file, `${file} requires TLS`, 'use mqtts:// or wss://, or remove it');
    return undefined;
  }
  if ((raw.cert === undefined) !== (raw.key === undefined)) {
    const [there, missing] = raw.cert === undefined ? ['key', 'cert'] : ['cert', 'key'];
    report.problem(there, `${there} requires ${missing}`, `add ${missing}: with its file`);
    return undefined;
  }
  if (raw.password_file !== undefined && raw.username === undefined && !URL.parse(url)?.username) {
    report.problem('password_file', 'password_file requires a user name', 'add username:');
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
    ...(raw.retained === 'take' ? { retained: 'take' } : {}),
    ...(raw.password_file === undefined ? {} : { passwordFile: report.pathOf(String(raw.password_file)) }),
    ...(raw.ca === undefined ? {} : { caFile: report.pemPathOf('ca', String(raw.ca), 'certificate') }),
    ...(raw.cert === undefined ? {} : { certFile: report.pemPathOf('cert', String(raw.cert), 'certificate') }),
    ...(raw.key === undefined ? {} : { keyFile: report.pemPathOf('key', String(raw.key), 'key') }),
  };
}

function wrongUrl(text: string): string | undefined {
  const url = URL.parse(text);
  if (url === null || !/^[a-z]+:\/\//i.test(text)) return 'is not an address';
  if (!SCHEMES.includes(url.protocol)) return `has the unsupported scheme ${url.protocol}//`;
  if (url.hostname === '') return 'has no host';
  if (url.protocol.startsWith('mqtt') && !/^\/?$/.test(url.pathname + url.search + url.hash)) {
    return 'has unexpected text after the port';
  }
  try {
    decodeURIComponent(url.username + url.password);
  } catch {
    return 'has an invalid % escape in its user or password (use %25)';
  }
  return undefined;
}

/**
 * Parses the JSON pointers of a value. If `time_unit` is set without a time, reports the problem and returns
 * `undefined`.
 */
export function readPointers(
  raw: Members,
  report: MemberReport,
): Pick<MessageValue, 'samples' | 'at' | 'time' | 'timeUnit' | 'status'> | undefined {
  if (raw.time_unit !== undefined && raw.time === undefined && raw.time_property === undefined) {
    report.problem('time_unit', 'time_unit requires time', 'add time: with a JSON pointer');
    return undefined;
  }
  if (raw.samples !== undefined && raw.time_property !== undefined) {
    const reason = 'time_property would assign the same time to all samples of a message';
    report.problem('time_property', reason, 'set time: with a JSON pointer in each sample');
    return undefined;
  }
  const pointer = (member: string, text: unknown) =>
    text === undefined || text === '' ? {} : { [member]: String(text) };
  return {
    ...(raw.samples === undefined ? {} : { samples: String(raw.samples) }),
    ...pointer('at', raw.at),
    ...pointer('time', raw.time),
    ...pointer('status', raw.status),
    ...(raw.time_unit === undefined ? {} : { timeUnit: raw.time_unit as TimeUnit }),
  };
}

/** If a topic filter cannot match any message, returns the reason and a correction. */
export function wrongFilter(topic: string): [reason: string, instead: string] | undefined {
  const example = 'set one topic, for example site/ft101';
  if (topic === '') return ['is empty', example];
  if (topic.includes('\u0000')) return ['contains a null byte', example];
  if (Buffer.byteLength(topic) > MAX_TOPIC_BYTES) return [`is longer than ${MAX_TOPIC_BYTES} bytes`, example];
  if (/^\$(share|queue)\//.test(topic)) {
    const rest = topic.replace(/^\$(share\/[^/]*|queue)\//, '');
    return ['is a shared subscription', `set share: to the group in the source, and use topic: ${printable(rest)}`];
  }
  const levels = topic.split('/');
  if (levels.some((level) => level.length > 1 && /[+#]/.test(level))) {
    return ['contains a wildcard (+ or #) that is not a whole level', 'use a value such as site/+/flow'];
  }
  if (levels.slice(0, -1).includes('#')) return ['contains a # before the last level', 'use a value such as site/#'];
  return undefined;
}

/** Returns the place of a value as shown by `sources test`, for example `site/ft101 /temp`; `*` stands for each sample. */
export function placeText({ topic, samples, at = '' }: MessageValue): string {
  const pointer = samples === undefined ? at : `${samples}/*${at}`;
  return pointer === '' ? topic : `${topic} ${pointer}`;
}
