import { refusal } from '../http/refusal.ts';
import { type ApplicationWithKey, withoutKey } from '../plant/api-keys.ts';
import {
  type Asset,
  type EdgeDevice,
  type HealthCondition,
  type Kind,
  nounOf,
  type PlantRecords,
  type Specification,
} from '../plant/records.ts';
import * as assets from './asset-changes.ts';
import { updateAsset, updateEdgeDevice } from './attribute-changes.ts';
import { type ChangeParts, ChangeRoom } from './change-room.ts';
import { destroy } from './destruction.ts';
import { EdgeDeviceWatch } from './edge-device-watch.ts';
import * as events from './event-changes.ts';
import * as products from './product-changes.ts';
import { setSpecifications } from './specification-changes.ts';

/**
 * Changes of the plant, each with the event that spec 6.3 gives it, in files by subject beside this one. They have no
 * endpoint in the spec; tests call them, people reach them by `POST /sandbox/changes/…` and `tagferry sandbox cause`.
 * A change that changes nothing tells nothing.
 */
export class PlantChanges {
  readonly #room: ChangeRoom;
  readonly edgeDevices: EdgeDeviceWatch;

  constructor(parts: ChangeParts, edgeDeviceOfflineAfterMs: number) {
    this.#room = new ChangeRoom(parts);
    this.edgeDevices = new EdgeDeviceWatch(this.#room, edgeDeviceOfflineAfterMs);
  }

  /** Makes an object, or replaces it. Told is only what it brings into sight or out of it: the other methods tell more. */
  put<K extends Kind>(kind: K, record: PlantRecords[K]): void {
    const { plant, visibility, told } = this.#room;
    const before = plant.get(kind, record.id);
    visibility.during(() => {
      if (kind !== 'client_applications') return void plant.put(kind, record);
      const { application, key } = withoutKey(record as ApplicationWithKey);
      plant.put('client_applications', application);
      if (key) plant.put('api_keys', key);
    });
    told(`${nounOf(kind)} ${record.id} is ${before ? 'replaced' : 'made'}`);
  }

  /** Destroys an object with everything that hangs on it; 404 where there is none. */
  destroy(kind: Kind, id: number): void {
    destroy(this.#room, kind, id);
  }

  updateAsset(id: number, changes: Partial<Record<keyof Asset, unknown>>): void {
    updateAsset(this.#room, id, changes);
  }

  updateEdgeDevice(id: number, changes: Partial<Record<keyof EdgeDevice, unknown>>): void {
    updateEdgeDevice(this.#room, id, changes);
  }

  addSoftware(asset: number, software: number): void {
    assets.addSoftware(this.#room, asset, software);
  }

  associate(asset: number, instrumentation: number): void {
    assets.associate(this.#room, asset, instrumentation);
  }

  dissociate(asset: number, instrumentation: number): void {
    assets.dissociate(this.#room, asset, instrumentation);
  }

  setUnderNode(asset: number, node: number, isUnder: boolean): void {
    assets.setUnderNode(this.#room, asset, node, isUnder);
  }

  setHealthConditions(asset: number, status: number, conditions: readonly (HealthCondition | unknown)[]): void {
    assets.setHealthConditions(this.#room, asset, status, conditions);
  }

  setSpecifications(
    kind: 'assets' | 'events',
    id: number,
    changes: Readonly<Record<string, Specification | unknown>>,
  ): void {
    setSpecifications(this.#room, kind, id, changes);
  }

  createEvent(wanted: events.NewEvent): number {
    if (typeof wanted.name !== 'string') throw refusal(400, 'is no text', 'name');
    return events.createEvent(this.#room, wanted);
  }

  addDocument(event: number, document: number): void {
    events.addDocument(this.#room, event, document);
  }

  setProductStatus(product: number, status: number): void {
    products.setProductStatus(this.#room, product, status);
  }

  setAddOnLink(addOn: number, node: number, isLinked: boolean): void {
    products.setAddOnLink(this.#room, addOn, node, isLinked);
  }
}
