/**
 * The values of one series that still stand in the log, decoded, in order of acceptance. The log is what survives;
 * the queue is what posts are made of while the values are fresh. Flush moves its front into segments, so it stays
 * as short as the log.
 */

/** Bits of a queue's flags above those of `ValueColumns`. */
/** Its time does not lie after all of the series' backlog, so it must follow the backlog: it waits to be flushed. */
const LATE = 8;
const UNDER_WAY = 16;
const SETTLED = 32;
const STATE = UNDER_WAY | SETTLED;
/** What a value came with. */
const VALUE_FLAGS = 7;

/** Cells of so many values may stand unused before the front. */
const MAX_LEFT_BEHIND = 64;
/** Of each value: time, value, place in the order of acceptance, flags. */
const TIME = 0;
const VALUE = 1;
const SEQ = 2;
const FLAGS = 3;
const WIDTH = 4;

export class SeriesQueue {
  /**
   * One array of numbers: most queues hold a value or two, and of tens of thousands of series each has one. Four columns of
   * their own would cost two kilobytes a series.
   */
  #cells: number[] = [];
  #head = 0;
  /** Values from the front, whatever their state. */
  length = 0;
  /** How many have left by the front since the start: position 0 of today stands at `popped`. */
  popped = 0;
  /** Values that may be posted live now. */
  waiting = 0;
  /** Values that wait to be flushed. */
  late = 0;
  /**
   * Arrivals of the series that no queue holds yet: those that may be posted live, and those that wait to be flushed; of each
   * the first in order of acceptance. `StoreState` counts them.
   */
  arrived = 0;
  arrivedSeq = 0;
  arrivedLate = 0;
  arrivedLateSeq = 0;
  /** No value before this position waits. */
  #firstWaiting = 0;

  push(timeMs: number, value: number, seq: number, flags: number, late: boolean): void {
    const marked = late ? flags | LATE : flags;
    // A queue is made for its first value: an array of just that one.
    if (this.#cells.length === 0) this.#cells = [timeMs, value, seq, marked];
    else {
      // What left by the front is given back when it is the larger half.
      if (this.#head > MAX_LEFT_BEHIND && this.#head > this.length) this.#closeUp();
      this.#cells.push(timeMs, value, seq, marked);
    }
    this.length++;
    if (late) this.late++;
    else this.waiting++;
  }

  #closeUp(): void {
    this.#cells = this.#cells.slice(this.#head * WIDTH);
    this.#head = 0;
  }

  #at(position: number): number {
    return (this.#head + position - this.popped) * WIDTH;
  }

  #flagsAt(position: number): number {
    return this.#cells[this.#at(position) + FLAGS]!;
  }

  /** Positions are absolute: they stay the same while the front moves on. */
  seqAt(position: number): number {
    return this.#cells[this.#at(position) + SEQ]!;
  }

  isWaiting(position: number): boolean {
    return (this.#flagsAt(position) & (STATE | LATE)) === 0;
  }

  isSettled(position: number): boolean {
    return (this.#flagsAt(position) & SETTLED) !== 0;
  }

  get end(): number {
    return this.popped + this.length;
  }

  /** The first position that waits for a live post, `end` where none does. */
  firstWaiting(): number {
    let position = Math.max(this.#firstWaiting, this.popped);
    const end = this.end;
    while (position < end && !this.isWaiting(position)) position++;
    this.#firstWaiting = position;
    return position;
  }

  /** How many values wait one behind the other from `position`, at most `max`. */
  runOfWaiting(position: number, max: number): number {
    const end = Math.min(this.end, position + max);
    let at = position;
    while (at < end && this.isWaiting(at)) at++;
    return at - position;
  }

  /** The first run from `position` of values older than `beforeMs` that are neither settled nor under way. */
  idleRun(position: number, beforeMs: number): { from: number; to: number } | undefined {
    const idle = (at: number) => (this.#flagsAt(at) & STATE) === 0 && this.#cells[this.#at(at) + TIME]! < beforeMs;
    const { end } = this;
    let from = Math.max(position, this.popped);
    while (from < end && !idle(from)) from++;
    if (from >= end) return undefined;
    let to = from + 1;
    while (to < end && idle(to)) to++;
    return { from, to };
  }

  /** Copies of the values from `position`: a batch keeps them whatever becomes of the queue. */
  copy(position: number, count: number): { timeMs: Float64Array; value: Float64Array; flags: Uint8Array } {
    const timeMs = new Float64Array(count);
    const value = new Float64Array(count);
    const flags = new Uint8Array(count);
    const cells = this.#cells;
    for (let i = 0, at = this.#at(position); i < count; i++, at += WIDTH) {
      timeMs[i] = cells[at + TIME]!;
      value[i] = cells[at + VALUE]!;
      flags[i] = cells[at + FLAGS]! & VALUE_FLAGS;
    }
    return { timeMs, value, flags };
  }

  /** Marks waiting values as under way. */
  send(position: number, count: number): void {
    const from = this.#at(position) + FLAGS;
    for (let at = from; at < from + count * WIDTH; at += WIDTH) this.#cells[at]! |= UNDER_WAY;
    this.waiting -= count;
  }

  /** Under way no longer; late where their time does not lie after `backlogTimeMs`. */
  giveBack(position: number, count: number, backlogTimeMs: number): void {
    const cells = this.#cells;
    const from = this.#at(position);
    for (let at = from; at < from + count * WIDTH; at += WIDTH) {
      const late = cells[at + TIME]! <= backlogTimeMs;
      cells[at + FLAGS] = (cells[at + FLAGS]! & VALUE_FLAGS) | (late ? LATE : 0);
      if (late) this.late++;
      else this.waiting++;
    }
    if (position < this.#firstWaiting) this.#firstWaiting = position;
  }

  /** Marks values as taken by the platform, whatever their state was. */
  settle(position: number, count: number): void {
    const cells = this.#cells;
    const from = this.#at(position) + FLAGS;
    for (let at = from; at < from + count * WIDTH; at += WIDTH) {
      this.#leaves(cells[at]!);
      cells[at] = (cells[at]! & ~STATE) | SETTLED;
    }
    let settled = 0;
    while (settled < this.length && (cells[(this.#head + settled) * WIDTH + FLAGS]! & SETTLED) !== 0) settled++;
    this.#pop(settled);
  }

  /** Takes away the first `count` values: they stand in segments now. */
  dropFront(count: number): void {
    for (let i = 0; i < count; i++) this.#leaves(this.#cells[(this.#head + i) * WIDTH + FLAGS]!);
    this.#pop(count);
  }

  /** A value with these flags waits no more. */
  #leaves(flags: number): void {
    if ((flags & STATE) !== 0) return;
    if ((flags & LATE) !== 0) this.late--;
    else this.waiting--;
  }

  #pop(count: number): void {
    this.#head += count;
    this.length -= count;
    this.popped += count;
    if (this.length > 0) return;
    this.#head = 0;
    this.#cells = [];
  }

  /** Decides anew which waiting values are late, after the series' backlog grew or ended. */
  markLate(backlogTimeMs: number): void {
    const cells = this.#cells;
    for (let i = this.#head; i < this.#head + this.length; i++) {
      const at = i * WIDTH;
      const flags = cells[at + FLAGS]!;
      if ((flags & STATE) !== 0) continue;
      const late = cells[at + TIME]! <= backlogTimeMs;
      if (late === ((flags & LATE) !== 0)) continue;
      cells[at + FLAGS] = late ? flags | LATE : flags & ~LATE;
      this.late += late ? 1 : -1;
      this.waiting += late ? -1 : 1;
    }
    this.#firstWaiting = this.popped;
  }

  /** How many values from the front were accepted at or before `seq`. */
  countThrough(seq: number): number {
    let low = this.#head;
    let high = this.#head + this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#cells[middle * WIDTH + SEQ]! <= seq) low = middle + 1;
      else high = middle;
    }
    return low - this.#head;
  }
}

/** Of every series without a value in the log; nothing is ever pushed into it. */
export const NO_QUEUE = new SeriesQueue();
