import { refusal } from '../http/refusal.ts';
import type { Kind, PlantEvent } from '../plant/records.ts';
import type { ChangeRoom } from './change-room.ts';

export type NewEvent = Partial<PlantEvent> & Pick<PlantEvent, 'name' | 'type'>;

/**
 * Makes an event and gives its id. One call for each webhook; its technical user needs read permission on at least one
 * of the assets and instrumentations that are named (spec 6.3). Webhooks filter by the code of the event's type.
 */
export function createEvent(room: ChangeRoom, wanted: NewEvent): number {
  const { code } = room.found('event_types', wanted.type);
  if (wanted.status !== undefined) room.found('event_statuses', wanted.status);
  if (wanted.responsible !== undefined && wanted.responsible !== null && typeof wanted.responsible !== 'string') {
    throw refusal(400, 'is no text', 'responsible');
  }
  if (wanted.id !== undefined && !Number.isSafeInteger(wanted.id)) throw refusal(400, 'is no whole number', 'id');
  const id = wanted.id ?? room.plant.newId();
  if (room.plant.get('events', id)) throw refusal(409, `there is an event ${id} already`, 'id');
  const event = room.plant.put('events', {
    id,
    name: wanted.name,
    type: wanted.type,
    responsible: wanted.responsible ?? null,
    ...(wanted.status === undefined ? {} : { status: wanted.status }),
    assets: listOf(room, 'assets', wanted.assets),
    instrumentations: listOf(room, 'instrumentations', wanted.instrumentations),
    documents: listOf(room, 'documents', wanted.documents),
  });
  room.told(`the event ${event.name} (${code}) is made`);
  room.announcer.announce({
    type: 'event_created',
    audience: (user) => mayReadSubject(room, user, event),
    content: (names) =>
      names === undefined || names.includes(code) ? { event: eventContent(room, event) } : undefined,
  });
  return id;
}

/** Assigns a document to an event; told once. */
export function addDocument(room: ChangeRoom, event: number, document: number): void {
  const record = room.found('events', event);
  const { name } = room.found('documents', document);
  if (record.documents.includes(document)) return;
  record.documents.push(document);
  const code = room.plant.get('event_types', record.type)?.code ?? '';
  room.told(`the event ${record.name} gets the document ${name}`);
  room.announcer.announce({
    type: 'event_document_created',
    audience: (user) => room.mayRead(user, { type: 'Event', id: event }),
    content: (names) =>
      names === undefined || names.includes(code)
        ? { event: room.plant.reference('events', event), document: room.plant.reference('documents', document) }
        : undefined,
  });
}

/** Spec 6.3 asks for no more, and for this of `event_created` alone: the others are of an object that was there to be read (6.1). */
function mayReadSubject(room: ChangeRoom, user: number, event: PlantEvent): boolean {
  return (
    event.assets.some((id) => room.mayRead(user, { type: 'Asset', id })) ||
    event.instrumentations.some((id) => room.mayRead(user, { type: 'Instrumentation', id }))
  );
}

function listOf(room: ChangeRoom, kind: Kind, ids: unknown): number[] {
  if (ids === undefined) return [];
  if (!Array.isArray(ids)) throw refusal(400, 'is no list of ids', kind);
  for (const id of ids) room.found(kind, id);
  return [...new Set(ids as number[])];
}

function eventContent(room: ChangeRoom, event: PlantEvent) {
  const { plant } = room;
  const coded = (kind: 'event_types' | 'event_statuses', id: number) => {
    const { href } = plant.reference(kind, id);
    return { id, code: plant.get(kind, id)?.code ?? '', href };
  };
  return {
    ...plant.reference('events', event.id),
    name: event.name,
    responsible: event.responsible ?? null,
    type: coded('event_types', event.type),
    status: event.status === undefined ? null : coded('event_statuses', event.status),
    assets: event.assets.map((id) => plant.reference('assets', id)),
    instrumentations: event.instrumentations.map((id) => plant.reference('instrumentations', id)),
    documents: event.documents.map((id) => plant.reference('documents', id)),
  };
}
