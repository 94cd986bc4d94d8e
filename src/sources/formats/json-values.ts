/**
 * Values as JSON objects, and NDJSON: one such object per line. Lines are parsed in groups of limited size, so that
 * parsing requires little memory besides the body itself.
 */
import { nearestName } from '../../base/nearest.ts';
import { STATUS_FLAGS } from '../../buffer/format/value-columns.ts';
import type { ValueMap } from '../../config/tags.ts';
import { quote, type Slot } from '../intake/address-book.ts';
import { type Draft, ON_ARRIVAL } from '../intake/draft.ts';
import { UnreadableValues, withoutStackTraces } from '../intake/problem-list.ts';
import { numberOf, problemOfReading, type RawReading, TEXTS_NEED_MAP } from '../intake/shaping.ts';
import { hasMark, MAX_LINE_BYTES, parseDecimal, parseJson, requireUtf8, unpadded } from '../intake/text-parsers.ts';
import type { TimeUnit } from '../intake/times.ts';

const FLAGS = new Map<unknown, number>(Object.entries(STATUS_FLAGS));
const MEMBERS = ['tag', 'key', 'value', 'timestamp', 'status', 'asset', 'unit', 'group'];
/** Maximum total size of lines that are parsed together. Larger groups require up to 20 % more time for garbage. */
const MAX_GROUP_BYTES = 16 * 1024;
const TOO_LONG = `is longer than ${MAX_LINE_BYTES} bytes`;
const ONE_PER_LINE = 'Send one value per line, such as {"tag":"FT-101","key":"flow","value":12.5}.';
const IS_JSON = 'If the body is one JSON document, send Content-Type: application/json.';

const BEGINS_AS_BODY = /^\s*\{\s*"values"\s*:/;
/** Number of bytes inspected to detect the intended format. */
const HEAD_BYTES = 4_096;
const LINE_FEED = 10;

/**
 * Reads NDJSON: one value per line; empty lines are ignored. Throws `UnreadableValues` with the number of an invalid
 * line, unless the draft is partial. A partial draft accepts the remaining lines.
 */
export function readNdjsonBody(bytes: Buffer, draft: Draft): void {
  requireUtf8(bytes);
  const start = hasMark(bytes) ? 3 : 0;
  withoutStackTraces(() => {
    let number = 1;
    for (let from = start; from < bytes.length; ) {
      const to = endOfGroup(bytes, from);
      const lines = bytes.toString('utf8', from, bytes[to - 1] === LINE_FEED ? to - 1 : to).split('\n');
      from = to;
      const first = number;
      number += lines.length;
      if (addTogether(lines, draft)) continue;
      for (const [at, line] of lines.entries()) {
        const problem = addLine(line, draft);
        if (problem === undefined) continue;
        const text = `line ${first + at} ${problem}`;
        draft.reject('', text);
        if (draft.isPartial) continue;
        const head = bytes.toString('latin1', start, HEAD_BYTES);
        throw new UnreadableValues(text, BEGINS_AS_BODY.test(head) ? IS_JSON : ONE_PER_LINE);
      }
    }
  });
}

/** Returns the end of the lines that begin at `from` and are parsed together: at least one line. */
function endOfGroup(bytes: Buffer, from: number): number {
  if (bytes.length - from <= MAX_GROUP_BYTES) return bytes.length;
  const last = bytes.lastIndexOf(LINE_FEED, from + MAX_GROUP_BYTES - 1);
  const feed = last < from ? bytes.indexOf(LINE_FEED, from) : last;
  return feed < 0 ? bytes.length : feed + 1;
}

/**
 * Adds the values of several lines, which is twice as fast as adding them individually. Returns `false`, without adding
 * any, unless each line is one JSON value.
 */
function addTogether(lines: readonly string[], draft: Draft): boolean {
  if (!lines.every(looksLikeValue)) return false;
  const values = parseJson(`[${lines.join(',')}]`) as unknown[] | undefined;
  if (values?.length !== lines.length || values.some(isBody)) return false;
  for (const value of values) addJsonValue(draft, value);
  return true;
}

/** Whether a line can be one value, so that values that span lines are not accepted. */
function looksLikeValue(line: string): boolean {
  return line.startsWith('{') && (line.endsWith('}') || line.endsWith('}\r')) && line.length * 3 <= MAX_LINE_BYTES;
}

function isBody(value: unknown): boolean {
  return typeof value === 'object' && value !== null && 'values' in value;
}

/** Adds the value of a line. Returns the problem of a line that is not one JSON value. */
function addLine(written: string, draft: Draft): string | undefined {
  const line = unpadded(written);
  if (line === '') return undefined;
  if (BEGINS_AS_BODY.test(line)) return 'is a list of values, not one value';
  if (line.length * 3 > MAX_LINE_BYTES && Buffer.byteLength(line) > MAX_LINE_BYTES) {
    draft.reject('', TOO_LONG);
    return undefined;
  }
  const value = parseJson(line);
  if (value === undefined) return 'is not JSON';
  addJsonValue(draft, value);
  return undefined;
}

/** Validates one value and adds the value or its problem to the draft. */
export function addJsonValue(draft: Draft, item: unknown): void {
  if (typeof item !== 'object' || item === null || Array.isArray(item)) {
    draft.reject('', 'must be an object like {"tag":"FT-101","key":"flow","value":12.5}');
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
  // The loop also detects unknown members; otherwise, a value with a misspelled "timestamp" would get the arrival time.
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
      draft.reject(name.slice(0, 64), unknownMember, name);
      return;
    }
  }
  const slot = slotOf(draft, tag, key, asset, unit, group);
  if (slot === undefined) return;
  const isPlain = typeof value === 'number' && slot.map === undefined;
  const isIntercepted = !isPlain && draft.intercepts(slot);
  const number = isPlain || isIntercepted ? Number(value) : mappedNumber(value, slot.map);
  let timeMs = ON_ARRIVAL;
  if (typeof timestamp === 'string') timeMs = draft.timeOf(timestamp);
  else if (typeof timestamp === 'number' && Number.isInteger(timestamp)) timeMs = timestamp;
  const flag = status === undefined ? 0 : (FLAGS.get(status) ?? -1);
  if (!isIntercepted && !Number.isFinite(number)) draft.reject('value', wrongValue, value, slot.map);
  else if (timestamp !== undefined && Number.isNaN(timeMs)) draft.reject('timestamp', wrongTimestamp, timestamp);
  else if (flag < 0) draft.reject('status', 'must be "good", "uncertain" or "bad"');
  else {
    const msOfUnit = typeof timestamp === 'number' ? 1 : undefined;
    const ownMs = timestamp === undefined ? timeMs : draft.plausibleTime(timeMs, msOfUnit, looksLike);
    if (ownMs === undefined) draft.reject('timestamp', implausible, draft, timeMs, msOfUnit);
    else if (!isIntercepted) draft.add(slot, number, ownMs, flag);
    else
      draft.addIntercepted(slot, isRawReading(value) ? value : { problem: wrongValue(value, undefined) }, ownMs, flag);
  }
}

const looksLike = (unit: TimeUnit) => `the number appears to be in ${unit}, use milliseconds or ISO 8601`;
const implausible = (draft: Draft, timeMs: number, msOfUnit: number | undefined) =>
  draft.problemOfTime(timeMs, msOfUnit, looksLike);

/** Returns the number that the map assigns to a number, text or boolean, or NaN. */
function mappedNumber(value: unknown, map: ValueMap | undefined): number {
  return map !== undefined && isRawReading(value) ? (numberOf(value, map) ?? Number.NaN) : Number.NaN;
}

function isRawReading(value: unknown): value is RawReading {
  return typeof value === 'number' || typeof value === 'string' || typeof value === 'boolean';
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
    draft.reject('tag', tag === undefined ? 'is missing: set tag or asset' : 'must be a string');
  } else if (typeof key !== 'string') {
    draft.reject('key', key === undefined ? 'is missing' : 'must be a string');
  } else if (asset === undefined && unit === undefined && group === undefined) {
    return draft.slotOfTag(tag, key);
  } else {
    const [field] = Object.entries({ asset, unit, group }).find(([, member]) => member !== undefined)!;
    draft.reject(field, 'cannot be combined with tag, because tags.yaml defines asset, unit and group of a tag');
  }
  return undefined;
}

function wrongValue(value: unknown, map: ValueMap | undefined): string {
  if (map !== undefined && isRawReading(value)) return problemOfReading(value, map);
  if (value === undefined) return 'is missing';
  if (typeof value === 'string') {
    return Number.isNaN(parseDecimal(value))
      ? `must be a number; ${TEXTS_NEED_MAP}`
      : 'must be a number, without quotes';
  }
  if (typeof value === 'boolean') return 'must be a number: use 1 or 0';
  if (value === null) return 'must be a number, not null: omit values that do not exist';
  return typeof value === 'number' ? 'exceeds the range of a 64-bit number' : 'must be a number';
}

function wrongTimestamp(timestamp: unknown): string {
  if (typeof timestamp === 'string' && /^\d{12,14}$/.test(timestamp))
    return 'milliseconds must be a number without quotes';
  if (typeof timestamp === 'number' && !Number.isInteger(timestamp)) return 'milliseconds must be a whole number';
  return 'must be an ISO 8601 timestamp such as "2026-11-21T00:00:00.000Z", or Unix time in milliseconds';
}

function unknownMember(name: string): string {
  const nearest = name.length <= 64 ? nearestName(name, MEMBERS) : undefined;
  return `is not a member of a value${nearest?.likely ? `; did you mean ${quote(nearest.name)}?` : ''}`;
}
