import { ACCESS_EVENT_TYPES } from '../contract/events/names.ts';

export type ObjectKind = 'asset' | 'instrumentation' | 'node';

/** Names of an object, as specified in an event. */
export interface ObjectNames {
  serialNumber?: string;
  tag?: string;
  name?: string;
}

/** Access change in an event (platform 6.3) that affects holds. The user has been checked by `ownAccessOnly`. */
export type AccessEvent =
  | {
      kind: 'visibility';
      object: ObjectKind;
      id: number;
      gone: boolean;
      /** Platform time of the event; `undefined` if the event does not contain one. */
      occurredAtMs: number | undefined;
      names: ObjectNames;
    }
  /** An asset was associated with an instrumentation and inherits its permissions (platform 2.2). */
  | { kind: 'associated'; asset: number; instrumentation: number };

/** Inbox event with its parsed payload. */
export interface ArrivedAccessEvent {
  /** Inbox ID of the event, used as the cursor. */
  id: number;
  eventType: string;
  occurredAtMs: number | undefined;
  envelope: Readonly<Record<string, unknown>>;
}

/**
 * Returns the access change in an event, or `undefined` for other events. The end of an association is ignored: a
 * separate `asset_disappeared` event reports an asset that is no longer visible.
 */
export function readAccessEvent(event: ArrivedAccessEvent): AccessEvent | undefined {
  const isVisibility = (ACCESS_EVENT_TYPES as readonly string[]).includes(event.eventType);
  const isAssociation = event.eventType === 'asset_instrumentation_association_created';
  if (!isVisibility && !isAssociation) return undefined;
  const content = contentOf(event.envelope);
  if (isAssociation) {
    const asset = idOf(content.asset);
    const instrumentation = idOf(content.instrumentation);
    if (asset === undefined || instrumentation === undefined) return undefined;
    return { kind: 'associated', asset, instrumentation };
  }
  const [object, change] = event.eventType.split('_') as [ObjectKind, 'appeared' | 'disappeared'];
  const id = idOf(content[object]);
  if (id === undefined) return undefined;
  const names = namesOf(content[object]);
  return { kind: 'visibility', object, id, gone: change === 'disappeared', occurredAtMs: event.occurredAtMs, names };
}

function contentOf({ content }: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return typeof content === 'object' && content !== null ? (content as Record<string, unknown>) : {};
}

function idOf(reference: unknown): number | undefined {
  const id = (reference as { id?: unknown } | null | undefined)?.id;
  return Number.isSafeInteger(id) && (id as number) > 0 ? (id as number) : undefined;
}

/**
 * An event contains the serial number of an asset, the tag of an instrumentation, or the tag or name of a node
 * (platform 6.3).
 */
function namesOf(object: unknown): ObjectNames {
  const { serial_number: serialNumber, tag, name } = object as Record<string, unknown>;
  return {
    ...(typeof serialNumber === 'string' ? { serialNumber } : {}),
    ...(typeof tag === 'string' ? { tag } : {}),
    ...(typeof name === 'string' ? { name } : {}),
  };
}
