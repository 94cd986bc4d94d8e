import { crc32 } from 'node:zlib';
import type { Database } from '../base/database.ts';
import type { ObjectKind } from './access-event.ts';
import type { AccessObject, HoldChange, Refusal } from './access-state.ts';
import type { KnownObjects } from './known-objects.ts';

export interface LoadedHolds {
  objects: AccessObject[];
  refusals: Refusal[];
  /** Inbox ID up to which all events are in the table. */
  cursor: number;
  /** Number of rows deleted because of an invalid checksum. */
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

/**
 * Access of this technical user, stored on disk: the latest access event per object, and rejections. Synchronous; runs
 * in the store thread and uses the inbox database.
 *
 * The inbox cursor is saved together with the changes. Events that caused no change are read again after a restart and
 * have no effect.
 *
 * Invariants: a change is one transaction, and every row has a checksum. On load, rows with an invalid checksum are
 * deleted and counted. The lost state is restored by the next response or from the inbox. After a crash, the table
 * contains a change completely or not at all.
 */
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

  /** Reads the whole table at startup. */
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
    // If a row or the cursor is lost, all events in the inbox are read again. The order of events does not matter.
    return { objects, refusals, damaged, cursor: isCurrent ? (cursor?.event ?? 0) : 0 };
  }

  /** Deletes the cursor after the inbox was replaced. */
  forgetCursor(): void {
    this.#database.prepare('DELETE FROM access_cursor').run();
  }

  /**
   * Writes a change in one transaction, which is on disk when the call returns. If it throws a driver error, the table
   * is unchanged.
   */
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
      if (change.named) this.#known.noteNames(change.named);
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
