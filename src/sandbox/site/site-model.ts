import type { Reference } from '../../contract/errors.ts';
import type { PermitableType } from '../../contract/permissions.ts';
import { notFound, refusal } from '../http/refusal.ts';
import {
  type ApiKey,
  KIND_OF_PERMITABLE,
  KINDS,
  type Kind,
  type SiteRecords,
  type Unit,
  type User,
} from './records.ts';

/** Kinds whose objects contain assets. */
type Holder = 'instrumentations' | 'nodes';

/**
 * Distance between new IDs. Required because v1 permission IDs contain the offset of the permission type (platform
 * 2.2).
 */
export const ID_DISTANCE = 8;

export type SiteSnapshot = { [K in Kind]?: SiteRecords[K][] };

/** Objects of the site by kind and ID. Access control is in `permissions/`, events are in `events/`. */
export class SiteModel {
  readonly #tables = new Map<Kind, Map<number, SiteRecords[Kind]>>(KINDS.map((kind) => [kind, new Map()]));
  #nextId = 100_000;
  #version = 0;
  #holders: { version: number; byKind: Record<Holder, Map<number, SiteRecords[Holder][]>> } | undefined;
  /** Base URL of every `href`; set when the server starts listening. */
  baseUrl = '';

  constructor(snapshot: SiteSnapshot = {}) {
    for (const kind of KINDS) for (const record of snapshot[kind] ?? []) this.put(kind, structuredClone(record));
  }

  all<K extends Kind>(kind: K): SiteRecords[K][] {
    return [...this.#table(kind).values()];
  }

  get<K extends Kind>(kind: K, id: number): SiteRecords[K] | undefined {
    return this.#table(kind).get(id);
  }

  /** Returns a record. Throws a 404 for an unknown ID. */
  found<K extends Kind>(kind: K, id: number): SiteRecords[K] {
    if (!Number.isSafeInteger(id)) throw refusal(400, `${kind} must be a number`);
    const record = this.get(kind, id);
    if (!record) throw notFound(`${kind} ${id}`);
    return record;
  }

  put<K extends Kind>(kind: K, record: SiteRecords[K]): SiteRecords[K] {
    this.#table(kind).set(record.id, record);
    this.#version++;
    if (record.id >= this.#nextId) this.#nextId = record.id + ID_DISTANCE;
    return record;
  }

  delete(kind: Kind, id: number): boolean {
    this.#version++;
    return this.#table(kind).delete(id);
  }

  /** Incremented with every change to a record and by `relationsChanged`, so that derived data is recomputed. */
  get version(): number {
    return this.#version;
  }

  /** Must be called after a list in a record was modified in place, for example the assets of a node. */
  relationsChanged(): void {
    this.#version++;
  }

  /** Returns the instrumentations or nodes that contain an asset, from an index. */
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

  /** Returns an unused ID, which is a multiple of `ID_DISTANCE`. */
  newId(): number {
    this.#nextId = (Math.floor(this.#nextId / ID_DISTANCE) + 1) * ID_DISTANCE;
    return this.#nextId;
  }

  userByEmail(email: string): User | undefined {
    const wanted = email.toLowerCase();
    for (const user of this.#table('users').values()) if (user.email.toLowerCase() === wanted) return user;
    return undefined;
  }

  unitByCode(code: string): Unit | undefined {
    return this.all('units').find((unit) => unit.code === code);
  }

  /** Returns whether the object of a permission exists. */
  hasPermitable(type: PermitableType, id: number): boolean {
    return this.#table(KIND_OF_PERMITABLE[type]).has(id);
  }

  /** Returns the API key with this client ID (platform 5.1). */
  apiKey(clientId: string): ApiKey | undefined {
    for (const key of this.#table('api_keys').values()) if (key.client_id === clientId) return key;
    return undefined;
  }

  /**
   * Returns whether a client application has an active subscription with at least one API key, which webhooks require
   * (platform 6.1).
   */
  isSubscribed(application: number): boolean {
    if (this.get('client_applications', application)?.active === false) return false;
    for (const key of this.#table('api_keys').values()) if (key.client_application === application) return true;
    return false;
  }

  /** Returns a reference `{id, href}` (platform 6.2). */
  reference(kind: Kind, id: number): Reference {
    return { id, href: `${this.baseUrl}/v1/${HREF_PATHS[kind] ?? kind}/${id}` };
  }

  #table<K extends Kind>(kind: K): Map<number, SiteRecords[K]> {
    return this.#tables.get(kind) as Map<number, SiteRecords[K]>;
  }
}

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
