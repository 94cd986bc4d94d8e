import type { Clock } from '../clock.ts';
import type { Database } from '../database.ts';
import { StoreError } from '../errors.ts';
import { inboxFull, translateStoreError } from './inbox-errors.ts';
import type { Attempt, InboxEvent, InboxStats, ListQuery, ShownEvent } from './inbox-event.ts';
import {
  type EventRow,
  prepareStatements,
  prepareTables,
  type Statements,
  sumFits,
  sumOf,
  toAttempt,
  toEvent,
} from './inbox-tables.ts';
import type { ArrivedEvent } from './received-event.ts';
import { RunningAge, SAVE_AGE_EVERY_MS, type SavedAge } from './running-age.ts';
import { SeenMemory } from './seen-memory.ts';

/**
 * The durable inbox: what the platform told this gateway, and what became of it. Synchronous; lives in the store thread.
 *
 * States: `received` → `running` → `done`, or `failed` (runs again when its time comes) or `dead` (given up); `replay` leads back
 * to `received`. An event that nobody recognises stays `received` and never runs.
 *
 * Invariants: an event and the memory that it was seen are one transaction, so after a crash both are there or neither;
 * whatever `insertMany` returned is on disk (`synchronous=FULL`). Only what has run (or never can) is dropped by retention,
 * oldest first; that it was seen stays known for more than six months of running time. Age is counted by `RunningAge`,
 * never by the wall clock.
 *
 * A crash leaves events `running`; `open` makes them `received` again: at least once.
 */
export interface InboxLimits {
  /** Settled events are kept so long, in running time. */
  keepMs: number;
  /** Bytes of payloads above which the oldest settled ones go. */
  keepBytes: number;
  /** Bytes of payloads above which nothing is taken in: only a reaction that hangs for days leads here. */
  mostBytes: number;
}

export const INBOX_LIMITS: InboxLimits = {
  keepMs: 30 * 86_400_000,
  keepBytes: 64 * 1024 * 1024,
  mostBytes: 256 * 1024 * 1024,
};

/** Rows that one step of retention touches: a commit of the buffer in the same thread waits for it. */
const STEP_ROWS = 500;
/** Journal lines kept of one event. */
const MOST_ATTEMPTS = 200;
/** A retry further ahead than any backoff was set before the wall clock jumped back: it is due. */
const FARTHEST_RETRY_MS = 24 * 3_600_000;
/** For a failure that names no time. */
const DEFAULT_RETRY_MS = 60_000;
const ASKED_KEPT_MS = 210 * 86_400_000;
const COOLDOWNS_KEPT_MS = 30 * 86_400_000;
const LONGEST_DETAIL = 4_000;

export class Inbox {
  readonly #database: Database;
  readonly #clock: Clock;
  readonly #limits: InboxLimits;
  #statements!: Statements;
  #seen!: SeenMemory;
  #age!: RunningAge;
  #ageSavedAtMs = 0;
  #bytes = 0;
  #events = 0;
  #damaged = 0;
  #lastId = 0;

  constructor(database: Database, clock: Clock, limits: Partial<InboxLimits> = {}) {
    this.#database = database;
    this.#clock = clock;
    this.#limits = { ...INBOX_LIMITS, ...limits };
  }

  /** Makes the tables, takes up what a crash left running. `boot` is the machine's boot id; any text that changes with it. */
  open(boot: string): void {
    this.#guard(() => {
      prepareTables(this.#database);
      this.#statements = prepareStatements(this.#database);
      const saved = this.#statements.note.get('age');
      const monotonicMs = this.#clock.monotonicMs();
      this.#age = new RunningAge(saved === undefined ? undefined : (JSON.parse(saved) as SavedAge), boot, monotonicMs);
      this.#saveAge();
      this.#statements.releaseRunning.run();
      const totals = this.#statements.totals.get();
      this.#bytes = totals?.bytes ?? 0;
      this.#events = totals?.events ?? 0;
      this.#seen = new SeenMemory(this.#database);
      this.#lastId = this.#statements.lastId.get() ?? 0;
    });
  }

  /** The highest number that an event was given. */
  get lastId(): number {
    return this.#lastId;
  }

  /** Numbers up to this one are never given: events of an inbox whose place this one takes may still be under way. */
  startAfter(id: number): void {
    this.#guard(() => {
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
    return this.#guard(() => {
      let bytes = 0;
      for (const event of events) bytes += event.payload.length;
      if (this.#bytes + bytes > this.#limits.mostBytes && !this.#makeRoom(bytes))
        throw inboxFull(this.#limits.mostBytes);
      const ageMs = this.#ageMs();
      let taken = 0;
      let takenBytes = 0;
      let lastId = this.#lastId;
      const outcomes = this.#database.transaction(() =>
        events.map((event) => {
          const known = [event.identity, ...(event.delivery ? [event.delivery] : [])].map((digest) =>
            this.#seen.see(digest, ageMs),
          );
          if (known.includes(true)) return 'seen' as const;
          const { lastInsertRowid } = this.#statements.add.run(
            event.eventType,
            event.occurredAtMs ?? null,
            event.receivedAtMs,
            ageMs,
            event.identity,
            event.unrecognised ? 1 : 0,
            sumOf(event),
            event.payload.length,
            event.payload,
          );
          lastId = Number(lastInsertRowid);
          taken++;
          takenBytes += event.payload.length;
          return 'new' as const;
        }),
      )();
      this.#lastId = lastId;
      this.#events += taken;
      this.#bytes += takenBytes;
      return outcomes;
    });
  }

  /** Events whose reactions may run now, oldest first: received, or failed and due. `nowMs` is the wall clock that set the retries; only ids above `afterId`. */
  runnable(limit: number, nowMs: number, afterId = 0): InboxEvent[] {
    return this.#guard(() => {
      const rows = this.#statements.due.all(afterId, nowMs, nowMs + FARTHEST_RETRY_MS, limit);
      const whole = rows.filter(sumFits);
      if (whole.length < rows.length) {
        for (const row of rows) if (!whole.includes(row)) this.#setDamagedAside(row, nowMs);
      }
      return whole.map(toEvent);
    });
  }

  markRunning(id: number): void {
    this.#guard(() => this.#statements.start.run(id));
  }

  recordAttempt(id: number, attempt: Attempt): void {
    this.#guard(() =>
      this.#database.transaction(() => {
        const detail = attempt.detail?.slice(0, LONGEST_DETAIL) ?? null;
        const { reaction, action, outcome, durationMs, atMs } = attempt;
        this.#statements.addAttempt.run(id, reaction, action, outcome, detail, durationMs, atMs);
        this.#statements.trimAttempts.run(id, id, MOST_ATTEMPTS);
      })(),
    );
  }

  /** `failed` runs again at `retryAtMs` (wall clock), in a minute where none is given. */
  finish(id: number, state: 'done' | 'failed' | 'dead', retryAtMs?: number): void {
    const retryMs = state === 'failed' ? (retryAtMs ?? this.#clock.wallMs() + DEFAULT_RETRY_MS) : null;
    this.#guard(() => this.#statements.finish.run(state, retryMs, state === 'failed' ? 1 : 0, id));
  }

  /** Runs an event's reactions again. `unknown`: no such event; `refused`: it runs now, or nobody recognises it. */
  replay(id: number): 'queued' | 'unknown' | 'refused' {
    return this.#guard(() => {
      const row = this.#statements.get.get(id);
      if (!row) return 'unknown';
      if (row.unrecognised === 1 || row.state === 'running') return 'refused';
      this.#statements.replay.run(id);
      return 'queued';
    });
  }

  /** Until when (wall clock) a reaction rests for an object, as `setCooldown` said. */
  cooldown(reaction: string, object: string): number | undefined {
    return this.#guard(() => this.#statements.cooldown.get(reaction, object));
  }

  setCooldown(reaction: string, object: string, untilMs: number): void {
    this.#guard(() => this.#statements.setCooldown.run(reaction, object, untilMs, this.#ageMs()));
  }

  /** Newest first. */
  list(query: ListQuery = {}): InboxEvent[] {
    const limit = Math.max(1, Math.min(1_000, query.limit ?? 50));
    const before = query.beforeId ?? Number.MAX_SAFE_INTEGER;
    return this.#guard(() =>
      this.#statements.list.all(before, query.state ?? null, query.eventType ?? null, limit).map(toEvent),
    );
  }

  show(id: number): ShownEvent | undefined {
    return this.#guard(() => {
      const row = this.#statements.get.get(id);
      if (!row) return undefined;
      const journal = this.#statements.attempts.all(id).map(toAttempt);
      return { ...toEvent(row), journal, damaged: !sumFits(row) };
    });
  }

  /** Which of these identities (of events or deliveries) were seen. */
  seen(digests: readonly Uint8Array[]): boolean[] {
    return this.#guard(() => digests.map((digest) => this.#seen.has(digest)));
  }

  /** How often a delivery was asked for again, and how long ago in running time. */
  asked(deliveries: readonly Uint8Array[]): { times: number; agoMs: number }[] {
    return this.#guard(() => {
      const ageMs = this.#ageMs();
      return deliveries.map((delivery) => {
        const row = this.#statements.asked.get(delivery);
        return row ? { times: row.times, agoMs: ageMs - row.age_ms } : { times: 0, agoMs: Number.MAX_SAFE_INTEGER };
      });
    });
  }

  markAsked(deliveries: readonly Uint8Array[]): void {
    this.#guard(() =>
      this.#database.transaction(() => {
        const ageMs = this.#ageMs();
        for (const delivery of deliveries) {
          const times = (this.#statements.asked.get(delivery)?.times ?? 0) + 1;
          this.#statements.setAsked.run(delivery, times, ageMs);
        }
      })(),
    );
  }

  /** Small things that have to outlive a crash: the watermark of the catch-up. */
  note(name: string): string | undefined {
    return this.#guard(() => this.#statements.note.get(name));
  }

  setNote(name: string, value: string): void {
    this.#guard(() => this.#statements.setNote.run(name, value));
  }

  /** One small step of retention; `true`: there may be more to do. Call every minute, and again at once while true. */
  prune(): boolean {
    return this.#guard(() => {
      const ageMs = this.#ageMs();
      if (this.#clock.monotonicMs() - this.#ageSavedAtMs >= SAVE_AGE_EVERY_MS) this.#saveAge();
      const dropped = this.#dropSettled(this.#limits.keepBytes, ageMs - this.#limits.keepMs);
      const forgotten = this.#seen.prune(ageMs, STEP_ROWS * 4);
      this.#statements.dropAsked.run(ageMs - ASKED_KEPT_MS);
      this.#statements.dropCooldowns.run(ageMs - COOLDOWNS_KEPT_MS);
      // By `exec`: a prepared statement would step once and give back a single page.
      if (dropped > 0 || forgotten > 0) this.#database.exec('PRAGMA incremental_vacuum(256)');
      return dropped >= STEP_ROWS || forgotten >= STEP_ROWS * 4;
    });
  }

  stats(): InboxStats {
    return this.#guard(() => ({
      events: this.#events,
      waiting: this.#statements.countOpen.get() ?? 0,
      bytes: this.#bytes,
      damaged: this.#damaged,
    }));
  }

  /** Drops up to a step of settled events that are too old or too many. Gives how many. */
  #dropSettled(mostBytes: number, bornBeforeMs: number): number {
    let bytes = this.#bytes;
    const gone: number[] = [];
    for (const row of this.#statements.settled.iterate(STEP_ROWS)) {
      if (bytes <= mostBytes && row.age_ms >= bornBeforeMs) break;
      gone.push(row.id);
      bytes -= row.bytes;
    }
    if (gone.length === 0) return 0;
    this.#database.transaction(() => {
      for (const id of gone) {
        this.#statements.dropAttempts.run(id);
        this.#statements.drop.run(id);
      }
    })();
    this.#bytes = bytes;
    this.#events -= gone.length;
    return gone.length;
  }

  #makeRoom(bytes: number): boolean {
    while (this.#bytes + bytes > this.#limits.mostBytes) {
      if (this.#dropSettled(this.#limits.mostBytes - bytes, Number.NEGATIVE_INFINITY) === 0) return false;
    }
    return true;
  }

  /** A damaged row never runs: nobody knows what it would do. That it was seen is forgotten, so that catch-up can bring it again. */
  #setDamagedAside(row: EventRow, nowMs: number): void {
    this.#damaged++;
    this.#database.transaction(() => {
      this.#statements.finish.run('dead', null, 0, row.id);
      this.#statements.addAttempt.run(row.id, '', 'read', 'damaged', 'the row does not fit its checksum', 0, nowMs);
      this.#seen.forget(row.identity);
    })();
  }

  #ageMs(): number {
    return this.#age.at(this.#clock.monotonicMs());
  }

  #saveAge(): void {
    const monotonicMs = this.#clock.monotonicMs();
    this.#statements.setNote.run('age', JSON.stringify(this.#age.save(monotonicMs)));
    this.#ageSavedAtMs = monotonicMs;
  }

  #guard<Result>(work: () => Result): Result {
    try {
      return work();
    } catch (error) {
      throw error instanceof StoreError ? error : translateStoreError(error);
    }
  }
}
