import { STATUS_FLAGS } from '../buffer/value-columns.ts';
import { nearestName } from '../config/nearest.ts';
import { quote, type Slot } from './address-book.ts';
import { textOf } from './body-text.ts';
import { type Draft, isTimeTaken, ON_ARRIVAL } from './draft.ts';
import { readPlainBody, readPlainLines } from './plain-json.ts';
import { UnreadableValues } from './problem-list.ts';

const MEMBERS = ['tag', 'key', 'value', 'timestamp', 'status', 'asset', 'unit', 'group'];
const SHAPE = 'Send {"values":[{"tag":"FT-101","key":"flow","value":12.5}]}.';
const ONE_A_LINE = 'Send one value a line, as {"tag":"FT-101","key":"flow","value":12.5}.';
const IS_LINES = 'It looks like one value a line: send it with Content-Type: application/x-ndjson.';
const IS_ONE_BODY = 'It looks like one body of JSON: send it with Content-Type: application/json.';

/** `{"values":[…]}`, the body of `POST /v1/values`. Throws `UnreadableValues`. */
export function readJsonBody(bytes: Buffer, draft: Draft): void {
  if (readPlainBody(bytes, draft)) return;
  draft.restart();
  const text = textOf(bytes);
  const body = parse(text, 'the body', () => (isLines(text) ? IS_LINES : SHAPE));
  const values = (body as { values?: unknown } | null)?.values;
  if (!Array.isArray(values)) throw new UnreadableValues('the body has no array "values"', SHAPE);
  for (const name in body as object) {
    if (name !== 'values') throw new UnreadableValues(`the body has an unknown member ${quote(name)}`, SHAPE);
  }
  for (const item of values) addJsonValue(draft, item);
}

/** NDJSON: one value a line, empty lines aside. Throws `UnreadableValues` with the line's number. */
export function readNdjsonBody(bytes: Buffer, draft: Draft): void {
  if (readPlainLines(bytes, draft)) return;
  draft.restart();
  const text = textOf(bytes);
  let line = 0;
  for (let start = 0; start < text.length; ) {
    const feed = text.indexOf('\n', start);
    const end = feed < 0 ? text.length : feed;
    line++;
    const content = text.slice(start, end);
    start = end + 1;
    if (content.trim() === '') continue;
    const value = parse(content, `line ${line}`, () => (isOneBody(text) ? IS_ONE_BODY : ONE_A_LINE));
    if (hasValues(value)) throw new UnreadableValues(`line ${line} is no value but a list of them`, IS_ONE_BODY);
    addJsonValue(draft, value);
  }
}

function parse(text: string, where: string, hint: () => string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // V8's message quotes the text around the fault: it stays out of answers and logs.
    throw new UnreadableValues(`${where} is not JSON`, hint());
  }
}

function isLines(text: string): boolean {
  const feed = text.indexOf('\n');
  const first = feed < 0 ? undefined : parsed(text.slice(0, feed));
  return typeof first === 'object' && first !== null && !Array.isArray(first);
}

function isOneBody(text: string): boolean {
  return hasValues(parsed(text));
}

function hasValues(value: unknown): boolean {
  return Array.isArray((value as { values?: unknown } | null | undefined)?.values);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Checks one value and adds it to the draft, or what is wrong with it. */
export function addJsonValue(draft: Draft, item: unknown): void {
  if (typeof item !== 'object' || item === null || Array.isArray(item)) {
    draft.refuse('', 'must be an object like {"tag":"FT-101","key":"flow","value":12.5}');
    return;
  }
  let tag: unknown;
  let key: unknown;
  let value: unknown;
  let timestamp: unknown;
  let status: unknown;
  let asset: unknown;
  let unit: unknown;
  let group: unknown;
  // One walk over the members finds the unknown ones too: a misspelled "timestamp" must not become the time of arrival.
  for (const name in item) {
    const member = (item as Record<string, unknown>)[name];
    if (name === 'tag') tag = member;
    else if (name === 'key') key = member;
    else if (name === 'value') value = member;
    else if (name === 'timestamp') timestamp = member;
    else if (name === 'status') status = member;
    else if (name === 'asset') asset = member;
    else if (name === 'unit') unit = member;
    else if (name === 'group') group = member;
    else {
      draft.refuse(name.slice(0, 64), unknownMember(name));
      return;
    }
  }
  let timeMs = ON_ARRIVAL;
  if (timestamp !== undefined) timeMs = readTimestamp(draft, timestamp);
  const flag = status === undefined ? 0 : flagOf(status);
  if (typeof value !== 'number' || !Number.isFinite(value)) {
    draft.refuse('value', wrongValue(value));
  } else if (timestamp !== undefined && Number.isNaN(timeMs)) {
    draft.refuse('timestamp', wrongTimestamp(timestamp));
  } else if (flag < 0) {
    draft.refuse('status', 'must be "good", "uncertain" or "bad"');
  } else {
    const slot = slotOf(draft, tag, key, asset, unit, group);
    if (slot !== undefined) draft.add(slot, value, timeMs, flag);
  }
}

function slotOf(
  draft: Draft,
  tag: unknown,
  key: unknown,
  asset: unknown,
  unit: unknown,
  group: unknown,
): Slot | undefined {
  if (tag === undefined && asset !== undefined) return draft.slotOfAsset({ asset, unit, group, key });
  if (typeof tag !== 'string') {
    draft.refuse('tag', tag === undefined ? 'is missing: name a tag, or an asset by its number' : 'must be a string');
  } else if (typeof key !== 'string') {
    draft.refuse('key', key === undefined ? 'is missing' : 'must be a string');
  } else if (asset !== undefined || unit !== undefined || group !== undefined) {
    const field = asset !== undefined ? 'asset' : unit !== undefined ? 'unit' : 'group';
    draft.refuse(field, 'stands beside "tag", whose asset, unit and group come from tags.yaml: write one or the other');
  } else {
    return draft.slotOfTag(tag, key);
  }
  return undefined;
}

/** NaN where it cannot be taken. */
function readTimestamp(draft: Draft, timestamp: unknown): number {
  if (typeof timestamp === 'string') return draft.timeOf(timestamp);
  return typeof timestamp === 'number' && isTimeTaken(timestamp) ? timestamp : Number.NaN;
}

function flagOf(status: unknown): number {
  if (status === 'good') return STATUS_FLAGS.good;
  if (status === 'uncertain') return STATUS_FLAGS.uncertain;
  return status === 'bad' ? STATUS_FLAGS.bad : -1;
}

function wrongValue(value: unknown): string {
  if (value === undefined) return 'is missing';
  if (typeof value === 'string') return 'must be a number, without quotes';
  if (typeof value === 'boolean') return 'must be a number: write 1 or 0';
  if (value === null) return 'must be a number, not null: leave the value out where there is none';
  return typeof value === 'number' ? 'is larger than a 64-bit number' : 'must be a number';
}

function wrongTimestamp(timestamp: unknown): string {
  if (typeof timestamp === 'string' && /^\d{12,14}$/.test(timestamp)) return 'milliseconds are written without quotes';
  if (typeof timestamp === 'number' && !Number.isInteger(timestamp)) return 'milliseconds must be a whole number';
  return 'must be ISO 8601 like "2026-11-21T00:00:00.000Z", or milliseconds since 1970, from 1970 to 9999';
}

function unknownMember(name: string): string {
  const nearest = name.length <= 64 ? nearestName(name, MEMBERS) : undefined;
  return `is not a member of a value${nearest?.likely ? `: is ${quote(nearest.name)} meant?` : ''}`;
}
