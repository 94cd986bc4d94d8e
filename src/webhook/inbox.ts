import type { Clock } from '../base/clock.ts';
import type { Database } from '../base/database.ts';
import type { AskedMemory } from './asked-memory.ts';
import { guarded, inboxFull } from './inbox-errors.ts';
import type {
  ActionProgress,
  Attempt,
  InboxEvent,
  InboxStats,
  ListedEvent,
  ListQuery,
  RunnableEvent,
  ShownEvent,
} from './inbox-event.ts';
import { INBOX_LIMITS, type InboxLimits } from './inbox-limits.ts';
import { listEvents, type RowsAfter, readPage, showEvent } from './inbox-listing.ts';
import type { InboxNotes } from './inbox-notes.ts';
import { type OpenedTables, openTables } from './inbox-opening.ts';
import {
  costOf,
  dropEvents,
  type EventRow,
  progressSum,
  type Statements,
  sumFits,
  sumOf,
  toEvent,
  toProgress,
  toRelayed,
} from './inbox-tables.ts';
import type { ArrivedEvent } from './received-event.ts';
import { RELAYED_NOTE, type RelayedEvent } from './relayed-note.ts';
import { type RunningAge, SAVE_AGE_EVERY_MS } from './running-age.ts';
import type { SeenMemory } from './seen-memory.ts';
import { WATERMARK_NOTE } from './watermark.ts';

/** Rows that one step of retention touches: a commit of the buffer in the same thread waits for it. */
const STEP_ROWS = 500;
const MAX_ATTEMPTS = 200;
/** No backoff is as long: such a time is damage, and due. */
const MAX_RETRY_MS = 24 * 3_600_000;
/** For a failure that names no time. */
const DEFAULT_RETRY_MS = 60_000;
const MAX_DETAIL = 4_000;

/**
 * The durable inbox: what the platform told this gateway, and what became of it. Synchronous; lives in the store thread.
 *
 * States: `received` → `running` → `done`, or `failed` (runs again when its time comes) or `dead` (given up); `replay` leads back
 * to `received`. An event that nobody recognises stays `received` and never runs.
 *
 * Invariants: an event and the memory that it was seen are one transaction, so after a crash both are there or neither;
 * whatever `insertMany` returned is on disk (`synchronous=FULL`). Only what has run (or never can) is dropped by retention,
 * oldest first; that it was seen stays known for more than six months of running time. Age is counted by `RunningAge`,
 * never by the wall clock; so are the times of retries and cooldowns, which are written together with the age.
 *
 * A crash leaves events `running`; `open` makes them `received` again: at least once. What was begun for them and not ended
 * says `progress`, which no bound of the journal cuts.
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
    this.#lastId = tables.statements.lastId.get() ?? 0;
  }

  /** Makes the tables, takes up what a crash left running. `boot` is the machine's boot id; any text that changes with it. */
  static open(database: Database, clock: Clock, boot: string, limits: Partial<InboxLimits> = {}): Inbox {
    return guarded(() => {
      const tables = openTables(database, clock, boot);
      const inbox = new Inbox(database, clock, { ...INBOX_LIMITS, ...limits }, tables);
      inbox.#saveAge();
      tables.statements.releaseRunning.run();
      return inbox;
    });
  }

  /** Highest number of an event. A method, because other threads call it. */
  highestId(): number {
    return this.#lastId;
  }

  /** Numbers up to this one are never given: events of an inbox whose place this one takes may still be under way. */
  startAfter(id: number): void {
    guarded(() => {
      if (id <= this.#lastId) return;
      this.#statements.dropLastId.run();
      this.#statements.setLastId.run(id);
      this.#lastId = id;
    });
  }

  /**
   * Takes events in, in one transaction. `seen`: its identity or its delivery was known, and it is not taken again.
   * Throws `StoreError` (`inbox.full`, `inbox.disk_full`, `inbox.corrupt`, `inbox.unavailable`); then nothing was taken.
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
          const { lastInsertRowid } = this.#statements.add.run(
            event.eventType,
            event.occurredAtMs ?? null,
            event.receivedAtMs,
            ageMs,
            event.identity,
            event.unrecognised ? 1 : 0,
            sumOf(event),
            costOf(event),
            event.payload,
          );
          lastId = Number(lastInsertRowid);
          for (const name of names) this.#seen.see(name, lastId, ageMs);
          const { sha256 = null, sha1 = null } = event.signatures ?? {};
          if (sha256 ?? sha1) this.#statements.addSignatures.run(lastId, sha256, sha1);
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

  /** A page of events whose reactions have not run, oldest first, with ids above `afterId`. An empty page is the end. */
  fresh(limit: number, afterId = 0): RunnableEvent[] {
    return this.#runnable(afterId, (after) => this.#statements.fresh.iterate(after, limit));
  }

  /** A page of events whose retry is due. */
  due(limit: number, afterId = 0): RunnableEvent[] {
    const ageMs = this.#ageMs();
    return this.#runnable(afterId, (id) => this.#statements.due.iterate(id, ageMs, ageMs + MAX_RETRY_MS, limit));
  }

  /** A page of events that will be retried, due or not. */
  retried(limit: number, afterId = 0): RunnableEvent[] {
    return this.#runnable(afterId, (after) => this.#statements.failed.iterate(after, limit));
  }

  #runnable(afterId: number, rowsAfter: RowsAfter): RunnableEvent[] {
    const progress = (id: number) => toProgress(this.#statements.progress.all(id));
    const events = (rows: EventRow[]) => rows.map((row) => ({ ...toEvent(row), progress: progress(row.id) }));
    return guarded(() => events(this.#page(afterId, rowsAfter)));
  }

  /** A page of events that concern access, in any state. */
  ofAccess(limit: number, afterId = 0): InboxEvent[] {
    const rows = () => this.#page(afterId, (after) => this.#statements.ofAccess.iterate(after, limit));
    return guarded(() => rows().map(toEvent));
  }

  /** A page of all events for the relay, as they were received. */
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

  /** Writes down how far an action has come, and a line of the journal where something ended; one transaction. */
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

  /** `failed` runs again after `retryInMs` of running time, after a minute where none is given. */
  finish(id: number, state: 'done' | 'failed' | 'dead', retryInMs = DEFAULT_RETRY_MS): void {
    guarded(() =>
      this.#database.transaction(() => {
        if (state === 'failed') this.#saveAge();
        const retryAgeMs = state === 'failed' ? Math.ceil(this.#ageMs() + Math.min(retryInMs, MAX_RETRY_MS)) : null;
        this.#statements.finish.run(state, retryAgeMs, state === 'failed' ? 1 : 0, id);
      })(),
    );
  }

  /** Runs an event's reactions again, from the beginning. `unknown`: no such event; `refused`: it runs now, or is unrecognised. */
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

  /** For how much more running time a reaction rests for an object; `undefined` where it never ran. */
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

  /** Newest first. */
  list(query: ListQuery = {}): ListedEvent[] {
    return guarded(() => listEvents(this.#statements, query));
  }

  show(id: number): ShownEvent | undefined {
    return guarded(() => showEvent(this.#statements, id));
  }

  /** Which of these identities (of events or deliveries) were seen. */
  seen(digests: readonly Uint8Array[]): boolean[] {
    return guarded(() => digests.map((digest) => this.#seen.has(digest)));
  }

  /** How often a delivery was asked for again, and how long ago in running time. */
  asked(deliveries: readonly Uint8Array[]): { times: number; agoMs: number }[] {
    return guarded(() => this.#asked.find(deliveries, this.#ageMs()));
  }

  markAsked(deliveries: readonly Uint8Array[]): void {
    guarded(() => this.#asked.mark(deliveries, this.#ageMs()));
  }

  /** Small things that have to outlive a crash: the watermark of the catch-up. */
  note(name: string): string | undefined {
    return guarded(() => this.#notes.get(name));
  }

  setNote(name: string, value: string): void {
    guarded(() => this.#notes.set(name, value));
  }

  /** One small step of retention; `true`: there may be more to do. Call every minute, and again at once while true. */
  prune(): boolean {
    return guarded(() => {
      const ageMs = this.#ageMs();
      if (this.#clock.monotonicMs() - this.#ageSavedAtMs >= SAVE_AGE_EVERY_MS) this.#saveAge();
      const dropped = this.#dropSettled(this.#limits.keepBytes, ageMs - this.#limits.keepMs);
      const forgotten = this.#seen.prune(ageMs, STEP_ROWS * 4);
      this.#asked.prune(ageMs);
      this.#statements.dropCooldowns.run(ageMs);
      // By `exec`: a prepared statement would step once and give back a single page.
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

  /** Drops up to a step of settled events that are too old or too many. Gives how many. */
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

  /** Whether there is room for so much more, or could be made. */
  #makeRoom(bytes: number): boolean {
    while (this.#bytes + bytes > this.#limits.maxBytes) {
      if (this.#dropSettled(this.#limits.maxBytes - bytes, Number.NEGATIVE_INFINITY) === 0) return false;
    }
    return true;
  }

  /** Part of the caller's transaction. Gives by how much the event costs more. */
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

  /** The rows that fit their checksums; the others are put aside. */
  #whole(rows: EventRow[]): EventRow[] {
    const whole = rows.filter(sumFits);
    if (whole.length < rows.length) for (const row of rows) if (!whole.includes(row)) this.#setDamagedAside(row);
    return whole;
  }

  /**
   * A damaged row never runs: nobody knows what it would do. It is forgotten under all its names, and everything that the
   * platform still has is listed anew, so that catch-up brings it again. One whose reactions are over stays known.
   */
  #setDamagedAside(row: EventRow): void {
    if (row.unrecognised === 1 || row.state === 'done' || row.state === 'dead') return;
    const atMs = this.#clock.wallMs();
    const detail = 'the row does not fit its checksum';
    this.#bytes += this.#database.transaction(() => {
      this.#statements.finish.run('dead', null, 0, row.id);
      this.#seen.forget(row.id);
      this.#notes.set(WATERMARK_NOTE, '');
      return this.#addAttempt(row.id, {
        reaction: '',
        action: 'read',
        outcome: 'damaged',
        detail,
        durationMs: 0,
        atMs,
      });
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
