import { Ajv, type ValidateFunction } from 'ajv';
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
 * Returns the event in a parsed payload (platform 6.2, 6.3). A payload without a readable time is not recognised,
 * because its age and its order among other events of the object decide what happens in the plant.
 */
export function recognise(payload: unknown): RecognisedEvent | 'unrecognised' {
  if (typeof payload !== 'object' || payload === null) return 'unrecognised';
  const { event_type, content } = payload as { event_type?: unknown; content?: unknown };
  if (typeof event_type !== 'string' || !isEventType(event_type)) return 'unrecognised';
  const at = occurredAtMs(payload);
  if (at === undefined || !checkFor(event_type)(payload)) return 'unrecognised';
  return { eventType: event_type, occurredAtMs: at, content } as RecognisedEvent;
}
