import type { UnitReference } from '../contract/values.ts';
import type { Database } from '../database.ts';
import type { Series } from './series.ts';

/** The tables of `buffer.db`, and every statement on them. No decision stands here. */

/** Changes with every change of the tables or of a row's bytes. */
export const FORMAT = 1;

const SCHEMA = `
CREATE TABLE series (id INTEGER PRIMARY KEY, asset INTEGER NOT NULL, key TEXT NOT NULL, grp TEXT, unit_id INTEGER, unit_code TEXT);
CREATE TABLE run (id INTEGER PRIMARY KEY, boot TEXT NOT NULL, wall_ms REAL NOT NULL, monotonic_ms REAL NOT NULL, trusted INTEGER NOT NULL);
CREATE TABLE log (id INTEGER PRIMARY KEY, row BLOB NOT NULL);
CREATE TABLE span (id INTEGER PRIMARY KEY, place INTEGER NOT NULL, run INTEGER NOT NULL, accepted_ms INTEGER NOT NULL, directory BLOB NOT NULL);
CREATE TABLE span_gone (span INTEGER PRIMARY KEY, gone BLOB NOT NULL);
CREATE TABLE segment (id INTEGER PRIMARY KEY, packed BLOB NOT NULL);
CREATE TABLE segment_progress (segment INTEGER PRIMARY KEY, ranges BLOB NOT NULL);
CREATE TABLE quarantine (id INTEGER PRIMARY KEY, series INTEGER NOT NULL, count INTEGER NOT NULL, packed BLOB NOT NULL,
  status INTEGER NOT NULL, message TEXT NOT NULL, at_ms REAL NOT NULL);
CREATE TABLE set_aside (id INTEGER PRIMARY KEY, what TEXT NOT NULL, place INTEGER NOT NULL, at_ms REAL NOT NULL, bytes BLOB);
`;

export interface SpanRow {
  id: number;
  place: number;
  run: number;
  accepted_ms: number;
  directory: Buffer;
}

export interface RunRow {
  id: number;
  boot: string;
  wall_ms: number;
  monotonic_ms: number;
  trusted: number;
}

export interface QuarantineRow {
  id: number;
  series: number;
  count: number;
  packed: Buffer;
  status: number;
  message: string;
  at_ms: number;
}

/** Makes the tables in a new database; leaves one of this format as it is. `false`: the format is another. */
export function prepareTables(database: Database): boolean {
  const format = database.pragma('user_version', { simple: true });
  if (format === FORMAT) return true;
  if (format !== 0) return false;
  database.transaction(() => {
    database.exec(SCHEMA);
    database.pragma(`user_version = ${FORMAT}`);
  })();
  return true;
}

/** Every statement, prepared once. */
export function prepareStatements(database: Database) {
  return {
    addSeries: database.prepare<[number, number, string, string | null, number | null, string | null]>(
      'INSERT OR IGNORE INTO series VALUES (?, ?, ?, ?, ?, ?)',
    ),
    addRun: database.prepare<[number, string, number, number, number]>('INSERT INTO run VALUES (?, ?, ?, ?, ?)'),
    setRun: database.prepare<[number, number, number, number]>(
      'UPDATE run SET wall_ms = ?, monotonic_ms = ?, trusted = ? WHERE id = ?',
    ),
    dropRuns: database.prepare<[number]>('DELETE FROM run WHERE id < ?'),
    addRow: database.prepare<[number, Uint8Array]>('INSERT INTO log VALUES (?, ?)'),
    dropRows: database.prepare<[number]>('DELETE FROM log WHERE id <= ?'),
    dropRow: database.prepare<[number]>('DELETE FROM log WHERE id = ?'),
    addSpan: database.prepare<[number, number, number, number, Uint8Array]>('INSERT INTO span VALUES (?, ?, ?, ?, ?)'),
    dropSpan: database.prepare<[number]>('DELETE FROM span WHERE id = ?'),
    setGone: database.prepare<[number, Uint8Array]>('INSERT OR REPLACE INTO span_gone VALUES (?, ?)'),
    dropGone: database.prepare<[number]>('DELETE FROM span_gone WHERE span = ?'),
    addSegment: database.prepare<[number, Uint8Array]>('INSERT INTO segment VALUES (?, ?)'),
    getSegment: database.prepare<[number], Buffer>('SELECT packed FROM segment WHERE id = ?').pluck(),
    dropSegment: database.prepare<[number]>('DELETE FROM segment WHERE id = ?'),
    dropSegments: database.prepare<[number, number]>('DELETE FROM segment WHERE id BETWEEN ? AND ?'),
    setProgress: database.prepare<[number, Uint8Array]>('INSERT OR REPLACE INTO segment_progress VALUES (?, ?)'),
    dropProgress: database.prepare<[number]>('DELETE FROM segment_progress WHERE segment = ?'),
    dropProgresses: database.prepare<[number, number]>('DELETE FROM segment_progress WHERE segment BETWEEN ? AND ?'),
    addQuarantine: database.prepare<[number, number, Uint8Array, number, string, number]>(
      'INSERT INTO quarantine (series, count, packed, status, message, at_ms) VALUES (?, ?, ?, ?, ?, ?)',
    ),
    dropQuarantine: database.prepare<[number]>('DELETE FROM quarantine WHERE id = ?'),
    listQuarantine: database.prepare<[number, number], QuarantineRow>(
      'SELECT * FROM quarantine WHERE id > ? ORDER BY id LIMIT ?',
    ),
    countQuarantine: database.prepare<[], number>('SELECT coalesce(sum(count), 0) FROM quarantine').pluck(),
    setAside: database.prepare<[string, number, number, Uint8Array | null]>(
      'INSERT INTO set_aside (what, place, at_ms, bytes) VALUES (?, ?, ?, ?)',
    ),
    countAside: database.prepare<[], number>('SELECT count(*) FROM set_aside').pluck(),
    vacuum: database.prepare('PRAGMA incremental_vacuum(256)'),
  };
}

export type Statements = ReturnType<typeof prepareStatements>;

/** Every series that was ever accepted here, or the one with that number. */
export function readSeries(database: Database, only?: number): Series[] {
  const where = only === undefined ? '' : 'WHERE id = :only';
  const rows = database
    .prepare(`SELECT * FROM series ${where} ORDER BY id`)
    .all(only === undefined ? {} : { only }) as {
    id: number;
    asset: number;
    key: string;
    grp: string | null;
    unit_id: number | null;
    unit_code: string | null;
  }[];
  return rows.map((row) => ({
    id: row.id,
    asset: row.asset,
    key: row.key,
    group: row.grp ?? undefined,
    unit: unitOf(row.unit_id, row.unit_code),
  }));
}

function unitOf(id: number | null, code: string | null): UnitReference | undefined {
  if (id !== null) return { id };
  return code === null ? undefined : { code };
}

export function writeSeries(statements: Statements, series: Series): void {
  const { unit } = series;
  const id = unit && 'id' in unit ? unit.id : null;
  const code = unit && 'code' in unit ? unit.code : null;
  statements.addSeries.run(series.id, series.asset, series.key, series.group ?? null, id, code);
}
