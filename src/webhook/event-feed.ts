import { parseEvent } from '../contract/events/event-text.ts';
import { digestOf, type InboxEvent } from './inbox-event.ts';
import type { ArrivedEvent } from './received-event.ts';

/** An event with its parsed payload; `{}` if the payload is not a JSON object. */
export type Parsed<Event extends InboxEvent> = Event & { readonly envelope: Readonly<Record<string, unknown>> };

/** Parses the payload when a subscriber asks for it: most events of a page wait for their turn. */
export function parsed<Event extends InboxEvent>(event: Event): Parsed<Event> {
  let envelope: Readonly<Record<string, unknown>> | undefined;
  return Object.defineProperty(event, 'envelope', {
    enumerable: true,
    get: () => {
      envelope ??= parseObject(event.payload);
      return envelope;
    },
  }) as Parsed<Event>;
}

/** An event that is not in the inbox yet, in the form in which subscribers of the inbox receive it. */
export function parsedEvent(event: ArrivedEvent): Parsed<InboxEvent> {
  return parsed({
    id: 0,
    digest: digestOf(event.identity),
    eventType: event.eventType,
    occurredAtMs: event.occurredAtMs,
    receivedAtMs: event.receivedAtMs,
    payload: Buffer.from(event.payload).toString('utf8'),
    state: 'received',
    attempts: 0,
    unrecognised: event.unrecognised,
    replayed: false,
  });
}

function parseObject(text: string): Record<string, unknown> {
  const parsed = parseEvent(text);
  return typeof parsed === 'object' && parsed !== null && !Array.isArray(parsed)
    ? (parsed as Record<string, unknown>)
    : {};
}
