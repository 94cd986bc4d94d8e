import type { Arrival } from './arrivals.ts';
import { keyHead } from './body-writer.ts';
import type { AssetLanes } from './lanes.ts';
import type { SettledRun } from './log-row.ts';
import type { Series } from './series.ts';
import { SeriesQueue } from './series-queue.ts';
import { settledCount } from './settled-ranges.ts';
import type { Span } from './span.ts';
import { StampCorrection } from './stamp-correction.ts';
import type { Columns } from './value-columns.ts';

/** What the store thread holds in memory: the fresh values and the directories of the rest. Never the backlog itself. */

export interface SeriesState {
  series: Series;
  asset: AssetState;
  queue: SeriesQueue;
  /** Arrivals that may be posted live, and those that wait to be folded; of each the first in order of acceptance. */
  arrived: number;
  arrivedSeq: number;
  arrivedLate: number;
  arrivedLateSeq: number;
  /** Arrivals up to here, in order of acceptance, are folded: a fold takes some series a step, an arrival has many. */
  foldedSeq: number;
  /** Segments that are not gone. */
  segments: number;
  /** The latest time of a value in the backlog; -Infinity where there is none. A live value must lie behind it. */
  backlogTimeMs: number;
  held: boolean;
  /** The key's part of a body, made when first needed. */
  head: Uint8Array | undefined;
}

/** A row of the log that still holds something. */
export interface RowState {
  id: number;
  firstSeq: number;
  count: number;
  /** Values that are neither settled nor folded. */
  left: number;
  run: number;
  monotonicMs: number;
}

export interface AssetState {
  asset: number;
  series: SeriesState[];
  /** Spans in which the asset has segments, in order, and its entries in them: [from, to). */
  places: { span: Span; from: number; to: number }[];
  /** Values in its segments that could be taken now: not settled, not under way, not of a held series. */
  backlog: number;
  /** Batches under way, by lane. */
  liveUnderWay: number;
  backlogUnderWay: number;
  /** Where the next post starts among the series, so that a full post does not always leave out the same. */
  nextSeries: number;
}

/** Values of one series in a batch, and where they stand. */
export interface Part {
  series: SeriesState;
  /** In the log: an absolute position of the queue. In a segment: the entry, and from which value. */
  at: { position: number } | { span: Span; entry: number; from: number };
  count: number;
  timeMs: Float64Array;
  value: Float64Array;
  flags: Uint8Array;
}

export interface BatchState {
  id: number;
  asset: AssetState;
  lane: 'live' | 'backlog';
  /** The backlog lane is taken too: a live post that took some along. */
  along: boolean;
  parts: Part[];
}

export class StoreState {
  readonly series: (SeriesState | undefined)[] = [];
  readonly assets = new Map<number, AssetState>();
  /** In order of acceptance. */
  rows: RowState[] = [];
  spans: Span[] = [];
  /** Committed, and not in the queues yet: the end of the log. */
  #arrivals: Arrival[] = [];
  readonly batches = new Map<number, BatchState>();
  readonly stamps = new StampCorrection();
  nextSeq = 0;
  nextRow = 1;
  nextSpan = 1;
  nextPlace = 1;
  nextBatch = 1;
  /** Values in the log that are not settled. */
  logValues = 0;
  /** Values in segments that are not settled. */
  segmentValues = 0;
  /** Counts the spans that came and went: what was decided about merging holds until it moves. */
  spanChanges = 0;
  /** Assets whose lanes changed since they were last told. */
  readonly touched = new Set<AssetState>();

  seriesOf(id: number): SeriesState {
    const found = this.series[id];
    if (!found) throw new Error(`series ${id} is not known to the store`);
    return found;
  }

  addSeries(series: Series): SeriesState {
    const found = this.series[series.id];
    if (found) return found;
    let asset = this.assets.get(series.asset);
    if (!asset) {
      asset = {
        asset: series.asset,
        series: [],
        places: [],
        backlog: 0,
        liveUnderWay: 0,
        backlogUnderWay: 0,
        nextSeries: 0,
      };
      this.assets.set(series.asset, asset);
    }
    const state: SeriesState = {
      series,
      asset,
      queue: new SeriesQueue(),
      arrived: 0,
      arrivedSeq: 0,
      arrivedLate: 0,
      arrivedLateSeq: 0,
      foldedSeq: -1,
      segments: 0,
      backlogTimeMs: Number.NEGATIVE_INFINITY,
      held: false,
      head: undefined,
    };
    this.series[series.id] = state;
    asset.series.push(state);
    return state;
  }

  /** Values were committed. They stay as they came until a post, a fold or somebody who looks needs them by series. */
  takeIn(columns: Columns): void {
    if (columns.length === 0) return;
    const arrival = { columns, firstSeq: this.nextSeq };
    this.#arrivals.push(arrival);
    this.#count(arrival);
    this.nextSeq += columns.length;
    this.logValues += columns.length;
  }

  #count({ columns: { length, series, timeMs }, firstSeq }: Arrival, wanted?: Uint8Array): void {
    let asset: AssetState | undefined;
    for (let i = 0; i < length; i++) {
      if (wanted && wanted[series[i]!] === 0) continue;
      const state = this.seriesOf(series[i]!);
      if (firstSeq + i <= state.foldedSeq) continue;
      if (timeMs[i]! <= state.backlogTimeMs) {
        if (state.arrivedLate++ === 0) state.arrivedLateSeq = firstSeq + i;
      } else if (state.arrived++ === 0) state.arrivedSeq = firstSeq + i;
      if (state.asset === asset) continue;
      asset = state.asset;
      this.touched.add(asset);
    }
  }

  /** Gives the arrivals to their series' queues, those up to a place where one is told. Whoever looks into a queue has called it before. */
  distribute(throughSeq = Number.POSITIVE_INFINITY): void {
    const arrivals = this.arrivalsThrough(throughSeq);
    if (arrivals.length === 0) return;
    this.dropArrivals(throughSeq);
    for (const state of this.series) {
      if (!state) continue;
      state.arrived = 0;
      state.arrivedLate = 0;
    }
    for (const arrival of this.#arrivals) this.#count(arrival);
    for (const { columns, firstSeq } of arrivals) {
      for (let i = 0; i < columns.length; i++) {
        const { queue, backlogTimeMs, foldedSeq } = this.seriesOf(columns.series[i]!);
        if (firstSeq + i <= foldedSeq) continue;
        const time = columns.timeMs[i]!;
        queue.push(time, columns.value[i]!, firstSeq + i, columns.flags[i]!, time <= backlogTimeMs);
      }
    }
  }

  /** No queue holds anything: the arrivals are all of the log that is not settled. */
  get holdsOnlyArrivals(): boolean {
    return !this.series.some((state) => state !== undefined && state.queue.length > 0);
  }

  /** What has arrived up to a place and no queue holds. Of some series it may be folded already. */
  arrivalsThrough(throughSeq: number): readonly Arrival[] {
    const later = this.#arrivals.findIndex(({ firstSeq }) => firstSeq > throughSeq);
    return later < 0 ? this.#arrivals : this.#arrivals.slice(0, later);
  }

  /** Nothing of them is left: all is folded, or in the queues. */
  dropArrivals(throughSeq: number): void {
    this.#arrivals = this.#arrivals.filter(({ firstSeq }) => firstSeq > throughSeq);
  }

  /** Decides anew which arrivals of some series are late. */
  #recount(ids: Uint32Array, throughSeq: number): void {
    const wanted = new Uint8Array(this.series.length);
    for (const id of ids) {
      const state = this.seriesOf(id);
      state.arrived = 0;
      state.arrivedLate = 0;
      wanted[id] = 1;
    }
    for (const arrival of this.#arrivals) if (arrival.firstSeq > throughSeq) this.#count(arrival, wanted);
  }

  headOf(state: SeriesState): Uint8Array {
    state.head ??= keyHead(state.series);
    return state.head;
  }

  /**
   * Puts a span where it belongs and its segments under their assets. Entries that a batch has already are marked before.
   * `throughSeq`: of its series no arrival up to there is left.
   */
  addSpan(span: Span, throughSeq = -1): void {
    this.spanChanges++;
    let at = this.spans.length;
    while (at > 0 && this.spans[at - 1]!.place > span.place) at--;
    this.spans.splice(at, 0, span);
    let entry = 0;
    while (entry < span.series.length) {
      const asset = this.seriesOf(span.series[entry]!).asset;
      const from = entry;
      while (entry < span.series.length && this.seriesOf(span.series[entry]!).asset === asset) entry++;
      let place = asset.places.length;
      while (place > 0 && asset.places[place - 1]!.span.place > span.place) place--;
      asset.places.splice(place, 0, { span, from, to: entry });
      this.touched.add(asset);
    }
    for (let i = 0; i < span.series.length; i++) {
      if (span.gone[i]) continue;
      const state = this.seriesOf(span.series[i]!);
      state.segments++;
      state.backlogTimeMs = Math.max(state.backlogTimeMs, span.lastTimeMs[i]!);
      const open = openValues(span, i);
      this.segmentValues += open;
      if (!state.held && !span.underWay.has(i)) state.asset.backlog += open;
    }
    this.#recount(span.series, throughSeq);
    // What waits in the log may have become late by it, or may have ceased to be while a merge took the old spans out.
    for (const id of new Set(span.series)) {
      const state = this.seriesOf(id);
      if (state.queue.length > 0) state.queue.markLate(state.backlogTimeMs);
    }
  }

  /** Series that must not be taken: the whole set. */
  holdSeries(ids: readonly number[]): void {
    const held = new Set(ids);
    for (const state of this.series) {
      if (!state || state.held === held.has(state.series.id)) continue;
      state.held = !state.held;
      this.touched.add(state.asset);
    }
    for (const asset of this.touched) asset.backlog = this.#countBacklog(asset);
  }

  #countBacklog(asset: AssetState): number {
    let backlog = 0;
    for (const { span, from, to } of asset.places) {
      for (let entry = from; entry < to; entry++) {
        if (!span.underWay.has(entry) && !this.seriesOf(span.series[entry]!).held) backlog += openValues(span, entry);
      }
    }
    return backlog;
  }

  /** How many series have values in the log. */
  seriesInLog(): number {
    let count = 0;
    for (const state of this.series) {
      if (state && (state.queue.length > 0 || state.arrived > 0 || state.arrivedLate > 0)) count++;
    }
    return count;
  }

  /** Takes a span out: nothing of it is left. */
  dropSpan(span: Span): void {
    this.spanChanges++;
    const at = this.spans.indexOf(span);
    if (at >= 0) this.spans.splice(at, 1);
    const assets = new Set(Array.from(span.series, (series) => this.seriesOf(series).asset));
    for (const asset of assets) asset.places = asset.places.filter((place) => place.span !== span);
  }

  /** One segment fewer; the series' backlog may have ended with it, and then nothing of it is late any more. */
  segmentGone(state: SeriesState): void {
    state.segments--;
    this.touched.add(state.asset);
    if (state.segments > 0) return;
    state.backlogTimeMs = Number.NEGATIVE_INFINITY;
    if (state.arrivedLate > 0) {
      const { arrived, arrivedSeq, arrivedLateSeq } = state;
      state.arrivedSeq = arrived > 0 ? Math.min(arrivedSeq, arrivedLateSeq) : arrivedLateSeq;
      state.arrived += state.arrivedLate;
      state.arrivedLate = 0;
    }
    if (state.queue.late > 0) state.queue.markLate(state.backlogTimeMs);
  }

  /** Marks a segment as gone: settled, quarantined, dropped or moved. Gives the values that were left in it. */
  loseEntry(span: Span, entry: number): number {
    const state = this.seriesOf(span.series[entry]!);
    const open = openValues(span, entry);
    if (!state.held && !span.underWay.has(entry)) state.asset.backlog -= open;
    this.segmentValues -= open;
    span.gone[entry] = 1;
    span.left--;
    span.changes++;
    span.progress.delete(entry);
    this.segmentGone(state);
    return open;
  }

  /** The row that holds `seq`; rows are few, the search is by halves. */
  rowOf(seq: number): RowState | undefined {
    let low = 0;
    let high = this.rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.rows[middle]!.firstSeq <= seq) low = middle + 1;
      else high = middle;
    }
    return this.rows[low - 1];
  }

  /** Values of the log are settled or folded: their rows lose them. Gives the run of acceptance they made. */
  leaveRows(state: SeriesState, position: number, count: number): SettledRun {
    const { queue } = state;
    let row: RowState | undefined;
    for (let at = position; at < position + count; at++) {
      const seq = queue.seqAt(at);
      if (!row || seq < row.firstSeq || seq >= row.firstSeq + row.count) row = this.rowOf(seq);
      if (row) row.left--;
    }
    this.logValues -= count;
    return { series: state.series.id, firstSeq: queue.seqAt(position), lastSeq: queue.seqAt(position + count - 1) };
  }

  lanesOf(asset: AssetState): AssetLanes {
    let live = 0;
    let oldestSeq = Number.POSITIVE_INFINITY;
    for (const state of asset.series) {
      const { queue, arrived } = state;
      if (state.held || queue.waiting + arrived === 0) continue;
      live += queue.waiting + arrived;
      oldestSeq = Math.min(oldestSeq, queue.waiting > 0 ? queue.seqAt(queue.firstWaiting()) : state.arrivedSeq);
    }
    return {
      asset: asset.asset,
      live,
      oldestLiveAtMs: live === 0 ? Number.POSITIVE_INFINITY : (this.rowOf(oldestSeq)?.monotonicMs ?? 0),
      backlog: asset.backlog,
      oldestBacklogAt: oldestPlace(asset, this),
    };
  }
}

/** Where the oldest segment stands that could be taken. Places at the front that hold nothing any more fall away. */
function oldestPlace(asset: AssetState, state: StoreState): number {
  if (asset.backlog === 0) return Number.POSITIVE_INFINITY;
  let exhausted = 0;
  for (const { span, from, to } of asset.places) {
    let alive = false;
    for (let entry = from; entry < to; entry++) {
      if (span.gone[entry]) continue;
      alive = true;
      if (span.underWay.has(entry) || state.seriesOf(span.series[entry]!).held) continue;
      if (exhausted > 0) asset.places.splice(0, exhausted);
      return span.place;
    }
    if (!alive && asset.places[exhausted]?.span === span) exhausted++;
  }
  return Number.POSITIVE_INFINITY;
}

/** Values of a segment that are not settled. */
export function openValues(span: Span, entry: number): number {
  if (span.gone[entry]) return 0;
  const ranges = span.progress.get(entry);
  return span.count[entry]! - (ranges ? settledCount(ranges) : 0);
}
