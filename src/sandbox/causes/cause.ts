import type { EventType } from '../../contract/events.ts';
import type { Stage } from '../admin/stage.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { PermitableRef } from '../permissions/inheritance.ts';
import type { Kind, SiteRecords } from '../site/records.ts';

/** What whoever causes an event may say about it. Left out, something that fits is chosen. */
export interface EventRequest {
  /** Id of the object, of the kind that the cause names. */
  object?: number;
  /** Id of the other object, where a relation has two ends. */
  to?: number;
  /** Value key or specification key. */
  key?: string;
  value?: number | string;
  /** Unit code. */
  unit?: string;
  name?: string;
  /** Code or id of the type or status. */
  status?: number | string;
  type?: number | string;
  /** Attributes by name, for the `…_updated` types. */
  changes?: Record<string, unknown>;
}

/** How one event type is triggered by hand. */
export interface Cause {
  /** What is done, for help texts. */
  does: string;
  /** Kind of `object`. */
  object: Kind;
  /** Kind of `to`, where there is one. */
  to?: Kind;
  /** Which other members of a request it looks at. */
  takes: readonly (keyof EventRequest)[];
  /** Does it and gives the ids of the object and, where there is one, of the other. Throws a `Refusal` where it cannot be. */
  trigger(stage: Stage, request: EventRequest): number | Triggered;
}

export interface Triggered {
  object: number;
  to?: number;
  made?: { kind: Kind; id: number };
}

export interface Caused {
  event_type: EventType;
  object: { kind: Kind; id: number };
  /** The other end of a relation. */
  to?: { kind: Kind; id: number };
  /** What was made for it. */
  made?: { kind: Kind; id: number };
  /** To how many webhooks it is sent. */
  deliveries: number;
  /** Why to none. */
  note?: string;
}

/** The record that a request names; 404 where there is none. */
export function named<K extends Kind>(stage: Stage, kind: K, id: number): SiteRecords[K] {
  const record = stage.site.get(kind, id);
  if (!record) throw notFound(`${kind} ${id}`);
  return record;
}

/** The first record of a kind that fits; 409 with what is missing where there is none. */
export function first<K extends Kind>(
  stage: Stage,
  kind: K,
  fits: (record: SiteRecords[K]) => boolean,
  missing: string,
): SiteRecords[K] {
  const found = stage.site.all(kind).find(fits);
  if (!found) throw refusal(409, `there is ${missing}: make one (PUT /sandbox/objects/${kind}/{id}) or name another`);
  return found;
}

/** Whether the technical user sees it: what a cause prefers, for only then does a webhook hear of it. */
export function isSeen(stage: Stage, on: PermitableRef): boolean {
  return stage.permissions.may(stage.user().id, 'can_read', on);
}

/** The requested object or one that the technical user sees, of the three kinds that appear and disappear. */
export function seenOne<K extends 'assets' | 'instrumentations' | 'nodes'>(
  stage: Stage,
  kind: K,
  wanted: number | undefined,
  fits: (record: SiteRecords[K]) => boolean = () => true,
): SiteRecords[K] {
  if (wanted !== undefined) return named(stage, kind, wanted);
  const type = TYPE_OF[kind];
  return first(stage, kind, (one) => fits(one) && isSeen(stage, { type, id: one.id }), `none of ${kind} that fits`);
}

export const TYPE_OF = { assets: 'Asset', instrumentations: 'Instrumentation', nodes: 'Node' } as const;

/** A type or status by id or code; the one after `before` where nothing is requested. */
export function statusOf(
  stage: Stage,
  kind: 'asset_statuses' | 'edge_device_statuses' | 'product_statuses' | 'event_types' | 'event_statuses',
  wanted: number | string | undefined,
  before?: number,
): number {
  const all = stage.site.all(kind);
  if (wanted === undefined) {
    const at = all.findIndex((status) => status.id === before);
    const next = all[(at + 1) % Math.max(1, all.length)];
    if (!next) throw refusal(409, `there are no ${kind}`);
    return next.id;
  }
  const found = all.find((status) => status.id === wanted || status.code === wanted);
  if (!found) throw refusal(404, `there is none of ${kind} ${wanted}: ${all.map(({ code }) => code).join(', ')}`);
  return found.id;
}
