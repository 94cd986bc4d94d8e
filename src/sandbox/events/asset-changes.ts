import { isObject } from '../http/call.ts';
import { refusal } from '../http/refusal.ts';
import type { HealthCondition } from '../plant/records.ts';
import { updateAsset } from './attribute-changes.ts';
import { type ChangeRoom, drop, isSame } from './change-room.ts';

/** Assigns software to an asset; told once, for an assignment that is there already is no new one. */
export function addSoftware(room: ChangeRoom, asset: number, software: number): void {
  const record = room.found('assets', asset);
  const { name } = room.found('software', software);
  if (record.software?.includes(software)) return;
  record.software = [...(record.software ?? []), software];
  room.told(`asset ${asset} gets the software ${name}`);
  room.tell('asset_software_added', { type: 'Asset', id: asset }, () => ({
    asset: room.plant.reference('assets', asset),
    software: room.plant.reference('software', software),
  }));
}

/** Assigns an asset to an instrumentation, with what it then inherits (spec 2.2). */
export function associate(room: ChangeRoom, asset: number, instrumentation: number): void {
  room.found('assets', asset);
  const record = room.found('instrumentations', instrumentation);
  if (record.assets.includes(asset)) return;
  room.visibility.during(() => record.assets.push(asset));
  tellAssociation(room, 'created', asset, instrumentation);
}

/** The relation ends, and with it what was inherited (spec 2.2). Told to those who could read the asset before. */
export function dissociate(room: ChangeRoom, asset: number, instrumentation: number): void {
  const record = room.found('instrumentations', instrumentation);
  if (!record.assets.includes(asset)) return;
  tellAssociation(room, 'destroyed', asset, instrumentation);
  room.visibility.during(() => drop(record.assets, asset));
}

/** Puts an asset under a node, or takes it away. Told only by what appears or disappears. */
export function setUnderNode(room: ChangeRoom, asset: number, node: number, isUnder: boolean): void {
  room.found('assets', asset);
  const record = room.found('nodes', node);
  room.told(`asset ${asset} ${isUnder ? 'is put under' : 'is taken from'} the node ${record.name}`);
  room.visibility.during(() => {
    drop(record.assets, asset);
    if (isUnder) record.assets.push(asset);
  });
}

/** Told where the conditions change (spec 6.3); the status that comes with them is an attribute of the asset as well. */
export function setHealthConditions(room: ChangeRoom, id: number, status: number, wanted: readonly unknown[]): void {
  const asset = room.found('assets', id);
  const { tenant, ...shown } = room.found('asset_statuses', status);
  const conditions = wanted.map((one, index) => readCondition(room, one, `conditions[${index}]`));
  const previous = asset.health_conditions ?? [];
  asset.health_conditions = conditions;
  updateAsset(room, id, { status });
  if (isSame(previous, conditions)) return;
  const codes = conditions.map((one) => one.diagnosis_code).join(', ') || 'none';
  room.told(`health conditions of asset ${id} are now ${codes}`);
  room.tell('asset_health_condition_updated', { type: 'Asset', id }, () => ({
    asset: room.plant.reference('assets', id),
    asset_status: {
      code: shown.code,
      name: shown.name,
      description: shown.description ?? null,
      id: shown.id,
      tenant: tenant === undefined ? null : room.plant.reference('tenants', tenant),
    },
    health_conditions: conditions.map((one) => conditionContent(room, one)),
    previous_health_conditions: previous.map((one) => conditionContent(room, one)),
  }));
}

function tellAssociation(room: ChangeRoom, what: 'created' | 'destroyed', asset: number, instrumentation: number) {
  const tag = room.plant.get('instrumentations', instrumentation)?.tag;
  room.told(`asset ${asset} ${what === 'created' ? 'is assigned to' : 'leaves'} ${tag}`);
  room.tell(`asset_instrumentation_association_${what}`, { type: 'Asset', id: asset }, () => ({
    asset: room.plant.reference('assets', asset),
    instrumentation: room.plant.reference('instrumentations', instrumentation),
  }));
}

function readCondition(room: ChangeRoom, wanted: unknown, attribute: string): HealthCondition {
  if (!isObject(wanted)) throw refusal(400, 'is not an object', attribute);
  const { id = room.plant.newId(), diagnosis_code, asset_status, channel, module } = wanted;
  if (!Number.isSafeInteger(id)) throw refusal(400, 'is no whole number', `${attribute}.id`);
  if (typeof diagnosis_code !== 'string') throw refusal(400, 'is no text', `${attribute}.diagnosis_code`);
  room.found('asset_statuses', asset_status as number);
  for (const [name, text] of Object.entries({ channel, module })) {
    if (text !== undefined && text !== null && typeof text !== 'string') {
      throw refusal(400, 'is no text', `${attribute}.${name}`);
    }
  }
  return {
    id: id as number,
    diagnosis_code,
    asset_status: asset_status as number,
    channel: (channel as string | undefined) ?? null,
    module: (module as string | undefined) ?? null,
  };
}

function conditionContent(room: ChangeRoom, condition: HealthCondition) {
  return {
    diagnosis_code: condition.diagnosis_code,
    id: condition.id,
    asset_status: room.plant.reference('asset_statuses', condition.asset_status),
    channel: condition.channel ?? null,
    module: condition.module ?? null,
    links: { causes: { href: `${room.plant.baseUrl}/v1/health_conditions/${condition.id}/causes` } },
  };
}
