import { refusal } from '../http/refusal.ts';
import type { Kind, SiteEvent } from '../site/records.ts';
import type { ChangeContext } from './change-context.ts';

export type NewEvent = Partial<SiteEvent> & Pick<SiteEvent, 'name' | 'type'>;

/**
 * Makes an event and gives its id. One call for each webhook; its technical user needs read permission on at least one
 * of the assets and instrumentations that are named (platform 6.3). Webhooks filter by the code of the event's type.
 */
export function createEvent(context: ChangeContext, wanted: NewEvent): number {
  const { code } = context.found('event_types', wanted.type);
  if (wanted.status !== undefined) context.found('event_statuses', wanted.status);
  if (wanted.responsible !== undefined && wanted.responsible !== null && typeof wanted.responsible !== 'string') {
    throw refusal(400, 'is no text', 'responsible');
  }
  if (wanted.id !== undefined && !Number.isSafeInteger(wanted.id)) throw refusal(400, 'is no whole number', 'id');
  const id = wanted.id ?? context.site.newId();
  if (context.site.get('events', id)) throw refusal(409, `there is an event ${id} already`, 'id');
  const event = context.site.put('events', {
    id,
    name: wanted.name,
    type: wanted.type,
    responsible: wanted.responsible ?? null,
    ...(wanted.status === undefined ? {} : { status: wanted.status }),
    assets: listOf(context, 'assets', wanted.assets),
    instrumentations: listOf(context, 'instrumentations', wanted.instrumentations),
    documents: listOf(context, 'documents', wanted.documents),
  });
  context.report(`the event ${event.name} (${code}) is made`);
  context.announcer.announce({
    type: 'event_created',
    audience: (user) => mayReadSubject(context, user, event),
    content: (names) =>
      names === undefined || names.includes(code) ? { event: eventContent(context, event) } : undefined,
  });
  return id;
}

/** Assigns a document to an event; told once. */
export function addDocument(context: ChangeContext, event: number, document: number): void {
  const record = context.found('events', event);
  const { name } = context.found('documents', document);
  if (record.documents.includes(document)) return;
  record.documents.push(document);
  const code = context.site.get('event_types', record.type)?.code ?? '';
  context.report(`the event ${record.name} gets the document ${name}`);
  context.announcer.announce({
    type: 'event_document_created',
    audience: (user) => context.mayRead(user, { type: 'Event', id: event }),
    content: (names) =>
      names === undefined || names.includes(code)
        ? { event: context.site.reference('events', event), document: context.site.reference('documents', document) }
        : undefined,
  });
}

/** Platform 6.3 asks for no more, and for this of `event_created` alone: the others are of an object that was there to be read (6.1). */
function mayReadSubject(context: ChangeContext, user: number, event: SiteEvent): boolean {
  return (
    event.assets.some((id) => context.mayRead(user, { type: 'Asset', id })) ||
    event.instrumentations.some((id) => context.mayRead(user, { type: 'Instrumentation', id }))
  );
}

function listOf(context: ChangeContext, kind: Kind, ids: unknown): number[] {
  if (ids === undefined) return [];
  if (!Array.isArray(ids)) throw refusal(400, 'is no list of ids', kind);
  for (const id of ids) context.found(kind, id);
  return [...new Set(ids as number[])];
}

function eventContent(context: ChangeContext, event: SiteEvent) {
  const { site } = context;
  const coded = (kind: 'event_types' | 'event_statuses', id: number) => {
    const { href } = site.reference(kind, id);
    return { id, code: site.get(kind, id)?.code ?? '', href };
  };
  return {
    ...site.reference('events', event.id),
    name: event.name,
    responsible: event.responsible ?? null,
    type: coded('event_types', event.type),
    status: event.status === undefined ? null : coded('event_statuses', event.status),
    assets: event.assets.map((id) => site.reference('assets', id)),
    instrumentations: event.instrumentations.map((id) => site.reference('instrumentations', id)),
    documents: event.documents.map((id) => site.reference('documents', id)),
  };
}
