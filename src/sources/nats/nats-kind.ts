import { readDuration } from '../../base/quantity.ts';
import type { NatsSpec } from '../../broker/nats/nats-spec.ts';
import { asTopic } from '../../broker/nats/subject.ts';
import { DURATION_SCHEMA } from '../../config/duration-schema.ts';
import { printable } from '../../config/problem.ts';
import type { MemberReport, Members } from '../../config/source-kinds.ts';
import { wrongSubject } from '../../config/subject.ts';
import { MQTT, readPointers } from '../mqtt/mqtt-kind.ts';
import type { SourceKind } from '../source-kind.ts';
import type { NatsValue } from './nats-value.ts';

/** Members that mean for NATS what they mean for MQTT. */
const SHARED = chosen(MQTT.sourceMembers, ['member', 'username', 'password_file', 'ca', 'cert', 'key']);
const POINTERS = chosen(MQTT.valueMembers, ['at', 'time', 'time_unit', 'status']);
const SCHEMES = ['nats:', 'tls:'];
const PORT = 4222;
const THIRTY_SECONDS = '30s';
const NAME = { type: 'string', pattern: '^[^\\s.*>/\\\\]{1,128}$' };

/** A stream of NATS: `line: { nats: "nats://127.0.0.1:4222", stream: PLANT, durable: gateways }`. */
export const NATS: SourceKind<NatsSpec, NatsValue> = {
  kind: 'nats',
  example: 'nats: nats://…',
  publishes: 'subject',
  sourceMembers: {
    nats: {
      type: 'string',
      title: 'the address of a NATS server',
      description: 'A NATS server with JetStream, or several of a cluster with commas between.',
      examples: ['nats://127.0.0.1:4222', 'tls://n1.example:4222,tls://n2.example:4222,tls://n3.example:4222'],
    },
    stream: {
      ...NAME,
      title: 'the name of a stream',
      description: 'NATS: the stream that is taken from; left out, the one that keeps the subjects.',
      examples: ['PLANT'],
    },
    durable: {
      ...NAME,
      title: 'the name of a durable consumer',
      description: 'NATS: agents that name the same one share its messages. Left out: one of this gateway alone.',
      examples: ['gateways'],
    },
    ack_wait: {
      ...DURATION_SCHEMA,
      description: 'NATS: after this without acknowledgement a message goes to another agent of the consumer; 30s.',
      examples: ['30s'],
    },
    ordered: {
      type: 'boolean',
      default: false,
      title: 'true or false',
      description:
        'NATS: after a crash, or a connection that broke, what was not acknowledged comes before anything new; for a consumer that one agent has alone.',
    },
    creds: {
      type: 'string',
      minLength: 1,
      maxLength: 1024,
      title: 'a file',
      description: 'NATS: a .creds file, as nsc writes it.',
      examples: ['gateway.creds'],
    },
    ...SHARED,
  },
  valueMembers: {
    subject: {
      type: 'string',
      minLength: 1,
      maxLength: 1024,
      title: 'a NATS subject',
      description: 'NATS: the subject that carries the value; * and > stand for others, {tag} for the name of the tag.',
      examples: ['plant.ft101', 'plant.{tag}.flow'],
    },
    ...POINTERS,
  },
  needs: { member: 'subject', example: 'subject: plant.ft101' },
  readSource,
  readValue,
  groupOf: ({ durable }) => durable,
  // That of the stream.
  hasTime: () => true,
  placeOf: ({ servers: [first] }) => placeOf(first!),
  addressOf: (_, { subject, at: pointer = '' }) => `${subject}${pointer === '' ? '' : ` ${pointer}`}`,
  async open(context) {
    const { NatsSource } = await import('./nats-source.ts');
    return new NatsSource(context, await context.notes());
  },
  async test({ source, platformCaFile, clock, log, ...context }) {
    const { listenOnce } = await import('../mqtt/test-mqtt.ts');
    const { NatsBeside } = await import('../../broker/nats/nats-beside.ts');
    const beside = new NatsBeside({ name: source.name, spec: source.spec, platformCaFile, clock, logger: log });
    return listenOnce(beside, { ...context, clock });
  },
  async *scan({ source, platformCaFile, clock, log, waitMs, signal }, what) {
    const { scanNats } = await import('./scan-nats.ts');
    const { NatsBeside } = await import('../../broker/nats/nats-beside.ts');
    const beside = new NatsBeside({ name: source.name, spec: source.spec, platformCaFile, clock, logger: log });
    yield* scanNats(beside, { what, waitMs, clock, signal });
  },
};

function chosen<Schema>(members: Readonly<Record<string, Schema>>, names: readonly string[]): Record<string, Schema> {
  return Object.fromEntries(Object.entries(members).filter(([name]) => names.includes(name)));
}

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
    report.problem('nats', `"${printable(String(raw.nats))}" ${wrong}`, 'write for example nats://127.0.0.1:4222');
    return undefined;
  }
  const ackWait = readDuration(String(raw.ack_wait ?? THIRTY_SECONDS));
  if (!('value' in ackWait) || ackWait.value < 1_000) {
    const reason = 'reason' in ackWait ? ackWait.reason : 'is less than a second';
    report.problem('ack_wait', `ack_wait "${raw.ack_wait}" ${reason}`, 'write for example 30s');
    return undefined;
  }
  if ((raw.cert === undefined) !== (raw.key === undefined)) {
    const [there, missing] = raw.cert === undefined ? ['key', 'cert'] : ['cert', 'key'];
    report.problem(there, `${there} stands without ${missing}`, `add ${missing}: with its file`);
    return undefined;
  }
  const hasUser = raw.username !== undefined || servers.some((server) => new URL(server).username !== '');
  if (raw.password_file !== undefined && !hasUser) {
    report.problem('password_file', 'there is a password and no user name', 'add username:');
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
  if (!SCHEMES.includes(url.protocol)) return `begins with ${url.protocol}//, which nats does not know`;
  if (url.hostname === '') return 'names no host';
  if (!/^\/?$/.test(url.pathname + url.search + url.hash)) return 'has something after the port';
  return undefined;
}

function readValue(raw: Members, report: MemberReport, template: Members): NatsValue | undefined {
  const subject = String(raw.subject);
  const wrong = wrongSubject(subject, 'wildcards');
  if (wrong !== undefined) {
    report.problem('subject', `subject "${printable(subject)}" ${wrong}`, 'write for example plant.ft101');
    return undefined;
  }
  const pointers = readPointers(raw, report);
  if (pointers === undefined) return undefined;
  return { subject, topic: asTopic(subject), template: asTopic(String(template.subject)), ...pointers };
}
