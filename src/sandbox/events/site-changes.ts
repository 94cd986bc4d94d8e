import type { EventType } from '../../contract/events.ts';
import type { PermitableRef } from '../permissions/inheritance.ts';
import type { PermissionRegistry } from '../permissions/permission-registry.ts';
import type { Visibility } from '../permissions/visibility.ts';
import type { SandboxClock } from '../sandbox-clock.ts';
import {
  type Application,
  type HealthCondition,
  KIND_OF_PERMITABLE,
  KIND_OF_THRESHOLDABLE,
  type Kind,
  nounOf,
  type SiteEvent,
  type SiteRecords,
  type Specification,
  withoutKey,
} from '../site/records.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { Announcement, Announcer } from './announcer.ts';
import {
  accessContent,
  addOnContent,
  conditionContent,
  eventContent,
  productContent,
  statusContent,
} from './contents.ts';
import {
  ASSET_ATTRIBUTES,
  type Attributes,
  assignAttributes,
  changedSpecifications,
  checkAttributes,
  EDGE_DEVICE_ATTRIBUTES,
  isSame,
} from './updates.ts';

type NewCondition = Omit<HealthCondition, 'id'> & { id?: number };
type NewEvent = Partial<SiteEvent> & Pick<SiteEvent, 'name' | 'type'>;

export interface ChangeParts {
  site: SiteModel;
  permissions: PermissionRegistry;
  visibility: Visibility;
  announcer: Announcer;
  clock: SandboxClock;
  /** Adds a sentence to the request log. */
  report(sentence: string): void;
}

/** Time after which an edge device that was not seen becomes offline. Platform 3.4 and 6.3 do not specify this time. */
const OFFLINE_AFTER_MS = 5 * 60_000;

/**
 * Changes the site and sends the corresponding events (platform 6.3). The specification defines no endpoints for these
 * changes. They are available to tests and through `tagferry sandbox cause`. An update that changes nothing sends no
 * event. Unknown objects are rejected with a 404.
 */
export class SiteChanges {
  readonly #site: SiteModel;
  readonly #parts: ChangeParts;

  constructor(parts: ChangeParts) {
    this.#site = parts.site;
    this.#parts = parts;
  }

  /** Creates or replaces an object. Sends only `…_appeared` and `…_disappeared` events. */
  put<K extends Kind>(kind: K, record: SiteRecords[K]): void {
    const before = this.#site.get(kind, record.id);
    this.#parts.visibility.during(() => {
      if (kind !== 'client_applications') return void this.#site.put(kind, record);
      const { application, key } = withoutKey(record as Application);
      this.#site.put('client_applications', application);
      if (key) this.#site.put('api_keys', key);
    });
    this.#parts.report(`${nounOf(kind)} ${record.id} ${before ? 'replaced' : 'created'}`);
  }

  updateAsset(id: number, changes: object): void {
    const asset = this.#site.found('assets', id);
    checkAttributes(this.#site, ASSET_ATTRIBUTES, changes);
    const changed = this.#parts.visibility.during(() => assignAttributes(asset, changes, ASSET_ATTRIBUTES));
    this.#announceAttributes('asset_updated', id, ASSET_ATTRIBUTES, changed);
  }

  updateEdgeDevice(id: number, changes: object): void {
    const device = this.#site.found('edge_devices', id);
    checkAttributes(this.#site, EDGE_DEVICE_ATTRIBUTES, changes);
    const changed = assignAttributes(device, changes, EDGE_DEVICE_ATTRIBUTES);
    this.#announceAttributes('edge_device_updated', id, EDGE_DEVICE_ATTRIBUTES, changed);
  }

  /**
   * Records that an edge device was seen, and sets it online. If it is not seen for five minutes, it becomes offline
   * (platform 3.4: "goes automatically to offline"). Devices that were never seen keep their status from the seed.
   */
  edgeDeviceSeen(id: number): void {
    const statusOf = (code: string) => {
      const status = this.#site.all('edge_device_statuses').find((one) => one.code === code)?.id;
      return status === undefined ? {} : { status };
    };
    const last_seen_at = this.#now();
    this.updateEdgeDevice(id, { last_seen_at, ...statusOf('online') });
    this.#parts.clock.after(OFFLINE_AFTER_MS, () => {
      const device = this.#site.get('edge_devices', id);
      if (device?.last_seen_at === last_seen_at) this.updateEdgeDevice(id, statusOf('offline'));
    });
  }

  /** Sets the health conditions of an asset, and its status. */
  setHealthConditions(id: number, status: number, wanted: readonly NewCondition[]): void {
    const asset = this.#site.found('assets', id);
    this.#site.found('asset_statuses', status);
    const conditions = wanted.map((one) => ({ id: this.#site.newId(), channel: null, module: null, ...one }));
    const previous = asset.health_conditions ?? [];
    asset.health_conditions = conditions;
    this.updateAsset(id, { status });
    if (isSame(previous, conditions)) return;
    const codes = conditions.map((one) => one.diagnosis_code).join(', ') || 'none';
    this.#parts.report(`health conditions of asset ${id} set to ${codes}`);
    this.#announce('asset_health_condition_updated', { type: 'Asset', id }, () => ({
      asset: this.#site.reference('assets', id),
      asset_status: statusContent(this.#site, 'asset_statuses', status),
      health_conditions: conditions.map((one) => conditionContent(this.#site, one)),
      previous_health_conditions: previous.map((one) => conditionContent(this.#site, one)),
    }));
  }

  /** Sends one event with all keys that changed (platform 6.3). Webhooks can filter by key. */
  setSpecifications(kind: 'assets' | 'events', id: number, wanted: Readonly<Record<string, Specification>>): void {
    const record = this.#site.found(kind, id);
    const changed = changedSpecifications(record.specifications, wanted, this.#now());
    const keys = Object.keys(changed);
    if (keys.length === 0) return;
    record.specifications = { ...record.specifications, ...changed };
    const [member, type] = kind === 'assets' ? (['asset', 'Asset'] as const) : (['event', 'Event'] as const);
    this.#parts.report(`specifications of ${member} ${id} changed: ${keys.join(', ').slice(0, 80)}`);
    this.#announce(`${member}_specifications_updated`, { type, id }, (names) => {
      const shown = keys.filter((key) => names === undefined || names.includes(key));
      if (shown.length === 0) return undefined;
      const specifications = Object.fromEntries(shown.map((key) => [key, changed[key]]));
      return { [member]: { ...this.#site.reference(kind, id), specifications } };
    });
  }

  addSoftware(asset: number, software: number): void {
    const record = this.#site.found('assets', asset);
    const { name } = this.#site.found('software', software);
    if (record.software?.includes(software)) return;
    record.software = [...(record.software ?? []), software];
    this.#parts.report(`software ${name} added to asset ${asset}`);
    this.#announce('asset_software_added', { type: 'Asset', id: asset }, () => ({
      asset: this.#site.reference('assets', asset),
      software: this.#site.reference('software', software),
    }));
  }

  /** Assigns an asset to an instrumentation, from which it then inherits permissions (platform 2.2). */
  associate(asset: number, instrumentation: number): void {
    this.#site.found('assets', asset);
    const record = this.#site.found('instrumentations', instrumentation);
    if (record.assets.includes(asset)) return;
    this.#parts.visibility.during(() => record.assets.push(asset));
    this.#announceAssociation('created', asset, record);
  }

  /** Removes the relation and the permissions inherited through it. Users who could read the asset are notified. */
  dissociate(asset: number, instrumentation: number): void {
    const record = this.#site.found('instrumentations', instrumentation);
    if (!record.assets.includes(asset)) return;
    this.#announceAssociation('destroyed', asset, record);
    this.#parts.visibility.during(() => drop(record.assets, asset));
  }

  /**
   * Creates an event and returns its ID. Webhooks receive the event if their technical user can read at least one of
   * its assets or instrumentations (platform 6.3). They can filter by event type code.
   */
  createEvent(wanted: NewEvent): number {
    const { name, type, status, responsible = null, id = this.#site.newId() } = wanted;
    const { code } = this.#site.found('event_types', type);
    if (status !== undefined) this.#site.found('event_statuses', status);
    const event = this.#site.put('events', {
      id,
      name,
      type,
      responsible,
      ...(status === undefined ? {} : { status }),
      assets: wanted.assets ?? [],
      instrumentations: wanted.instrumentations ?? [],
      documents: wanted.documents ?? [],
    });
    this.#parts.report(`event ${name} (${code}) created`);
    this.#parts.announcer.announce({
      type: 'event_created',
      audience: (user) =>
        event.assets.some((asset) => this.#canRead(user, { type: 'Asset', id: asset })) ||
        event.instrumentations.some((one) => this.#canRead(user, { type: 'Instrumentation', id: one })),
      content: (names) =>
        names === undefined || names.includes(code) ? { event: eventContent(this.#site, event) } : undefined,
    });
    return id;
  }

  addDocument(event: number, document: number): void {
    const record = this.#site.found('events', event);
    const { name } = this.#site.found('documents', document);
    if (record.documents.includes(document)) return;
    record.documents.push(document);
    const code = this.#site.get('event_types', record.type)?.code ?? '';
    this.#parts.report(`document ${name} added to event ${record.name}`);
    const content = {
      event: this.#site.reference('events', event),
      document: this.#site.reference('documents', document),
    };
    this.#announce('event_document_created', { type: 'Event', id: event }, (names) =>
      names === undefined || names.includes(code) ? content : undefined,
    );
  }

  /** The event is sent to users who can read an asset of the product: "has an asset linked" (platform 6.3). */
  setProductStatus(id: number, status: number): void {
    const product = this.#site.found('products', id);
    const { code } = this.#site.found('product_statuses', status);
    if (product.status === status) return;
    product.status = status;
    this.#parts.report(`status of product ${product.name} set to ${code}`);
    const assets = this.#site.all('assets').filter((asset) => asset.product === id);
    this.#parts.announcer.announce({
      type: 'product_status_changed',
      audience: (user) => assets.some((asset) => this.#canRead(user, { type: 'Asset', id: asset.id })),
      content: () => ({ product: productContent(this.#site, product, status) }),
    });
  }

  /** Links an add-on to a node, or removes the link. */
  setAddOnLink(addOn: number, node: number, isLinked: boolean): void {
    const record = this.#site.found('add_ons', addOn);
    const { name } = this.#site.found('nodes', node);
    if (record.nodes.includes(node) === isLinked) return;
    const subscription = this.#site.found('subscriptions', record.subscription);
    record.nodes = isLinked ? [...record.nodes, node] : record.nodes.filter((id) => id !== node);
    this.#parts.report(`add-on ${addOn} ${isLinked ? 'linked to' : 'unlinked from'} node ${name}`);
    const type = `add_on_node_association_${isLinked ? 'created' : 'destroyed'}` as const;
    this.#announce(type, { type: 'Node', id: node }, () => addOnContent(this.#site, addOn, node, subscription));
  }

  /**
   * Deletes an object and everything that depends on it. An event is sent for each association and add-on link that
   * ends. Permissions, owners and relations are removed, and objects disappear for users who can no longer read them.
   * Technical users with the reporting role who could read a deleted asset are notified (platform 6.3).
   */
  destroy(kind: Kind, id: number): void {
    this.#site.found(kind, id);
    const reporters = kind === 'assets' ? this.#reportersOf(id) : [];
    const contents = reporters.map((user) => [user, accessContent(this.#site, 'asset', id, user, false)] as const);
    this.#endLinks(kind, id);
    this.#parts.visibility.during(() => {
      this.#site.delete(kind, id);
      this.#leaveRelations(kind, id);
      this.#leavePermissions(kind, id);
    });
    this.#parts.report(`${nounOf(kind)} ${id} deleted`);
    for (const [user, content] of contents) {
      const audience = (other: number) => other === user;
      this.#parts.announcer.announce({ type: 'asset_disappeared', audience, content: () => content });
    }
  }

  #reportersOf(asset: number): number[] {
    const users = this.#site.all('userroles').flatMap((role) => (role.reporting ? role.users : []));
    return [...new Set(users)].filter((user) => this.#canRead(user, { type: 'Asset', id: asset }));
  }

  /** Removes links whose removal sends an event, because the event must be sent while both objects exist. */
  #endLinks(kind: Kind, id: number): void {
    for (const { id: instrumentation, assets } of this.#site.all('instrumentations')) {
      const ended = kind === 'instrumentations' && id === instrumentation ? [...assets] : kind === 'assets' ? [id] : [];
      for (const asset of ended) this.dissociate(asset, instrumentation);
    }
    for (const { id: addOn, nodes } of this.#site.all('add_ons')) {
      const ended = kind === 'add_ons' && id === addOn ? nodes : kind === 'nodes' ? [id] : [];
      for (const node of ended) this.setAddOnLink(addOn, node, false);
    }
  }

  #leaveRelations(kind: Kind, id: number): void {
    const site = this.#site;
    if (kind === 'assets') {
      for (const node of site.all('nodes')) drop(node.assets, id);
      for (const asset of site.all('assets')) if (asset.parent === id) delete asset.parent;
    }
    if (kind === 'users') {
      for (const group of site.all('usergroups')) drop(group.members, id);
      for (const tenant of site.all('tenants')) for (const list of [tenant.admins, tenant.users]) drop(list, id);
      for (const role of site.all('userroles')) drop(role.users, id);
    }
    if (kind === 'client_applications') {
      for (const key of site.all('api_keys')) if (key.client_application === id) site.delete('api_keys', key.id);
    }
    if (kind === 'assets' || kind === 'instrumentations' || kind === 'documents') {
      for (const event of site.all('events')) drop(event[kind], id);
    }
    for (const threshold of site.all('thresholds')) {
      if (KIND_OF_THRESHOLDABLE[threshold.thresholdable_type] === kind && threshold.thresholdable_id === id) {
        site.delete('thresholds', threshold.id);
      }
    }
  }

  /** Removes the permissions on an object, and all permissions and ownerships that a deleted user or group holds. */
  #leavePermissions(kind: Kind, id: number): void {
    const isIt = (permitable: PermitableRef) => KIND_OF_PERMITABLE[permitable.type] === kind && permitable.id === id;
    for (const grant of this.#site.all('permissions')) {
      const holder = grant.assignable.type === 'User' ? 'users' : 'usergroups';
      const isHolder = holder === kind && grant.assignable.id === id;
      if (isHolder || isIt(grant.permitable)) this.#site.delete('permissions', grant.id);
    }
    this.#parts.permissions.removeOwners((one) => isIt(one.permitable) || (kind === 'users' && one.user === id));
  }

  #announceAttributes(
    type: 'asset_updated' | 'edge_device_updated',
    id: number,
    attributes: Attributes,
    changed: Record<string, unknown>,
  ): void {
    const names = Object.keys(changed);
    if (names.length === 0) return;
    const [member, kind, permitable] =
      type === 'asset_updated'
        ? (['asset', 'assets', 'Asset'] as const)
        : (['edge_device', 'edge_devices', 'EDM::EdgeDevice'] as const);
    this.#parts.report(`${names.join(', ')} of ${member.replace('_', ' ')} ${id} changed`);
    this.#announce(type, { type: permitable, id }, (wanted) => {
      const shown = names.filter((name) => wanted === undefined || wanted.includes(name));
      if (shown.length === 0) return undefined;
      const members = shown.map((name) => {
        const form = attributes[name]!;
        const value = changed[name];
        return [name, form === 'text' || value === null ? value : this.#site.reference(form, value as number)];
      });
      return { [member]: { ...this.#site.reference(kind, id), ...Object.fromEntries(members) } };
    });
  }

  #announceAssociation(what: 'created' | 'destroyed', asset: number, { id, tag }: { id: number; tag: string }): void {
    this.#parts.report(`asset ${asset} ${what === 'created' ? 'assigned to' : 'removed from'} ${tag}`);
    this.#announce(`asset_instrumentation_association_${what}`, { type: 'Asset', id: asset }, () => ({
      asset: this.#site.reference('assets', asset),
      instrumentation: this.#site.reference('instrumentations', id),
    }));
  }

  /** Announces an event to technical users who can read the object (platform 6.1). */
  #announce(type: EventType, object: PermitableRef, content: Announcement['content']): void {
    this.#parts.announcer.announce({ type, audience: (user) => this.#canRead(user, object), content });
  }

  #canRead(user: number, object: PermitableRef): boolean {
    return this.#parts.permissions.may(user, 'can_read', object);
  }

  /** Returns the sandbox time in ISO 8601 format. */
  #now(): string {
    return new Date(this.#parts.clock.wallMs()).toISOString();
  }
}

function drop(list: number[], id: number): void {
  const index = list.indexOf(id);
  if (index >= 0) list.splice(index, 1);
}
