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
import { BodyWriter } from './body-writer.ts';
import { DiskRoom, full } from './disk-room.ts';
import { Dropping } from './dropping.ts';
import { type ExportPage, type ExportRequest, Exports } from './exporting.ts';
import { Folding } from './fold.ts';
import { type Handover, handOver, takeOver } from './handover.ts';
import type { Batch, Refusal, TakeRequest } from './lanes.ts';
import { listSeries, type SeriesListing } from './listing.ts';
import { LogRowWriter } from './log-row.ts';
import { Pending } from './pending.ts';
import { type RunHead, recoverState } from './recovery.ts';
import { type QuarantinedValues, type Requeueing, type RequeueStep, requeue, showQuarantine } from './requeueing.ts';
import { saysFull } from './reserve.ts';
import { SegmentReader } from './segment-reader.ts';
import type { Series } from './series.ts';
import { SeriesCopy } from './series-copy.ts';
import { quarantineBatch, releasePart, settlePart } from './settle.ts';
import { type Span, segmentId } from './span.ts';
import { StoreState } from './state.ts';
import type { CommitRequest, StoreFacts, ValueStoreOptions } from './store-facts.ts';
import { prepareStatements, type Statements, writeSeries } from './tables.ts';
import { divideBatch, leaveLanes, takeBatch } from './take.ts';
import { type FoldRoom, Tidying } from './tidying.ts';
import { type Columns, NO_VALUES, ValueColumns } from './value-columns.ts';
import { type Retargeting, type Withdrawal, type WithdrawalStep, withdraw } from './withdrawing.ts';

export class ValueStore {
  readonly #database: Database;
  readonly #path: string;
  readonly #options: ValueStoreOptions;
  readonly #state = new StoreState();
  readonly #pending = new Pending();
  readonly #writer = new LogRowWriter();
  readonly #body = new BodyWriter();
  readonly #segments: SegmentReader;
  readonly #folding: Folding;
  readonly #tidying: Tidying;
  readonly #dropping: Dropping;
  readonly #exports: Exports;
  readonly #copy: SeriesCopy;
  #statements!: Statements;
  #run!: RunHead;
  #quarantined = 0;
  #disk!: DiskRoom;
  #transaction!: (request: CommitRequest, hasRow: boolean) => void;
  #monotonicMs = 0;
  #damaged: StoreFacts['damaged'] = [];

  /** `path` is that of the open database, for its size on disk. */
  constructor(database: Database, path: string, options: ValueStoreOptions) {
    this.#database = database;
    this.#path = path;
    this.#options = { ...options, bounds: { ...options.bounds } };
    this.#segments = new SegmentReader(
      (id) => this.#pending.segments.get(id) ?? this.#statements.getSegment.get(id),
      (span, entry, bytes) => this.#loseDamaged(span, entry, bytes),
    );
    this.#folding = new Folding(this.#state, this.#pending);
    this.#tidying = new Tidying(this.#state, this.#pending, this.#segments, this.#folding, this.#options);
    this.#dropping = new Dropping(this.#state, this.#pending, this.#folding, this.#options.bounds);
    this.#exports = new Exports(this.#state, this.#segments, this.#tidying);
    this.#copy = new SeriesCopy(path);
  }

  /** Reads the log and the directories, never the backlog. Gives every series that is known. */
  open(now: { monotonicMs: number; wallMs: number; boot: string }): { series: Series[]; facts: StoreFacts } {
    this.#monotonicMs = now.monotonicMs;
    const recovered = recoverState(this.#database, this.#state, this.#pending, now, this.#copy);
    this.#folding.resume();
    this.#copy.keep(recovered.series.filter((series) => series.asset > 0));
    this.#statements = prepareStatements(this.#database);
    this.#transaction = this.#database.transaction((request: CommitRequest, hasRow: boolean) => {
      this.#writeRows(request, hasRow);
    });
    this.#run = recovered.run;
    this.#damaged.push(...recovered.damaged);
    this.#quarantined = this.#statements.countQuarantine.get() ?? 0;
    this.#disk = new DiskRoom(this.#database, this.#path, this.#options.bounds);
    return { series: recovered.series, facts: this.facts() };
  }

  /** Other bounds and another pace from now on. What is beyond a bound falls with the next commit. */
  configure({ bounds, ...pace }: ValueStoreOptions): StoreFacts {
    Object.assign(this.#options, pace);
    Object.assign(this.#options.bounds, bounds);
    return this.facts();
  }

  /** Takes the place of another, once it is open. */
  takeOver(handover: Omit<Handover, 'options'>): void {
    takeOver(this.#state, handover);
    this.#damaged.push(...handover.damage);
  }

  /** For the store that takes the place of this one. */
  handOver(): Omit<Handover, 'damage'> {
    return handOver(this.#state, this.#options);
  }

  /**
   * Takes values in, with all that is pending, in one transaction. When it returns they are on disk.
   * Throws `buffer.full` (by `refuse-new`), `buffer.low-space` (too little space free), `buffer.disk-full` or the driver's
   * error: then no value was taken in. By a code that begins with `buffer.` what was pending is on disk all the same,
   * because it is what makes room.
   *
   * A sync that failed leaves nothing behind that is trusted: SQLite keeps its place in the WAL, so the next commit
   * writes the same frames anew, and a checkpoint starts again with the first page that was not synced. So no page is
   * relied on that a failed sync may have dropped from the kernel's cache.
   */
  commit(request: CommitRequest): StoreFacts {
    const brings = request.columns?.length ?? 0;
    this.#monotonicMs = request.monotonicMs;
    const refusal = brings > 0 ? this.#disk.refusal(brings) : undefined;
    const pendingOnly = { ...request, columns: undefined };
    try {
      this.#write(refusal ? pendingOnly : request);
    } catch (error) {
      if (!saysFull(error)) throw error;
      this.#disk.makeRoom();
      this.#write(pendingOnly);
      this.#disk.lookNow(request.monotonicMs);
      if (brings > 0) throw full();
    }
    if (refusal) throw refusal;
    return this.facts();
  }

  /** One transaction, then memory follows. */
  #write(request: CommitRequest): void {
    const state = this.#state;
    const columns = this.#withMoved(request.columns);
    const hasRow = columns.length > 0 || this.#pending.settled.length > 0;
    if (hasRow || !this.#pending.isEmpty || request.newSeries.length > 0) {
      this.#transaction({ ...request, columns }, hasRow);
      this.#disk.committed();
      this.#run.isNew = false;
    }
    for (const series of request.newSeries) state.addSeries(series);
    if (hasRow) {
      const count = columns.length;
      const row = { id: state.nextRow++, firstSeq: state.nextSeq, count, left: count };
      state.rows.push({ ...row, run: this.#run.id, monotonicMs: request.monotonicMs });
    }
    this.#pending.clear();
    const hasDropped = this.#dropping.committed();
    state.takeIn(columns);
    if (hasDropped) this.#disk.lookNow(request.monotonicMs);
    else this.#disk.look(request.monotonicMs);
    this.#dropping.keep(this.#disk.use, (span) => this.#ageOf(span.run, span.acceptedMs));
  }

  /** What changes its place goes before what is new. */
  #withMoved(columns: Columns | undefined): Columns {
    const { moved } = this.#pending;
    if (moved.length === 0) return columns ?? NO_VALUES;
    const all = new ValueColumns();
    all.addAll(moved);
    if (columns) all.addAll(columns);
    return all;
  }

  /** Inside the transaction: memory is not touched, so that a failure leaves everything as it was. */
  #writeRows({ columns, newSeries, monotonicMs, wallMs }: CommitRequest, hasRow: boolean): void {
    const statements = this.#statements;
    for (const series of newSeries) writeSeries(statements, series);
    this.#copy.append(newSeries);
    this.#pending.write(statements);
    if (hasRow) {
      const head = {
        run: this.#run.id,
        monotonicMs: Math.max(0, Math.round(monotonicMs)),
        firstSeq: this.#state.nextSeq,
      };
      const row = this.#writer.write(head, columns ?? NO_VALUES, this.#pending.settled);
      statements.addRow.run(this.#state.nextRow, row);
      this.#disk.note(row.length);
    }
    if (this.#run.isNew) statements.addRun.run(this.#run.id, this.#run.boot, wallMs, monotonicMs, 0);
  }

  take(request: TakeRequest): { batch: Batch | undefined; facts: StoreFacts } {
    this.#state.distribute();
    const taken = takeBatch(this.#state, this.#segments, this.#body, request);
    return { batch: taken?.answer, facts: this.facts() };
  }

  settle(batch: number): StoreFacts {
    const ended = this.#end(batch);
    for (const part of ended?.parts ?? []) settlePart(this.#state, this.#pending, this.#segments, part);
    this.#tidying.noteSettled(this.#monotonicMs);
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
    const batches = whole ? divideBatch(this.#state, this.#body, whole) : [];
    return { batches, facts: this.facts() };
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

  /** One step of what can wait: some of a fold, some of a merge, some space given back. Some milliseconds at most. */
  tidy(now: { monotonicMs: number }): StoreFacts {
    this.#monotonicMs = now.monotonicMs;
    this.#disk.keepReserve(now.monotonicMs);
    this.#tidying.step(now.monotonicMs, this.#foldRoom());
    return this.facts();
  }

  /** On a full disk folding is what frees what was deleted of the log, so it does not wait; merging does. */
  #foldRoom(): FoldRoom | undefined {
    const mostValues = this.#disk.mostToFold;
    return mostValues === undefined ? undefined : { mostValues, atOnce: this.#disk.isFull };
  }

  /** Gives free pages back to the file system, some hundred at a time. Costs a transaction: for quiet moments. */
  giveSpaceBack(): StoreFacts {
    this.#disk.giveBack(this.#monotonicMs);
    return this.facts();
  }

  #loseDamaged(span: Span, entry: number, bytes: Uint8Array | undefined): void {
    const id = segmentId(span.id, entry);
    this.#pending.aside.push({ what: 'segment', place: id, atMs: 0, bytes });
    const values = this.#state.loseEntry(span, entry);
    if (span.left === 0) {
      this.#state.dropSpan(span);
      this.#pending.dropSpan(span);
    } else this.#pending.dropSegment(span, entry);
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
      disk: this.#disk.use,
      short: this.#disk.isShort,
      full: this.#disk.isFull,
      spare: this.#disk.hasSpare,
      oldestAgeMs: oldest ? this.#ageOf(oldest.run, oldestMs!) : 0,
      dirty: !this.#pending.isEmpty,
      untidy: this.#disk.mayRecover(this.#monotonicMs) || this.#tidying.isDue(this.#monotonicMs, this.#foldRoom()),
      dropped: this.#dropping.take(),
      damaged: this.#damaged,
    };
    this.#damaged = [];
    return facts;
  }

  /** What stands in quarantine, oldest first: a few values of each row. */
  showQuarantine(page: { after: number; limit: number }): QuarantinedValues[] {
    return showQuarantine(this.#statements, page);
  }

  /** Values in quarantine by series, and the number of the last row. */
  countQuarantine(): { last: number; series: { series: number; count: number }[] } {
    return { last: this.#statements.lastQuarantine.get() ?? 0, series: this.#statements.quarantineBySeries.all() };
  }

  /** A page of the known series, by number, with what stands of each. */
  list(page: { after: number; limit: number }): SeriesListing[] {
    this.#state.distribute();
    const get = (id: number) => this.#pending.segments.get(id) ?? this.#statements.getSegment.get(id);
    return listSeries(this.#state, get, page);
  }

  /** Begins to copy values out (all, or those of some series); gives the number to ask for pages with. */
  beginExport(request: ExportRequest): number {
    return this.#exports.begin(request);
  }

  /** The next page. Throws `store.export_gone` where others have begun to export since, too many of them. */
  exportPage(id: number): ExportPage {
    return this.#exports.page(id, this.#monotonicMs);
  }

  endExport(id: number): void {
    this.#exports.end(id);
  }

  /** Drops values by an operator's word, a step at a time; counted as dropped by `purge`. On disk with the next commit. */
  purge(request: Withdrawal): WithdrawalStep & { facts: StoreFacts } {
    this.#state.distribute();
    const step = withdraw(this.#state, this.#pending, this.#segments, request);
    this.#dropping.count('purge', step.values);
    this.#tidying.dropSettledRows();
    return { ...step, facts: this.facts() };
  }

  /** Gives values to other series, a step at a time. On disk with the next commit, both sides in one. */
  retarget(request: Retargeting): WithdrawalStep & { facts: StoreFacts } {
    this.#state.distribute();
    const target = new Map(request.pairs.map(({ from, to }) => [from, to.id]));
    const { moved, newSeries } = this.#pending;
    for (const { to } of request.pairs) {
      this.#state.addSeries(to);
      newSeries.set(to.id, to);
    }
    const wanted = { ...request, series: [...target.keys()] };
    const step = withdraw(this.#state, this.#pending, this.#segments, wanted, ({ series }, values, from, to) => {
      const id = target.get(series.id)!;
      for (let i = from; i < to; i++) moved.add(id, values.timeMs[i]!, values.value[i]!, values.flags[i]!);
    });
    this.#tidying.dropSettledRows();
    return { ...step, facts: this.facts() };
  }

  /** Sends quarantined values again, a step at a time. On disk with the next commit, both sides in one. */
  requeue(request: Requeueing): RequeueStep & { facts: StoreFacts } {
    const step = requeue(this.#statements, this.#state, this.#pending, request);
    this.#quarantined -= step.values;
    return { ...step, facts: this.facts() };
  }

  close(): void {
    this.#database.close();
    this.#disk?.close();
  }
}
