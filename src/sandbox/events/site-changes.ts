import { refusal } from '../http/refusal.ts';
import { type ApplicationWithKey, withoutKey } from '../site/api-keys.ts';
import {
  type Asset,
  type EdgeDevice,
  type HealthCondition,
  type Kind,
  nounOf,
  type SiteRecords,
  type Specification,
} from '../site/records.ts';
import * as assets from './asset-changes.ts';
import { updateAsset, updateEdgeDevice } from './attribute-changes.ts';
import { ChangeContext, type ChangeParts } from './change-context.ts';
import { destroy } from './destruction.ts';
import { EdgeDeviceWatch } from './edge-device-watch.ts';
import * as events from './event-changes.ts';
import * as products from './product-changes.ts';
import { setSpecifications } from './specification-changes.ts';

/**
 * Changes of the site, each with the event that platform 6.3 gives it, in files by subject beside this one. They have no
 * endpoint in the spec; tests call them, people reach them by `POST /sandbox/changes/…` and `tagferry sandbox cause`.
 * A change that changes nothing tells nothing.
 */
export class SiteChanges {
  readonly #context: ChangeContext;
  readonly edgeDevices: EdgeDeviceWatch;

  constructor(parts: ChangeParts, edgeDeviceOfflineAfterMs: number) {
    this.#context = new ChangeContext(parts);
    this.edgeDevices = new EdgeDeviceWatch(this.#context, edgeDeviceOfflineAfterMs);
  }

  /** Makes an object, or replaces it. Told is only what it brings into sight or out of it: the other methods tell more. */
  put<K extends Kind>(kind: K, record: SiteRecords[K]): void {
    const { site, visibility, report } = this.#context;
    const before = site.get(kind, record.id);
    visibility.during(() => {
      if (kind !== 'client_applications') return void site.put(kind, record);
      const { application, key } = withoutKey(record as ApplicationWithKey);
      site.put('client_applications', application);
      if (key) site.put('api_keys', key);
    });
    report(`${nounOf(kind)} ${record.id} is ${before ? 'replaced' : 'made'}`);
  }

  /** Destroys an object with everything that hangs on it; 404 where there is none. */
  destroy(kind: Kind, id: number): void {
    destroy(this.#context, kind, id);
  }

  updateAsset(id: number, changes: Partial<Record<keyof Asset, unknown>>): void {
    updateAsset(this.#context, id, changes);
  }

  updateEdgeDevice(id: number, changes: Partial<Record<keyof EdgeDevice, unknown>>): void {
    updateEdgeDevice(this.#context, id, changes);
  }

  addSoftware(asset: number, software: number): void {
    assets.addSoftware(this.#context, asset, software);
  }

  associate(asset: number, instrumentation: number): void {
    assets.associate(this.#context, asset, instrumentation);
  }

  dissociate(asset: number, instrumentation: number): void {
    assets.dissociate(this.#context, asset, instrumentation);
  }

  setUnderNode(asset: number, node: number, isUnder: boolean): void {
    assets.setUnderNode(this.#context, asset, node, isUnder);
  }

  setHealthConditions(asset: number, status: number, conditions: readonly (HealthCondition | unknown)[]): void {
    assets.setHealthConditions(this.#context, asset, status, conditions);
  }

  setSpecifications(
    kind: 'assets' | 'events',
    id: number,
    changes: Readonly<Record<string, Specification | unknown>>,
  ): void {
    setSpecifications(this.#context, kind, id, changes);
  }

  createEvent(wanted: events.NewEvent): number {
    if (typeof wanted.name !== 'string') throw refusal(400, 'is no text', 'name');
    return events.createEvent(this.#context, wanted);
  }

  addDocument(event: number, document: number): void {
    events.addDocument(this.#context, event, document);
  }

  setProductStatus(product: number, status: number): void {
    products.setProductStatus(this.#context, product, status);
  }

  setAddOnLink(addOn: number, node: number, isLinked: boolean): void {
    products.setAddOnLink(this.#context, addOn, node, isLinked);
  }
}
