/** Writes to devices that receive and report values as messages. */
import type { SchemaObject } from 'ajv';
import type { Brokers } from '../../broker/brokers.ts';
import { covers, type TopicGrammar } from '../../broker/topic-filters.ts';
import { printable } from '../../config/problem.ts';
import type { MemberReport, Members, WritingRules } from '../../config/source-kinds.ts';
import type { MessageValue } from './payload.ts';

export const WRITE_TO: Readonly<Record<string, SchemaObject>> = {
  write_to: {
    type: 'string',
    minLength: 1,
    maxLength: 1024,
    title: 'a topic or subject',
    description: 'MQTT and NATS: topic or subject to which a write of the value is published, as a number.',
    examples: ['site/valve-1/set'],
  },
};

/** Reads `write_to`. Returns `undefined` after reporting a problem. */
export function readWriteTo(
  { write_to: writeTo }: Members,
  wrong: (topic: string) => string | undefined,
  report: MemberReport,
): Pick<MessageValue, 'writeTo'> | undefined {
  if (writeTo === undefined) return {};
  const topic = String(writeTo);
  const reason = wrong(topic);
  if (reason === undefined) return { writeTo: topic };
  report.problem('write_to', `write_to "${printable(topic)}" ${reason}`, 'use one topic or subject, without wildcards');
  return undefined;
}

/** The device must report the value on another topic. Otherwise, the agent would verify its own message. */
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

/** Publishes the number as text. Resolves when the broker has accepted the message. */
export async function publishValue(
  { brokers, source }: { brokers: Pick<Brokers, 'publish'>; source: { name: string } },
  { writeTo }: MessageValue,
  raw: number,
  guard: () => void,
  signal: AbortSignal,
): Promise<void> {
  await brokers.publish(source.name, writeTo!, String(raw), { signal, beforeSend: guard });
}
