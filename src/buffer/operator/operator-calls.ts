/** Calls for operators: list, export, purge, retarget and requeue. */

import type { SegmentReader } from '../batches/segment-reader.ts';
import type { Maintenance } from '../compaction/maintenance.ts';
import type { ReadLeases } from '../read-leases.ts';
import type { DiskSpaceGuard } from '../space/disk-space-guard.ts';
import type { DropForecast, Dropping } from '../space/dropping.ts';
import type { StoreState } from '../state.ts';
import type { StoreFacts } from '../store-facts.ts';
import type { Statements } from '../tables.ts';
import { type ExportPage, type ExportRequest, Exports } from './exporting.ts';
import { listSeries, type SeriesListing } from './listing.ts';
import {
  type QuarantinedValues,
  type QuarantineSearch,
  type Requeueing,
  type RequeueStep,
  requeue,
  searchQuarantine,
  showQuarantine,
} from './requeueing.ts';
import { type Retargeting, type Withdrawal, type WithdrawalStep, withdraw } from './withdrawing.ts';

export interface OperatorParts {
  state: StoreState;
  segments: SegmentReader;
  statements: Statements;
  readers: ReadLeases;
  maintenance: Maintenance;
  dropping: Dropping;
  facts(): StoreFacts;
  nowMs(): number;
  /** Returns the generation for a series to which values are moved. */
  nextSince(): number;
  disk: Pick<DiskSpaceGuard, 'measureNow' | 'use'>;
}

/** Maximum time between two steps of a withdrawal; limits how long a caller that disappeared delays compaction. */
const WITHDRAWAL_STEP_MS = 60_000;

export class OperatorCalls {
  readonly #parts: OperatorParts;
  readonly #exports: Exports;

  constructor(parts: OperatorParts) {
    this.#parts = parts;
    this.#exports = new Exports(parts);
  }

  /** Returns rows in quarantine, oldest first, with the first values of each row. */
  showQuarantine(page: { after: number; limit: number }): QuarantinedValues[] {
    return showQuarantine(this.#parts.statements, page);
  }

  /** Searches the quarantine by series, one step per call. */
  searchQuarantine(search: QuarantineSearch): { rows: QuarantinedValues[]; after: number | undefined } {
    return searchQuarantine(this.#parts.statements, search);
  }

  /** Returns the values in quarantine by series, and the number of the last row. */
  countQuarantine(): { last: number; series: { series: number; count: number }[] } {
    const { lastQuarantine, quarantineBySeries } = this.#parts.statements;
    return { last: lastQuarantine.get() ?? 0, series: quarantineBySeries.all() };
  }

  /** Returns a page of the known series with their buffered values. */
  list(page: { after: number; limit: number }): SeriesListing[] {
    const { state, statements } = this.#parts;
    state.distribute();
    return listSeries(state, (id) => state.pending.segments.get(id) ?? statements.getSegment.get(id), page);
  }

  /** Estimates how much a different bound on bytes would drop. */
  forecastDrops(bounds: { maxBytes: number }): DropForecast {
    const { disk, dropping } = this.#parts;
    disk.measureNow(this.#parts.nowMs());
    return dropping.forecast(disk.use, bounds);
  }

  /**
   * Opens or renews the lease of a caller that reads the database files, including the WAL. While the lease is valid,
   * nothing is compacted. Returns the lease number, or a new one if the given lease has expired. Throws `store.readers`
   * if too many leases are valid.
   */
  leaseFiles({ lease, forMs }: { lease?: number | undefined; forMs: number }): number {
    const { readers } = this.#parts;
    const nowMs = this.#parts.nowMs();
    if (lease !== undefined && readers.renew(lease, nowMs, nowMs + forMs)) return lease;
    return readers.open('files', nowMs, nowMs + forMs);
  }

  endFileLease(lease: number): void {
    this.#parts.readers.end(lease);
  }

  /** Starts an export of all or some series. Returns its number. Throws `store.readers` if too many are running. */
  beginExport(request: ExportRequest): number {
    return this.#exports.begin(request, this.#parts.nowMs());
  }

  /** Returns the next page. Throws `store.export_gone` if the export has ended or the reader paused for too long. */
  exportPage(id: number): ExportPage {
    return this.#exports.page(id, this.#parts.nowMs());
  }

  endExport(id: number): void {
    this.#exports.end(id);
  }

  /** Drops values for an operator, one step per call; counted with the reason `purge`. */
  purge(request: Withdrawal): WithdrawalStep & { facts: StoreFacts } {
    const { state, segments, dropping, maintenance } = this.#parts;
    state.distribute();
    const step = withdraw(state, segments, request);
    this.#pauseCompaction(step);
    dropping.count('purge', step.values);
    maintenance.dropSettledRows();
    return { ...step, facts: this.#parts.facts() };
  }

  /** Moves values to other series, one step per call. Removal and insertion are in one commit. */
  retarget(request: Retargeting): WithdrawalStep & { facts: StoreFacts } {
    const { state, segments, maintenance } = this.#parts;
    state.distribute();
    const target = new Map(request.pairs.map(({ from, to }) => [from, to.id]));
    const { moved, newSeries } = state.pending;
    const since = this.#parts.nextSince();
    for (const { to } of request.pairs) {
      state.addSeries(Object.assign(to, { since }));
      newSeries.set(to.id, to);
    }
    const wanted = { ...request, series: [...target.keys()] };
    const step = withdraw(state, segments, wanted, ({ series }, values, { from, to }, runOf) => {
      const id = target.get(series.id)!;
      for (let i = from; i < to; i++) {
        const { timeMs, flags } = state.stamps.adopt(values.timeMs[i]!, values.flags[i]!, runOf(i));
        moved.add(id, timeMs, values.value[i]!, flags);
      }
    });
    this.#pauseCompaction(step);
    if (step.values > 0) this.#exports.noteMoved(wanted.series);
    maintenance.dropSettledRows();
    return { ...step, facts: this.#parts.facts() };
  }

  /** Between two steps, compaction could move values from ahead of the cursor to behind it. */
  #pauseCompaction({ cursor }: WithdrawalStep): void {
    if (cursor) this.#parts.maintenance.pauseCompaction(this.#parts.nowMs() + WITHDRAWAL_STEP_MS);
  }

  /** Requeues quarantined values, one step per call. Removal and insertion are in one commit. */
  requeue(request: Requeueing): RequeueStep & { facts: StoreFacts } {
    const { statements, state } = this.#parts;
    const step = requeue(statements, state, request);
    state.countQuarantined(-step.values);
    return { ...step, facts: this.#parts.facts() };
  }
}
