import type { EventType } from '../../contract/events.ts';
import type { Stage } from '../admin/stage.ts';
import { refusal } from '../http/refusal.ts';
import type { PlantEvent } from '../plant/records.ts';
import { type Cause, first, isSeen, named, seenOne, statusOf, type Wish } from './cause.ts';

/** Everything that changes about the plant's objects. Each makes a change that is one: a status goes to the next, a text gets a new number. */
export const PLANT_CAUSES = {
  asset_updated: {
    does: 'changes attributes of an asset; its status goes to the next unless told',
    object: 'assets',
    takes: ['status', 'changes'],
    bring: (stage, wish) => {
      const { id, status } = seenOne(stage, 'assets', wish.object);
      const changes = wish.changes ?? { status: statusOf(stage, 'asset_statuses', wish.status, status) };
      stage.changes.updateAsset(id, changes);
      return id;
    },
  },
  asset_software_added: {
    does: 'assigns software to an asset',
    object: 'assets',
    to: 'software',
    takes: ['name'],
    bring: (stage, wish) => {
      const asset = seenOne(stage, 'assets', wish.object);
      const fresh = stage.plant.all('software').find(({ id }) => !asset.software?.includes(id));
      stage.changes.addSoftware(asset.id, wish.to ?? fresh?.id ?? makeNamed(stage, 'software', wish.name));
      return asset.id;
    },
  },
  asset_instrumentation_association_created: {
    does: 'assigns an asset to an instrumentation',
    object: 'assets',
    to: 'instrumentations',
    takes: [],
    bring: (stage, wish) => {
      const free = (asset: number) =>
        stage.plant
          .all('instrumentations')
          .find((one) => !one.assets.includes(asset) && (wish.to === undefined || one.id === wish.to));
      const asset = seenOne(stage, 'assets', wish.object, ({ id }) => free(id) !== undefined);
      const to = wish.to ?? free(asset.id)?.id;
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
    bring: (stage, wish) => {
      const { to } = wish;
      const holderOf = (asset: number) =>
        stage.plant
          .all('instrumentations')
          .find((one) => one.assets.includes(asset) && (to === undefined || one.id === to));
      const asset = seenOne(stage, 'assets', wish.object, ({ id }) => holderOf(id) !== undefined);
      const holder = holderOf(asset.id);
      if (!holder) throw refusal(409, `asset ${asset.id} is not assigned to ${to ?? 'any instrumentation'}`);
      stage.changes.dissociate(asset.id, holder.id);
      return { object: asset.id, to: holder.id };
    },
  },
  edge_device_updated: {
    does: 'changes attributes of an edge device; its status goes to the next unless told',
    object: 'edge_devices',
    takes: ['status', 'changes'],
    bring: (stage, wish) => {
      const device =
        wish.object === undefined
          ? first(stage, 'edge_devices', ({ id }) => isSeen(stage, { type: 'EDM::EdgeDevice', id }), 'no edge device')
          : named(stage, 'edge_devices', wish.object);
      const changes = wish.changes ?? { status: statusOf(stage, 'edge_device_statuses', wish.status, device.status) };
      stage.changes.updateEdgeDevice(device.id, changes);
      return device.id;
    },
  },
  asset_specifications_updated: {
    does: 'sets a specification of an asset',
    object: 'assets',
    takes: ['key', 'value', 'unit'],
    bring: (stage, wish) => {
      const asset = seenOne(stage, 'assets', wish.object);
      stage.changes.setSpecifications('assets', asset.id, specification(asset.specifications, wish));
      return asset.id;
    },
  },
  event_specifications_updated: {
    does: 'sets a specification of an event, which is made where there is none',
    object: 'events',
    takes: ['key', 'value', 'unit'],
    bring: (stage, wish) => {
      const event = eventOf(stage, wish);
      stage.changes.setSpecifications('events', event.id, specification(event.specifications, wish));
      return event.id;
    },
  },
  event_created: {
    does: 'makes an event about an asset',
    object: 'assets',
    takes: ['name', 'type', 'status'],
    bring: (stage, wish) => {
      const { id } = seenOne(stage, 'assets', wish.object);
      return { object: id, made: { kind: 'events', id: makeEvent(stage, id, wish) } };
    },
  },
  event_document_created: {
    does: 'assigns a document to an event, both made where there is none',
    object: 'events',
    to: 'documents',
    takes: ['name'],
    bring: (stage, wish) => {
      const event = eventOf(stage, wish);
      const fresh = stage.plant.all('documents').find(({ id }) => !event.documents.includes(id));
      stage.changes.addDocument(event.id, wish.to ?? fresh?.id ?? makeNamed(stage, 'documents', wish.name));
      return event.id;
    },
  },
  asset_health_condition_updated: {
    does: 'gives an asset a health condition, or takes those away that it has',
    object: 'assets',
    takes: ['name', 'status'],
    bring: (stage, wish) => {
      const asset = seenOne(stage, 'assets', wish.object);
      const healthy = wish.name === undefined && (asset.health_conditions ?? []).length > 0;
      const all = stage.plant.all('asset_statuses');
      const fallback = (healthy ? all[0] : all.at(-1))?.id;
      const status = statusOf(stage, 'asset_statuses', wish.status ?? fallback);
      const conditions = healthy ? [] : [{ diagnosis_code: wish.name ?? 'S441', asset_status: status }];
      stage.changes.setHealthConditions(asset.id, status, conditions);
      return asset.id;
    },
  },
  product_status_changed: {
    does: 'changes the status of a product to the next unless told',
    object: 'products',
    takes: ['status'],
    bring: (stage, wish) => {
      const product =
        wish.object === undefined
          ? first(
              stage,
              'products',
              ({ id }) => stage.plant.all('assets').some((one) => one.product === id),
              'no product',
            )
          : named(stage, 'products', wish.object);
      const status = statusOf(stage, 'product_statuses', wish.status, product.status);
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
    bring: (stage, wish) => {
      const addOn =
        wish.object === undefined
          ? first(stage, 'add_ons', () => true, 'no add-on')
          : named(stage, 'add_ons', wish.object);
      const linked = stage.plant
        .all('nodes')
        .find(({ id }) => addOn.nodes.includes(id) === !isLinked && isSeen(stage, { type: 'Node', id }));
      const node = wish.to ?? (linked ?? seenOne(stage, 'nodes', undefined)).id;
      stage.changes.setAddOnLink(addOn.id, node, !isLinked);
      stage.changes.setAddOnLink(addOn.id, node, isLinked);
      return { object: addOn.id, to: node };
    },
  };
}

function makeNamed(stage: Stage, kind: 'software' | 'documents', name: string | undefined): number {
  const id = stage.plant.newId();
  stage.changes.put(kind, { id, name: name ?? `${kind} ${id}` });
  return id;
}

function eventOf(stage: Stage, wish: Wish): PlantEvent {
  if (wish.object !== undefined) return named(stage, 'events', wish.object);
  const found = stage.plant.all('events').find(({ id }) => isSeen(stage, { type: 'Event', id }));
  if (found) return found;
  const id = makeEvent(stage, seenOne(stage, 'assets', undefined).id, {});
  stage.grantPermission({ type: 'Event', id }, { types: ['can_read'] });
  return named(stage, 'events', id);
}

function makeEvent(stage: Stage, asset: number, { name, type, status }: Wish): number {
  const count = stage.plant.all('events').length + 1;
  return stage.changes.createEvent({
    name: name ?? `Event ${count}`,
    type: statusOf(stage, 'event_types', type),
    ...(status === undefined ? {} : { status: statusOf(stage, 'event_statuses', status) }),
    assets: [asset],
  });
}

/** The wished value, or a number one higher than the one that is there. */
function specification(before: Record<string, { value: unknown }> | undefined, { key = 'range', value, unit }: Wish) {
  const last = Number(before?.[key]?.value);
  const next = value ?? String((Number.isFinite(last) ? last : 9) + 1);
  return { [key]: { value: next, ...(unit === undefined ? {} : { unit }) } };
}
