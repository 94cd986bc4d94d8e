import { STAMPED_HERE, ValueColumns } from '../../buffer/format/value-columns.ts';
import type { ValueMap } from '../../config/tags.ts';
import type { AddressBook, DirectAddress, Slot } from './address-book.ts';
import { ProblemList, RejectedValues, TooManyValues } from './problem-list.ts';
import { isTrusted, type Stamps } from './stamps.ts';
import { EARLIEST_MS, LATEST_MS, parseIsoTime } from './text-parsers.ts';

/** Time of a value that gets the arrival time: NaN. */
export const ON_ARRIVAL = Number.NaN;

/**
 * Integers below this value are interpreted as seconds. As milliseconds they would be before March 1973; as seconds
 * they cover times up to the year 5138.
 */
const EARLIEST_IN_MS = 100_000_000_000;

/** Approximate size of a value as text, used to reserve columns. If there are more values, the columns are copied. */
const BYTES_OF_WRITTEN_VALUE = 80;

export interface DraftOptions {
  /** Size of the values as text, from which their number is estimated. */
  textBytes?: number;
  /** Accepts valid values even if others are invalid. */
  isPartial?: boolean;
  /** Maximum number of values. A request with more values is rejected as too large. */
  maxValues?: number;
}

/**
 * Receives the values of certain series, which are then not added to the columns. Allows a source to shape the values
 * that tags.yaml configures for it.
 */
export interface Interceptor {
  has(series: number): boolean;
  /** `timeMs` is undefined for a value without a time. `status` has the same format as in `Draft.add`. */
  accept(series: number, value: number, timeMs: number | undefined, status: number): void;
}

/**
 * Values of one request. Unless the draft is partial, all values are accepted or none. Valid values are added to
 * columns and problems to a list; `finish` returns the columns only if the list is empty. Series are opened in
 * `finish`, so a rejected request opens none.
 */
export class Draft {
  readonly problems = new ProblemList();
  readonly #columns: ValueColumns;
  readonly #book: AddressBook;
  readonly #stamps: Stamps;
  readonly #arrivalMs: number;
  /** Whether some values have no time. */
  #needsStamps = false;
  readonly #unopened: { slot: Slot; index: number; at: number }[] = [];
  readonly isPartial: boolean;
  readonly #maxValues: number;
  readonly #isClockTrusted: boolean;
  #index = 0;
  #lastTimeText = '';
  #lastTimeMs = Number.NaN;

  /** `arrivalMs`: current wall clock time in whole milliseconds. */
  constructor(book: AddressBook, stamps: Stamps, arrivalMs: number, options: DraftOptions = {}) {
    this.#book = book;
    this.#stamps = stamps;
    this.#arrivalMs = arrivalMs;
    this.#columns = new ValueColumns(Math.ceil((options.textBytes ?? 0) / BYTES_OF_WRITTEN_VALUE));
    this.isPartial = options.isPartial ?? false;
    this.#maxValues = options.maxValues ?? Number.POSITIVE_INFINITY;
    this.#isClockTrusted = isTrusted(arrivalMs);
  }

  /** Number of values so far, valid and invalid. */
  get count(): number {
    return this.#index;
  }

  /** Number of values in the columns, which is also the index of the next value for `setTimeFrom`. */
  get accepted(): number {
    return this.#columns.length;
  }

  /** Returns whether a number without a unit is an acceptable time in milliseconds. */
  isPlausibleTime(timeMs: number): boolean {
    return isValidTime(timeMs) && !(this.#isClockTrusted && isSeconds(timeMs));
  }

  /** Adds one value. `timeMs` is an integer in range, or `ON_ARRIVAL`; `status` is a flag of `STATUS_FLAGS` or 0. */
  add(slot: Slot, value: number, timeMs: number, status: number): void {
    const index = this.#count();
    if (this.problems.count > 0 && !this.isPartial) return;
    const { series } = slot;
    if (series === 0) this.#unopened.push({ slot, index, at: this.#columns.length });
    if (Number.isNaN(timeMs)) {
      this.#columns.add(series, this.#arrivalMs, value, status | STAMPED_HERE);
      this.#needsStamps = true;
    } else {
      // Adding 0 converts -0 to 0, because encoders distinguish the two.
      this.#columns.add(series, timeMs + 0, value, status);
    }
  }

  /**
   * Returns the slot of a tag's key. If the key is unknown, records a problem for the value and returns `undefined`.
   */
  slotOfTag(tag: string, key: string): Slot | undefined {
    const slot = this.#book.find(tag, key);
    if (slot === undefined) {
      const { field, problem } = this.problems.hasRoom ? this.#book.explain(tag, key) : { field: '', problem: '' };
      this.reject(field, problem);
    }
    return slot;
  }

  /** Returns the map of a tag's value, if any. */
  mapOf(tag: unknown, key: unknown): ValueMap | undefined {
    return typeof tag === 'string' && typeof key === 'string' ? this.#book.find(tag, key)?.map : undefined;
  }

  /**
   * Returns the slot of an asset's key. If the address is invalid, records a problem for the value and returns
   * `undefined`.
   */
  slotOfAsset(address: DirectAddress): Slot | undefined {
    const found = this.#book.findDirect(address);
    if ('series' in found) return found;
    this.reject(found.field, found.problem);
    return undefined;
  }

  /** Records a problem with a value. */
  reject(field: string, problem: string): void {
    this.problems.add(this.#count(), field, problem);
  }

  /** Sets the time of the values that were added at index `first` or later. */
  setTimeFrom(first: number, timeMs: number): void {
    const { timeMs: times, flags, length } = this.#columns;
    for (let at = first; at < length; at++) {
      times[at] = timeMs + 0;
      flags[at] = flags[at]! & ~STAMPED_HERE;
    }
  }

  /**
   * Parses a timestamp and caches the latest one, because consecutive values often share a time. Returns NaN if the
   * timestamp is not acceptable.
   */
  timeOf(text: string): number {
    if (text === this.#lastTimeText) return this.#lastTimeMs;
    const timeMs = parseIsoTime(text);
    if (!isValidTime(timeMs)) return Number.NaN;
    this.#lastTimeText = text;
    this.#lastTimeMs = timeMs;
    return timeMs;
  }

  /** Removes the values that were added at index `first` or later, and lists their request indices as problems. */
  rejectFrom(first: number, indices: readonly number[], field: string, problem: string): void {
    for (const index of indices) this.problems.add(index, field, problem);
    while ((this.#unopened.at(-1)?.at ?? -1) >= first) this.#unopened.pop();
    this.#columns.length = first;
  }

  /**
   * Returns the columns for the sink, without intercepted values. Throws `RejectedValues` if a value is invalid and
   * the draft is not partial.
   */
  finish(interceptor?: Interceptor): ValueColumns {
    const isRefused = this.problems.count > 0 && !this.isPartial;
    const full: number[] = [];
    for (const { slot, index, at } of isRefused ? [] : this.#unopened) {
      const series = this.#book.open(slot);
      if (series !== undefined) this.#columns.series[at] = series;
      else {
        this.problems.add(index, 'key', 'no further series allowed (MAX_SERIES)');
        full.push(at);
      }
    }
    if (this.problems.count > 0 && !this.isPartial) throw new RejectedValues(this.problems);
    this.#columns.remove(full);
    if (interceptor) this.#intercept(interceptor);
    if (this.#needsStamps) this.#stamp();
    return this.#columns;
  }

  /** Runs before stamping, because the interceptor stamps the values that it sends. */
  #intercept(interceptor: Interceptor): void {
    const { series, timeMs, value, flags, length } = this.#columns;
    let kept = 0;
    for (let at = 0; at < length; at++) {
      if (interceptor.has(series[at]!)) {
        const isStampedHere = (flags[at]! & STAMPED_HERE) !== 0;
        interceptor.accept(
          series[at]!,
          value[at]!,
          isStampedHere ? undefined : timeMs[at]!,
          flags[at]! & ~STAMPED_HERE,
        );
        continue;
      }
      series[kept] = series[at]!;
      timeMs[kept] = timeMs[at]!;
      value[kept] = value[at]!;
      flags[kept++] = flags[at]!;
    }
    this.#columns.length = kept;
  }

  /** Runs last, so that a rejected request uses no stamps. */
  #stamp(): void {
    const { series, timeMs, flags, length } = this.#columns;
    for (let at = 0; at < length; at++) {
      if (flags[at]! & STAMPED_HERE) timeMs[at] = this.#stamps.next(series[at]!, this.#arrivalMs);
    }
  }

  #count(): number {
    if (this.#index >= this.#maxValues) throw new TooManyValues(this.#maxValues);
    return this.#index++;
  }
}

/** Returns whether an integer is a time in seconds rather than milliseconds since 1970. */
export function isSeconds(time: number): boolean {
  return Number.isInteger(time) && time >= 0 && time < EARLIEST_IN_MS;
}

/** Returns whether a time is acceptable: whole milliseconds in the years 1970 to 9999. */
export function isValidTime(timeMs: number): boolean {
  return Number.isInteger(timeMs) && timeMs >= EARLIEST_MS && timeMs <= LATEST_MS;
}
