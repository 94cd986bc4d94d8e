import { type EventType, isEventType } from '../../contract/events.ts';
import { membersOf } from '../http/forms.ts';
import { notFound } from '../http/refusal.ts';
import type { Stage } from '../stage.ts';
import { type Cause, type Caused, type EventRequest, idOf, type Triggered } from './cause.ts';
import { ACCESS_CAUSES, SITE_CAUSES } from './site-causes.ts';
import { VALUE_CAUSES } from './value-causes.ts';

/** Causes for the 23 event types (platform 6.3). */
export const CAUSES: Readonly<Record<EventType, Cause>> = { ...VALUE_CAUSES, ...ACCESS_CAUSES, ...SITE_CAUSES };

/**
 * Triggers an event and returns its objects and the number of deliveries. Throws a `Refusal` if the event cannot be
 * triggered.
 */
export function triggerEvent(stage: Stage, type: string, request: EventRequest = {}): Caused {
  if (!isEventType(type)) throw notFound(`the event type ${type.slice(0, 60)}`);
  const cause = CAUSES[type];
  const before = stage.deliveriesOf(type);
  const { object, to, ...rest } = request;
  const triggered = cause.trigger(stage, {
    ...rest,
    ...(object === undefined ? {} : { object: idOf(stage, cause.object, object) }),
    ...(to === undefined || cause.to === undefined ? {} : { to: idOf(stage, cause.to, to) }),
  });
  const ends: Triggered = typeof triggered === 'number' ? { object: triggered } : triggered;
  const deliveries = stage.deliveriesOf(type) - before;
  const caused: Caused = {
    event_type: type,
    object: { kind: cause.object, id: ends.object },
    ...(ends.to === undefined || cause.to === undefined ? {} : { to: { kind: cause.to, id: ends.to } }),
    ...(ends.made === undefined ? {} : { made: ends.made }),
    deliveries,
  };
  return deliveries > 0 ? caused : { ...caused, note: reasonForNone(stage, type) };
}

function reasonForNone(stage: Stage, type: EventType): string {
  const listening = stage.webhooks().filter((webhook) => webhook.event_types.includes(type));
  if (listening.length === 0) return `no webhook registered for ${type}`;
  if (listening.every((webhook) => webhook.disabled)) return 'every webhook for this type is disabled';
  return 'nothing changed, the technical user cannot read the object, or `properties` excludes the change';
}

/** Validates the members of a request and returns the request. */
export function readEventRequest(body: object): EventRequest {
  return membersOf(body, {
    object: 'textOrNumber',
    to: 'textOrNumber',
    key: 'text',
    value: 'textOrNumber',
    unit: 'text',
    name: 'text',
    status: 'textOrNumber',
    type: 'textOrNumber',
    changes: 'object',
  });
}
