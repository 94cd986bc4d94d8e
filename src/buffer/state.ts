/**
 * State of the store thread in memory: values in the log and directories of the spans, never the backlog itself.
 *
 * All fields of series, assets, rows and counts change here and in `LogState`. There is one method per transition,
 * which also records the change for the next commit. The backlog of an asset and the counts therefore always match the
 * segments and queues. After a crash the state is restored from the database (`recovery/recovery.ts`).
 */
import { StoreError } from '../base/errors.ts';
import type { AssetLanes } from './client/lanes.ts';
import { type SettledRanges, settledCount } from './format/settled-ranges.ts';
import type { Columns } from './format/value-columns.ts';
import { LogState } from './log-state.ts';
import type { QuarantineEntry } from './pending.ts';
import type { AssetState, BatchSlice, BatchState } from './records.ts';
import type { Series } from './series.ts';
import { GONE, LOST, newSpan, oldestAcceptedMs, openValues, type Span, type SpanEntry, segmentId } from './span.ts';

/** A segment of a new span. */
export interface PackedEntry extends SpanEntry {
  packed: Uint8Array;
  /** Slice of a batch in flight that the segment contains. */
  slice?: BatchSlice | undefined;
}

export class StoreState extends LogState {
  readonly #spans: Span[] = [];
  readonly #batches = new Map<number, BatchState>();
  #spanChanges = 0;

  get spans(): readonly Span[] {
    return this.#spans;
  }

  get batches(): ReadonlyMap<number, BatchState> {
    return this.#batches;
  }

  /** Number of spans added and removed. */
  get spanChanges(): number {
    return this.#spanChanges;
  }

  /**
   * Adds a span of new segments, at the end of the order of acceptance unless `place` is set. Arrivals of its series up
   * to `throughSeq` are flushed.
   */
  addSegments(
    head: { run: number; acceptedMs: number; place?: number },
    entries: readonly PackedEntry[],
    throughSeq?: number,
  ): void {
    if (entries.length === 0) return;
    const span = newSpan({ id: this.numbers.span++, place: head.place ?? this.numbers.place++, ...head }, entries);
    for (const [entry, { slice }] of entries.entries()) {
      if (!slice) continue;
      slice.at = { span, entry, from: 0 };
      span.inFlight.set(entry, 1);
    }
    this.pending.addSpan(
      span,
      entries.map(({ packed }) => packed),
    );
    this.addSpan(span, throughSeq);
  }

  /** Inserts a span at its position and adds its segments to their assets. */
  addSpan(span: Span, throughSeq = -1): void {
    this.#spanChanges++;
    let at = this.#spans.length;
    while (at > 0 && this.#spans[at - 1]!.place > span.place) at--;
    this.#spans.splice(at, 0, span);
    let entry = 0;
    while (entry < span.series.length) {
      const asset = this.seriesOf(span.series[entry]!).asset;
      const from = entry;
      while (entry < span.series.length && this.seriesOf(span.series[entry]!).asset === asset) entry++;
      let place = asset.places.length;
      while (place > 0 && asset.places[place - 1]!.span.place > span.place) place--;
      if (asset.places.length === 0) asset.places = [{ span, from, to: entry }];
      else asset.places.splice(place, 0, { span, from, to: entry });
      this.markChanged(asset);
    }
    for (let i = 0; i < span.series.length; i++) {
      const state = this.seriesOf(span.series[i]!);
      if (span.gone[i]) continue;
      state.segments++;
      state.backlogTimeMs = Math.max(state.backlogTimeMs, span.lastTimeMs[i]!);
      this.totals.segmentValues += openValues(span, i);
      this.#changeBacklog(span, i, openValues(span, i));
    }
    this.recountArrivals(span.series, throughSeq);
    // The new span can make values in the log late. A compaction that removed the old spans can undo that.
    for (const id of new Set(span.series)) {
      const { queue, backlogTimeMs } = this.seriesOf(id);
      queue.markLate(backlogTimeMs);
    }
  }

  /** Adds values of a segment to the backlog of its asset, unless the segment is in flight or its series is held. */
  #changeBacklog(span: Span, entry: number, values: number): void {
    const { asset, held } = this.seriesOf(span.series[entry]!);
    if (!held && !span.inFlight.has(entry)) asset.backlog += values;
  }

  /** Marks a segment as part of one more batch, so that no other batch can take values from it. */
  markInFlight(span: Span, entry: number): void {
    this.#changeBacklog(span, entry, -openValues(span, entry));
    span.inFlight.set(entry, (span.inFlight.get(entry) ?? 0) + 1);
    span.changes++;
  }

  /** Marks a segment as part of one batch less, after the batch has ended. */
  releaseEntry(span: Span, entry: number): void {
    const before = span.inFlight.get(entry) ?? 0;
    if (before > 1) span.inFlight.set(entry, before - 1);
    else span.inFlight.delete(entry);
    span.changes++;
    this.#changeBacklog(span, entry, before > 1 ? 0 : openValues(span, entry));
    this.markChanged(this.seriesOf(span.series[entry]!).asset);
  }

  /** Records settled values of a segment that also contains unsettled values. `ranges` contains all settled ranges. */
  settleEntry(span: Span, entry: number, ranges: SettledRanges): void {
    const values = settledCount(ranges) - settledCount(span.progress.get(entry) ?? []);
    this.#changeBacklog(span, entry, -values);
    this.totals.segmentValues -= values;
    span.progress.set(entry, ranges);
    span.changes++;
    this.pending.storeProgress(span, entry);
    this.markChanged(this.seriesOf(span.series[entry]!).asset);
  }

  /** Removes a segment, and its span if it was the final segment. Returns the number of its unsettled values. */
  removeSegment(span: Span, entry: number, as = GONE): number {
    const values = this.#removeEntry(span, entry, as);
    if (span.left === 0) this.#dropSpan(span);
    else this.pending.dropSegment(span, entry);
    return values;
  }

  /** Removes a span with its values. Returns the number of unsettled values. */
  removeSpan(span: Span): number {
    let values = 0;
    this.#dropSpan(span);
    for (let entry = 0; entry < span.series.length; entry++) {
      if (!span.gone[entry]) values += this.#removeEntry(span, entry, LOST);
    }
    return values;
  }

  /** Removes an unreadable segment and keeps its bytes for analysis. Returns the number of lost values. */
  setAsideSegment(span: Span, entry: number, bytes: Uint8Array | undefined): number {
    this.pending.aside.push({ what: 'segment', place: segmentId(span.id, entry), atMs: 0, bytes });
    return this.removeSegment(span, entry, LOST);
  }

  #removeEntry(span: Span, entry: number, as: number): number {
    const state = this.seriesOf(span.series[entry]!);
    const open = openValues(span, entry);
    this.#changeBacklog(span, entry, -open);
    this.totals.segmentValues -= open;
    span.gone[entry] = as;
    span.left--;
    span.changes++;
    span.progress.delete(entry);
    state.segments--;
    this.markChanged(state.asset);
    if (state.segments > 0) return open;
    // Without a backlog, no value is late.
    state.backlogTimeMs = Number.NEGATIVE_INFINITY;
    state.queue.markLate(state.backlogTimeMs);
    return open;
  }

  #dropSpan(span: Span): void {
    this.#spanChanges++;
    this.pending.dropSpan(span);
    this.#spans.splice(this.#spans.indexOf(span), 1);
    const assets = new Set<AssetState>();
    for (const id of span.series) assets.add(this.seriesOf(id).asset);
    for (const asset of assets) asset.places = asset.places.filter((place) => place.span !== span);
  }

  /** Replaces the set of held series. Batches do not take values from held series. */
  holdSeries(ids: readonly number[]): void {
    const held = new Set(ids);
    const changed = new Set<AssetState>();
    for (const state of this.series) {
      if (!state || state.held === held.has(state.series.id)) continue;
      state.held = !state.held;
      changed.add(state.asset);
    }
    for (const asset of changed) {
      this.markChanged(asset);
      asset.backlog = 0;
      for (const { span, from, to } of asset.places) {
        for (let entry = from; entry < to; entry++) this.#changeBacklog(span, entry, openValues(span, entry));
      }
    }
  }

  addBatch(batch: Omit<BatchState, 'id'>): BatchState {
    const added = { id: this.numbers.batch++, ...batch };
    this.#batches.set(added.id, added);
    if (batch.lane === 'live') batch.asset.liveInFlight++;
    if (batch.hasBacklog) batch.asset.backlogInFlight++;
    this.markChanged(batch.asset);
    return added;
  }

  /** Removes a batch. Its lanes are free unless other parts of a divided batch are in flight. */
  endBatch(id: number): BatchState | undefined {
    const ended = this.#batches.get(id);
    if (!ended) return undefined;
    this.#batches.delete(id);
    if (ended.lane === 'live') ended.asset.liveInFlight--;
    if (ended.hasBacklog) ended.asset.backlogInFlight--;
    this.markChanged(ended.asset);
    return ended;
  }

  /** Adds a row to quarantine. */
  quarantine(entry: QuarantineEntry): void {
    this.pending.quarantine.push(entry);
    this.totals.quarantined += entry.count;
  }

  /** Changes the number of values in quarantine. */
  countQuarantined(values: number): void {
    this.totals.quarantined += values;
  }

  /** Returns the acceptance time of the oldest value on the clock of this run; `undefined` if the buffer is empty. */
  oldestAcceptedMs(): number | undefined {
    let oldestMs = Number.POSITIVE_INFINITY;
    for (const span of this.#spans) {
      if (this.times.acceptedMs(span.run, span.firstAcceptedMs) >= oldestMs) continue;
      oldestMs = Math.min(oldestMs, this.times.acceptedMs(span.run, oldestAcceptedMs(span)));
    }
    if (oldestMs < Number.POSITIVE_INFINITY) return oldestMs;
    const row = this.rows.find(({ left }) => left > 0);
    return row && this.times.acceptedMs(row.run, row.monotonicMs);
  }

  /** Returns the number of waiting values in each lane of an asset. */
  lanesOf(asset: AssetState): AssetLanes {
    let live = 0;
    let oldestSeq = Number.POSITIVE_INFINITY;
    for (const { held, queue } of asset.series) {
      if (held || queue.firstLiveSeq === undefined) continue;
      live += queue.live;
      oldestSeq = Math.min(oldestSeq, queue.firstLiveSeq);
    }
    const oldest = this.rowOf(oldestSeq);
    const oldestAtMs = oldest ? this.times.acceptedMs(oldest.run, oldest.monotonicMs) : 0;
    return {
      asset: asset.asset,
      live,
      oldestLiveAtMs: live === 0 ? Number.POSITIVE_INFINITY : oldestAtMs,
      backlog: asset.backlog,
      oldestBacklogAt: this.#oldestPlace(asset),
    };
  }

  /**
   * Returns the `place` of the oldest segment that can be posted. Removes exhausted entries at the front of `places`.
   */
  #oldestPlace(asset: AssetState): number {
    if (asset.backlog === 0) return Number.POSITIVE_INFINITY;
    let exhausted = 0;
    for (const { span, from, to } of asset.places) {
      let hasSegments = false;
      for (let entry = from; entry < to; entry++) {
        if (span.gone[entry]) continue;
        hasSegments = true;
        if (span.inFlight.has(entry) || this.seriesOf(span.series[entry]!).held) continue;
        asset.places.splice(0, exhausted);
        return span.place;
      }
      if (!hasSegments && asset.places[exhausted]!.span === span) exhausted++;
    }
    return Number.POSITIVE_INFINITY;
  }

  /** Throws `store.no_series` before values of an unknown series are written, because they could never be delivered. */
  checkSeries({ series, length }: Columns, newSeries: readonly Series[]): void {
    let added: Set<number> | undefined;
    for (let i = 0; i < length; i++) {
      const id = series[i]!;
      if (this.series[id] !== undefined) continue;
      added ??= new Set([...newSeries.map((one) => one.id), ...this.pending.newSeries.keys()]);
      if (!added.has(id)) throw new StoreError(`unknown series ${id}`, { code: 'store.no_series' });
    }
  }
}
