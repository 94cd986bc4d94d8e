import { Ajv, type ValidateFunction } from 'ajv';
import { converted } from './lenient.ts';
import { type EventType, isEventType } from './names.ts';
import { occurredAtMs } from './occurred-at.ts';
import { type EventContents, eventSchema } from './shapes.ts';

/** An event of one of the 23 types, discriminated by `eventType`. */
type RecognisedEvent = {
  [Type in EventType]: {
    eventType: Type;
    /** Milliseconds since 1970, by the platform clock. */
    occurredAtMs: number;
    content: EventContents[Type];
  };
}[EventType];

// Excludes the meta-schema, which would be compiled at every startup. A test validates the schemas against it.
const ajv = new Ajv({
  strict: true,
  allowUnionTypes: true,
  strictTypes: false,
  strictRequired: false,
  meta: false,
  validateSchema: false,
});
const checks = new Map<EventType, ValidateFunction>();

/** Compiles a schema when its type first arrives: a gateway receives seven of the 23. */
function checkFor(eventType: EventType): ValidateFunction {
  let check = checks.get(eventType);
  if (!check) {
    check = ajv.compile(eventSchema(eventType));
    checks.set(eventType, check);
  }
  return check;
}

/**
 * Converts the members of a parsed payload to the types in the specification, if possible. Changes the payload in place
 * and returns it.
 */
export function lenient(payload: unknown): unknown {
  const eventType = knownType(payload);
  return eventType === undefined ? payload : converted(eventSchema(eventType), payload);
}

/**
 * Returns the event in a payload converted by `lenient` (platform 6.2, 6.3). A payload without a readable time is not
 * recognised, because its age and its order among other events of the object decide what happens in the plant.
 */
export function recognise(payload: unknown): RecognisedEvent | 'unrecognised' {
  const eventType = knownType(payload);
  if (eventType === undefined) return 'unrecognised';
  const at = occurredAtMs(payload);
  if (at === undefined || !checkFor(eventType)(payload)) return 'unrecognised';
  return { eventType, occurredAtMs: at, content: (payload as { content: unknown }).content } as RecognisedEvent;
}

/** Returns the reason why a payload of a known type is not recognised, or `undefined` for any other payload. */
export function unreadableReason(payload: unknown): string | undefined {
  const eventType = knownType(payload);
  if (eventType === undefined) return undefined;
  const check = checkFor(eventType);
  if (check(payload)) return occurredAtMs(payload) === undefined ? 'occurred_at must be a valid time' : undefined;
  const { instancePath = '', message } = check.errors?.[0] ?? {};
  return `${instancePath.slice(1).replaceAll('/', '.') || 'the event'} ${message}`;
}

function knownType(payload: unknown): EventType | undefined {
  if (typeof payload !== 'object' || payload === null) return undefined;
  const { event_type } = payload as { event_type?: unknown };
  return typeof event_type === 'string' && isEventType(event_type) ? event_type : undefined;
}
