import { ACCESS_EVENT_TYPES } from '../contract/events/names.ts';

export type ObjectKind = 'asset' | 'instrumentation' | 'node';

/** How an event names its object. */
export interface ObjectNames {
  serialNumber?: string;
  tag?: string;
  name?: string;
}

/**
 * What an event says about access (platform 6.3), as far as holds depend on it. `ownAccessOnly` has compared the user before.
 */
export type AccessEvent =
  | {
      kind: 'visibility';
      object: ObjectKind;
      id: number;
      gone: boolean;
      /** Platform's clock; `undefined` where the event does not say. */
      occurredAtMs: number | undefined;
      names: ObjectNames;
    }
  /** An asset was assigned to an instrumentation, and inherits its permissions (platform 2.2). */
  | { kind: 'associated'; asset: number; instrumentation: number };

/** An event of the inbox, with its parsed payload. */
export interface ArrivedAccessEvent {
  /** Its number in the inbox: how far access has come. */
  id: number;
  eventType: string;
  occurredAtMs: number | undefined;
  envelope: Readonly<Record<string, unknown>>;
}

/**
 * Reads what concerns access; `undefined` for every other event. The end of an association is none of it: an asset that is
 * lost by it gets its own `asset_disappeared`, and one that is seen by another path stays.
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
  return Number.isSafeInteger(id) ? (id as number) : undefined;
}

/** Platform 6.3 shows the serial number of an asset, the tag of an instrumentation, and one of tag and name of a node. */
function namesOf(object: unknown): ObjectNames {
  const { serial_number: serialNumber, tag, name } = object as Record<string, unknown>;
  return {
    ...(typeof serialNumber === 'string' ? { serialNumber } : {}),
    ...(typeof tag === 'string' ? { tag } : {}),
    ...(typeof name === 'string' ? { name } : {}),
  };
}
