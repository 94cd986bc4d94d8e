/**
 * Tracks which values of a source have arrived and which data could not be read, and logs data without values. Owned by
 * the source's gate.
 */
import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/logger.ts';
import type { STATUS_FLAGS } from '../../buffer/format/value-columns.ts';
import type { Point } from '../points.ts';
import type { RawReading } from './shaping.ts';
import { TroubleLog } from './trouble-log.ts';

/** Result of `sources test` for one value: the reading or the problem. */
export type TestedValue = { point: Point } & (
  | { raw: RawReading; timeMs?: number; quality?: keyof typeof STATUS_FLAGS }
  | { problem: string; hint?: string }
);

/** Data that arrived but could not be read. */
export interface Unread {
  /** Latest problem. */
  problem: string;
  count: number;
}

/** Data that arrived since the latest value without yielding one. */
export interface UnusableData {
  /** Number of readings, messages, lines or rows. */
  readings: number;
  /** Monotonic time of the first one. */
  sinceMs: number;
  /** Latest problem. */
  problem: string;
}

/** Data is reported as unusable after this time without a value. */
const UNUSABLE_MS = 15 * 60_000;
/** The same for a source that sends at least this many readings. */
const MANY_READINGS = 100;
const UNUSABLE_MANY_MS = 60_000;

export class Arrivals {
  readonly #source: string;
  readonly #clock: Clock;
  readonly #trouble: TroubleLog;
  readonly #arrived = new Set<number>();
  readonly #unread = new Map<number, Unread>();
  readonly #listeners = new Set<(result: TestedValue) => void>();
  #rejected: Unread | undefined;
  #notNumbers = 0;
  /** Series whose latest reading was not a number. */
  readonly #lastNotNumber = new Set<number>();
  /** Data that did not yield a value; `undefined` if the latest data did. */
  #useless: UnusableData | undefined;
  #isUnusable = false;

  constructor({ source, clock, log }: { source: string; clock: Clock; log: Logger }) {
    this.#source = source;
    this.#clock = clock;
    this.#trouble = new TroubleLog(log, clock, 'values');
  }

  /** Calls the listener for each reading and each unreadable value. Returns a function that removes the listener. */
  listen(listener: (result: TestedValue) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  get hasListeners(): boolean {
    return this.#listeners.size > 0;
  }

  notify(result: TestedValue): void {
    for (const listener of this.#listeners) listener(result);
  }

  note(series: number): void {
    this.#arrived.add(series);
    if (this.#unread.size > 0) this.#unread.delete(series);
    this.noteValues();
  }

  /** Records that data yielded values, none of which is configured for this source. */
  noteValues(): void {
    if (this.#useless !== undefined) this.#endUseless();
  }

  /** Records unreadable data for a value. */
  noteUnread(point: Point, problem: string): void {
    this.#unread.set(point.series, { problem, count: (this.#unread.get(point.series)?.count ?? 0) + 1 });
    this.#noteUseless(problem, 1);
    this.notify({ point, problem });
  }

  /** Number of readings that were not numbers and not in the map of their value. */
  get notNumbers(): number {
    return this.#notNumbers;
  }

  /** Records a reading without a number. */
  noteNotNumber({ series, name }: Point, error: string): void {
    this.#notNumbers++;
    this.#lastNotNumber.add(series);
    const fields = { source: this.#source, value: name, error };
    this.#trouble.report({ event: 'source.not_a_number', ...fields }, 'reading is not a number', name);
  }

  /** Records a reading with a number. */
  noteNumber({ series, name }: Point): void {
    this.note(series);
    if (this.#lastNotNumber.size === 0 || !this.#lastNotNumber.delete(series)) return;
    const fields = { source: this.#source, value: name };
    this.#trouble.recovered('source.not_a_number', fields, 'readings are numbers again', name);
  }

  /** Records lines or files that do not match a configured value. */
  reject(problem: string, count = 1): void {
    this.#rejected = { problem, count: (this.#rejected?.count ?? 0) + count };
    this.#noteUseless(problem, count);
  }

  /** Data that has not yielded a value for a long time; `undefined` if values arrive or no data does. */
  get unusable(): UnusableData | undefined {
    return this.#isUnusable ? this.#useless : undefined;
  }

  #noteUseless(problem: string, count: number): void {
    const nowMs = this.#clock.monotonicMs();
    const { sinceMs = nowMs, readings = 0 } = this.#useless ?? {};
    this.#useless = { readings: readings + count, sinceMs, problem };
    const limitMs = this.#useless.readings >= MANY_READINGS ? UNUSABLE_MANY_MS : UNUSABLE_MS;
    if (this.#isUnusable || nowMs - sinceMs < limitMs) return;
    this.#isUnusable = true;
    const fields = { source: this.#source, readings: this.#useless.readings, error: problem };
    this.#trouble.report({ event: 'source.unusable', ...fields }, 'source provides data but no values');
  }

  #endUseless(): void {
    this.#useless = undefined;
    if (!this.#isUnusable) return;
    this.#isUnusable = false;
    this.#trouble.recovered('source.unusable', { source: this.#source }, 'source provides values again');
  }

  get rejected(): Unread | undefined {
    return this.#rejected;
  }

  /** Returns whether a value has arrived since the source was opened. */
  has({ series }: Pick<Point, 'series'>): boolean {
    return this.#arrived.has(series);
  }

  /** Returns the data that could not be read since the latest reading of the value. */
  unreadOf({ series }: Pick<Point, 'series'>): Unread | undefined {
    return this.#unread.get(series);
  }
}
