/**
 * The value store, in the store thread: what was accepted stays here until the platform took it, it was put into
 * quarantine, or a configured bound dropped it.
 *
 *   commit ──► log row ──► queue of each series ──► live batches
 *                 │ after some seconds, or when the log is long
 *                 └─ fold ──► span of segments ──► backlog batches
 *
 * Invariants: a value is in exactly one of log or segment; what memory says beyond the disk stands in `Pending` and is
 * written with the next commit; a commit is one transaction with one sync, and nothing is answered before it is over.
 * A crash at any point leaves the last commit: posts under way and those answered since are posted again.
 */
import type { Database } from '../database.ts';
import { StoreError } from '../errors.ts';
import { BodyWriter } from './body-writer.ts';
import { type BufferBounds, type DiskUse, diskUse, minFreeBytes, overfull } from './bounds.ts';
import { foldRows, rowsOfOneRun } from './fold.ts';
import type { AssetLanes, Batch, Refusal, TakeRequest } from './lanes.ts';
import { LogRowWriter } from './log-row.ts';
import { Merge, removeSpan } from './merge.ts';
import { Pending } from './pending.ts';
import { type RunHead, recoverState } from './recovery.ts';
import { SegmentReader } from './segment-reader.ts';
import type { Series } from './series.ts';
import { quarantineBatch, releasePart, settlePart } from './settle.ts';
import { type Span, segmentId } from './span.ts';
import { StoreState } from './state.ts';
import { prepareStatements, type QuarantineRow, type Statements, writeSeries } from './tables.ts';
import { batchOfParts, divideParts, leaveLanes, takeBatch } from './take.ts';
import type { Columns } from './value-columns.ts';

export interface ValueStoreOptions {
  bounds: BufferBounds;
  /** The log is folded when its oldest value is older. */
  foldAfterMs: number;
  /** The log is folded when it holds more: the queues in memory are as long as the log. */
  foldValues: number;
}

/** What the main thread keeps current with every answer. */
export interface StoreFacts {
  /** Assets whose lanes changed. */
  lanes: AssetLanes[];
  logValues: number;
  segmentValues: number;
  quarantined: number;
  spans: number;
  disk: DiskUse;
  /** Age of the oldest value in milliseconds, as far as it is known without trusting the wall clock. */
  oldestAgeMs: number;
  /** Something waits for a commit beside new values. */
  dirty: boolean;
  /** There is tidying to do: folding, merging, giving space back. */
  untidy: boolean;
  /** Since the last answer. */
  dropped: { reason: 'bytes' | 'age'; values: number }[];
  damaged: { what: string; values: number }[];
}

export interface CommitRequest {
  columns: Columns | undefined;
  newSeries: Series[];
  monotonicMs: number;
  wallMs: number;
}

export class ValueStore {
  readonly #database: Database;
  readonly #path: string;
  readonly #options: ValueStoreOptions;
  readonly #state = new StoreState();
  readonly #pending = new Pending();
  readonly #writer = new LogRowWriter();
  readonly #body = new BodyWriter();
  readonly #segments: SegmentReader;
  #statements!: Statements;
  #run!: RunHead;
  #merge: Merge | undefined;
  /** `spanChanges` when merges were last looked for. */
  #spansLooked = 0;
  #quarantined = 0;
  #disk!: DiskUse;
  #monotonicMs = 0;
  /** What the deletions that wait for the next commit will free, about. */
  #droppedBytes = 0;
  #dropped: StoreFacts['dropped'] = [];
  #damaged: StoreFacts['damaged'] = [];

  /** `path` is that of the open database, for its size on disk. */
  constructor(database: Database, path: string, options: ValueStoreOptions) {
    this.#database = database;
    this.#path = path;
    this.#options = options;
    this.#segments = new SegmentReader(
      (id) => this.#pending.segments.get(id) ?? this.#statements.getSegment.get(id),
      (span, entry, bytes) => this.#loseDamaged(span, entry, bytes),
    );
  }

  /** Reads the log and the directories, never the backlog. Gives every series that is known. */
  open(now: { monotonicMs: number; wallMs: number; boot: string }): { series: Series[]; facts: StoreFacts } {
    this.#monotonicMs = now.monotonicMs;
    const recovered = recoverState(this.#database, this.#state, this.#pending, now);
    this.#statements = prepareStatements(this.#database);
    this.#run = recovered.run;
    this.#damaged.push(...recovered.damaged);
    this.#quarantined = this.#statements.countQuarantine.get() ?? 0;
    this.#disk = diskUse(this.#database, this.#path);
    return { series: recovered.series, facts: this.facts() };
  }

  /**
   * Takes values in, with all that is pending, in one transaction. When it returns they are on disk.
   * Throws `buffer.full` (by `refuse-new`, or too little space free) or the driver's error; then nothing was taken in,
   * and what was pending waits for the next commit.
   */
  commit(request: CommitRequest): StoreFacts {
    const { columns } = request;
    this.#monotonicMs = request.monotonicMs;
    if (columns && columns.length > 0) this.#refuseWhereFull();
    this.#write(request);
    this.#pending.clear();
    this.#droppedBytes = 0;
    if (columns) this.#takeIn(columns, request);
    this.#disk = diskUse(this.#database, this.#path);
    this.#keepBounds();
    return this.facts();
  }

  #refuseWhereFull(): void {
    const { bounds } = this.#options;
    if (overfull(this.#disk, bounds) && bounds.full === 'refuse-new') {
      throw new StoreError('the buffer is full', { code: 'buffer.full', retryable: true });
    }
    if (this.#disk.freeBytes < minFreeBytes(this.#disk, bounds)) {
      throw new StoreError('the file system has too little space left', { code: 'buffer.low-space', retryable: true });
    }
  }

  #write({ columns, newSeries, monotonicMs, wallMs }: CommitRequest): void {
    const statements = this.#statements;
    const state = this.#state;
    const settled = this.#pending.settled;
    this.#database.transaction(() => {
      for (const series of newSeries) writeSeries(statements, series);
      this.#pending.write(statements);
      if ((columns && columns.length > 0) || settled.length > 0) {
        const head = { run: this.#run.id, monotonicMs: Math.max(0, Math.round(monotonicMs)), firstSeq: state.nextSeq };
        statements.addRow.run(state.nextRow, this.#writer.write(head, columns ?? NO_VALUES, settled));
      }
      if (this.#run.isNew) statements.addRun.run(this.#run.id, this.#run.boot, wallMs, monotonicMs, 0);
    })();
    this.#run.isNew = false;
    for (const series of newSeries) state.addSeries(series);
    if ((columns && columns.length > 0) || settled.length > 0) {
      const count = columns?.length ?? 0;
      state.rows.push({
        id: state.nextRow++,
        firstSeq: state.nextSeq,
        count,
        left: count,
        run: this.#run.id,
        monotonicMs,
      });
    }
  }

  #takeIn(columns: Columns, { monotonicMs }: CommitRequest): void {
    const state = this.#state;
    let seq = state.nextSeq;
    for (let i = 0; i < columns.length; i++) {
      const series = state.seriesOf(columns.series[i]!);
      const time = columns.timeMs[i]!;
      series.queue.push(time, columns.value[i]!, seq++, columns.flags[i]!, time <= series.backlogTimeMs);
      state.touched.add(series.asset);
    }
    state.nextSeq = seq;
    state.logValues += columns.length;
    this.#monotonicMs = monotonicMs;
  }

  take(request: TakeRequest): { batch: Batch | undefined; facts: StoreFacts } {
    const taken = takeBatch(this.#state, this.#segments, this.#body, request);
    return { batch: taken?.answer, facts: this.facts() };
  }

  settle(batch: number): StoreFacts {
    const ended = this.#end(batch);
    for (const part of ended?.parts ?? []) settlePart(this.#state, this.#pending, this.#segments, part);
    this.#dropSettledRows();
    return this.facts();
  }

  release(batch: number): StoreFacts {
    const ended = this.#end(batch);
    for (const part of ended?.parts ?? []) releasePart(this.#state, part);
    return this.facts();
  }

  divide(batch: number): { batches: Batch[]; facts: StoreFacts } {
    const whole = this.#state.batches.get(batch);
    const groups = whole ? divideParts(whole.parts) : [];
    if (!whole || groups.length === 0) return { batches: [], facts: this.facts() };
    // The parts stay under way; only who has them changes. A segment cut in two is held by both.
    for (const part of whole.parts) if (!('position' in part.at)) this.#recount(part.at.span, part.at.entry, -1);
    for (const part of groups.flat()) if (!('position' in part.at)) this.#recount(part.at.span, part.at.entry, 1);
    const batches = groups.map((parts) => batchOfParts(this.#state, this.#body, whole, parts).answer);
    leaveLanes(whole);
    this.#state.batches.delete(batch);
    return { batches, facts: this.facts() };
  }

  #recount(span: Span, entry: number, by: number): void {
    span.underWay.set(entry, (span.underWay.get(entry) ?? 0) + by);
  }

  quarantine(batch: number, refusal: Refusal & { atMs: number }): StoreFacts {
    const ended = this.#end(batch);
    if (ended) {
      quarantineBatch(this.#state, this.#pending, this.#segments, ended, refusal);
      this.#quarantined += ended.parts.reduce((sum, part) => sum + part.count, 0);
    }
    this.#dropSettledRows();
    return this.facts();
  }

  holdSeries(series: readonly number[]): StoreFacts {
    this.#state.holdSeries(series);
    return this.facts();
  }

  #end(batch: number) {
    const ended = this.#state.batches.get(batch);
    if (!ended) return undefined;
    this.#state.batches.delete(batch);
    leaveLanes(ended);
    this.#state.touched.add(ended.asset);
    return ended;
  }

  /** Rows at the front that hold nothing fall away, many at a time: deleting one by one would write more than the values. */
  #dropSettledRows(): void {
    const { rows } = this.#state;
    let settled = 0;
    while (settled < rows.length && rows[settled]!.left === 0) settled++;
    if (settled === 0 || (settled < ROWS_A_DELETION && settled < rows.length)) return;
    const through = rows[settled - 1]!;
    this.#pending.dropRowsThrough = through.id;
    const throughSeq = through.firstSeq + through.count - 1;
    this.#pending.settled = this.#pending.settled.filter((run) => run.lastSeq > throughSeq);
    this.#state.rows = rows.slice(settled);
  }

  /** One step of what can wait: a fold, some of a merge, some space given back. Some milliseconds at most. */
  tidy(now: { monotonicMs: number }): StoreFacts {
    this.#monotonicMs = now.monotonicMs;
    const rows = this.#rowsToFold();
    if (rows > 0) foldRows(this.#state, this.#pending, rows);
    else this.#mergeStep();
    return this.facts();
  }

  #rowsToFold(): number {
    const { rows } = this.#state;
    const { foldAfterMs, foldValues } = this.#options;
    let old = 0;
    while (old < rows.length && rows[old]!.monotonicMs + foldAfterMs <= this.#monotonicMs) old++;
    if (old > 0) return rowsOfOneRun(rows, old);
    return this.#state.logValues > foldValues ? rowsOfOneRun(rows, rows.length) : 0;
  }

  #mayMerge(): boolean {
    return this.#merge !== undefined || this.#spansLooked !== this.#state.spanChanges;
  }

  #mergeStep(): void {
    if (!this.#merge) {
      this.#spansLooked = this.#state.spanChanges;
      this.#merge = Merge.choose(this.#state);
    }
    if (!this.#merge) return;
    if (this.#merge.isVoid) this.#merge = undefined;
    else if (this.#merge.step(this.#segments)) {
      if (!this.#merge.isVoid) this.#merge.finish(this.#state, this.#pending);
      this.#merge = undefined;
    }
  }

  /** Gives free pages back to the file system, some hundred at a time. Costs a transaction: for quiet moments. */
  giveSpaceBack(): StoreFacts {
    this.#statements.vacuum.run();
    this.#disk = diskUse(this.#database, this.#path);
    return this.facts();
  }

  #keepBounds(): void {
    const { bounds } = this.#options;
    while (bounds.full === 'drop-oldest' && overfull(this.#disk, bounds, this.#droppedBytes)) {
      if (!this.#dropOldest('bytes')) break;
    }
    const oldest = this.#state.spans[0];
    if (bounds.maxAgeMs > 0 && oldest && this.#ageOf(oldest.run, oldest.acceptedMs) > bounds.maxAgeMs) {
      this.#dropOldest('age');
    }
  }

  #dropOldest(reason: 'bytes' | 'age'): boolean {
    const span = this.#state.spans[0];
    if (!span) {
      const rows = rowsOfOneRun(this.#state.rows, this.#state.rows.length);
      if (rows === 0 || this.#state.logValues === 0) return false;
      foldRows(this.#state, this.#pending, rows);
      return this.#state.spans.length > 0;
    }
    this.#droppedBytes += span.left * 16;
    for (let i = 0; i < span.count.length; i++) if (!span.gone[i]) this.#droppedBytes += span.count[i]! * 2;
    this.#dropped.push({ reason, values: removeSpan(this.#state, this.#pending, span) });
    return true;
  }

  #loseDamaged(span: Span, entry: number, bytes: Uint8Array | undefined): void {
    const id = segmentId(span.id, entry);
    this.#pending.aside.push({ what: 'segment', place: id, atMs: 0, bytes });
    const values = this.#state.loseEntry(span, entry);
    this.#pending.dropSegment(span, entry);
    this.#damaged.push({ what: 'segment', values });
  }

  /** Known age: monotonic within one run of the machine; what an earlier run took in is as old as this run at least. */
  #ageOf(run: number, monotonicMs: number): number {
    const from = run === this.#run.id || this.#run.sameBoot.has(run) ? monotonicMs : this.#run.openedMs;
    return Math.max(0, this.#monotonicMs - from);
  }

  facts(): StoreFacts {
    const state = this.#state;
    const lanes = [...state.touched].map((asset) => state.lanesOf(asset));
    state.touched.clear();
    const oldest = state.spans[0] ?? state.rows.find((row) => row.left > 0);
    const oldestMs = oldest && ('acceptedMs' in oldest ? oldest.acceptedMs : oldest.monotonicMs);
    const facts: StoreFacts = {
      lanes,
      logValues: state.logValues,
      segmentValues: state.segmentValues,
      quarantined: this.#quarantined,
      spans: state.spans.length,
      disk: this.#disk,
      oldestAgeMs: oldest ? this.#ageOf(oldest.run, oldestMs!) : 0,
      dirty: !this.#pending.isEmpty,
      untidy: this.#rowsToFold() > 0 || this.#mayMerge(),
      dropped: this.#dropped,
      damaged: this.#damaged,
    };
    this.#dropped = [];
    this.#damaged = [];
    return facts;
  }

  /** What stands in quarantine, oldest first. */
  listQuarantine(page: { after: number; limit: number }): QuarantineRow[] {
    return this.#statements.listQuarantine.all(page.after, page.limit);
  }

  close(): void {
    this.#database.close();
  }
}

/** Deleting so many rows at once brings the bytes written for it to a fraction of what the values took. */
const ROWS_A_DELETION = 64;
const NO_VALUES: Columns = {
  length: 0,
  series: new Uint32Array(0),
  timeMs: new Float64Array(0),
  value: new Float64Array(0),
  flags: new Uint8Array(0),
};
