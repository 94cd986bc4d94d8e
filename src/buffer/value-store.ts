/**
 * Value store of the store thread. Keeps accepted values until the platform accepts or rejects them, or a configured
 * bound or an operator drops them.
 *
 *   commit ──► log row ──► queue per series ──► live batches
 *                 │ after a few seconds, or if the log is long
 *                 └─ flush ──► span of segments ──► backlog batches
 *
 * Invariants: each value is in the log or in a segment. `Pending` contains the changes since the latest commit. A
 * commit is one transaction with one sync, and returns after the sync. After a crash the store continues from the
 * latest commit: batches that were in flight or settled since then are posted again.
 */
import { announce } from '../base/crash-points.ts';
import type { Database } from '../base/database.ts';
import { BodyWriter } from './batches/body-writer.ts';
import { SegmentReader } from './batches/segment-reader.ts';
import { quarantineBatch, releaseSlice, settleSlice } from './batches/settle.ts';
import { divideBatch, takeBatch } from './batches/take.ts';
import type { Batch, Refusal, TakeRequest } from './client/lanes.ts';
import type { Note } from './client/notes.ts';
import { Flush } from './compaction/flush.ts';
import { Maintenance } from './compaction/maintenance.ts';
import { LogRowWriter } from './format/log-row.ts';
import { NO_VALUES } from './format/value-columns.ts';
import { OperatorCalls } from './operator/operator-calls.ts';
import { ReadLeases } from './read-leases.ts';
import type { Carrying } from './recovery/carrying.ts';
import { type Recovered, recoverState } from './recovery/recovery.ts';
import { SeriesCopy } from './recovery/series-copy.ts';
import { RunRow } from './run-row.ts';
import type { Series } from './series.ts';
import { DiskSpaceGuard, full } from './space/disk-space-guard.ts';
import { Dropping } from './space/dropping.ts';
import { isDiskFull } from './space/reserve.ts';
import type { Span } from './span.ts';
import { StoreState } from './state.ts';
import type { CommitRequest, Damage, StoreFacts, ValueStoreOptions } from './store-facts.ts';
import { prepareStatements, readNotes, type Statements, writeNotes, writeSeries } from './tables.ts';

const wholeMs = (monotonicMs: number) => Math.max(0, Math.round(monotonicMs));

interface StoreParts {
  database: Database;
  path: string;
  options: ValueStoreOptions;
  state: StoreState;
  copy: SeriesCopy;
  recovered: Recovered;
}

interface Handover {
  series: Series[];
  held: number[];
  nextBatch: number;
  options: ValueStoreOptions;
}

export interface OpenedValueStore {
  store: ValueStore;
  series: Series[];
  facts: StoreFacts;
}

export class ValueStore {
  readonly #database: Database;
  readonly #options: ValueStoreOptions;
  readonly #state: StoreState;
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
  /** Set while segments are only in files that were set aside. */
  #carrying: Carrying | undefined;
  readonly #transaction: (request: CommitRequest, hasRow: boolean) => void;
  readonly operator: OperatorCalls;
  #monotonicMs: number;
  /** Generation of the latest series row. If two rows have the same number, the later generation is valid. */
  #since: number;
  #damaged: StoreFacts['damaged'];

  /** Opens a buffer or creates its tables; `path` is its file. Reads the log and the directories, never the backlog. */
  static open(
    database: Database,
    path: string,
    options: ValueStoreOptions,
    now: { monotonicMs: number; wallMs: number; boot: string },
  ): OpenedValueStore {
    const [state, copy] = [new StoreState(), new SeriesCopy(path)];
    const { maxLoadedSeries } = options;
    const recovered = recoverState(database, state, now, { path, copy, maxLoadedSeries });
    if (state.counts.notLoaded === 0) copy.keep(recovered.series.filter((series) => series.asset > 0));
    const store = new ValueStore({ database, path, options, state, copy, recovered }, now.monotonicMs);
    return { store, series: recovered.series, facts: store.facts() };
  }

  private constructor(parts: StoreParts, monotonicMs: number) {
    const { database, options, state, recovered } = parts;
    this.#database = database;
    this.#options = { ...options, bounds: { ...options.bounds } };
    this.#state = state;
    this.#copy = parts.copy;
    this.#monotonicMs = monotonicMs;
    this.#run = new RunRow(recovered.run);
    this.#damaged = [...recovered.damaged];
    const statements = prepareStatements(database);
    this.#statements = statements;
    state.countQuarantined(statements.countQuarantine.get() ?? 0);
    this.#transaction = database.transaction((request: CommitRequest, hasRow: boolean) => {
      this.#writeRows(request, hasRow);
    });
    this.#since = Math.max(statements.lastSince.get() ?? 0, parts.copy.lastSince);
    const segments = new SegmentReader(
      (id, span, entry) =>
        state.pending.segments.get(id) ?? statements.getSegment.get(id) ?? this.#carrying?.read(span, entry),
      (span, entry, bytes) => this.#missed(span, entry, bytes),
    );
    this.#segments = segments;
    this.#carrying = recovered.carrying?.begin(
      (span, entry) => this.#missed(span, entry, undefined),
      options.stepSize?.segments,
    );
    const flush = new Flush(state);
    flush.resume();
    const readers = this.#readers;
    const disk = new DiskSpaceGuard(database, parts.path, this.#options.bounds, readers);
    this.#disk = disk;
    const maintenance = new Maintenance({
      state,
      segments,
      flush,
      readers,
      limits: this.#options,
      maxGroupValues: () => this.#dropping.maxGroupValues(disk.use),
    });
    this.#maintenance = maintenance;
    const dropping = new Dropping({
      state,
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

  /** Changes bounds and pace. Values beyond a new bound are dropped step by step, with one commit each. */
  configure({ bounds, ...pace }: ValueStoreOptions): StoreFacts {
    Object.assign(this.#options, pace);
    Object.assign(this.#options.bounds, bounds);
    this.#disk.boundsChanged(this.#monotonicMs);
    return this.facts();
  }

  /**
   * Returns the data required by the store that replaces this one: series, holds, the next batch number and the current
   * options.
   */
  handOver(): Handover {
    const all = this.#state.series.filter((one) => one !== undefined);
    const held = all.filter((one) => one.held).map((one) => one.series.id);
    return { series: all.map(({ series }) => series), held, nextBatch: this.#state.next.batch, options: this.#options };
  }

  /** Takes over from a corrupt store. Its batches are unknown here, so their values are waiting again. */
  takeOver({ series, held, nextBatch }: Omit<Handover, 'options'>, damage: readonly Damage[]): void {
    for (const one of series) this.#state.addSeries(one);
    this.#state.raiseNext({ batch: nextBatch });
    this.#state.holdSeries(held);
    for (const asset of this.#state.assets.values()) this.#state.markChanged(asset);
    this.#damaged.push(...damage);
  }

  /**
   * Stores values and all pending changes in one transaction; all are on disk when the method returns. Throws
   * `buffer.full` (with `refuse-new`), `buffer.low-space`, `buffer.disk-full` or a driver error; in each case no value
   * was stored. If the code starts with `buffer.`, the pending changes are on disk, because they free space.
   *
   * Nothing relies on a failed sync: the next commit writes the same WAL frames again, and a checkpoint starts with the
   * first page that was not synced.
   */
  commit(request: CommitRequest): StoreFacts {
    const brings = request.columns?.length ?? 0;
    this.#monotonicMs = request.monotonicMs;
    const refusal = brings > 0 ? this.#disk.refusal(brings) : undefined;
    // The series of rejected values are not written either.
    const newSeries = brings > 0 ? [] : request.newSeries;
    const pendingOnly = { ...request, columns: undefined, newSeries, notes: [] };
    try {
      this.#write(refusal ? pendingOnly : request);
    } catch (error) {
      if (!isDiskFull(error)) throw error;
      this.#disk.freeReserve();
      this.#write(pendingOnly);
      if (brings > 0) throw full();
    }
    if (refusal) throw refusal;
    return this.facts();
  }

  /** Writes one transaction, then updates memory. */
  #write(request: CommitRequest): void {
    const state = this.#state;
    const { pending } = state;
    const columns = pending.withMoved(request.columns);
    state.checkSeries(columns, request.newSeries);
    const since = request.newSeries.length > 0 ? ++this.#since : this.#since;
    for (const series of request.newSeries) series.since = since;
    const hasRow = columns.length > 0 || pending.settled.length > 0;
    if (hasRow || !pending.isEmpty || request.newSeries.length > 0 || request.notes?.length) {
      this.#transaction({ ...request, columns }, hasRow);
      announce('commit.after');
      this.#disk.committed();
      this.#run.committed(request.monotonicMs);
    }
    for (const series of request.newSeries) state.addSeries(series);
    if (pending.isCarried) this.closeOldFiles();
    pending.clear();
    const hasDropped = this.#dropping.committed();
    if (hasRow) state.addRow(columns, this.#run.id, wholeMs(request.monotonicMs));
    this.#disk.measureIfDue(request.monotonicMs, hasDropped);
    this.#keepBounds();
  }

  #keepBounds(): void {
    const dropped = this.#dropping.enforce(this.#disk.use, ({ run, acceptedMs }) =>
      this.#state.times.ageMs(run, acceptedMs, this.#monotonicMs),
    );
    this.#state.countQuarantined(-dropped);
  }

  /** Runs in the transaction. Does not change memory, so a failure leaves everything unchanged. */
  #writeRows({ columns, newSeries, notes, monotonicMs }: CommitRequest, hasRow: boolean): void {
    const statements = this.#statements;
    writeNotes(statements, notes ?? []);
    for (const series of newSeries) writeSeries(statements, series);
    this.#copy.append(newSeries, () => [...this.#state.namedSeries(), ...newSeries]);
    this.#state.pending.write(statements);
    if (hasRow) {
      const head = { run: this.#run.id, monotonicMs: wholeMs(monotonicMs), firstSeq: this.#state.next.seq };
      const row = this.#writer.write(head, columns ?? NO_VALUES, this.#state.pending.settled);
      statements.addRow.run(this.#state.next.row, row);
      this.#disk.countWritten(row.length);
    }
    this.#run.write(statements, monotonicMs);
    announce('commit.before');
  }

  /** Returns notes whose names start with `beginning`. */
  notes(beginning: string): Note[] {
    return readNotes(this.#statements, beginning);
  }

  take(request: TakeRequest): { batch: Batch | undefined; facts: StoreFacts } {
    this.#state.distribute();
    const taken = takeBatch(this.#state, this.#segments, this.#body, request);
    this.#run.storeMeasure(this.#state.stamps, this.#statements, this.#monotonicMs);
    return { batch: taken?.answer, facts: this.facts() };
  }

  settle(batch: number): StoreFacts {
    for (const slice of this.#state.endBatch(batch)?.slices ?? []) settleSlice(this.#state, slice);
    this.#maintenance.noteSettled(this.#monotonicMs);
    this.#maintenance.dropSettledRows();
    return this.facts();
  }

  release(batch: number): StoreFacts {
    for (const slice of this.#state.endBatch(batch)?.slices ?? []) releaseSlice(this.#state, slice);
    return this.facts();
  }

  divide(batch: number): { batches: Batch[]; facts: StoreFacts } {
    const whole = this.#state.batches.get(batch);
    const batches = whole ? divideBatch(this.#state, this.#body, whole) : [];
    return { batches, facts: this.facts() };
  }

  quarantine(batch: number, refusal: Refusal & { atMs: number }): StoreFacts {
    const ended = this.#state.endBatch(batch);
    if (ended) quarantineBatch(this.#state, ended, refusal);
    this.#maintenance.dropSettledRows();
    return this.facts();
  }

  holdSeries(series: readonly number[]): StoreFacts {
    this.#state.holdSeries(series);
    return this.facts();
  }

  /**
   * Performs one step of background work (flush, compaction, freeing space), which takes a few milliseconds at most.
   */
  maintain(now: { monotonicMs: number }): StoreFacts {
    this.#monotonicMs = now.monotonicMs;
    this.#disk.restoreReserve(now.monotonicMs);
    this.#keepBounds();
    this.#maintenance.step(now.monotonicMs, this.#disk.flushSpace);
    this.#mayCarry?.step(now.monotonicMs);
    return this.facts();
  }

  get #mayCarry() {
    return this.#disk.hasRoomToCarry ? this.#carrying : undefined;
  }

  vacuum(): StoreFacts {
    this.#disk.vacuum(this.#monotonicMs);
    return this.facts();
  }

  #missed(span: Span, entry: number, bytes: Uint8Array | undefined): void {
    if (!bytes && this.#carrying?.awaits(span, entry)) return;
    this.#damaged.push({ what: 'segment', values: this.#state.setAsideSegment(span, entry, bytes) });
  }

  facts(): StoreFacts {
    const state = this.#state;
    const lanes = [...state.collectChanged()].map((asset) => state.lanesOf(asset));
    const facts: StoreFacts = {
      lanes,
      ...state.counts,
      spans: state.spans.length,
      disk: this.#disk.use,
      short: this.#disk.isShort,
      full: this.#disk.isFull,
      spare: this.#disk.hasSpare,
      oversized: this.#disk.isOversized,
      oldestAcceptedMs: state.oldestAcceptedMs(),
      dirty: !state.pending.isEmpty,
      maintenanceDue:
        this.#disk.mayRecover(this.#monotonicMs) ||
        this.#dropping.isDue(this.#disk.use) ||
        this.#maintenance.isDue(this.#monotonicMs, this.#disk.flushSpace) ||
        this.#mayCarry?.isDue(this.#monotonicMs) === true,
      isCarrying: this.#carrying !== undefined,
      dropped: this.#dropping.collectDropped(),
      damaged: this.#damaged,
    };
    this.#damaged = [];
    return facts;
  }

  closeOldFiles(): void {
    this.#carrying?.close();
    this.#carrying = undefined;
  }

  close(): void {
    this.closeOldFiles();
    this.#database.close();
    this.#disk.close();
  }
}
