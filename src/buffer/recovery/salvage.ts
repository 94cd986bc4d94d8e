/**
 * What can be read of a buffer that SQLite calls corrupt is carried into a new one, row by row and as it is: a row that fits
 * its checksum is right whatever became of its neighbours. The new buffer then opens like any other, with the
 * order, the progress and the quarantine of the old one; what is missing in it is counted there.
 *
 * The old file is only read: it stays byte for byte where it was set aside. It is written in many small transactions, so
 * that it costs neither memory nor a WAL of its size, and it ends where the disk has no more room.
 */
import { statfsSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Database } from '../../base/database.ts';
import { StoreError } from '../../base/errors.ts';
import { ByteReader } from '../format/bytes.ts';
import { readLogRow } from '../format/log-row.ts';
import { unpackSegment } from '../format/segment.ts';
import { unpackRanges } from '../format/settled-ranges.ts';
import type { Series } from '../series.ts';
import { MAX_ENTRIES, unpackDirectory } from '../span.ts';
import {
  prepareStatements,
  prepareTables,
  quarantineSum,
  type Statements,
  seriesOfFields,
  spanSum,
  writeSeries,
} from '../tables.ts';
import { remakeDirectories } from './directories.ts';
import type { SeriesCopy } from './series-copy.ts';
import { type RawField, type RawRow, SqlitePages } from './sqlite-pages.ts';

export interface Salvage {
  values: number;
  /** Rows that did not read. */
  lostRows: number;
  /** Values in quarantine that were carried over. */
  quarantined: number;
  /** Pages that the disk does not read: what stood on them is lost. */
  unreadPages?: number;
  /** The disk was too full for all of it. */
  incomplete?: boolean;
}

const ROWS_A_TRANSACTION = 1_000;
/** What stays free on the file system. */
const SPARE_BYTES = 16 * 1024 * 1024;
/** As `openDatabase` makes them. */
const PAGE_BYTES = 1024;

/**
 * Reads `from` (a path), writes into `into` (a new buffer, before its store opens). Never throws for what it reads.
 * `known` are the series that somebody still has in memory; those of `copy` count where no row of theirs reads.
 */
export function salvage(from: string, into: Database, copy: SeriesCopy, known: readonly Series[] = []): Salvage {
  const result: Salvage = { values: 0, lostRows: 0, quarantined: 0 };
  prepareTables(into);
  const statements = prepareStatements(into);
  into.transaction(() => {
    for (const series of known) writeSeries(statements, series);
  })();
  let pages: SqlitePages;
  try {
    pages = new SqlitePages(from, PAGE_BYTES);
  } catch {
    return result;
  }
  try {
    const carrier = new Carrier(statements, into, result);
    const rows = pages.rows();
    const carry = into.transaction(() => {
      for (let i = 0; i < ROWS_A_TRANSACTION; i++) {
        const next = rows.next();
        if (next.done) return true;
        carrier.take(next.value);
      }
      return false;
    });
    while (!carry()) {
      const disk = statfsSync(dirname(from));
      if (disk.bavail * disk.bsize >= SPARE_BYTES) continue;
      result.incomplete = true;
      break;
    }
    carrier.finish();
    into.transaction(() => {
      for (const series of copy.read().values()) writeSeries(statements, series);
    })();
    result.lostRows += pages.broken;
    if (pages.unreadPages > 0) result.unreadPages = pages.unreadPages;
  } catch (error) {
    // Nothing of a salvage that fails is worth more than a store that opens.
    if (!(error instanceof StoreError) && !isSqlite(error)) throw error;
    result.incomplete = true;
  } finally {
    pages.close();
  }
  return result;
}

const isSqlite = (error: unknown) => String((error as { code?: string }).code).startsWith('SQLITE_');
const isNumber = (field: RawField | undefined): field is number => typeof field === 'number';
const isText = (field: RawField | undefined): field is string => typeof field === 'string';
const isBytes = (field: RawField | undefined): field is Uint8Array => field instanceof Uint8Array;
const isTextOrNull = (field: RawField | undefined): field is string | null => field === null || isText(field);
const isNumberOrNull = (field: RawField | undefined): field is number | null => field === null || isNumber(field);

/** Tells the rows of one table from those of another by their shape and checksum, and writes them. */
class Carrier {
  readonly #statements: Statements;
  readonly #into: Database;
  readonly #result: Salvage;
  readonly #add: Record<'log' | 'segment' | 'gone' | 'progress', (id: number, bytes: Uint8Array) => boolean>;

  constructor(statements: Statements, into: Database, result: Salvage) {
    this.#statements = statements;
    this.#into = into;
    this.#result = result;
    // One row may come twice: of an old page that no map calls free.
    const adding = (table: string) => {
      const statement = into.prepare<[number, Uint8Array]>(`INSERT OR IGNORE INTO ${table} VALUES (?, ?)`);
      return (id: number, bytes: Uint8Array) => statement.run(id, bytes).changes > 0;
    };
    this.#add = {
      log: adding('log'),
      segment: adding('segment'),
      gone: adding('span_gone'),
      progress: adding('segment_progress'),
    };
  }

  take(row: RawRow): void {
    const [first, ...rest] = row.fields;
    // Every table of the buffer has its number as rowid, so the field itself is empty; SQLite's own table has not.
    if (first !== null) return;
    const known =
      rest.length === 1
        ? this.#takePacked(row.rowid, rest[0])
        : this.#takeSeries(row.rowid, rest) ||
          this.#takeSpan(row.rowid, rest) ||
          this.#takeRun(row.rowid, rest) ||
          this.#takeQuarantine(rest);
    if (!known && rest.length !== SET_ASIDE_FIELDS) this.#result.lostRows++;
  }

  #takePacked(id: number, bytes: RawField | undefined): boolean {
    if (!isBytes(bytes)) return false;
    const log = attempt(() => readLogRow(bytes));
    if (log) {
      if (this.#add.log(id, bytes)) this.#result.values += log.values.length;
      return true;
    }
    // Segments have numbers from 2^20 on, spans hardly ever.
    const segment = id >= MAX_ENTRIES ? attempt(() => unpackSegment(bytes)) : undefined;
    if (segment) {
      if (this.#add.segment(id, bytes)) this.#result.values += segment.count;
      return true;
    }
    if (id >= MAX_ENTRIES && attempt(() => unpackRanges(bytes))) {
      this.#add.progress(id, bytes);
      return true;
    }
    if (id >= MAX_ENTRIES || !attempt(() => ByteReader.unseal(bytes, 'a row'))) return false;
    this.#add.gone(id, bytes);
    return true;
  }

  #takeSeries(id: number, rest: RawField[]): boolean {
    const [asset, key, group, unitId, code, instrumentation, since, sum] = rest;
    if (rest.length !== 8 || !isNumber(asset) || !isText(key) || !isTextOrNull(group)) return false;
    if (!isNumberOrNull(unitId) || !isTextOrNull(code)) return false;
    if (!isNumberOrNull(instrumentation) || !isNumber(since) || !isNumber(sum)) return false;
    const series = seriesOfFields([id, asset, key, group, unitId, code, instrumentation, since, sum]);
    if (series) writeSeries(this.#statements, series);
    return series !== undefined;
  }

  #takeSpan(id: number, rest: RawField[]): boolean {
    const [place, run, acceptedMs, directory, sum] = rest;
    if (rest.length !== 5 || !isNumber(place) || !isNumber(run) || !isNumber(acceptedMs) || !isBytes(directory)) {
      return false;
    }
    if (sum !== spanSum(id, place, run, acceptedMs) || !attempt(() => unpackDirectory(directory))) return false;
    attemptSqlite(() => this.#statements.addSpan.run(id, place, run, acceptedMs, directory, sum));
    return true;
  }

  #takeRun(id: number, rest: RawField[]): boolean {
    const [boot, wallMs, monotonicMs, lastMs] = rest;
    if (rest.length !== 4 || !isText(boot) || !isNumber(wallMs) || !isNumber(monotonicMs) || !isNumber(lastMs)) {
      return false;
    }
    attemptSqlite(() => this.#statements.addRun.run(id, boot, wallMs, monotonicMs, lastMs));
    return true;
  }

  #takeQuarantine(rest: RawField[]): boolean {
    const [series, count, packed, status, message, atMs, sum] = rest;
    if (rest.length !== 7 || !isNumber(series) || !isNumber(count) || !isBytes(packed)) return false;
    if (!isNumber(status) || !isText(message) || !isNumber(atMs)) return false;
    if (sum !== quarantineSum(series, count, status, message, atMs)) return false;
    if (!attempt(() => unpackSegment(packed))) return false;
    this.#statements.addQuarantine.run(series, count, packed, status, message, atMs, sum);
    this.#result.quarantined += count;
    return true;
  }

  /** Of spans whose directory does not read a new one is made, from what their segments say of themselves. */
  finish(): void {
    remakeDirectories(this.#into, this.#statements);
    // Shifted, not divided: a number that comes from JavaScript would make the division a fraction.
    const isOrphan = (column: string) => `${column} >> ${Math.log2(MAX_ENTRIES)} NOT IN (SELECT id FROM span)`;
    this.#into.exec(`DELETE FROM segment_progress WHERE ${isOrphan('segment')}`);
    this.#into.exec('DELETE FROM span_gone WHERE span NOT IN (SELECT id FROM span)');
  }
}

/** What was set aside before is in the old file still. */
const SET_ASIDE_FIELDS = 4;

function attempt<Result>(read: () => Result): Result | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof StoreError) return undefined;
    throw error;
  }
}

/** The same row again is no news. */
function attemptSqlite(write: () => unknown): void {
  try {
    write();
  } catch (error) {
    if (!String((error as { code?: string }).code).startsWith('SQLITE_CONSTRAINT')) throw error;
  }
}
