import { crc32 } from 'node:zlib';
import type { Statement } from 'better-sqlite3';
import type { Database } from '../base/database.ts';
import type { ObjectKind, VisibilityEvent } from './access-event.ts';

export type AccessCause = 'answered_403' | 'answered_404' | 'asset_disappeared' | 'instrumentation_disappeared';

/** Object whose values are held. */
export interface HeldObject {
  kind: 'asset' | 'instrumentation';
  id: number;
}

export interface StoredHold extends HeldObject {
  cause: AccessCause;
  /** Wall-clock time, for display. */
  sinceMs: number;
}

export interface LoadedHolds {
  holds: StoredHold[];
  /** Nodes that disappeared. `sinceMs` is wall-clock time. */
  lostNodes: { node: number; sinceMs: number }[];
  /** Inbox ID up to which all events are in the table. */
  cursor: number;
  /** Number of rows deleted because of an invalid checksum. */
  damaged: number;
}

/** Access event with the related objects in tags.yaml. */
export interface ArrivedVisibility extends VisibilityEvent {
  /** Inbox ID of the event. All earlier events are in the table. */
  cursor: number;
  wallMs: number;
  /** Related objects in tags.yaml: the assets of an instrumentation, or the instrumentations of an asset. */
  related: readonly number[];
  /** Whether the event may concern another user. The object is then not held until a post is rejected. */
  isDoubtful: boolean;
}

/** Effect of an event. */
export interface HoldChange {
  held: StoredHold[];
  released: HeldObject[];
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

interface Row {
  kind: ObjectKind;
  id: number;
  serial_number: string | null;
  tag: string | null;
  name: string | null;
  seen_ms: number;
  accepted_ms: number | null;
  /** 1 if the object disappeared, 0 if it appeared, `null` if no event contained it. */
  gone: number | null;
  occurred_ms: number | null;
  /** Cause of the hold; `null` if the object is not held. */
  cause: AccessCause | null;
  held_ms: number | null;
}

type StoredRow = Row & { sum: number };

/** Maximum number of objects that are not held. */
export const MAX_OBJECTS = 20_000;
/** Maximum length of a name, in characters. */
const MAX_NAME = 200;
/** Minimum interval between recorded posts of an object, which limits flash wear. */
const NOTED_FOR_MS = 24 * 3_600_000;
/** Events within this time count as simultaneous, because the clocks of a platform's servers differ. */
const SIMULTANEOUS_MS = 1_000;

/**
 * Assets, instrumentations and nodes known to this gateway, stored on disk. A row contains the names, latest access
 * event, hold and latest accepted post of an object. Operators use the table to find IDs by tag or serial number.
 * Synchronous; runs in the store thread and uses the inbox database.
 *
 * Events can arrive in any order and more than once, so the result does not depend on their order. An object is lost if
 * it disappeared at least a second after it last appeared. Of simultaneous events, `appeared` takes precedence, because
 * one unnecessary post is less harmful than held values.
 *
 * Invariants: an event and its effect are stored in one transaction, and every row has a checksum. On load, rows with
 * an invalid checksum are deleted and counted; the next response or the inbox restores the lost state. Above
 * `MAX_OBJECTS`, the least recently changed rows without a hold are deleted, determined by `turn` rather than by a
 * clock.
 */
export class AccessTable {
  readonly #database: Database;
  /** Prepared once, because the records of accepted posts read each object once per minute. */
  #selectOne: Statement<[string, number], StoredRow> | undefined;
  /** Number of changes since the table was opened. */
  #changes = 0;

  constructor(database: Database) {
    this.#database = database;
  }

  open(): void {
    this.#database.exec(`
      CREATE TABLE IF NOT EXISTS access_object (
        turn INTEGER PRIMARY KEY, kind TEXT NOT NULL, id INTEGER NOT NULL, serial_number TEXT, tag TEXT, name TEXT,
        seen_ms REAL NOT NULL, accepted_ms REAL, gone INTEGER, occurred_ms REAL, cause TEXT, held_ms REAL,
        sum INTEGER NOT NULL, UNIQUE (kind, id));
      CREATE TABLE IF NOT EXISTS access_cursor (
        one INTEGER PRIMARY KEY CHECK (one = 1), event INTEGER NOT NULL, sum INTEGER NOT NULL);
    `);
  }

  /** Reads the holds at startup. */
  load(): LoadedHolds {
    const database = this.#database;
    const loaded: LoadedHolds = { holds: [], lostNodes: [], cursor: 0, damaged: 0 };
    for (const row of database.prepare<[], StoredRow>('SELECT * FROM access_object').all()) {
      const { kind, id, gone, cause, seen_ms, held_ms } = row;
      if (!isIntact(row)) {
        database.prepare('DELETE FROM access_object WHERE kind = ? AND id = ?').run(kind, id);
        loaded.damaged++;
      } else if (kind === 'node') {
        if (gone === 1) loaded.lostNodes.push({ node: id, sinceMs: seen_ms });
      } else if (cause !== null) {
        loaded.holds.push({ kind, id, cause, sinceMs: held_ms! });
      }
    }
    const cursor = database.prepare<[], CursorRow>('SELECT event, sum FROM access_cursor').get();
    const isCurrent = loaded.damaged === 0 && cursor?.sum === crc32(`cursor ${cursor?.event}`);
    // If a row or the cursor is lost, all events in the inbox are read again.
    if (isCurrent) loaded.cursor = cursor!.event;
    return loaded;
  }

  /** Deletes the cursor after the inbox was replaced. */
  forgetCursor(): void {
    this.#database.prepare('DELETE FROM access_cursor').run();
  }

  /**
   * Stores an event and its effect, which are on disk when the call returns. Returns `undefined` if the event changes
   * nothing. If it throws a driver error, the table is unchanged.
   */
  apply(event: ArrivedVisibility): HoldChange | undefined {
    const { object: kind, id, gone, names, cursor, wallMs, occurredAtMs } = event;
    const before = this.#rowOf(kind, id, wallMs);
    if (!isNews(before, gone, occurredAtMs)) return undefined;
    return this.#database.transaction(() => {
      this.#put({
        ...before,
        serial_number: bounded(names.serialNumber) ?? before.serial_number,
        tag: bounded(names.tag) ?? before.tag,
        name: bounded(names.name) ?? before.name,
        seen_ms: wallMs,
        gone: gone ? 1 : 0,
        occurred_ms: occurredAtMs ?? null,
      });
      this.#trim();
      const change = gone ? this.#lost(event) : this.#regained(event);
      for (const one of change.held) this.hold(one);
      for (const one of change.released) this.release(one);
      this.#database
        .prepare('INSERT OR REPLACE INTO access_cursor VALUES (1, ?, ?)')
        .run(cursor, crc32(`cursor ${cursor}`));
      return change;
    })();
  }

  hold({ kind, id, cause, sinceMs }: StoredHold): void {
    this.#put({ ...this.#rowOf(kind, id, sinceMs), cause, held_ms: sinceMs });
  }

  release({ kind, id }: HeldObject): void {
    const row = this.#stored(kind, id);
    if (row) this.#put({ ...row, cause: null, held_ms: null });
  }

  /** Records that the platform accepted values for these objects. Objects recorded within the past day are skipped. */
  accepted(objects: readonly { kind: ObjectKind; id: number }[], wallMs: number): void {
    this.#database.transaction(() => {
      for (const { kind, id } of objects) {
        const before = this.#rowOf(kind, id, wallMs);
        const isNoted = Math.abs(wallMs - (before.accepted_ms ?? Number.NEGATIVE_INFINITY)) < NOTED_FOR_MS;
        if (!isNoted) this.#put({ ...before, seen_ms: wallMs, accepted_ms: wallMs });
      }
      this.#trim();
    })();
  }

  /** Returns the change counter. A method rather than a getter, because other threads call it. */
  changes(): number {
    return this.#changes;
  }

  list({ text = '', limit }: ObjectQuery): ObjectListing {
    const wanted = text.toLowerCase();
    const objects: ObjectLine[] = [];
    let total = 0;
    // The table does not exist if this version has never run.
    if (!this.#database.prepare(`SELECT 1 FROM sqlite_schema WHERE name = 'access_object'`).get())
      return { objects, total };
    const rows = this.#database.prepare<[], StoredRow>(
      'SELECT * FROM access_object WHERE gone IS NOT NULL OR accepted_ms IS NOT NULL ORDER BY turn DESC',
    );
    for (const row of rows.iterate()) {
      const { id, serial_number, tag, name } = row;
      const isMeant = [String(id), serial_number, tag, name].some((one) => one?.toLowerCase().includes(wanted));
      if (!isMeant || !isIntact(row)) continue;
      total++;
      if (objects.length < limit) objects.push(lineOf(row));
    }
    return { objects, total };
  }

  /** An asset inherits the permissions of its instrumentations (platform 2.2), so one that appeared keeps it visible. */
  #lost({ object: kind, id, occurredAtMs, related, wallMs, isDoubtful }: ArrivedVisibility): HoldChange {
    const isInherited = related.some((other) => {
      const row = kind === 'asset' ? this.#stored('instrumentation', other) : undefined;
      return row?.gone === 0 && !isLater(occurredAtMs, row.occurred_ms);
    });
    if (kind === 'node' || isDoubtful || isInherited) return { held: [], released: [] };
    return { held: [{ kind, id, cause: `${kind}_disappeared`, sinceMs: wallMs }], released: [] };
  }

  #regained({ object: kind, id, occurredAtMs, related }: ArrivedVisibility): HoldChange {
    if (kind === 'node') return { held: [], released: [] };
    const assets = kind === 'instrumentation' ? related : [];
    const regained = assets.filter((asset) => {
      const row = this.#stored('asset', asset);
      return row?.gone !== 1 || !isLater(row.occurred_ms, occurredAtMs);
    });
    return { held: [], released: [{ kind, id }, ...regained.map((asset) => ({ kind: 'asset' as const, id: asset }))] };
  }

  #stored(kind: ObjectKind, id: number): Row | undefined {
    this.#selectOne ??= this.#database.prepare('SELECT * FROM access_object WHERE kind = ? AND id = ?');
    const row = this.#selectOne.get(kind, id);
    return row && isIntact(row) ? row : undefined;
  }

  /** Returns the row of an object; a new one if the table does not contain it. */
  #rowOf(kind: ObjectKind, id: number, wallMs: number): Row {
    const names = { serial_number: null, tag: null, name: null };
    const states = { accepted_ms: null, gone: null, occurred_ms: null, cause: null, held_ms: null };
    return this.#stored(kind, id) ?? { kind, id, ...names, ...states, seen_ms: wallMs };
  }

  /** Stores the row as the most recently changed one. */
  #put(row: Row): void {
    this.#database
      .prepare(
        `INSERT OR REPLACE INTO access_object
           (kind, id, serial_number, tag, name, seen_ms, accepted_ms, gone, occurred_ms, cause, held_ms, sum)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      )
      .run(...contentOf(row), sumOf(row));
    this.#changes++;
  }

  #trim(): void {
    this.#database
      .prepare(
        `DELETE FROM access_object WHERE turn IN
           (SELECT turn FROM access_object WHERE cause IS NULL ORDER BY turn DESC LIMIT -1 OFFSET ?)`,
      )
      .run(MAX_OBJECTS);
  }
}

interface CursorRow {
  event: number;
  sum: number;
}

/** Time of an event, if it contains one. */
type Time = number | null | undefined;

/** Whether an event replaces the latest one of its object. An event without a time counts as the oldest. */
function isNews(latest: Row, gone: boolean, occurredMs: Time): boolean {
  if (latest.gone === null) return true;
  if (gone !== (latest.gone === 1))
    return gone ? isLater(occurredMs, latest.occurred_ms) : !isLater(latest.occurred_ms, occurredMs);
  return timeOf(occurredMs) > timeOf(latest.occurred_ms);
}

/** Whether the first time is later than the second one and not simultaneous. */
function isLater(occurredMs: Time, otherMs: Time): boolean {
  return timeOf(occurredMs) > timeOf(otherMs) + SIMULTANEOUS_MS - 1;
}

function timeOf(occurredMs: Time): number {
  return occurredMs ?? Number.NEGATIVE_INFINITY;
}

function bounded(text: string | undefined): string | undefined {
  const part = text?.slice(0, MAX_NAME).toWellFormed().trim();
  return part === '' ? undefined : part;
}

/** Columns in the order in which they are stored. */
function contentOf(row: Row) {
  const { kind, id, serial_number, tag, name, seen_ms, accepted_ms, gone, occurred_ms, cause, held_ms } = row;
  return [kind, id, serial_number, tag, name, seen_ms, accepted_ms, gone, occurred_ms, cause, held_ms] as const;
}

function sumOf(row: Row): number {
  return crc32(JSON.stringify(contentOf(row)));
}

function isIntact(row: StoredRow): boolean {
  return sumOf(row) === row.sum;
}

function lineOf({ kind, id, serial_number, tag, name, gone, seen_ms, accepted_ms }: Row): ObjectLine {
  const visible = gone === null ? 'posted' : 'visible';
  return {
    kind,
    id,
    serial_number,
    tag,
    name,
    state: gone === 1 ? 'lost' : visible,
    last_seen: new Date(seen_ms).toISOString(),
    accepted_at: accepted_ms === null ? null : new Date(accepted_ms).toISOString(),
  };
}
