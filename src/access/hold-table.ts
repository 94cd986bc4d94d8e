import { crc32 } from 'node:zlib';
import type { Database } from '../base/database.ts';
import type { ObjectKind, VisibilityEvent } from './access-event.ts';
import type { KnownObjects } from './known-objects.ts';

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

/** Node that disappeared. `sinceMs` is wall-clock time. */
interface LostNode {
  node: number;
  sinceMs: number;
}

export interface LoadedHolds {
  holds: StoredHold[];
  lostNodes: LostNode[];
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

interface ObjectRow {
  kind: ObjectKind;
  id: number;
  gone: number;
  occurred_ms: number | null;
  since_ms: number;
  sum: number;
}

interface HoldRow {
  kind: HeldObject['kind'];
  id: number;
  cause: AccessCause;
  since_ms: number;
  sum: number;
}

/** Events within this time count as simultaneous, because the clocks of a platform's servers differ. */
const SIMULTANEOUS_MS = 1_000;
/** Maximum number of objects. Above this limit, the oldest visible objects are removed at startup. */
const MAX_OBJECTS = 50_000;

/**
 * Access of this technical user, stored on disk: the latest access event per object, and holds. Synchronous; runs in
 * the store thread and uses the inbox database.
 *
 * Events can arrive in any order and more than once, so the result does not depend on their order: an object is lost if
 * it disappeared at least a second after it last appeared. Of simultaneous events, `appeared` takes precedence, because
 * one unnecessary post is less harmful than held values.
 *
 * Invariants: an event and its effect are one transaction, and every row has a checksum. On load, rows with an invalid
 * checksum are deleted and counted. The next response or the inbox restores the lost state.
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
        sum INTEGER NOT NULL, PRIMARY KEY (kind, id)) WITHOUT ROWID;
      CREATE TABLE IF NOT EXISTS access_hold (
        kind TEXT NOT NULL, id INTEGER NOT NULL, cause TEXT NOT NULL, since_ms REAL NOT NULL, sum INTEGER NOT NULL,
        PRIMARY KEY (kind, id)) WITHOUT ROWID;
      CREATE TABLE IF NOT EXISTS access_cursor (
        one INTEGER PRIMARY KEY CHECK (one = 1), event INTEGER NOT NULL, sum INTEGER NOT NULL);
    `);
  }

  /** Reads the holds at startup. */
  load(): LoadedHolds {
    const database = this.#database;
    const damaged = this.#deleteDamaged('access_object') + this.#deleteDamaged('access_hold');
    database
      .prepare(
        `DELETE FROM access_object WHERE (kind, id) IN (
           SELECT kind, id FROM access_object WHERE gone = 0 ORDER BY occurred_ms
           LIMIT max(0, (SELECT count(*) FROM access_object) - ?))`,
      )
      .run(MAX_OBJECTS);
    const holds = database.prepare<[], HoldRow>('SELECT * FROM access_hold').all();
    const nodes = database.prepare<[], ObjectRow>(`SELECT * FROM access_object WHERE kind = 'node' AND gone = 1`).all();
    const cursor = database.prepare<[], CursorRow>('SELECT event, sum FROM access_cursor').get();
    const isCurrent = damaged === 0 && cursor?.sum === crc32(`cursor ${cursor?.event}`);
    return {
      holds: holds.map(({ kind, id, cause, since_ms }) => ({ kind, id, cause, sinceMs: since_ms })),
      lostNodes: nodes.map(({ id, since_ms }) => ({ node: id, sinceMs: since_ms })),
      damaged,
      // If a row or the cursor is lost, all events in the inbox are read again.
      cursor: isCurrent ? (cursor?.event ?? 0) : 0,
    };
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
    const { object: kind, id, gone, names, cursor, wallMs } = event;
    const database = this.#database;
    const occurredMs = event.occurredAtMs ?? null;
    if (!isNews(this.#object(kind, id), gone, occurredMs)) return undefined;
    return database.transaction(() => {
      const row = { kind, id, gone: gone ? 1 : 0, occurred_ms: occurredMs, since_ms: wallMs };
      database
        .prepare('INSERT OR REPLACE INTO access_object VALUES (?, ?, ?, ?, ?, ?)')
        .run(kind, id, row.gone, occurredMs, wallMs, sumOf(row));
      this.#known.noteNames([{ kind, id, ...names, seenMs: wallMs }]);
      const change = gone ? this.#lost(event) : this.#regained(event);
      for (const one of change.held) this.hold(one);
      for (const one of change.released) this.release(one);
      database.prepare('INSERT OR REPLACE INTO access_cursor VALUES (1, ?, ?)').run(cursor, crc32(`cursor ${cursor}`));
      return change;
    })();
  }

  hold({ kind, id, cause, sinceMs }: StoredHold): void {
    const sum = sumOf({ kind, id, cause, since_ms: sinceMs });
    this.#database
      .prepare('INSERT OR REPLACE INTO access_hold VALUES (?, ?, ?, ?, ?)')
      .run(kind, id, cause, sinceMs, sum);
  }

  release({ kind, id }: HeldObject): void {
    this.#database.prepare('DELETE FROM access_hold WHERE kind = ? AND id = ?').run(kind, id);
  }

  /** An asset inherits the permissions of its instrumentations (platform 2.2), so one that appeared keeps it visible. */
  #lost({ object: kind, id, occurredAtMs, related, wallMs, isDoubtful }: ArrivedVisibility): HoldChange {
    const isInherited = related.some((other) => {
      const row = kind === 'asset' ? this.#object('instrumentation', other) : undefined;
      return row?.gone === 0 && !isLater(occurredAtMs ?? null, row.occurred_ms);
    });
    if (kind === 'node' || isDoubtful || isInherited) return { held: [], released: [] };
    return { held: [{ kind, id, cause: `${kind}_disappeared`, sinceMs: wallMs }], released: [] };
  }

  #regained({ object: kind, id, occurredAtMs, related }: ArrivedVisibility): HoldChange {
    if (kind === 'node') return { held: [], released: [] };
    const assets = kind === 'instrumentation' ? related : [];
    const regained = assets.filter((asset) => {
      const row = this.#object('asset', asset);
      return row?.gone !== 1 || !isLater(row.occurred_ms, occurredAtMs ?? null);
    });
    return { held: [], released: [{ kind, id }, ...regained.map((asset) => ({ kind: 'asset' as const, id: asset }))] };
  }

  #object(kind: ObjectKind, id: number): ObjectRow | undefined {
    return this.#database
      .prepare<[string, number], ObjectRow>('SELECT * FROM access_object WHERE kind = ? AND id = ?')
      .get(kind, id);
  }

  #deleteDamaged(table: 'access_object' | 'access_hold'): number {
    const rows = this.#database.prepare<[], ObjectRow | HoldRow>(`SELECT * FROM ${table}`).all();
    const damaged = rows.filter((row) => sumOf(row) !== row.sum);
    const remove = this.#database.prepare(`DELETE FROM ${table} WHERE kind = ? AND id = ?`);
    for (const { kind, id } of damaged) remove.run(kind, id);
    return damaged.length;
  }
}

interface CursorRow {
  event: number;
  sum: number;
}

/** Whether an event replaces the latest one of its object. An event without a time counts as the oldest. */
function isNews(latest: ObjectRow | undefined, gone: boolean, occurredMs: number | null): boolean {
  if (!latest) return true;
  if (gone !== (latest.gone === 1))
    return gone ? isLater(occurredMs, latest.occurred_ms) : !isLater(latest.occurred_ms, occurredMs);
  return timeOf(occurredMs) > timeOf(latest.occurred_ms);
}

/** Whether the first time is later than the second one and not simultaneous. */
function isLater(occurredMs: number | null, otherMs: number | null): boolean {
  return timeOf(occurredMs) > timeOf(otherMs) + SIMULTANEOUS_MS - 1;
}

function timeOf(occurredMs: number | null): number {
  return occurredMs ?? Number.NEGATIVE_INFINITY;
}

function sumOf(row: Omit<ObjectRow, 'sum'> | Omit<HoldRow, 'sum'>): number {
  if ('cause' in row) return crc32(`${row.kind} ${row.id} ${row.cause} ${row.since_ms}`);
  return crc32(`${row.kind} ${row.id} ${row.gone} ${row.occurred_ms} ${row.since_ms}`);
}
