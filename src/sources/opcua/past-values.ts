/**
 * Fills gaps in the values of a server from its history, after the live values. The time of the latest stored value of
 * each item with history, and its gaps, are in one note that is written with the values. After a kill -9, gaps are
 * therefore filled completely.
 *
 *   latest ──── subscription lost ──── first value of the next one ──► gap (latest, first) ──► filled page by page
 */
import { messageOf } from '../../base/errors.ts';
import { STATUS_FLAGS, ValueColumns } from '../../buffer/format/value-columns.ts';
import type { HistoryPage, HistorySpan } from '../../opcua/protocol.ts';
import type { Quality } from '../intake/gate.ts';
import { isSent, type LastSent, shape } from '../intake/shaping.ts';
import type { Point } from '../points.ts';
import type { SourceContext } from '../source-kind.ts';
import type { OpcuaSpec, OpcuaValue } from './reader-process.ts';

/** By severity of a status code. */
export const QUALITIES: readonly Quality[] = ['good', 'uncertain', 'bad'];

/** Interval between searches for gaps. */
const CHECK_MS = 1_000;
/** Maximum number of failed requests per gap, for example because a page ends the connection. */
const MAX_ATTEMPTS = 3;
/** Maximum number of gaps per item. */
const MAX_GAPS = 8;
/** Maximum number of past values that are not on disk yet. */
const MAX_UNSTORED = 10_000;

/** Values between the two times, both exclusive, are missing. */
export interface Gap {
  readonly item: number;
  fromMs: number;
  untilMs: number;
  attempts: number;
}

/** Result of filling. */
export interface Filled {
  values: number;
  gaps: number;
  fromMs: number;
  untilMs: number;
}

/** Milliseconds before the time of the note: the latest value, then both ends of each gap. `null`: no history. */
type StoredItem = number[] | null;

interface PastOptions {
  context(): SourceContext<OpcuaSpec, OpcuaValue>;
  /** Rejects without a connection. */
  readPage(item: number, span: Omit<HistorySpan, 'item'>, signal: AbortSignal): Promise<HistoryPage>;
  /** Writes columns with the current note. */
  store(columns: ValueColumns): Promise<void>;
  filled(filled: Filled): void;
  missing(gap: Gap, why: string): void;
}

export class PastValues {
  readonly #options: PastOptions;
  /** Time of the latest value of each item. */
  readonly #latest = new Map<number, number>();
  readonly #gaps = new Set<Gap>();
  #history = new Set<number>();
  /** Items whose next value ends a gap. */
  #expected = new Set<number>();
  #isConnected = false;
  #filled: Filled | undefined;
  #unstored = 0;

  /** `stored`: as returned by `toJSON`, one entry per item; `undefined` for an item that was not stored. */
  constructor(options: PastOptions, baseMs: number, stored: readonly (StoredItem | undefined)[]) {
    this.#options = options;
    for (const [item, entry] of stored.entries()) {
      if (entry === undefined || entry === null) continue;
      const [latestMs, ...ends] = entry.map((beforeMs) => baseMs - beforeMs);
      this.#latest.set(item, latestMs!);
      this.#history.add(item);
      for (let end = 0; end < ends.length; end += 2)
        this.#gaps.add({ item, fromMs: ends[end]!, untilMs: ends[end + 1]!, attempts: 0 });
    }
  }

  /** Returns the latest time of all items, and the other times relative to it. */
  toJSON(): { baseMs: number; times: StoredItem[] } {
    const { length } = this.#history.size === 0 ? [] : this.#options.context().points;
    let baseMs = 0;
    for (const item of this.#history) baseMs = Math.max(baseMs, this.#latest.get(item) ?? 0);
    const times = Array.from({ length }, (_, item): StoredItem => {
      const latestMs = this.#history.has(item) ? this.#latest.get(item) : undefined;
      if (latestMs === undefined) return null;
      return [baseMs - latestMs];
    });
    for (const { item, fromMs, untilMs } of this.#gaps) times[item]?.push(baseMs - fromMs, baseMs - untilMs);
    return { baseMs, times };
  }

  /** The connection can be used. `items`: those whose history can be read. */
  resume(items: readonly number[]): void {
    this.#history = new Set(items.filter((item) => this.#isUsed(item)));
    this.#isConnected = true;
  }

  pause(): void {
    this.#isConnected = false;
  }

  get hasAll(): boolean {
    return this.#history.size === this.#options.context().points.length;
  }

  /** A status trigger reports only some of the values in the history; arrival times differ from those in the history. */
  #isUsed(item: number): boolean {
    const { source, points } = this.#options.context();
    return source.spec.historyMs > 0 && source.timeFrom === 'source' && points[item]?.spec.trigger !== 'status';
  }

  /** Values of all items may be missing: the next value of each item ends a gap. */
  expectGaps(): void {
    this.#expected = new Set(this.#latest.keys());
  }

  /**
   * Records the time of a live value. `isAfterGap`: the server discarded values before it. Returns whether the value is
   * new: a subscription begins with the current values, and a change of value or status has a new time (OPC 10000-4,
   * 7.11.3).
   */
  record(item: number, timeMs: number, isAfterGap: boolean): boolean {
    const latestMs = this.#latest.get(item);
    const isExpected = this.#expected.delete(item);
    if (latestMs !== undefined && timeMs <= latestMs) return !isExpected || timeMs < latestMs;
    this.#latest.set(item, timeMs);
    if (latestMs === undefined || timeMs - latestMs <= 1 || !(isExpected || isAfterGap)) return true;
    const gaps = [...this.#gaps].filter((gap) => gap.item === item);
    if (gaps.length < MAX_GAPS) this.#gaps.add({ item, fromMs: latestMs, untilMs: timeMs, attempts: 0 });
    // The last gap is then filled together with the values between the two.
    else gaps.at(-1)!.untilMs = timeMs;
    return true;
  }

  /** Fills gaps until the signal; then rejects. */
  async run(signal: AbortSignal): Promise<never> {
    const { context, filled } = this.#options;
    for (;;) {
      await context().clock.sleep(CHECK_MS, signal);
      for (const gap of this.#gaps) if (this.#isConnected) await this.#fill(gap, signal);
      if (this.#filled === undefined || this.#gaps.size > 0) continue;
      filled(this.#filled);
      this.#filled = undefined;
    }
  }

  async #fill(gap: Gap, signal: AbortSignal): Promise<void> {
    const { context, missing, store } = this.#options;
    const { item, untilMs } = gap;
    const earliestMs = untilMs - context().source.spec.historyMs;
    let why: string | undefined;
    try {
      if (!this.#history.has(item)) why = 'there is no history of this value';
      else if (gap.fromMs < earliestMs) {
        missing({ ...gap, untilMs: earliestMs }, 'the gap is longer than history:');
        gap.fromMs = earliestMs;
      }
      why ??= await this.#readPages(gap, untilMs, signal);
    } catch (error) {
      signal.throwIfAborted();
      gap.attempts++;
      if (gap.attempts < MAX_ATTEMPTS) return;
      why = messageOf(error);
    }
    if (why !== undefined) missing(gap, why);
    else if (this.#filled) this.#filled.gaps++;
    if (gap.untilMs === untilMs) this.#gaps.delete(gap);
    else gap.fromMs = untilMs;
    store(new ValueColumns(0)).catch(() => {});
  }

  /** Returns why the gap cannot be filled. Continues after the last stored value. Rejects if a request fails. */
  async #readPages(gap: Gap, untilMs: number, signal: AbortSignal): Promise<string | undefined> {
    const { readPage, context } = this.#options;
    const { item } = gap;
    let sent: LastSent | undefined;
    let span: Omit<HistorySpan, 'item'> = { fromMs: gap.fromMs, untilMs };
    for (;;) {
      const { past, point, problem } = await readPage(item, span, signal);
      // A continuation point is valid only in its session.
      if (problem !== undefined && span.point !== undefined) throw new Error(problem);
      if (problem !== undefined) return problem;
      const columns = new ValueColumns(past.length);
      const { fromMs } = gap;
      for (const [raw, timeMs, status] of past) {
        // A second value with the same time would replace the first.
        if (raw === null || timeMs === null || timeMs <= gap.fromMs || timeMs >= untilMs) continue;
        if (context().gate.rejectsPast(context().points[item]!, timeMs)) continue;
        gap.fromMs = timeMs;
        gap.attempts = 0;
        sent = addShaped(columns, context().points[item]!, sent, { raw, timeMs, quality: QUALITIES[status]! });
      }
      if (gap.fromMs > fromMs) await this.#store(columns, fromMs, gap.fromMs);
      if (point === undefined) return undefined;
      span = { ...span, point };
    }
  }

  /** Waits only while too many values are not on disk. */
  async #store(columns: ValueColumns, fromMs: number, untilMs: number): Promise<void> {
    const { length } = columns;
    this.#filled ??= { values: 0, gaps: 0, fromMs, untilMs };
    this.#filled.values += length;
    this.#filled.fromMs = Math.min(this.#filled.fromMs, fromMs);
    this.#filled.untilMs = Math.max(this.#filled.untilMs, untilMs);
    this.#unstored += length;
    const stored = this.#options.store(columns).finally(() => {
      this.#unstored -= length;
    });
    stored.catch(() => {});
    if (this.#unstored >= MAX_UNSTORED) await stored;
  }
}

interface PastReading {
  raw: number | string | boolean;
  timeMs: number;
  quality: Quality;
}

/** Applies the settings of a value to a past reading, independently of the live ones. Returns the latest sent value. */
function addShaped(columns: ValueColumns, point: Point, sent: LastSent | undefined, reading: PastReading) {
  const shaped = shape(reading.raw, point);
  if ('problem' in shaped) return sent;
  const { value } = shaped;
  const isBad = reading.quality === 'bad';
  if (!isSent(point.shaping, sent, value, isBad, reading.timeMs)) return sent;
  columns.add(point.series, reading.timeMs, value, STATUS_FLAGS[reading.quality]);
  return { value, isBad, atMs: reading.timeMs };
}
