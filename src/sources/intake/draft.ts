import { STAMPED_HERE, ValueColumns } from '../../buffer/format/value-columns.ts';
import type { AddressBook, DirectAddress, Slot } from './address-book.ts';
import type { Gate } from './gate.ts';
import { missingZone, parseZonedTime } from './logger-time.ts';
import { type Problem, RejectedValues, TooManyValues } from './problem-list.ts';
import type { RawReading } from './shaping.ts';
import type { Stamps } from './stamps.ts';
import { parseIsoTime } from './text-parsers.ts';
import type { TimeUnit, ValueTimes } from './times.ts';

/** Time of a value that gets the arrival time: NaN. */
export const ON_ARRIVAL = Number.NaN;

/** Approximate size of a value as text, used to reserve columns. If there are more values, the columns are copied. */
const BYTES_OF_WRITTEN_VALUE = 50;
/** Maximum number of problems that are described. */
const MAX_LISTED = 100;

const ADD_OFFSET = 'add the offset, for example +01:00, or Z if the time is correct';

/** Handling of timestamps of live values. */
interface LiveTimes {
  /** Time zone of timestamps without a UTC offset. Default: UTC. */
  zone: string | undefined;
  /** Receives a report for each timestamp that is replaced with the arrival time, or is probably local time. */
  gate: Pick<Gate, 'reportReplaced' | 'reportIfAhead' | 'reportMissingZone'>;
}

export interface DraftOptions {
  /** Size of the values as text, from which their number is estimated. */
  textBytes?: number;
  /** Accepts valid values even if others are invalid. */
  isPartial?: boolean;
  /** Maximum number of values. A request with more values is rejected as too large. */
  maxValues?: number;
  /** Set if values are read live. If omitted, values with implausible timestamps are rejected. */
  live?: LiveTimes;
  interceptor?: Interceptor;
}

/**
 * Receives the values of certain series, which are then not added to the columns. Allows a source to shape the values
 * that tags.yaml configures for it.
 */
export interface Interceptor {
  has(series: number): boolean;
  /** `timeMs` is undefined for a value without a time. `status` has the same format as in `Draft.add`. */
  accept(series: number, value: Intercepted, timeMs: number | undefined, status: number): void;
}

/** A reading before mapping, or the problem of one that is neither a number nor a text. */
export type Intercepted = RawReading | { problem: string };

/**
 * Values of one request. Unless the draft is partial, all values are accepted or none. Valid values are added to
 * columns and problems to a list; `finish` returns the columns only if the list is empty. Series are opened in
 * `finish`, so a rejected request opens none.
 */
export class Draft {
  readonly problems = { listed: [] as Problem[], count: 0 };
  /** Problem of a pushed timestamp that is probably local time. */
  zoneProblem: string | undefined;
  readonly isPartial: boolean;
  readonly book: AddressBook;
  readonly #options: DraftOptions;
  readonly #columns: ValueColumns;
  readonly #stamps: Stamps;
  readonly #times: ValueTimes;
  readonly #arrivalMs: number;
  readonly #maxValues: number;
  /** Intercepted readings that are not plain numbers, by index in the columns. */
  readonly #intercepted = new Map<number, Intercepted>();
  /** Values whose series is not open: their index in the request and in the columns. */
  readonly #unopened: { slot: Slot; index: number; at: number }[] = [];
  #needsStamps = false;
  #index = 0;
  #lastTimeText = '';
  #lastTimeMs = Number.NaN;

  /** `arrivalMs`: current wall clock time in whole milliseconds. */
  constructor(book: AddressBook, stamps: Stamps, times: ValueTimes, arrivalMs: number, options: DraftOptions = {}) {
    this.book = book;
    this.#stamps = stamps;
    this.#times = times;
    this.#arrivalMs = arrivalMs;
    this.#options = options;
    this.#columns = new ValueColumns(Math.ceil((options.textBytes ?? 0) / BYTES_OF_WRITTEN_VALUE));
    this.isPartial = options.isPartial ?? false;
    this.#maxValues = options.maxValues ?? Number.POSITIVE_INFINITY;
  }

  /** Number of values so far, valid and invalid. */
  get count(): number {
    return this.#index;
  }

  /** Number of values in the columns, which is also the index of the next value for `setTimeFrom`. */
  get accepted(): number {
    return this.#columns.length;
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

  /** Whether the values of a series are intercepted. */
  intercepts(slot: Slot): boolean {
    const { interceptor } = this.#options;
    if (interceptor === undefined) return false;
    // The source has already opened the series of its values.
    const series = slot.ofTag ? this.book.open(slot) : slot.series;
    return series !== undefined && interceptor.has(series);
  }

  /** Like `add`, for a series that is intercepted. */
  addIntercepted(slot: Slot, reading: Intercepted, timeMs: number, status: number): void {
    this.#intercepted.set(this.#columns.length, reading);
    this.add(slot, Number.NaN, timeMs, status);
  }

  /** Records a problem with a value. `problem` can be a function of `args`, which is called if the problem is listed. */
  reject<Args extends unknown[]>(field: string, problem: string | ((...args: Args) => string), ...args: Args): void {
    this.#addProblem(this.#count(), field, problem, ...args);
  }

  /** Returns the slot of a tag's key. Otherwise, records a problem and returns `undefined`. */
  slotOfTag(tag: string, key: string): Slot | undefined {
    const slot = this.book.find(tag, key);
    if (slot === undefined) this.reject(this.book.wrongFieldOf(tag), explain, this.book, tag, key);
    return slot;
  }

  /** Returns the slot of an asset's key. Otherwise, records a problem and returns `undefined`. */
  slotOfAsset(address: DirectAddress): Slot | undefined {
    const found = this.book.findDirect(address);
    if ('series' in found) return found;
    this.reject(found.field, found.problem);
    return undefined;
  }

  /**
   * Parses a timestamp and caches the latest one, because consecutive values often share a time. Returns NaN if the
   * text is not a timestamp.
   */
  timeOf(text: string): number {
    if (text === this.#lastTimeText) return this.#lastTimeMs;
    const { live } = this.#options;
    const timeMs = live?.zone === undefined ? parseIsoTime(text) : parseZonedTime(text, live.zone, this.#arrivalMs);
    if (live === undefined) {
      this.zoneProblem ??= missingZone(text, timeMs, this.#arrivalMs, ADD_OFFSET);
    } else if (live.zone === undefined) {
      const problem = missingZone(text, timeMs, this.#arrivalMs);
      if (problem !== undefined) live.gate.reportMissingZone(problem);
    }
    this.#lastTimeText = text;
    this.#lastTimeMs = timeMs;
    return timeMs;
  }

  /**
   * Returns the timestamp of a value: `timeMs` if it is plausible, `ON_ARRIVAL` if it is replaced with the arrival
   * time, or `undefined` if the value must be rejected. For the other arguments, see `problemOfTime`.
   */
  plausibleTime(timeMs: number, msOfUnit?: number, fix?: (unit: TimeUnit) => string): number | undefined {
    const { live } = this.#options;
    if (this.#times.isPlausible(timeMs, this.#arrivalMs)) {
      live?.gate.reportIfAhead(timeMs, this.#arrivalMs);
      return timeMs;
    }
    if (live === undefined) return undefined;
    live.gate.reportReplaced(this.problemOfTime(timeMs, msOfUnit, fix));
    return ON_ARRIVAL;
  }

  /** See `ValueTimes.problemOf`. */
  problemOfTime(timeMs: number, msOfUnit?: number, fix?: (unit: TimeUnit) => string): string {
    return this.#times.problemOf(timeMs, this.#arrivalMs, msOfUnit, fix);
  }

  /** Sets the time of the values that were added at index `first` or later. */
  setTimeFrom(first: number, timeMs: number): void {
    const { timeMs: times, flags, length } = this.#columns;
    for (let at = first; at < length; at++) {
      times[at] = timeMs + 0;
      flags[at] = flags[at]! & ~STAMPED_HERE;
    }
  }

  /** Removes the values that were added at index `first` or later, and counts a problem for each, or one if none was. */
  rejectFrom(first: number, field: string, problem: string): void {
    if (first === this.#columns.length) this.reject(field, problem);
    for (let at = first; at < this.#columns.length; at++) this.#addProblem(this.#index - 1, field, problem);
    while ((this.#unopened.at(-1)?.at ?? -1) >= first) this.#unopened.pop();
    for (let at = first; at < this.#columns.length; at++) this.#intercepted.delete(at);
    this.#columns.length = first;
  }

  /**
   * Returns the columns, without intercepted values. Throws `RejectedValues` if a value is invalid and the draft is not
   * partial; in this case, neither a series nor a stamp is used.
   */
  finish(): ValueColumns {
    if (this.problems.count > 0 && !this.isPartial) throw new RejectedValues(this.problems);
    let hasUnopened = false;
    for (const { slot, index, at } of this.#unopened) {
      this.#columns.series[at] = this.book.open(slot) ?? 0;
      if (this.#columns.series[at]! > 0) continue;
      hasUnopened = true;
      this.#addProblem(index, 'key', 'no further series allowed (MAX_SERIES)');
    }
    if (hasUnopened && !this.isPartial) throw new RejectedValues(this.problems);
    if (hasUnopened || this.#options.interceptor !== undefined || this.#needsStamps) this.#complete();
    return this.#columns;
  }

  /** Removes values without a series, passes intercepted values on, and stamps the others. */
  #complete(): void {
    const { interceptor } = this.#options;
    const { series, timeMs, value, flags, length } = this.#columns;
    let kept = 0;
    for (let at = 0; at < length; at++) {
      const number = series[at]!;
      const flag = flags[at]!;
      if (number === 0) continue;
      const isStampedHere = (flag & STAMPED_HERE) !== 0;
      if (interceptor?.has(number)) {
        const reading = this.#intercepted.get(at) ?? value[at]!;
        interceptor.accept(number, reading, isStampedHere ? undefined : timeMs[at]!, flag & ~STAMPED_HERE);
        continue;
      }
      series[kept] = number;
      timeMs[kept] = isStampedHere ? this.#stamps.next(number, this.#arrivalMs) : timeMs[at]!;
      value[kept] = value[at]!;
      flags[kept++] = flag;
    }
    this.#columns.length = kept;
  }

  #count(): number {
    if (this.#index >= this.#maxValues) throw new TooManyValues(this.#maxValues);
    return this.#index++;
  }

  #addProblem<Args extends unknown[]>(
    index: number,
    field: string,
    problem: string | ((...args: Args) => string),
    ...args: Args
  ): void {
    const { problems } = this;
    if (problems.count++ >= MAX_LISTED) return;
    problems.listed.push({ index, field, problem: typeof problem === 'string' ? problem : problem(...args) });
  }
}

export const explain = (book: AddressBook, tag: string, key: string): string => book.explain(tag, key);
