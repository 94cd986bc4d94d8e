/**
 * The value store, in the store thread: what was accepted stays here until the platform took it, it was put into
 * quarantine, or a configured bound dropped it.
 *
 *   commit ──► log row ──► queue of each series ──► live batches
 *                 │ after some seconds, or when the log is long
 *                 └─ flush ──► span of segments ──► backlog batches
 *
 * Invariants: a value is in exactly one of log or segment; what memory says beyond the disk stands in `Pending` and is
 * written with the next commit; a commit is one transaction with one sync, and nothing is answered before it is over.
 * A crash at any point leaves the last commit: posts under way and those answered since are posted again.
 */
import type { Database } from '../base/database.ts';
import { lanesOf } from './asset-lanes.ts';
import { BodyWriter } from './batches/body-writer.ts';
import { SegmentReader } from './batches/segment-reader.ts';
import { quarantineBatch, releaseSlice, setAsideSegment, settleSlice } from './batches/settle.ts';
import { divideBatch, leaveLanes, takeBatch } from './batches/take.ts';
import type { Batch, Refusal, TakeRequest } from './client/lanes.ts';
import type { Note } from './client/notes.ts';
import { Flush } from './compaction/flush.ts';
import { Maintenance } from './compaction/maintenance.ts';
import { LogRowWriter } from './format/log-row.ts';
import { NO_VALUES } from './format/value-columns.ts';
import { checkSeries, forgetSeries, idleSeries, knownSeries } from './idle-series.ts';
import { readNotes, writeNotes } from './note-rows.ts';
import { OperatorCalls } from './operator/operator-calls.ts';
import { Pending } from './pending.ts';
import { ReadLeases } from './read-leases.ts';
import type { Carrying } from './recovery/carrying.ts';
import { type Handover, handOver, takeOver } from './recovery/handover.ts';
import { type Recovered, recoverState } from './recovery/recovery.ts';
import { SeriesCopy } from './recovery/series-copy.ts';
import { RunRow } from './run-row.ts';
import type { Series } from './series.ts';
import { DiskSpaceGuard, full } from './space/disk-space-guard.ts';
import { Dropping } from './space/dropping.ts';
import { saysFull } from './space/reserve.ts';
import type { Span } from './span.ts';
import { StoreState } from './state.ts';
import type { CommitRequest, StoreFacts, ValueStoreOptions } from './store-facts.ts';
import { prepareStatements, type Statements, writeSeries } from './tables.ts';

const wholeMs = (monotonicMs: number) => Math.max(0, Math.round(monotonicMs));

interface StoreParts {
  database: Database;
  path: string;
  options: ValueStoreOptions;
  state: StoreState;
  pending: Pending;
  copy: SeriesCopy;
  recovered: Recovered;
}

export interface OpenedValueStore {
  store: ValueStore;
  /** Every series that is known. */
  series: Series[];
  facts: StoreFacts;
}

export class ValueStore {
  readonly #database: Database;
  readonly #options: ValueStoreOptions;
  readonly #state: StoreState;
  readonly #pending: Pending;
  readonly #writer = new LogRowWriter();
  readonly #body = new BodyWriter();
  readonly #segments: SegmentReader;
  readonly #maintenance: Maintenance;
  readonly #copy: SeriesCopy;
  readonly #statements: Statements;
  readonly #dropping: Dropping;
  readonly #run: RunRow;
  readonly #readers = new ReadLeases();
  readonly #disk: DiskSpaceGuard;
  /** While segments stand in files that were set aside. */
  #carrying: Carrying | undefined;
  readonly #transaction: (request: CommitRequest, hasRow: boolean) => void;
  readonly operator: OperatorCalls;
  #monotonicMs: number;
  /** Generation of the series written last; only grows. Of two rows with one number the later generation is valid. */
  #since: number;
  #damaged: StoreFacts['damaged'];

  /**
   * Opens what stands in a database, or makes its tables; `path` is that of the database, for its size on disk. Reads the log
   * and the directories, never the backlog.
   */
  static open(
    database: Database,
    path: string,
    options: ValueStoreOptions,
    now: { monotonicMs: number; wallMs: number; boot: string },
  ): OpenedValueStore {
    const [state, pending, copy] = [new StoreState(), new Pending(), new SeriesCopy(path)];
    const { maxLoadedSeries } = options;
    const recovered = recoverState(database, state, pending, now, { path, copy, maxLoadedSeries });
    if (state.notLoaded === 0) copy.keep(recovered.series.filter((series) => series.asset > 0));
    const store = new ValueStore({ database, path, options, state, pending, copy, recovered }, now.monotonicMs);
    return { store, series: recovered.series, facts: store.facts() };
  }

  private constructor(parts: StoreParts, monotonicMs: number) {
    const { database, options, state, pending, recovered } = parts;
    this.#database = database;
    this.#options = { ...options, bounds: { ...options.bounds } };
    this.#state = state;
    this.#pending = pending;
    this.#copy = parts.copy;
    this.#monotonicMs = monotonicMs;
    this.#run = new RunRow(recovered.run);
    this.#damaged = [...recovered.damaged];
    const statements = prepareStatements(database);
    this.#statements = statements;
    state.quarantined = statements.countQuarantine.get() ?? 0;
    this.#transaction = database.transaction((request: CommitRequest, hasRow: boolean) => {
      this.#writeRows(request, hasRow);
    });
    this.#since = Math.max(statements.lastSince.get() ?? 0, parts.copy.lastSince);
    const segments = new SegmentReader(
      (id, span, entry) =>
        pending.segments.get(id) ?? statements.getSegment.get(id) ?? this.#carrying?.read(span, entry),
      (span, entry, bytes) => this.#missed(span, entry, bytes),
    );
    this.#segments = segments;
    this.#carrying = recovered.carrying?.begin(
      (span, entry) => this.#missed(span, entry, undefined),
      options.stepSize?.segments,
    );
    const flush = new Flush(state, pending);
    flush.resume();
    const readers = this.#readers;
    const disk = new DiskSpaceGuard(database, parts.path, this.#options.bounds, readers);
    this.#disk = disk;
    const maintenance = new Maintenance({
      state,
      pending,
      segments,
      flush,
      readers,
      limits: this.#options,
      maxGroupValues: () => this.#dropping.maxGroupValues(disk.use),
    });
    this.#maintenance = maintenance;
    const dropping = new Dropping({
      state,
      pending,
      flush,
      segments,
      statements,
      bounds: this.#options.bounds,
      isRead: () => readers.isAny(this.#monotonicMs),
      stepSize: options.stepSize,
    });
    this.#dropping = dropping;
    this.operator = new OperatorCalls({
      state,
      pending,
      segments,
      statements,
      readers,
      maintenance,
      dropping,
      nowMs: () => this.#monotonicMs,
      facts: () => this.facts(),
      nextSince: () => ++this.#since,
      disk,
    });
  }

  /** Other bounds and another pace from now on. What is beyond a bound falls a step at a time, with a commit each. */
  configure({ bounds, ...pace }: ValueStoreOptions): StoreFacts {
    Object.assign(this.#options, pace);
    Object.assign(this.#options.bounds, bounds);
    this.#disk.boundsChanged(this.#monotonicMs);
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
   * Stores values, with everything pending, in one transaction. When it returns, they are on disk.
   * Throws `buffer.full` (by `refuse-new`), `buffer.low-space`, `buffer.disk-full` or the driver's error: then no value was
   * stored. With a code that begins with `buffer.`, the pending changes are on disk, because they make room.
   *
   * A failed sync leaves nothing that is trusted: the next commit writes the same WAL frames again, and a checkpoint starts
   * with the first page that was not synced.
   */
  commit(request: CommitRequest): StoreFacts {
    const brings = request.columns?.length ?? 0;
    this.#monotonicMs = request.monotonicMs;
    const refusal = brings > 0 ? this.#disk.refusal(brings) : undefined;
    // Nothing of refused values is written, not even their series.
    const newSeries = brings > 0 ? [] : request.newSeries;
    const pendingOnly = { ...request, columns: undefined, newSeries, notes: [] };
    try {
      this.#write(refusal ? pendingOnly : request);
    } catch (error) {
      if (!saysFull(error)) throw error;
      this.#disk.makeRoom();
      this.#write(pendingOnly);
      if (brings > 0) throw full();
    }
    if (refusal) throw refusal;
    return this.facts();
  }

  /** One transaction, then memory follows. */
  #write(request: CommitRequest): void {
    const state = this.#state;
    const columns = this.#pending.withMoved(request.columns);
    checkSeries(this.#state, columns, request.newSeries, this.#pending);
    const since = request.newSeries.length > 0 ? ++this.#since : this.#since;
    for (const series of request.newSeries) series.since = since;
    const hasRow = columns.length > 0 || this.#pending.settled.length > 0;
    if (hasRow || !this.#pending.isEmpty || request.newSeries.length > 0 || request.notes?.length) {
      this.#transaction({ ...request, columns }, hasRow);
      this.#disk.committed();
      this.#run.committed(request.monotonicMs);
    }
    for (const series of request.newSeries) state.addSeries(series);
    if (hasRow) {
      const { length: count } = columns;
      const row = { id: state.nextRow++, firstSeq: state.nextSeq, count, left: count, isLoaded: true };
      state.rows.push({ ...row, run: this.#run.id, monotonicMs: wholeMs(request.monotonicMs) });
    }
    if (this.#pending.isCarried) this.closeOrigins();
    this.#pending.clear();
    const hasDropped = this.#dropping.committed();
    state.takeIn(columns);
    this.#disk.look(request.monotonicMs, hasDropped);
    this.#keepBounds();
  }

  #keepBounds(): void {
    this.#state.quarantined -= this.#dropping.keep(this.#disk.use, ({ run, acceptedMs }) =>
      this.#state.times.ageMs(run, acceptedMs, this.#monotonicMs),
    );
  }

  /** Inside the transaction. Does not change memory, so that a failure leaves everything as it was. */
  #writeRows({ columns, newSeries, notes, monotonicMs }: CommitRequest, hasRow: boolean): void {
    const statements = this.#statements;
    writeNotes(statements, notes ?? []);
    for (const series of newSeries) writeSeries(statements, series);
    this.#copy.append(newSeries, () => [...knownSeries(this.#state), ...newSeries]);
    this.#pending.write(statements);
    if (hasRow) {
      const head = { run: this.#run.id, monotonicMs: wholeMs(monotonicMs), firstSeq: this.#state.nextSeq };
      const row = this.#writer.write(head, columns ?? NO_VALUES, this.#pending.settled);
      statements.addRow.run(this.#state.nextRow, row);
      this.#disk.note(row.length);
    }
    this.#run.write(statements, monotonicMs);
  }

  /** Facts that were written with values, by the beginning of their names. */
  notes(beginning: string): Note[] {
    return readNotes(this.#statements, beginning);
  }

  take(request: TakeRequest): { batch: Batch | undefined; facts: StoreFacts } {
    this.#state.distribute();
    const taken = takeBatch(this.#state, this.#segments, this.#body, request);
    this.#run.keepMeasure(this.#state.stamps, this.#statements, this.#monotonicMs);
    return { batch: taken?.answer, facts: this.facts() };
  }

  settle(batch: number): StoreFacts {
    for (const slice of this.#end(batch)?.slices ?? []) settleSlice(this.#state, this.#pending, this.#segments, slice);
    this.#maintenance.noteSettled(this.#monotonicMs);
    this.#maintenance.dropSettledRows();
    return this.facts();
  }

  release(batch: number): StoreFacts {
    for (const slice of this.#end(batch)?.slices ?? []) releaseSlice(this.#state, slice);
    return this.facts();
  }

  divide(batch: number): { batches: Batch[]; facts: StoreFacts } {
    const whole = this.#state.batches.get(batch);
    const batches = whole ? divideBatch(this.#state, this.#body, whole) : [];
    return { batches, facts: this.facts() };
  }

  quarantine(batch: number, refusal: Refusal & { atMs: number }): StoreFacts {
    const ended = this.#end(batch);
    if (ended) quarantineBatch(this.#state, this.#pending, this.#segments, ended, refusal);
    this.#maintenance.dropSettledRows();
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

  /** One step of what can wait: some of a flush, some of a compaction, some space given back. Some milliseconds at most. */
  maintain(now: { monotonicMs: number }): StoreFacts {
    this.#monotonicMs = now.monotonicMs;
    this.#disk.keepReserve(now.monotonicMs);
    this.#keepBounds();
    this.#maintenance.step(now.monotonicMs, this.#disk.flushSpace);
    this.#mayCarry?.step(now.monotonicMs);
    return this.facts();
  }

  get #mayCarry() {
    return this.#disk.hasRoomToCarry ? this.#carrying : undefined;
  }

  giveSpaceBack(): StoreFacts {
    this.#disk.giveBack(this.#monotonicMs);
    return this.facts();
  }

  #missed(span: Span, entry: number, bytes: Uint8Array | undefined): void {
    if (!bytes && this.#carrying?.awaits(span, entry)) return;
    this.#damaged.push({ what: 'segment', values: setAsideSegment(this.#state, this.#pending, span, entry, bytes) });
  }

  facts(): StoreFacts {
    const state = this.#state;
    const lanes = [...state.touched].map((asset) => lanesOf(state, asset));
    state.touched.clear();
    const facts: StoreFacts = {
      lanes,
      logValues: state.logValues,
      segmentValues: state.segmentValues,
      notLoaded: state.notLoaded,
      quarantined: state.quarantined,
      spans: state.spans.length,
      disk: this.#disk.use,
      short: this.#disk.isShort,
      full: this.#disk.isFull,
      spare: this.#disk.hasSpare,
      oversized: this.#disk.isOversized,
      oldestAcceptedMs: state.oldestAcceptedMs(),
      dirty: !this.#pending.isEmpty,
      maintenanceDue:
        this.#disk.mayRecover(this.#monotonicMs) ||
        this.#dropping.isDue(this.#disk.use) ||
        this.#maintenance.isDue(this.#monotonicMs, this.#disk.flushSpace) ||
        this.#mayCarry?.isDue(this.#monotonicMs) === true,
      isCarrying: this.#carrying !== undefined,
      dropped: this.#dropping.take(),
      damaged: this.#damaged,
    };
    this.#damaged = [];
    return facts;
  }

  /** Series that may be forgotten; none while an export may still name them. */
  idleSeries(): number[] {
    return this.#readers.isAny(this.#monotonicMs) ? [] : idleSeries(this.#state, this.#pending, this.#statements);
  }

  forgetSeries(ids: readonly number[]): void {
    forgetSeries(this.#state, ids);
  }

  closeOrigins(): void {
    this.#carrying?.close();
    this.#carrying = undefined;
  }

  close(): void {
    this.closeOrigins();
    this.#database.close();
    this.#disk.close();
  }
}
