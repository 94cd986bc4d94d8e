/** Event type of writes by an operator. */
export const MANUAL_WRITE = 'value_written';

/**
 * Events of rules on local values, and of writes by an operator. They have the form of platform events (platform 6.2),
 * but the platform never sends them.
 */
const VALUE_EVENT_TYPES = ['value_raised', 'value_cleared', MANUAL_WRITE] as const;
export type ValueEventType = (typeof VALUE_EVENT_TYPES)[number];

/** Whether an event was created on this gateway. */
export function isValueEvent(eventType: string): eventType is ValueEventType {
  return (VALUE_EVENT_TYPES as readonly string[]).includes(eventType);
}
