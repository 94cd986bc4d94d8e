import { readDuration } from '../../base/quantity.ts';
import type { NatsSpec } from '../../broker/nats/nats-spec.ts';
import { NATS_SUBJECTS } from '../../broker/topic-filters.ts';
import { DURATION_SCHEMA } from '../../config/duration-schema.ts';
import { addressCorrection, printable, printableAddress } from '../../config/problem.ts';
import type { MemberReport, Members } from '../../config/source-kinds.ts';
import { wrongSubject } from '../../config/topics.ts';
import { CONNECTION_MEMBERS, POINTER_MEMBERS, placeText, readPointers } from '../messages/message-members.ts';
import { messageWriting, readWriteTo, WRITE_TO } from '../messages/message-writes.ts';
import type { MessageValue } from '../messages/payload.ts';
import type { SourceKind } from '../source-kind.ts';

const SCHEMES = ['nats:', 'tls:'];
const PORT = 4222;
const THIRTY_SECONDS = '30s';
const NAME = { type: 'string', pattern: '^[^\\s.*>/\\\\]{1,128}$' };

/** A NATS stream: `line: { nats: "nats://127.0.0.1:4222", stream: PLANT, durable: gateways }`. */
export const NATS: SourceKind<NatsSpec, MessageValue> = {
  kind: 'nats',
  example: 'nats: nats://…',
  publishes: 'subject',
  sourceMembers: {
    nats: {
      type: 'string',
      title: 'the address of a NATS server',
      description: 'NATS server with JetStream, or comma-separated servers of a cluster.',
      examples: ['nats://127.0.0.1:4222', 'tls://n1.example:4222,tls://n2.example:4222,tls://n3.example:4222'],
    },
    stream: {
      ...NAME,
      title: 'the name of a stream',
      description: 'NATS: stream to consume. Default: the stream that stores the subjects.',
      examples: ['PLANT'],
    },
    durable: {
      ...NAME,
      title: 'the name of a durable consumer',
      description:
        'NATS: durable consumer. Agents with the same consumer share its messages. Default: a consumer for this gateway.',
      examples: ['gateways'],
    },
    ack_wait: {
      ...DURATION_SCHEMA,
      description: 'NATS: time without an acknowledgement after which the server redelivers a message. Default: 30s.',
      examples: ['30s'],
    },
    ordered: {
      type: 'boolean',
      default: false,
      title: 'true or false',
      description:
        'NATS: after a crash or a lost connection, unacknowledged messages are delivered before new ones. Requires a consumer that only one agent uses.',
    },
    creds: {
      type: 'string',
      minLength: 1,
      maxLength: 1024,
      title: 'a file',
      description: 'NATS: credentials file (.creds) created by nsc.',
      examples: ['gateway.creds'],
    },
    ...CONNECTION_MEMBERS,
  },
  valueMembers: {
    subject: {
      type: 'string',
      minLength: 1,
      maxLength: 1024,
      title: 'a NATS subject',
      description: 'NATS: subject of the value; can contain the wildcards * and >, and {tag} for the tag name.',
      examples: ['plant.ft101', 'plant.{tag}.flow'],
    },
    ...POINTER_MEMBERS,
    ...WRITE_TO,
  },
  needs: { member: 'subject', example: 'subject: plant.ft101' },
  readSource,
  readValue,
  writing: messageWriting(NATS_SUBJECTS, ({ servers }) => servers.map(placeOf)),
  groupOf: ({ durable }) => durable,
  // Messages without a timestamp get the time at which the stream stored them.
  hasTime: () => true,
  placeOf: ({ servers: [first] }) => placeOf(first!),
  addressOf: (_, value) => placeText(value),
  async open(context) {
    const { NatsSource } = await import('./nats-source.ts');
    return new NatsSource(context);
  },
  async test({ source, points, brokers, clock }, waitMs, signal) {
    const { listenOnce } = await import('../messages/listen-for.ts');
    const client = await brokers.inspectionNats(source.name, source.spec);
    return listenOnce(client, { points, clock, waitMs, signal, grammar: NATS_SUBJECTS });
  },
};

function placeOf(server: string): { host: string; port: number } {
  const { hostname, port } = new URL(server);
  return { host: hostname.replace(/^\[(.*)\]$/, '$1'), port: Number(port || PORT) };
}

function readSource(raw: Members, report: MemberReport): NatsSpec | undefined {
  const servers = String(raw.nats)
    .split(',')
    .map((server) => server.trim());
  const wrong = servers.map(wrongServer).find((reason) => reason !== undefined);
  if (wrong !== undefined) {
    const text = String(raw.nats);
    const instead = addressCorrection(text, 'use a value such as nats://127.0.0.1:4222');
    report.problem('nats', `"${printableAddress(text)}" ${wrong}`, instead);
    return undefined;
  }
  const ackWait = readDuration(String(raw.ack_wait ?? THIRTY_SECONDS));
  if (!('value' in ackWait) || ackWait.value < 1_000) {
    const reason = 'reason' in ackWait ? ackWait.reason : 'must be at least one second';
    report.problem('ack_wait', `ack_wait "${raw.ack_wait}" ${reason}`, 'use a value such as 30s');
    return undefined;
  }
  if ((raw.cert === undefined) !== (raw.key === undefined)) {
    const [there, missing] = raw.cert === undefined ? ['key', 'cert'] : ['cert', 'key'];
    report.problem(there, `${there} requires ${missing}`, `add ${missing}: with its file`);
    return undefined;
  }
  const hasUser = raw.username !== undefined || servers.some((server) => new URL(server).username !== '');
  if (raw.password_file !== undefined && !hasUser) {
    report.problem('password_file', 'password_file requires a user name', 'add username:');
    return undefined;
  }
  return {
    servers,
    ackWaitMs: ackWait.value,
    ordered: raw.ordered === true,
    ...(raw.stream === undefined ? {} : { stream: String(raw.stream) }),
    ...(raw.durable === undefined ? {} : { durable: String(raw.durable) }),
    ...(raw.username === undefined ? {} : { username: String(raw.username) }),
    ...(raw.password_file === undefined ? {} : { passwordFile: report.pathOf(String(raw.password_file)) }),
    ...(raw.creds === undefined ? {} : { credsFile: report.pathOf(String(raw.creds)) }),
    ...(raw.ca === undefined ? {} : { caFile: report.pemPathOf('ca', String(raw.ca), 'certificate') }),
    ...(raw.cert === undefined ? {} : { certFile: report.pemPathOf('cert', String(raw.cert), 'certificate') }),
    ...(raw.key === undefined ? {} : { keyFile: report.pemPathOf('key', String(raw.key), 'key') }),
  };
}

function wrongServer(text: string): string | undefined {
  const url = URL.parse(text);
  if (url === null || !/^[a-z]+:\/\//i.test(text)) return 'is not an address';
  if (!SCHEMES.includes(url.protocol)) return `has the unsupported scheme ${url.protocol}//`;
  if (url.hostname === '') return 'has no host';
  if (!/^\/?$/.test(url.pathname + url.search + url.hash)) return 'has unexpected text after the port';
  return undefined;
}

function readValue(raw: Members, report: MemberReport, template: Members): MessageValue | undefined {
  const subject = String(raw.subject);
  const wrong = wrongSubject(subject, 'wildcards');
  if (wrong !== undefined) {
    report.problem('subject', `subject "${printable(subject)}" ${wrong}`, 'use a value such as plant.ft101');
    return undefined;
  }
  const pointers = readPointers(raw, report);
  const writeTo = readWriteTo(raw, (text) => wrongSubject(text, 'plain'), report);
  if (pointers === undefined || writeTo === undefined) return undefined;
  return { topic: subject, template: String(template.subject), ...pointers, ...writeTo };
}
