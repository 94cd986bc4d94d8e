import { StoreError } from '../base/errors.ts';
import { STAMPED_HERE, ValueColumns } from '../buffer/format/value-columns.ts';
import type { AddressBook, DirectAddress } from './address-book.ts';
import { aheadBeyondMs, isTrusted } from './ahead-times.ts';
import { EARLIEST_MS, LATEST_MS, parseIsoTime } from './iso-time.ts';
import { ProblemList, RefusedValues, TooManyValues } from './problem-list.ts';
import type { Slot } from './slot.ts';
import type { Stamps } from './stamps.ts';

/** The time of arrival, told by NaN where a time would stand. */
export const ON_ARRIVAL = Number.NaN;

/** Whole numbers below this are seconds where milliseconds were meant: March 1973, and the year 5138 in seconds. */
const EARLIEST_IN_MS = 100_000_000_000;

export interface DraftOptions {
  /** About so many values will come. */
  expected?: number;
  /** What is right is taken, whatever else is wrong. */
  isPartial?: boolean;
  /** More make a request that is too large. */
  maxValues?: number;
}

/** Takes the values of some series in place of the columns: a source shapes those that tags.yaml reads from it. */
export interface Aside {
  has(series: number): boolean;
  /** `timeMs` is `undefined` for a value that came without; `status` as in `Draft.add`. */
  take(series: number, value: number, timeMs: number | undefined, status: number): void;
}

/**
 * The values of one request, all or none unless it is partial: what is right goes into columns, what is wrong into a list, and `finish` gives
 * the columns only where the list is empty. Series are opened in `finish`, so a refused request leaves nothing behind.
 */
export class Draft {
  readonly problems = new ProblemList();
  readonly #columns: ValueColumns;
  readonly #book: AddressBook;
  readonly #stamps: Stamps;
  readonly #arrivalMs: number;
  /** Some came without a time. */
  #wantsStamps = false;
  readonly #unopened: { slot: Slot; index: number; at: number }[] = [];
  readonly isPartial: boolean;
  readonly #maxValues: number;
  readonly #isClockTrusted: boolean;
  readonly #aheadMs: number;
  readonly #learned: number;
  #index = 0;
  #lastTimeText = '';
  #lastTimeMs = Number.NaN;

  /** Values so far whose time lies more than a day ahead of a clock that can be trusted. */
  ahead = 0;

  /** `arrivalMs`: the wall clock now, whole milliseconds. */
  constructor(book: AddressBook, stamps: Stamps, arrivalMs: number, options: DraftOptions = {}) {
    this.#book = book;
    this.#stamps = stamps;
    this.#learned = book.forgettings;
    this.#arrivalMs = arrivalMs;
    this.#columns = new ValueColumns(options.expected);
    this.isPartial = options.isPartial ?? false;
    this.#maxValues = options.maxValues ?? Number.POSITIVE_INFINITY;
    this.#isClockTrusted = isTrusted(arrivalMs);
    this.#aheadMs = aheadBeyondMs(arrivalMs);
  }

  /** Values seen so far, right and wrong. */
  get count(): number {
    return this.#index;
  }

  /** Values that are in the columns: `stampFrom` counts by it. */
  get taken(): number {
    return this.#columns.length;
  }

  /** Whether a number without a unit is a time in milliseconds that the agent takes. */
  takesNumber(timeMs: number): boolean {
    return isTimeTaken(timeMs) && !(this.#isClockTrusted && isSeconds(timeMs));
  }

  /** One value for a slot. `timeMs` is whole and in range, or `ON_ARRIVAL`; `status` is a flag of `STATUS_FLAGS` or 0. */
  add(slot: Slot, value: number, timeMs: number, status: number): void {
    const index = this.#count();
    if (this.problems.count > 0 && !this.isPartial) return;
    const series = this.#book.seriesOf(slot);
    if (series === 0) this.#unopened.push({ slot, index, at: this.#columns.length });
    if (Number.isNaN(timeMs)) {
      this.#columns.add(series, this.#arrivalMs, value, status | STAMPED_HERE);
      this.#wantsStamps = true;
    } else {
      if (timeMs > this.#aheadMs) this.ahead++;
      // Plus 0: a time of -0 would be a value of its own to whoever encodes it.
      this.#columns.add(series, timeMs + 0, value, status);
    }
  }

  /** The slot of a tag's key; counts a problem and gives `undefined` where there is none. The value is then done with. */
  slotOfTag(tag: string, key: string): Slot | undefined {
    const slot = this.#book.find(tag, key);
    if (slot === undefined) {
      const { field, problem } = this.problems.hasRoom ? this.#book.explain(tag, key) : { field: '', problem: '' };
      this.refuse(field, problem);
    }
    return slot;
  }

  /** The slot of an asset's key, likewise. */
  slotOfAsset(address: DirectAddress): Slot | undefined {
    const found = this.#book.findDirect(address);
    if ('series' in found) return found;
    this.refuse(found.field, found.problem);
    return undefined;
  }

  /** One value that is wrong. */
  refuse(field: string, problem: string): void {
    this.problems.add(this.#count(), field, problem);
  }

  /** Gives values that are in already, from place `first` of `taken` on, the time that came behind them. */
  stampFrom(first: number, timeMs: number): void {
    const { timeMs: times, flags, length } = this.#columns;
    if (timeMs > this.#aheadMs) this.ahead += length - first;
    for (let at = first; at < length; at++) {
      times[at] = timeMs + 0;
      flags[at] = flags[at]! & ~STAMPED_HERE;
    }
  }

  /** Reads a timestamp as text, remembering the last: values of one moment come together. NaN where it cannot be taken. */
  timeOf(text: string): number {
    if (text === this.#lastTimeText) return this.#lastTimeMs;
    const timeMs = parseIsoTime(text);
    if (!isTimeTaken(timeMs)) return Number.NaN;
    this.#lastTimeText = text;
    this.#lastTimeMs = timeMs;
    return timeMs;
  }

  /** Removes values again, from place `first` of `taken` on. Their numbers in the request are problems. */
  refuseFrom(first: number, indices: readonly number[], field: string, problem: string): void {
    for (const index of indices) this.problems.add(index, field, problem);
    while ((this.#unopened.at(-1)?.at ?? -1) >= first) this.#unopened.pop();
    this.#columns.length = first;
  }

  /**
   * The columns, ready for the sink, without what goes aside. Throws `RefusedValues` where a value was wrong, unless the draft is
   * partial.
   */
  finish(aside?: Aside): ValueColumns {
    const isRefused = this.problems.count > 0 && !this.isPartial;
    const full: number[] = [];
    for (const { slot, index, at } of isRefused ? [] : this.#unopened) {
      const series = this.#book.open(slot);
      if (series !== undefined) this.#columns.series[at] = series;
      else {
        this.problems.add(index, 'key', 'this agent carries as many series as it may (MAX_SERIES): none is opened');
        full.push(at);
      }
    }
    if (this.problems.count > 0 && !this.isPartial) throw new RefusedValues(this.problems);
    this.#checkSeries();
    this.#columns.remove(full);
    if (aside) this.#putAside(aside);
    if (this.#wantsStamps) this.#stamp();
    return this.#columns;
  }

  /** Before anything is stamped: whoever takes them stamps what it sends. */
  #putAside(aside: Aside): void {
    const { series, timeMs, value, flags, length } = this.#columns;
    let kept = 0;
    for (let at = 0; at < length; at++) {
      if (aside.has(series[at]!)) {
        const isStampedHere = (flags[at]! & STAMPED_HERE) !== 0;
        aside.take(series[at]!, value[at]!, isStampedHere ? undefined : timeMs[at]!, flags[at]! & ~STAMPED_HERE);
        continue;
      }
      series[kept] = series[at]!;
      timeMs[kept] = timeMs[at]!;
      value[kept] = value[at]!;
      flags[kept++] = flags[at]!;
    }
    this.#columns.length = kept;
  }

  /** Not before: a request that is refused gives no time to anything. */
  #stamp(): void {
    const { series, timeMs, flags, length } = this.#columns;
    for (let at = 0; at < length; at++) {
      if (flags[at]! & STAMPED_HERE) timeMs[at] = this.#stamps.next(series[at]!, this.#arrivalMs);
    }
  }

  /** While the request came in slowly, one of its series may have been forgotten: it is to come again. */
  #checkSeries(): void {
    if (this.#book.forgettings === this.#learned) return;
    const { series, length } = this.#columns;
    const isStale = (id: number) => !this.#book.isCurrent(id, this.#learned);
    const opened = new Set(this.#unopened.map(({ at }) => at));
    for (let at = 0; at < length; at++) {
      if (!opened.has(at) && isStale(series[at]!)) {
        throw new StoreError('a series was forgotten meanwhile', { code: 'buffer.busy', retryable: true });
      }
    }
  }

  #count(): number {
    if (this.#index >= this.#maxValues) throw new TooManyValues(this.#maxValues);
    return this.#index++;
  }
}

/** Whether a whole number is seconds since 1970 rather than milliseconds. */
export function isSeconds(time: number): boolean {
  return Number.isInteger(time) && time >= 0 && time < EARLIEST_IN_MS;
}

/** Whether the agent takes a time: whole milliseconds of the years 1970 to 9999. */
export function isTimeTaken(timeMs: number): boolean {
  return Number.isInteger(timeMs) && timeMs >= EARLIEST_MS && timeMs <= LATEST_MS;
}
