import { crc32 } from 'node:zlib';
import type { Database } from '../base/database.ts';
import type { ObjectKind, ObjectNames } from './access-event.ts';

/**
 * The assets, instrumentations and nodes that this gateway has met, on disk: how the platform's access events name them, and when
 * values for them were last accepted. People find ids in it by a tag or a serial number. Synchronous; lives in the store thread,
 * in the inbox's database.
 *
 * Invariants: at most `MAX_OBJECTS` rows, the least recently seen one is dropped first; the order of `turn` decides, never a clock.
 * Whether an object is visible or lost is stored in the table of holds alone, which writes names in the same transaction. Every row
 * carries a checksum; a row that does not match is ignored and replaced. A crash leaves the state before or after a change.
 */
/** An object that was met now. Names that are left out stay as they are. */
export interface MetObject extends ObjectNames {
  kind: ObjectKind;
  id: number;
  /** Wall clock: for people. */
  seenMs: number;
}

/** As `assets --json` prints it. Times are ISO 8601, UTC. */
export interface ObjectLine {
  kind: ObjectKind;
  id: number;
  serial_number: string | null;
  tag: string | null;
  name: string | null;
  /** By its last access event; `posted`: no event named it, and the platform accepted values for it. */
  state: 'visible' | 'lost' | 'posted';
  last_seen: string;
  /** When a post was accepted, to the day. */
  accepted_at: string | null;
}

export interface ObjectQuery {
  /** Part of an id, a serial number, a tag or a name, in any case. */
  text?: string | undefined;
  limit: number;
}

export interface ObjectListing {
  /** Last seen first. */
  objects: ObjectLine[];
  /** All that match. */
  total: number;
}

export const MAX_OBJECTS = 20_000;
/** Characters of a name. */
const MAX_NAME = 200;
/** A post is noted once in so long: posts must not cost flash writes. */
const NOTED_FOR_MS = 24 * 3_600_000;

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
  /** Changes since the table was opened. */
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

  /** Part of the caller's transaction. */
  meet(objects: readonly MetObject[]): void {
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

  /** The platform accepted values for these. Writes only what was not noted within a day. */
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

  /** Moves with every change. A method, because other threads call it. */
  changes(): number {
    return this.#changes;
  }

  list({ text = '', limit }: ObjectQuery): ObjectListing {
    const wanted = text.toLowerCase();
    const objects: ObjectLine[] = [];
    let total = 0;
    // One database of an agent that never ran in this version has no such table.
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

  /** The last one of all. */
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
