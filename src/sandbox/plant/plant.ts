import type { Reference } from '../../contract/errors.ts';
import type { PermitableType } from '../../contract/permissions.ts';
import { KIND_OF_PERMITABLE, KINDS, type Kind, type PlantRecords, type User } from './records.ts';

export type PlantSnapshot = { [K in Kind]?: PlantRecords[K][] };

/** The objects of the plant by kind and id. Holds no rules: who may see what stands in `permissions/`, what is told in `events/`. */
export class Plant {
  readonly #tables = new Map<Kind, Map<number, PlantRecords[Kind]>>(KINDS.map((kind) => [kind, new Map()]));
  #nextId = 100_000;
  /** Base of every `href`; known once the server listens. */
  baseUrl = '';

  constructor(snapshot: PlantSnapshot = {}) {
    for (const kind of KINDS) for (const record of snapshot[kind] ?? []) this.put(kind, structuredClone(record));
  }

  all<K extends Kind>(kind: K): PlantRecords[K][] {
    return [...this.#table(kind).values()];
  }

  get<K extends Kind>(kind: K, id: number): PlantRecords[K] | undefined {
    return this.#table(kind).get(id);
  }

  put<K extends Kind>(kind: K, record: PlantRecords[K]): PlantRecords[K] {
    this.#table(kind).set(record.id, record);
    if (record.id >= this.#nextId) this.#nextId = record.id + 8;
    return record;
  }

  delete(kind: Kind, id: number): boolean {
    return this.#table(kind).delete(id);
  }

  /** An id that nothing has. Multiples of 8, so that a v1 permission id never meets another by its offset (spec 2.2). */
  newId(): number {
    this.#nextId = (Math.floor(this.#nextId / 8) + 1) * 8;
    return this.#nextId;
  }

  userByEmail(email: string): User | undefined {
    const wanted = email.toLowerCase();
    for (const user of this.#table('users').values()) if (user.email.toLowerCase() === wanted) return user;
    return undefined;
  }

  /** Whether the object of a permission is there; types that the sandbox keeps no records of always are. */
  hasPermitable(type: PermitableType, id: number): boolean {
    const kind = KIND_OF_PERMITABLE[type];
    return kind === undefined || this.#table(kind).has(id);
  }

  /** Spec 6.2: references are `{id, href}`. */
  reference(kind: Kind | 'asset_software', id: number): Reference {
    return { id, href: `${this.baseUrl}/v1/${HREF_PATHS[kind] ?? kind}/${id}` };
  }

  /** The relations of a kind, empty. */
  emptyLists(kind: Kind): Record<string, number[]> {
    return Object.fromEntries((EMPTY_LISTS[kind] ?? []).map((field) => [field, []]));
  }

  snapshot(): PlantSnapshot {
    return Object.fromEntries(KINDS.map((kind) => [kind, this.all(kind)])) as PlantSnapshot;
  }

  #table<K extends Kind>(kind: K): Map<number, PlantRecords[K]> {
    return this.#tables.get(kind) as Map<number, PlantRecords[K]>;
  }
}

/** Relations that a record may leave out. */
export const EMPTY_LISTS: Partial<Record<Kind, string[]>> = {
  instrumentations: ['assets'],
  nodes: ['assets'],
  usergroups: ['members'],
  tenants: ['admins', 'users'],
  userroles: ['users'],
  events: ['assets', 'instrumentations', 'documents'],
  add_ons: ['nodes'],
};

const HREF_PATHS: Partial<Record<string, string>> = {
  asset_statuses: 'asset/statuses',
  event_statuses: 'event/statuses',
  event_types: 'event/types',
  product_statuses: 'product/statuses',
  edge_devices: 'edm/edge_devices',
  edge_device_statuses: 'edm/edge_device/statuses',
  software: 'softwares',
};
