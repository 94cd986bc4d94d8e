import { isoTime } from '../base/amounts.ts';
import { parseEvent } from '../contract/events/event-text.ts';
import { lenient, recognise, unreadableReason } from '../contract/events.ts';
import { decode, identityOf } from './identity.ts';
import { digestOf, type InboxEvent } from './inbox-event.ts';
import type { SignatureHeaders } from './signature.ts';

/** An event for the inbox, as plain data that can be sent to the store thread. */
export interface ArrivedEvent {
  /** Identity of the event (`identityOf`). */
  identity: Uint8Array;
  /** Identity of the delivery (`deliveryIdentity`), if the event comes from the deliveries list. */
  delivery?: Uint8Array;
  /** Event type in the payload, truncated to a maximum length; may be empty. */
  eventType: string;
  /** Object of a recognised event, for the log, for example `asset 881`. */
  object?: string;
  /** Event time according to the platform clock; undefined if the event contains no valid time. */
  occurredAtMs: number | undefined;
  /** Arrival time according to the gateway's wall clock. */
  receivedAtMs: number;
  /** Unchanged bytes of the body. */
  payload: Uint8Array;
  unrecognised: boolean;
  /** Reason why an event of a known type is unrecognised. */
  problem?: string;
  /** Note that is stored in the same transaction as the event. */
  note?: { name: string; value: string };
  /** Signatures of the delivery, for `Relay`. */
  signatures?: SignatureHeaders;
}

/** Source of an event: the listener, the deliveries list, or a broker. */
export type ArrivalPath = 'push' | 'list' | 'broker';

/** Members of the content that contain objects. An event of an instrumentation may also contain its asset. */
const OBJECTS = ['instrumentation', 'asset', 'node', 'edge_device', 'product', 'event', 'add_on'];
/** Maximum length of an unrecognised event type. */
const MAX_TYPE = 100;

/**
 * Converts a body to an event for the inbox. Never throws: a body that is not JSON or exceeds the limits for an event
 * is treated as unrecognised.
 */
export function readEvent(body: Uint8Array, receivedAtMs: number): ArrivedEvent {
  const payload = lenient(parse(body));
  const event = recognise(payload);
  const base = { identity: identityOf(body), receivedAtMs, payload: body };
  if (event !== 'unrecognised') {
    const { eventType, occurredAtMs, content } = event;
    return { ...base, eventType, ...objectOf(content), occurredAtMs, unrecognised: false };
  }
  const name = (payload as { event_type?: unknown } | null | undefined)?.event_type;
  const eventType = typeof name === 'string' ? name.slice(0, MAX_TYPE) : '';
  const problem = unreadableReason(payload);
  return {
    ...base,
    eventType,
    occurredAtMs: undefined,
    unrecognised: true,
    ...(problem === undefined ? {} : { problem }),
  };
}

/** Returns the first object of an event with an ID. */
function objectOf(content: Readonly<Record<string, unknown>>): { object?: string } {
  for (const kind of OBJECTS) {
    const id = (content[kind] as { id?: unknown } | null | undefined)?.id;
    if (Number.isSafeInteger(id)) return { object: `${kind} ${id}` };
  }
  return {};
}

function parse(body: Uint8Array): unknown {
  const text = decode(body);
  return text === undefined ? undefined : parseEvent(text);
}

/** Returns the log fields of a received event. */
export function arrivalLine(
  { identity, eventType, object, occurredAtMs, unrecognised }: ArrivedEvent,
  via: ArrivalPath,
) {
  return {
    event: 'webhook.received',
    digest: digestOf(identity),
    eventType,
    object,
    occurredAt: isoTime(occurredAtMs),
    via,
    ...(unrecognised ? { unrecognised } : {}),
  };
}

/** An event with its parsed payload; `{}` if the payload is not a JSON object. */
export type Parsed<Event extends InboxEvent> = Event & { readonly envelope: Readonly<Record<string, unknown>> };

/** Adds the property `envelope`, which parses the payload on first access. */
export function parsed<Event extends InboxEvent>(event: Event): Parsed<Event> {
  let envelope: Readonly<Record<string, unknown>> | undefined;
  return Object.defineProperty(event, 'envelope', {
    enumerable: true,
    get: () => {
      envelope ??= envelopeOf(event.payload);
      return envelope;
    },
  }) as Parsed<Event>;
}

/** Parses a payload and converts it with `lenient`. Returns `{}` if the payload is not a JSON object. */
export function envelopeOf(text: string): Record<string, unknown> {
  const value = lenient(parseEvent(text));
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
}
