/**
 * Parses JSON and NDJSON bodies. Values are parsed in groups of limited size, so that parsing requires little memory
 * besides the body itself. Otherwise, 8 MiB of `[` or `{}` would become hundreds of MiB of objects.
 */
import { nearestName } from '../../base/nearest.ts';
import { STATUS_FLAGS } from '../../buffer/format/value-columns.ts';
import { quote, type Slot } from '../intake/address-book.ts';
import { type Draft, isSeconds, ON_ARRIVAL } from '../intake/draft.ts';
import { UnreadableValues, withoutStackTraces } from '../intake/problem-list.ts';
import { numberOf, problemOfReading, type RawReading, TEXTS_NEED_MAP } from '../intake/shaping.ts';
import { parseDecimal } from '../intake/text-parsers.ts';
import { hasMark, requireUtf8 } from './body-text.ts';

const MEMBERS = ['tag', 'key', 'value', 'timestamp', 'status', 'asset', 'unit', 'group'];
const MAX_VALUE_BYTES = 64 * 1024;
/** Maximum total size of values that are parsed together, which results in at most about 3 MB of objects. */
const MAX_PARSED_BYTES = 128 * 1024;
const TOO_LONG = `is longer than ${MAX_VALUE_BYTES} bytes`;
const SHAPE = 'Send {"values":[{"tag":"FT-101","key":"flow","value":12.5}]}.';
const ONE_PER_LINE = 'Send one value per line, such as {"tag":"FT-101","key":"flow","value":12.5}.';
const IS_NDJSON = 'If the body has one value per line, send Content-Type: application/x-ndjson.';
const IS_JSON = 'If the body is one JSON document, send Content-Type: application/json.';
const LIST_OF_VALUES = 'is a list of values, not one value';

const BEGINS_AS_BODY = /^\s*\{\s*"values"\s*:/;
const BEFORE_LIST = /^[ \t\r\n]*\{[ \t\r\n]*"values"[ \t\r\n]*:[ \t\r\n]*$/;
const AFTER_LIST = /^[ \t\r\n]*\}[ \t\r\n]*$/;
/** Number of bytes inspected to detect the intended body format. */
const HEAD_BYTES = 4_096;

const TAB = 9;
const LINE_FEED = 10;
const CARRIAGE_RETURN = 13;
const SPACE = 32;
const QUOTE = 34;
const COMMA = 44;
const OPEN_LIST = 91;
const BACKSLASH = 92;
const CLOSE_LIST = 93;
const OPEN_OBJECT = 123;
const CLOSE_OBJECT = 125;

/** Reads `{"values":[…]}`, the body of `POST /v1/values`. Throws `UnreadableValues`. */
export function readJsonBody(bytes: Buffer, draft: Draft): void {
  requireUtf8(bytes);
  const start = hasMark(bytes) ? 3 : 0;
  const list = bytes.indexOf(OPEN_LIST);
  if (list < 0 || !BEFORE_LIST.test(bytes.toString('latin1', start, list))) throw wrongBody(bytes);
  const end = bytes.length > MAX_PARSED_BYTES ? readElements(bytes, list + 1, draft) : readList(bytes, list, draft);
  if (end === undefined || !AFTER_LIST.test(bytes.toString('latin1', end))) throw wrongBody(bytes);
}

/** Adds the elements of a short JSON array. Returns the same result as `readElements`. */
function readList(bytes: Buffer, from: number, draft: Draft): number | undefined {
  const end = bytes.lastIndexOf(CLOSE_LIST) + 1;
  const values = parseJson(bytes.toString('utf8', from, end));
  if (!Array.isArray(values)) return undefined;
  for (const value of values) addJsonValue(draft, value);
  return end;
}

/**
 * Adds the elements of a JSON array. Element boundaries are found by brackets and quotes only; `JSON.parse` validates
 * the elements. Returns the index after the closing bracket, or `undefined` if the array is invalid.
 */
function readElements(bytes: Buffer, from: number, draft: Draft): number | undefined {
  let groupFrom = from;
  let elementFrom = from;
  let hasComma = false;
  let depth = 0;
  const addGroup = (to: number): boolean => {
    const values = parseJson(`[${bytes.toString('utf8', groupFrom, to)}]`) as unknown[] | undefined;
    if (values === undefined || (values.length === 0 && hasComma)) return false;
    for (const value of values) addJsonValue(draft, value);
    return true;
  };
  /** Handles the end of an element. Returns whether the array is still valid. */
  const endElement = (to: number, isLast: boolean): boolean => {
    const isTooLong = to - elementFrom > MAX_VALUE_BYTES;
    let isValid = true;
    if (isTooLong) {
      if (elementFrom > groupFrom) isValid = addGroup(elementFrom - 1);
      draft.reject('', TOO_LONG);
    } else if (isLast || to - groupFrom > MAX_PARSED_BYTES) isValid = addGroup(to);
    else {
      elementFrom = to + 1;
      return true;
    }
    groupFrom = elementFrom = to + 1;
    return isValid;
  };
  for (let at = from; at < bytes.length; at++) {
    const code = bytes[at];
    if (code === QUOTE) at = endOfString(bytes, at);
    else if (code === OPEN_LIST || code === OPEN_OBJECT) depth++;
    else if (code === COMMA && depth === 0) {
      hasComma = true;
      if (!endElement(at, false)) return undefined;
    } else if (code === CLOSE_LIST || code === CLOSE_OBJECT) {
      if (depth-- > 0) continue;
      return code === CLOSE_LIST && endElement(at, true) ? at + 1 : undefined;
    }
  }
  return undefined;
}

/** Returns the index of the closing quote, or the body length if there is no closing quote. */
function endOfString(bytes: Buffer, from: number): number {
  for (let at = from + 1; at < bytes.length; at++) {
    const code = bytes[at];
    if (code === BACKSLASH) at++;
    else if (code === QUOTE) return at;
  }
  return bytes.length;
}

/** Returns the error for a body that is not `{"values":[…]}`. Long bodies are not parsed. */
function wrongBody(bytes: Buffer): UnreadableValues {
  const wrong = (message: string) => new UnreadableValues(message, isNdjson(bytes) ? IS_NDJSON : SHAPE);
  if (bytes.length > MAX_PARSED_BYTES) return wrong('the body is not JSON with one array "values"');
  // The parser's message quotes the invalid text, which must not appear in responses and logs.
  const body = parseJson(bytes.toString('utf8', hasMark(bytes) ? 3 : 0));
  if (body === undefined) return wrong('the body is not JSON');
  const isObject = typeof body === 'object' && body !== null && !Array.isArray(body);
  const other = isObject ? Object.keys(body).find((name) => name !== 'values') : undefined;
  if (other !== undefined) return wrong(`the body has an unknown member ${quote(other)}`);
  return wrong('the body must contain one array "values"');
}

/** Returns whether the first line is an object. */
function isNdjson(bytes: Buffer): boolean {
  const feed = bytes.subarray(0, HEAD_BYTES).indexOf(LINE_FEED);
  const first = feed < 0 ? undefined : parseJson(bytes.toString('utf8', hasMark(bytes) ? 3 : 0, feed));
  return typeof first === 'object' && first !== null && !Array.isArray(first);
}

/**
 * Reads NDJSON: one value per line, without empty lines. Throws `UnreadableValues` with the number of an invalid line,
 * unless the draft is partial. A partial draft accepts the remaining lines.
 */
export function readNdjsonBody(bytes: Buffer, draft: Draft): void {
  requireUtf8(bytes);
  withoutStackTraces(() => {
    let line = 1;
    for (let from = hasMark(bytes) ? 3 : 0; from < bytes.length; ) {
      const to = endOfLines(bytes, from);
      line += readLinesTogether(bytes, from, to, draft) || readLinesSingly(bytes, from, to, line, draft);
      from = to;
    }
  });
}

/** Returns the end of the lines that begin at `from` and are read together: at least one line. */
function endOfLines(bytes: Buffer, from: number): number {
  if (bytes.length - from <= MAX_PARSED_BYTES) return bytes.length;
  const last = bytes.lastIndexOf(LINE_FEED, from + MAX_PARSED_BYTES);
  const feed = last < from ? bytes.indexOf(LINE_FEED, from) : last;
  return feed < 0 ? bytes.length : feed + 1;
}

/**
 * Adds the values of several lines, which is twice as fast as adding them individually. Returns the number of lines; 0,
 * without adding any, unless each line is one JSON value.
 */
function readLinesTogether(bytes: Buffer, from: number, to: number, draft: Draft): number {
  if (to - from > MAX_PARSED_BYTES) return 0;
  const lines = bytes.toString('utf8', from, bytes[to - 1] === LINE_FEED ? to - 1 : to).split('\n');
  if (!lines.every(looksLikeValue)) return 0;
  const values = parseJson(`[${lines.join(',')}]`) as unknown[] | undefined;
  if (values?.length !== lines.length || values.some(isBody)) return 0;
  for (const value of values) addJsonValue(draft, value);
  return lines.length;
}

/** Whether a line can be one value, so that values that span lines are not accepted. */
function looksLikeValue(line: string): boolean {
  return line.startsWith('{') && (line.endsWith('}') || line.endsWith('}\r')) && line.length <= MAX_VALUE_BYTES;
}

function isBody(value: unknown): boolean {
  return typeof value === 'object' && value !== null && 'values' in value;
}

/** Adds the values of lines, and the problem of each line that is not one JSON value. Returns the number of lines. */
function readLinesSingly(bytes: Buffer, from: number, to: number, line: number, draft: Draft): number {
  let count = 0;
  for (let start = from; start < to; count++) {
    const feed = bytes.indexOf(LINE_FEED, start);
    const end = feed < 0 ? bytes.length : feed;
    const problem = readNdjsonLine(bytes, start, end, draft);
    if (problem !== undefined) {
      if (!draft.isPartial) throw unreadableLine(bytes, line + count, problem);
      draft.reject('', draft.problems.hasRoom ? `line ${line + count} ${problem}` : '');
    }
    start = end + 1;
  }
  return count;
}

/** Adds the value of a line. Returns the problem if the line is not JSON or does not contain exactly one value. */
function readNdjsonLine(bytes: Buffer, start: number, end: number, draft: Draft): string | undefined {
  let [from, to] = [start, end];
  while (from < to && isBlank(bytes[from]!)) from++;
  while (from < to && isBlank(bytes[to - 1]!)) to--;
  if (from === to) return undefined;
  if (BEGINS_AS_BODY.test(bytes.toString('latin1', from, Math.min(to, from + HEAD_BYTES)))) {
    return LIST_OF_VALUES;
  }
  if (to - from > MAX_VALUE_BYTES) {
    draft.reject('', TOO_LONG);
    return undefined;
  }
  const value = parseJson(bytes.toString('utf8', from, to));
  if (value === undefined) return 'is not JSON';
  addJsonValue(draft, value);
  return undefined;
}

function isBlank(code: number): boolean {
  return code === SPACE || code === TAB || code === CARRIAGE_RETURN;
}

function unreadableLine(bytes: Buffer, line: number, problem: string): UnreadableValues {
  const isBody =
    problem === LIST_OF_VALUES || BEGINS_AS_BODY.test(bytes.toString('latin1', hasMark(bytes) ? 3 : 0, HEAD_BYTES));
  return new UnreadableValues(`line ${line} ${problem}`, isBody ? IS_JSON : ONE_PER_LINE);
}

/** Returns `undefined` if the text is not JSON. */
function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
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
      draft.reject(name.slice(0, 64), draft.problems.hasRoom ? unknownMember(name) : '');
      return;
    }
  }
  let timeMs = ON_ARRIVAL;
  if (timestamp !== undefined) timeMs = readTimestamp(draft, timestamp);
  const flag = status === undefined ? 0 : flagOf(status);
  const isReadable = typeof value === 'number' ? Number.isFinite(value) : isMapped(draft, tag, key, value);
  if (!isReadable) {
    draft.reject('value', wrongValue(value));
  } else if (timestamp !== undefined && Number.isNaN(timeMs)) {
    draft.reject('timestamp', wrongTimestamp(timestamp));
  } else if (flag < 0) {
    draft.reject('status', 'must be "good", "uncertain" or "bad"');
  } else {
    const slot = slotOf(draft, tag, key, asset, unit, group);
    if (slot?.map !== undefined) addMapped(draft, slot, value as RawReading, timeMs, flag);
    else if (slot !== undefined) draft.add(slot, value as number, timeMs, flag);
  }
}

/** Returns whether a value that is not a number is a text or boolean whose tag has a map. */
function isMapped(draft: Draft, tag: unknown, key: unknown, value: unknown): boolean {
  return (typeof value === 'string' || typeof value === 'boolean') && draft.mapOf(tag, key) !== undefined;
}

function addMapped(draft: Draft, slot: Slot, raw: RawReading, timeMs: number, flag: number): void {
  const number = numberOf(raw, slot.map);
  if (number === undefined) draft.reject('value', problemOfReading(raw, slot.map));
  else draft.add(slot, number, timeMs, flag);
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
  } else if (asset !== undefined || unit !== undefined || group !== undefined) {
    const field = asset !== undefined ? 'asset' : unit !== undefined ? 'unit' : 'group';
    draft.reject(field, 'cannot be combined with tag, because tags.yaml defines asset, unit and group of a tag');
  } else {
    return draft.slotOfTag(tag, key);
  }
  return undefined;
}

/** Returns the timestamp in milliseconds, or NaN if it is not acceptable. */
function readTimestamp(draft: Draft, timestamp: unknown): number {
  if (typeof timestamp === 'string') return draft.timeOf(timestamp);
  return typeof timestamp === 'number' && draft.isPlausibleTime(timestamp) ? timestamp : Number.NaN;
}

function flagOf(status: unknown): number {
  if (status === 'good') return STATUS_FLAGS.good;
  if (status === 'uncertain') return STATUS_FLAGS.uncertain;
  return status === 'bad' ? STATUS_FLAGS.bad : -1;
}

function wrongValue(value: unknown): string {
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
  if (typeof timestamp === 'number' && isSeconds(timestamp))
    return 'looks like seconds: use milliseconds since 1970, or ISO 8601';
  return 'must be ISO 8601 like "2026-11-21T00:00:00.000Z", or milliseconds since 1970, from 1970 to 9999';
}

function unknownMember(name: string): string {
  const nearest = name.length <= 64 ? nearestName(name, MEMBERS) : undefined;
  return `is not a member of a value${nearest?.likely ? `; did you mean ${quote(nearest.name)}?` : ''}`;
}
