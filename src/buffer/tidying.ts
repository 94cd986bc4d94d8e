import { foldRows, rowsOfOneRun } from './fold.ts';
import { Merge } from './merge.ts';
import type { Pending } from './pending.ts';
import type { SegmentReader } from './segment-reader.ts';
import type { StoreState } from './state.ts';

/** Deleting so many rows at once brings the bytes written for it to a fraction of what the values took. */
const ROWS_A_DELETION = 64;

export interface FoldLimits {
  /** The log is folded when its oldest value is older. */
  foldAfterMs: number;
  /** The log is folded when it holds more: the queues in memory are as long as the log. */
  foldValues: number;
}

/** What can wait for a moment without a commit: folding, merging, letting settled rows fall away. One step at a time. */
export class Tidying {
  readonly #state: StoreState;
  readonly #pending: Pending;
  readonly #segments: SegmentReader;
  readonly #limits: FoldLimits;
  #merge: Merge | undefined;
  /** `spanChanges` when merges were last looked for. */
  #spansLooked = 0;

  constructor(state: StoreState, pending: Pending, segments: SegmentReader, limits: FoldLimits) {
    this.#state = state;
    this.#pending = pending;
    this.#segments = segments;
    this.#limits = limits;
  }

  isDue(nowMs: number): boolean {
    return this.#rowsToFold(nowMs) > 0 || this.#mayMerge();
  }

  /** Some milliseconds at most. */
  step(nowMs: number): void {
    const rows = this.#rowsToFold(nowMs);
    if (rows > 0) foldRows(this.#state, this.#pending, rows);
    else this.#mergeStep();
  }

  #rowsToFold(nowMs: number): number {
    const { rows } = this.#state;
    const { foldAfterMs, foldValues } = this.#limits;
    let old = 0;
    while (old < rows.length && rows[old]!.monotonicMs + foldAfterMs <= nowMs) old++;
    if (old > 0) return rowsOfOneRun(rows, old);
    return this.#state.logValues > foldValues ? rowsOfOneRun(rows, rows.length) : 0;
  }

  #mayMerge(): boolean {
    return this.#merge !== undefined || this.#spansLooked !== this.#state.spanChanges;
  }

  #mergeStep(): void {
    if (!this.#merge) {
      this.#spansLooked = this.#state.spanChanges;
      this.#merge = Merge.choose(this.#state);
    }
    if (!this.#merge) return;
    if (this.#merge.isVoid) this.#merge = undefined;
    else if (this.#merge.step(this.#segments)) {
      if (!this.#merge.isVoid) this.#merge.finish(this.#state, this.#pending);
      this.#merge = undefined;
    }
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
