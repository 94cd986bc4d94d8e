/**
 * Stores the most recent readings of every value in tags.yaml, for display. Values that programs push by asset are not
 * recorded, because their number is unlimited. Uses about 400 bytes of memory per value; nothing is written to disk.
 */
import { type Columns, STATUS_FLAGS, STATUS_MASK } from '../../buffer/format/value-columns.ts';
import type { ReadingRecorder } from '../../sources/intake/gate.ts';

export interface LastReading {
  value: number;
  /** Value before scaling; NaN if it is not scaled. */
  raw: number;
  /** Timestamp of the value; NaN if the arrival time is used. */
  timeMs: number;
  /** Monotonic arrival time. */
  takenMs: number;
  isBad: boolean;
}

/** Number of readings in a value's sparkline. */
const SPARKLINE_READINGS = 24;
/** Maximum number of traces. If there are more, the one that was requested least recently is discarded. */
const MAX_TRACES = 20;
/** Retention of a trace that is not requested, which allows a viewer to switch between views and tabs. */
const KEEP_TRACE_MS = 15 * 60_000;

interface Recorded extends LastReading {
  /** Ring buffer of recent readings. */
  readonly sparkline: Float32Array;
  /** Total number of recorded readings, from which the ring buffer position is derived. */
  count: number;
}

export class LastReadings implements ReadingRecorder {
  /** Returns whether tags.yaml contains a series. */
  readonly #isOfTag: (series: number) => boolean;
  readonly #recorded = new Map<number, Recorded>();
  readonly #traces = new Map<number, { trace: ReadingTrace; requestedMs: number }>();

  constructor(isOfTag: (series: number) => boolean) {
    this.#isOfTag = isOfTag;
  }

  record(series: number, value: number, raw: number, timeMs: number, nowMs: number, isBad: boolean): void {
    const recorded = this.#recorded.get(series) ?? this.#open(series);
    if (recorded === undefined) return;
    recorded.value = value;
    recorded.raw = raw;
    recorded.timeMs = timeMs;
    recorded.takenMs = nowMs;
    recorded.isBad = isBad;
    recorded.sparkline[recorded.count++ % SPARKLINE_READINGS] = value;
    if (this.#traces.size > 0) this.#traces.get(series)?.trace.add(nowMs, value);
  }

  /** Records values in the form in which they are sent. */
  recordAll({ length, series, value, timeMs, flags }: Columns, nowMs: number): void {
    for (let at = 0; at < length; at++) {
      const isBad = (flags[at]! & STATUS_MASK) === STATUS_FLAGS.bad;
      this.record(series[at]!, value[at]!, Number.NaN, timeMs[at]!, nowMs, isBad);
    }
  }

  of(series: number): Readonly<LastReading> | undefined {
    return this.#recorded.get(series);
  }

  /** Returns the latest readings, oldest first. */
  sparkline(series: number): number[] {
    const { sparkline, count } = this.#recorded.get(series) ?? { sparkline: [], count: 0 };
    const length = Math.min(count, SPARKLINE_READINGS);
    return Array.from({ length }, (_, at) => sparkline[(count - length + at) % SPARKLINE_READINGS]!);
  }

  /** Returns the trace of a series, which is recorded from the first call on. */
  trace(series: number, nowMs: number): ReadingTrace {
    const trace = this.#traces.get(series)?.trace ?? new ReadingTrace();
    // The map is in the order of the requests.
    this.#traces.delete(series);
    this.#traces.set(series, { trace, requestedMs: nowMs });
    for (const [oldest, { requestedMs }] of this.#traces) {
      if (this.#traces.size <= MAX_TRACES && nowMs - requestedMs <= KEEP_TRACE_MS) break;
      this.#traces.delete(oldest);
    }
    return trace;
  }

  /** Number of series whose last hour is recorded. */
  get traces(): number {
    return this.#traces.size;
  }

  #open(series: number): Recorded | undefined {
    if (!this.#isOfTag(series)) return undefined;
    const sparkline = new Float32Array(SPARKLINE_READINGS);
    const recorded = { value: 0, raw: 0, timeMs: 0, takenMs: 0, isBad: false, sparkline, count: 0 };
    this.#recorded.set(series, recorded);
    return recorded;
  }
}

/**
 * Number of rows in a trace, which covers at least the last hour of a viewed series. Each row contains one second with
 * readings: the time and the latest, smallest and largest value. A trace uses at most 115 kB at any reading rate.
 */
const ROWS = 3_600;
const SECOND_MS = 1_000;

/** Monotonic time in milliseconds, and the latest, smallest and largest value of one second. */
export type TraceRow = readonly [atMs: number, last: number, low: number, high: number];

export class ReadingTrace {
  readonly #rows = new Float64Array(ROWS * 4);
  /** Total number of rows started. */
  #count = 0;

  add(nowMs: number, value: number): void {
    const rows = this.#rows;
    const second = Math.floor(nowMs / SECOND_MS) * SECOND_MS;
    let at = ((this.#count - 1) % ROWS) * 4;
    if (this.#count > 0 && rows[at] === second) {
      rows[at + 1] = value;
      rows[at + 2] = Math.min(rows[at + 2]!, value);
      rows[at + 3] = Math.max(rows[at + 3]!, value);
      return;
    }
    at = (this.#count++ % ROWS) * 4;
    rows.set([second, value, value, value], at);
  }

  /** Returns the rows starting at this monotonic time, oldest first. */
  since(fromMs: number): TraceRow[] {
    const found: TraceRow[] = [];
    for (let row = this.#count - 1; row >= Math.max(0, this.#count - ROWS); row--) {
      const at = (row % ROWS) * 4;
      const [time, last, low, high] = this.#rows.subarray(at, at + 4) as unknown as [number, number, number, number];
      if (time < fromMs) break;
      found.push([time, last, low, high]);
    }
    return found.reverse();
  }
}
