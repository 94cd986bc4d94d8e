/**
 * A buffer that cannot go on in its file is rebuilt beside it. What the store must know to open comes first: the log, the
 * directories of spans and what of them is settled, series, runs, notes and quarantine, row by row and as they are; a row that
 * fits its checksum is right whatever became of its neighbours. That is little, a few bytes for each segment. The segments,
 * which are nearly all of a large backlog, follow while the store works (`carrying.ts`): until then they are read from the old
 * file, which the new one names as its `origin`.
 *
 * Where SQLite reads all of the first it is copied so; else every page of the old file is looked at. The old file is only
 * read: it stays byte for byte as it is. Small transactions keep memory and WAL small. A crash leaves nothing of it
 * (`base/replace-database.ts`), and it throws where the disk does not take what it writes: then the old file stays in its place.
 */
import { basename } from 'node:path';
import { type Database, openForReading, saysDriver } from '../../base/database.ts';
import { ByteReader } from '../format/bytes.ts';
import { peekLogRow, readLogRow } from '../format/log-row.ts';
import { readSegmentHead, unpackSegment } from '../format/segment.ts';
import { unpackRanges } from '../format/settled-ranges.ts';
import type { Series } from '../series.ts';
import { MAX_ENTRIES, unpackDirectory } from '../span.ts';
import {
  FORMAT,
  originSum,
  prepareStatements,
  prepareTables,
  quarantineSum,
  runSum,
  type Statements,
  seriesOfFields,
  spanSum,
  sumOf,
  writeSeries,
} from '../tables.ts';
import { remakeDirectories } from './directories.ts';
import { readable } from './readable.ts';
import type { SeriesCopy } from './series-copy.ts';
import { type RawField, type RawRow, SqlitePages } from './sqlite-pages.ts';

export interface Salvage {
  /** That the new buffer knows of, in the log and in segments; those of them that do not read are counted when they are carried over. */
  values: number;
  /** Rows that did not read. */
  lostRows: number;
  /** Values in quarantine that were carried over. */
  quarantined: number;
  /** Pages that the disk does not read: what stood on them is lost. */
  unreadPages?: number;
  /**
   * Values of the log's first and last rows that did not read, as far as these say how many they had: nothing else tells. What
   * lies between two rows that read is counted by the place of these in the order of acceptance.
   */
  lostAtEdges?: number;
}

export interface SalvageRequest {
  /** The path that the old file will have. */
  aside: string;
  copy: SeriesCopy;
  /** Series that somebody still has in memory; those of `copy` count where no row of theirs reads. */
  known?: readonly Series[];
  /** SQLite would read less than there is: its WAL has lost commits. */
  isWalDamaged?: boolean;
}

const ROWS_A_TRANSACTION = 1_000;
/** As `openDatabase` makes them. */
export const PAGE_BYTES = 1024;
/** All but the segments, and the copies of damaged rows, which stay in the old file. */
const TABLES = ['series', 'run', 'log', 'span', 'span_gone', 'segment_progress', 'quarantine', 'note', 'origin'];

/** Reads `from` (a path; closed), writes into `into` (a new buffer, before its store opens). Never throws for what it reads. */
export function salvage(from: string, into: Database, request: SalvageRequest): Salvage {
  prepareTables(into);
  const statements = prepareStatements(into);
  const carrier = new Carrier(statements, into);
  const { aside, copy, known = [], isWalDamaged } = request;
  inTransactions(into, known, (series) => writeSeries(statements, series));
  if (isWalDamaged || !copyTables(from, into, carrier)) readPages(from, into, carrier);
  inTransactions(into, copy.read().values(), (series) => writeSeries(statements, series));
  into.transaction(() => carrier.finish(basename(aside)))();
  return carrier.result;
}

function inTransactions<Item>(into: Database, items: Iterable<Item>, write: (item: Item) => void): void {
  const iterator = items[Symbol.iterator]();
  const some = into.transaction(() => {
    for (let i = 0; i < ROWS_A_TRANSACTION; i++) {
      const next = iterator.next();
      if (next.done) return false;
      write(next.value);
    }
    return true;
  });
  while (some());
}

/** `false` where SQLite or a row's checksum has something against it. What came by then may come again. */
function copyTables(from: string, into: Database, carrier: Carrier): boolean {
  let old: Database | undefined;
  let rows: Iterator<RawField[]> | undefined;
  let isSound = true;
  const reading = <Result>(read: () => Result): Result | undefined => {
    try {
      return read();
    } catch (error) {
      if (!saysDriver(error)) throw error;
      isSound = false;
      return undefined;
    }
  };
  try {
    old = reading(() => openForReading(from));
    if (reading(() => old?.pragma('user_version', { simple: true })) !== FORMAT) return false;
    for (const table of TABLES) {
      rows = reading(() => old!.prepare<[], RawField[]>(`SELECT * FROM ${table}`).raw().iterate());
      const next = () => reading(() => rows?.next()) ?? { done: true as const, value: undefined };
      const readable = { [Symbol.iterator]: () => ({ next }) } as Iterable<RawField[]>;
      inTransactions(into, readable, ([id, ...rest]) => {
        if (!carrier.take({ rowid: Number(id), fields: [null, ...rest] })) isSound = false;
      });
      if (!isSound) return false;
    }
    return true;
  } finally {
    // Every page will be looked at, where it has to be.
    carrier.result.lostRows = 0;
    // One that has not come to its end keeps the file open.
    rows?.return?.();
    old?.close();
  }
}

function readPages(from: string, into: Database, carrier: Carrier): void {
  let pages: SqlitePages;
  try {
    pages = new SqlitePages(from, PAGE_BYTES);
  } catch {
    return;
  }
  try {
    inTransactions(into, pages.rows(), (row) => carrier.take(row));
    const { broken, unreadPages } = pages;
    carrier.result.lostRows += broken;
    if (unreadPages > 0) carrier.result.unreadPages = unreadPages;
    // Of spans whose directory does not read a new one is made, from what their segments say of themselves.
    const orphans = carrier.orphans();
    if (orphans.size > 0) inTransactions(into, pages.rows(), (row) => carrier.takeSegmentOf(orphans, row));
  } finally {
    pages.close();
  }
}

type Is<Kind extends RawField> = (field: RawField | undefined) => field is Kind;
const isNumber: Is<number> = (field) => typeof field === 'number';
const isText: Is<string> = (field) => typeof field === 'string';
const isBytes: Is<Uint8Array> = (field) => field instanceof Uint8Array;
const isTextOrNull: Is<string | null> = (field) => field === null || isText(field);
const isNumberOrNull: Is<number | null> = (field) => field === null || isNumber(field);

/** The kinds of a row's fields behind its number. */
type Shape<Fields extends RawField[]> = { [At in keyof Fields]: Is<Fields[At]> };
const SERIES: Shape<[number, string, string | null, number | null, string | null, number | null, number, number]> = [
  isNumber,
  isText,
  isTextOrNull,
  isNumberOrNull,
  isTextOrNull,
  isNumberOrNull,
  isNumber,
  isNumber,
];
const SPAN: Shape<[number, number, number, Uint8Array, number]> = [isNumber, isNumber, isNumber, isBytes, isNumber];
const RUN: Shape<[string, number, number, number, number]> = [isText, isNumber, isNumber, isNumber, isNumber];
const ORIGIN: Shape<[string, number, number]> = [isText, isNumber, isNumber];
const NOTE: Shape<[string, string, number]> = [isText, isText, isNumber];
const QUARANTINE: Shape<[number, number, Uint8Array, number, string, number, number]> = [
  isNumber,
  isNumber,
  isBytes,
  isNumber,
  isText,
  isNumber,
  isNumber,
];

function isOf<Fields extends RawField[]>(fields: RawField[], shape: Shape<Fields>): fields is Fields {
  return fields.length === shape.length && shape.every((is, at) => is(fields[at]));
}

/** Tells the rows of one table from those of another by their shape and checksum, and writes them. */
class Carrier {
  readonly result: Salvage = { values: 0, lostRows: 0, quarantined: 0 };
  readonly #statements: Statements;
  readonly #into: Database;
  readonly #add: Record<'log' | 'gone' | 'progress', (id: number, bytes: Uint8Array) => void>;
  readonly #addQuarantine;
  /** Spans of which there is a segment. */
  readonly #spans = new Set<number>();
  /** Of rows of the log that break off. */
  readonly #cut: { firstSeq: number; count: number }[] = [];
  #firstSeq = Number.POSITIVE_INFINITY;
  #endSeq = 0;
  /** Of older files that the old one names: numbers of spans that are new begin above. */
  #below = 1;

  constructor(statements: Statements, into: Database) {
    this.#statements = statements;
    this.#into = into;
    // One row may come twice: of an old page that no map calls free.
    const adding = (table: string) => {
      const statement = into.prepare<[number, Uint8Array]>(`INSERT OR IGNORE INTO ${table} VALUES (?, ?)`);
      return (id: number, bytes: Uint8Array) => void statement.run(id, bytes);
    };
    this.#add = { log: adding('log'), gone: adding('span_gone'), progress: adding('segment_progress') };
    this.#addQuarantine = into.prepare<[number, number, number, Uint8Array, number, string, number, number]>(
      'INSERT OR IGNORE INTO quarantine VALUES (?, ?, ?, ?, ?, ?, ?, ?)',
    );
  }

  /** Whether it is a row of the buffer that fits its checksum, or none of the buffer's at all. */
  take(row: RawRow): boolean {
    const [first, ...rest] = row.fields;
    if (row.isCut) {
      this.#noteCut(rest);
      return false;
    }
    // Every table of the buffer has its number as rowid, so the field itself is empty; SQLite's own table has not.
    if (first !== null) return true;
    const known =
      rest.length === 1
        ? this.#takePacked(row.rowid, rest[0])
        : this.#takeSeries(row.rowid, rest) ||
          this.#takeSpan(row.rowid, rest) ||
          this.#takeRun(row.rowid, rest) ||
          this.#takeOrigin(rest) ||
          this.#takeNote(rest) ||
          this.#takeQuarantine(row.rowid, rest);
    if (!known && rest.length !== SET_ASIDE_FIELDS) this.result.lostRows++;
    return known;
  }

  #noteCut(rest: RawField[]): void {
    const head = isBytes(rest[0]) ? peekLogRow(rest[0]) : undefined;
    if (head) this.#cut.push(head);
  }

  #takePacked(id: number, bytes: RawField | undefined): boolean {
    if (!isBytes(bytes)) return false;
    const log = readable(() => readLogRow(bytes));
    if (log) {
      this.#add.log(id, bytes);
      this.#firstSeq = Math.min(this.#firstSeq, log.firstSeq);
      this.#endSeq = Math.max(this.#endSeq, log.firstSeq + log.values.length);
      return true;
    }
    // Segments have numbers from 2^20 on, spans hardly ever.
    if (id < MAX_ENTRIES) {
      if (!readable(() => ByteReader.unseal(bytes, 'a row'))) return false;
      this.#add.gone(id, bytes);
      return true;
    }
    // Which of both it is its first number says: the version of a segment is odd, of ranges there is an even number of bounds.
    if (readable(() => readSegmentHead(bytes))) {
      this.#spans.add(Math.floor(id / MAX_ENTRIES));
      return true;
    }
    if (!readable(() => unpackRanges(bytes))) return false;
    this.#add.progress(id, bytes);
    return true;
  }

  #takeSeries(id: number, rest: RawField[]): boolean {
    const series = isOf(rest, SERIES) ? seriesOfFields([id, ...rest]) : undefined;
    if (series) writeSeries(this.#statements, series);
    return series !== undefined;
  }

  #takeSpan(id: number, rest: RawField[]): boolean {
    if (!isOf(rest, SPAN)) return false;
    const [place, run, acceptedMs, directory, sum] = rest;
    if (sum !== spanSum(id, place, run, acceptedMs) || !readable(() => unpackDirectory(directory))) return false;
    attemptSqlite(() => this.#statements.addSpan.run(id, place, run, acceptedMs, directory, sum));
    return true;
  }

  #takeRun(id: number, rest: RawField[]): boolean {
    if (!isOf(rest, RUN)) return false;
    const [boot, wallMs, beganMs, lastMs, sum] = rest;
    if (sum !== runSum({ id, boot, wall_ms: wallMs, monotonic_ms: beganMs, last_ms: lastMs })) return false;
    attemptSqlite(() => this.#statements.addRun.run(id, ...rest));
    return true;
  }

  /** An older file that was set aside. */
  #takeOrigin(rest: RawField[]): boolean {
    if (!isOf(rest, ORIGIN)) return false;
    const [name, below, sum] = rest;
    if (sum !== originSum(name, below)) return false;
    this.#below = Math.max(this.#below, below);
    this.#into.prepare('DELETE FROM origin WHERE name = ?').run(name);
    this.#statements.addOrigin.run(name, below, sum);
    return true;
  }

  #takeNote(rest: RawField[]): boolean {
    if (!isOf(rest, NOTE)) return false;
    const [name, text, sum] = rest;
    if (sum !== sumOf(name, text)) return false;
    this.#statements.setNote.run(name, text, sum);
    return true;
  }

  #takeQuarantine(id: number, rest: RawField[]): boolean {
    if (!isOf(rest, QUARANTINE)) return false;
    const [series, count, packed, status, message, atMs, sum] = rest;
    if (sum !== quarantineSum(series, count, status, message, atMs)) return false;
    if (!readable(() => unpackSegment(packed))) return false;
    if (this.#addQuarantine.run(id, ...rest).changes > 0) this.result.quarantined += count;
    return true;
  }

  /** Spans of which there are segments, and no directory. */
  orphans(): ReadonlySet<number> {
    const known = new Set(this.#into.prepare<[], number>('SELECT id FROM span').pluck().all());
    return new Set([...this.#spans].filter((span) => !known.has(span)));
  }

  takeSegmentOf(spans: ReadonlySet<number>, { rowid, fields }: RawRow): void {
    const [first, bytes] = fields;
    if (first !== null || fields.length !== 2 || !isBytes(bytes) || !spans.has(Math.floor(rowid / MAX_ENTRIES))) return;
    if (readable(() => unpackSegment(bytes))) this.#statements.carrySegment.run(rowid, bytes);
  }

  /** `origin`: the name of the old file. */
  finish(origin: string): void {
    remakeDirectories(this.#into, this.#statements);
    // Shifted, not divided: a number that comes from JavaScript would make the division a fraction.
    const isOrphan = (column: string) => `${column} >> ${Math.log2(MAX_ENTRIES)} NOT IN (SELECT id FROM span)`;
    this.#into.exec(`DELETE FROM segment_progress WHERE ${isOrphan('segment')}`);
    this.#into.exec('DELETE FROM span_gone WHERE span NOT IN (SELECT id FROM span)');
    const last = this.#into.prepare<[], number>('SELECT coalesce(max(id), 0) FROM span').pluck().get()!;
    const below = Math.max(this.#below, last + 1);
    this.#statements.addOrigin.run(origin, below, originSum(origin, below));
    let lost = 0;
    for (const { firstSeq, count } of this.#cut) {
      if (firstSeq + count <= this.#firstSeq || firstSeq >= this.#endSeq) lost += count;
    }
    if (lost > 0) this.result.lostAtEdges = lost;
  }
}

/** What was set aside before is in the old file still. */
const SET_ASIDE_FIELDS = 4;

/** The same row again is no news. */
function attemptSqlite(write: () => unknown): void {
  try {
    write();
  } catch (error) {
    if (!String((error as { code?: string }).code).startsWith('SQLITE_CONSTRAINT')) throw error;
  }
}
