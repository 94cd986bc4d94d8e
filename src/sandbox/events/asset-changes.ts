import { isObject } from '../http/call.ts';
import { refusal } from '../http/refusal.ts';
import type { HealthCondition } from '../site/records.ts';
import { updateAsset } from './attribute-changes.ts';
import { type ChangeContext, drop, isSame } from './change-context.ts';

/** Assigns software to an asset; told once, for an assignment that is there already is no new one. */
export function addSoftware(context: ChangeContext, asset: number, software: number): void {
  const record = context.found('assets', asset);
  const { name } = context.found('software', software);
  if (record.software?.includes(software)) return;
  record.software = [...(record.software ?? []), software];
  context.report(`asset ${asset} gets the software ${name}`);
  context.tell('asset_software_added', { type: 'Asset', id: asset }, () => ({
    asset: context.site.reference('assets', asset),
    software: context.site.reference('software', software),
  }));
}

/** Assigns an asset to an instrumentation, with what it then inherits (platform 2.2). */
export function associate(context: ChangeContext, asset: number, instrumentation: number): void {
  context.found('assets', asset);
  const record = context.found('instrumentations', instrumentation);
  if (record.assets.includes(asset)) return;
  context.visibility.during(() => record.assets.push(asset));
  tellAssociation(context, 'created', asset, instrumentation);
}

/** The relation ends, and with it what was inherited (platform 2.2). Told to those who could read the asset before. */
export function dissociate(context: ChangeContext, asset: number, instrumentation: number): void {
  const record = context.found('instrumentations', instrumentation);
  if (!record.assets.includes(asset)) return;
  tellAssociation(context, 'destroyed', asset, instrumentation);
  context.visibility.during(() => drop(record.assets, asset));
}

/** Puts an asset under a node, or takes it away. Told only by what appears or disappears. */
export function setUnderNode(context: ChangeContext, asset: number, node: number, isUnder: boolean): void {
  context.found('assets', asset);
  const record = context.found('nodes', node);
  context.report(`asset ${asset} ${isUnder ? 'is put under' : 'is taken from'} the node ${record.name}`);
  context.visibility.during(() => {
    drop(record.assets, asset);
    if (isUnder) record.assets.push(asset);
  });
}

/** Told where the conditions change (platform 6.3); the status that comes with them is an attribute of the asset as well. */
export function setHealthConditions(
  context: ChangeContext,
  id: number,
  status: number,
  wanted: readonly unknown[],
): void {
  const asset = context.found('assets', id);
  const { tenant, ...shown } = context.found('asset_statuses', status);
  const conditions = wanted.map((one, index) => readCondition(context, one, `conditions[${index}]`));
  const previous = asset.health_conditions ?? [];
  asset.health_conditions = conditions;
  updateAsset(context, id, { status });
  if (isSame(previous, conditions)) return;
  const codes = conditions.map((one) => one.diagnosis_code).join(', ') || 'none';
  context.report(`health conditions of asset ${id} are now ${codes}`);
  context.tell('asset_health_condition_updated', { type: 'Asset', id }, () => ({
    asset: context.site.reference('assets', id),
    asset_status: {
      code: shown.code,
      name: shown.name,
      description: shown.description ?? null,
      id: shown.id,
      tenant: tenant === undefined ? null : context.site.reference('tenants', tenant),
    },
    health_conditions: conditions.map((one) => conditionContent(context, one)),
    previous_health_conditions: previous.map((one) => conditionContent(context, one)),
  }));
}

function tellAssociation(
  context: ChangeContext,
  what: 'created' | 'destroyed',
  asset: number,
  instrumentation: number,
) {
  const tag = context.site.get('instrumentations', instrumentation)?.tag;
  context.report(`asset ${asset} ${what === 'created' ? 'is assigned to' : 'leaves'} ${tag}`);
  context.tell(`asset_instrumentation_association_${what}`, { type: 'Asset', id: asset }, () => ({
    asset: context.site.reference('assets', asset),
    instrumentation: context.site.reference('instrumentations', instrumentation),
  }));
}

function readCondition(context: ChangeContext, wanted: unknown, attribute: string): HealthCondition {
  if (!isObject(wanted)) throw refusal(400, 'is not an object', attribute);
  const { id = context.site.newId(), diagnosis_code, asset_status, channel, module } = wanted;
  if (!Number.isSafeInteger(id)) throw refusal(400, 'is no whole number', `${attribute}.id`);
  if (typeof diagnosis_code !== 'string') throw refusal(400, 'is no text', `${attribute}.diagnosis_code`);
  if (!context.site.get('asset_statuses', asset_status as number)) {
    throw refusal(400, 'is no id of an asset status', `${attribute}.asset_status`);
  }
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

function conditionContent(context: ChangeContext, condition: HealthCondition) {
  return {
    diagnosis_code: condition.diagnosis_code,
    id: condition.id,
    asset_status: context.site.reference('asset_statuses', condition.asset_status),
    channel: condition.channel ?? null,
    module: condition.module ?? null,
    links: { causes: { href: `${context.site.baseUrl}/v1/health_conditions/${condition.id}/causes` } },
  };
}
