/**
 * Entry point to the buffer in the main thread. Callers wait until a commit has written their values to disk. Values
 * that arrive during a commit, or before `COMMIT_INTERVAL` has passed, share the next commit.
 *
 * Only one commit runs at a time. If it fails, all its callers are rejected, and the values are discarded here, because
 * they were never acknowledged. The store's pending changes are written together with values, or separately after a
 * delay. Between commits, the store performs background work in steps.
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

export interface CommitterOptions {
  clock: Clock;
  catalogue: SeriesCatalogue;
  intervalMs: number;
  /** Number of waiting values that triggers an immediate commit. */
  values: number;
  /** Maximum number of waiting values; further values are rejected with `buffer.busy`. */
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

interface Waiter {
  resolve(): void;
  reject(error: unknown): void;
}

/**
 * Maximum number of waiting values in addition to COMMIT_VALUES, which limits memory to tens of megabytes while the
 * disk is stalled. Above this number, intake responds with 503.
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
  #waiting = new ValueColumns();
  #waiters: Waiter[] = [];
  #notes: Note[] = [];
  /** Whether a caller cannot send more values until the next commit. */
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

  get waitingValues(): number {
    return this.#waiting.length;
  }

  /** Returns whether a commit of the waiting values was attempted within `patienceMs`. Used by the watchdog. */
  isAlive(nowMs: number, patienceMs: number): boolean {
    if (this.#waiting.length === 0) return true;
    return nowMs - Math.max(this.#waitingSinceMs, this.#lastCommitMs) < patienceMs;
  }

  setPace(pace: { intervalMs: number; values: number }): void {
    Object.assign(this.#options, pace);
    this.#schedule();
  }

  /**
   * Takes ownership of the columns. Resolves when the values are on disk; rejects with a `StoreError` if nothing was
   * stored.
   */
  append(columns: ValueColumns, notes: readonly Note[] = []): Promise<void> {
    if (this.#closed) return Promise.reject(closing());
    if (columns.length === 0 && notes.length === 0) return Promise.resolve();
    const max = this.#options.maxWaiting ?? MAX_WAITING + this.#options.values;
    if (this.#waiting.length > 0 && this.#waiting.length + columns.length > max) return Promise.reject(busy());
    // The first columns of a commit are not copied, because the caller no longer uses them.
    if (this.#waiters.length === 0) this.#waitingSinceMs = this.#options.clock.monotonicMs();
    if (this.#waiting.length === 0) this.#waiting = columns;
    else {
      this.#waiting.addAll(columns);
      columns.release();
    }
    this.#notes.push(...notes);
    const answer = new Promise<void>((resolve, reject) => {
      this.#waiters.push({ resolve, reject });
    });
    this.#schedule();
    return answer;
  }

  /** Commits early, at most ten times per second, because a caller has filled its window and is waiting. */
  commitSoon(): void {
    if (this.#isSoonWanted || this.#waiters.length === 0) return;
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
    this.#cancelTimer?.();
    await this.#commit();
    if (this.#lastFailure && !isRefusal(this.#lastFailure)) throw this.#lastFailure;
  }

  /** Commits all waiting values and changes, and rejects later calls. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#cancelTimer?.();
    while (this.#busy) await new Promise<void>((resolve) => this.#idle.push(resolve));
    if (this.#waiters.length > 0 || this.#dirtySinceMs !== undefined) await this.#commit();
  }

  #schedule(): void {
    if (this.#busy || this.#closed) return;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    const nowMs = this.#options.clock.monotonicMs();
    const dueMs = this.#dueMs(nowMs);
    if (dueMs <= nowMs) {
      void this.#commit();
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
    if (this.#waiting.length >= values) due = nowMs;
    else if (this.#waiters.length > 0) due = this.#lastCommitMs + this.#pauseMs(intervalMs);
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
    const columns = this.#waiting;
    const waiters = this.#waiters;
    const notes = waiters.length > 0 ? [...this.#notes, ...(this.#options.notesOf?.(clock.wallMs()) ?? [])] : [];
    this.#waiting = new ValueColumns();
    this.#waiters = [];
    this.#notes = [];
    this.#busy = true;
    const nowMs = clock.monotonicMs();
    if (this.#isSoonWanted && nowMs - this.#lastCommitMs < this.#options.intervalMs) this.#options.onEarly?.();
    this.#isSoonWanted = false;
    this.#lastCommitMs = nowMs;
    const newSeries = catalogue.takeUnsaved();
    try {
      const facts = await this.#port.commit({
        columns: columns.length > 0 ? plain(columns) : undefined,
        newSeries,
        ...(notes.length > 0 ? { notes } : {}),
        monotonicMs: this.#lastCommitMs,
      });
      this.#failure = undefined;
      this.#lastFailure = undefined;
      this.#dirtySinceMs = undefined;
      this.#options.onCommit?.(columns.length);
      announce('commit.unacknowledged');
      for (const waiter of waiters) waiter.resolve();
      // Still busy, so the next call starts after this commit is complete.
      this.update(facts);
    } catch (error) {
      this.#fail(error, newSeries, waiters);
    } finally {
      this.#busy = false;
      for (const resolve of this.#idle.splice(0)) resolve();
    }
    this.#schedule();
  }

  #fail(error: unknown, newSeries: Series[], waiters: Waiter[]): void {
    const { clock, catalogue } = this.#options;
    catalogue.returnUnsaved(newSeries);
    const failure = error instanceof StoreError ? error : unwritable(error);
    this.#lastFailure = failure;
    if (isRefusal(failure)) {
      // A rejection is not a failure. Pending changes are on disk, and the store state is requested immediately.
      this.#failure = undefined;
      this.#dirtySinceMs = undefined;
      this.#maintenanceDue = true;
    } else {
      this.#failure = failure;
      this.#notBeforeMs = clock.monotonicMs() + AFTER_FAILURE_MS;
    }
    this.#options.onFailure?.(failure);
    for (const waiter of waiters) waiter.reject(failure);
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

function closing(): StoreError {
  return new StoreError('the agent is stopping', { code: 'buffer.closing', retryable: true });
}

function busy(): StoreError {
  return new StoreError('too many values are waiting for the disk', { code: 'buffer.busy', retryable: true });
}

function unwritable(error: unknown): StoreError {
  const code = codeOf(error) ?? 'unknown';
  return new StoreError(`the disk rejects writes (${code})`, {
    code: 'store.unwritable',
    retryable: true,
    cause: error,
  });
}
