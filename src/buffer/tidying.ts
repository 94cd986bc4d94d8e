import { type Folding, rowsOfOneRun } from './fold.ts';
import { Merge } from './merge.ts';
import type { Pending } from './pending.ts';
import type { SegmentReader } from './segment-reader.ts';
import type { StoreState } from './state.ts';
import type { StepSize } from './store-facts.ts';

/** Deleting so many rows at once brings the bytes written for it to a fraction of what the values took. */
const ROWS_A_DELETION = 64;
/** Values were settled so recently that the platform is taken to be there. */
const ONLINE_MS = 15_000;
const SHORTEST_PATIENCE_MS = 1_000;
const LONGEST_PATIENCE_MS = 100_000;
/** Packing takes some 50 to 100 ns a value and some microseconds a segment, writing them about as much again. */
const STEP_SIZE: StepSize = { values: 32 * 1024, segments: 512 };
/** What is packed and not on disk yet: with so much of it the next step waits for a commit, so that none gets long. */
const STEPS_A_COMMIT = 2;
/** Segments of so many values need no merge: their rows' own bytes do not count beside them. */
const GOOD_SEGMENT_VALUES = 64;

export interface FoldLimits {
  /** What is older is folded, some time after the oldest has reached it: never a little at a time. */
  foldAfterMs: number;
  /** The log is folded when it holds more: the queues in memory are as long as the log. */
  foldValues: number;
  stepSize?: StepSize;
}

/** On a disk that has little room: what a step may take of it. */
export interface FoldRoom {
  /** Values in the rows that are folded at once. */
  mostValues: number;
  /** Rows of which some values are settled do not wait to grow old: folding frees what those took. */
  atOnce: boolean;
}

/** What can wait for a moment without a commit: folding, merging, letting settled rows fall away. One step at a time. */
export class Tidying {
  readonly #state: StoreState;
  readonly #pending: Pending;
  readonly #segments: SegmentReader;
  readonly #folding: Folding;
  readonly #limits: FoldLimits;
  #settledMs = Number.NEGATIVE_INFINITY;
  #merge: Merge | undefined;
  /** `spanChanges` when merges were last looked for. */
  #spansLooked = 0;
  #noMergeUntilMs = 0;

  constructor(state: StoreState, pending: Pending, segments: SegmentReader, folding: Folding, limits: FoldLimits) {
    this.#state = state;
    this.#pending = pending;
    this.#segments = segments;
    this.#folding = folding;
    this.#limits = limits;
  }

  isDue(nowMs: number, room?: FoldRoom): boolean {
    // What the steps before packed is written first.
    if (room) return this.#pending.newSpans.size === 0 && this.#rowsToFold(nowMs, room) > 0;
    if (this.#hasPackedEnough()) return false;
    return this.#folding.isUnderWay || this.#rowsDue(nowMs) > 0 || this.#mayMerge(nowMs);
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
   * No merge until then: who walks through the spans in order must find every value once, and a merge puts those of many
   * spans in the place of the first. A time and no lock, so that a walker that vanished bars nothing for good.
   */
  barMerges(untilMs: number): void {
    this.#noMergeUntilMs = untilMs;
  }

  /**
   * Some milliseconds at most. With little room nothing is merged, and folded only what fits, at once: the rows that go free
   * what the segments take, in the same commit.
   */
  step(nowMs: number, room?: FoldRoom): void {
    if (!this.isDue(nowMs, room)) return;
    if (room) {
      this.#folding.abandon();
      this.#folding.begin(this.#rowsToFold(nowMs, room));
      this.#folding.finish();
      return;
    }
    if (!this.#folding.isUnderWay) {
      const rows = this.#rowsDue(nowMs);
      if (rows > 0) this.#folding.begin(rows);
    }
    if (this.#folding.isUnderWay) this.#folding.step(this.#stepSize);
    else this.#mergeStep();
  }

  #rowsToFold(nowMs: number, room: FoldRoom): number {
    const { rows } = this.#state;
    const due = room.atOnce && rows.some((row) => row.left < row.count) ? rows.length : this.#rowsDue(nowMs);
    let fitting = 0;
    for (let values = 0; fitting < due; fitting++) {
      values += rows[fitting]!.left;
      if (values > room.mostValues) break;
    }
    return rowsOfOneRun(rows, fitting);
  }

  #rowsDue(nowMs: number): number {
    const { rows } = this.#state;
    const { foldAfterMs, foldValues } = this.#limits;
    const ageMs = rows.length > 0 ? nowMs - rows[0]!.monotonicMs : 0;
    if (ageMs >= foldAfterMs + SHORTEST_PATIENCE_MS) {
      let old = 1;
      let values = rows[0]!.left;
      while (old < rows.length && rows[old]!.monotonicMs + foldAfterMs <= nowMs) values += rows[old++]!.left;
      if (ageMs >= foldAfterMs + this.#patienceMs(nowMs, values)) return rowsOfOneRun(rows, old);
    }
    return this.#state.logValues > foldValues ? rowsOfOneRun(rows, rows.length) : 0;
  }

  /**
   * How long what is old enough waits for company. While the platform takes values, a little: what was left behind is
   * backlog and must become so. While it does not, until segments of a good size come out, because a small segment is
   * written twice.
   */
  #patienceMs(nowMs: number, values: number): number {
    const short = Math.max(SHORTEST_PATIENCE_MS, this.#limits.foldAfterMs / 4);
    if (nowMs - this.#settledMs < ONLINE_MS) return short;
    const good = values >= GOOD_SEGMENT_VALUES * this.#state.seriesInLog();
    return good ? short : Math.max(short, LONGEST_PATIENCE_MS);
  }

  /** The platform took values. */
  noteSettled(nowMs: number): void {
    this.#settledMs = nowMs;
  }

  #mayMerge(nowMs: number): boolean {
    if (nowMs < this.#noMergeUntilMs) return false;
    return this.#merge !== undefined || this.#spansLooked !== this.#state.spanChanges;
  }

  #mergeStep(): void {
    if (!this.#merge) {
      this.#spansLooked = this.#state.spanChanges;
      this.#merge = Merge.choose(this.#state, this.#pending, this.#stepSize);
    }
    if (!this.#merge) return;
    if (this.#merge.step(this.#segments)) this.#merge = undefined;
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
