/**
 * Row of the log: the values of one commit, and the values settled since the previous commit.
 *
 *   crc32(4) version run monotonic first-seq count settled-count | settled runs | values
 *
 * A value has four parts. The series is stored as a difference from the previous value; its low bit is set if the form
 * is unchanged. The form contains the number of digits (or "raw double") and the flags. The time is stored as a
 * difference. The integer is stored as a difference from the previous integer of the same series in this row, if both
 * have the same number of digits. Rows do not refer to each other, because they are deleted from the front.
 */
import { ByteReader, ByteWriter, damaged, digitsOf, MAX_DIGITS, POWERS_OF_TEN, wholeOf } from './bytes.ts';
import { type Columns, ValueColumns } from './value-columns.ts';

const VERSION = 1;
/**
 * Highest valid series number. Higher numbers are corrupt, and no memory is allocated for them. Numbers of series
 * without values are reused after a restart, so the limit only needs to exceed the largest MAX_SERIES (ten million) plus
 * the series of tags.yaml, which do not count towards MAX_SERIES.
 */
const MAX_SERIES = 2 ** 24;
/** Form byte: digits in the low four bits (15: a raw double), flags in the next three. */
const RAW = 15;

/** Settled or quarantined values of a series, `firstSeq` to `lastSeq`. */
export interface SettledRun {
  series: number;
  firstSeq: number;
  lastSeq: number;
}

export interface LogRowHead {
  /** Run of the agent that accepted the values. */
  run: number;
  /** Monotonic time of the commit, in whole milliseconds. */
  monotonicMs: number;
  /** Sequence number of the first value. */
  firstSeq: number;
}

export interface LogRow extends LogRowHead {
  values: ValueColumns;
  settled: SettledRun[];
}

/**
 * Previous integer of each series in the current row. The writer and the reader update it identically. Each entry
 * contains the number of its row, so nothing is cleared between rows.
 */
class LastWholes {
  #row = 0;
  #seenIn = new Uint32Array(1024);
  #digits = new Uint8Array(1024);
  #whole = new Float64Array(1024);

  nextRow(): void {
    this.#row++;
  }

  /** Returns the base of the difference: 0 if the series has no number with these digits in the row. */
  base(series: number, digits: number): number {
    return this.#seenIn[series] === this.#row && this.#digits[series] === digits ? this.#whole[series]! : 0;
  }

  remember(series: number, digits: number, whole: number): void {
    if (series >= this.#seenIn.length) this.#grow(series);
    this.#seenIn[series] = this.#row;
    this.#digits[series] = digits;
    this.#whole[series] = whole;
  }

  #grow(series: number): void {
    const room = Math.max(series + 1, this.#seenIn.length * 2);
    this.#seenIn = grown(this.#seenIn, new Uint32Array(room));
    this.#digits = grown(this.#digits, new Uint8Array(room));
    this.#whole = grown(this.#whole, new Float64Array(room));
  }
}

function grown<Column extends Uint8Array | Uint32Array | Float64Array>(from: Column, to: Column): Column {
  to.set(from);
  return to;
}

/** Writes rows. Caches the number of digits of each series, which rarely changes. */
export class LogRowWriter {
  readonly #writer = new ByteWriter();
  readonly #last = new LastWholes();
  #digits = new Uint8Array(1024);

  /** Returns a view that the next call overwrites. */
  write(head: LogRowHead, values: Columns, settled: readonly SettledRun[]): Uint8Array {
    const writer = this.#writer;
    writer.reset(4);
    writer.byte(VERSION);
    writer.varint(head.run);
    writer.varint(head.monotonicMs);
    writer.varint(head.firstSeq);
    writer.varint(values.length);
    writer.varint(settled.length);
    for (const run of settled) {
      writer.varint(run.series);
      writer.varint(run.firstSeq);
      writer.varint(run.lastSeq - run.firstSeq);
    }
    this.#writeValues(values);
    return writer.seal();
  }

  #writeValues(values: Columns): void {
    const writer = this.#writer;
    this.#last.nextRow();
    let lastSeries = 0;
    let lastForm = -1;
    let lastTime = 0;
    for (let i = 0; i < values.length; i++) {
      const series = values.series[i]!;
      if (series >= this.#digits.length) this.#digits = grown(this.#digits, new Uint8Array(series * 2));
      const value = values.value[i]!;
      let digits = this.#digits[series]!;
      let whole = wholeOf(value, digits);
      if (Number.isNaN(whole)) {
        digits = digitsOf(value);
        if (digits >= 0) {
          whole = wholeOf(value, digits);
          this.#digits[series] = digits;
        }
      }
      const raw = digits < 0;
      const form = (raw ? RAW : digits) | (values.flags[i]! << 4);
      const same = form === lastForm;
      const step = series - lastSeries;
      writer.varint((step < 0 ? -2 * step - 1 : 2 * step) * 2 + (same ? 1 : 0));
      if (!same) writer.byte(form);
      const time = values.timeMs[i]!;
      writer.zigzag(time - lastTime);
      if (raw) writer.double(value);
      else {
        writer.zigzag(whole - this.#last.base(series, digits));
        this.#last.remember(series, digits, whole);
      }
      lastSeries = series;
      lastForm = form;
      lastTime = time;
    }
  }
}

const readerLast = new LastWholes();

/**
 * Reads the first sequence number and the count of a row whose end is unreadable. The checksum cannot be verified.
 * Returns `undefined` if the bytes are not a log row.
 */
export function peekLogRow(beginning: Uint8Array): { firstSeq: number; count: number } | undefined {
  const reader = new ByteReader(beginning, 4);
  try {
    if (reader.byte() !== VERSION) return undefined;
    reader.varint();
    reader.varint();
    return { firstSeq: reader.varint(), count: reader.varint() };
  } catch {
    return undefined;
  }
}

/** Reads a row. Throws `store.damaged` if checksum, version or structure is wrong. */
export function readLogRow(bytes: Uint8Array): LogRow {
  const reader = ByteReader.unseal(bytes, 'a row of the log');
  if (reader.byte() !== VERSION) throw damaged('the version of a log row');
  const head = { run: reader.varint(), monotonicMs: reader.varint(), firstSeq: reader.varint() };
  const count = reader.varint();
  const runs = reader.varint();
  // A value has at least three bytes, so no memory is allocated for a corrupt count.
  if (count * 3 > reader.left || runs * 3 > reader.left) throw damaged('the header of a log row');
  const settled: SettledRun[] = [];
  for (let i = 0; i < runs; i++) {
    const series = reader.varint();
    const firstSeq = reader.varint();
    settled.push({ series, firstSeq, lastSeq: firstSeq + reader.varint() });
  }
  const values = new ValueColumns();
  readerLast.nextRow();
  let series = 0;
  let form = 0;
  let time = 0;
  for (let i = 0; i < count; i++) {
    const first = reader.varint();
    const step = Math.floor(first / 2);
    series += step % 2 === 1 ? -(step + 1) / 2 : step / 2;
    if (series < 0 || series > MAX_SERIES) throw damaged('a series of a log row');
    if (first % 2 === 0) form = reader.byte();
    time += reader.zigzag();
    const digits = form & 15;
    let value: number;
    if (digits === RAW) value = reader.double();
    else {
      if (digits > MAX_DIGITS) throw damaged('the digits of a log row');
      const whole = reader.zigzag() + readerLast.base(series, digits);
      readerLast.remember(series, digits, whole);
      value = whole / POWERS_OF_TEN[digits]!;
    }
    values.add(series, time, value, form >> 4);
  }
  if (reader.left !== 0) throw damaged('the end of a log row');
  return { ...head, values, settled };
}
