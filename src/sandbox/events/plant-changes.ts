import type { Reference } from '../../contract/errors.ts';
import { notFound, refusal } from '../http/refusal.ts';
import type { PermitableRef } from '../permissions/inheritance.ts';
import type { PermissionBook } from '../permissions/permission-book.ts';
import type { Visibility } from '../permissions/visibility.ts';
import type { Plant } from '../plant/plant.ts';
import type {
  Asset,
  EdgeDevice,
  HealthCondition,
  Kind,
  PlantEvent,
  PlantRecords,
  Specification,
} from '../plant/records.ts';
import type { SandboxClock } from '../sandbox-clock.ts';
import type { Announcer } from './announcer.ts';

/** Attributes whose change is told, and by whose names webhooks filter (spec 6.3). */
const ASSET_ATTRIBUTES = [
  'serial_number',
  'description',
  'production_date',
  'last_seen_at',
  'product',
  'parent',
  'tenant',
  'status',
] as const;
const EDGE_DEVICE_ATTRIBUTES = [
  'serial_number',
  'description',
  'last_seen_at',
  'tenant',
  'status',
  'type',
  'software_version',
] as const;
const REFERENCED: Readonly<Record<string, Kind>> = { product: 'products', parent: 'assets', tenant: 'tenants' };

export interface PlantChangeParts {
  plant: Plant;
  book: PermissionBook;
  visibility: Visibility;
  announcer: Announcer;
  clock: SandboxClock;
}

/**
 * Changes of the plant, each with the event that spec 6.3 gives it. They have no endpoint in the spec; tests call them,
 * people reach them by `POST /sandbox/changes/…`.
 */
export class PlantChanges {
  readonly #plant: Plant;
  readonly #parts: PlantChangeParts;

  constructor(parts: PlantChangeParts) {
    this.#plant = parts.plant;
    this.#parts = parts;
  }

  /** Makes an object, or replaces it; what it brings into sight is announced. */
  put<K extends Kind>(kind: K, record: PlantRecords[K]): void {
    this.#parts.visibility.during(() => this.#plant.put(kind, record));
  }

  /** Destroys an object. Only an asset's end is told, to technical users with the reporting role that could read it. */
  destroy(kind: Kind, id: number): void {
    if (kind !== 'assets') {
      this.#parts.visibility.during(() => this.#plant.delete(kind, id));
      return;
    }
    this.#found('assets', id);
    const reporters = this.#plant.all('userroles').flatMap((role) => (role.reporting ? role.users : []));
    const readers = reporters.filter((user) => this.#mayRead(user, { type: 'Asset', id }));
    const contents = new Map(readers.map((user) => [user, this.#parts.visibility.assetContent(id, user)]));
    this.#parts.visibility.during(() => {
      this.#plant.delete('assets', id);
      for (const instrumentation of this.#plant.all('instrumentations')) drop(instrumentation.assets, id);
      for (const node of this.#plant.all('nodes')) drop(node.assets, id);
    });
    for (const [user, content] of contents) {
      this.#parts.announcer.announce({
        type: 'asset_disappeared',
        audience: (other) => other === user,
        content: () => content,
      });
    }
  }

  updateAsset(id: number, changes: Partial<Asset>): void {
    const asset = this.#found('assets', id);
    this.#parts.visibility.during(() => Object.assign(asset, changes, { id }));
    this.#tellAttributes('asset_updated', 'asset', this.#plant.reference('assets', id), ASSET_ATTRIBUTES, changes, {
      type: 'Asset',
      id,
    });
  }

  updateEdgeDevice(id: number, changes: Partial<EdgeDevice>): void {
    Object.assign(this.#found('edge_devices', id), changes, { id });
    const reference = this.#plant.reference('edge_devices', id);
    this.#tellAttributes('edge_device_updated', 'edge_device', reference, EDGE_DEVICE_ATTRIBUTES, changes, {
      type: 'EDM::EdgeDevice',
      id,
    });
  }

  addSoftware(asset: number, software: number): void {
    const record = this.#found('assets', asset);
    this.#found('software', software);
    record.software = [...new Set([...(record.software ?? []), software])];
    this.#tell('asset_software_added', { type: 'Asset', id: asset }, () => ({
      asset: this.#plant.reference('assets', asset),
      software: this.#plant.reference('software', software),
    }));
  }

  associate(asset: number, instrumentation: number): void {
    this.#found('assets', asset);
    const record = this.#found('instrumentations', instrumentation);
    if (record.assets.includes(asset)) return;
    this.#parts.visibility.during(() => record.assets.push(asset));
    this.#tellAssociation('asset_instrumentation_association_created', asset, instrumentation);
  }

  /** The relation ends, and with it what was inherited (spec 2.2). */
  dissociate(asset: number, instrumentation: number): void {
    const record = this.#found('instrumentations', instrumentation);
    if (!record.assets.includes(asset)) return;
    this.#tellAssociation('asset_instrumentation_association_destroyed', asset, instrumentation);
    this.#parts.visibility.during(() => drop(record.assets, asset));
  }

  /** Puts an asset under a node, or takes it away. Told only by what appears or disappears. */
  setUnderNode(asset: number, node: number, isUnder: boolean): void {
    this.#found('assets', asset);
    const record = this.#found('nodes', node);
    this.#parts.visibility.during(() => {
      drop(record.assets, asset);
      if (isUnder) record.assets.push(asset);
    });
  }

  /** One event a request; only the changed keys (spec 6.3). */
  setSpecifications(kind: 'assets' | 'events', id: number, changes: Record<string, Specification>): void {
    const record = this.#found(kind, id);
    const now = new Date(this.#parts.clock.wallMs()).toISOString();
    const stamped = Object.fromEntries(
      Object.entries(changes).map(([key, one]) => [
        key,
        { unit: one.unit ?? null, value: one.value, updated_at: now, source_timestamp: one.source_timestamp ?? null },
      ]),
    );
    record.specifications = { ...record.specifications, ...stamped };
    const member = kind === 'assets' ? 'asset' : 'event';
    const object: PermitableRef = { type: kind === 'assets' ? 'Asset' : 'Event', id };
    this.#parts.announcer.announce({
      type: `${member}_specifications_updated`,
      audience: (user) => (kind === 'assets' ? this.#mayRead(user, object) : this.#mayReadEvent(user, id)),
      content: (names) => {
        const wanted = Object.entries(stamped).filter(([key]) => names === undefined || names.includes(key));
        if (wanted.length === 0) return undefined;
        return { [member]: { ...this.#plant.reference(kind, id), specifications: Object.fromEntries(wanted) } };
      },
    });
  }

  /** Needs read permission on at least one of the assets and instrumentations that the request names (spec 6.3). */
  createEvent(wanted: Partial<PlantEvent> & Pick<PlantEvent, 'name' | 'type'>): number {
    const id = wanted.id ?? this.#plant.newId();
    this.#found('event_types', wanted.type);
    const event = this.#plant.put('events', {
      assets: [],
      instrumentations: [],
      documents: [],
      responsible: null,
      ...wanted,
      id,
    });
    this.#tellEvent('event_created', id, () => ({
      event: {
        ...this.#plant.reference('events', id),
        name: event.name,
        responsible: event.responsible ?? null,
        type: this.#coded('event_types', event.type),
        status: event.status === undefined ? null : this.#coded('event_statuses', event.status),
        assets: event.assets.map((asset) => this.#plant.reference('assets', asset)),
        instrumentations: event.instrumentations.map((one) => this.#plant.reference('instrumentations', one)),
        documents: event.documents.map((document) => this.#plant.reference('documents', document)),
      },
    }));
    return id;
  }

  addDocument(event: number, document: number): void {
    const record = this.#found('events', event);
    this.#found('documents', document);
    if (!record.documents.includes(document)) record.documents.push(document);
    this.#tellEvent('event_document_created', event, () => ({
      event: this.#plant.reference('events', event),
      document: this.#plant.reference('documents', document),
    }));
  }

  setHealthConditions(id: number, status: number, conditions: HealthCondition[]): void {
    const asset = this.#found('assets', id);
    const { tenant, ...shown } = this.#found('asset_statuses', status);
    const previous = asset.health_conditions ?? [];
    asset.health_conditions = conditions;
    asset.status = status;
    this.#tell('asset_health_condition_updated', { type: 'Asset', id }, () => ({
      asset: this.#plant.reference('assets', id),
      asset_status: {
        code: shown.code,
        name: shown.name,
        description: shown.description ?? null,
        id: shown.id,
        tenant: tenant === undefined ? null : this.#plant.reference('tenants', tenant),
      },
      health_conditions: conditions.map((one) => this.#condition(one)),
      previous_health_conditions: previous.map((one) => this.#condition(one)),
    }));
  }

  /** Told to users that may read an asset of the product: that is the sandbox's reading of "has an asset linked". */
  setProductStatus(id: number, status: number): void {
    const product = this.#found('products', id);
    const { tenant, ...shown } = this.#found('product_statuses', status);
    product.status = status;
    const assets = this.#plant.all('assets').filter((asset) => asset.product === id);
    this.#parts.announcer.announce({
      type: 'product_status_changed',
      audience: (user) => assets.some((asset) => this.#mayRead(user, { type: 'Asset', id: asset.id })),
      content: () => ({
        product: {
          ...this.#plant.reference('products', id),
          product_code: product.product_code,
          phase_out_date: product.phase_out_date ?? null,
          order_stop_date: product.order_stop_date ?? null,
          spare_parts_until: product.spare_parts_until ?? null,
          spare_sensors_until: product.spare_sensors_until ?? null,
          repair_until: product.repair_until ?? null,
          calibration_until: product.calibration_until ?? null,
          name: product.name,
          status: {
            href: this.#plant.reference('product_statuses', status).href,
            id: status,
            code: shown.code,
            name: shown.name,
            description: shown.description ?? null,
            tenant: tenant === undefined ? null : this.#plant.reference('tenants', tenant),
          },
        },
      }),
    });
  }

  /** Links an add-on to a node, or ends the link. */
  setAddOnLink(addOn: number, node: number, isLinked: boolean): void {
    const record = this.#found('add_ons', addOn);
    this.#found('nodes', node);
    if (record.nodes.includes(node) === isLinked) return;
    drop(record.nodes, node);
    if (isLinked) record.nodes.push(node);
    const subscription = this.#found('subscriptions', record.subscription);
    const user = this.#plant.get('users', subscription.user);
    const type = isLinked ? 'add_on_node_association_created' : 'add_on_node_association_destroyed';
    this.#tell(type, { type: 'Node', id: node }, () => ({
      add_on: { id: addOn },
      node: this.#plant.reference('nodes', node),
      subscription: {
        id: subscription.id,
        display_name: subscription.display_name,
        user: { id: subscription.user, email: user?.email ?? '' },
        billing_address: subscription.billing_address ?? null,
        material_number: subscription.material_number ?? null,
        href: this.#plant.reference('subscriptions', subscription.id).href,
      },
    }));
  }

  #tellAttributes(
    type: 'asset_updated' | 'edge_device_updated',
    member: 'asset' | 'edge_device',
    reference: Reference,
    attributes: readonly string[],
    changes: object,
    object: PermitableRef,
  ): void {
    const changed = attributes.filter((name) => name in changes);
    if (changed.length === 0) return;
    const statuses = type === 'asset_updated' ? 'asset_statuses' : 'edge_device_statuses';
    this.#parts.announcer.announce({
      type,
      audience: (user) => this.#mayRead(user, object),
      content: (names) => {
        const wanted = changed.filter((name) => names === undefined || names.includes(name));
        if (wanted.length === 0) return undefined;
        const shown = wanted.map((name) => {
          const value = (changes as Record<string, unknown>)[name];
          const kind = name === 'status' ? statuses : REFERENCED[name];
          return [name, kind && typeof value === 'number' ? this.#plant.reference(kind, value) : value];
        });
        return { [member]: { ...reference, ...Object.fromEntries(shown) } };
      },
    });
  }

  #tellAssociation(
    type: 'asset_instrumentation_association_created' | 'asset_instrumentation_association_destroyed',
    asset: number,
    instrumentation: number,
  ): void {
    this.#tell(type, { type: 'Asset', id: asset }, () => ({
      asset: this.#plant.reference('assets', asset),
      instrumentation: this.#plant.reference('instrumentations', instrumentation),
    }));
  }

  /** Events about events filter by the code of the event's type. */
  #tellEvent(
    type: 'event_created' | 'event_document_created',
    id: number,
    content: () => Record<string, unknown>,
  ): void {
    const code = this.#plant.get('event_types', this.#found('events', id).type)?.code ?? '';
    this.#parts.announcer.announce({
      type,
      audience: (user) => this.#mayReadEvent(user, id),
      content: (names) => (names === undefined || names.includes(code) ? content() : undefined),
    });
  }

  #tell(
    type: Parameters<Announcer['announce']>[0]['type'],
    object: PermitableRef,
    content: () => Record<string, unknown>,
  ): void {
    this.#parts.announcer.announce({ type, audience: (user) => this.#mayRead(user, object), content });
  }

  #condition(condition: HealthCondition) {
    return {
      diagnosis_code: condition.diagnosis_code,
      id: condition.id,
      asset_status: this.#plant.reference('asset_statuses', condition.asset_status),
      channel: condition.channel ?? null,
      module: condition.module ?? null,
      links: { causes: { href: `${this.#plant.baseUrl}/v1/health_conditions/${condition.id}/causes` } },
    };
  }

  #coded(kind: 'event_types' | 'event_statuses', id: number) {
    const { href } = this.#plant.reference(kind, id);
    return { id, code: this.#plant.get(kind, id)?.code ?? '', href };
  }

  #mayRead(user: number, object: PermitableRef): boolean {
    return this.#parts.book.may(user, 'can_read', object);
  }

  /** The event itself, or at least one of its assets and instrumentations. */
  #mayReadEvent(user: number, id: number): boolean {
    const event = this.#found('events', id);
    return (
      this.#mayRead(user, { type: 'Event', id }) ||
      event.assets.some((asset) => this.#mayRead(user, { type: 'Asset', id: asset })) ||
      event.instrumentations.some((one) => this.#mayRead(user, { type: 'Instrumentation', id: one }))
    );
  }

  #found<K extends Kind>(kind: K, id: number): PlantRecords[K] {
    if (!Number.isSafeInteger(id)) throw refusal(400, `${kind} are named by a number`);
    const record = this.#plant.get(kind, id);
    if (!record) throw notFound(`${kind} ${id}`);
    return record;
  }
}

function drop(list: number[], id: number): void {
  const index = list.indexOf(id);
  if (index >= 0) list.splice(index, 1);
}
