import { STAMPED_HERE, ValueColumns } from '../buffer/value-columns.ts';
import type { AddressBook, DirectAddress, Slot } from './address-book.ts';
import { EARLIEST_MS, LATEST_MS, parseIsoTime } from './iso-time.ts';
import { ProblemList, RefusedValues } from './problem-list.ts';

/** The time of arrival, told by NaN where a time would stand. */
export const ON_ARRIVAL = Number.NaN;

/**
 * The values of one request, all or none: what is right goes into columns, what is wrong into a list, and `finish` gives
 * the columns only where the list is empty. Series are opened in `finish`, so a refused request leaves nothing behind.
 */
export class Draft {
  readonly problems = new ProblemList();
  readonly #columns: ValueColumns;
  readonly #book: AddressBook;
  readonly #arrivalMs: number;
  readonly #unopened: { slot: Slot; at: number }[] = [];
  #index = 0;
  #lastTimeText = '';
  #lastTimeMs = Number.NaN;

  /** `arrivalMs`: the wall clock now, whole milliseconds. `expected`: about so many values will come. */
  constructor(book: AddressBook, arrivalMs: number, expected?: number) {
    this.#book = book;
    this.#arrivalMs = arrivalMs;
    this.#columns = new ValueColumns(expected);
  }

  /** Values seen so far, right and wrong. */
  get count(): number {
    return this.#index;
  }

  /** One value for a slot. `timeMs` is whole and in range, or `ON_ARRIVAL`; `status` is a flag of `STATUS_FLAGS` or 0. */
  add(slot: Slot, value: number, timeMs: number, status: number): void {
    const at = this.#index++;
    if (this.problems.count > 0) return;
    if (slot.series === 0) this.#unopened.push({ slot, at });
    if (Number.isNaN(timeMs)) this.#columns.add(slot.series, this.#arrivalMs, value, status | STAMPED_HERE);
    // Plus 0: a time of -0 would be a value of its own to whoever encodes it.
    else this.#columns.add(slot.series, timeMs + 0, value, status);
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
    this.problems.add(this.#index++, field, problem);
  }

  /** Gives values that are in already, from index `first` on, the time that came behind them. */
  stampFrom(first: number, timeMs: number): void {
    const { timeMs: times, flags, length } = this.#columns;
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

  /** The slot of a tag's key, `undefined` without counting a problem. */
  findSlot(tag: string, key: string): Slot | undefined {
    return this.#book.find(tag, key);
  }

  /** The slot of an asset's key, likewise. */
  findDirectSlot(address: DirectAddress): Slot | undefined {
    const found = this.#book.findDirect(address);
    return 'series' in found ? found : undefined;
  }

  /** Forgets every value: they will be read again in another way. */
  restart(): void {
    this.#columns.length = 0;
    this.#unopened.length = 0;
    this.#index = 0;
  }

  /** The columns, ready for the sink. Throws `RefusedValues` where a value was wrong. */
  finish(): ValueColumns {
    for (const { slot, at } of this.problems.count === 0 ? this.#unopened : []) {
      const series = this.#book.open(slot);
      if (series === undefined) this.problems.add(at, 'key', 'this agent carries too many series to open another');
      else this.#columns.series[at] = series;
    }
    if (this.problems.count > 0) throw new RefusedValues(this.problems);
    return this.#columns;
  }
}

/** Whether the agent takes a time: whole milliseconds of the years 1970 to 9999. */
export function isTimeTaken(timeMs: number): boolean {
  return Number.isInteger(timeMs) && timeMs >= EARLIEST_MS && timeMs <= LATEST_MS;
}
