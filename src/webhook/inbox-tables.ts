import { crc32 } from 'node:zlib';
import { type Database, otherFormat } from '../base/database.ts';
// Import only the names, because the store thread must not load the schema validation.
import { ACCESS_TYPES } from '../contract/events/names.ts';
import { isValueEvent } from '../contract/value-events.ts';
import type { ActionProgress, Attempt } from '../store/event-journal.ts';
import {
  digestOf,
  type InboxEvent,
  type InboxState,
  type ListedEvent,
  type RelayedEvent,
  type RunnableEvent,
  SELF_TEST_TYPE,
} from './inbox-event.ts';
import type { ArrivedEvent } from './received-event.ts';

/** Version of the table format, incremented with each incompatible change. */
const FORMAT = 2;

/** Overhead on disk for an event and for each journal entry, in bytes. */
const EVENT_BYTES = 100;
const ATTEMPT_BYTES = 40;

export interface EventRow {
  id: number;
  event_type: string;
  occurred_ms: number | null;
  received_ms: number;
  age_ms: number;
  identity: Buffer;
  payload: Buffer;
  unrecognised: number;
  state: string;
  attempts: number;
  retry_age_ms: number | null;
  replayed: number;
  sum: number;
}

interface SignatureRow {
  sha256: string | null;
  sha1: string | null;
}

interface ProgressRow {
  event: number;
  reaction: string;
  action: string;
  state: string;
  tries: number;
  detail: string | null;
  sum: number;
}

/**
 * Creates missing tables and converts an earlier format. AUTOINCREMENT ensures that IDs of deleted events are not
 * reused. `bytes` is the size of an event including its journal. `inbox_attempt` contains the journal shown to users;
 * `inbox_progress` contains the state of each action.
 */
export function prepareTables(database: Database): void {
  const format = database.pragma('user_version', { simple: true }) as number;
  if (format > FORMAT) throw otherFormat(database, format, FORMAT);
  database.exec(`
    CREATE TABLE IF NOT EXISTS inbox_event (
      id INTEGER PRIMARY KEY AUTOINCREMENT, event_type TEXT NOT NULL, occurred_ms REAL, received_ms REAL NOT NULL,
      age_ms INTEGER NOT NULL, identity BLOB NOT NULL, unrecognised INTEGER NOT NULL, state TEXT NOT NULL,
      attempts INTEGER NOT NULL DEFAULT 0, retry_age_ms INTEGER, replayed INTEGER NOT NULL DEFAULT 0, sum INTEGER NOT NULL,
      bytes INTEGER NOT NULL, payload BLOB NOT NULL);
    CREATE INDEX IF NOT EXISTS inbox_event_size ON inbox_event (id, bytes);
    CREATE INDEX IF NOT EXISTS inbox_event_open ON inbox_event (id)
      WHERE unrecognised = 0 AND state IN ('received', 'running', 'failed');
    CREATE INDEX IF NOT EXISTS inbox_event_settled ON inbox_event (id)
      WHERE unrecognised = 1 OR state IN ('done', 'dead');
    CREATE INDEX IF NOT EXISTS inbox_event_identity ON inbox_event (identity);
    CREATE INDEX IF NOT EXISTS inbox_event_access ON inbox_event (id) WHERE ${ACCESS};
    CREATE TABLE IF NOT EXISTS inbox_attempt (
      id INTEGER PRIMARY KEY, event INTEGER NOT NULL, reaction TEXT NOT NULL, action TEXT NOT NULL, outcome TEXT NOT NULL,
      detail TEXT, duration_ms REAL NOT NULL, at_ms REAL NOT NULL);
    CREATE INDEX IF NOT EXISTS inbox_attempt_event ON inbox_attempt (event);
    CREATE TABLE IF NOT EXISTS inbox_progress (
      event INTEGER NOT NULL, reaction TEXT NOT NULL, action TEXT NOT NULL, state TEXT NOT NULL, tries INTEGER NOT NULL,
      detail TEXT, sum INTEGER NOT NULL, PRIMARY KEY (event, reaction, action)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS inbox_seen (
      epoch INTEGER NOT NULL, digest BLOB NOT NULL, event INTEGER NOT NULL, sum INTEGER NOT NULL,
      PRIMARY KEY (epoch, digest)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS inbox_asked (
      digest BLOB PRIMARY KEY, times INTEGER NOT NULL, age_ms INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS inbox_cooldown (
      reaction TEXT NOT NULL, object TEXT NOT NULL, until_age_ms INTEGER NOT NULL,
      PRIMARY KEY (reaction, object)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS inbox_signature (event INTEGER PRIMARY KEY, sha256 TEXT, sha1 TEXT);
    CREATE TABLE IF NOT EXISTS inbox_note (name TEXT PRIMARY KEY, value TEXT NOT NULL, sum INTEGER NOT NULL) WITHOUT ROWID;
  `);
  if (format === FORMAT) return;
  addSeenSums(database);
  database.pragma(`user_version = ${FORMAT}`);
}

/** Adds checksums to `inbox_seen`. Format 1 (version 0.1.0) did not contain them. */
function addSeenSums(database: Database): void {
  const columns = database.prepare<[], string>(`SELECT name FROM pragma_table_info('inbox_seen')`).pluck().all();
  if (columns.includes('sum')) return;
  database.function('seen_sum', { deterministic: true }, (epoch, digest, event) =>
    seenSum({ epoch: Number(epoch), digest: digest as Buffer, event: Number(event) }),
  );
  database.transaction(() => {
    database.exec('ALTER TABLE inbox_seen ADD COLUMN sum INTEGER NOT NULL DEFAULT 0');
    database.exec('UPDATE inbox_seen SET sum = seen_sum(epoch, digest, event)');
  })();
}

export interface SeenRow {
  epoch: number;
  digest: Uint8Array;
  event: number;
  sum: number;
}

/** Returns the CRC-32 of a row. */
export function seenSum({ epoch, digest, event }: Omit<SeenRow, 'sum'>): number {
  return crc32(digest, crc32(`${epoch} ${event}`));
}

/** Condition for events that affect access, for which a partial index exists. */
const ACCESS = `unrecognised = 0 AND event_type IN (${ACCESS_TYPES.map((type) => `'${type}'`).join(', ')})`;
const OPEN = `unrecognised = 0 AND state IN ('received', 'running', 'failed')`;
const SETTLED = `(unrecognised = 1 OR state IN ('done', 'dead'))`;

export function prepareStatements(database: Database) {
  return {
    add: database.prepare<[string, number | null, number, number, Uint8Array, number, number, number, Uint8Array]>(
      `INSERT INTO inbox_event (event_type, occurred_ms, received_ms, age_ms, identity, unrecognised, state, sum, bytes, payload)
       VALUES (?, ?, ?, ?, ?, ?, 'received', ?, ?, ?)`,
    ),
    get: database.prepare<[number], EventRow>('SELECT * FROM inbox_event WHERE id = ?'),
    lastId: database.prepare<[], number>(`SELECT seq FROM sqlite_sequence WHERE name = 'inbox_event'`).pluck(),
    dropLastId: database.prepare(`DELETE FROM sqlite_sequence WHERE name = 'inbox_event'`),
    setLastId: database.prepare<[number]>(`INSERT INTO sqlite_sequence (name, seq) VALUES ('inbox_event', ?)`),
    fresh: database.prepare<[number, number], EventRow>(
      `SELECT * FROM inbox_event WHERE id > ? AND ${OPEN} AND state = 'received' ORDER BY id LIMIT ?`,
    ),
    due: database.prepare<[number, number, number, number], EventRow>(
      `SELECT * FROM inbox_event WHERE id > ? AND ${OPEN}
         AND state = 'failed' AND (retry_age_ms <= ? OR retry_age_ms > ?) ORDER BY id LIMIT ?`,
    ),
    failed: database.prepare<[number, number], EventRow>(
      `SELECT * FROM inbox_event WHERE id > ? AND ${OPEN} AND state = 'failed' ORDER BY id LIMIT ?`,
    ),
    ofAccess: database.prepare<[number, number], EventRow>(
      `SELECT * FROM inbox_event WHERE id > ? AND ${ACCESS} ORDER BY id LIMIT ?`,
    ),
    after: database.prepare<[number, number], EventRow>('SELECT * FROM inbox_event WHERE id > ? ORDER BY id LIMIT ?'),
    countOpen: database.prepare<[], number>(`SELECT count(*) FROM inbox_event WHERE ${OPEN}`).pluck(),
    totals: database.prepare<[], { events: number; bytes: number }>(
      // Uses only the index, so that payloads are not read during startup.
      'SELECT count(*) AS events, coalesce(sum(bytes), 0) AS bytes FROM inbox_event INDEXED BY inbox_event_size',
    ),
    list: database.prepare<[number, string | null, string | null, number], Omit<EventRow, 'payload'>>(
      `SELECT id, event_type, occurred_ms, received_ms, identity, unrecognised, state, attempts, replayed FROM inbox_event WHERE id < ? AND state = ifnull(?, state) AND event_type = ifnull(?,
         CASE WHEN unrecognised = 1 AND event_type = '${SELF_TEST_TYPE}' THEN '' ELSE event_type END) ORDER BY id DESC LIMIT ?`,
    ),
    settled: database.prepare<[number], { id: number; age_ms: number; bytes: number }>(
      `SELECT id, age_ms, bytes FROM inbox_event WHERE ${SETTLED} ORDER BY id LIMIT ?`,
    ),
    drop: database.prepare<[number]>('DELETE FROM inbox_event WHERE id = ?'),
    cost: database.prepare<[number], { bytes: number; own: number }>(
      `SELECT bytes, ${EVENT_BYTES} + length(event_type) + length(payload) AS own FROM inbox_event WHERE id = ?`,
    ),
    setCost: database.prepare<[number, number]>('UPDATE inbox_event SET bytes = ? WHERE id = ?'),
    dropAttempts: database.prepare<[number]>('DELETE FROM inbox_attempt WHERE event = ?'),
    releaseRunning: database.prepare(`UPDATE inbox_event SET state = 'received' WHERE state = 'running'`),
    start: database.prepare<[number]>(
      `UPDATE inbox_event SET state = 'running', attempts = attempts + 1, retry_age_ms = NULL WHERE id = ?`,
    ),
    finish: database.prepare<[string, number | null, number, number]>(
      `UPDATE inbox_event SET state = ?, retry_age_ms = ?, replayed = replayed AND ? WHERE id = ?`,
    ),
    replay: database.prepare<[number]>(
      `UPDATE inbox_event SET state = 'received', attempts = 0, retry_age_ms = NULL, replayed = 1 WHERE id = ?`,
    ),
    addAttempt: database.prepare<[number, string, string, string, string | null, number, number]>(
      'INSERT INTO inbox_attempt (event, reaction, action, outcome, detail, duration_ms, at_ms) VALUES (?, ?, ?, ?, ?, ?, ?)',
    ),
    trimAttempts: database.prepare<[number, number, number]>(
      `DELETE FROM inbox_attempt WHERE event = ? AND id <=
         (SELECT id FROM inbox_attempt WHERE event = ? ORDER BY id DESC LIMIT 1 OFFSET ?)`,
    ),
    journalBytes: database
      .prepare<[number], number>(
        `SELECT coalesce(sum(length(reaction) + length(action) + length(outcome) + coalesce(length(detail), 0)), 0)
           + count(*) * ${ATTEMPT_BYTES} FROM inbox_attempt WHERE event = ?`,
      )
      .pluck(),
    progress: database.prepare<[number], ProgressRow>('SELECT * FROM inbox_progress WHERE event = ?'),
    setProgress: database.prepare<[number, string, string, string, number, string | null, number]>(
      'INSERT OR REPLACE INTO inbox_progress VALUES (?, ?, ?, ?, ?, ?, ?)',
    ),
    addSignatures: database.prepare<[number, string | null, string | null]>(
      'INSERT OR REPLACE INTO inbox_signature VALUES (?, ?, ?)',
    ),
    signatures: database.prepare<[number], SignatureRow>('SELECT sha256, sha1 FROM inbox_signature WHERE event = ?'),
    dropSignatures: database.prepare<[number]>('DELETE FROM inbox_signature WHERE event = ?'),
    dropProgress: database.prepare<[number]>('DELETE FROM inbox_progress WHERE event = ?'),
    attempts: database.prepare<
      [number],
      {
        reaction: string;
        action: string;
        outcome: string;
        detail: string | null;
        duration_ms: number;
        at_ms: number;
      }
    >('SELECT reaction, action, outcome, detail, duration_ms, at_ms FROM inbox_attempt WHERE event = ? ORDER BY id'),
    cooldown: database
      .prepare<[string, string], number>('SELECT until_age_ms FROM inbox_cooldown WHERE reaction = ? AND object = ?')
      .pluck(),
    setCooldown: database.prepare<[string, string, number]>('INSERT OR REPLACE INTO inbox_cooldown VALUES (?, ?, ?)'),
    dropCooldowns: database.prepare<[number]>('DELETE FROM inbox_cooldown WHERE until_age_ms < ?'),
    newestAge: database.prepare<[], number>('SELECT age_ms FROM inbox_event ORDER BY id DESC LIMIT 1').pluck(),
  };
}

export type Statements = ReturnType<typeof prepareStatements>;

/** Adds an event and its signatures within the caller's transaction. Returns its ID. */
export function addEvent(statements: Statements, event: ArrivedEvent, ageMs: number): number {
  const { lastInsertRowid } = statements.add.run(
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
  const id = Number(lastInsertRowid);
  const { sha256 = null, sha1 = null } = event.signatures ?? {};
  if (sha256 ?? sha1) statements.addSignatures.run(id, sha256, sha1);
  return id;
}

/** Deletes events and their rows in other tables. Part of the caller's transaction. */
export function dropEvents(statements: Statements, ids: readonly number[]): void {
  for (const id of ids) {
    statements.dropAttempts.run(id);
    statements.dropSignatures.run(id);
    statements.dropProgress.run(id);
    statements.drop.run(id);
  }
}

/** Returns the size of a new event on disk, in bytes. */
export function costOf(event: Pick<ArrivedEvent, 'eventType' | 'payload'>): number {
  return EVENT_BYTES + event.eventType.length + event.payload.length;
}

/** Returns the CRC-32 of the immutable columns. */
function sumOf(
  event: Pick<ArrivedEvent, 'eventType' | 'occurredAtMs' | 'receivedAtMs' | 'identity' | 'payload'> & {
    unrecognised: boolean;
  },
): number {
  const head = `${event.eventType}\n${event.occurredAtMs ?? ''}\n${event.receivedAtMs}\n${event.unrecognised ? 1 : 0}\n`;
  return crc32(event.payload, crc32(event.identity, crc32(head)));
}

export function sumFits(row: EventRow): boolean {
  return (
    row.sum ===
    sumOf({
      eventType: row.event_type,
      occurredAtMs: row.occurred_ms ?? undefined,
      receivedAtMs: row.received_ms,
      identity: row.identity,
      payload: row.payload,
      unrecognised: row.unrecognised === 1,
    })
  );
}

export function toEvent(row: EventRow): InboxEvent {
  return { ...toListed(row), payload: row.payload.toString('utf8') };
}

/** `earlierId`: highest event ID when this process opened the inbox. */
export function toRunnable(row: EventRow, progress: ProgressRow[], ageMs: number, earlierId: number): RunnableEvent {
  const age = { storedAgoMs: ageMs - row.age_ms, isFromEarlierRun: row.id <= earlierId };
  return { ...toEvent(row), progress: toProgress(progress), ...age };
}

export function toListed(row: Omit<EventRow, 'payload'>): ListedEvent {
  return {
    id: row.id,
    digest: digestOf(row.identity),
    eventType: row.event_type,
    occurredAtMs: row.occurred_ms ?? undefined,
    receivedAtMs: row.received_ms,
    state: row.state as InboxState,
    attempts: row.attempts,
    unrecognised: row.unrecognised === 1,
    replayed: row.replayed === 1,
  };
}

/** Returns the progress of an event. Damaged rows are omitted, so that their actions run again. */
function toProgress(rows: readonly ProgressRow[]): ActionProgress[] {
  return rows.flatMap(({ event, detail, sum, ...row }) => {
    const progress = {
      ...row,
      state: row.state as ActionProgress['state'],
      ...(detail === null ? {} : { detail }),
    };
    return progressSum(event, progress) === sum ? [progress] : [];
  });
}

export function progressSum(event: number, { reaction, action, state, tries, detail }: ActionProgress): number {
  return crc32(JSON.stringify([event, reaction, action, state, tries, detail ?? null]));
}

export function toRelayed(row: EventRow, signatures: SignatureRow | undefined): RelayedEvent {
  const { id, identity, payload } = row;
  const { sha256, sha1 } = signatures ?? { sha256: null, sha1: null };
  const isLocal = isValueEvent(row.event_type);
  return { id, isLocal, identity, payload, signatures: { sha256: sha256 ?? undefined, sha1: sha1 ?? undefined } };
}

export function toAttempt(row: ReturnType<Statements['attempts']['all']>[number]): Attempt {
  const { reaction, action, outcome, detail } = row;
  return {
    reaction,
    action,
    outcome,
    ...(detail === null ? {} : { detail }),
    durationMs: row.duration_ms,
    atMs: row.at_ms,
  };
}
