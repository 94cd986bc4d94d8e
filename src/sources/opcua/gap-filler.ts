/**
 * Fills gaps in the values of a server from its history, one page at a time and after the live values. A page and the
 * position after it are in one commit.
 */
import type { Clock } from '../../base/clock.ts';
import { STATUS_FLAGS, ValueColumns } from '../../buffer/format/value-columns.ts';
import type { HistoryPage, HistorySpan } from '../../opcua/protocol.ts';
import { isValidTime } from '../intake/draft.ts';
import type { Gate, Quality } from '../intake/gate.ts';
import { isSent, type LastSent, type RawReading, shape } from '../intake/shaping.ts';
import type { Point } from '../points.ts';
import { itemOf, type OpcuaValue, QUALITIES } from './reader-program.ts';
import type { Gap, ReadingPositions } from './reading-positions.ts';

interface FillerOptions {
  positions: ReadingPositions;
  gate: Gate;
  clock: Clock;
  /** Longest part of a gap that is filled: its end. */
  maxSpanMs: number;
  pointOf(item: number): Point<OpcuaValue> | undefined;
  /** Rejects without a connection. */
  readPage(span: HistorySpan, signal: AbortSignal): Promise<HistoryPage>;
  /** Called when all gaps are filled. */
  filled(filled: Filled): void;
  /** Values between the two times are missing. */
  missing(point: Point<OpcuaValue>, gap: Readonly<Gap>, why: string): void;
}

export interface Filled {
  values: number;
  gaps: number;
  fromMs: number;
  untilMs: number;
}

/** Maximum number of past values that are not on disk yet. */
const MAX_UNSTORED = 10_000;
/** Maximum number of failed requests per gap, for example because a page ends the connection. */
const MAX_ATTEMPTS = 3;
const RETRY_MS = 5_000;
const TOO_LONG = 'the gap is longer than history:';
const NO_HISTORY = 'there is no history of this value';

export class GapFiller {
  readonly #options: FillerOptions;
  #isReady = false;
  #wake = Promise.withResolvers<void>();
  #filled: Filled | undefined;
  #unstored = 0;

  constructor(options: FillerOptions) {
    this.#options = options;
  }

  /** The connection can be used, and the items with history are known. */
  resume(): void {
    this.#isReady = true;
    this.wake();
  }

  pause(): void {
    this.#isReady = false;
  }

  /** A gap was opened. */
  wake(): void {
    this.#wake.resolve();
    this.#wake = Promise.withResolvers();
  }

  /** Fills gaps until the signal; then rejects. */
  async run(signal: AbortSignal): Promise<never> {
    const { positions } = this.#options;
    signal.addEventListener('abort', () => this.wake(), { once: true });
    for (;;) {
      signal.throwIfAborted();
      const gap = this.#isReady ? positions.nextGap() : undefined;
      if (gap === undefined) {
        if (this.#isReady) this.#reportFilled();
        await this.#wake.promise;
        continue;
      }
      const why = positions.hasHistory(gap.item) ? await this.#fill(gap, signal) : NO_HISTORY;
      signal.throwIfAborted();
      this.#end(gap, why);
    }
  }

  /** Returns why a gap cannot be filled. */
  async #fill(gap: Gap, signal: AbortSignal): Promise<string | undefined> {
    const { pointOf, maxSpanMs, positions, clock, missing } = this.#options;
    const point = pointOf(gap.item);
    if (point === undefined) return undefined;
    if (gap.untilMs - gap.fromMs > maxSpanMs) {
      const fromMs = gap.untilMs - maxSpanMs;
      missing(point, { ...gap, untilMs: fromMs }, TOO_LONG);
      positions.narrow(gap, fromMs);
    }
    for (let attempt = 1; ; attempt++) {
      const { fromMs } = gap;
      try {
        return await this.#fillOnce(gap, point, signal);
      } catch (error) {
        signal.throwIfAborted();
        if (gap.fromMs > fromMs) attempt = 1;
        if (attempt === MAX_ATTEMPTS) return error instanceof Error ? error.message : String(error);
        await clock.sleep(RETRY_MS, signal);
        while (!this.#isReady) {
          await this.#wake.promise;
          signal.throwIfAborted();
        }
      }
    }
  }

  /** Continues after the last stored value. Rejects if a request fails. */
  async #fillOnce(gap: Gap, point: Point<OpcuaValue>, signal: AbortSignal): Promise<string | undefined> {
    const { readPage } = this.#options;
    const shaper = new PastShaper(point);
    const { fromMs, untilMs } = gap;
    let next: string | undefined;
    do {
      const span = { item: itemOf(point), fromMs, untilMs, ...(next === undefined ? {} : { point: next }) };
      const { past, point: after, problem } = await readPage(span, signal);
      // A continuation point is valid only in its session.
      if (problem !== undefined && next !== undefined) throw new Error(problem);
      if (problem !== undefined) return problem;
      const columns = new ValueColumns(past.length);
      let latestMs = gap.fromMs;
      for (const [raw, timeMs, status] of past) {
        // A second value with the same time would replace the first.
        if (raw === null || timeMs === null || timeMs <= latestMs || timeMs >= untilMs || !isValidTime(timeMs))
          continue;
        latestMs = timeMs;
        shaper.add(columns, raw, timeMs, QUALITIES[status]!);
      }
      if (latestMs > gap.fromMs) await this.#store(gap, latestMs, columns);
      next = after;
    } while (next !== undefined);
    return undefined;
  }

  /** Waits only while too many values are not on disk. */
  async #store(gap: Gap, latestMs: number, columns: ValueColumns): Promise<void> {
    const { gate, positions } = this.#options;
    const values = columns.length;
    this.#filled = combined(this.#filled, { values, gaps: 0, fromMs: gap.fromMs, untilMs: latestMs });
    positions.narrow(gap, latestMs);
    this.#unstored += values;
    const stored = gate.writePast(columns, positions.takeNotes()).finally(() => {
      this.#unstored -= values;
    });
    stored.catch(() => {});
    if (this.#unstored >= MAX_UNSTORED) await stored;
  }

  #end(gap: Gap, why: string | undefined): void {
    const { gate, positions, pointOf, missing } = this.#options;
    const point = pointOf(gap.item);
    positions.close(gap);
    gate.record([], positions.takeNotes());
    if (why === undefined) {
      if (this.#filled) this.#filled.gaps++;
    } else if (point !== undefined) missing(point, gap, why);
  }

  #reportFilled(): void {
    if (this.#filled) this.#options.filled(this.#filled);
    this.#filled = undefined;
  }
}

/** Applies the settings of a value to its past readings, independently of the live ones. */
class PastShaper {
  readonly #point: Point;
  #sent: LastSent | undefined;

  constructor(point: Point) {
    this.#point = point;
  }

  add(columns: ValueColumns, raw: RawReading, timeMs: number, quality: Quality): void {
    const { shaping, series } = this.#point;
    const shaped = shape(raw, this.#point);
    if ('problem' in shaped) return;
    const { value } = shaped;
    const isBad = quality === 'bad';
    if (!isSent(shaping, this.#sent, value, isBad, timeMs)) return;
    this.#sent = { value, isBad, atMs: timeMs };
    columns.add(series, timeMs, value, STATUS_FLAGS[quality]);
  }
}

function combined(filled: Filled | undefined, more: Filled): Filled {
  if (filled === undefined) return more;
  const { values, gaps, fromMs, untilMs } = filled;
  return {
    values: values + more.values,
    gaps,
    fromMs: Math.min(fromMs, more.fromMs),
    untilMs: Math.max(untilMs, more.untilMs),
  };
}
