import { readListenAddress } from '../base/listen-address.ts';
import { insteadOf, nearestName, noneOf } from '../base/nearest.ts';
import { readDuration, readSize, readSizeOrShare } from '../base/quantity.ts';
import type { Reading } from '../base/reading.ts';
import { PROPERTIES } from '../contract/events/properties.ts';
import { EVENT_TYPES, isEventType } from '../contract/events.ts';
import { addressCorrection } from './problem.ts';
import type { BrokerTopic, Form } from './settings/entry.ts';

/** Maximum length of a setting. A list of all event types requires one sixth of it. */
const MAX_VALUE_LENGTH = 4096;

/** Parses the text of one setting. Failure reasons are appended to the key and text: `POST_INTERVAL "10" has no unit`. */
export function readForm(form: Form, text: string): Reading<unknown> {
  if (text.length > MAX_VALUE_LENGTH)
    return { reason: 'is too long', instead: `use at most ${MAX_VALUE_LENGTH} characters` };
  switch (form.as) {
    case 'text':
      if (form.pattern === undefined || form.pattern.test(text)) return { value: text };
      return { reason: `is not ${form.what}`, instead: `use ${form.example}` };
    case 'address':
      // Like curl, treat a proxy without a scheme as an http proxy.
      return readAddress(
        form.bare && !text.includes('://') ? `http://${text.trim()}` : text,
        form.schemes,
        form.base ?? false,
      );
    case 'path':
      return { value: text };
    case 'values-path':
      return readValuesPath(text);
    case 'choice': {
      const choice = text.trim().toLowerCase();
      if (form.of.includes(choice)) return { value: choice };
      const meant = new Map(Object.entries(form.meant ?? {})).get(choice);
      return { reason: noneOf(choice, form.of), instead: meant ? `use ${meant}` : choiceInstead(choice, form.of) };
    }
    case 'switch':
      if (/^(true|yes|on|1)$/i.test(text.trim())) return { value: true };
      if (/^(false|no|off|0)$/i.test(text.trim())) return { value: false };
      return { reason: 'is neither true nor false', instead: 'use true or false' };
    case 'count':
      return readCount(text, form.min, form.max);
    case 'duration':
      return within(readDuration(text), form.minMs, form.maxMs, formatDuration);
    case 'time':
      return readTime(text, form.minMs, form.maxMs);
    case 'size':
      return within(readSize(text), form.min, form.max, formatSize);
    case 'size-or-share':
      return readSizeOrShare(text);
    case 'listen':
      return readListenAddress(text);
    case 'topic':
      return readBrokerTopic(text);
    case 'hosts':
      return readHosts(text);
    case 'event-types':
      return readEventTypes(text);
    case 'event-properties':
      return readEventProperties(text);
    case 'success-statuses':
      return readSuccess(text);
  }
}

/**
 * Suggests the likely choice. If there is none, lists all choices, because the most similar word may mean the opposite.
 */
function choiceInstead(choice: string, of: readonly string[]): string {
  return nearestName(choice, of)?.likely ? insteadOf(choice, of, '') : `use one of ${of.join(', ')}`;
}

function readCount(text: string, min: number, max: number): Reading<number> {
  if (!/^\d{1,15}$/.test(text.trim())) {
    return { reason: 'is not a whole number', instead: `use a number from ${min} to ${max}` };
  }
  return within({ value: Number(text) }, min, max, String);
}

function readTime(text: string, minMs: number, maxMs: number): Reading<number> {
  const written = text.trim();
  const timeMs = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?Z)?$/.test(written) ? Date.parse(written) : Number.NaN;
  // `Date.parse` carries 31 February over into March.
  const isTime = !Number.isNaN(timeMs) && new Date(timeMs).toISOString().startsWith(written.slice(0, 10));
  if (!isTime) return { reason: 'is not a time', instead: 'use a value such as 1990-01-01T00:00:00Z' };
  return within({ value: timeMs }, minMs, maxMs, (ms) => new Date(ms).toISOString());
}

function within(
  reading: Reading<number>,
  min: number,
  max: number,
  format: (amount: number) => string,
): Reading<number> {
  if ('reason' in reading) return reading;
  if (reading.value < min) return { reason: 'is too small', instead: `use at least ${format(min)}` };
  if (reading.value > max) return { reason: 'is too large', instead: `use at most ${format(max)}` };
  return reading;
}

export function formatDuration(ms: number): string {
  if (ms === 0 || ms % 1000 !== 0) return `${ms}ms`;
  if (ms % 86_400_000 === 0) return ms === 86_400_000 ? '24h' : `${ms / 86_400_000}d`;
  return `${ms / 1000}s`;
}

export function formatSize(bytes: number): string {
  return bytes % 1000 === 0 && bytes > 0 ? `${bytes / 1000}kB` : String(bytes);
}

/**
 * Parses an http(s) address. A base address must not have a query, and its trailing slash is removed, because paths
 * are appended.
 */
export function readAddress(text: string, schemes: readonly string[], base: boolean): Reading<string> {
  const address = text.trim();
  const examples = schemes.map((scheme) => `${scheme}://`).join(' or ');
  const complete = `use a complete address that begins with ${examples}`;
  const url = /^[a-z][a-z0-9+.-]*:\/\//i.test(address) ? URL.parse(address) : null;
  if (url === null) return { reason: 'is not an address', instead: addressCorrection(address, complete) };
  if (!schemes.includes(url.protocol.slice(0, -1))) {
    return { reason: `begins with ${url.protocol}//`, instead: `use an address that begins with ${examples}` };
  }
  if (!/^\[|^[a-z0-9._-]*$/i.test(url.hostname)) {
    return { reason: 'has an invalid host name', instead: 'use letters, digits, dots and dashes' };
  }
  if (url.hostname === '') return { reason: 'has no host', instead: complete };
  if (url.hash !== '') return { reason: 'has a part after #', instead: addressCorrection(address, 'remove that part') };
  if (!base) return { value: address };
  if (address.includes('@')) {
    return {
      reason: 'contains a user name or password',
      instead: 'remove them and set TECHNICAL_USERNAME and TECHNICAL_PASSWORD',
    };
  }
  if (url.search !== '') return { reason: 'has a query', instead: 'remove the query, including the ?' };
  return { value: url.href.replace(/\/+$/, '') };
}

function readValuesPath(text: string): Reading<string> {
  const path = text.trim();
  const example = 'use a path such as /v1/assets/{asset_id}/values';
  if (!path.startsWith('/')) return { reason: 'does not begin with /', instead: example };
  if (/[\s?#]/.test(path)) return { reason: 'contains a space, ? or #', instead: example };
  const places = [...path.matchAll(/\{([^}]*)\}/g)].map((match) => match[1]!);
  const known = ['asset_id', 'instrumentation_id'];
  const unknown = places.find((name) => !known.includes(name));
  if (unknown !== undefined) {
    return {
      reason: `contains the unknown placeholder {${unknown}}`,
      instead: 'use {asset_id} or {instrumentation_id}',
    };
  }
  if (places.length === 0 || /[{}]/.test(path.replaceAll(/\{[^}]*\}/g, ''))) {
    return { reason: 'has neither {asset_id} nor {instrumentation_id}', instead: example };
  }
  return { value: path };
}

function readBrokerTopic(text: string): Reading<BrokerTopic> {
  const [broker = '', topic, ...more] = text.trim().split(/\s+/);
  if (topic !== undefined && more.length === 0) return { value: { broker, topic } };
  return { reason: 'is not a broker and a topic', instead: 'specify both, for example: broker platform/events' };
}

/** Parses comma-separated host names without ports. Case and a trailing dot are ignored. */
function readHosts(text: string): Reading<readonly string[]> {
  const names = text.split(',').map((name) => name.trim().toLowerCase().replace(/\.$/, ''));
  const hosts = names.filter((name) => name !== '');
  const wrong = hosts.find((name) => !/^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)$/.test(name));
  if (wrong !== undefined) {
    const instead = 'use names or addresses without scheme, port or path: gateway.example.com, 192.0.2.7';
    return { reason: `contains ${wrong.slice(0, 60)}, which is not a host`, instead };
  }
  return { value: hosts };
}

/** Parses comma-separated status codes, which must be 2xx. */
function readSuccess(text: string): Reading<readonly number[]> {
  const words = text.split(',').map((word) => word.trim());
  const wrong = words.find((word) => !/^2\d\d$/.test(word));
  if (wrong === undefined) return { value: [...new Set(words.map(Number))] };
  const reason = `contains "${wrong.slice(0, 20)}", which is not a success status`;
  return { reason, instead: 'use 204, or a comma-separated list of statuses from 200 to 299' };
}

/** Parses comma-separated event types; `*` means all. */
function readEventTypes(text: string): Reading<readonly string[]> {
  const names = text.split(',').map((name) => name.trim());
  const known: readonly string[] = EVENT_TYPES;
  const types = new Set<string>();
  for (const name of names) {
    if (name === '') continue;
    if (name === '*') for (const type of known) types.add(type);
    else if (known.includes(name)) types.add(name);
    else return { reason: `contains the unknown event type ${name.slice(0, 60)}`, instead: insteadOf(name, known, '') };
  }
  if (types.size === 0)
    return { reason: 'contains no event type', instead: 'use a value such as threshold_reached,asset_appeared' };
  return { value: [...types] };
}

/**
 * Parses event type filters separated by semicolons (platform 6.3). A filter that contains only `*` disables filtering.
 */
function readEventProperties(text: string): Reading<Readonly<Record<string, readonly string[]>>> {
  const properties: Record<string, readonly string[]> = {};
  for (const part of text.split(';')) {
    if (part.trim() === '') continue;
    const [type = '', list, ...more] = part.split('=').map((word) => word.trim());
    if (list === undefined || more.length > 0) {
      return {
        reason: `contains "${part.trim().slice(0, 60)}", which is not an event type with attributes`,
        instead: PROPERTIES_EXAMPLE,
      };
    }
    const wrong =
      wrongType(type) ??
      (type in properties ? { reason: `contains ${type} twice`, instead: 'remove the duplicate' } : undefined);
    if (wrong) return wrong;
    const names = [...new Set(list.split(',').map((name) => name.trim()))].filter((name) => name !== '');
    if (names.length === 0)
      return { reason: `has no attributes for ${type}`, instead: `use ${type}=* to receive everything` };
    const wrongName = names.length === 1 && names[0] === '*' ? undefined : wrongProperty(type, names);
    if (wrongName) return wrongName;
    properties[type] = names[0] === '*' ? [] : names;
  }
  return { value: properties };
}

const PROPERTIES_EXAMPLE = 'use a value such as asset_updated=status,product; event_created=calibration';

function wrongType(type: string): { reason: string; instead: string } | undefined {
  if (!isEventType(type)) {
    return {
      reason: `contains the unknown event type ${type.slice(0, 60)}`,
      instead: insteadOf(type, Object.keys(PROPERTIES), ''),
    };
  }
  if (PROPERTIES[type] !== undefined) return undefined;
  const instead = `remove it, or use one of ${Object.keys(PROPERTIES).join(', ')}`;
  return { reason: `contains ${type}, which the platform cannot filter`, instead };
}

function wrongProperty(type: string, names: readonly string[]): { reason: string; instead: string } | undefined {
  const known = isEventType(type) ? PROPERTIES[type] : undefined;
  const wrong = Array.isArray(known) ? names.find((name) => !known.includes(name)) : names.find((name) => name === '*');
  if (wrong === undefined) return undefined;
  if (wrong === '*')
    return { reason: `combines * with other attributes for ${type}`, instead: `use ${type}=* to receive everything` };
  const reason = `contains ${wrong.slice(0, 60)}, which is not an attribute of ${type}`;
  return { reason, instead: insteadOf(wrong, known as readonly string[], '') };
}
