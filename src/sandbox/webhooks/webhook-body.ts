import { BlockList, isIP } from 'node:net';
import { EVENT_TYPES, type EventType, PROPERTIES } from '../../contract/events.ts';
import { isObject } from '../http/call.ts';
import { refusal } from '../http/refusal.ts';
import type { Strictness } from '../strictness.ts';
import type { WebhookRecord } from './webhook-registry.ts';

export type WebhookChange = Partial<
  Pick<WebhookRecord, 'url' | 'event_types' | 'properties' | 'disabled' | 'force_sorted_delivery'>
>;

const MEMBERS = ['url', 'event_types', 'properties', 'disabled', 'force_sorted_delivery'];

export interface WebhookRules {
  strict: Strictness;
  /** Whether the site has an event type with this code. */
  hasEventTypeCode(code: string): boolean;
}

/**
 * Returns the members of a create or change body (platform 2.4 and 6.3). Throws a refusal with 400 for invalid members. `webhook` is the
 * one to change.
 */
export function readWebhookBody(
  body: Record<string, unknown>,
  rules: WebhookRules,
  webhook?: WebhookRecord,
): WebhookChange {
  const { strict } = rules;
  const change: WebhookChange = {};
  const names = Object.keys(body);
  if (names.length > 0 && !names.some((name) => MEMBERS.includes(name))) {
    throw refusal(400, `is none of ${MEMBERS.join(', ')}`, names[0]!.slice(0, 60));
  }
  const unknown = names.find((name) => !MEMBERS.includes(name));
  if (unknown !== undefined && strict.has('webhook-members')) {
    throw refusal(400, `is none of ${MEMBERS.join(', ')}`, unknown.slice(0, 60));
  }
  if (body.url !== undefined) change.url = readUrl(body.url, strict);
  if (body.event_types !== undefined) change.event_types = readEventTypes(body.event_types);
  if (body.properties !== undefined && body.properties !== null) change.properties = readProperties(body.properties);
  if (change.properties && strict.has('properties')) {
    checkProperties(change.properties, change.event_types ?? webhook?.event_types ?? [], rules);
  }
  for (const flag of ['disabled', 'force_sorted_delivery'] as const) {
    const value = body[flag];
    if (value === undefined) continue;
    if (typeof value !== 'boolean') throw refusal(400, 'is neither true nor false', flag);
    change[flag] = value;
  }
  return change;
}

/** Platform 2.4: a public https address. On loopback the sandbox takes http as well: that is where it lives. */
function readUrl(value: unknown, strict: Strictness): string {
  const url = typeof value === 'string' && URL.canParse(value) ? new URL(value) : undefined;
  if (!url) throw refusal(400, 'is no address', 'url');
  if (strict.has('webhook-address')) {
    if (url.protocol === 'https:' && isPublicHost(url.hostname)) return url.href;
    throw refusal(400, 'must be a public https address', 'url');
  }
  const isLoopback = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(url.hostname);
  if (url.protocol === 'https:' || (url.protocol === 'http:' && isLoopback)) return url.href;
  throw refusal(400, 'must be an https address', 'url');
}

/** Addresses that only a private network, this machine or a link reaches (RFC 1918, 3927, 4193, 4291, 6598, 6762, 8375). */
const NOT_PUBLIC = new BlockList();
for (const [network, bits] of [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.168.0.0', 16],
] as const) {
  NOT_PUBLIC.addSubnet(network, bits, 'ipv4');
}
for (const [network, bits] of [
  ['::', 127],
  ['fc00::', 7],
  ['fe80::', 10],
] as const) {
  NOT_PUBLIC.addSubnet(network, bits, 'ipv6');
}

function isPublicHost(hostname: string): boolean {
  const address = hostname.replace(/^\[|\]$/g, '');
  const family = isIP(address);
  if (family !== 0) return !NOT_PUBLIC.check(address, family === 4 ? 'ipv4' : 'ipv6');
  const name = hostname.replace(/\.$/, '');
  return name.includes('.') && !/(^|\.)(localhost|local|internal|home\.arpa)$/i.test(name);
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

/** Platform 6.3: a list for an event type that has no filter, or a name that does not exist, gives a webhook that is never called. */
function checkProperties(
  properties: Readonly<Record<string, readonly string[]>>,
  eventTypes: readonly string[],
  rules: WebhookRules,
): void {
  for (const [type, names] of Object.entries(properties)) {
    const known = PROPERTIES[type as EventType];
    if (known === undefined) throw refusal(400, `${type} has no filter`, 'properties');
    if (!eventTypes.includes(type)) throw refusal(400, `${type} is not in event_types`, 'properties');
    const unknown = names.find((name) => {
      if (known === 'value keys') return !/^[a-z0-9._-]{1,128}$/.test(name);
      if (known === 'specification keys') return name === '';
      if (known === 'event type codes') return !rules.hasEventTypeCode(name);
      return !known.includes(name);
    });
    if (unknown === undefined) continue;
    const expected = typeof known === 'string' ? known : known.join(', ');
    throw refusal(400, `${type}: ${JSON.stringify(unknown.slice(0, 60))} must be one of: ${expected}`, 'properties');
  }
}
