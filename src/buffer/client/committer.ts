/**
 * Entry point to the buffer in the main thread. Each source collects its values in an open batch and offers it
 * (`offer`). When a commit begins, it pulls the open batches of all sources; values that arrive later belong to the next
 * commit. A commit begins when `COMMIT_INTERVAL` has passed since the previous one, or as soon as `COMMIT_VALUES`
 * values are waiting.
 *
 * Only one commit runs at a time, and it stores the batches of all sources or none of them. Nothing is confirmed before
 * the commit is on disk, so a crash loses only values that their senders still have. The store's pending changes are
 * written together with values, or separately after a delay. Between commits, the store performs background work in
 * steps.
 */
import type { Clock } from '../../base/clock.ts';
import { announce } from '../../base/crash-points.ts';
import { codeOf, StoreError } from '../../base/errors.ts';
import { type Columns, ValueColumns } from '../format/value-columns.ts';
import type { Series, SeriesCatalogue } from '../series.ts';
import type { CommitRequest, StoreFacts } from '../store-facts.ts';
import type { Note } from './notes.ts';

/** Store thread interface used by the committer. */
export interface CommitPort {
  commit(request: CommitRequest): Promise<StoreFacts>;
  maintain(now: { monotonicMs: number }): Promise<StoreFacts>;
  vacuum(): Promise<StoreFacts>;
}

/** The values and notes of one source in a commit. */
export interface PulledBatch {
  readonly columns: ValueColumns;
  readonly notes: readonly Note[];
  /** Whether the source commits the batch again after a failure. Its columns must then outlive the commit. */
  readonly isKept: boolean;
  /** Called when the batch is on disk. */
  stored(): void;
  /** Called if nothing of the commit was stored. */
  failed(failure: StoreError): void;
}

/** A source of values. */
export interface Supply {
  /** Closes the open batch and returns it; `undefined` if there is none. Called when a commit begins. */
  pull(): PulledBatch | undefined;
}

export interface CommitterOptions {
  clock: Clock;
  catalogue: SeriesCatalogue;
  intervalMs: number;
  /** Number of waiting values that triggers an immediate commit. */
  values: number;
  /** Maximum number of waiting values. */
  maxWaiting?: number;
  /** Called with every store result. */
  onFacts(facts: StoreFacts): void;
  /** Called for every failed commit. */
  onFailure?(error: StoreError): void;
  /** Called for a commit before the interval has passed. */
  onEarly?(): void;
  /** Returns the notes to store together with the commit's values. */
  notesOf?(wallMs: number): readonly Note[];
  /** Called when a commit is on disk. */
  onCommit?(values: number): void;
}

/**
 * Maximum number of waiting values in addition to COMMIT_VALUES, which limits memory to tens of megabytes while the
 * disk is stalled.
 */
const MAX_WAITING = 500_000;
/** Minimum interval before an early commit. */
const EARLY_COMMIT_MS = 100;
/** Delay before pending changes are committed without values. */
const QUIET_COMMIT_MS = 2_000;
/** Delay after a failed commit. */
const AFTER_FAILURE_MS = 1_000;

export class Committer {
  readonly #port: CommitPort;
  readonly #options: CommitterOptions;
  /** Sources with an open batch. */
  readonly #supplies = new Set<Supply>();
  #waiting = 0;
  /** Whether a sender cannot send more values until the next commit. */
  #isSoonWanted = false;
  /** Arrival time of the first waiting value. */
  #waitingSinceMs = 0;
  #busy = false;
  #closed = false;
  #lastCommitMs = Number.NEGATIVE_INFINITY;
  #notBeforeMs = 0;
  #dirtySinceMs: number | undefined;
  #maintenanceDue = false;
  #spare = false;
  #short = false;
  #oversized = false;
  #cancelTimer: (() => void) | undefined;
  #idle: (() => void)[] = [];
  #failure: StoreError | undefined;
  /** Failure of the latest commit, including rejections by a bound. */
  #lastFailure: StoreError | undefined;

  constructor(port: CommitPort, options: CommitterOptions) {
    this.#port = port;
    this.#options = options;
  }

  /** Reason why the latest commit failed; undefined after a successful commit. */
  get failure(): StoreError | undefined {
    return this.#failure;
  }

  /** Number of values in open batches. */
  get waitingValues(): number {
    return this.#waiting;
  }

  /** Whether no more values can be offered. */
  get isClosed(): boolean {
    return this.#closed;
  }

  /** Returns whether a commit of the waiting values was attempted within `patienceMs`. Used by the watchdog. */
  isAlive(nowMs: number, patienceMs: number): boolean {
    if (this.#waiting === 0) return true;
    return nowMs - Math.max(this.#waitingSinceMs, this.#lastCommitMs) < patienceMs;
  }

  setPace(pace: { intervalMs: number; values: number }): void {
    Object.assign(this.#options, pace);
    this.#schedule();
  }

  /** Returns whether this number of further values exceeds the limit. Any number is allowed if no values are waiting. */
  isFullFor(values: number): boolean {
    const max = this.#options.maxWaiting ?? MAX_WAITING + this.#options.values;
    return this.#waiting > 0 && this.#waiting + values > max;
  }

  /** Announces that the open batch of a source has received this number of further values. */
  offer(supply: Supply, values: number): void {
    const isFirst = this.#supplies.size === 0;
    if (isFirst) this.#waitingSinceMs = this.#options.clock.monotonicMs();
    const isEnough = this.#waiting < this.#options.values && this.#waiting + values >= this.#options.values;
    this.#supplies.add(supply);
    this.#waiting += values;
    if (isFirst || isEnough) this.#schedule();
  }

  /** Commits early, at most ten times per second, because a sender has filled its window and is waiting. */
  commitSoon(): void {
    if (this.#isSoonWanted || this.#supplies.size === 0) return;
    this.#isSoonWanted = true;
    this.#schedule();
  }

  /** Processes the result of another store call. */
  update(facts: StoreFacts): void {
    if (facts.dirty) this.#dirtySinceMs ??= this.#options.clock.monotonicMs();
    else this.#dirtySinceMs = undefined;
    this.#maintenanceDue = facts.maintenanceDue;
    this.#short = facts.short;
    this.#spare = facts.spare;
    this.#oversized = facts.oversized;
    this.#options.onFacts(facts);
    this.#schedule();
  }

  /**
   * Commits waiting values and pending changes now. Rejects with the `StoreError` of a failed commit, but not if a
   * bound only rejected the values, because pending changes were still written.
   */
  async flush(): Promise<void> {
    while (this.#busy) await new Promise<void>((resolve) => this.#idle.push(resolve));
    await this.#commit();
    if (this.#lastFailure && !isRefusal(this.#lastFailure)) throw this.#lastFailure;
  }

  /** Commits all waiting values and changes. Further values are not accepted. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#cancelTimer?.();
    while (this.#busy) await new Promise<void>((resolve) => this.#idle.push(resolve));
    if (this.#supplies.size > 0 || this.#dirtySinceMs !== undefined) await this.#commit();
  }

  #schedule(): void {
    if (this.#busy || this.#closed) return;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    const nowMs = this.#options.clock.monotonicMs();
    const dueMs = this.#dueMs(nowMs);
    if (dueMs <= nowMs) {
      // Messages that have arrived together are committed together.
      const immediate = setImmediate(() => void this.#commit());
      this.#cancelTimer = () => clearImmediate(immediate);
      return;
    }
    if (this.#maintenanceDue) {
      void this.#maintain(() => this.#port.maintain({ monotonicMs: this.#options.clock.monotonicMs() }));
      return;
    }
    // Returning free pages requires a sync, so it is delayed until an idle moment unless values are rejected due to
    // lack of space or the file is too large.
    if (this.#spare && (this.#short || this.#oversized || dueMs === Number.POSITIVE_INFINITY)) {
      void this.#maintain(() => this.#port.vacuum());
      return;
    }
    // Flushes become due by time alone, so background work is attempted regularly.
    const wakeMs = Math.min(dueMs, nowMs + QUIET_COMMIT_MS);
    this.#cancelTimer = this.#options.clock.after(wakeMs - nowMs, () => {
      if (this.#dueMs(this.#options.clock.monotonicMs()) === Number.POSITIVE_INFINITY) this.#maintenanceDue = true;
      this.#schedule();
    });
  }

  /** Returns the time of the next due commit; Infinity if none is due. */
  #dueMs(nowMs: number): number {
    const { intervalMs, values } = this.#options;
    let due = Number.POSITIVE_INFINITY;
    if (this.#waiting >= values) due = nowMs;
    else if (this.#supplies.size > 0) due = this.#lastCommitMs + this.#pauseMs(intervalMs);
    if (this.#dirtySinceMs !== undefined) {
      due = Math.min(due, Math.max(this.#dirtySinceMs + QUIET_COMMIT_MS, this.#lastCommitMs + intervalMs));
    }
    return Math.max(due, this.#notBeforeMs);
  }

  #pauseMs(intervalMs: number): number {
    return this.#isSoonWanted ? Math.min(EARLY_COMMIT_MS, intervalMs) : intervalMs;
  }

  async #commit(): Promise<void> {
    const { clock, catalogue } = this.#options;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    const nowMs = clock.monotonicMs();
    if (this.#isSoonWanted && nowMs - this.#lastCommitMs < this.#options.intervalMs) this.#options.onEarly?.();
    this.#busy = true;
    this.#isSoonWanted = false;
    this.#lastCommitMs = nowMs;
    const batches = this.#pull();
    const notes = batches.length > 0 ? batches.flatMap((batch) => batch.notes) : [];
    if (batches.length > 0) notes.push(...(this.#options.notesOf?.(clock.wallMs()) ?? []));
    const columns = columnsOf(batches);
    const { length } = columns;
    const newSeries = catalogue.takeUnsaved();
    try {
      const facts = await this.#port.commit({
        columns: length > 0 ? plain(columns) : undefined,
        newSeries,
        ...(notes.length > 0 ? { notes } : {}),
        monotonicMs: this.#lastCommitMs,
      });
      this.#failure = undefined;
      this.#lastFailure = undefined;
      this.#dirtySinceMs = undefined;
      this.#options.onCommit?.(length);
      announce('commit.unacknowledged');
      for (const batch of batches) batch.stored();
      // Still busy, so the next call starts after this commit is complete.
      this.update(facts);
    } catch (error) {
      this.#fail(error, newSeries, batches);
    } finally {
      this.#busy = false;
      for (const resolve of this.#idle.splice(0)) resolve();
    }
    this.#schedule();
  }

  #pull(): PulledBatch[] {
    const batches = [...this.#supplies].flatMap((supply) => supply.pull() ?? []);
    this.#supplies.clear();
    this.#waiting = 0;
    return batches;
  }

  #fail(error: unknown, newSeries: Series[], batches: readonly PulledBatch[]): void {
    const { clock, catalogue } = this.#options;
    catalogue.returnUnsaved(newSeries);
    const failure = error instanceof StoreError ? error : unwritable(error);
    this.#lastFailure = failure;
    this.#notBeforeMs = clock.monotonicMs() + AFTER_FAILURE_MS;
    if (isRefusal(failure)) {
      // A rejection is not a failure. Pending changes are on disk, and the store state is requested immediately.
      this.#failure = undefined;
      this.#dirtySinceMs = undefined;
      this.#maintenanceDue = true;
    } else {
      this.#failure = failure;
    }
    this.#options.onFailure?.(failure);
    for (const batch of batches) batch.failed(failure);
  }

  async #maintain(step: () => Promise<StoreFacts>): Promise<void> {
    this.#busy = true;
    this.#maintenanceDue = false;
    try {
      const facts = await step();
      this.update(facts);
    } catch (error) {
      this.#spare = false;
      this.#notBeforeMs = this.#options.clock.monotonicMs() + AFTER_FAILURE_MS;
      this.#options.onFailure?.(error instanceof StoreError ? error : unwritable(error));
    } finally {
      this.#busy = false;
      for (const resolve of this.#idle.splice(0)) resolve();
    }
    this.#schedule();
  }
}

/** Returns the values of all batches. The store thread takes ownership of the result. */
function columnsOf(batches: readonly PulledBatch[]): ValueColumns {
  if (batches.length === 1 && !batches[0]!.isKept) return batches[0]!.columns;
  const all = new ValueColumns(batches.reduce((sum, { columns }) => sum + columns.length, 0));
  for (const { columns, isKept } of batches) {
    all.addAll(columns);
    if (!isKept) columns.release();
  }
  return all;
}

/**
 * Returns whether a bound or a lack of space rejected the values. Pending changes were written (`ValueStore.commit`).
 */
function isRefusal(failure: StoreError): boolean {
  return failure.code.startsWith('buffer.');
}

/** Strips methods for the transfer to the store thread. */
function plain(columns: ValueColumns): Columns {
  const { length, series, timeMs, value, flags } = columns;
  return { length, series, timeMs, value, flags };
}

function unwritable(error: unknown): StoreError {
  const code = codeOf(error) ?? 'unknown';
  return new StoreError(`the disk rejects writes (${code})`, {
    code: 'store.unwritable',
    retryable: true,
    cause: error,
  });
}
