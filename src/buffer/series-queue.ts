/**
 * The values of one series that still stand in the log, decoded, in order of acceptance. The log is what survives;
 * the queue is what posts are made of while the values are fresh. Folding moves its front into segments, so it stays
 * as short as the log.
 */

/** Bits of a queue's flags above those of `ValueColumns`. */
/** Its time does not lie after all of the series' backlog, so it must follow the backlog: it waits to be folded. */
const LATE = 8;
const UNDER_WAY = 16;
const SETTLED = 32;
const STATE = UNDER_WAY | SETTLED;
/** What a value came with. */
export const VALUE_FLAGS = 7;

const FIRST_ROOM = 16;

export class SeriesQueue {
  #times = new Float64Array(FIRST_ROOM);
  #values = new Float64Array(FIRST_ROOM);
  #seqs = new Float64Array(FIRST_ROOM);
  #flags = new Uint8Array(FIRST_ROOM);
  #head = 0;
  /** Values from the front, whatever their state. */
  length = 0;
  /** How many have left by the front since the start: position 0 of today stands at `popped`. */
  popped = 0;
  /** Values that may be posted live now. */
  waiting = 0;
  /** Values that wait to be folded. */
  late = 0;
  /** No value before this position waits. */
  #firstWaiting = 0;

  push(timeMs: number, value: number, seq: number, flags: number, late: boolean): void {
    let at = this.#head + this.length;
    if (at === this.#flags.length) at = this.#makeRoom();
    this.#times[at] = timeMs;
    this.#values[at] = value;
    this.#seqs[at] = seq;
    this.#flags[at] = late ? flags | LATE : flags;
    this.length++;
    if (late) this.late++;
    else this.waiting++;
  }

  #makeRoom(): number {
    const { length } = this;
    const from = this.#head;
    const room = length * 2 > this.#flags.length ? this.#flags.length * 2 : this.#flags.length;
    const move = <Column extends Float64Array | Uint8Array>(column: Column, to: Column): Column => {
      to.set(column.subarray(from, from + length));
      return to;
    };
    this.#times = move(this.#times, new Float64Array(room));
    this.#values = move(this.#values, new Float64Array(room));
    this.#seqs = move(this.#seqs, new Float64Array(room));
    this.#flags = move(this.#flags, new Uint8Array(room));
    this.#head = 0;
    return length;
  }

  /** Positions are absolute: they stay the same while the front moves on. */
  seqAt(position: number): number {
    return this.#seqs[this.#head + position - this.popped]!;
  }

  isWaiting(position: number): boolean {
    return (this.#flags[this.#head + position - this.popped]! & (STATE | LATE)) === 0;
  }

  isSettled(position: number): boolean {
    return (this.#flags[this.#head + position - this.popped]! & SETTLED) !== 0;
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

  /** How many values wait one behind the other from `position`, at most `most`. */
  runOfWaiting(position: number, most: number): number {
    const end = Math.min(this.end, position + most);
    let at = position;
    while (at < end && this.isWaiting(at)) at++;
    return at - position;
  }

  /** The first run from `position` of values older than `beforeMs` that are neither settled nor under way. */
  idleRun(position: number, beforeMs: number): { from: number; to: number } | undefined {
    const shift = this.#head - this.popped;
    const idle = (at: number) => (this.#flags[shift + at]! & STATE) === 0 && this.#times[shift + at]! < beforeMs;
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
    const from = this.#head + position - this.popped;
    const flags = this.#flags.slice(from, from + count);
    for (let i = 0; i < count; i++) flags[i]! &= VALUE_FLAGS;
    return { timeMs: this.#times.slice(from, from + count), value: this.#values.slice(from, from + count), flags };
  }

  /** Marks waiting values as under way. */
  send(position: number, count: number): void {
    const from = this.#head + position - this.popped;
    for (let at = from; at < from + count; at++) this.#flags[at]! |= UNDER_WAY;
    this.waiting -= count;
  }

  /** Under way no longer; late where their time does not lie after `backlogTimeMs`. */
  giveBack(position: number, count: number, backlogTimeMs: number): void {
    const from = this.#head + position - this.popped;
    for (let at = from; at < from + count; at++) {
      const late = this.#times[at]! <= backlogTimeMs;
      this.#flags[at] = (this.#flags[at]! & VALUE_FLAGS) | (late ? LATE : 0);
      if (late) this.late++;
      else this.waiting++;
    }
    if (position < this.#firstWaiting) this.#firstWaiting = position;
  }

  /** Marks values as taken by the platform, whatever their state was. */
  settle(position: number, count: number): void {
    const from = this.#head + position - this.popped;
    for (let at = from; at < from + count; at++) {
      const flags = this.#flags[at]!;
      if ((flags & STATE) === 0) {
        if ((flags & LATE) !== 0) this.late--;
        else this.waiting--;
      }
      this.#flags[at] = (flags & ~STATE) | SETTLED;
    }
    while (this.length > 0 && (this.#flags[this.#head]! & SETTLED) !== 0) this.#pop(1);
  }

  /** Takes away the first `count` values: they stand in segments now. */
  dropFront(count: number): void {
    for (let at = this.#head; at < this.#head + count; at++) {
      const flags = this.#flags[at]!;
      if ((flags & STATE) !== 0) continue;
      if ((flags & LATE) !== 0) this.late--;
      else this.waiting--;
    }
    this.#pop(count);
  }

  #pop(count: number): void {
    this.#head += count;
    this.length -= count;
    this.popped += count;
    if (this.length === 0) {
      this.#head = 0;
      // What a burst made large is given back once it has passed.
      if (this.#flags.length > 1024) this.#shrink();
    }
  }

  #shrink(): void {
    this.#times = new Float64Array(FIRST_ROOM);
    this.#values = new Float64Array(FIRST_ROOM);
    this.#seqs = new Float64Array(FIRST_ROOM);
    this.#flags = new Uint8Array(FIRST_ROOM);
  }

  /** Decides anew which waiting values are late, after the series' backlog grew or ended. */
  markLate(backlogTimeMs: number): void {
    for (let at = this.#head; at < this.#head + this.length; at++) {
      const flags = this.#flags[at]!;
      if ((flags & STATE) !== 0) continue;
      const late = this.#times[at]! <= backlogTimeMs;
      if (late === ((flags & LATE) !== 0)) continue;
      this.#flags[at] = late ? flags | LATE : flags & ~LATE;
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
      if (this.#seqs[middle]! <= seq) low = middle + 1;
      else high = middle;
    }
    return low - this.#head;
  }
}
