/**
 * A segment: values of one series in order of acceptance, packed. Where the log is written once and soon falls away,
 * segments are what a backlog of weeks consists of.
 *
 *   crc32(4) version series place count | digits or "raw" | first time, first step, changes of the step with run lengths
 *   | flags with run lengths | whole numbers as differences | the few values that are no such decimal
 *
 * A plant that is polled regularly needs next to nothing for its times and one or two bytes for a value.
 */
import { ByteReader, ByteWriter, damaged } from './bytes.ts';
import { digitsOf, MAX_DIGITS, POWERS_OF_TEN, wholeOf } from './decimal.ts';

/** Another than a log row's, so that a row that is found without its table tells what it is. */
const VERSION = 3;
/** In place of the digits: every value stands as a raw double. */
const RAW = 255;

/** Whose values a segment holds, and where in the order of acceptance: what its span's directory says too, should that be lost. */
export interface SegmentHead {
  series: number;
  /** Of its span. */
  place: number;
}

/** In quarantine nobody asks. */
const NO_HEAD: SegmentHead = { series: 0, place: 0 };

/** Values of one series. `flags` are those of `ValueColumns`. The arrays may be longer than `count`. */
export interface SegmentValues {
  count: number;
  timeMs: Float64Array;
  value: Float64Array;
  flags: Uint8Array;
}

/** Larger segments are unpacked for nothing when a post takes a part, and a bad sector costs all of one. */
export const MAX_SEGMENT_VALUES = 2048;

/** The latest time of values from `from` to `to`. */
export function lastTimeOf({ timeMs }: Pick<SegmentValues, 'timeMs'>, from = 0, to = timeMs.length): number {
  let last = Number.NEGATIVE_INFINITY;
  for (let i = from; i < to; i++) if (timeMs[i]! > last) last = timeMs[i]!;
  return last;
}

const writer = new ByteWriter();

/** Packs `values` from `from` to `to`. The bytes are a copy. */
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
    // How often the same step follows: the low bit says that a count does.
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

/** The fewest digits that fit (nearly) all values; -1 where too many of them are no decimals. */
function commonDigits(value: Float64Array, from: number, to: number): number {
  let max = 0;
  let misfits = 0;
  const bearable = (to - from) >> 2;
  for (let i = from; i < to; i++) {
    if (!Number.isNaN(wholeOf(value[i]!, max))) continue;
    const digits = digitsOf(value[i]!);
    if (digits < 0) {
      if (++misfits > bearable) return -1;
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

/** Whose a segment is and how many values it has, without unpacking them. Throws `store.damaged` where it is not what was written. */
export function readSegmentHead(bytes: Uint8Array): SegmentHead & { count: number } {
  return readHead(ByteReader.unseal(bytes, 'a segment'));
}

function readHead(reader: ByteReader): SegmentHead & { count: number } {
  if (reader.byte() !== VERSION) throw damaged('the version of a segment');
  const head = { series: reader.varint(), place: reader.varint(), count: reader.varint() };
  // A value takes a byte at the least.
  if (head.count === 0 || head.count > reader.left) throw damaged('the head of a segment');
  return head;
}

/** Unpacks a segment. Throws `store.damaged` where checksum, version or shape is not what was written. */
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
