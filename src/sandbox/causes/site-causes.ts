import type { EventType } from '../../contract/events.ts';
import type { Stage } from '../admin/stage.ts';
import { refusal } from '../http/refusal.ts';
import type { SiteEvent } from '../site/records.ts';
import { type Cause, type EventRequest, first, isSeen, named, seenOne, statusOf } from './cause.ts';

/** Everything that changes about the site's objects. Each makes a change that is one: a status goes to the next, a text gets a new number. */
export const SITE_CAUSES = {
  asset_updated: {
    does: 'changes attributes of an asset; its status goes to the next unless given',
    object: 'assets',
    takes: ['status', 'changes'],
    trigger: (stage, request) => {
      const { id, status } = seenOne(stage, 'assets', request.object);
      const changes = request.changes ?? { status: statusOf(stage, 'asset_statuses', request.status, status) };
      stage.changes.updateAsset(id, changes);
      return id;
    },
  },
  asset_software_added: {
    does: 'assigns software to an asset',
    object: 'assets',
    to: 'software',
    takes: ['name'],
    trigger: (stage, request) => {
      const asset = seenOne(stage, 'assets', request.object);
      const fresh = stage.site.all('software').find(({ id }) => !asset.software?.includes(id));
      stage.changes.addSoftware(asset.id, request.to ?? fresh?.id ?? makeNamed(stage, 'software', request.name));
      return asset.id;
    },
  },
  asset_instrumentation_association_created: {
    does: 'assigns an asset to an instrumentation',
    object: 'assets',
    to: 'instrumentations',
    takes: [],
    trigger: (stage, request) => {
      const free = (asset: number) =>
        stage.site
          .all('instrumentations')
          .find((one) => !one.assets.includes(asset) && (request.to === undefined || one.id === request.to));
      const asset = seenOne(stage, 'assets', request.object, ({ id }) => free(id) !== undefined);
      const to = request.to ?? free(asset.id)?.id;
      if (to === undefined) throw refusal(409, `asset ${asset.id} is assigned to every instrumentation`);
      if (named(stage, 'instrumentations', to).assets.includes(asset.id)) stage.changes.dissociate(asset.id, to);
      stage.changes.associate(asset.id, to);
      return { object: asset.id, to };
    },
  },
  asset_instrumentation_association_destroyed: {
    does: 'takes an asset from an instrumentation',
    object: 'assets',
    to: 'instrumentations',
    takes: [],
    trigger: (stage, request) => {
      const { to } = request;
      const holderOf = (asset: number) =>
        stage.site
          .all('instrumentations')
          .find((one) => one.assets.includes(asset) && (to === undefined || one.id === to));
      const asset = seenOne(stage, 'assets', request.object, ({ id }) => holderOf(id) !== undefined);
      const holder = holderOf(asset.id);
      if (!holder) throw refusal(409, `asset ${asset.id} is not assigned to ${to ?? 'any instrumentation'}`);
      stage.changes.dissociate(asset.id, holder.id);
      return { object: asset.id, to: holder.id };
    },
  },
  edge_device_updated: {
    does: 'changes attributes of an edge device; its status goes to the next unless given',
    object: 'edge_devices',
    takes: ['status', 'changes'],
    trigger: (stage, request) => {
      const device =
        request.object === undefined
          ? first(stage, 'edge_devices', ({ id }) => isSeen(stage, { type: 'EDM::EdgeDevice', id }), 'no edge device')
          : named(stage, 'edge_devices', request.object);
      const changes = request.changes ?? {
        status: statusOf(stage, 'edge_device_statuses', request.status, device.status),
      };
      stage.changes.updateEdgeDevice(device.id, changes);
      return device.id;
    },
  },
  asset_specifications_updated: {
    does: 'sets a specification of an asset',
    object: 'assets',
    takes: ['key', 'value', 'unit'],
    trigger: (stage, request) => {
      const asset = seenOne(stage, 'assets', request.object);
      stage.changes.setSpecifications('assets', asset.id, specification(asset.specifications, request));
      return asset.id;
    },
  },
  event_specifications_updated: {
    does: 'sets a specification of an event, which is made where there is none',
    object: 'events',
    takes: ['key', 'value', 'unit'],
    trigger: (stage, request) => {
      const event = eventOf(stage, request);
      stage.changes.setSpecifications('events', event.id, specification(event.specifications, request));
      return event.id;
    },
  },
  event_created: {
    does: 'makes an event about an asset',
    object: 'assets',
    takes: ['name', 'type', 'status'],
    trigger: (stage, request) => {
      const { id } = seenOne(stage, 'assets', request.object);
      return { object: id, made: { kind: 'events', id: makeEvent(stage, id, request) } };
    },
  },
  event_document_created: {
    does: 'assigns a document to an event, both made where there is none',
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
    does: 'gives an asset a health condition, or takes those away that it has',
    object: 'assets',
    takes: ['name', 'status'],
    trigger: (stage, request) => {
      const asset = seenOne(stage, 'assets', request.object);
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
    does: 'changes the status of a product to the next unless given',
    object: 'products',
    takes: ['status'],
    trigger: (stage, request) => {
      const product =
        request.object === undefined
          ? first(
              stage,
              'products',
              ({ id }) => stage.site.all('assets').some((one) => one.product === id),
              'no product',
            )
          : named(stage, 'products', request.object);
      const status = statusOf(stage, 'product_statuses', request.status, product.status);
      stage.changes.setProductStatus(product.id, status);
      return product.id;
    },
  },
  add_on_node_association_created: addOnLink(true),
  add_on_node_association_destroyed: addOnLink(false),
} satisfies Partial<Record<EventType, Cause>>;

/** A link is only told when it is new, or was there: it is first made so. */
function addOnLink(isLinked: boolean): Cause {
  return {
    does: isLinked ? 'links an add-on to a node' : 'ends the link of an add-on to a node',
    object: 'add_ons',
    to: 'nodes',
    takes: [],
    trigger: (stage, request) => {
      const addOn =
        request.object === undefined
          ? first(stage, 'add_ons', () => true, 'no add-on')
          : named(stage, 'add_ons', request.object);
      const linked = stage.site
        .all('nodes')
        .find(({ id }) => addOn.nodes.includes(id) === !isLinked && isSeen(stage, { type: 'Node', id }));
      const node = request.to ?? (linked ?? seenOne(stage, 'nodes', undefined)).id;
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

function eventOf(stage: Stage, request: EventRequest): SiteEvent {
  if (request.object !== undefined) return named(stage, 'events', request.object);
  const found = stage.site.all('events').find(({ id }) => isSeen(stage, { type: 'Event', id }));
  if (found) return found;
  const id = makeEvent(stage, seenOne(stage, 'assets', undefined).id, {});
  stage.grantPermission({ type: 'Event', id }, { types: ['can_read'] });
  return named(stage, 'events', id);
}

function makeEvent(stage: Stage, asset: number, { name, type, status }: EventRequest): number {
  const count = stage.site.all('events').length + 1;
  return stage.changes.createEvent({
    name: name ?? `Event ${count}`,
    type: statusOf(stage, 'event_types', type),
    ...(status === undefined ? {} : { status: statusOf(stage, 'event_statuses', status) }),
    assets: [asset],
  });
}

/** The requested value, or a number one higher than the one that is there. */
function specification(
  before: Record<string, { value: unknown }> | undefined,
  { key = 'range', value, unit }: EventRequest,
) {
  const last = Number(before?.[key]?.value);
  const next = value ?? String((Number.isFinite(last) ? last : 9) + 1);
  return { [key]: { value: next, ...(unit === undefined ? {} : { unit }) } };
}
