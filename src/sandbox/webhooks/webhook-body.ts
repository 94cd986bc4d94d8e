import { EVENT_TYPES } from '../../contract/events.ts';
import { isObject } from '../http/call.ts';
import { refusal } from '../http/refusal.ts';
import type { WebhookRecord } from './webhook-book.ts';

export type WebhookChange = Partial<
  Pick<WebhookRecord, 'url' | 'event_types' | 'properties' | 'disabled' | 'force_sorted_delivery'>
>;

const MEMBERS = ['url', 'event_types', 'properties', 'disabled', 'force_sorted_delivery'];

/** The members of a create or change body (spec 2.4 and 6.3), checked; 400 for what cannot be. */
export function readWebhookBody(body: Record<string, unknown>): WebhookChange {
  const change: WebhookChange = {};
  const names = Object.keys(body);
  if (names.length > 0 && !names.some((name) => MEMBERS.includes(name))) {
    throw refusal(400, `is none of ${MEMBERS.join(', ')}`, names[0]!.slice(0, 60));
  }
  if (body.url !== undefined) change.url = readUrl(body.url);
  if (body.event_types !== undefined) change.event_types = readEventTypes(body.event_types);
  if (body.properties !== undefined && body.properties !== null) change.properties = readProperties(body.properties);
  for (const flag of ['disabled', 'force_sorted_delivery'] as const) {
    const value = body[flag];
    if (value === undefined) continue;
    if (typeof value !== 'boolean') throw refusal(400, 'is neither true nor false', flag);
    change[flag] = value;
  }
  return change;
}

/** Spec 2.4: a public https address. On loopback the sandbox takes http as well: that is where it lives. */
function readUrl(value: unknown): string {
  const url = typeof value === 'string' && URL.canParse(value) ? new URL(value) : undefined;
  if (!url) throw refusal(400, 'is no address', 'url');
  const isLoopback = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(url.hostname);
  if (url.protocol === 'https:' || (url.protocol === 'http:' && isLoopback)) return url.href;
  throw refusal(400, 'must be an https address', 'url');
}

function readEventTypes(value: unknown): string[] {
  if (!Array.isArray(value) || value.length === 0) throw refusal(400, 'is no list of event types', 'event_types');
  for (const type of value) {
    if (!(EVENT_TYPES as readonly unknown[]).includes(type)) {
      throw refusal(400, `${String(type).slice(0, 60)} is no event type`, 'event_types');
    }
  }
  return [...new Set(value as string[])];
}

function readProperties(value: unknown): Record<string, string[]> {
  if (!isObject(value)) throw refusal(400, 'is not an object', 'properties');
  const properties: Record<string, string[]> = {};
  for (const [type, names] of Object.entries(value)) {
    if (!(EVENT_TYPES as readonly string[]).includes(type)) {
      throw refusal(400, `${type.slice(0, 60)} is no event type`, 'properties');
    }
    if (!Array.isArray(names) || names.some((name) => typeof name !== 'string')) {
      throw refusal(400, `${type} is no list of strings`, 'properties');
    }
    properties[type] = names as string[];
  }
  return properties;
}
