import type { Note } from '../../buffer/client/notes.ts';
import { ValueColumns } from '../../buffer/format/value-columns.ts';
import type { LastSent } from './shaping.ts';

/** State of one series of a source. */
export interface PointState {
  /** Latest value received, whether sent or suppressed by the dead band. */
  received: number;
  sent: LastSent | undefined;
  /** Latest value that has not been committed yet. */
  next: PendingValue | undefined;
}

/** Latest value of a series in an uncommitted batch. */
interface PendingValue {
  readonly state: PointState;
  readonly batch: Batch;
  readonly sent: LastSent;
}

/**
 * Waits for the earlier batches and rule transitions on which these batches depend (`after`). Rejects if one of them
 * failed. Batches written together do not wait for each other.
 */
export async function untilOver(batches: readonly Batch[]): Promise<void> {
  if (batches.every(({ after }) => after.size === 0)) return;
  const own = new Set(batches.map(({ done }) => done));
  await Promise.all(batches.flatMap(({ after }) => [...after].filter((done) => !own.has(done))));
}

/** Values accepted in one event loop turn. */
export class Batch {
  /** Start of the batch by the monotonic clock and the wall clock. All values of one turn get the same arrival time. */
  readonly atMs: number;
  readonly wallMs: number;
  readonly columns: ValueColumns;
  ahead = 0;
  readonly notes: Note[] = [];
  /** Earlier batches and rule transitions that must be on disk before this batch is confirmed. */
  readonly after = new Set<Promise<void>>();
  readonly pendingValues: PendingValue[] = [];
  readonly #done = Promise.withResolvers<void>();
  readonly done = this.#done.promise;
  readonly resolve = this.#done.resolve;
  readonly reject = this.#done.reject;

  constructor(atMs: number, wallMs: number, room: number) {
    this.atMs = atMs;
    this.wallMs = wallMs;
    this.columns = new ValueColumns(room);
  }
}
