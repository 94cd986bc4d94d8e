import { BlockList, isIP } from 'node:net';
import { EVENT_TYPES, type EventType, PROPERTIES } from '../../contract/events.ts';
import { isObject } from '../http/call.ts';
import { refusal } from '../http/refusal.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { Stage } from '../stage.ts';
import type { Strictness } from '../strictness.ts';
import type { WebhookChange, WebhookRecord } from './webhook-registry.ts';

const MEMBERS = ['url', 'event_types', 'properties', 'disabled', 'force_sorted_delivery'];

/**
 * Parses the body of a create or change request (platform 2.4 and 6.3). Throws a 400 for invalid members. `webhook`:
 * the webhook to change.
 */
export function readWebhookBody(
  body: Record<string, unknown>,
  { site, strict }: Stage,
  webhook?: WebhookRecord,
): WebhookChange {
  const change: WebhookChange = {};
  const names = Object.keys(body);
  if (names.length > 0 && !names.some((name) => MEMBERS.includes(name))) {
    throw refusal(400, `must be one of ${MEMBERS.join(', ')}`, names[0]!.slice(0, 60));
  }
  const unknown = names.find((name) => !MEMBERS.includes(name));
  if (unknown !== undefined && strict.has('webhook-members')) {
    throw refusal(400, `must be one of ${MEMBERS.join(', ')}`, unknown.slice(0, 60));
  }
  if (body.url !== undefined) change.url = readUrl(body.url, strict);
  if (body.event_types !== undefined) change.event_types = readEventTypes(body.event_types);
  if (body.properties !== undefined && body.properties !== null) change.properties = readProperties(body.properties);
  if (change.properties && strict.has('properties')) {
    checkProperties(change.properties, change.event_types ?? webhook?.event_types ?? [], site);
  }
  for (const flag of ['disabled', 'force_sorted_delivery'] as const) {
    const value = body[flag];
    if (value === undefined) continue;
    if (typeof value !== 'boolean') throw refusal(400, 'must be true or false', flag);
    change[flag] = value;
  }
  return change;
}

/** The URL must be a public https URL (platform 2.4). The sandbox also accepts http on loopback. */
function readUrl(value: unknown, strict: Strictness): string {
  const url = typeof value === 'string' && URL.canParse(value) ? new URL(value) : undefined;
  if (!url) throw refusal(400, 'must be an address', 'url');
  if (strict.has('webhook-address')) {
    if (url.protocol === 'https:' && isPublicHost(url.hostname)) return url.href;
    throw refusal(400, 'must be a public https address', 'url');
  }
  const isLoopback = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(url.hostname);
  if (url.protocol === 'https:' || (url.protocol === 'http:' && isLoopback)) return url.href;
  throw refusal(400, 'must be an https address', 'url');
}

/**
 * Addresses that are reachable only within a private network, on this machine or on the local link (RFC 1918, 3927,
 * 4193, 4291, 6598, 6762, 8375).
 */
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
  if (!Array.isArray(value) || value.length === 0) throw refusal(400, 'must be a list of event types', 'event_types');
  for (const type of value) {
    if (!(EVENT_TYPES as readonly unknown[]).includes(type)) {
      throw refusal(400, `${String(type).slice(0, 60)} is not an event type`, 'event_types');
    }
  }
  return [...new Set(value as string[])];
}

function readProperties(value: unknown): Record<string, string[]> {
  if (!isObject(value)) throw refusal(400, 'must be an object', 'properties');
  const properties: Record<string, string[]> = {};
  for (const [type, names] of Object.entries(value)) {
    if (!(EVENT_TYPES as readonly string[]).includes(type)) {
      throw refusal(400, `${type.slice(0, 60)} is not an event type`, 'properties');
    }
    if (!Array.isArray(names) || names.some((name) => typeof name !== 'string')) {
      throw refusal(400, `${type} must be a list of strings`, 'properties');
    }
    properties[type] = names as string[];
  }
  return properties;
}

/** Platform 6.3: a filter with an unknown name, or for an event type that has no filter, does not match any event. */
function checkProperties(
  properties: Readonly<Record<string, readonly string[]>>,
  eventTypes: readonly string[],
  site: SiteModel,
): void {
  for (const [type, names] of Object.entries(properties)) {
    const known = PROPERTIES[type as EventType];
    if (known === undefined) throw refusal(400, `${type} has no filter`, 'properties');
    if (!eventTypes.includes(type)) throw refusal(400, `${type} is not in event_types`, 'properties');
    const unknown = names.find((name) => {
      if (known === 'value keys') return !/^[a-z0-9._-]{1,128}$/.test(name);
      if (known === 'specification keys') return name === '';
      if (known === 'event type codes') return !site.all('event_types').some(({ code }) => code === name);
      return !known.includes(name);
    });
    if (unknown === undefined) continue;
    const expected = typeof known === 'string' ? known : known.join(', ');
    throw refusal(400, `${type}: ${JSON.stringify(unknown.slice(0, 60))} must be one of: ${expected}`, 'properties');
  }
}
