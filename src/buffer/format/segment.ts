/**
 * Segment: packed values of one series in order of acceptance. A long backlog consists of segments.
 *
 *   crc32(4) version series place count | digits or "raw" | first time, first step, changes of the step with run lengths
 *   | flags with run lengths | integers as differences | exceptions: values that are not decimals
 *
 * Values that are polled regularly require almost no space for their times, and one or two bytes each.
 */
import { ByteReader, ByteWriter, damaged, digitsOf, MAX_DIGITS, POWERS_OF_TEN, wholeOf } from './bytes.ts';

/** Differs from the version of log rows, so that rows can be recognized without their table. */
const VERSION = 3;
/** Digits value for a segment of raw doubles. */
const RAW = 255;

/** Series and place of a segment, repeated here in case the directory of its span is lost. */
export interface SegmentHead {
  series: number;
  /** `place` of its span. */
  place: number;
}

/** Head of a segment in quarantine. */
const NO_HEAD: SegmentHead = { series: 0, place: 0 };

/** Values of one series; `flags` as in `ValueColumns`. Arrays may be longer than `count`. */
export interface SegmentValues {
  count: number;
  timeMs: Float64Array;
  value: Float64Array;
  flags: Uint8Array;
}

/**
 * A larger segment would have to be unpacked to post a small part of it, and one bad sector would destroy all of it.
 */
export const MAX_SEGMENT_VALUES = 2048;

/** Returns the latest time of values `from` to `to`. */
export function lastTimeOf({ timeMs }: Pick<SegmentValues, 'timeMs'>, from = 0, to = timeMs.length): number {
  let last = Number.NEGATIVE_INFINITY;
  for (let i = from; i < to; i++) if (timeMs[i]! > last) last = timeMs[i]!;
  return last;
}

const writer = new ByteWriter();

/** Packs values `from` to `to`. Returns a copy of the bytes. */
export function packSegment(values: SegmentValues, from = 0, to = values.count, head = NO_HEAD): Uint8Array {
  const count = to - from;
  writer.reset(4);
  writer.byte(VERSION);
  writer.varint(head.series);
  writer.varint(head.place);
  writer.varint(count);
  writeTimes(values.timeMs, from, to);
  writeFlags(values.flags, from, to);
  writeValues(values.value, from, to);
  return writer.seal().slice();
}

function writeTimes(timeMs: Float64Array, from: number, to: number): void {
  writer.zigzag(timeMs[from]!);
  let last = timeMs[from]!;
  let step = 0;
  let i = from + 1;
  while (i < to) {
    const nextStep = timeMs[i]! - last;
    const change = nextStep - step;
    last = timeMs[i]!;
    step = nextStep;
    i++;
    // Run length of a step. The low bit indicates that a count follows.
    let run = 0;
    while (i < to && timeMs[i]! - last === step) {
      last = timeMs[i]!;
      run++;
      i++;
    }
    writer.varint((change < 0 ? -2 * change - 1 : 2 * change) * 2 + (run > 0 ? 1 : 0));
    if (run > 0) writer.varint(run);
  }
}

function writeFlags(flags: Uint8Array, from: number, to: number): void {
  let i = from;
  while (i < to) {
    const flag = flags[i]!;
    let end = i + 1;
    while (end < to && flags[end] === flag) end++;
    writer.varint(flag);
    writer.varint(end - i);
    i = end;
  }
}

/** Returns the smallest number of digits that represents nearly all values; -1 if too many are not decimals. */
function commonDigits(value: Float64Array, from: number, to: number): number {
  let max = 0;
  let misfits = 0;
  const maxMisfits = (to - from) >> 2;
  for (let i = from; i < to; i++) {
    if (!Number.isNaN(wholeOf(value[i]!, max))) continue;
    const digits = digitsOf(value[i]!);
    if (digits < 0) {
      if (++misfits > maxMisfits) return -1;
    } else if (digits > max) max = digits;
  }
  return max;
}

function writeValues(value: Float64Array, from: number, to: number): void {
  const digits = commonDigits(value, from, to);
  if (digits < 0) {
    writer.byte(RAW);
    for (let i = from; i < to; i++) writer.double(value[i]!);
    return;
  }
  writer.byte(digits);
  let last = 0;
  const misfits: number[] = [];
  for (let i = from; i < to; i++) {
    const whole = wholeOf(value[i]!, digits);
    if (Number.isNaN(whole)) {
      misfits.push(i);
      writer.zigzag(0);
      continue;
    }
    writer.zigzag(whole - last);
    last = whole;
  }
  writer.varint(misfits.length);
  let before = from;
  for (const i of misfits) {
    writer.varint(i - before);
    writer.double(value[i]!);
    before = i;
  }
}

/** Returns the series and count of a segment without unpacking it. Throws `store.damaged`. */
export function readSegmentHead(bytes: Uint8Array): SegmentHead & { count: number } {
  return readHead(ByteReader.unseal(bytes, 'a segment'));
}

function readHead(reader: ByteReader): SegmentHead & { count: number } {
  if (reader.byte() !== VERSION) throw damaged('the version of a segment');
  const head = { series: reader.varint(), place: reader.varint(), count: reader.varint() };
  // A value has at least one byte.
  if (head.count === 0 || head.count > reader.left) throw damaged('the header of a segment');
  return head;
}

/** Unpacks a segment. Throws `store.damaged` if checksum, version or structure is wrong. */
export function unpackSegment(bytes: Uint8Array): SegmentValues & SegmentHead {
  const reader = ByteReader.unseal(bytes, 'a segment');
  const { series, place, count } = readHead(reader);
  const values = {
    series,
    place,
    count,
    timeMs: new Float64Array(count),
    value: new Float64Array(count),
    flags: new Uint8Array(count),
  };
  readTimes(reader, values.timeMs);
  readFlags(reader, values.flags);
  readValues(reader, values.value);
  if (reader.left !== 0) throw damaged('the end of a segment');
  return values;
}

function readTimes(reader: ByteReader, timeMs: Float64Array): void {
  let time = reader.zigzag();
  let step = 0;
  timeMs[0] = time;
  let i = 1;
  while (i < timeMs.length) {
    const first = reader.varint();
    const change = Math.floor(first / 2);
    step += change % 2 === 1 ? -(change + 1) / 2 : change / 2;
    const run = first % 2 === 1 ? reader.varint() : 0;
    if (run >= timeMs.length - i) throw damaged('the times of a segment');
    for (const end = i + run; i <= end; i++) {
      time += step;
      timeMs[i] = time;
    }
  }
}

function readFlags(reader: ByteReader, flags: Uint8Array): void {
  let i = 0;
  while (i < flags.length) {
    const flag = reader.varint();
    const run = reader.varint();
    if (run === 0 || run > flags.length - i) throw damaged('the flags of a segment');
    flags.fill(flag, i, i + run);
    i += run;
  }
}

function readValues(reader: ByteReader, value: Float64Array): void {
  const digits = reader.byte();
  if (digits === RAW) {
    for (let i = 0; i < value.length; i++) value[i] = reader.double();
    return;
  }
  if (digits > MAX_DIGITS) throw damaged('the digits of a segment');
  const power = POWERS_OF_TEN[digits]!;
  let whole = 0;
  for (let i = 0; i < value.length; i++) {
    whole += reader.zigzag();
    value[i] = whole / power;
  }
  let misfits = reader.varint();
  let at = 0;
  while (misfits-- > 0) {
    at += reader.varint();
    if (at >= value.length) throw damaged('the values of a segment');
    value[at] = reader.double();
  }
}
