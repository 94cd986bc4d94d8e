/**
 * Values on their way in, as columns: a request of a thousand values is four typed arrays, not a thousand objects, and
 * crosses to the store thread without being copied value by value.
 */

import { giveBack } from '../../base/give-back.ts';

/** `status` of a value in a column of flags; 0 is a value that came without one. */
export const STATUS_FLAGS = { good: 1, uncertain: 2, bad: 3 } as const;
/** The two bits that hold the status. */
export const STATUS_MASK = 3;
/** The agent itself stamped the value, because it came without a time. */
export const STAMPED_HERE = 4;

const FIRST_ROOM = 16;
/** Smaller ones stay in the young generation, which is collected often. */
const WORTH_GIVING_BACK = 4_096;

/** The columns as they cross to the store thread; the arrays may be longer than `length`. */
export interface Columns {
  length: number;
  series: Uint32Array;
  timeMs: Float64Array;
  value: Float64Array;
  flags: Uint8Array;
}

/** Nobody reads them any more. */
export function giveBackColumns({ series, timeMs, value, flags }: Columns): void {
  for (const column of [series, timeMs, value, flags]) giveBack(column);
}

/** A growing list of accepted values. Nothing is checked here: `intake` has refused what is wrong. */
export class ValueColumns implements Columns {
  length = 0;
  /** Series ids of the catalogue. */
  series: Uint32Array;
  /** Milliseconds since 1970, whole. */
  timeMs: Float64Array;
  value: Float64Array;
  flags: Uint8Array;

  /** `room`: how many are expected; more may come. */
  constructor(room = FIRST_ROOM) {
    const max = Math.max(FIRST_ROOM, room);
    this.series = new Uint32Array(max);
    this.timeMs = new Float64Array(max);
    this.value = new Float64Array(max);
    this.flags = new Uint8Array(max);
  }

  add(series: number, timeMs: number, value: number, flags: number): void {
    const at = this.length;
    if (at === this.series.length) this.#grow(at * 2);
    this.series[at] = series;
    this.timeMs[at] = timeMs;
    this.value[at] = value;
    this.flags[at] = flags;
    this.length = at + 1;
  }

  /** Adds all of `other` behind what is here. */
  addAll(other: Columns): void {
    const wanted = this.length + other.length;
    if (wanted > this.series.length) this.#grow(Math.max(wanted, this.series.length * 2));
    this.series.set(other.series.subarray(0, other.length), this.length);
    this.timeMs.set(other.timeMs.subarray(0, other.length), this.length);
    this.value.set(other.value.subarray(0, other.length), this.length);
    this.flags.set(other.flags.subarray(0, other.length), this.length);
    this.length = wanted;
  }

  /** Nobody reads them any more. */
  giveBack(): void {
    if (this.series.length < WORTH_GIVING_BACK) return;
    giveBackColumns(this);
    this.length = 0;
  }

  /** Takes out the rows at these places, which ascend. */
  remove(places: readonly number[]): void {
    for (let each = places.length - 1; each >= 0; each--) {
      const at = places[each]!;
      for (const column of [this.series, this.timeMs, this.value, this.flags])
        column.copyWithin(at, at + 1, this.length);
      this.length--;
    }
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
    if (length >= WORTH_GIVING_BACK) giveBackColumns({ length, series, timeMs, value, flags });
  }
}

export const NO_VALUES: Columns = {
  length: 0,
  series: new Uint32Array(0),
  timeMs: new Float64Array(0),
  value: new Float64Array(0),
  flags: new Uint8Array(0),
};
