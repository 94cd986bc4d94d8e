/**
 * Rebuilds an unusable buffer in a new file. Copies the data that the store requires to open: log, span directories,
 * settled ranges, series, runs, notes and quarantine. A row with a correct checksum is valid, regardless of its
 * neighbours. Segments, which make up nearly all of a large backlog, are copied later while the store is running
 * (`carrying.ts`). Until then, they are read from the old file, which is listed in the table `origin` of the new file.
 *
 * If SQLite cannot read all of these tables, every page of the old file is examined. The old file is never changed.
 * Small transactions limit memory use and WAL size. A crash leaves no partial file behind (`base/replace-database.ts`).
 * If the disk rejects writes, `salvage` throws and the old file stays in place.
 */
import { basename } from 'node:path';
import { announce } from '../../base/crash-points.ts';
import { type Database, openForReading, saysDriver } from '../../base/database.ts';
import { ByteReader, readable } from '../format/bytes.ts';
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
  type SeriesFields,
  type Statements,
  seriesOfFields,
  sumOf,
  writeSeries,
} from '../tables.ts';
import { rebuildDirectories } from './directories.ts';
import type { SeriesCopy } from './series-copy.ts';
import { PAGE_BYTES, type RawField, type RawRow, SqlitePages } from './sqlite-pages.ts';

export interface Salvage {
  /** Number of values in the log and in the segments of the new buffer. Unreadable segments are counted later. */
  values: number;
  lostRows: number;
  /** Number of quarantined values that were copied. */
  quarantined: number;
  /** Number of pages that the disk cannot read. */
  unreadPages?: number;
  /**
   * Known number of lost values in the first and last log rows. Gaps between readable rows are counted by sequence
   * numbers.
   */
  lostAtEdges?: number;
}

export interface SalvageRequest {
  /** Path of the old file after the replacement. */
  aside: string;
  copy: SeriesCopy;
  /** Series in memory. The series in `copy` are used if no row is readable. */
  known?: readonly Series[];
  /** Whether the WAL lost commits, so that SQLite would read fewer rows than exist. */
  isWalDamaged?: boolean;
}

const ROWS_A_TRANSACTION = 1_000;
/** All tables except segments and copies of damaged rows, both of which stay in the old file. */
const TABLES = ['series', 'run', 'log', 'span', 'span_gone', 'segment_progress', 'quarantine', 'note', 'origin'];

/** Reads the closed file `from` and writes to the new buffer `into`. Never throws because of damage in `from`. */
export function salvage(from: string, into: Database, request: SalvageRequest): Salvage {
  prepareTables(into);
  const statements = prepareStatements(into);
  const copier = new RowCopier(statements, into);
  const { aside, copy, known = [], isWalDamaged } = request;
  inTransactions(into, known, (series) => writeSeries(statements, series));
  if (isWalDamaged || !copyTables(from, into, copier)) readPages(from, into, copier);
  inTransactions(into, copy.read().values(), (series) => writeSeries(statements, series));
  into.transaction(() => copier.finish(basename(aside)))();
  return copier.result;
}

function inTransactions<Item>(into: Database, items: Iterable<Item>, write: (item: Item) => void): void {
  const iterator = items[Symbol.iterator]();
  const some = into.transaction(() => {
    for (let i = 0; i < ROWS_A_TRANSACTION; i++) {
      const next = iterator.next();
      if (next.done) return false;
      write(next.value);
      announce('rescue.copy');
    }
    return true;
  });
  while (some());
}

/** Returns false if SQLite or a checksum reports damage. Rows copied before may be copied again. */
function copyTables(from: string, into: Database, copier: RowCopier): boolean {
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
      inTransactions(into, { [Symbol.iterator]: () => ({ next }) } as Iterable<RawField[]>, ([id, ...rest]) => {
        if (!copier.copyRow({ rowid: Number(id), fields: [null, ...rest] })) isSound = false;
      });
      if (!isSound) return false;
    }
    return true;
  } finally {
    // Every page will be read if necessary.
    copier.result.lostRows = 0;
    // An unfinished iterator keeps the file open.
    rows?.return?.();
    old?.close();
  }
}

function readPages(from: string, into: Database, copier: RowCopier): void {
  let pages: SqlitePages;
  try {
    pages = new SqlitePages(from, PAGE_BYTES);
  } catch {
    return;
  }
  try {
    inTransactions(into, pages.rows(), (row) => copier.copyRow(row));
    const { broken, unreadPages } = pages;
    copier.result.lostRows += broken;
    if (unreadPages > 0) copier.result.unreadPages = unreadPages;
    // Unreadable directories are rebuilt from their segments.
    const orphans = copier.orphans();
    if (orphans.size > 0) inTransactions(into, pages.rows(), (row) => copier.copySegmentOf(orphans, row));
  } finally {
    pages.close();
  }
}

/** A table with a checksum in its last field. */
interface CheckedTable {
  /** Types of the fields after the row number: integer or real, text, bytes; upper case if the field can be null. */
  shape: string;
  /** Whether the checksum covers the row number. It never covers packed bytes, which have their own checksum. */
  coversId: boolean;
  areBytesSound?(bytes: Uint8Array): unknown;
  write(id: number, fields: RawField[]): void;
}

const FIELD_TYPES: Record<string, (field: RawField | undefined) => boolean> = {
  n: (field) => typeof field === 'number',
  t: (field) => typeof field === 'string',
  b: (field) => field instanceof Uint8Array,
};

function isValid(id: number, fields: RawField[], { shape, coversId, areBytesSound }: CheckedTable): boolean {
  const fits = fields.every((field, at) => {
    const type = shape[at]!;
    return FIELD_TYPES[type.toLowerCase()]!(field) || (field === null && type !== type.toLowerCase());
  });
  if (!fits) return false;
  const covered = fields.slice(0, -1).filter((field) => !(field instanceof Uint8Array)) as (number | string | null)[];
  if (fields.at(-1) !== sumOf(...(coversId ? [id] : []), ...covered)) return false;
  const bytes = fields.find((field) => field instanceof Uint8Array);
  return bytes === undefined || !areBytesSound || readable(() => areBytesSound(bytes)) !== undefined;
}

/** Recognizes the table of a row by its shape and checksum, and writes it. */
class RowCopier {
  readonly result: Salvage = { values: 0, lostRows: 0, quarantined: 0 };
  readonly #statements: Statements;
  readonly #into: Database;
  readonly #tables: readonly CheckedTable[];
  /** Writes a row that contains only packed bytes. */
  readonly #addPacked: Record<'log' | 'span_gone' | 'segment_progress', (id: number, bytes: Uint8Array) => void>;
  /** Spans with a segment. */
  readonly #spans = new Set<number>();
  /** Truncated log rows. */
  readonly #cut: { firstSeq: number; count: number }[] = [];
  #firstSeq = Number.POSITIVE_INFINITY;
  #endSeq = 0;
  /** Lowest number for new spans, determined from older origins. */
  #below = 1;

  constructor(statements: Statements, into: Database) {
    this.#statements = statements;
    this.#into = into;
    // A row can occur again on an old page that no map marks as free.
    const adding = (table: string, columns: number) => {
      const statement = into.prepare<RawField[]>(
        `INSERT OR IGNORE INTO ${table} VALUES (${Array(columns).fill('?').join(', ')})`,
      );
      return (id: number, ...fields: RawField[]) => statement.run(id, ...fields).changes > 0;
    };
    this.#addPacked = {
      log: adding('log', 2),
      span_gone: adding('span_gone', 2),
      segment_progress: adding('segment_progress', 2),
    };
    const [addSpan, addRun, addQuarantine] = [adding('span', 6), adding('run', 6), adding('quarantine', 8)];
    this.#tables = [
      {
        shape: 'ntTNTNnn',
        coversId: true,
        write: (id, fields) => writeSeries(statements, seriesOfFields([id, ...fields] as SeriesFields)!),
      },
      { shape: 'nnnbn', coversId: true, areBytesSound: unpackDirectory, write: (id, fields) => addSpan(id, ...fields) },
      { shape: 'tnnnn', coversId: true, write: (id, fields) => addRun(id, ...fields) },
      { shape: 'tnn', coversId: false, write: (_, [name, below]) => this.#addOrigin(name as string, below as number) },
      {
        shape: 'ttn',
        coversId: false,
        write: (_, fields) => statements.setNote.run(...(fields as [string, string, number])),
      },
      {
        shape: 'nnbntnn',
        coversId: false,
        areBytesSound: unpackSegment,
        write: (id, fields) => {
          if (addQuarantine(id, ...fields)) this.result.quarantined += fields[1] as number;
        },
      },
    ];
  }

  /** Returns whether the row has a correct checksum or is not a row of the buffer. */
  copyRow(row: RawRow): boolean {
    const [first, ...rest] = row.fields;
    if (row.isCut) {
      const head = rest[0] instanceof Uint8Array ? peekLogRow(rest[0]) : undefined;
      if (head) this.#cut.push(head);
      return false;
    }
    // The ID field of a rowid table is stored as null; rows of SQLite's schema table have a different form.
    if (first !== null) return true;
    const isKnown = rest.length === 1 ? this.#copyPacked(row.rowid, rest[0]) : this.#copyChecked(row.rowid, rest);
    if (!isKnown && rest.length !== SET_ASIDE_FIELDS) this.result.lostRows++;
    return isKnown;
  }

  #copyChecked(id: number, fields: RawField[]): boolean {
    const table = this.#tables.find((one) => one.shape.length === fields.length && isValid(id, fields, one));
    table?.write(id, fields);
    return table !== undefined;
  }

  #copyPacked(id: number, bytes: RawField | undefined): boolean {
    if (!(bytes instanceof Uint8Array)) return false;
    const log = readable(() => readLogRow(bytes));
    if (log) {
      this.#addPacked.log(id, bytes);
      this.#firstSeq = Math.min(this.#firstSeq, log.firstSeq);
      this.#endSeq = Math.max(this.#endSeq, log.firstSeq + log.values.length);
      return true;
    }
    // Segment IDs start at 2^20; span IDs do not reach that number in practice.
    if (id < MAX_ENTRIES) {
      if (!readable(() => ByteReader.unseal(bytes, 'a row'))) return false;
      this.#addPacked.span_gone(id, bytes);
      return true;
    }
    // The first number distinguishes them: the version of a segment is odd, the number of range boundaries is even.
    if (readable(() => readSegmentHead(bytes))) {
      this.#spans.add(Math.floor(id / MAX_ENTRIES));
      return true;
    }
    if (!readable(() => unpackRanges(bytes))) return false;
    this.#addPacked.segment_progress(id, bytes);
    return true;
  }

  /** An older file that was set aside. */
  #addOrigin(name: string, below: number): void {
    this.#below = Math.max(this.#below, below);
    this.#into.prepare('DELETE FROM origin WHERE name = ?').run(name);
    this.#statements.addOrigin.run(name, below, originSum(name, below));
  }

  /** Returns spans with segments but without a directory. */
  orphans(): ReadonlySet<number> {
    const known = new Set(this.#into.prepare<[], number>('SELECT id FROM span').pluck().all());
    return new Set([...this.#spans].filter((span) => !known.has(span)));
  }

  copySegmentOf(spans: ReadonlySet<number>, { rowid, fields }: RawRow): void {
    const [first, bytes] = fields;
    if (first !== null || fields.length !== 2 || !(bytes instanceof Uint8Array)) return;
    if (!spans.has(Math.floor(rowid / MAX_ENTRIES)) || !readable(() => unpackSegment(bytes))) return;
    this.#statements.carrySegment.run(rowid, bytes);
  }

  /** `origin` is the name of the old file. */
  finish(origin: string): void {
    rebuildDirectories(this.#into, this.#statements);
    // Uses a shift, because division by a JavaScript number would return a fraction.
    const isOrphan = (column: string) => `${column} >> ${Math.log2(MAX_ENTRIES)} NOT IN (SELECT id FROM span)`;
    this.#into.exec(`DELETE FROM segment_progress WHERE ${isOrphan('segment')}`);
    this.#into.exec('DELETE FROM span_gone WHERE span NOT IN (SELECT id FROM span)');
    const last = this.#into.prepare<[], number>('SELECT coalesce(max(id), 0) FROM span').pluck().get()!;
    this.#addOrigin(origin, Math.max(this.#below, last + 1));
    const isOutside = ({ firstSeq, count }: { firstSeq: number; count: number }) =>
      firstSeq + count <= this.#firstSeq || firstSeq >= this.#endSeq;
    const lost = this.#cut.filter(isOutside).reduce((sum, { count }) => sum + count, 0);
    if (lost > 0) this.result.lostAtEdges = lost;
  }
}

/** Rows that were set aside earlier stay in the old file. */
const SET_ASIDE_FIELDS = 4;
