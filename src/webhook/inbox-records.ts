import { crc32 } from 'node:zlib';
import type { Clock } from '../base/clock.ts';
import type { Database } from '../base/database.ts';
import { prepareStatements, prepareTables, type Statements } from './inbox-tables.ts';
import { SeenMemory } from './seen-memory.ts';

/**
 * Age of the inbox in running time, on which retention is based. The age increases across restarts within one boot, but
 * not while the machine is off. Retention is therefore not affected by wall clock jumps or by a clock that shows 1970
 * after a boot.
 */
export interface SavedAge {
  ageMs: number;
  /** Boot ID of the machine (`/proc/sys/kernel/random/boot_id`). */
  boot: string;
  /** Monotonic time at which the age was saved. */
  monotonicMs: number;
}

/** Returns `undefined` for invalid text. */
function parseAge(text: string | undefined): SavedAge | undefined {
  if (text === undefined) return undefined;
  try {
    const { ageMs, boot, monotonicMs } = JSON.parse(text) as Partial<SavedAge>;
    if (typeof boot !== 'string' || !Number.isFinite(ageMs) || !Number.isFinite(monotonicMs)) return undefined;
    return { ageMs: ageMs!, boot, monotonicMs: monotonicMs! };
  } catch {
    return undefined;
  }
}

/** Interval at which the age is saved. After a crash, the age is too low by at most this interval. */
export const SAVE_AGE_EVERY_MS = 10 * 60_000;

export class RunningAge {
  readonly #boot: string;
  readonly #startAgeMs: number;
  readonly #startMonotonicMs: number;

  /** `lowestMs`: highest age stored with an event. */
  constructor(saved: SavedAge | undefined, boot: string, monotonicMs: number, lowestMs = 0) {
    const sameBoot = saved?.boot === boot && monotonicMs >= saved.monotonicMs;
    this.#boot = boot;
    const ageMs = (saved?.ageMs ?? 0) + (saved && sameBoot ? monotonicMs - saved.monotonicMs : 0);
    this.#startAgeMs = Math.max(ageMs, lowestMs);
    this.#startMonotonicMs = monotonicMs;
  }

  at(monotonicMs: number): number {
    return Math.floor(this.#startAgeMs + Math.max(0, monotonicMs - this.#startMonotonicMs));
  }

  save(monotonicMs: number): SavedAge {
    return { ageMs: this.at(monotonicMs), boot: this.#boot, monotonicMs };
  }
}

/**
 * Stores named values with checksums, for example the age of the inbox and the watermark. Damaged values are not
 * returned.
 */
export class InboxNotes {
  readonly #get;
  readonly #set;

  constructor(database: Database) {
    this.#get = database.prepare<[string], { value: string; sum: number }>(
      'SELECT value, sum FROM inbox_note WHERE name = ?',
    );
    this.#set = database.prepare<[string, string, number]>('INSERT OR REPLACE INTO inbox_note VALUES (?, ?, ?)');
  }

  get(name: string): string | undefined {
    const row = this.#get.get(name);
    return row?.sum === sumOf(name, row?.value ?? '') ? row.value : undefined;
  }

  set(name: string, value: string): void {
    this.#set.run(name, value, sumOf(name, value));
  }
}

function sumOf(name: string, value: string): number {
  return crc32(`${name}\n${value}`);
}

/** Retention of resend requests, which exceeds the platform's retention of deliveries. */
const KEPT_MS = 210 * 86_400_000;

/** Stores the number of resend requests per delivery, and the running time of the latest request. */
export class AskedMemory {
  readonly #database: Database;
  readonly #find;
  readonly #set;
  readonly #drop;

  constructor(database: Database) {
    this.#database = database;
    this.#find = database.prepare<[Uint8Array], { times: number; age_ms: number }>(
      'SELECT times, age_ms FROM inbox_asked WHERE digest = ?',
    );
    this.#set = database.prepare<[Uint8Array, number, number]>('INSERT OR REPLACE INTO inbox_asked VALUES (?, ?, ?)');
    this.#drop = database.prepare<[number]>('DELETE FROM inbox_asked WHERE age_ms < ?');
  }

  find(deliveries: readonly Uint8Array[], ageMs: number): { times: number; agoMs: number }[] {
    return deliveries.map((delivery) => {
      const row = this.#find.get(delivery);
      return row ? { times: row.times, agoMs: ageMs - row.age_ms } : { times: 0, agoMs: Number.MAX_SAFE_INTEGER };
    });
  }

  mark(deliveries: readonly Uint8Array[], ageMs: number): void {
    this.#database.transaction(() => {
      for (const delivery of deliveries) this.#set.run(delivery, (this.#find.get(delivery)?.times ?? 0) + 1, ageMs);
    })();
  }

  prune(ageMs: number): void {
    this.#drop.run(ageMs - KEPT_MS);
  }
}

/** The open tables of the inbox. */
export interface OpenedTables {
  statements: Statements;
  seen: SeenMemory;
  asked: AskedMemory;
  notes: InboxNotes;
  age: RunningAge;
}

/** Opens the tables, and creates missing tables. `boot` is the machine's boot ID. */
export function openTables(database: Database, clock: Clock, boot: string): OpenedTables {
  prepareTables(database);
  const statements = prepareStatements(database);
  const seen = new SeenMemory(database);
  const notes = new InboxNotes(database);
  // The age must not decrease, even if the stored age is lost.
  const lowestMs = Math.max(statements.newestAge.get() ?? 0, seen.newestAgeMs);
  const age = new RunningAge(parseAge(notes.get('age')), boot, clock.monotonicMs(), lowestMs);
  return { statements, seen, asked: new AskedMemory(database), notes, age };
}
