import { nearestName } from '../../base/nearest.ts';
import { STATUS_FLAGS } from '../../buffer/format/value-columns.ts';
import { quote } from '../address-book.ts';
import { type Draft, isSeconds, ON_ARRIVAL } from '../draft.ts';
import { UnreadableValues } from '../problem-list.ts';
import type { Slot } from '../slot.ts';
import { demandUtf8, hasMark } from './body-text.ts';
import { type Extent, extentOf, walkValues } from './json-extents.ts';

const MEMBERS = ['tag', 'key', 'value', 'timestamp', 'status', 'asset', 'unit', 'group'];
/** Values are parsed in groups of this size: beside the bytes of the body no more of it is in memory as objects. */
const GROUP_BYTES = 64 * 1024;
const TOO_LARGE = 'is nested too deeply, or has too many members, for a value';
const SHAPE = 'Send {"values":[{"tag":"FT-101","key":"flow","value":12.5}]}.';
const ONE_A_LINE = 'Send one value a line, as {"tag":"FT-101","key":"flow","value":12.5}.';
const IS_LINES = 'It looks like one value a line: send it with Content-Type: application/x-ndjson.';
const IS_ONE_BODY = 'It looks like one body of JSON: send it with Content-Type: application/json.';

/** `{"values":[…]}`, the body of `POST /v1/values`. Throws `UnreadableValues`. */
export function readJsonBody(bytes: Buffer, draft: Draft): void {
  demandUtf8(bytes);
  const wrong = (message: string) => new UnreadableValues(message, isLines(bytes) ? IS_LINES : SHAPE);
  /** Neighbours that are parsed together; empty if `from` is `to`. */
  const group = { from: 0, to: 0 };
  const addGroup = () => {
    const { from, to } = group;
    group.from = to;
    if (from === to) return;
    const values = parseJson(`[${bytes.toString('utf8', from, to)}]`);
    // V8's message quotes the text around the fault: it stays out of answers and logs.
    if (values === undefined) throw wrong('the body is not JSON');
    for (const value of values as unknown[]) addJsonValue(draft, value);
  };
  walkValues(
    bytes,
    ({ from, to, isSmall }) => {
      if (!isSmall || to - group.from > GROUP_BYTES) addGroup();
      if (!isSmall) return draft.refuse('', TOO_LARGE);
      if (group.from === group.to) group.from = from;
      group.to = to;
    },
    wrong,
  );
  addGroup();
}

/** NDJSON: one value a line, empty lines aside. Throws `UnreadableValues` with the line's number; a partial draft takes the rest. */
export function readNdjsonBody(bytes: Buffer, draft: Draft): void {
  demandUtf8(bytes);
  let line = 0;
  // A stack for each of a million faulty lines would be most of the cost.
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 0;
  try {
    for (let start = hasMark(bytes) ? 3 : 0; start < bytes.length; ) {
      const feed = bytes.indexOf(10, start);
      const end = feed < 0 ? bytes.length : feed;
      line++;
      const fault = readLine(bytes, start, end, draft);
      if (fault !== undefined && !draft.isPartial) throw faultOfLine(bytes, line, fault);
      if (fault !== undefined) draft.refuse('', draft.problems.hasRoom ? faultOfLine(bytes, line, fault).message : '');
      start = end + 1;
    }
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}

type LineFault = 'not JSON' | 'a body';

function faultOfLine(bytes: Buffer, line: number, fault: LineFault): UnreadableValues {
  if (fault === 'a body') return new UnreadableValues(`line ${line} is no value but a list of them`, IS_ONE_BODY);
  return new UnreadableValues(
    `line ${line} is not JSON`,
    BEGINS_AS_BODY.test(headOf(bytes)) ? IS_ONE_BODY : ONE_A_LINE,
  );
}

function readLine(bytes: Buffer, from: number, to: number, draft: Draft): LineFault | undefined {
  const extent = extentOf(bytes, from, to);
  if (extent.from >= to) return undefined;
  const isAll = extent.to > extent.from && bytes.toString('latin1', extent.to, to).trim() === '';
  if (!isAll) return 'not JSON';
  if (BEGINS_AS_BODY.test(bytes.toString('latin1', from, Math.min(to, from + HEAD_BYTES)))) return 'a body';
  return addExtent(draft, bytes, extent) ? undefined : 'not JSON';
}

/** Parses what is no larger than a value can be, and adds it or its problem. Returns false if it is not JSON. */
function addExtent(draft: Draft, bytes: Buffer, { from, to, isSmall }: Extent): boolean {
  if (!isSmall) {
    draft.refuse('', TOO_LARGE);
    return true;
  }
  const value = parseJson(bytes.toString('utf8', from, to));
  if (value !== undefined) addJsonValue(draft, value);
  return value !== undefined;
}

/** `undefined` if the text is not JSON. */
function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** As much as is looked at to tell what a body was meant to be. */
const HEAD_BYTES = 4_096;
const BEGINS_AS_BODY = /^\s*\{\s*"values"\s*:/;

function headOf(bytes: Buffer): string {
  return bytes.toString('latin1', 0, HEAD_BYTES);
}

/** The first line is an object by itself. */
function isLines(bytes: Buffer): boolean {
  const feed = bytes.subarray(0, HEAD_BYTES).indexOf(10);
  if (feed < 0) return false;
  try {
    const first: unknown = JSON.parse(bytes.toString('utf8', 0, feed));
    return typeof first === 'object' && first !== null && !Array.isArray(first);
  } catch {
    return false;
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
      draft.refuse(name.slice(0, 64), draft.problems.hasRoom ? unknownMember(name) : '');
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
  return typeof timestamp === 'number' && draft.takesNumber(timestamp) ? timestamp : Number.NaN;
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
  if (typeof timestamp === 'number' && isSeconds(timestamp))
    return 'looks like seconds: write milliseconds since 1970, or ISO 8601';
  return 'must be ISO 8601 like "2026-11-21T00:00:00.000Z", or milliseconds since 1970, from 1970 to 9999';
}

function unknownMember(name: string): string {
  const nearest = name.length <= 64 ? nearestName(name, MEMBERS) : undefined;
  return `is not a member of a value${nearest?.likely ? `: is ${quote(nearest.name)} meant?` : ''}`;
}
