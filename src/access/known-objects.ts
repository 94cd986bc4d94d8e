import { crc32 } from 'node:zlib';
import type { Database } from '../base/database.ts';
import type { ObjectKind, ObjectNames } from './access-event.ts';

/**
 * Assets, instrumentations and nodes known to this gateway, stored on disk. Contains their names in access events and
 * the latest time at which the platform accepted values for them. Operators use the table to find IDs by tag or serial
 * number. Synchronous; runs in the store thread and uses the inbox database.
 *
 * Invariants: the table has at most `MAX_OBJECTS` rows. Above the limit, the least recently seen row is deleted,
 * determined by `turn` rather than by a clock. Only the hold table stores whether an object is visible; it writes the
 * names in the same transaction. Every row has a checksum, and a row with an invalid checksum is ignored and replaced.
 * After a crash, the table contains a change completely or not at all.
 */
/** Object in an event. Omitted names keep their previous values. */
export interface NamedObject extends ObjectNames {
  kind: ObjectKind;
  id: number;
  /** Wall-clock time, for display. */
  seenMs: number;
}

/** Output of `assets --json`. Times are ISO 8601, UTC. */
export interface ObjectLine {
  kind: ObjectKind;
  id: number;
  serial_number: string | null;
  tag: string | null;
  name: string | null;
  /**
   * State according to the latest access event. `posted`: no event contained the object, but the platform accepted
   * values for it.
   */
  state: 'visible' | 'lost' | 'posted';
  last_seen: string;
  /** Time of the latest accepted post, with a precision of one day. */
  accepted_at: string | null;
}

export interface ObjectQuery {
  /** Part of an ID, serial number, tag or name; case-insensitive. */
  text?: string | undefined;
  limit: number;
}

export interface ObjectListing {
  /** Matching objects, most recently seen first. */
  objects: ObjectLine[];
  /** Total number of matching objects. */
  total: number;
}

export const MAX_OBJECTS = 20_000;
/** Maximum length of a name, in characters. */
const MAX_NAME = 200;
/** Minimum interval between recorded posts of an object, which limits flash wear. */
export const NOTED_FOR_MS = 24 * 3_600_000;

interface Row {
  kind: ObjectKind;
  id: number;
  serial_number: string | null;
  tag: string | null;
  name: string | null;
  seen_ms: number;
  accepted_ms: number | null;
  sum: number;
}

export class KnownObjects {
  readonly #database: Database;
  /** Number of changes since the table was opened. */
  #changes = 0;

  constructor(database: Database) {
    this.#database = database;
  }

  open(): void {
    this.#database.exec(`
      CREATE TABLE IF NOT EXISTS access_known (
        turn INTEGER PRIMARY KEY, kind TEXT NOT NULL, id INTEGER NOT NULL, serial_number TEXT, tag TEXT, name TEXT,
        seen_ms REAL NOT NULL, accepted_ms REAL, sum INTEGER NOT NULL, UNIQUE (kind, id));
    `);
  }

  /** Stores objects from an event, within the caller's transaction. */
  noteNames(objects: readonly NamedObject[]): void {
    for (const { kind, id, serialNumber, tag, name, seenMs } of objects) {
      const before = this.#row(kind, id);
      this.#put({
        kind,
        id,
        serial_number: bounded(serialNumber) ?? before?.serial_number ?? null,
        tag: bounded(tag) ?? before?.tag ?? null,
        name: bounded(name) ?? before?.name ?? null,
        seen_ms: seenMs,
        accepted_ms: before?.accepted_ms ?? null,
      });
    }
    this.#trim();
  }

  /** Records that the platform accepted values for these objects. Objects recorded within the past day are skipped. */
  accepted(objects: readonly { kind: ObjectKind; id: number }[], wallMs: number): void {
    this.#database.transaction(() => {
      for (const { kind, id } of objects) {
        const before = this.#row(kind, id);
        const isNoted = Math.abs(wallMs - (before?.accepted_ms ?? Number.NEGATIVE_INFINITY)) < NOTED_FOR_MS;
        if (isNoted) continue;
        const names = before ?? { serial_number: null, tag: null, name: null };
        const { serial_number, tag, name } = names;
        this.#put({ kind, id, serial_number, tag, name, seen_ms: wallMs, accepted_ms: wallMs });
      }
      this.#trim();
    })();
  }

  /** Returns the change counter. It is a method because other threads call it. */
  changes(): number {
    return this.#changes;
  }

  list({ text = '', limit }: ObjectQuery): ObjectListing {
    const wanted = text.toLowerCase();
    const objects: ObjectLine[] = [];
    let total = 0;
    // The table does not exist if this version has never run.
    if (!this.#database.prepare(`SELECT 1 FROM sqlite_schema WHERE name = 'access_known'`).get())
      return { objects, total };
    const rows = this.#database.prepare<[], Row & { gone: number | null }>(
      `SELECT known.*, gone FROM access_known AS known LEFT JOIN access_object USING (kind, id) ORDER BY turn DESC`,
    );
    for (const row of rows.iterate()) {
      const { id, serial_number, tag, name } = row;
      const isMeant = [String(id), serial_number, tag, name].some((one) => one?.toLowerCase().includes(wanted));
      if (!isMeant || sumOf(row) !== row.sum) continue;
      total++;
      if (objects.length < limit) objects.push(lineOf(row));
    }
    return { objects, total };
  }

  #row(kind: ObjectKind, id: number): Row | undefined {
    const row = this.#database
      .prepare<[string, number], Row>('SELECT * FROM access_known WHERE kind = ? AND id = ?')
      .get(kind, id);
    return row && sumOf(row) === row.sum ? row : undefined;
  }

  /** Stores the row as the most recently seen one. */
  #put(row: Omit<Row, 'sum'>): void {
    const { kind, id, serial_number, tag, name, seen_ms, accepted_ms } = row;
    this.#database
      .prepare(
        `INSERT OR REPLACE INTO access_known (kind, id, serial_number, tag, name, seen_ms, accepted_ms, sum)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
      )
      .run(kind, id, serial_number, tag, name, seen_ms, accepted_ms, sumOf(row));
    this.#changes++;
  }

  #trim(): void {
    this.#database
      .prepare(
        'DELETE FROM access_known WHERE turn IN (SELECT turn FROM access_known ORDER BY turn DESC LIMIT -1 OFFSET ?)',
      )
      .run(MAX_OBJECTS);
  }
}

function bounded(text: string | undefined): string | undefined {
  const part = text?.slice(0, MAX_NAME).toWellFormed().trim();
  return part === '' ? undefined : part;
}

function sumOf({ kind, id, serial_number, tag, name, seen_ms, accepted_ms }: Omit<Row, 'sum'>): number {
  return crc32(JSON.stringify([kind, id, serial_number, tag, name, seen_ms, accepted_ms]));
}

function lineOf(row: Row & { gone: number | null }): ObjectLine {
  const { kind, id, serial_number, tag, name, gone, seen_ms, accepted_ms } = row;
  return {
    kind,
    id,
    serial_number,
    tag,
    name,
    state: gone === 1 ? 'lost' : gone === null && accepted_ms !== null ? 'posted' : 'visible',
    last_seen: isoOf(seen_ms),
    accepted_at: accepted_ms === null ? null : isoOf(accepted_ms),
  };
}

function isoOf(ms: number): string {
  return new Date(Math.min(8.64e15, Math.max(-8.64e15, ms))).toISOString();
}
