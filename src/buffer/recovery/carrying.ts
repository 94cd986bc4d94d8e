/**
 * Copies segments from files that were set aside (`salvage.ts`) into their replacement, in steps, while the store is
 * running. The replacement contains the directories from the start, so every value and its position are known. A
 * segment that is required before it is copied is read from the old file.
 *
 *   pages: copy the segments on every readable page ──► rest: count the missing segments as lost ──► done
 *
 * Invariants: a segment is copied with its ID, so a repeated copy changes nothing. A segment that SQLite cannot read is
 * blocked, as if in flight, until all pages have been read, so that no later value of its series overtakes it. Each
 * step is a transaction. Completion is recorded with a commit, because uncommitted compactions and deliveries require
 * the old file after a crash. After a crash, copying starts from the beginning at the next startup. It is suspended
 * while the disk is full, and for up to ten minutes if no page of an old file is readable.
 */
import { statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { type Database, openForReading, saysDriver } from '../../base/database.ts';
import { codeOf } from '../../base/errors.ts';
import { readable } from '../format/bytes.ts';
import { readSegmentHead } from '../format/segment.ts';
import { isDiskFull } from '../space/reserve.ts';
import { MAX_ENTRIES, type Span, segmentId } from '../span.ts';
import type { StoreState } from '../state.ts';
import { originSum, type Statements } from '../tables.ts';
import { isPartlyReadable, PAGE_BYTES, type RawRow, SqlitePages } from './sqlite-pages.ts';

/** Limits of a step, which delays a commit. */
const STEP_BYTES = 256 * 1024;
const STEP_SEGMENTS = 512;
/** Pages of the old file per step, which takes a few milliseconds. */
const STEP_PAGES = 2_000;
/** Delay after a failure due to lack of space, and between attempts to read a file of which no page is readable. */
const RETRY_MS = 10_000;
/** Ten minutes. If the disk is unreadable for longer, the replacement is unreadable too. */
const MAX_ATTEMPTS = 60;

type Phase = 'pages' | 'rest' | 'done';

interface CarryingParts {
  database: Database;
  statements: Statements;
  state: StoreState;
}

export class Carrying {
  readonly #parts: CarryingParts;
  /** Most recently set aside file first. */
  readonly #files: readonly OriginFile[];
  /** Spans with larger numbers were never in these files. */
  readonly below: number;
  #lose: ((span: Span, entry: number) => void) | undefined;
  #phase: Phase = 'pages';
  #pages: { rows: Iterator<RawRow[]>; spans: ReadonlyMap<number, Span> } | undefined;
  #rest: Iterator<{ span: Span; entry: number }> | undefined;
  /** Segments that were requested but could not be read so far. */
  readonly #awaited = new Map<number, { span: Span; entry: number }>();
  #notBeforeMs = Number.NEGATIVE_INFINITY;
  #attempts = 0;
  #maxSegments = STEP_SEGMENTS;

  /** Returns undefined if there is nothing to copy. `path` is the path of the replacement. */
  static resume(path: string, parts: CarryingParts): Carrying | undefined {
    const rows = parts.statements.origins.all().filter(({ name, below, sum }) => sum === originSum(name, below));
    if (rows.length === 0) return undefined;
    const files = rows.map(({ name }) => new OriginFile(join(dirname(path), name)));
    return new Carrying(parts, files, Math.max(...rows.map(({ below }) => below)));
  }

  private constructor(parts: CarryingParts, files: OriginFile[], below: number) {
    this.#parts = parts;
    this.#files = files;
    this.below = below;
  }

  /** `lose` is called for lost segments. `maxSegments` is the limit per step. */
  begin(lose: (span: Span, entry: number) => void, maxSegments = STEP_SEGMENTS): this {
    this.#lose = lose;
    this.#maxSegments = maxSegments;
    return this;
  }

  /** Reads a segment that has not been copied yet. */
  read(span: Span, entry: number): Uint8Array | undefined {
    const id = segmentId(span.id, entry);
    if (span.id >= this.below || this.#awaited.has(id)) return undefined;
    for (const file of this.#files) {
      const bytes = file.get(id);
      if (bytes && belongsTo(bytes, span, entry)) return bytes;
    }
    return undefined;
  }

  /**
   * Returns whether the segment is unreadable but can still be found; it and later values of its series are blocked
   * until then.
   */
  awaits(span: Span, entry: number): boolean {
    if (span.id >= this.below || this.#phase !== 'pages') return false;
    const id = segmentId(span.id, entry);
    if (this.#awaited.has(id)) return true;
    this.#awaited.set(id, { span, entry });
    this.#parts.state.markInFlight(span, entry);
    return true;
  }

  #release(span: Span, entry: number): void {
    if (this.#awaited.delete(segmentId(span.id, entry))) this.#parts.state.releaseEntry(span, entry);
  }

  /** Spans left on disk because of the memory limit are copied when a later startup can load them. */
  isDue(nowMs: number): boolean {
    return this.#phase !== 'done' && this.#parts.state.counts.notLoaded === 0 && nowMs >= this.#notBeforeMs;
  }

  step(nowMs: number): void {
    if (!this.isDue(nowMs)) return;
    try {
      this.#phase = this.#parts.database.transaction(() =>
        this.#phase === 'pages' ? this.#copyPages(nowMs) : this.#loseRest(),
      )();
    } catch (error) {
      // The transaction was rolled back, so everything is examined again.
      this.#pages = undefined;
      this.#rest = undefined;
      if (!isDiskFull(error)) throw error;
      this.#notBeforeMs = nowMs + RETRY_MS;
    }
    if (this.#phase !== 'done') return;
    for (const { span, entry } of this.#awaited.values()) this.#release(span, entry);
    this.#parts.state.pending.endCarrying();
  }

  #copyPages(nowMs: number): Phase {
    this.#pages ??= {
      rows: this.#allPages(),
      spans: new Map(this.#oldSpans().map((span) => [span.id, span])),
    };
    const { rows, spans } = this.#pages;
    let bytes = 0;
    let segments = 0;
    for (let count = 0; count < STEP_PAGES && bytes < STEP_BYTES && segments < this.#maxSegments; count++) {
      const next = rows.next();
      if (next.done) {
        this.#pages = undefined;
        if (this.#attempts++ >= MAX_ATTEMPTS || !this.#files.some((file) => file.mayRecover)) return 'rest';
        this.#notBeforeMs = nowMs + RETRY_MS;
        return 'pages';
      }
      for (const row of next.value) {
        const copied = this.#copyRow(row, spans);
        bytes += copied;
        if (copied > 0) segments++;
      }
    }
    return 'pages';
  }

  #oldSpans(): Span[] {
    return this.#parts.state.spans.filter(({ id }) => id < this.below);
  }

  *#allPages(): Generator<RawRow[]> {
    for (const file of this.#files) yield* file.pages();
  }

  /** Returns the number of copied bytes. */
  #copyRow({ rowid, fields }: RawRow, spans: ReadonlyMap<number, Span>): number {
    const [first, bytes] = fields;
    const span = spans.get(Math.floor(rowid / MAX_ENTRIES));
    const entry = rowid % MAX_ENTRIES;
    if (!span || first !== null || fields.length !== 2 || !(bytes instanceof Uint8Array)) return 0;
    if (span.gone[entry] !== 0 || !belongsTo(bytes, span, entry)) return 0;
    if (this.#parts.statements.carrySegment.run(rowid, bytes).changes === 0) return 0;
    this.#release(span, entry);
    return bytes.length;
  }

  #loseRest(): Phase {
    this.#rest ??= this.#missing();
    for (let count = 0; count < this.#maxSegments; count++) {
      const next = this.#rest.next();
      if (next.done) return 'done';
      const { span, entry } = next.value;
      this.#release(span, entry);
      const packed = this.read(span, entry);
      if (packed) this.#parts.statements.carrySegment.run(segmentId(span.id, entry), packed);
      else this.#lose?.(span, entry);
    }
    return 'rest';
  }

  /** Yields the segments that have not been copied, in span order. */
  *#missing(): Generator<{ span: Span; entry: number }> {
    for (const span of this.#oldSpans()) {
      const first = segmentId(span.id, 0);
      const copied = new Set(this.#parts.statements.segmentsIn.all(first, first + MAX_ENTRIES - 1));
      for (let entry = 0; entry < span.series.length; entry++) {
        if (!span.gone[entry] && !copied.has(first + entry)) yield { span, entry };
      }
    }
  }

  /** Copies all segments of a span whose directory is rebuilt, because it is unknown which segments are gone. */
  carryAllOf(span: number): void {
    for (const file of this.#files) {
      for (const { id, packed } of file.between(segmentId(span, 0), segmentId(span, MAX_ENTRIES - 1))) {
        this.#parts.statements.carrySegment.run(id, packed);
      }
    }
  }

  close(): void {
    for (const file of this.#files) file.close();
  }
}

function belongsTo(bytes: Uint8Array, span: Span, entry: number): boolean {
  const head = readable(() => readSegmentHead(bytes));
  return head !== undefined && head.series === span.series[entry] && head.count === span.count[entry];
}

/** A file that was set aside. SQLite reads single segments; `pages` reads every readable page without SQLite. */
class OriginFile {
  readonly #path: string;
  #open: { database: Database; get(id: number): Buffer | undefined } | undefined;
  #hasFailed = false;
  #pages: SqlitePages | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  /** Returns undefined if the segment is missing or SQLite cannot read it. */
  get(id: number): Buffer | undefined {
    return ignoringSqlite(() => this.#opened()?.get(id));
  }

  /** Yields the segments in a range of IDs that SQLite can read. */
  *between(first: number, last: number): Generator<{ id: number; packed: Buffer }> {
    const query = 'SELECT id, packed FROM segment WHERE id BETWEEN ? AND ? ORDER BY id';
    const rows = ignoringSqlite(() =>
      this.#opened()?.database.prepare<[number, number], { id: number; packed: Buffer }>(query).iterate(first, last),
    );
    for (;;) {
      const next = ignoringSqlite(() => rows?.next());
      if (!next || next.done) return;
      yield next.value;
    }
  }

  #opened() {
    // If the file cannot be opened, opening it is not retried for every segment.
    if (this.#open || this.#hasFailed) return this.#open;
    this.#hasFailed = true;
    const database = openForReading(this.#path);
    try {
      const get = database.prepare<[number], Buffer>('SELECT packed FROM segment WHERE id = ?').pluck();
      this.#open = { database, get: (id) => get.get(id) };
    } catch (error) {
      database.close();
      throw error;
    }
    return this.#open;
  }

  /** Yields the rows of each page. Reopens the file, because the disk may have recovered. */
  *pages(): Generator<RawRow[]> {
    this.#pages?.close();
    this.#pages = undefined;
    try {
      this.#pages = new SqlitePages(this.#path, PAGE_BYTES);
    } catch {
      return;
    }
    yield* this.#pages.pages();
  }

  /**
   * Whether the file exists but no page of it is readable, so that the disk may recover. A removed file does not
   * recover.
   */
  get mayRecover(): boolean {
    try {
      if (statSync(this.#path).size === 0) return false;
    } catch (error) {
      return codeOf(error) !== 'ENOENT';
    }
    return !isPartlyReadable(this.#path);
  }

  close(): void {
    this.#open?.database.close();
    this.#pages?.close();
    this.#open = undefined;
    this.#pages = undefined;
    this.#hasFailed = false;
  }
}

/** Returns undefined if SQLite cannot read the file. */
function ignoringSqlite<Result>(read: () => Result): Result | undefined {
  try {
    return read();
  } catch (error) {
    if (!saysDriver(error)) throw error;
    return undefined;
  }
}
