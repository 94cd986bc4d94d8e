import { crc32 } from 'node:zlib';
import type { Database } from '../base/database.ts';
import type { ObjectKind } from './access-event.ts';
import type { KnownObjects, MetObject } from './known-objects.ts';
import type { AccessObject, Refusal } from './visibility.ts';

/**
 * What this technical user may see, on disk: the last access event of every object and what was refused. Synchronous;
 * lives in the store thread, in the inbox's database.
 *
 * How far access has read the inbox is kept with what it made of it: the cursor moves with the change, and where there was no
 * change, the same events are read again after a restart and change nothing again.
 *
 * Invariants: a change is one transaction; every row carries a checksum. A row that does not fit it is deleted and counted
 * when it is read: a refused asset is refused once more, and a lost one is found again in the inbox, or by its next answer.
 * A crash leaves the state before or after a change.
 */
export interface HoldChange {
  objects?: readonly AccessObject[];
  /** Objects that an event named, for people who look for ids. */
  met?: readonly MetObject[];
  refusals?: readonly Refusal[];
  /** What is not refused any more. */
  released?: readonly Pick<Refusal, 'kind' | 'id'>[];
  /** Objects whose last event need not be known any more. */
  forgotten?: readonly { kind: ObjectKind; id: number }[];
  /** The event of the inbox that it comes from: all up to it are in the table. */
  cursor?: number;
}

export interface LoadedHolds {
  objects: AccessObject[];
  refusals: Refusal[];
  /** All events of the inbox up to this one are in the table. */
  cursor: number;
  /** Rows that were deleted because they did not fit their checksum. */
  damaged: number;
}

interface ObjectRow {
  kind: ObjectKind;
  id: number;
  gone: number;
  occurred_ms: number | null;
  since_ms: number;
  proved: number;
  sum: number;
}

interface RefusalRow {
  kind: Refusal['kind'];
  id: number;
  status: number;
  since_ms: number;
  sum: number;
}

export class HoldTable {
  readonly #database: Database;
  readonly #known: KnownObjects;

  constructor(database: Database, known: KnownObjects) {
    this.#database = database;
    this.#known = known;
  }

  open(): void {
    this.#database.exec(`
      CREATE TABLE IF NOT EXISTS access_object (
        kind TEXT NOT NULL, id INTEGER NOT NULL, gone INTEGER NOT NULL, occurred_ms REAL, since_ms REAL NOT NULL,
        proved INTEGER NOT NULL, sum INTEGER NOT NULL, PRIMARY KEY (kind, id)) WITHOUT ROWID;
      CREATE TABLE IF NOT EXISTS access_refused (
        kind TEXT NOT NULL, id INTEGER NOT NULL, status INTEGER NOT NULL, since_ms REAL NOT NULL, sum INTEGER NOT NULL,
        PRIMARY KEY (kind, id)) WITHOUT ROWID;
      CREATE TABLE IF NOT EXISTS access_cursor (
        one INTEGER PRIMARY KEY CHECK (one = 1), event INTEGER NOT NULL, sum INTEGER NOT NULL);
    `);
  }

  /** Everything, once at the start. */
  load(): LoadedHolds {
    const database = this.#database;
    let damaged = 0;
    const objects: AccessObject[] = [];
    for (const row of database.prepare<[], ObjectRow>('SELECT * FROM access_object').all()) {
      const object = {
        kind: row.kind,
        id: row.id,
        gone: row.gone === 1,
        occurredAtMs: row.occurred_ms,
        sinceMs: row.since_ms,
        proved: row.proved === 1,
      };
      if (row.sum === sumOf(object)) objects.push(object);
      else
        damaged += database
          .prepare('DELETE FROM access_object WHERE kind = ? AND id = ?')
          .run(row.kind, row.id).changes;
    }
    const refusals: Refusal[] = [];
    for (const row of database.prepare<[], RefusalRow>('SELECT * FROM access_refused').all()) {
      const { kind, id } = row;
      const refusal = { kind, id, status: row.status as 403 | 404, sinceMs: row.since_ms };
      if (row.sum === sumOf(refusal)) refusals.push(refusal);
      else damaged += database.prepare('DELETE FROM access_refused WHERE kind = ? AND id = ?').run(kind, id).changes;
    }
    const cursor = database.prepare<[], CursorRow>('SELECT event, sum FROM access_cursor').get();
    const isCurrent = damaged === 0 && cursor?.sum === cursorSum(cursor?.event ?? 0);
    // Where a row or the cursor is lost, every event that the inbox still has is read again: their order does not matter.
    return { objects, refusals, damaged, cursor: isCurrent ? (cursor?.event ?? 0) : 0 };
  }

  /** The events that it counts are not those of the inbox any more. */
  forgetCursor(): void {
    this.#database.prepare('DELETE FROM access_cursor').run();
  }

  /** One transaction: on disk when it returns. Throws the driver's error; then nothing changed. */
  save(change: HoldChange): void {
    const database = this.#database;
    const putObject = database.prepare('INSERT OR REPLACE INTO access_object VALUES (?, ?, ?, ?, ?, ?, ?)');
    const putRefusal = database.prepare('INSERT OR REPLACE INTO access_refused VALUES (?, ?, ?, ?, ?)');
    const release = database.prepare('DELETE FROM access_refused WHERE kind = ? AND id = ?');
    const setCursor = database.prepare('INSERT OR REPLACE INTO access_cursor VALUES (1, ?, ?)');
    const forget = database.prepare('DELETE FROM access_object WHERE kind = ? AND id = ?');
    database.transaction(() => {
      for (const one of change.forgotten ?? []) forget.run(one.kind, one.id);
      for (const one of change.objects ?? []) {
        const { kind, id, gone, occurredAtMs, sinceMs, proved } = one;
        putObject.run(kind, id, gone ? 1 : 0, occurredAtMs, sinceMs, proved ? 1 : 0, sumOf(one));
      }
      if (change.met) this.#known.meet(change.met);
      for (const one of change.refusals ?? []) {
        putRefusal.run(one.kind, one.id, one.status, one.sinceMs, sumOf(one));
      }
      for (const one of change.released ?? []) release.run(one.kind, one.id);
      if (change.cursor !== undefined) setCursor.run(change.cursor, cursorSum(change.cursor));
    })();
  }
}

interface CursorRow {
  event: number;
  sum: number;
}

function cursorSum(event: number): number {
  return crc32(`cursor ${event}`);
}

function sumOf(row: AccessObject | Refusal): number {
  if ('status' in row) return crc32(`${row.kind} ${row.id} ${row.status} ${row.sinceMs}`);
  return crc32(`${row.kind} ${row.id} ${row.gone} ${row.occurredAtMs} ${row.sinceMs} ${row.proved}`);
}
