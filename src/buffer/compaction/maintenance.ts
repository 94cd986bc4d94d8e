import type { SegmentReader } from '../batches/segment-reader.ts';
import type { Pending } from '../pending.ts';
import type { ReadLeases } from '../read-leases.ts';
import type { StoreState } from '../state.ts';
import type { StepSize } from '../store-facts.ts';
import { Compaction } from './compaction.ts';
import { type Flush, rowsOfOneRun } from './flush.ts';

/** Deleting so many rows at once brings the bytes written for it to a fraction of what the values took. */
const ROWS_A_DELETION = 64;
/** Values were settled so recently that the platform is taken to be there. */
const ONLINE_MS = 15_000;
const MIN_PATIENCE_MS = 1_000;
const MAX_PATIENCE_MS = 100_000;
/** Packing takes some 50 to 100 ns a value and some microseconds a segment, writing them about as much again. */
const STEP_SIZE: StepSize = { values: 32 * 1024, segments: 512 };
/** What is packed and not on disk yet: with so much of it the next step waits for a commit, so that none gets long. */
const STEPS_A_COMMIT = 2;
/** Segments of so many values need no compaction: their rows' own bytes do not count beside them. */
const GOOD_SEGMENT_VALUES = 64;

export interface FlushLimits {
  /** What is older is flushed, some time after the oldest has reached it: never a little at a time. */
  flushAfterMs: number;
  /** The log is flushed when it holds more: the queues in memory are as long as the log. */
  flushValues: number;
  stepSize?: StepSize;
}

/** On a disk that has little room: what a step may take of it. */
export interface FlushSpace {
  /** Values in the rows that are flushed at once. */
  maxValues: number;
  /** Rows of which some values are settled do not wait to grow old: flushing frees what those took. */
  atOnce: boolean;
}

/** What can wait for a moment without a commit: flush, compaction, letting settled rows fall away. One step at a time. */
export interface MaintenanceParts {
  state: StoreState;
  pending: Pending;
  segments: SegmentReader;
  flush: Flush;
  readers: ReadLeases;
  limits: FlushLimits;
  /** Maximum number of values in the spans of one compaction. */
  maxGroupValues(): number;
}

export class Maintenance {
  readonly #state: StoreState;
  readonly #pending: Pending;
  readonly #segments: SegmentReader;
  readonly #flush: Flush;
  readonly #readers: ReadLeases;
  readonly #limits: FlushLimits;
  readonly #maxGroupValues: () => number;
  #settledMs = Number.NEGATIVE_INFINITY;
  #compaction: Compaction | undefined;
  /** `spanChanges` when compactions were last looked for. */
  #spansLooked = 0;
  #noCompactionUntilMs = Number.NEGATIVE_INFINITY;

  constructor({ state, pending, segments, flush, readers, limits, maxGroupValues }: MaintenanceParts) {
    this.#state = state;
    this.#pending = pending;
    this.#segments = segments;
    this.#flush = flush;
    this.#readers = readers;
    this.#limits = limits;
    this.#maxGroupValues = maxGroupValues;
  }

  isDue(nowMs: number, room?: FlushSpace): boolean {
    // What the steps before packed is written first.
    if (room) return this.#pending.newSpans.size === 0 && this.#rowsToFlush(nowMs, room) > 0;
    if (this.#hasPackedEnough()) return false;
    return this.#flush.isUnderWay || this.#rowsDue(nowMs) > 0 || this.#mayCompact(nowMs);
  }

  #hasPackedEnough(): boolean {
    const { values, segments } = this.#stepSize;
    let packed = 0;
    for (const span of this.#pending.newSpans) packed += span.values;
    return packed >= STEPS_A_COMMIT * values || this.#pending.segments.size >= STEPS_A_COMMIT * segments;
  }

  get #stepSize(): StepSize {
    return this.#limits.stepSize ?? STEP_SIZE;
  }

  /**
   * Some milliseconds at most. With little room nothing is compacted, and flushed only what fits, at once: the rows that go free
   * what the segments take, in the same commit.
   */
  step(nowMs: number, room?: FlushSpace): void {
    if (!this.isDue(nowMs, room)) return;
    if (room) {
      this.#flush.abandon();
      this.#flush.begin(this.#rowsToFlush(nowMs, room));
      this.#flush.finish();
      return;
    }
    if (!this.#flush.isUnderWay) {
      const rows = this.#rowsDue(nowMs);
      if (rows > 0) this.#flush.begin(rows);
    }
    if (this.#flush.isUnderWay) this.#flush.step(this.#stepSize);
    else this.#compactionStep();
  }

  #rowsToFlush(nowMs: number, room: FlushSpace): number {
    const { rows } = this.#state;
    const due = room.atOnce && rows.some((row) => row.left < row.count) ? rows.length : this.#rowsDue(nowMs);
    let fitting = 0;
    for (let values = 0; fitting < due; fitting++) {
      values += rows[fitting]!.left;
      if (values > room.maxValues) break;
    }
    return rowsOfOneRun(rows, fitting);
  }

  #rowsDue(nowMs: number): number {
    const { rows } = this.#state;
    const { flushAfterMs, flushValues } = this.#limits;
    const { times, notLoaded } = this.#state;
    // A row goes when all of it is settled. As segments each series leaves by itself, and makes room for those that are not loaded.
    if (notLoaded > 0) return rowsOfOneRun(rows, rows.length);
    const ageMs = rows.length > 0 ? nowMs - times.arrivalOf(rows[0]) : 0;
    if (ageMs >= flushAfterMs + MIN_PATIENCE_MS) {
      let old = 1;
      let values = rows[0]!.left;
      while (old < rows.length && times.arrivalOf(rows[old]) + flushAfterMs <= nowMs) values += rows[old++]!.left;
      if (ageMs >= flushAfterMs + this.#patienceMs(nowMs, values)) return rowsOfOneRun(rows, old);
    }
    return this.#state.logValues > flushValues ? rowsOfOneRun(rows, rows.length) : 0;
  }

  /**
   * How long what is old enough waits for company. While the platform takes values, a little: what was left behind is
   * backlog and must become so. While it does not, until segments of a good size come out, because a small segment is
   * written twice.
   */
  #patienceMs(nowMs: number, values: number): number {
    const short = Math.max(MIN_PATIENCE_MS, this.#limits.flushAfterMs / 4);
    if (nowMs - this.#settledMs < ONLINE_MS) return short;
    const good = values >= GOOD_SEGMENT_VALUES * this.#state.seriesInLog();
    return good ? short : Math.max(short, MAX_PATIENCE_MS);
  }

  /** The platform took values. */
  noteSettled(nowMs: number): void {
    this.#settledMs = nowMs;
  }

  #mayCompact(nowMs: number): boolean {
    // A reader must find every value once, and a compaction puts those of many spans in the place of the first.
    if (this.#readers.isAny(nowMs) || nowMs < this.#noCompactionUntilMs) return false;
    return this.#compaction !== undefined || this.#spansLooked !== this.#state.spanChanges;
  }

  /** Values keep their place until then, for a caller that goes through the spans in several steps. */
  pauseCompaction(untilMs: number): void {
    this.#noCompactionUntilMs = untilMs;
  }

  #compactionStep(): void {
    if (!this.#compaction) {
      this.#spansLooked = this.#state.spanChanges;
      this.#compaction = Compaction.choose(this.#state, this.#pending, {
        size: this.#stepSize,
        maxValues: this.#maxGroupValues(),
      });
    }
    if (!this.#compaction) return;
    if (this.#compaction.step(this.#segments)) this.#compaction = undefined;
  }

  /** Rows at the front that hold nothing fall away, many at a time: deleting one by one would write more than the values. */
  dropSettledRows(): void {
    const { rows } = this.#state;
    let settled = 0;
    while (settled < rows.length && rows[settled]!.left === 0) settled++;
    if (settled === 0 || (settled < ROWS_A_DELETION && settled < rows.length)) return;
    const through = rows[settled - 1]!;
    this.#pending.dropRowsThrough = through.id;
    const throughSeq = through.firstSeq + through.count - 1;
    this.#pending.settled = this.#pending.settled.filter((run) => run.lastSeq > throughSeq);
    this.#state.rows = rows.slice(settled);
  }
}
