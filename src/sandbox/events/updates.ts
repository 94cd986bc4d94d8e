/**
 * Validates and applies updates. Invalid members are rejected before any change, because they would cause an error
 * later in an event.
 */
import { isObject } from '../http/call.ts';
import { refusal } from '../http/refusal.ts';
import type { Kind, Specification } from '../site/records.ts';
import type { SiteModel } from '../site/site-model.ts';

/**
 * Attributes that are reported in events and used in webhook filters (platform 6.3): text, or a reference to an object
 * kind.
 */
export type Attributes = Readonly<Record<string, 'text' | Kind>>;

export const ASSET_ATTRIBUTES: Attributes = {
  serial_number: 'text',
  description: 'text',
  production_date: 'text',
  last_seen_at: 'text',
  product: 'products',
  parent: 'assets',
  tenant: 'tenants',
  status: 'asset_statuses',
};
export const EDGE_DEVICE_ATTRIBUTES: Attributes = {
  serial_number: 'text',
  description: 'text',
  last_seen_at: 'text',
  tenant: 'tenants',
  status: 'edge_device_statuses',
  type: 'text',
  software_version: 'text',
};

export function checkAttributes(site: SiteModel, attributes: Attributes, changes: object): void {
  if (!isObject(changes)) throw refusal(400, 'must be an object', 'changes');
  for (const [name, value] of Object.entries(changes)) {
    const form = Object.hasOwn(attributes, name) ? attributes[name] : undefined;
    if (form === undefined) {
      throw refusal(400, `must be one of ${Object.keys(attributes).join(', ')}`, `changes.${name.slice(0, 60)}`);
    }
    if (value === null || value === undefined) {
      if (name === 'serial_number') throw refusal(400, 'cannot be removed', `changes.${name}`);
    } else if (form !== 'text') site.found(form, value as number);
    else if (typeof value !== 'string') throw refusal(400, 'must be text', `changes.${name}`);
  }
}

/** Applies the changes and returns the attributes that differ, with their new values. Null removes an attribute. */
export function assignAttributes(record: object, changes: object, attributes: Attributes): Record<string, unknown> {
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

/** Returns the specifications that have changed, ignoring `updated_at`. */
export function changedSpecifications(
  before: Readonly<Record<string, Specification>> | undefined,
  wanted: Readonly<Record<string, Specification>>,
  updated_at: string,
): Record<string, Specification> {
  const read = Object.entries(wanted).map(([key, { value, unit = null, source_timestamp = null }]) => {
    return [key, { unit, value, updated_at, source_timestamp }] as const;
  });
  const changed = read.filter(([key, next]) => {
    const old = before?.[key];
    return !old || !(['value', 'unit', 'source_timestamp'] as const).every((name) => isSame(old[name], next[name]));
  });
  return Object.fromEntries(changed);
}

/** Returns whether two record members are equal. */
export function isSame(a: unknown, b: unknown): boolean {
  return JSON.stringify(a ?? null) === JSON.stringify(b ?? null);
}
