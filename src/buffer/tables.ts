import { crc32 } from 'node:zlib';
import { type Database, otherFormat } from '../base/database.ts';
import type { UnitReference } from '../contract/values.ts';
import type { Note } from './client/notes.ts';
import type { Series } from './series.ts';

/** Tables of `buffer.db` and all their statements. */

/** Incremented with every change to the tables or to the bytes of a row. */
export const FORMAT = 4;

/**
 * Each table uses the row number as rowid, so its pages can be read individually (`sqlite-pages.ts`) and rows can be
 * matched to tables by their shape.
 */
const NOTE =
  'CREATE TABLE note (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, text TEXT NOT NULL, sum INTEGER NOT NULL);';
const ORIGIN =
  'CREATE TABLE origin (id INTEGER PRIMARY KEY, name TEXT NOT NULL, below INTEGER NOT NULL, sum INTEGER NOT NULL);';
const RUN = `CREATE TABLE run (id INTEGER PRIMARY KEY, boot TEXT NOT NULL, wall_ms REAL NOT NULL, monotonic_ms REAL NOT NULL, last_ms REAL NOT NULL,
  sum INTEGER NOT NULL);`;
const SCHEMA = `
CREATE TABLE series (id INTEGER PRIMARY KEY, asset INTEGER NOT NULL, key TEXT NOT NULL, grp TEXT, unit_id INTEGER, unit_code TEXT,
  instrumentation INTEGER, since INTEGER NOT NULL, sum INTEGER NOT NULL);
${RUN}
CREATE TABLE log (id INTEGER PRIMARY KEY, row BLOB NOT NULL);
CREATE TABLE span (id INTEGER PRIMARY KEY, place INTEGER NOT NULL, run INTEGER NOT NULL, accepted_ms INTEGER NOT NULL,
  directory BLOB NOT NULL, sum INTEGER NOT NULL);
CREATE TABLE span_gone (span INTEGER PRIMARY KEY, gone BLOB NOT NULL);
CREATE TABLE segment (id INTEGER PRIMARY KEY, packed BLOB NOT NULL);
CREATE TABLE segment_progress (segment INTEGER PRIMARY KEY, ranges BLOB NOT NULL);
CREATE TABLE quarantine (id INTEGER PRIMARY KEY, series INTEGER NOT NULL, count INTEGER NOT NULL, packed BLOB NOT NULL,
  status INTEGER NOT NULL, message TEXT NOT NULL, at_ms REAL NOT NULL, sum INTEGER NOT NULL);
${NOTE}
${ORIGIN}
CREATE TABLE set_aside (id INTEGER PRIMARY KEY, what TEXT NOT NULL, place INTEGER NOT NULL, at_ms REAL NOT NULL, bytes BLOB);
`;

/** Returns the checksum of a row's plain fields. Packed bytes have their own checksum. */
export function sumOf(...fields: readonly (number | string | null)[]): number {
  return crc32(JSON.stringify(fields));
}

export interface SpanRow {
  id: number;
  place: number;
  run: number;
  accepted_ms: number;
  directory: Buffer;
  sum: number;
}

export interface RunRow {
  id: number;
  boot: string;
  wall_ms: number;
  /** Start and latest known time of the run, on its own clock. */
  monotonic_ms: number;
  last_ms: number;
  sum: number;
}

export interface QuarantineRow {
  id: number;
  series: number;
  count: number;
  packed: Buffer;
  status: number;
  message: string;
  at_ms: number;
  sum: number;
}

/** A file that was set aside: segments of spans with a number less than `below` may exist only there. */
export interface OriginRow {
  id: number;
  name: string;
  below: number;
  sum: number;
}

export interface NoteRow {
  id: number;
  name: string;
  text: string;
  sum: number;
}

/** Format 2 (0.1.0) had notes without numbers, runs without checksums, and no origins. */
function migrateFrom2(database: Database): void {
  database.exec(`
    ALTER TABLE note RENAME TO note_2;
    ALTER TABLE run RENAME TO run_2;
    ${NOTE} ${ORIGIN} ${RUN}
    INSERT INTO note (name, text, sum) SELECT name, text, sum FROM note_2;`);
  const { addRun } = prepareRuns(database);
  for (const row of database.prepare<[], RunRow>('SELECT * FROM run_2').all()) addRun.run(...runFields(row));
  database.exec('DROP TABLE note_2; DROP TABLE run_2');
}

/** Creates the tables in a new database, or migrates an earlier format. Throws `store.format` for other formats. */
export function prepareTables(database: Database): void {
  const format = database.pragma('user_version', { simple: true }) as number;
  if (format === FORMAT) return;
  if (format !== 0 && format !== 2) throw otherFormat(database, format, FORMAT);
  database.transaction(() => {
    if (format === 0) database.exec(SCHEMA);
    else migrateFrom2(database);
    database.pragma(`user_version = ${FORMAT}`);
  })();
}

function prepareRuns(database: Database) {
  return {
    addRun: database.prepare<RunFields>('INSERT INTO run VALUES (?, ?, ?, ?, ?, ?)'),
    setRun: database.prepare<[number, number, number]>('UPDATE run SET last_ms = ?, sum = ? WHERE id = ?'),
    dropRun: database.prepare<[number]>('DELETE FROM run WHERE id = ?'),
  };
}

export function prepareStatements(database: Database) {
  return {
    // After a restart, the number of a series without values is reused. The later generation is valid.
    addSeries: database.prepare<SeriesFields>(
      `INSERT INTO series VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET asset = excluded.asset,
        key = excluded.key, grp = excluded.grp, unit_id = excluded.unit_id, unit_code = excluded.unit_code,
        instrumentation = excluded.instrumentation, since = excluded.since, sum = excluded.sum
        WHERE excluded.since > series.since`,
    ),
    lastSince: database.prepare<[], number>('SELECT coalesce(max(since), 0) FROM series').pluck(),
    dropSeries: database.prepare<[number]>('DELETE FROM series WHERE id = ?'),
    ...prepareRuns(database),
    addRow: database.prepare<[number, Uint8Array]>('INSERT INTO log VALUES (?, ?)'),
    dropRows: database.prepare<[number]>('DELETE FROM log WHERE id <= ?'),
    dropRow: database.prepare<[number]>('DELETE FROM log WHERE id = ?'),
    addSpan: database.prepare<[number, number, number, number, Uint8Array, number]>(
      'INSERT INTO span VALUES (?, ?, ?, ?, ?, ?)',
    ),
    dropSpan: database.prepare<[number]>('DELETE FROM span WHERE id = ?'),
    setGone: database.prepare<[number, Uint8Array]>('INSERT OR REPLACE INTO span_gone VALUES (?, ?)'),
    dropGone: database.prepare<[number]>('DELETE FROM span_gone WHERE span = ?'),
    addSegment: database.prepare<[number, Uint8Array]>('INSERT INTO segment VALUES (?, ?)'),
    getSegment: database.prepare<[number], Buffer>('SELECT packed FROM segment WHERE id = ?').pluck(),
    dropSegments: database.prepare<[number, number]>('DELETE FROM segment WHERE id BETWEEN ? AND ?'),
    setProgress: database.prepare<[number, Uint8Array]>('INSERT OR REPLACE INTO segment_progress VALUES (?, ?)'),
    dropProgresses: database.prepare<[number, number]>('DELETE FROM segment_progress WHERE segment BETWEEN ? AND ?'),
    addQuarantine: database.prepare<[number, number, Uint8Array, number, string, number, number]>(
      'INSERT INTO quarantine (series, count, packed, status, message, at_ms, sum) VALUES (?, ?, ?, ?, ?, ?, ?)',
    ),
    dropQuarantine: database.prepare<[number]>('DELETE FROM quarantine WHERE id = ?'),
    listQuarantine: database.prepare<[number, number], QuarantineRow>(
      'SELECT * FROM quarantine WHERE id > ? ORDER BY id LIMIT ?',
    ),
    listQuarantineOf: database.prepare<[number, number, string, number], QuarantineRow>(
      `SELECT * FROM quarantine WHERE id > ? AND id <= ? AND series IN (SELECT value FROM json_each(?))
       ORDER BY id LIMIT ?`,
    ),
    quarantineAhead: database
      .prepare<[number, number], number>('SELECT id FROM quarantine WHERE id > ? ORDER BY id LIMIT 1 OFFSET ?')
      .pluck(),
    quarantineBySeries: database.prepare<[], { series: number; count: number }>(
      'SELECT series, sum(count) AS count FROM quarantine GROUP BY series',
    ),
    lastQuarantine: database.prepare<[], number>('SELECT coalesce(max(id), 0) FROM quarantine').pluck(),
    countQuarantine: database.prepare<[], number>('SELECT coalesce(sum(count), 0) FROM quarantine').pluck(),
    setNote: database.prepare<[string, string, number]>(
      'INSERT INTO note (name, text, sum) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET text = excluded.text, sum = excluded.sum',
    ),
    dropNote: database.prepare<[string]>('DELETE FROM note WHERE name = ?'),
    listNotes: database.prepare<[string, string], NoteRow>('SELECT * FROM note WHERE name >= ? AND name < ?'),
    addOrigin: database.prepare<[string, number, number]>('INSERT INTO origin (name, below, sum) VALUES (?, ?, ?)'),
    origins: database.prepare<[], OriginRow>('SELECT * FROM origin ORDER BY id DESC'),
    dropOrigins: database.prepare('DELETE FROM origin'),
    segmentsIn: database.prepare<[number, number], number>('SELECT id FROM segment WHERE id BETWEEN ? AND ?').pluck(),
    carrySegment: database.prepare<[number, Uint8Array]>('INSERT OR IGNORE INTO segment VALUES (?, ?)'),
    setAside: database.prepare<[string, number, number, Uint8Array | null]>(
      'INSERT INTO set_aside (what, place, at_ms, bytes) VALUES (?, ?, ?, ?)',
    ),
    dropAside: database.prepare<[number]>('DELETE FROM set_aside WHERE id = ?'),
    oldestAside: database.prepare<[number], { id: number; bytes: number }>(
      'SELECT id, coalesce(length(bytes), 0) AS bytes FROM set_aside ORDER BY id LIMIT ?',
    ),
    oldestQuarantine: database.prepare<[number], { id: number; count: number; bytes: number }>(
      'SELECT id, count, length(packed) + length(message) AS bytes FROM quarantine ORDER BY id LIMIT ?',
    ),
    sizeOfQuarantine: database.prepare<[], { rows: number; values: number; bytes: number }>(
      'SELECT count(*) AS rows, total(count) AS "values", total(length(packed) + length(message)) AS bytes FROM quarantine',
    ),
    bytesOfSegments: database
      .prepare<[number, number], number>('SELECT total(length(packed)) FROM segment WHERE id BETWEEN ? AND ?')
      .pluck(),
  };
}

export type Statements = ReturnType<typeof prepareStatements>;

/** Whether the buffer needs files that were set aside, because some segments exist only there. */
export function needsOrigin(database: Database): boolean {
  return database.prepare('SELECT 1 FROM origin LIMIT 1').get() !== undefined;
}

/** Returns a function that reads the series with a number; `damaged` if the checksum is wrong. */
export function seriesReader(database: Database): (id: number) => Series | 'damaged' | undefined {
  const fields = 'id, asset, key, grp, unit_id, unit_code, instrumentation, since, sum';
  const get = database.prepare<[number], SeriesFields>(`SELECT ${fields} FROM series WHERE id = ?`).raw();
  return (id) => {
    const row = get.get(id);
    return row && (seriesOfFields(row) ?? 'damaged');
  };
}

function unitOf(id: number | null, code: string | null): UnitReference | undefined {
  if (id !== null) return { id };
  return code === null ? undefined : { code };
}

/** Returns the fields of a series row with the checksum. */
export function seriesFields(series: Series): SeriesFields {
  const { id, asset, key, unit } = series;
  const group = series.group ?? null;
  const unitId = unit && 'id' in unit ? unit.id : null;
  const code = unit && 'code' in unit ? unit.code : null;
  const instrumentation = series.instrumentation ?? null;
  const since = series.since ?? 0;
  const sum = sumOf(id, asset, key, group, unitId, code, instrumentation, since);
  return [id, asset, key, group, unitId, code, instrumentation, since, sum];
}

type RunFields = [id: number, boot: string, wallMs: number, beganMs: number, lastMs: number, sum: number];

/** Returns the fields of a run row with the checksum. */
export function runFields(run: Omit<RunRow, 'sum'>): RunFields {
  return [run.id, run.boot, run.wall_ms, run.monotonic_ms, run.last_ms, runSum(run)];
}

export type SeriesFields = [
  id: number,
  asset: number,
  key: string,
  group: string | null,
  unitId: number | null,
  unitCode: string | null,
  instrumentation: number | null,
  since: number,
  sum: number,
];

/** Returns undefined if the checksum is wrong. */
export function seriesOfFields(fields: SeriesFields): Series | undefined {
  const [id, asset, key, group, unitId, code, instrumentation, since, sum] = fields;
  if (sum !== sumOf(id, asset, key, group, unitId, code, instrumentation, since)) return undefined;
  return {
    id,
    asset,
    key,
    group: group ?? undefined,
    unit: unitOf(unitId, code),
    instrumentation: instrumentation ?? undefined,
    since,
  };
}

export function writeSeries(statements: Statements, series: Series): void {
  statements.addSeries.run(...seriesFields(series));
}

export const spanSum = (id: number, place: number, run: number, acceptedMs: number) =>
  sumOf(id, place, run, acceptedMs);
export const runSum = ({ id, boot, wall_ms, monotonic_ms, last_ms }: Omit<RunRow, 'sum'>) =>
  sumOf(id, boot, wall_ms, monotonic_ms, last_ms);
export const originSum = (name: string, below: number) => sumOf(name, below);
export const quarantineSum = (series: number, count: number, status: number, message: string, atMs: number) =>
  sumOf(series, count, status, message, atMs);

/** Runs in the transaction of a commit. */
export function writeNotes(statements: Statements, notes: readonly Note[]): void {
  for (const { name, text } of notes) {
    if (text === undefined) statements.dropNote.run(name);
    else statements.setNote.run(name, text, sumOf(name, text));
  }
}

/**
 * Maximum number of characters to read. A missing note causes at most a duplicate, but unbounded reading would delay
 * startup.
 */
const MAX_READ_CHARACTERS = 16 * 1024 * 1024;

/** Skips damaged notes, because a missing note is less harmful than a wrong one. */
export function readNotes(statements: Statements, beginning: string): Note[] {
  const notes: Note[] = [];
  let characters = 0;
  for (const { name, text, sum } of statements.listNotes.iterate(beginning, `${beginning}\u{10ffff}`)) {
    characters += name.length + text.length;
    if (characters > MAX_READ_CHARACTERS) break;
    if (sum === sumOf(name, text)) notes.push({ name, text });
  }
  return notes;
}
