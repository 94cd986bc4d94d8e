import type { SegmentReader } from '../batches/segment-reader.ts';
import type { ReadLeases } from '../read-leases.ts';
import type { StoreState } from '../state.ts';
import type { StepSize } from '../store-facts.ts';
import { Compaction } from './compaction.ts';
import { type Flush, rowsOfOneRun } from './flush.ts';

/** Deleting this many rows together greatly reduces the number of bytes written for the deletion. */
const ROWS_A_DELETION = 64;
/** Time for which the platform counts as available after values were settled. */
const ONLINE_MS = 15_000;
const MIN_PATIENCE_MS = 1_000;
const MAX_PATIENCE_MS = 100_000;
/** Packing takes 50 to 100 ns per value and a few microseconds per segment. Writing takes about the same time. */
const STEP_SIZE: StepSize = { values: 32 * 1024, segments: 512 };
/** After this many packed steps, the next step waits for a commit. */
const STEPS_A_COMMIT = 2;
/** Average segment size at which compaction is not worthwhile. */
const GOOD_SEGMENT_VALUES = 64;

interface FlushLimits {
  /** Age of log rows above which they are flushed. */
  flushAfterMs: number;
  /** Number of log values above which the log is flushed. */
  flushValues: number;
  stepSize?: StepSize;
}

/** Flush limits if disk space is low. */
export interface FlushSpace {
  /** Maximum number of values in the rows of one flush. */
  maxValues: number;
  /** Whether partly settled rows are flushed immediately to free the space of their settled values. */
  atOnce: boolean;
}

/** Background work between commits: flush, compaction, deletion of settled rows. */
export interface MaintenanceParts {
  state: StoreState;
  segments: SegmentReader;
  flush: Flush;
  readers: ReadLeases;
  limits: FlushLimits;
  /** Maximum number of values in the spans of one compaction. */
  maxGroupValues(): number;
}

export class Maintenance {
  readonly #parts: MaintenanceParts;
  #settledMs = Number.NEGATIVE_INFINITY;
  #compaction: Compaction | undefined;
  /** Value of `spanChanges` at the latest search for a compaction. */
  #spansLooked = 0;
  #noCompactionUntilMs = Number.NEGATIVE_INFINITY;

  constructor(parts: MaintenanceParts) {
    this.#parts = parts;
  }

  isDue(nowMs: number, room?: FlushSpace): boolean {
    // Wait until earlier steps are committed.
    if (room) return this.#parts.state.pending.newSpans.size === 0 && this.#rowsToFlush(nowMs, room) > 0;
    if (this.#hasPackedEnough()) return false;
    return this.#parts.flush.isRunning || this.#rowsDue(nowMs) > 0 || this.#mayCompact(nowMs);
  }

  #hasPackedEnough(): boolean {
    const { values, segments } = this.#stepSize;
    let packed = 0;
    for (const span of this.#parts.state.pending.newSpans) packed += span.values;
    return packed >= STEPS_A_COMMIT * values || this.#parts.state.pending.segments.size >= STEPS_A_COMMIT * segments;
  }

  get #stepSize(): StepSize {
    return this.#parts.limits.stepSize ?? STEP_SIZE;
  }

  /**
   * Performs one step of a few milliseconds. If space is low, nothing is compacted, and only rows that fit are flushed.
   * They are flushed completely, because the deleted rows free the space of the segments in the same commit.
   */
  step(nowMs: number, room?: FlushSpace): void {
    if (!this.isDue(nowMs, room)) return;
    if (room) {
      this.#parts.flush.abandon();
      this.#parts.flush.begin(this.#rowsToFlush(nowMs, room));
      this.#parts.flush.finish();
      return;
    }
    if (!this.#parts.flush.isRunning) {
      const rows = this.#rowsDue(nowMs);
      if (rows > 0) this.#parts.flush.begin(rows);
    }
    if (this.#parts.flush.isRunning) this.#parts.flush.step(this.#stepSize);
    else this.#compactionStep();
  }

  #rowsToFlush(nowMs: number, room: FlushSpace): number {
    const { rows } = this.#parts.state;
    const due = room.atOnce && rows.some((row) => row.left < row.count) ? rows.length : this.#rowsDue(nowMs);
    let fitting = 0;
    for (let values = 0; fitting < due; fitting++) {
      values += rows[fitting]!.left;
      if (values > room.maxValues) break;
    }
    return rowsOfOneRun(rows, fitting);
  }

  #rowsDue(nowMs: number): number {
    const { rows } = this.#parts.state;
    const { flushAfterMs, flushValues } = this.#parts.limits;
    const { times, counts } = this.#parts.state;
    // A row is deleted once all of it is settled. Segments are deleted individually, so flushing makes room for series
    // that are not loaded.
    if (counts.notLoaded > 0) return rowsOfOneRun(rows, rows.length);
    const ageMs = rows.length > 0 ? nowMs - times.arrivalOf(rows[0]) : 0;
    if (ageMs >= flushAfterMs + MIN_PATIENCE_MS) {
      let old = 1;
      let values = rows[0]!.left;
      while (old < rows.length && times.arrivalOf(rows[old]) + flushAfterMs <= nowMs) values += rows[old++]!.left;
      if (ageMs >= flushAfterMs + this.#patienceMs(nowMs, values)) return rowsOfOneRun(rows, old);
    }
    return counts.logValues > flushValues ? rowsOfOneRun(rows, rows.length) : 0;
  }

  /**
   * Returns how long old rows wait for further rows. While the platform accepts values, the time is short, because the
   * remaining values are backlog. Otherwise, rows wait until segments have a sufficient size, because small segments
   * are written twice.
   */
  #patienceMs(nowMs: number, values: number): number {
    const short = Math.max(MIN_PATIENCE_MS, this.#parts.limits.flushAfterMs / 4);
    if (nowMs - this.#settledMs < ONLINE_MS) return short;
    const good = values >= GOOD_SEGMENT_VALUES * this.#parts.state.seriesInLog();
    return good ? short : Math.max(short, MAX_PATIENCE_MS);
  }

  /** Records that the platform accepted values. */
  noteSettled(nowMs: number): void {
    this.#settledMs = nowMs;
  }

  #mayCompact(nowMs: number): boolean {
    // A reader must see every value exactly once, but a compaction moves values of many spans.
    if (this.#parts.readers.isAny(nowMs) || nowMs < this.#noCompactionUntilMs) return false;
    return this.#compaction !== undefined || this.#spansLooked !== this.#parts.state.spanChanges;
  }

  /** Pauses compaction for a caller that iterates over the spans in several steps. */
  pauseCompaction(untilMs: number): void {
    this.#noCompactionUntilMs = untilMs;
  }

  #compactionStep(): void {
    if (!this.#compaction) {
      this.#spansLooked = this.#parts.state.spanChanges;
      this.#compaction = Compaction.choose(this.#parts.state, {
        size: this.#stepSize,
        maxValues: this.#parts.maxGroupValues(),
      });
    }
    if (!this.#compaction) return;
    if (this.#compaction.step(this.#parts.segments)) this.#compaction = undefined;
  }

  /** Deletes settled rows at the front, many at a time to reduce writes. */
  dropSettledRows(): void {
    const { rows } = this.#parts.state;
    let settled = 0;
    while (settled < rows.length && rows[settled]!.left === 0) settled++;
    if (settled === 0 || (settled < ROWS_A_DELETION && settled < rows.length)) return;
    this.#parts.state.dropRows(settled);
  }
}
