import { isObject } from '../http/call.ts';
import { refusal } from '../http/refusal.ts';
import type { Asset, EdgeDevice, Kind } from '../site/records.ts';
import { type ChangeContext, isSame } from './change-context.ts';

type Form = 'text' | Kind;

/** Attributes whose change is told, by whose names webhooks filter (platform 6.3), and what they hold: text or a reference. */
const ASSET_ATTRIBUTES: Readonly<Record<string, Form>> = {
  serial_number: 'text',
  description: 'text',
  production_date: 'text',
  last_seen_at: 'text',
  product: 'products',
  parent: 'assets',
  tenant: 'tenants',
  status: 'asset_statuses',
};
const EDGE_DEVICE_ATTRIBUTES: Readonly<Record<string, Form>> = {
  serial_number: 'text',
  description: 'text',
  last_seen_at: 'text',
  tenant: 'tenants',
  status: 'edge_device_statuses',
  type: 'text',
  software_version: 'text',
};

/** Changes attributes, null takes one away. Only what then differs is told, and what it brings into sight or out of it. */
export function updateAsset(context: ChangeContext, id: number, changes: Partial<Record<keyof Asset, unknown>>): void {
  const asset = context.found('assets', id);
  checkAttributes(context, ASSET_ATTRIBUTES, changes);
  const changed = context.visibility.during(() => assign(asset, changes, ASSET_ATTRIBUTES));
  tellAttributes(context, 'asset_updated', id, ASSET_ATTRIBUTES, changed);
}

/** The same for an edge device. */
export function updateEdgeDevice(
  context: ChangeContext,
  id: number,
  changes: Partial<Record<keyof EdgeDevice, unknown>>,
): void {
  const device = context.found('edge_devices', id);
  checkAttributes(context, EDGE_DEVICE_ATTRIBUTES, changes);
  tellAttributes(
    context,
    'edge_device_updated',
    id,
    EDGE_DEVICE_ATTRIBUTES,
    assign(device, changes, EDGE_DEVICE_ATTRIBUTES),
  );
}

/** Refuses an attribute of the wrong form before anything is changed: it would only fail later, inside somebody's event. */
function checkAttributes(context: ChangeContext, attributes: Readonly<Record<string, Form>>, changes: object): void {
  if (!isObject(changes)) throw refusal(400, 'is not an object', 'changes');
  for (const [name, value] of Object.entries(changes)) {
    const form = Object.hasOwn(attributes, name) ? attributes[name] : undefined;
    if (form === undefined) {
      throw refusal(400, `is none of ${Object.keys(attributes).join(', ')}`, `changes.${name.slice(0, 60)}`);
    }
    if (value === null || value === undefined) {
      if (name === 'serial_number') throw refusal(400, 'cannot be taken away', `changes.${name}`);
      continue;
    }
    if (form !== 'text') context.found(form, value as number);
    else if (typeof value !== 'string') throw refusal(400, 'is no text', `changes.${name}`);
  }
}

/** Puts the changes in; gives the attributes that differ now, with what they are now. */
function assign(record: object, changes: object, attributes: Readonly<Record<string, Form>>): Record<string, unknown> {
  const now = record as Record<string, unknown>;
  const changed: Record<string, unknown> = {};
  for (const name of Object.keys(attributes)) {
    const value = (changes as Record<string, unknown>)[name];
    if (value === undefined || isSame(now[name], value)) continue;
    if (value === null) delete now[name];
    else now[name] = value;
    changed[name] = value;
  }
  return changed;
}

function tellAttributes(
  context: ChangeContext,
  type: 'asset_updated' | 'edge_device_updated',
  id: number,
  attributes: Readonly<Record<string, Form>>,
  changed: Record<string, unknown>,
): void {
  const names = Object.keys(changed);
  if (names.length === 0) return;
  const [member, kind, permitable] =
    type === 'asset_updated'
      ? (['asset', 'assets', 'Asset'] as const)
      : (['edge_device', 'edge_devices', 'EDM::EdgeDevice'] as const);
  context.report(`${names.join(', ')} of ${member.replace('_', ' ')} ${id} changes`);
  context.tell(type, { type: permitable, id }, (wanted) => {
    const shown = names.filter((name) => wanted === undefined || wanted.includes(name));
    if (shown.length === 0) return undefined;
    const members = shown.map((name) => {
      const form = attributes[name]!;
      const value = changed[name];
      return [name, form === 'text' || value === null ? value : context.site.reference(form, value as number)];
    });
    return { [member]: { ...context.site.reference(kind, id), ...Object.fromEntries(members) } };
  });
}
