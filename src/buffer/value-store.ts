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
import { DiskGauge, type DiskUse, minFreeBytes, overfull } from './bounds.ts';
import { Dropping } from './dropping.ts';
import type { Batch, Refusal, TakeRequest } from './lanes.ts';
import { LogRowWriter } from './log-row.ts';
import { Pending } from './pending.ts';
import { type RunHead, recoverState } from './recovery.ts';
import { SegmentReader } from './segment-reader.ts';
import type { Series } from './series.ts';
import { quarantineBatch, releasePart, settlePart } from './settle.ts';
import { type Span, segmentId } from './span.ts';
import { StoreState } from './state.ts';
import type { CommitRequest, StoreFacts, ValueStoreOptions } from './store-facts.ts';
import { prepareStatements, type QuarantineRow, type Statements, writeSeries } from './tables.ts';
import { batchOfParts, divideParts, leaveLanes, takeBatch } from './take.ts';
import { Tidying } from './tidying.ts';
import type { Columns } from './value-columns.ts';

export class ValueStore {
  readonly #database: Database;
  readonly #path: string;
  readonly #options: ValueStoreOptions;
  readonly #state = new StoreState();
  readonly #pending = new Pending();
  readonly #writer = new LogRowWriter();
  readonly #body = new BodyWriter();
  readonly #segments: SegmentReader;
  readonly #tidying: Tidying;
  readonly #dropping: Dropping;
  #statements!: Statements;
  #run!: RunHead;
  #quarantined = 0;
  #gauge!: DiskGauge;
  #bytesSinceGauge = 0;
  #gaugedMs = Number.NEGATIVE_INFINITY;
  #transaction!: (request: CommitRequest, hasRow: boolean) => void;
  #disk!: DiskUse;
  #monotonicMs = 0;
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
    this.#tidying = new Tidying(this.#state, this.#pending, this.#segments, options);
    this.#dropping = new Dropping(this.#state, this.#pending, options.bounds);
  }

  /** Reads the log and the directories, never the backlog. Gives every series that is known. */
  open(now: { monotonicMs: number; wallMs: number; boot: string }): { series: Series[]; facts: StoreFacts } {
    this.#monotonicMs = now.monotonicMs;
    const recovered = recoverState(this.#database, this.#state, this.#pending, now);
    this.#statements = prepareStatements(this.#database);
    this.#transaction = this.#database.transaction((request: CommitRequest, hasRow: boolean) => {
      this.#writeRows(request, hasRow);
    });
    this.#run = recovered.run;
    this.#damaged.push(...recovered.damaged);
    this.#quarantined = this.#statements.countQuarantine.get() ?? 0;
    this.#gauge = new DiskGauge(this.#database, this.#path);
    this.#disk = this.#gauge.read();
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
    if (this.#dropping.committed()) this.#gaugedMs = Number.NEGATIVE_INFINITY;
    if (columns) this.#takeIn(columns);
    this.#gaugeDisk(request.monotonicMs);
    this.#dropping.keep(this.#disk, (span) => this.#ageOf(span.run, span.acceptedMs));
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

  #write(request: CommitRequest): void {
    const state = this.#state;
    const { columns, newSeries, monotonicMs } = request;
    const hasRow = (columns !== undefined && columns.length > 0) || this.#pending.settled.length > 0;
    this.#transaction(request, hasRow);
    this.#run.isNew = false;
    for (const series of newSeries) state.addSeries(series);
    if (!hasRow) return;
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

  /** Inside the transaction: memory is not touched, so that a failure leaves everything as it was. */
  #writeRows({ columns, newSeries, monotonicMs, wallMs }: CommitRequest, hasRow: boolean): void {
    const statements = this.#statements;
    for (const series of newSeries) writeSeries(statements, series);
    this.#pending.write(statements);
    if (hasRow) {
      const head = {
        run: this.#run.id,
        monotonicMs: Math.max(0, Math.round(monotonicMs)),
        firstSeq: this.#state.nextSeq,
      };
      const row = this.#writer.write(head, columns ?? NO_VALUES, this.#pending.settled);
      statements.addRow.run(this.#state.nextRow, row);
      this.#bytesSinceGauge += row.length;
    }
    if (this.#run.isNew) statements.addRun.run(this.#run.id, this.#run.boot, wallMs, monotonicMs, 0);
  }

  /** Looks at the disk after so many bytes or so much time: cheap, but not as cheap as a small commit. */
  #gaugeDisk(monotonicMs: number): void {
    if (this.#bytesSinceGauge < GAUGE_BYTES && monotonicMs - this.#gaugedMs < GAUGE_MS) return;
    this.#disk = this.#gauge.read();
    this.#bytesSinceGauge = 0;
    this.#gaugedMs = monotonicMs;
  }

  #takeIn(columns: Columns): void {
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
  }

  take(request: TakeRequest): { batch: Batch | undefined; facts: StoreFacts } {
    const taken = takeBatch(this.#state, this.#segments, this.#body, request);
    return { batch: taken?.answer, facts: this.facts() };
  }

  settle(batch: number): StoreFacts {
    const ended = this.#end(batch);
    for (const part of ended?.parts ?? []) settlePart(this.#state, this.#pending, this.#segments, part);
    this.#tidying.dropSettledRows();
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
    this.#tidying.dropSettledRows();
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

  /** One step of what can wait: a fold, some of a merge, some space given back. Some milliseconds at most. */
  tidy(now: { monotonicMs: number }): StoreFacts {
    this.#monotonicMs = now.monotonicMs;
    this.#tidying.step(now.monotonicMs);
    return this.facts();
  }

  /** Gives free pages back to the file system, some hundred at a time. Costs a transaction: for quiet moments. */
  giveSpaceBack(): StoreFacts {
    this.#statements.vacuum.run();
    this.#gaugedMs = this.#monotonicMs;
    this.#disk = this.#gauge.read();
    return this.facts();
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
      untidy: this.#tidying.isDue(this.#monotonicMs),
      dropped: this.#dropping.take(),
      damaged: this.#damaged,
    };
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

/** Well below the headroom that the bound on bytes keeps. */
const GAUGE_BYTES = 128 * 1024;
const GAUGE_MS = 500;
const NO_VALUES: Columns = {
  length: 0,
  series: new Uint32Array(0),
  timeMs: new Float64Array(0),
  value: new Float64Array(0),
  flags: new Uint8Array(0),
};
