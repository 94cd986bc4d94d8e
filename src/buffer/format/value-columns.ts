/**
 * Accepted values as columns. A request with a thousand values is stored as four typed arrays instead of a thousand
 * objects, and is transferred to the store thread without copying.
 */

import { releaseMemory } from '../../base/release-memory.ts';

/** Status numbers in the flags; 0 for a value without a status. */
export const STATUS_FLAGS = { good: 1, uncertain: 2, bad: 3 } as const;
/** Bits that contain the status. */
export const STATUS_MASK = 3;
/** Set if the agent assigned the timestamp, because the value had none. */
export const STAMPED_HERE = 4;

const FIRST_ROOM = 16;
/** Smaller arrays stay in the young generation, which is collected often. */
const MIN_RELEASED_VALUES = 4_096;

/** Columns as transferred to the store thread. Arrays may be longer than `length`. */
export interface Columns {
  length: number;
  series: Uint32Array;
  timeMs: Float64Array;
  value: Float64Array;
  flags: Uint8Array;
}

/** Releases the memory of the arrays immediately. The columns must not be used afterwards. */
export function releaseColumns({ series, timeMs, value, flags }: Columns): void {
  for (const column of [series, timeMs, value, flags]) releaseMemory(column);
}

/** Growing list of accepted values. Values are not checked here. */
export class ValueColumns implements Columns {
  length = 0;
  /** Series numbers in the catalogue. */
  series: Uint32Array;
  /** Whole milliseconds since 1970. */
  timeMs: Float64Array;
  value: Float64Array;
  flags: Uint8Array;

  /** `room` is the expected number of values. */
  constructor(room = FIRST_ROOM) {
    const max = Math.max(FIRST_ROOM, room);
    this.series = new Uint32Array(max);
    this.timeMs = new Float64Array(max);
    this.value = new Float64Array(max);
    this.flags = new Uint8Array(max);
  }

  add(series: number, timeMs: number, value: number, flags: number): void {
    const at = this.length;
    if (at === this.series.length) this.#grow(Math.max(FIRST_ROOM, at * 2));
    this.series[at] = series;
    this.timeMs[at] = timeMs;
    this.value[at] = value;
    this.flags[at] = flags;
    this.length = at + 1;
  }

  /** Appends all values of `other`. */
  addAll(other: Columns): void {
    const wanted = this.length + other.length;
    if (wanted > this.series.length) this.#grow(Math.max(wanted, this.series.length * 2));
    this.series.set(other.series.subarray(0, other.length), this.length);
    this.timeMs.set(other.timeMs.subarray(0, other.length), this.length);
    this.value.set(other.value.subarray(0, other.length), this.length);
    this.flags.set(other.flags.subarray(0, other.length), this.length);
    this.length = wanted;
  }

  /** Removes all values and reuses the arrays. */
  clear(): void {
    this.length = 0;
  }

  /** Removes all values and their arrays. The memory of large arrays is released immediately. */
  release(): void {
    if (this.series.length >= MIN_RELEASED_VALUES) releaseColumns(this);
    Object.assign(this, NO_VALUES);
  }

  #grow(room: number): void {
    const { series, timeMs, value, flags, length } = this;
    this.series = new Uint32Array(room);
    this.timeMs = new Float64Array(room);
    this.value = new Float64Array(room);
    this.flags = new Uint8Array(room);
    this.series.set(series.subarray(0, length));
    this.timeMs.set(timeMs.subarray(0, length));
    this.value.set(value.subarray(0, length));
    this.flags.set(flags.subarray(0, length));
    if (length >= MIN_RELEASED_VALUES) releaseColumns({ length, series, timeMs, value, flags });
  }
}

export const NO_VALUES: Columns = {
  length: 0,
  series: new Uint32Array(0),
  timeMs: new Float64Array(0),
  value: new Float64Array(0),
  flags: new Uint8Array(0),
};
