/**
 * The way into the buffer, in the main thread: who brings values waits until a commit has them on disk, and those who
 * come while one is under way, or sooner than `COMMIT_INTERVAL` after the last, share the next.
 *
 * One commit at a time. A commit that fails is told to everyone in it; their values are forgotten here, because they
 * were never acknowledged. What the store has pending (settled, flushed) goes along with values, or by itself after a
 * while where none come. Between commits the store maintains itself, a step at a time.
 */
import type { Clock } from '../../base/clock.ts';
import { codeOf, StoreError } from '../../base/errors.ts';
import { type Columns, ValueColumns } from '../format/value-columns.ts';
import type { Series, SeriesCatalogue } from '../series.ts';
import type { CommitRequest, StoreFacts } from '../store-facts.ts';
import type { Note } from './notes.ts';

/** What the committer needs of the store thread. */
export interface CommitPort {
  commit(request: CommitRequest): Promise<StoreFacts>;
  maintain(now: { monotonicMs: number }): Promise<StoreFacts>;
  giveSpaceBack(): Promise<StoreFacts>;
}

export interface CommitterOptions {
  clock: Clock;
  catalogue: SeriesCatalogue;
  intervalMs: number;
  /** Commits at once when so many values wait. */
  values: number;
  /** Values that may wait at most; more are refused with `buffer.busy`. */
  maxWaiting?: number;
  /** Every answer of the store, for who keeps lanes and figures. */
  onFacts(facts: StoreFacts): void;
  /** A commit failed: told once for each attempt, the owner sums up. */
  onFailure?(error: StoreError): void;
  /** A commit came before its time, because somebody waited for it. */
  onEarly?(): void;
  /** Facts beside those that came with values, for the commit that is made now. */
  notesOf?(wallMs: number): readonly Note[];
  /** A commit is on disk. */
  onCommit?(values: number): void;
}

interface Waiter {
  resolve(): void;
  reject(error: unknown): void;
}

/** Values that wait while the disk stalls: some tens of megabytes, then intake answers 503. */
const MAX_WAITING = 500_000;
/** Between two commits of which the second comes early. */
const EARLY_COMMIT_MS = 100;
/** What is pending without values is written this long after it came up. */
const QUIET_COMMIT_MS = 2_000;
/** After a failed commit the next one waits: a full disk is not asked in a loop. */
const AFTER_FAILURE_MS = 1_000;

export class Committer {
  readonly #port: CommitPort;
  readonly #options: CommitterOptions;
  #waiting = new ValueColumns();
  #waiters: Waiter[] = [];
  #notes: Note[] = [];
  /** Somebody can bring nothing more before a commit. */
  #isHurried = false;
  /** Since when something waits. */
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
  readonly #watches = new Set<Set<number>>();
  #failure: StoreError | undefined;
  /** Of the last commit, a refusal by a bound included. */
  #lastFailure: StoreError | undefined;

  constructor(port: CommitPort, options: CommitterOptions) {
    this.#port = port;
    this.#options = options;
  }

  /** Why the last commit failed, until one succeeds. */
  get failure(): StoreError | undefined {
    return this.#failure;
  }

  /** Values that wait for a commit. */
  get waitingValues(): number {
    return this.#waiting.length;
  }

  /** For the watchdog: whether a commit of what waits was tried within the time. */
  isAlive(nowMs: number, patienceMs: number): boolean {
    if (this.#waiting.length === 0) return true;
    return nowMs - Math.max(this.#waitingSinceMs, this.#lastCommitMs) < patienceMs;
  }

  setPace(pace: { intervalMs: number; values: number }): void {
    Object.assign(this.#options, pace);
    this.#schedule();
  }

  /** Takes the columns over. Resolves when the values are on disk; rejects with a `StoreError` and nothing of them is stored. */
  append(columns: ValueColumns, notes: readonly Note[] = []): Promise<void> {
    if (this.#closed) return Promise.reject(closing());
    if (columns.length === 0 && notes.length === 0) return Promise.resolve();
    const max = this.#options.maxWaiting ?? MAX_WAITING;
    if (this.#waiting.length > 0 && this.#waiting.length + columns.length > max) return Promise.reject(busy());
    for (const named of this.#watches) addSeries(columns, named);
    // Who appends gives the columns away: the first of a commit need no copy.
    if (this.#waiters.length === 0) this.#waitingSinceMs = this.#options.clock.monotonicMs();
    if (this.#waiting.length === 0) this.#waiting = columns;
    else {
      this.#waiting.addAll(columns);
      columns.giveBack();
    }
    this.#notes.push(...notes);
    const answer = new Promise<void>((resolve, reject) => {
      this.#waiters.push({ resolve, reject });
    });
    this.#schedule();
    return answer;
  }

  /** Who brings values has filled its window and waits for this commit: it comes early, not more than ten a second. */
  hurry(): void {
    if (this.#isHurried || this.#waiters.length === 0) return;
    this.#isHurried = true;
    this.#schedule();
  }

  /** Gathers the series of what waits now and of what comes until `end`: the store does not know of these yet. */
  watchSeries(): { named: ReadonlySet<number>; end(): void } {
    const named = new Set<number>();
    addSeries(this.#waiting, named);
    this.#watches.add(named);
    return { named, end: () => this.#watches.delete(named) };
  }

  /** The store answered something else than a commit: it may have become dirty. */
  note(facts: StoreFacts): void {
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
   * Commits what waits and what is pending now, whatever the pace. Rejects with the `StoreError` of a commit that failed;
   * one that only refused the values that waited with it has written what was pending, and is none.
   */
  async flush(): Promise<void> {
    while (this.#busy) await new Promise<void>((resolve) => this.#idle.push(resolve));
    this.#cancelTimer?.();
    await this.#commit();
    if (this.#lastFailure && !isRefusal(this.#lastFailure)) throw this.#lastFailure;
  }

  /** Commits everything that waits, with all that is pending, and takes nothing more. */
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
    // Giving space back costs a sync, so it waits for a moment in which nothing else does; not so where nothing
    // is taken in before there is space, or the file is larger than it may be.
    if (this.#spare && (this.#short || this.#oversized || dueMs === Number.POSITIVE_INFINITY)) {
      void this.#maintain(() => this.#port.giveSpaceBack());
      return;
    }
    // A flush becomes due by time alone, so the store is asked now and then even where nothing happens.
    const wakeMs = Math.min(dueMs, nowMs + QUIET_COMMIT_MS);
    this.#cancelTimer = this.#options.clock.after(wakeMs - nowMs, () => {
      if (this.#dueMs(this.#options.clock.monotonicMs()) === Number.POSITIVE_INFINITY) this.#maintenanceDue = true;
      this.#schedule();
    });
  }

  /** When the next commit is due; Infinity where nothing asks for one. */
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
    return this.#isHurried ? Math.min(EARLY_COMMIT_MS, intervalMs) : intervalMs;
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
    if (this.#isHurried && nowMs - this.#lastCommitMs < this.#options.intervalMs) this.#options.onEarly?.();
    this.#isHurried = false;
    this.#lastCommitMs = nowMs;
    const newSeries = catalogue.takeNew();
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
      for (const waiter of waiters) waiter.resolve();
      // Still busy: what comes next begins below, once this commit is over in every respect.
      this.note(facts);
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
    catalogue.returnNew(newSeries);
    const failure = error instanceof StoreError ? error : unwritable(error);
    this.#lastFailure = failure;
    if (isRefusal(failure)) {
      // An answer, not a fault: the next who comes may be asked at once. What was pending is on disk, and the store is asked
      // how it stands, though values keep coming.
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
      this.note(facts);
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

function addSeries({ series, length }: Columns, to: Set<number>): void {
  for (let i = 0; i < length; i++) to.add(series[i]!);
}

/** By a bound or for want of space: nothing is broken, and what was pending was written (`ValueStore.commit`). */
function isRefusal(failure: StoreError): boolean {
  return failure.code.startsWith('buffer.');
}

/** The columns without their methods: what crosses to the other thread. */
function plain(columns: ValueColumns): Columns {
  const { length, series, timeMs, value, flags } = columns;
  return { length, series, timeMs, value, flags };
}

function closing(): StoreError {
  return new StoreError('the agent is stopping', { code: 'buffer.closing', retryable: true });
}

function busy(): StoreError {
  return new StoreError('too many values wait for the disk', { code: 'buffer.busy', retryable: true });
}

function unwritable(error: unknown): StoreError {
  const code = codeOf(error) ?? 'unknown';
  return new StoreError(`the disk refuses writes (${code})`, {
    code: 'store.unwritable',
    retryable: true,
    cause: error,
  });
}
