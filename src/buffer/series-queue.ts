/**
 * Decoded, unsettled values of one series in the log, in order of acceptance. The log on disk survives a crash; live
 * posts are created from the queue. A flush moves its front into segments, so the queue is never longer than the log.
 */

/**
 * Bits above the flags of `ValueColumns`. Late: the timestamp is not later than the series' backlog, so the value must
 * be posted after the backlog, following a flush.
 */
const LATE = 8;
const IN_FLIGHT = 16;
const SETTLED = 32;
const STATE = IN_FLIGHT | SETTLED;
/** Bits used by `ValueColumns`. */
const VALUE_FLAGS = 7;

/** Maximum number of values before the front whose cells may be unused. */
const MAX_UNUSED = 64;
/** Cells of a value: time, value, sequence number, flags. */
const TIME = 0;
const VALUE = 1;
const SEQ = 2;
const FLAGS = 3;
const WIDTH = 4;

export class SeriesQueue {
  /**
   * A single array of numbers, because most queues contain one or two values and there are tens of thousands of queues.
   * Four typed arrays would require two kilobytes per series.
   */
  #cells: number[] = [];
  #head = 0;
  #length = 0;
  #popped = 0;
  #waiting = 0;
  #late = 0;
  /**
   * Number and first sequence number of arrivals that are not in the queue yet: those that can be posted live, and late
   * ones.
   */
  #arrivals = { live: 0, liveSeq: 0, late: 0, lateSeq: 0 };
  /** Position before which no value is waiting. */
  #firstWaiting = 0;

  /** Number of values in the queue, in any state. */
  get length(): number {
    return this.#length;
  }

  /** Number of values that have been removed from the front, which is the absolute position of the first value. */
  get popped(): number {
    return this.#popped;
  }

  /** Number of values in the queue that can be posted live now. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Number of values that can be posted live, including arrivals. */
  get live(): number {
    return this.#waiting + this.#arrivals.live;
  }

  /** Number of values waiting for a flush, including arrivals. */
  get late(): number {
    return this.#late + this.#arrivals.late;
  }

  /** Sequence number of the first live value; undefined if `live` is 0. */
  get firstLiveSeq(): number | undefined {
    if (this.#waiting > 0) return this.seqAt(this.firstWaiting());
    return this.#arrivals.live > 0 ? this.#arrivals.liveSeq : undefined;
  }

  get isUnused(): boolean {
    return this.#length === 0 && this.#arrivals.live === 0 && this.#arrivals.late === 0;
  }

  /** Counts a committed value that is not in the queue yet. */
  noteArrival(seq: number, late: boolean): void {
    const arrivals = this.#arrivals;
    if (late) {
      if (arrivals.late++ === 0) arrivals.lateSeq = seq;
    } else if (arrivals.live++ === 0) arrivals.liveSeq = seq;
  }

  clearArrivals(): void {
    this.#arrivals.live = 0;
    this.#arrivals.late = 0;
  }

  push(timeMs: number, value: number, seq: number, flags: number, late: boolean): void {
    const marked = late ? flags | LATE : flags;
    // An array literal has the exact length, while an array that grows from empty reserves 17 slots.
    if (this.#cells.length === 0) this.#cells = [timeMs, value, seq, marked];
    else {
      // Reclaims the cells before the front once they are more than half of the array.
      if (this.#head > MAX_UNUSED && this.#head > this.#length) this.#compact();
      this.#cells.push(timeMs, value, seq, marked);
    }
    this.#length++;
    if (late) this.#late++;
    else this.#waiting++;
  }

  #compact(): void {
    this.#cells = this.#cells.slice(this.#head * WIDTH);
    this.#head = 0;
  }

  #at(position: number): number {
    return (this.#head + position - this.#popped) * WIDTH;
  }

  #flagsAt(position: number): number {
    return this.#cells[this.#at(position) + FLAGS]!;
  }

  /** Positions are absolute: they do not change when values are removed from the front. */
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
    return this.#popped + this.#length;
  }

  /** Returns the first position that is waiting for a live post, or `end`. */
  firstWaiting(): number {
    let position = Math.max(this.#firstWaiting, this.#popped);
    const end = this.end;
    while (position < end && !this.isWaiting(position)) position++;
    this.#firstWaiting = position;
    return position;
  }

  /** Returns the number of consecutive waiting values from `position`, at most `max`. */
  runOfWaiting(position: number, max: number): number {
    const end = Math.min(this.end, position + max);
    let at = position;
    while (at < end && this.isWaiting(at)) at++;
    return at - position;
  }

  /** Returns the first run from `position` of values older than `beforeMs` that are neither settled nor in flight. */
  idleRun(position: number, beforeMs: number): { from: number; to: number } | undefined {
    const idle = (at: number) => (this.#flagsAt(at) & STATE) === 0 && this.#cells[this.#at(at) + TIME]! < beforeMs;
    const { end } = this;
    let from = Math.max(position, this.#popped);
    while (from < end && !idle(from)) from++;
    if (from >= end) return undefined;
    let to = from + 1;
    while (to < end && idle(to)) to++;
    return { from, to };
  }

  /** Copies values from `position`, because a batch outlives the queue's cells. */
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

  /** Marks waiting values as in flight. */
  markInFlight(position: number, count: number): void {
    const from = this.#at(position) + FLAGS;
    for (let at = from; at < from + count * WIDTH; at += WIDTH) this.#cells[at]! |= IN_FLIGHT;
    this.#waiting -= count;
  }

  /** Marks values as no longer in flight; values not later than `backlogTimeMs` are late. */
  release(position: number, count: number, backlogTimeMs: number): void {
    const cells = this.#cells;
    const from = this.#at(position);
    for (let at = from; at < from + count * WIDTH; at += WIDTH) {
      const late = cells[at + TIME]! <= backlogTimeMs;
      cells[at + FLAGS] = (cells[at + FLAGS]! & VALUE_FLAGS) | (late ? LATE : 0);
      if (late) this.#late++;
      else this.#waiting++;
    }
    if (position < this.#firstWaiting) this.#firstWaiting = position;
  }

  /** Marks values as settled, in any state. */
  settle(position: number, count: number): void {
    const cells = this.#cells;
    const from = this.#at(position) + FLAGS;
    for (let at = from; at < from + count * WIDTH; at += WIDTH) {
      this.#uncount(cells[at]!);
      cells[at] = (cells[at]! & ~STATE) | SETTLED;
    }
    let settled = 0;
    while (settled < this.#length && (cells[(this.#head + settled) * WIDTH + FLAGS]! & SETTLED) !== 0) settled++;
    this.#pop(settled);
  }

  /** Removes the first `count` values, which are now in segments. */
  dropFront(count: number): void {
    for (let i = 0; i < count; i++) this.#uncount(this.#cells[(this.#head + i) * WIDTH + FLAGS]!);
    this.#pop(count);
  }

  /** Updates the counts for a value with these flags that is no longer waiting. */
  #uncount(flags: number): void {
    if ((flags & STATE) !== 0) return;
    if ((flags & LATE) !== 0) this.#late--;
    else this.#waiting--;
  }

  #pop(count: number): void {
    this.#head += count;
    this.#length -= count;
    this.#popped += count;
    if (this.#length > 0) return;
    this.#head = 0;
    this.#cells = [];
  }

  /** Updates which waiting values are late, after the series' backlog has grown or become empty (-Infinity). */
  markLate(backlogTimeMs: number): void {
    const arrivals = this.#arrivals;
    if (backlogTimeMs === Number.NEGATIVE_INFINITY && arrivals.late > 0) {
      arrivals.liveSeq = arrivals.live > 0 ? Math.min(arrivals.liveSeq, arrivals.lateSeq) : arrivals.lateSeq;
      arrivals.live += arrivals.late;
      arrivals.late = 0;
    }
    const cells = this.#cells;
    for (let i = this.#head; i < this.#head + this.#length; i++) {
      const at = i * WIDTH;
      const flags = cells[at + FLAGS]!;
      if ((flags & STATE) !== 0) continue;
      const late = cells[at + TIME]! <= backlogTimeMs;
      if (late === ((flags & LATE) !== 0)) continue;
      cells[at + FLAGS] = late ? flags | LATE : flags & ~LATE;
      this.#late += late ? 1 : -1;
      this.#waiting += late ? -1 : 1;
    }
    this.#firstWaiting = this.#popped;
  }

  /** Returns the number of values at the front with a sequence number up to `seq`. */
  countThrough(seq: number): number {
    let low = this.#head;
    let high = this.#head + this.#length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#cells[middle * WIDTH + SEQ]! <= seq) low = middle + 1;
      else high = middle;
    }
    return low - this.#head;
  }
}

/** Shared by all series without values in the log. It never contains values. */
export const NO_QUEUE = new SeriesQueue();
