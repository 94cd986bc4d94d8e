/** Members of tags.yaml shared by message-based source kinds, their parsers, and writes by message. */
import { type Availability, type BrokerSpec, type ConnectionSpec, MQTT_PORTS } from '../../broker/broker-spec.ts';
import { MAX_TOPIC_BYTES } from '../../broker/limits.ts';
import { covers, type TopicGrammar } from '../../broker/topic-filters.ts';
import { DURATION_SCHEMA } from '../../config/duration-schema.ts';
import { addressCorrection, printable, printableAddress } from '../../config/problem.ts';
import type { MemberReport, Members, WritingRules } from '../../config/source-kinds.ts';
import { wrongTopic } from '../../config/topics.ts';
import { readDurationMember } from '../duration-member.ts';
import { readZone, ZONE_MEMBER } from '../intake/logger-time.ts';
import { parseDecimal, unpadded } from '../intake/text-parsers.ts';
import type { TimeUnit } from '../intake/times.ts';
import type { MessageValue } from './payload.ts';

const POINTER = { type: 'string', pattern: '^(/.*)?$', title: 'a JSON pointer' };
const FILE = { type: 'string', minLength: 1, maxLength: 1024, title: 'a file' };
const PAYLOAD = {
  type: 'string',
  minLength: 1,
  maxLength: 256,
  title: 'a text',
};
const ONE_TOPIC = 'use one topic or subject, without wildcards';
const DAY_MS = 86_400_000;
/** MQTT encodes the session expiry as a 32-bit number of seconds. */
const EXPIRY = { minMs: 0, maxMs: 49_710 * DAY_MS, range: 'at most 49710d, the MQTT limit', example: '7d' };

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

/** Members of sources and values. Members of a value override the members of its source. */
export const AVAILABILITY_MEMBERS = {
  availability: {
    type: 'string',
    minLength: 1,
    maxLength: 1024,
    title: 'a topic or subject',
    description:
      'MQTT and NATS: topic or subject on which the device announces that it is offline. The latest value is then sent with status bad.',
    examples: ['zigbee2mqtt/ft101/availability', 'tele/{tag}/LWT'],
  },
  payload_available: {
    ...PAYLOAD,
    default: 'online',
    description: 'Message text that announces an available device.',
    examples: ['1'],
  },
  payload_not_available: {
    ...PAYLOAD,
    default: 'offline',
    description: 'Message text that announces an unavailable device.',
    examples: ['0'],
  },
};

/** JSON pointers to the number, time and status in a message, and the topic of writes. */
export const MESSAGE_MEMBERS = {
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
  zone: ZONE_MEMBER,
  status: {
    ...POINTER,
    description: 'Pointer to the quality in a JSON message: good, uncertain or bad, true or false, or an OPC code.',
    examples: ['/quality'],
  },
  ...AVAILABILITY_MEMBERS,
  write_to: {
    type: 'string',
    minLength: 1,
    maxLength: 1024,
    title: 'a topic or subject',
    description: 'MQTT and NATS: topic or subject to which a write of the value is published, as a number.',
    examples: ['site/valve-1/set'],
  },
};

/**
 * Parses the credentials of a source and checks its addresses, whose protocols are the keys of `ports`. Returns
 * `undefined` after reporting a problem.
 */
export function readConnection(
  member: string,
  raw: Members,
  report: MemberReport,
  { addresses = [String(raw[member])], ports = MQTT_PORTS } = {},
): ConnectionSpec | undefined {
  const wrong = addresses.map((address) => wrongAddress(address, ports)).find((reason) => reason !== undefined);
  if (wrong !== undefined) {
    const text = String(raw[member]);
    const [[protocol, port]] = Object.entries(ports) as [[string, number]];
    const instead = addressCorrection(text, `use a value such as ${protocol}//127.0.0.1:${port}`);
    return report.problem(member, `"${printableAddress(text)}" ${wrong}`, instead);
  }
  if ((raw.cert === undefined) !== (raw.key === undefined)) {
    const [there, missing] = raw.cert === undefined ? ['key', 'cert'] : ['cert', 'key'];
    return report.problem(there, `${there} requires ${missing}`, `set ${missing} to the path of its PEM file`);
  }
  const hasUser = raw.username !== undefined || addresses.some((address) => URL.parse(address)?.username);
  if (raw.password_file !== undefined && !hasUser) {
    return report.problem('password_file', 'password_file requires a user name', 'add username:');
  }
  return {
    ...(raw.username === undefined ? {} : { username: String(raw.username) }),
    ...(raw.password_file === undefined ? {} : { passwordFile: report.pathOf(String(raw.password_file)) }),
    ...(raw.ca === undefined ? {} : { caFile: report.pemPathOf('ca', String(raw.ca), 'certificate') }),
    ...(raw.cert === undefined ? {} : { certFile: report.pemPathOf('cert', String(raw.cert), 'certificate') }),
    ...(raw.key === undefined ? {} : { keyFile: report.pemPathOf('key', String(raw.key), 'key') }),
  };
}

function wrongAddress(text: string, ports: Readonly<Record<string, number>>): string | undefined {
  const url = URL.parse(text);
  if (url === null || !/^[a-z.]+:\/\//i.test(text)) return 'is not an address';
  if (!Object.hasOwn(ports, url.protocol)) return `has the unsupported scheme ${url.protocol}//`;
  if (url.hostname === '') return 'has no host';
  if (!/^(ws|opc)/.test(url.protocol) && !/^\/?$/.test(url.pathname + url.search + url.hash)) {
    return 'has unexpected text after the port';
  }
  try {
    decodeURIComponent(url.username + url.password);
  } catch {
    return 'has an invalid % escape in its user or password (use %25)';
  }
  return undefined;
}

/** Parses the broker settings of a source. `member` is the member that contains the broker address. */
export function readBroker(member: 'mqtt' | 'sparkplug', raw: Members, report: MemberReport): BrokerSpec | undefined {
  const url = String(raw[member]);
  const connection = readConnection(member, raw, report);
  if (connection === undefined) return undefined;
  const sessionExpiryMs = readDurationMember(raw, 'session_expiry', 7 * DAY_MS, EXPIRY, report);
  if (sessionExpiryMs === undefined) return undefined;
  const file = ['ca', 'cert', 'key'].find((one) => raw[one] !== undefined);
  if (file !== undefined && !/^(mqtts|wss):/i.test(url)) {
    return report.problem(file, `${file} requires TLS`, 'use mqtts:// or wss://, or remove it');
  }
  const availability = readAvailability(raw, report, wrongTopic);
  if (availability === undefined) return undefined;
  return {
    ...connection,
    url,
    version: raw.version === 3 ? 3 : 5,
    qos: (raw.qos ?? 1) as 0 | 1 | 2,
    sessionExpiryMs,
    ...(raw.client_id === undefined ? {} : { clientId: String(raw.client_id) }),
    ...(raw.share === undefined ? {} : { share: String(raw.share) }),
    ...availability,
    ...(raw.retained === 'take' ? { retained: 'take' } : {}),
    ...readZone(raw, report),
  };
}

/** Parses the members of a value other than its topic. Returns `undefined` after reporting a problem. */
export function readMessageMembers(
  raw: Members,
  report: MemberReport,
  wrongTarget: (topic: string) => string | undefined,
): Omit<MessageValue, 'topic' | 'template'> | undefined {
  const dependent = ['time_unit', 'zone'].find((member) => raw[member] !== undefined);
  if (dependent !== undefined && raw.time === undefined && raw.time_property === undefined) {
    return report.problem(dependent, `${dependent} requires time`, 'add time: with a JSON pointer');
  }
  if (raw.samples !== undefined && raw.time_property !== undefined) {
    const reason = 'time_property would assign the same time to all samples of a message';
    return report.problem('time_property', reason, 'set time: with a JSON pointer in each sample');
  }
  const target = raw.write_to === undefined ? undefined : String(raw.write_to);
  const wrong = target === undefined ? undefined : wrongTarget(target);
  if (wrong !== undefined) return report.problem('write_to', `write_to "${printable(target!)}" ${wrong}`, ONE_TOPIC);
  const availability = readAvailability(raw, report, wrongTarget);
  if (availability === undefined) return undefined;
  const pointer = (member: string, text: unknown) =>
    text === undefined || text === '' ? {} : { [member]: String(text) };
  return {
    ...(raw.samples === undefined ? {} : { samples: String(raw.samples) }),
    ...pointer('at', raw.at),
    ...pointer('time', raw.time),
    ...pointer('status', raw.status),
    ...(raw.time_unit === undefined ? {} : { timeUnit: raw.time_unit as TimeUnit }),
    ...readZone(raw, report),
    ...availability,
    ...(target === undefined ? {} : { writeTo: target }),
  };
}

/**
 * Parses the availability members. Returns `undefined` after reporting a problem. `wrongTarget`: returns the problem
 * with a topic.
 */
export function readAvailability(
  { availability, payload_available: available, payload_not_available: unavailable }: Members,
  report: MemberReport,
  wrongTarget: (topic: string) => string | undefined,
): { availability?: Availability } | undefined {
  const topic = availability === undefined ? undefined : String(availability);
  const wrong = topic === undefined ? undefined : wrongTarget(topic);
  if (wrong !== undefined) {
    return report.problem('availability', `availability "${printable(topic!)}" ${wrong}`, ONE_TOPIC);
  }
  const words = [available ?? 'online', unavailable ?? 'offline'].map((word) => canonicalWord(String(word)));
  if (words[0] === words[1]) {
    const reason = 'payload_not_available must differ from payload_available';
    return report.problem('payload_not_available', reason, 'use different texts, such as online and offline');
  }
  const read: Availability = {
    ...(topic === undefined ? {} : { topic }),
    ...(available === undefined ? {} : { available: words[0]! }),
    ...(unavailable === undefined ? {} : { unavailable: words[1]! }),
  };
  return Object.keys(read).length === 0 ? {} : { availability: read };
}

/** Returns a text in the form in which it is compared: in lower case, numbers in their shortest form (01 and 1.0 are 1). */
export function canonicalWord(text: string): string {
  const word = unpadded(text).toLowerCase();
  const number = parseDecimal(word);
  return Number.isNaN(number) ? word : String(number);
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

/** Whether messages contain the time of the value. */
export function hasOwnTime({ time, timeProperty }: MessageValue): boolean {
  return time !== undefined || timeProperty !== undefined;
}

/** Returns the place of a value as shown by `sources test`, for example `site/ft101 /temp`; `*` stands for each sample. */
export function placeText({ topic, samples, at = '' }: MessageValue): string {
  const pointer = samples === undefined ? at : `${samples}/*${at}`;
  return pointer === '' ? topic : `${topic} ${pointer}`;
}

/**
 * Returns the rules for `write_to`. The device must report the value on another topic. Otherwise, the agent would
 * verify its own message.
 */
export function messageWriting<SourceSpec>(
  grammar: TopicGrammar,
  placesOf: (source: SourceSpec) => readonly { host: string; port: number }[],
): WritingRules<SourceSpec, MessageValue> {
  return {
    problem: ({ topic, writeTo }) => {
      if (writeTo === undefined) {
        return { reason: 'a writable value requires write_to', instead: 'add write_to: with a topic or subject' };
      }
      if (!covers(topic, writeTo, grammar)) return undefined;
      return { reason: 'the agent would read its own message', instead: 'set write_to to a topic that is not read' };
    },
    storedFor: (_, raw) => (Number.isFinite(raw) ? raw : undefined),
    targetsOf: (source, { writeTo }) =>
      placesOf(source).map(({ host, port }) => `${host.toLowerCase()} ${port} ${writeTo}`),
  };
}
