import { insteadOf } from '../../base/nearest.ts';
import type { EventType } from '../../contract/events.ts';
import type { PermitableType } from '../../contract/permissions.ts';
import { refusal } from '../http/refusal.ts';
import type { Kind, SiteRecords } from '../site/records.ts';
import type { Stage } from '../stage.ts';

/** Options for triggering an event. Omitted members have suitable defaults. */
export interface EventRequest {
  /** ID or name of the object. Its kind is specified by the cause. */
  object?: number | string;
  /** ID or name of the second object of a relation. */
  to?: number | string;
  /** Value key or specification key. */
  key?: string;
  value?: number | string;
  /** Unit code. */
  unit?: string;
  name?: string;
  /** Code or ID of the type or status. */
  status?: number | string;
  type?: number | string;
  /** Attributes by name, for the `…_updated` types. */
  changes?: Record<string, unknown>;
}

/** Describes how an event type is triggered manually. */
export interface Cause {
  /** Kind of `object`. */
  object: Kind;
  /** Kind of `to`. */
  to?: Kind;
  /** Other request members that have an effect. */
  takes: readonly (keyof EventRequest)[];
  /** Triggers the event and returns the IDs of its objects. Throws a `Refusal` if the event cannot be triggered. */
  trigger(stage: Stage, request: ResolvedRequest): number | Triggered;
}

/** A request in which objects are specified by ID. */
export type ResolvedRequest = Omit<EventRequest, 'object' | 'to'> & { object?: number; to?: number };

export interface Triggered {
  object: number;
  to?: number;
  made?: { kind: Kind; id: number };
}

export interface Caused {
  event_type: EventType;
  object: { kind: Kind; id: number };
  /** Second object of a relation. */
  to?: { kind: Kind; id: number };
  /** Object that was created for the event. */
  made?: { kind: Kind; id: number };
  /** Number of webhooks that receive the event. */
  deliveries: number;
  /** Reason why no webhook receives the event. */
  note?: string;
}

const NAMES = ['tag', 'serial_number', 'name', 'code', 'email', 'display_name', 'client_id'] as const;

/**
 * Returns the ID of an object specified by ID or name. If it does not exist, throws a 404 that suggests the nearest
 * name.
 */
export function idOf(stage: Stage, kind: Kind, wanted: number | string): number {
  const records = stage.site.all(kind) as ({ id: number } & Partial<Record<(typeof NAMES)[number], string>>)[];
  const found =
    records.find(({ id }) => String(id) === String(wanted)) ??
    records.find((record) => NAMES.some((name) => record[name] === wanted));
  if (found) return found.id;
  const known = records.flatMap((record) => NAMES.map((name) => record[name]).find((name) => name) ?? []);
  throw refusal(404, `no ${kind} ${String(wanted).slice(0, 60)}. ${insteadOf(String(wanted), known)}`);
}

/** Permitable types of the objects that causes choose by default. */
const TYPE_OF: Partial<Record<Kind, PermitableType>> = {
  assets: 'Asset',
  instrumentations: 'Instrumentation',
  nodes: 'Node',
  edge_devices: 'EDM::EdgeDevice',
  events: 'Event',
};

/** Returns whether the technical user can read an object, so that webhooks receive its events. */
export function isSeen(stage: Stage, kind: Kind, id: number): boolean {
  const type = TYPE_OF[kind];
  return type === undefined || stage.permissions.may(stage.user().id, 'can_read', { type, id });
}

/** Returns the requested object, or by default the first suitable one that is seen. Throws a 409 if none exists. */
export function chosen<K extends Kind>(
  stage: Stage,
  kind: K,
  wanted?: number,
  fits: (record: SiteRecords[K]) => boolean = () => true,
): SiteRecords[K] {
  if (wanted !== undefined) return stage.site.found(kind, wanted);
  const found = stage.site.all(kind).find((one) => fits(one) && isSeen(stage, kind, one.id));
  if (found) return found;
  throw refusal(409, `no suitable ${kind}. Create one (PUT /sandbox/objects/${kind}/{id}) or name another`);
}

/** Returns the ID of a type or status specified by ID or code; by default, the one that follows `before`. */
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
    if (!next) throw refusal(409, `no ${kind}`);
    return next.id;
  }
  const found = all.find((status) => status.id === wanted || status.code === wanted);
  if (!found) throw refusal(404, `no ${kind} ${wanted}. Known: ${all.map(({ code }) => code).join(', ')}`);
  return found.id;
}
