/**
 * Carries the segments of files that were set aside (`salvage.ts`) into the database that took their place, some a step, while
 * the store works. The directories of their spans are in the new one from its beginning, so everybody knows of every value and of
 * its place in the order of acceptance; a segment that is wanted before its turn is read where it stands.
 *
 *   one by one, through SQLite ──► page by page, what SQLite did not reach ──► what is missing now is lost, counted ──► done
 *        │ all of them came                                                                                    ▲
 *        ╰─────────────────────────────────────────────────────────────────────────────────────────────────────╯
 *
 * Invariants: a segment is carried by its number, so twice is once. What does not read is awaited until every page was looked at:
 * as if a batch had it, so that nothing of its series overtakes it. A step is a transaction of its own; that all is carried is
 * recorded with a commit, because what a compaction or a delivery took in memory alone needs the old file after a crash. Until
 * then a crash leaves the names of the old files and some of their segments, and the next start goes on. A full disk is waited for.
 */
import { dirname, join } from 'node:path';
import type { Database } from '../../base/database.ts';
import { freeEntry, sendEntry } from '../batches/batch-slices.ts';
import { readSegmentHead } from '../format/segment.ts';
import type { Pending } from '../pending.ts';
import { saysFull } from '../space/reserve.ts';
import { MAX_ENTRIES, type Span, segmentId } from '../span.ts';
import type { SeriesState, StoreState } from '../state.ts';
import { originSum, type Statements } from '../tables.ts';
import { OriginFile } from './origin-file.ts';
import { readable } from './readable.ts';
import type { RawRow } from './sqlite-pages.ts';

/** Read, and written with one sync: a commit waits for it. */
const STEP_BYTES = 256 * 1024;
const STEP_SEGMENTS = 512;
/** Of the old file, where it is read page by page: some milliseconds. */
const STEP_PAGES = 2_000;
/** A disk that has no room, or reads nothing, is tried again after this. */
const PATIENCE_MS = 10_000;
/** Ten minutes: a disk that is gone for so long takes the new database with it. */
const MAX_ROUNDS = 60;

type Phase = 'segments' | 'pages' | 'rest' | 'done';

interface CarryingParts {
  database: Database;
  statements: Statements;
  state: StoreState;
  pending: Pending;
}

export class Carrying {
  readonly #database: Database;
  readonly #statements: Statements;
  readonly #state: StoreState;
  readonly #pending: Pending;
  /** The one that was set aside last comes first. */
  readonly #files: readonly OriginFile[];
  /** Spans with a number from here on never stood in them. */
  readonly below: number;
  #lose: ((span: Span, entry: number) => void) | undefined;
  #phase: Phase = 'segments';
  #done = new Set<Span>();
  /** The span that is carried now, what of it is here, and how far that has come. */
  #current: { span: Span; present: ReadonlySet<number>; entry: number } | undefined;
  #isIncomplete = false;
  #pages: { rows: Iterator<RawRow[]>; spans: ReadonlyMap<number, Span> } | undefined;
  /** Segments that somebody asked for in vain. */
  readonly #awaited = new Map<number, { span: Span; entry: number }>();
  #notBeforeMs = Number.NEGATIVE_INFINITY;
  #rounds = 0;
  #maxSegments = STEP_SEGMENTS;

  /** `undefined` where nothing is to be carried. `path` is that of the new database. */
  static resume(path: string, parts: CarryingParts): Carrying | undefined {
    const rows = parts.statements.origins.all().filter(({ name, below, sum }) => sum === originSum(name, below));
    if (rows.length === 0) return undefined;
    const files = rows.map(({ name }) => new OriginFile(join(dirname(path), name)));
    return new Carrying(parts, files, Math.max(...rows.map(({ below }) => below)));
  }

  private constructor({ database, statements, state, pending }: CarryingParts, files: OriginFile[], below: number) {
    this.#database = database;
    this.#statements = statements;
    this.#state = state;
    this.#pending = pending;
    this.#files = files;
    this.below = below;
  }

  /** The store is open; `lose` is told what does not read. `maxSegments`: of a step. */
  begin(lose: (span: Span, entry: number) => void, maxSegments = STEP_SEGMENTS): this {
    this.#lose = lose;
    this.#maxSegments = maxSegments;
    return this;
  }

  /** A segment that has not been carried yet, where it reads. */
  read(span: Span, entry: number): Uint8Array | undefined {
    if (span.id >= this.below || this.#awaited.has(segmentId(span.id, entry))) return undefined;
    for (const file of this.#files) {
      const bytes = file.get(segmentId(span.id, entry));
      if (bytes && fits(bytes, span, entry)) return bytes;
    }
    return undefined;
  }

  /** The segment does not read now and may still be found: nobody may have it, nor what follows it, until that is known. */
  awaits(span: Span, entry: number): boolean {
    if (span.id >= this.below || this.#phase === 'rest' || this.#phase === 'done') return false;
    const id = segmentId(span.id, entry);
    if (this.#awaited.has(id)) return true;
    this.#awaited.set(id, { span, entry });
    const { asset, held } = this.#seriesOf(span, entry);
    sendEntry(asset, span, entry, held);
    return true;
  }

  #release(span: Span, entry: number): void {
    if (!this.#awaited.delete(segmentId(span.id, entry))) return;
    const { asset, held } = this.#seriesOf(span, entry);
    freeEntry(asset, span, entry, held);
    this.#state.touched.add(asset);
  }

  #seriesOf = (span: Span, entry: number): SeriesState => this.#state.seriesOf(span.series[entry]!);

  /** Not while spans are left on disk for want of memory: they are carried after them. */
  isDue(nowMs: number): boolean {
    return this.#phase !== 'done' && this.#state.notLoaded === 0 && nowMs >= this.#notBeforeMs;
  }

  step(nowMs: number): void {
    if (!this.isDue(nowMs)) return;
    try {
      const next = this.#database.transaction(() => this.#stepOf(this.#phase, nowMs))();
      if (next !== this.#phase) this.#enter(next);
    } catch (error) {
      // What the transaction had carried is not there: all is looked at again.
      this.#restart();
      if (!saysFull(error)) throw error;
      this.#notBeforeMs = nowMs + PATIENCE_MS;
    }
  }

  #stepOf(phase: Phase, nowMs: number): Phase {
    if (phase === 'segments') return this.#carrySegments();
    return phase === 'pages' ? this.#carryPages(nowMs) : this.#loseRest();
  }

  #restart(): void {
    this.#done = new Set();
    this.#current = undefined;
    this.#pages = undefined;
  }

  /** The next segment that is not here, of the spans in the order of acceptance; `undefined` at the end. */
  #nextMissing(): { span: Span; entry: number } | undefined {
    for (;;) {
      this.#current ??= this.#nextSpan();
      if (!this.#current) return undefined;
      const { span, present, entry } = this.#current;
      let next = entry;
      while (span.gone[next] || present.has(segmentId(span.id, next))) next++;
      this.#current.entry = next + 1;
      if (next < span.series.length) return { span, entry: next };
      this.#done.add(span);
      this.#current = undefined;
    }
  }

  #nextSpan() {
    const span = this.#state.spans.find((one) => one.id < this.below && !this.#done.has(one));
    if (!span) return undefined;
    const first = segmentId(span.id, 0);
    return { span, present: new Set(this.#statements.segmentsIn.all(first, first + MAX_ENTRIES - 1)), entry: 0 };
  }

  #carrySegments(): Phase {
    let bytes = 0;
    for (let count = 0; count < this.#maxSegments && bytes < STEP_BYTES; count++) {
      const next = this.#nextMissing();
      if (!next) return this.#isIncomplete ? 'pages' : 'done';
      const packed = this.read(next.span, next.entry);
      if (packed) this.#statements.carrySegment.run(segmentId(next.span.id, next.entry), packed);
      else this.#isIncomplete = true;
      bytes += packed?.length ?? 0;
    }
    return 'segments';
  }

  #carryPages(nowMs: number): Phase {
    this.#pages ??= {
      rows: this.#allPages(),
      spans: new Map(this.#state.spans.filter(({ id }) => id < this.below).map((span) => [span.id, span])),
    };
    const { rows, spans } = this.#pages;
    let bytes = 0;
    for (let count = 0; count < STEP_PAGES && bytes < STEP_BYTES; count++) {
      const next = rows.next();
      if (next.done) {
        this.#pages = undefined;
        if (this.#rounds++ >= MAX_ROUNDS || !this.#files.some((file) => file.mayComeBack)) return 'rest';
        this.#notBeforeMs = nowMs + PATIENCE_MS;
        return 'pages';
      }
      for (const row of next.value) bytes += this.#carryRow(row, spans);
    }
    return 'pages';
  }

  *#allPages(): Generator<RawRow[]> {
    for (const file of this.#files) yield* file.pages();
  }

  #carryRow({ rowid, fields }: RawRow, spans: ReadonlyMap<number, Span>): number {
    const [first, bytes] = fields;
    const span = spans.get(Math.floor(rowid / MAX_ENTRIES));
    const entry = rowid % MAX_ENTRIES;
    if (!span || first !== null || fields.length !== 2 || !(bytes instanceof Uint8Array)) return 0;
    if (span.gone[entry] !== 0 || !fits(bytes, span, entry)) return 0;
    if (this.#statements.carrySegment.run(rowid, bytes).changes === 0) return 0;
    this.#release(span, entry);
    return bytes.length;
  }

  #loseRest(): Phase {
    for (let count = 0; count < this.#maxSegments; count++) {
      const next = this.#nextMissing();
      if (!next) return 'done';
      const { span, entry } = next;
      this.#release(span, entry);
      const packed = this.read(span, entry);
      if (packed) this.#statements.carrySegment.run(segmentId(span.id, entry), packed);
      else this.#lose?.(span, entry);
    }
    return 'rest';
  }

  #enter(phase: Phase): void {
    this.#phase = phase;
    this.#restart();
    if (phase !== 'done') return;
    for (const { span, entry } of this.#awaited.values()) this.#release(span, entry);
    this.#pending.isCarried = true;
  }

  /** Of a span whose directory is made anew: all that may be of it, since nobody knows any more what was gone. */
  carryAllOf(span: number): void {
    for (const file of this.#files) {
      for (const { id, packed } of file.between(segmentId(span, 0), segmentId(span, MAX_ENTRIES - 1))) {
        this.#statements.carrySegment.run(id, packed);
      }
    }
  }

  close(): void {
    for (const file of this.#files) file.close();
  }
}

function fits(bytes: Uint8Array, span: Span, entry: number): boolean {
  const head = readable(() => readSegmentHead(bytes));
  return head !== undefined && head.series === span.series[entry] && head.count === span.count[entry];
}
