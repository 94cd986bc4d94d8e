import { parseEvent } from '../contract/events/event-text.ts';
import { recognise } from '../contract/events.ts';
import { decode, identityOf } from './identity.ts';
import { digestOf } from './inbox-event.ts';
import type { SignatureHeaders } from './signature.ts';

/** An event on its way into the inbox: plain data, so that it can go to the store thread. */
export interface ArrivedEvent {
  /** From `identityOf`. */
  identity: Uint8Array;
  /** From `deliveryIdentity`, where it came from the deliveries list. */
  delivery?: Uint8Array;
  /** As the payload says, bounded; `''` where it says none. */
  eventType: string;
  /** Platform's clock; `undefined` where unreadable. */
  occurredAtMs: number | undefined;
  /** This machine's wall clock. */
  receivedAtMs: number;
  /** The bytes as they came. */
  payload: Uint8Array;
  unrecognised: boolean;
  /** As they came with it, where they are to go on with it (`Relay`). */
  signatures?: SignatureHeaders;
}

/** Longest name that is kept of an event type that nobody knows. */
const MAX_TYPE = 100;

/** Reads a body for the inbox. Never throws: a body that is not JSON, or exceeds the bounds of an event, is kept as unrecognised. */
export function readEvent(body: Uint8Array, receivedAtMs: number): ArrivedEvent {
  const payload = parse(body);
  const event = recognise(payload);
  const base = { identity: identityOf(body), receivedAtMs, payload: body };
  if (event !== 'unrecognised') {
    return { ...base, eventType: event.eventType, occurredAtMs: event.occurredAtMs, unrecognised: false };
  }
  const name = (payload as { event_type?: unknown } | null | undefined)?.event_type;
  const eventType = typeof name === 'string' ? name.slice(0, MAX_TYPE) : '';
  return { ...base, eventType, occurredAtMs: undefined, unrecognised: true };
}

function parse(body: Uint8Array): unknown {
  const text = decode(body);
  return text === undefined ? undefined : parseEvent(text);
}

/** The line of the log that an event's arrival is: by a `push` to the listener, from the deliveries `list`, or by a `broker`. */
export function arrivalLine(
  { identity, eventType, occurredAtMs, unrecognised }: ArrivedEvent,
  via: 'push' | 'list' | 'broker',
) {
  return {
    event: 'webhook.received',
    digest: digestOf(identity),
    eventType,
    occurredAt: occurredAtMs === undefined ? undefined : isoOf(occurredAtMs),
    via,
    ...(unrecognised ? { unrecognised } : {}),
  };
}

function isoOf(ms: number): string | undefined {
  return Math.abs(ms) > 8.64e15 ? undefined : new Date(ms).toISOString();
}
