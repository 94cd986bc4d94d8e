import { isObject } from '../http/call.ts';
import { refusal } from '../http/refusal.ts';
import type { Specification } from '../site/records.ts';
import { type ChangeContext, isSame } from './change-context.ts';

/** What makes a specification another one; `updated_at` alone does not. */
const SHOWN_MEMBERS = ['value', 'unit', 'source_timestamp'] as const;

/** One event a request and webhook, with the keys that changed and no others (platform 6.3); webhooks filter by key. */
export function setSpecifications(
  context: ChangeContext,
  kind: 'assets' | 'events',
  id: number,
  wanted: Readonly<Record<string, unknown>>,
): void {
  const record = context.found(kind, id);
  const now = context.now();
  const changed: Record<string, Specification> = {};
  for (const [key, one] of Object.entries(wanted)) {
    const next = readSpecification(one, key, now);
    const before = record.specifications?.[key];
    const stays = before && SHOWN_MEMBERS.every((member) => isSame(before[member], next[member]));
    if (!stays) changed[key] = next;
  }
  const keys = Object.keys(changed);
  if (keys.length === 0) return;
  record.specifications = { ...record.specifications, ...changed };
  const member = kind === 'assets' ? 'asset' : 'event';
  context.report(`specifications of ${member} ${id} change: ${keys.join(', ').slice(0, 80)}`);
  context.announcer.announce({
    type: `${member}_specifications_updated`,
    audience: (user) => context.mayRead(user, { type: kind === 'assets' ? 'Asset' : 'Event', id }),
    content: (names) => {
      const shown = keys.filter((key) => names === undefined || names.includes(key));
      if (shown.length === 0) return undefined;
      const specifications = Object.fromEntries(shown.map((key) => [key, changed[key]]));
      return { [member]: { ...context.site.reference(kind, id), specifications } };
    },
  });
}

function readSpecification(wanted: unknown, key: string, now: string): Specification {
  const attribute = `specifications.${key.slice(0, 60)}`;
  if (!isObject(wanted) || !('value' in wanted)) throw refusal(400, 'has no value', attribute);
  const { value, unit, source_timestamp } = wanted;
  if (typeof value === 'object' && value !== null) throw refusal(400, 'is no plain value', `${attribute}.value`);
  for (const [name, text] of Object.entries({ unit, source_timestamp })) {
    if (text !== undefined && text !== null && typeof text !== 'string') {
      throw refusal(400, 'is no text', `${attribute}.${name}`);
    }
  }
  return {
    unit: (unit as string | undefined) ?? null,
    value: value as Specification['value'],
    updated_at: now,
    source_timestamp: (source_timestamp as string | undefined) ?? null,
  };
}
