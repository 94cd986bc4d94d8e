import { type BufferBounds, type DiskUse, overfull } from './bounds.ts';
import { type Folding, rowsOfOneRun } from './fold.ts';
import { removeSpan } from './merge.ts';
import type { Pending } from './pending.ts';
import type { Span } from './span.ts';
import type { StoreState } from './state.ts';
import type { DropReason } from './store-facts.ts';

/** About what a value and a segment take on disk: how much room a deletion that is not committed yet will make. */
const BYTES_A_VALUE = 2;
const BYTES_A_SEGMENT = 16;

/** Keeps the configured bounds by dropping the oldest spans whole; counts what was dropped, by reason, once that is committed. */
export class Dropping {
  readonly #state: StoreState;
  readonly #pending: Pending;
  readonly #folding: Folding;
  readonly #bounds: BufferBounds;
  #dropped: { reason: DropReason; values: number }[] = [];
  /** Gone in memory, and not on disk yet: a commit that fails leaves them here, and nothing is said of them. */
  #uncommitted: { reason: DropReason; values: number }[] = [];
  /** What the deletions that wait for the next commit will free, about. */
  #freedLater = 0;

  constructor(state: StoreState, pending: Pending, folding: Folding, bounds: BufferBounds) {
    this.#state = state;
    this.#pending = pending;
    this.#folding = folding;
    this.#bounds = bounds;
  }

  /** The deletions are on disk. `true` where there were any: the disk is to be looked at before more is dropped. */
  committed(): boolean {
    const any = this.#freedLater > 0 || this.#uncommitted.length > 0;
    this.#freedLater = 0;
    this.#dropped.push(...this.#uncommitted);
    this.#uncommitted = [];
    return any;
  }

  keep(disk: DiskUse, ageOf: (span: Span) => number): void {
    const { full, maxAgeMs } = this.#bounds;
    while (full === 'drop-oldest' && overfull(disk, this.#bounds, this.#freedLater)) {
      if (!this.#dropOldest('bytes')) break;
    }
    while (maxAgeMs > 0 && this.#state.spans[0] && ageOf(this.#state.spans[0]) > maxAgeMs) this.#dropOldest('age');
  }

  #dropOldest(reason: 'bytes' | 'age'): boolean {
    let span = this.#state.spans[0];
    if (span && this.#folding.made(span)) this.#folding.finish();
    if (!span) {
      this.#folding.finish();
      const rows = rowsOfOneRun(this.#state.rows, this.#state.rows.length);
      if (rows > 0 && this.#state.logValues > 0) {
        this.#folding.begin(rows);
        this.#folding.finish();
      }
      return this.#state.spans.length > 0;
    }
    // A fold makes several spans: what one holds of some series goes with what the others hold of that time.
    const { run, acceptedMs } = span;
    for (; span && span.run === run && span.acceptedMs <= acceptedMs; span = this.#state.spans[0]) {
      this.#freedLater += span.left * BYTES_A_SEGMENT;
      for (let i = 0; i < span.count.length; i++) if (!span.gone[i]) this.#freedLater += span.count[i]! * BYTES_A_VALUE;
      this.#uncommitted.push({ reason, values: removeSpan(this.#state, this.#pending, span) });
    }
    return true;
  }

  /** Counts what something else dropped, once it is on disk. */
  count(reason: DropReason, values: number): void {
    if (values > 0) this.#uncommitted.push({ reason, values });
  }

  /** What was dropped for good since this was last asked. */
  take(): { reason: DropReason; values: number }[] {
    const dropped = this.#dropped;
    this.#dropped = [];
    return dropped;
  }
}
