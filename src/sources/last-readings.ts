/**
 * The last reading of every value that tags.yaml names, and its last two dozen, for people who look. Nothing is kept of what programs
 * push by asset: there is no end to that. Some 140 bytes a value; a restart forgets it.
 */
import { type Columns, STATUS_FLAGS, STATUS_MASK } from '../buffer/format/value-columns.ts';
import { ReadingTrace } from './reading-trace.ts';

export interface LastReading {
  value: number;
  /** Before it was scaled; NaN where it came as it is. */
  raw: number;
  /** Its own time, or NaN where it has that of its arrival. */
  timeMs: number;
  /** Monotonic. */
  takenMs: number;
  isBad: boolean;
}

/** Of the small line beside each value. */
const LINE_READINGS = 24;
const FIRST_SLOTS = 64;
/** A viewer who goes from one view to another comes back within it. */
const KEEP_TRACE_MS = 60_000;

export class LastReadings {
  /** Whether a series is one of tags.yaml. */
  readonly #isOfTag: (series: number) => boolean;
  readonly #slots = new Map<number, number>();
  #values = new Float64Array(FIRST_SLOTS);
  #raws = new Float64Array(FIRST_SLOTS);
  #times = new Float64Array(FIRST_SLOTS);
  #taken = new Float64Array(FIRST_SLOTS);
  #bad = new Uint8Array(FIRST_SLOTS);
  /** Rings of readings, and how many each ever had. */
  #lines = new Float32Array(FIRST_SLOTS * LINE_READINGS);
  #counts = new Uint32Array(FIRST_SLOTS);
  readonly #traces = new Map<number, { trace: ReadingTrace; viewers: number; leftMs: number }>();

  constructor(isOfTag: (series: number) => boolean) {
    this.#isOfTag = isOfTag;
  }

  take(series: number, value: number, raw: number, timeMs: number, nowMs: number, isBad: boolean): void {
    const slot = this.#slots.get(series) ?? this.#open(series);
    if (slot < 0) return;
    this.#values[slot] = value;
    this.#raws[slot] = raw;
    this.#times[slot] = timeMs;
    this.#taken[slot] = nowMs;
    this.#bad[slot] = isBad ? 1 : 0;
    this.#lines[slot * LINE_READINGS + (this.#counts[slot]!++ % LINE_READINGS)] = value;
    if (this.#traces.size > 0) this.#traces.get(series)?.trace.add(nowMs, value);
  }

  /** Values as they are sent. */
  takeAll({ length, series, value, timeMs, flags }: Columns, nowMs: number): void {
    for (let at = 0; at < length; at++) {
      const isBad = (flags[at]! & STATUS_MASK) === STATUS_FLAGS.bad;
      this.take(series[at]!, value[at]!, Number.NaN, timeMs[at]!, nowMs, isBad);
    }
  }

  of(series: number): LastReading | undefined {
    const slot = this.#slots.get(series);
    if (slot === undefined) return undefined;
    return {
      value: this.#values[slot]!,
      raw: this.#raws[slot]!,
      timeMs: this.#times[slot]!,
      takenMs: this.#taken[slot]!,
      isBad: this.#bad[slot] === 1,
    };
  }

  /** When its last reading was taken, monotonic; -Infinity where there is none. */
  takenMs(series: number): number {
    const slot = this.#slots.get(series);
    return slot === undefined ? Number.NEGATIVE_INFINITY : this.#taken[slot]!;
  }

  /** Its last readings, oldest first. */
  line(series: number): number[] {
    const slot = this.#slots.get(series);
    if (slot === undefined) return [];
    const count = this.#counts[slot]!;
    const length = Math.min(count, LINE_READINGS);
    return Array.from(
      { length },
      (_, at) => this.#lines[slot * LINE_READINGS + ((count - length + at) % LINE_READINGS)]!,
    );
  }

  /** Somebody looks at one series: its last hour is kept from now on. Call the result when they do not any more. */
  watch(series: number, nowMs: number): { trace: ReadingTrace; end(nowMs: number): void } {
    for (const [other, { viewers, leftMs }] of this.#traces)
      if (viewers === 0 && nowMs - leftMs > KEEP_TRACE_MS) this.#traces.delete(other);
    const watched = this.#traces.get(series) ?? { trace: new ReadingTrace(), viewers: 0, leftMs: 0 };
    this.#traces.set(series, watched);
    watched.viewers++;
    return {
      trace: watched.trace,
      end: (leftMs) => {
        watched.viewers--;
        watched.leftMs = leftMs;
      },
    };
  }

  /** Series of which the last hour is kept. */
  get traces(): number {
    return this.#traces.size;
  }

  /** After a reload: numbers that no tag has may stand for other series by and by. */
  forgetOthers(): void {
    const kept = [...this.#slots].filter(([series]) => this.#isOfTag(series));
    const before = { values: this.#values, raws: this.#raws, times: this.#times, taken: this.#taken, bad: this.#bad };
    const [lines, counts] = [this.#lines, this.#counts];
    this.#slots.clear();
    this.#resize(Math.max(FIRST_SLOTS, kept.length));
    for (const [at, [series, slot]] of kept.entries()) {
      this.#slots.set(series, at);
      this.#values[at] = before.values[slot]!;
      this.#raws[at] = before.raws[slot]!;
      this.#times[at] = before.times[slot]!;
      this.#taken[at] = before.taken[slot]!;
      this.#bad[at] = before.bad[slot]!;
      this.#counts[at] = counts[slot]!;
      this.#lines.set(lines.subarray(slot * LINE_READINGS, (slot + 1) * LINE_READINGS), at * LINE_READINGS);
    }
  }

  #open(series: number): number {
    if (!this.#isOfTag(series)) return -1;
    const slot = this.#slots.size;
    if (slot === this.#values.length) this.#resize(slot * 2);
    this.#slots.set(series, slot);
    return slot;
  }

  #resize(slots: number): void {
    const longer = <Column extends Float64Array | Float32Array | Uint32Array | Uint8Array>(
      from: Column,
      into: Column,
    ) => {
      into.set(from.subarray(0, into.length));
      return into;
    };
    this.#values = longer(this.#values, new Float64Array(slots));
    this.#raws = longer(this.#raws, new Float64Array(slots));
    this.#times = longer(this.#times, new Float64Array(slots));
    this.#taken = longer(this.#taken, new Float64Array(slots));
    this.#bad = longer(this.#bad, new Uint8Array(slots));
    this.#lines = longer(this.#lines, new Float32Array(slots * LINE_READINGS));
    this.#counts = longer(this.#counts, new Uint32Array(slots));
  }
}
