import { type EventType, isEventType } from '../../contract/events.ts';
import type { Stage } from '../admin/stage.ts';
import { isObject } from '../http/call.ts';
import { notFound, refusal } from '../http/refusal.ts';
import { ACCESS_CAUSES } from './access-causes.ts';
import type { Cause, Caused, EventRequest, Triggered } from './cause.ts';
import { SITE_CAUSES } from './site-causes.ts';
import { VALUE_CAUSES } from './value-causes.ts';

/** How each of the 23 types of platform 6.3 is caused by hand: one entry a type, which the compiler counts. */
export const CAUSES: Readonly<Record<EventType, Cause>> = { ...VALUE_CAUSES, ...ACCESS_CAUSES, ...SITE_CAUSES };

/** Triggers an event as it is requested, and says how many webhooks hear of it. Throws a `Refusal` where it cannot. */
export function triggerEvent(stage: Stage, type: string, request: EventRequest = {}): Caused {
  if (!isEventType(type)) throw notFound(`the event type ${type.slice(0, 60)}`);
  const cause = CAUSES[type];
  const before = stage.deliveriesOf(type);
  const triggered = cause.trigger(stage, request);
  const ends: Triggered = typeof triggered === 'number' ? { object: triggered } : triggered;
  const deliveries = stage.deliveriesOf(type) - before;
  const caused: Caused = {
    event_type: type,
    object: { kind: cause.object, id: ends.object },
    ...(ends.to === undefined || cause.to === undefined ? {} : { to: { kind: cause.to, id: ends.to } }),
    ...(ends.made === undefined ? {} : { made: ends.made }),
    deliveries,
  };
  return deliveries > 0 ? caused : { ...caused, note: whyNone(stage, type) };
}

function whyNone(stage: Stage, type: EventType): string {
  const listening = stage.webhooks().filter((webhook) => webhook.event_types.includes(type));
  if (listening.length === 0) return `no webhook is registered for ${type}`;
  if (listening.every((webhook) => webhook.disabled)) return 'every webhook that wants it is disabled';
  return 'it changed nothing, the technical user may not read the object, or `properties` leaves it out';
}

const NUMBERS = ['object', 'to'] as const;
const TEXTS = ['key', 'unit', 'name'] as const;
const EITHER = ['value', 'status', 'type'] as const;
const MEMBERS: readonly string[] = [...NUMBERS, ...TEXTS, ...EITHER, 'changes'];

/** A request from outside, checked member by member. */
export function readEventRequest(body: Record<string, unknown>): EventRequest {
  const fits = (names: readonly string[], types: readonly string[], said: string) => {
    for (const name of names) {
      const value = body[name];
      if (value !== undefined && !types.includes(typeof value)) throw refusal(400, said, name);
    }
  };
  fits(TEXTS, ['string'], 'is no text');
  fits(EITHER, ['string', 'number'], 'is neither a number nor a text');
  for (const name of NUMBERS) {
    if (body[name] !== undefined && !Number.isSafeInteger(body[name])) throw refusal(400, 'is no whole number', name);
  }
  if (body.changes !== undefined && !isObject(body.changes)) throw refusal(400, 'is not an object', 'changes');
  const unknown = Object.keys(body).find((name) => !MEMBERS.includes(name));
  if (unknown !== undefined) throw refusal(400, `is none of ${MEMBERS.join(', ')}`, unknown.slice(0, 60));
  return body as EventRequest;
}
