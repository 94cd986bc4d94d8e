import type { Clock } from '../base/clock.ts';
import type { Database } from '../base/database.ts';
import type { ActionProgress, Attempt } from '../store/event-journal.ts';
import { guarded, inboxFull } from './inbox-errors.ts';
import {
  INBOX_LIMITS,
  type InboxEvent,
  type InboxLimits,
  type InboxStats,
  type ListedEvent,
  type ListQuery,
  RELAYED_NOTE,
  type RelayedEvent,
  type RunnableEvent,
  type ShownEvent,
} from './inbox-event.ts';
import { listEvents, type RowsAfter, readPage, showEvent } from './inbox-listing.ts';
import {
  type AskedMemory,
  type InboxNotes,
  type OpenedTables,
  openTables,
  type RunningAge,
  SAVE_AGE_EVERY_MS,
} from './inbox-records.ts';
import {
  addEvent,
  costOf,
  dropEvents,
  type EventRow,
  progressSum,
  type Statements,
  sumFits,
  toEvent,
  toRelayed,
  toRunnable,
} from './inbox-tables.ts';
import type { ArrivedEvent } from './received-event.ts';
import type { SeenMemory } from './seen-memory.ts';
import { WATERMARK_NOTE } from './watermark.ts';

/** Maximum number of rows per retention step. Buffer commits have to wait while a step runs. */
const STEP_ROWS = 500;
const MAX_ATTEMPTS = 200;
/** Maximum retry delay, which exceeds any backoff. A longer delay indicates damage, so the event is treated as due. */
const MAX_RETRY_MS = 24 * 3_600_000;
const DEFAULT_RETRY_MS = 60_000;
const MAX_DETAIL = 4_000;

/**
 * Durable inbox for webhook events and the progress of their reactions. Synchronous; runs in the store thread.
 *
 * States: `received` → `running` → `done`, `failed` (retried when due) or `dead`. `replay` resets an event to
 * `received`. An unrecognised event remains `received` and never runs.
 *
 * Invariants: An event and its identity are stored in one transaction, and are on disk when `insertMany` returns
 * (`synchronous=FULL`). Retention deletes only events that have run or cannot run, oldest first. Identities are
 * retained for over six months of running time. Ages, retries and cooldowns use `RunningAge`, never the wall clock.
 *
 * After a crash, `open` resets `running` events to `received` and keeps the progress of their actions.
 */
export class Inbox {
  readonly #database: Database;
  readonly #clock: Clock;
  readonly #limits: InboxLimits;
  readonly #statements: Statements;
  readonly #seen: SeenMemory;
  readonly #asked: AskedMemory;
  readonly #notes: InboxNotes;
  readonly #age: RunningAge;
  #ageSavedAtMs = 0;
  #bytes: number;
  #events: number;
  #damaged = 0;
  #lastId: number;
  /** Highest event ID when the inbox was opened. */
  readonly #earlierId: number;

  private constructor(database: Database, clock: Clock, limits: InboxLimits, tables: OpenedTables) {
    this.#database = database;
    this.#clock = clock;
    this.#limits = limits;
    this.#statements = tables.statements;
    this.#seen = tables.seen;
    this.#asked = tables.asked;
    this.#notes = tables.notes;
    this.#age = tables.age;
    const { bytes, events } = tables.statements.totals.get()!;
    this.#bytes = bytes;
    this.#events = events;
    this.#earlierId = this.#lastId = tables.statements.lastId.get() ?? 0;
  }

  /** Opens the inbox and resets events that were running during a crash. `boot` is the machine's boot ID. */
  static open(database: Database, clock: Clock, boot: string, limits: Partial<InboxLimits> = {}): Inbox {
    return guarded(() => {
      const tables = openTables(database, clock, boot);
      const inbox = new Inbox(database, clock, { ...INBOX_LIMITS, ...limits }, tables);
      inbox.#saveAge();
      tables.statements.releaseRunning.run();
      return inbox;
    });
  }

  /** Returns the highest event ID. */
  highestId(): number {
    return this.#lastId;
  }

  /** Continues after the IDs of a replaced inbox, because its events may still be in progress. */
  startAfter(id: number): void {
    guarded(() => {
      if (id <= this.#lastId) return;
      this.#statements.dropLastId.run();
      this.#statements.setLastId.run(id);
      this.#lastId = id;
    });
  }

  /**
   * Inserts events in one transaction. `seen` means that the identity or delivery is already known. If it throws a
   * `StoreError` (`inbox.full`, `inbox.disk_full`, `inbox.corrupt`, `inbox.unavailable`), no event is inserted.
   */
  insertMany(events: readonly ArrivedEvent[]): ('new' | 'seen')[] {
    return guarded(() => {
      let bytes = 0;
      for (const event of events) bytes += costOf(event);
      if (!this.#makeRoom(bytes)) throw inboxFull(this.#limits.maxBytes);
      const ageMs = this.#ageMs();
      let taken = 0;
      let takenBytes = 0;
      let lastId = this.#lastId;
      const outcomes = this.#database.transaction(() =>
        events.map((event) => {
          const names = [event.identity, ...(event.delivery ? [event.delivery] : [])];
          const known = names.map((name) => this.#seen.find(name)).find((one) => one !== undefined);
          if (known !== undefined) {
            for (const name of names) this.#seen.see(name, known, ageMs);
            return 'seen' as const;
          }
          lastId = addEvent(this.#statements, event, ageMs);
          for (const name of names) this.#seen.see(name, lastId, ageMs);
          if (event.note) this.#notes.set(event.note.name, event.note.value);
          taken++;
          takenBytes += costOf(event);
          return 'new' as const;
        }),
      )();
      this.#lastId = lastId;
      this.#events += taken;
      this.#bytes += takenBytes;
      return outcomes;
    });
  }

  /**
   * Inserts an event that this process handles itself, as running and with its first attempt. Returns its ID. Throws
   * like `insertMany`.
   */
  insertRunning(event: ArrivedEvent, attempt: Attempt): number {
    const [outcome] = this.insertMany([event]);
    if (outcome === 'seen') throw new Error('the event already exists');
    const id = this.#lastId;
    this.markRunning(id);
    this.record(id, undefined, attempt);
    return id;
  }

  /**
   * Returns a page of events whose reactions have not run, oldest first, with IDs above `afterId`. An empty page marks
   * the end.
   */
  fresh(limit: number, afterId = 0): RunnableEvent[] {
    return this.#runnable(afterId, (after) => this.#statements.fresh.iterate(after, limit));
  }

  /** Returns a page of events whose retry is due. */
  due(limit: number, afterId = 0): RunnableEvent[] {
    const ageMs = this.#ageMs();
    return this.#runnable(afterId, (id) => this.#statements.due.iterate(id, ageMs, ageMs + MAX_RETRY_MS, limit));
  }

  /** Returns a page of events that will be retried, regardless of whether they are due. */
  retried(limit: number, afterId = 0): RunnableEvent[] {
    return this.#runnable(afterId, (after) => this.#statements.failed.iterate(after, limit));
  }

  #runnable(afterId: number, rowsAfter: RowsAfter): RunnableEvent[] {
    const ageMs = this.#ageMs();
    const events = (rows: EventRow[]) =>
      rows.map((row) => toRunnable(row, this.#statements.progress.all(row.id), ageMs, this.#earlierId));
    return guarded(() => events(this.#page(afterId, rowsAfter)));
  }

  /** Returns a page of events that affect access, in any state. */
  ofAccess(limit: number, afterId = 0): InboxEvent[] {
    const rows = () => this.#page(afterId, (after) => this.#statements.ofAccess.iterate(after, limit));
    return guarded(() => rows().map(toEvent));
  }

  /** Returns a page of all events for the relay, with unchanged payloads. */
  toRelay(limit: number, afterId: number): RelayedEvent[] {
    const { after: all, signatures } = this.#statements;
    const rows = () => this.#page(afterId, (after) => all.iterate(after, limit));
    return guarded(() => rows().map((row) => toRelayed(row, signatures.get(row.id))));
  }

  #page(afterId: number, rowsAfter: RowsAfter): EventRow[] {
    return readPage(afterId, rowsAfter, (rows) => this.#whole(rows));
  }

  markRunning(id: number): void {
    guarded(() => this.#statements.start.run(id));
  }

  /** Stores the progress of an action and a journal entry in one transaction. */
  record(id: number, progress: ActionProgress | undefined, attempt?: Attempt): void {
    this.#bytes += guarded(() =>
      this.#database.transaction(() => {
        if (progress) {
          const { reaction, action, state, tries, detail } = progress;
          const sum = progressSum(id, progress);
          this.#statements.setProgress.run(id, reaction, action, state, tries, detail ?? null, sum);
        }
        return attempt ? this.#addAttempt(id, attempt) : 0;
      })(),
    );
  }

  /** Stores an event's state. `failed` events are retried after `retryInMs` of running time. Default: one minute. */
  finish(id: number, state: 'done' | 'failed' | 'dead', retryInMs = DEFAULT_RETRY_MS): void {
    guarded(() =>
      this.#database.transaction(() => {
        if (state === 'failed') this.#saveAge();
        const retryAgeMs = state === 'failed' ? Math.ceil(this.#ageMs() + Math.min(retryInMs, MAX_RETRY_MS)) : null;
        this.#statements.finish.run(state, retryAgeMs, state === 'failed' ? 1 : 0, id);
      })(),
    );
  }

  /** Runs an event again from the beginning. Returns `refused` if the event is running or unrecognised. */
  replay(id: number): 'queued' | 'unknown' | 'refused' {
    return guarded(() => {
      const row = this.#statements.get.get(id);
      if (!row) return 'unknown';
      if (row.unrecognised === 1 || row.state === 'running') return 'refused';
      this.#bytes += this.#database.transaction(() => {
        this.#statements.replay.run(id);
        this.#statements.dropProgress.run(id);
        const atMs = this.#clock.wallMs();
        return this.#addAttempt(id, { reaction: '', action: 'replay', outcome: 'begun', durationMs: 0, atMs });
      })();
      return 'queued';
    });
  }

  /** Returns the remaining cooldown in running time, or `undefined` if no cooldown is stored. */
  cooldown(reaction: string, object: string): number | undefined {
    return guarded(() => {
      const untilAgeMs = this.#statements.cooldown.get(reaction, object);
      return untilAgeMs === undefined ? undefined : untilAgeMs - this.#ageMs();
    });
  }

  setCooldown(reaction: string, object: string, restMs: number): void {
    guarded(() =>
      this.#database.transaction(() => {
        this.#saveAge();
        this.#statements.setCooldown.run(reaction, object, Math.ceil(this.#ageMs() + restMs));
      })(),
    );
  }

  /** Returns events, newest first. */
  list(query: ListQuery = {}): ListedEvent[] {
    return guarded(() => listEvents(this.#statements, query));
  }

  show(id: number): ShownEvent | undefined {
    return guarded(() => showEvent(this.#statements, id));
  }

  /** Returns for each event or delivery identity whether it is known. */
  seen(digests: readonly Uint8Array[]): boolean[] {
    return guarded(() => digests.map((digest) => this.#seen.has(digest)));
  }

  /** Returns the number of resend requests for each delivery, and the running time since the latest request. */
  asked(deliveries: readonly Uint8Array[]): { times: number; agoMs: number }[] {
    return guarded(() => this.#asked.find(deliveries, this.#ageMs()));
  }

  markAsked(deliveries: readonly Uint8Array[]): void {
    guarded(() => this.#asked.mark(deliveries, this.#ageMs()));
  }

  note(name: string): string | undefined {
    return guarded(() => this.#notes.get(name));
  }

  setNote(name: string, value: string): void {
    guarded(() => this.#notes.set(name, value));
  }

  /** Runs one step of retention. Returns whether another step is needed. */
  prune(): boolean {
    return guarded(() => {
      const ageMs = this.#ageMs();
      if (this.#clock.monotonicMs() - this.#ageSavedAtMs >= SAVE_AGE_EVERY_MS) this.#saveAge();
      const dropped = this.#dropSettled(this.#limits.keepBytes, ageMs - this.#limits.keepMs);
      const forgotten = this.#seen.prune(ageMs, STEP_ROWS * 4);
      this.#asked.prune(ageMs);
      this.#statements.dropCooldowns.run(ageMs);
      // Use `exec`, because a prepared statement would free only a single page.
      if (dropped > 0 || forgotten > 0) this.#database.exec('PRAGMA incremental_vacuum(256)');
      return dropped >= STEP_ROWS || forgotten >= STEP_ROWS * 4;
    });
  }

  stats(): InboxStats {
    return guarded(() => ({
      events: this.#events,
      waiting: this.#statements.countOpen.get() ?? 0,
      bytes: this.#bytes,
      damaged: this.#damaged,
    }));
  }

  /** Deletes up to `STEP_ROWS` events that have run and exceed the age or size limit. Returns their number. */
  #dropSettled(maxBytes: number, bornBeforeMs: number): number {
    let bytes = this.#bytes;
    const gone: number[] = [];
    const relayed = Number(this.#notes.get(RELAYED_NOTE) || Number.POSITIVE_INFINITY);
    for (const row of this.#statements.settled.iterate(STEP_ROWS)) {
      if (row.id > relayed) break;
      if (bytes <= maxBytes && row.age_ms >= bornBeforeMs) break;
      gone.push(row.id);
      bytes -= row.bytes;
    }
    if (gone.length === 0) return 0;
    this.#database.transaction(() => dropEvents(this.#statements, gone))();
    this.#bytes = bytes;
    this.#events -= gone.length;
    return gone.length;
  }

  /** Deletes events that have run until enough space is available. Returns whether this was possible. */
  #makeRoom(bytes: number): boolean {
    while (this.#bytes + bytes > this.#limits.maxBytes) {
      if (this.#dropSettled(this.#limits.maxBytes - bytes, Number.NEGATIVE_INFINITY) === 0) return false;
    }
    return true;
  }

  /** Adds a journal entry within the caller's transaction. Returns the additional size of the event. */
  #addAttempt(id: number, attempt: Attempt): number {
    const detail = attempt.detail?.slice(0, MAX_DETAIL) ?? null;
    const { reaction, action, outcome, durationMs, atMs } = attempt;
    this.#statements.addAttempt.run(id, reaction, action, outcome, detail, durationMs, atMs);
    this.#statements.trimAttempts.run(id, id, MAX_ATTEMPTS);
    const cost = this.#statements.cost.get(id);
    if (!cost) return 0;
    const bytes = cost.own + this.#statements.journalBytes.get(id)!;
    this.#statements.setCost.run(bytes, id);
    return bytes - cost.bytes;
  }

  /** Returns undamaged rows. Marks damaged events as dead. */
  #whole(rows: EventRow[]): EventRow[] {
    const whole = rows.filter(sumFits);
    if (whole.length < rows.length) for (const row of rows) if (!whole.includes(row)) this.#setDamagedAside(row);
    return whole;
  }

  /**
   * Marks a damaged event as dead, so that it does not run. Deletes its identities and resets the watermark, so that
   * the catch-up reads the event again.
   */
  #setDamagedAside(row: EventRow): void {
    if (row.unrecognised === 1 || row.state === 'done' || row.state === 'dead') return;
    const read = { reaction: '', action: 'read', outcome: 'damaged', detail: 'wrong checksum' };
    this.#bytes += this.#database.transaction(() => {
      this.#statements.finish.run('dead', null, 0, row.id);
      this.#seen.forget(row.id);
      this.#notes.set(WATERMARK_NOTE, '');
      return this.#addAttempt(row.id, { ...read, durationMs: 0, atMs: this.#clock.wallMs() });
    })();
    this.#damaged++;
  }

  #ageMs(): number {
    return this.#age.at(this.#clock.monotonicMs());
  }

  #saveAge(): void {
    const monotonicMs = this.#clock.monotonicMs();
    this.#notes.set('age', JSON.stringify(this.#age.save(monotonicMs)));
    this.#ageSavedAtMs = monotonicMs;
  }
}
