import type { AccessEventType, EventType } from '../../contract/events.ts';
import type { PermitableType } from '../../contract/permissions.ts';
import { refusal } from '../http/refusal.ts';
import type { SiteEvent } from '../site/records.ts';
import type { Stage } from '../stage.ts';
import { type Cause, chosen, isSeen, type ResolvedRequest, statusOf } from './cause.ts';

/**
 * Changes to the site's objects. By default, a status changes to the next status and a number increases, so that an
 * event is sent.
 */
export const SITE_CAUSES = {
  asset_updated: {
    object: 'assets',
    takes: ['status', 'changes'],
    trigger: (stage, request) => {
      const { id, status } = chosen(stage, 'assets', request.object);
      const changes = request.changes ?? { status: statusOf(stage, 'asset_statuses', request.status, status) };
      stage.changes.updateAsset(id, changes);
      return id;
    },
  },
  asset_software_added: {
    object: 'assets',
    to: 'software',
    takes: ['name'],
    trigger: (stage, request) => {
      const asset = chosen(stage, 'assets', request.object);
      const fresh = stage.site.all('software').find(({ id }) => !asset.software?.includes(id));
      stage.changes.addSoftware(asset.id, request.to ?? fresh?.id ?? makeNamed(stage, 'software', request.name));
      return asset.id;
    },
  },
  asset_instrumentation_association_created: {
    object: 'assets',
    to: 'instrumentations',
    takes: [],
    trigger: (stage, request) => {
      const free = (asset: number) =>
        stage.site
          .all('instrumentations')
          .find((one) => !one.assets.includes(asset) && (request.to === undefined || one.id === request.to));
      const asset = chosen(stage, 'assets', request.object, ({ id }) => free(id) !== undefined);
      const to = request.to ?? free(asset.id)?.id;
      if (to === undefined) throw refusal(409, `asset ${asset.id} is assigned to every instrumentation`);
      if (stage.site.found('instrumentations', to).assets.includes(asset.id)) stage.changes.dissociate(asset.id, to);
      stage.changes.associate(asset.id, to);
      return { object: asset.id, to };
    },
  },
  asset_instrumentation_association_destroyed: {
    object: 'assets',
    to: 'instrumentations',
    takes: [],
    trigger: (stage, request) => {
      const { to } = request;
      const holderOf = (asset: number) =>
        stage.site
          .all('instrumentations')
          .find((one) => one.assets.includes(asset) && (to === undefined || one.id === to));
      const asset = chosen(stage, 'assets', request.object, ({ id }) => holderOf(id) !== undefined);
      const holder = holderOf(asset.id);
      if (!holder) throw refusal(409, `asset ${asset.id} is not assigned to ${to ?? 'any instrumentation'}`);
      stage.changes.dissociate(asset.id, holder.id);
      return { object: asset.id, to: holder.id };
    },
  },
  edge_device_updated: {
    object: 'edge_devices',
    takes: ['status', 'changes'],
    trigger: (stage, request) => {
      const device = chosen(stage, 'edge_devices', request.object);
      const changes = request.changes ?? {
        status: statusOf(stage, 'edge_device_statuses', request.status, device.status),
      };
      stage.changes.updateEdgeDevice(device.id, changes);
      return device.id;
    },
  },
  asset_specifications_updated: {
    object: 'assets',
    takes: ['key', 'value', 'unit'],
    trigger: (stage, request) => {
      const asset = chosen(stage, 'assets', request.object);
      stage.changes.setSpecifications('assets', asset.id, specification(asset.specifications, request));
      return asset.id;
    },
  },
  event_specifications_updated: {
    object: 'events',
    takes: ['key', 'value', 'unit'],
    trigger: (stage, request) => {
      const event = eventOf(stage, request);
      stage.changes.setSpecifications('events', event.id, specification(event.specifications, request));
      return event.id;
    },
  },
  event_created: {
    object: 'assets',
    takes: ['name', 'type', 'status'],
    trigger: (stage, request) => {
      const { id } = chosen(stage, 'assets', request.object);
      return { object: id, made: { kind: 'events', id: makeEvent(stage, id, request) } };
    },
  },
  event_document_created: {
    object: 'events',
    to: 'documents',
    takes: ['name'],
    trigger: (stage, request) => {
      const event = eventOf(stage, request);
      const fresh = stage.site.all('documents').find(({ id }) => !event.documents.includes(id));
      stage.changes.addDocument(event.id, request.to ?? fresh?.id ?? makeNamed(stage, 'documents', request.name));
      return event.id;
    },
  },
  asset_health_condition_updated: {
    object: 'assets',
    takes: ['name', 'status'],
    trigger: (stage, request) => {
      const asset = chosen(stage, 'assets', request.object);
      const healthy = request.name === undefined && (asset.health_conditions ?? []).length > 0;
      const all = stage.site.all('asset_statuses');
      const fallback = (healthy ? all[0] : all.at(-1))?.id;
      const status = statusOf(stage, 'asset_statuses', request.status ?? fallback);
      const conditions = healthy ? [] : [{ diagnosis_code: request.name ?? 'S441', asset_status: status }];
      stage.changes.setHealthConditions(asset.id, status, conditions);
      return asset.id;
    },
  },
  product_status_changed: {
    object: 'products',
    takes: ['status'],
    trigger: (stage, request) => {
      const isUsed = ({ id }: { id: number }) => stage.site.all('assets').some((one) => one.product === id);
      const product = chosen(stage, 'products', request.object, isUsed);
      const status = statusOf(stage, 'product_statuses', request.status, product.status);
      stage.changes.setProductStatus(product.id, status);
      return product.id;
    },
  },
  add_on_node_association_created: addOnLink(true),
  add_on_node_association_destroyed: addOnLink(false),
} satisfies Partial<Record<EventType, Cause>>;

/** Creates or removes a link. First ensures the opposite state, because only a change sends an event. */
function addOnLink(isLinked: boolean): Cause {
  return {
    object: 'add_ons',
    to: 'nodes',
    takes: [],
    trigger: (stage, request) => {
      const addOn = chosen(stage, 'add_ons', request.object);
      const linked = stage.site
        .all('nodes')
        .find(({ id }) => addOn.nodes.includes(id) === !isLinked && isSeen(stage, 'nodes', id));
      const node = request.to ?? (linked ?? chosen(stage, 'nodes')).id;
      stage.changes.setAddOnLink(addOn.id, node, !isLinked);
      stage.changes.setAddOnLink(addOn.id, node, isLinked);
      return { object: addOn.id, to: node };
    },
  };
}

function makeNamed(stage: Stage, kind: 'software' | 'documents', name: string | undefined): number {
  const id = stage.site.newId();
  stage.changes.put(kind, { id, name: name ?? `${kind} ${id}` });
  return id;
}

function eventOf(stage: Stage, request: ResolvedRequest): SiteEvent {
  if (request.object !== undefined) return stage.site.found('events', request.object);
  const found = stage.site.all('events').find(({ id }) => isSeen(stage, 'events', id));
  if (found) return found;
  const id = makeEvent(stage, chosen(stage, 'assets').id, {});
  stage.grantPermission({ type: 'Event', id }, { types: ['can_read'] });
  return stage.site.found('events', id);
}

function makeEvent(stage: Stage, asset: number, { name, type, status }: ResolvedRequest): number {
  const count = stage.site.all('events').length + 1;
  return stage.changes.createEvent({
    name: name ?? `Event ${count}`,
    type: statusOf(stage, 'event_types', type),
    ...(status === undefined ? {} : { status: statusOf(stage, 'event_statuses', status) }),
    assets: [asset],
  });
}

/** Returns the requested specification value, or the current number plus one. */
function specification(
  before: Record<string, { value: unknown }> | undefined,
  { key = 'range', value, unit }: ResolvedRequest,
) {
  const last = Number(before?.[key]?.value);
  const next = value ?? String((Number.isFinite(last) ? last : 9) + 1);
  return { [key]: { value: next, ...(unit === undefined ? {} : { unit }) } };
}

/** Interval between the disappearance and the appearance, so that receivers can order the events by `occurred_at`. */
const APART_MS = 1;

/**
 * Changes to the visibility of objects for the technical user. To make a visible object appear, it is hidden first, and
 * vice versa.
 */
export const ACCESS_CAUSES = {
  asset_appeared: seen('assets', 'Asset', true),
  asset_disappeared: seen('assets', 'Asset', false),
  instrumentation_appeared: seen('instrumentations', 'Instrumentation', true),
  instrumentation_disappeared: seen('instrumentations', 'Instrumentation', false),
  node_appeared: seen('nodes', 'Node', true),
  node_disappeared: seen('nodes', 'Node', false),
} satisfies Record<AccessEventType, Cause>;

function seen<K extends 'assets' | 'instrumentations' | 'nodes'>(
  kind: K,
  type: PermitableType,
  appears: boolean,
): Cause {
  return {
    object: kind,
    takes: [],
    trigger: (stage, { object }) => {
      const all: readonly { id: number }[] = stage.site.all(kind);
      const change = (isSeen: boolean, id: number) =>
        isSeen ? stage.grantPermission({ type, id }) : stage.revokePermission({ type, id });
      const suitable = all.find(({ id }) => isSeen(stage, kind, id) !== appears) ?? all[0];
      const { id } = object === undefined && suitable ? suitable : chosen(stage, kind, object);
      if (isSeen(stage, kind, id) === appears) {
        change(!appears, id);
        stage.clock.advance(APART_MS);
      }
      change(appears, id);
      return id;
    },
  };
}
