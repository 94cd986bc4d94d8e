import { Ajv, type ValidateFunction } from 'ajv';
import type { EventContents } from './content.ts';
import { type EventType, isEventType } from './names.ts';
import { occurredAtMs } from './occurred-at.ts';
import { eventSchema } from './schema.ts';

/** A payload that is one of the 23 types, discriminated by `eventType`. */
type RecognisedEvent = {
  [Type in EventType]: {
    eventType: Type;
    /** Milliseconds since 1970 by the platform's clock. */
    occurredAtMs: number;
    content: EventContents[Type];
  };
}[EventType];

// Without the schema of schemas, which would be compiled at every start: a test holds ours against it.
const ajv = new Ajv({
  strict: true,
  allowUnionTypes: true,
  strictTypes: false,
  strictRequired: false,
  meta: false,
  validateSchema: false,
});
const checks = new Map<EventType, ValidateFunction>();

/** Compiled when its type is first met: a gateway sees seven of the 23. */
function checkFor(eventType: EventType): ValidateFunction {
  let check = checks.get(eventType);
  if (!check) {
    check = ajv.compile(eventSchema(eventType));
    checks.set(eventType, check);
  }
  return check;
}

/**
 * What a parsed payload is (platform 6.2, 6.3). Without a readable time it is unrecognised as well: neither its age nor its
 * place among other events of the same object could be told, and both decide what happens in the plant.
 */
export function recognise(payload: unknown): RecognisedEvent | 'unrecognised' {
  if (typeof payload !== 'object' || payload === null) return 'unrecognised';
  const { event_type, content } = payload as { event_type?: unknown; content?: unknown };
  if (typeof event_type !== 'string' || !isEventType(event_type)) return 'unrecognised';
  const at = occurredAtMs(payload);
  if (at === undefined || !checkFor(event_type)(payload)) return 'unrecognised';
  return { eventType: event_type, occurredAtMs: at, content } as RecognisedEvent;
}
