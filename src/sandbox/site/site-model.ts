import type { Reference } from '../../contract/errors.ts';
import type { PermitableType } from '../../contract/permissions.ts';
import { type ApiKey, KIND_OF_PERMITABLE, KINDS, type Kind, type SiteRecords, type User } from './records.ts';

/** Kinds that hold assets. */
type Holder = 'instrumentations' | 'nodes';

export type SiteSnapshot = { [K in Kind]?: SiteRecords[K][] };

/** The objects of the site by kind and id. Holds no rules: who may see what stands in `permissions/`, what is told in `events/`. */
export class SiteModel {
  readonly #tables = new Map<Kind, Map<number, SiteRecords[Kind]>>(KINDS.map((kind) => [kind, new Map()]));
  readonly #idDistance: number;
  #nextId = 100_000;
  #version = 0;
  #holders: { version: number; byKind: Record<Holder, Map<number, SiteRecords[Holder][]>> } | undefined;
  /** Base of every `href`; known once the server listens. */
  baseUrl = '';

  /** `idDistance`: between two new ids; v1 permission ids need room for the offsets of their types (platform 2.2). */
  constructor(snapshot: SiteSnapshot = {}, idDistance = 8) {
    this.#idDistance = idDistance;
    for (const kind of KINDS) for (const record of snapshot[kind] ?? []) this.put(kind, structuredClone(record));
  }

  all<K extends Kind>(kind: K): SiteRecords[K][] {
    return [...this.#table(kind).values()];
  }

  get<K extends Kind>(kind: K, id: number): SiteRecords[K] | undefined {
    return this.#table(kind).get(id);
  }

  put<K extends Kind>(kind: K, record: SiteRecords[K]): SiteRecords[K] {
    this.#table(kind).set(record.id, record);
    this.#version++;
    if (record.id >= this.#nextId) this.#nextId = record.id + this.#idDistance;
    return record;
  }

  delete(kind: Kind, id: number): boolean {
    this.#version++;
    return this.#table(kind).delete(id);
  }

  /** Grows with every record that is put or deleted, and with `relationsChanged`: what was worked out before no longer holds. */
  get version(): number {
    return this.#version;
  }

  /** Lists of records were changed in place: assets under a node, members of a group. */
  relationsChanged(): void {
    this.#version++;
  }

  /** The instrumentations that an asset is assigned to, or the nodes that it is under: without a look at all of them. */
  holdersOf<K extends Holder>(kind: K, asset: number): readonly SiteRecords[K][] {
    if (this.#holders?.version !== this.#version) {
      const byKind = { instrumentations: this.#byAsset('instrumentations'), nodes: this.#byAsset('nodes') };
      this.#holders = { version: this.#version, byKind };
    }
    return (this.#holders.byKind[kind].get(asset) ?? []) as SiteRecords[K][];
  }

  #byAsset(kind: Holder): Map<number, SiteRecords[Holder][]> {
    const found = new Map<number, SiteRecords[Holder][]>();
    for (const record of this.#table(kind).values()) {
      for (const asset of new Set(record.assets)) {
        const list = found.get(asset);
        if (list === undefined) found.set(asset, [record]);
        else list.push(record);
      }
    }
    return found;
  }

  /** Returns an unused id, a multiple of the distance. */
  newId(): number {
    this.#nextId = (Math.floor(this.#nextId / this.#idDistance) + 1) * this.#idDistance;
    return this.#nextId;
  }

  userByEmail(email: string): User | undefined {
    const wanted = email.toLowerCase();
    for (const user of this.#table('users').values()) if (user.email.toLowerCase() === wanted) return user;
    return undefined;
  }

  /** Whether the object of a permission is there. */
  hasPermitable(type: PermitableType, id: number): boolean {
    return this.#table(KIND_OF_PERMITABLE[type]).has(id);
  }

  /** The API key that a client shows as its id (platform 5.1). */
  apiKey(clientId: string): ApiKey | undefined {
    for (const key of this.#table('api_keys').values()) if (key.client_id === clientId) return key;
    return undefined;
  }

  /** Platform 6.1: webhooks want an active subscription with at least one API key. */
  isSubscribed(application: number): boolean {
    if (this.get('client_applications', application)?.active === false) return false;
    for (const key of this.#table('api_keys').values()) if (key.client_application === application) return true;
    return false;
  }

  /** Platform 6.2: references are `{id, href}`. */
  reference(kind: Kind, id: number): Reference {
    return { id, href: `${this.baseUrl}/v1/${HREF_PATHS[kind] ?? kind}/${id}` };
  }

  /** The relations of a kind, empty. */
  emptyLists(kind: Kind): Record<string, number[]> {
    return Object.fromEntries((EMPTY_LISTS[kind] ?? []).map((field) => [field, []]));
  }

  snapshot(): SiteSnapshot {
    return Object.fromEntries(KINDS.map((kind) => [kind, this.all(kind)])) as SiteSnapshot;
  }

  #table<K extends Kind>(kind: K): Map<number, SiteRecords[K]> {
    return this.#tables.get(kind) as Map<number, SiteRecords[K]>;
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
  bills_of_material: 'bill_of_materials',
  requests_of_quotation: 'request_of_quotations',
};
