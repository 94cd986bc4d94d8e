import { NATS_PORTS, type NatsSpec, placeOf } from '../../broker/broker-spec.ts';
import { NATS_SUBJECTS } from '../../broker/topic-filters.ts';
import { DURATION_SCHEMA } from '../../config/duration-schema.ts';
import { printable } from '../../config/problem.ts';
import type { MemberReport, Members } from '../../config/source-kinds.ts';
import { wrongSubject } from '../../config/topics.ts';
import { readDurationMember } from '../duration-member.ts';
import { readZone, ZONE_MEMBER } from '../intake/logger-time.ts';
import {
  AVAILABILITY_MEMBERS,
  CONNECTION_MEMBERS,
  MESSAGE_MEMBERS,
  messageWriting,
  placeText,
  readAvailability,
  readConnection,
  readMessageMembers,
} from '../messages/message-members.ts';
import type { MessageValue } from '../messages/payload.ts';
import type { SourceKind } from '../source-kind.ts';

const ACK_WAIT = { minMs: 1_000, maxMs: Number.POSITIVE_INFINITY, range: 'at least one second', example: '30s' };
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
    zone: ZONE_MEMBER,
    ...AVAILABILITY_MEMBERS,
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
    ...MESSAGE_MEMBERS,
  },
  needs: { member: 'subject', example: 'subject: plant.ft101' },
  readSource,
  readValue,
  writing: messageWriting(NATS_SUBJECTS, ({ servers }) => servers.map((server) => placeOf(server, NATS_PORTS))),
  groupOf: ({ durable }) => durable,
  // Messages without a timestamp get the time at which the stream stored them.
  hasTime: () => true,
  placeOf: ({ servers: [first] }) => placeOf(first!, NATS_PORTS),
  addressOf: (_, value) => placeText(value),
  async open(context) {
    const { NatsSource } = await import('./nats-source.ts');
    return new NatsSource(context);
  },
};

function readSource(raw: Members, report: MemberReport): NatsSpec | undefined {
  const servers = String(raw.nats)
    .split(',')
    .map((server) => server.trim());
  const connection = readConnection('nats', raw, report, { addresses: servers, ports: NATS_PORTS });
  if (connection === undefined) return undefined;
  const ackWaitMs = readDurationMember(raw, 'ack_wait', 30_000, ACK_WAIT, report);
  if (ackWaitMs === undefined) return undefined;
  const availability = readAvailability(raw, report, (text) => wrongSubject(text, 'plain'));
  if (availability === undefined) return undefined;
  return {
    ...connection,
    servers,
    ackWaitMs,
    ordered: raw.ordered === true,
    ...(raw.stream === undefined ? {} : { stream: String(raw.stream) }),
    ...(raw.durable === undefined ? {} : { durable: String(raw.durable) }),
    ...(raw.creds === undefined ? {} : { credsFile: report.pathOf(String(raw.creds)) }),
    ...readZone(raw, report),
    ...availability,
  };
}

function readValue(raw: Members, report: MemberReport, template: Members): MessageValue | undefined {
  const subject = String(raw.subject);
  const wrong = wrongSubject(subject, 'wildcards');
  if (wrong !== undefined) {
    report.problem('subject', `subject "${printable(subject)}" ${wrong}`, 'use a value such as plant.ft101');
    return undefined;
  }
  const members = readMessageMembers(raw, report, (text) => wrongSubject(text, 'plain'));
  return members && { topic: subject, template: String(template.subject), ...members };
}
