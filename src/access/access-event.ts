import { ACCESS_EVENT_TYPES } from '../contract/events/names.ts';

export type ObjectKind = 'asset' | 'instrumentation' | 'node';

/** Names of an object, as specified in an event. */
export interface ObjectNames {
  serialNumber?: string;
  tag?: string;
  name?: string;
}

/** The technical user gained or lost access to an object (platform 6.3). */
export interface VisibilityEvent {
  object: ObjectKind;
  id: number;
  gone: boolean;
  /** Platform time of the event; `undefined` if the event does not contain one. */
  occurredAtMs: number | undefined;
  names: ObjectNames;
}

/** Inbox event with its parsed payload. */
export interface ArrivedAccessEvent {
  /** Inbox ID of the event, used as the cursor. */
  id: number;
  eventType: string;
  occurredAtMs: number | undefined;
  envelope: Readonly<Record<string, unknown>>;
}

/** User of this gateway, and the source of the id: TECHNICAL_USER_ID or the token response. */
export interface OwnUser {
  id: number;
  from: 'setting' | 'token';
}

/** Returns the change of access in an event, or `undefined` for other events. */
export function readVisibility({ eventType, envelope, occurredAtMs }: ArrivedAccessEvent): VisibilityEvent | undefined {
  if (!isAccessEvent(eventType)) return undefined;
  const [object, change] = eventType.split('_') as [ObjectKind, 'appeared' | 'disappeared'];
  const content = contentOf(envelope)[object];
  const id = idOf(content);
  if (id === undefined) return undefined;
  // An event contains the serial number of an asset, the tag of an instrumentation, or the tag or name of a node.
  const { serial_number: serialNumber, tag, name } = content as Record<string, unknown>;
  const names = {
    ...(typeof serialNumber === 'string' ? { serialNumber } : {}),
    ...(typeof tag === 'string' ? { tag } : {}),
    ...(typeof name === 'string' ? { name } : {}),
  };
  return { object, id, gone: change === 'disappeared', occurredAtMs, names };
}

/**
 * Returns the asset that was associated with an instrumentation, whose permissions it inherits (platform 2.2). The end
 * of an association is ignored: a separate `asset_disappeared` event reports an asset that is no longer visible.
 */
export function associatedAsset({ eventType, envelope }: ArrivedAccessEvent): number | undefined {
  return eventType === 'asset_instrumentation_association_created' ? idOf(contentOf(envelope).asset) : undefined;
}

/** Returns the ID of the user whose access changed, if the event contains one. */
export function userOf(envelope: Readonly<Record<string, unknown>>): number | undefined {
  return idOf(contentOf(envelope).user);
}

/** Whether an access event concerns a user other than the known user of this gateway. */
export function isOfAnother(
  eventType: string,
  envelope: Readonly<Record<string, unknown>>,
  user: OwnUser | undefined,
): boolean {
  return user !== undefined && isAccessEvent(eventType) && userOf(envelope) !== user.id;
}

function isAccessEvent(eventType: string): boolean {
  return (ACCESS_EVENT_TYPES as readonly string[]).includes(eventType);
}

function contentOf({ content }: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return typeof content === 'object' && content !== null ? (content as Record<string, unknown>) : {};
}

function idOf(reference: unknown): number | undefined {
  const id = (reference as { id?: unknown } | null | undefined)?.id;
  return Number.isSafeInteger(id) && (id as number) > 0 ? (id as number) : undefined;
}
