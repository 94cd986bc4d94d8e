/** What operators ask of the store: to look into it, to take values out of it, to give them to others, to drop them. */

import type { SegmentReader } from '../batches/segment-reader.ts';
import type { Maintenance } from '../compaction/maintenance.ts';
import type { Pending } from '../pending.ts';
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
  pending: Pending;
  segments: SegmentReader;
  statements: Statements;
  readers: ReadLeases;
  maintenance: Maintenance;
  dropping: Dropping;
  facts(): StoreFacts;
  nowMs(): number;
  /** For series that values move to. */
  nextSince(): number;
  disk: Pick<DiskSpaceGuard, 'lookNow' | 'use'>;
}

/** The next step of a withdrawal comes sooner, also after a slow commit. A caller that vanished delays compaction no longer than this. */
const WITHDRAWAL_STEP_MS = 60_000;

export class OperatorCalls {
  readonly #parts: OperatorParts;
  readonly #exports: Exports;

  constructor(parts: OperatorParts) {
    this.#parts = parts;
    this.#exports = new Exports(parts);
  }

  /** What stands in quarantine, oldest first: a few values of each row. */
  showQuarantine(page: { after: number; limit: number }): QuarantinedValues[] {
    return showQuarantine(this.#parts.statements, page);
  }

  /** Rows in quarantine of all or some series, oldest first, a step at a time. */
  searchQuarantine(search: QuarantineSearch): { rows: QuarantinedValues[]; after: number | undefined } {
    return searchQuarantine(this.#parts.statements, search);
  }

  /** Values in quarantine by series, and the number of the last row. */
  countQuarantine(): { last: number; series: { series: number; count: number }[] } {
    const { lastQuarantine, quarantineBySeries } = this.#parts.statements;
    return { last: lastQuarantine.get() ?? 0, series: quarantineBySeries.all() };
  }

  /** A page of the known series, by number, with what stands of each. */
  list(page: { after: number; limit: number }): SeriesListing[] {
    const { state, pending, statements } = this.#parts;
    state.distribute();
    return listSeries(state, (id) => pending.segments.get(id) ?? statements.getSegment.get(id), page);
  }

  /** What would fall under another bound on bytes, about. */
  forecastDrops(bounds: { maxBytes: number }): DropForecast {
    const { disk, dropping } = this.#parts;
    disk.lookNow(this.#parts.nowMs());
    return dropping.forecast(disk.use, bounds);
  }

  /**
   * Opens or renews the lease of a caller that reads the database's files, which keeps the WAL from being emptied. Meanwhile
   * nothing is compacted, and the bound on bytes may be exceeded as during an export. Returns the number of the lease: another
   * one where the given lease has expired. Throws `store.readers` where too many are valid.
   */
  expectCopy({ lease, forMs }: { lease?: number | undefined; forMs: number }): number {
    const { readers } = this.#parts;
    const nowMs = this.#parts.nowMs();
    if (lease !== undefined && readers.renew(lease, nowMs, nowMs + forMs)) return lease;
    return readers.open('files', nowMs, nowMs + forMs);
  }

  endCopy(lease: number): void {
    this.#parts.readers.end(lease);
  }

  /** Begins to copy values of all or some series. Returns the number of the export. Throws `store.readers` where too many are running. */
  beginExport(request: ExportRequest): number {
    return this.#exports.begin(request, this.#parts.nowMs());
  }

  /** Returns the next page. Throws `store.export_gone` where the export has ended or its reader paused for too long. */
  exportPage(id: number): ExportPage {
    return this.#exports.page(id, this.#parts.nowMs());
  }

  endExport(id: number): void {
    this.#exports.end(id);
  }

  /** Drops values by an operator's word, a step at a time; counted as dropped by `purge`. On disk with the next commit. */
  purge(request: Withdrawal): WithdrawalStep & { facts: StoreFacts } {
    const { state, pending, segments, dropping, maintenance } = this.#parts;
    state.distribute();
    const step = withdraw(state, pending, segments, request);
    this.#pauseCompaction(step);
    dropping.count('purge', step.values);
    maintenance.dropSettledRows();
    return { ...step, facts: this.#parts.facts() };
  }

  /** Gives values to other series, a step at a time. On disk with the next commit, both sides in one. */
  retarget(request: Retargeting): WithdrawalStep & { facts: StoreFacts } {
    const { state, pending, segments, maintenance } = this.#parts;
    state.distribute();
    const target = new Map(request.pairs.map(({ from, to }) => [from, to.id]));
    const { moved, newSeries } = pending;
    const since = this.#parts.nextSince();
    for (const { to } of request.pairs) {
      state.addSeries(Object.assign(to, { since }));
      newSeries.set(to.id, to);
    }
    const wanted = { ...request, series: [...target.keys()] };
    const step = withdraw(state, pending, segments, wanted, ({ series }, values, { from, to }, runOf) => {
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

  /** Compaction between two steps could move values from ahead of the cursor to behind it. */
  #pauseCompaction({ cursor }: WithdrawalStep): void {
    if (cursor) this.#parts.maintenance.pauseCompaction(this.#parts.nowMs() + WITHDRAWAL_STEP_MS);
  }

  /** Sends quarantined values again, a step at a time. On disk with the next commit, both sides in one. */
  requeue(request: Requeueing): RequeueStep & { facts: StoreFacts } {
    const { statements, state, pending } = this.#parts;
    const step = requeue(statements, state, pending, request);
    state.quarantined -= step.values;
    return { ...step, facts: this.#parts.facts() };
  }
}
