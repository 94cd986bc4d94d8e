import type { EventContents } from './events/content.ts';
import type { EventType } from './events/names.ts';

export type * from './events/content.ts';
export * from './events/names.ts';
export { occurredAtMs, timestampMs } from './events/occurred-at.ts';
export { type RecognisedEvent, recognise } from './events/recognise.ts';
export { eventSchema, type JsonSchema } from './events/schema.ts';

/** Spec 6.2: the envelope of every payload. The two association events spell the time `occured_at`. */
export interface EventEnvelope<Type extends string = string, Content = Record<string, unknown>> {
  event_type: Type;
  /** ISO 8601, with or without UTC offset. */
  occurred_at?: string;
  occured_at?: string;
  content: Content;
}

/** Any payload of the 23 types as it stands on the wire, discriminated by `event_type`. */
export type WebhookEvent = { [Type in EventType]: EventEnvelope<Type, EventContents[Type]> }[EventType];
