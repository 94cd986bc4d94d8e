import { AcceptanceTimes } from './acceptance-times.ts';
import { CompactSeries } from './compact-series.ts';
import type { Arrival } from './compaction/arrivals.ts';
import type { SettledRun } from './format/log-row.ts';
import { type Columns, giveBackColumns } from './format/value-columns.ts';
import { StampCorrection } from './recovery/stamp-correction.ts';
import type { Series } from './series.ts';
import { NO_QUEUE, SeriesQueue } from './series-queue.ts';
import { GONE, oldestAcceptedMs, openValues, type Span } from './span.ts';

/** What the store thread holds in memory: the fresh values and the directories of the rest. Never the backlog itself. */

export interface SeriesState {
  series: Series;
  asset: AssetState;
  /** `NO_QUEUE` where nothing of it stands in the log; filled by `queueOf`. */
  queue: SeriesQueue;
  /** Arrivals up to here, in order of acceptance, are flushed: a flush takes some series a step, an arrival has many. */
  flushedSeq: number;
  /** Segments that are not gone. */
  segments: number;
  /** Places in the directories of spans, gone or not. */
  entries: number;
  /** The last value that was accepted, in order of acceptance. */
  lastSeq: number;
  /** The latest time of a value in the backlog; -Infinity where there is none. A live value must lie behind it. */
  backlogTimeMs: number;
  held: boolean;
}

/** A row of the log that still holds something. */
export interface RowState {
  id: number;
  firstSeq: number;
  count: number;
  /** Values that are neither settled nor flushed. */
  left: number;
  /** Its values are in memory: they may be posted and flushed. */
  isLoaded: boolean;
  run: number;
  /** Of the run that took it in: `StoreState.times` compares it. */
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
  /** The target of the last batch, where they go apart (`TakeRequest.oneInstrumentation`): the next one is another's. -Infinity before. */
  lastTarget: number;
}

/** Values of one series in a batch, and where they stand. */
export interface BatchSlice {
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
  /** The backlog lane is taken: always with a batch of it, and by a live post that took some along. */
  along: boolean;
  slices: BatchSlice[];
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
  readonly times = new AcceptanceTimes();
  nextSeq = 0;
  nextRow = 1;
  nextSpan = 1;
  nextPlace = 1;
  nextBatch = 1;
  /** Values in the log that are not settled. */
  logValues = 0;
  /** Values in segments that are not settled. */
  segmentValues = 0;
  /** Values in quarantine. */
  quarantined = 0;
  /** Values that were left on disk for want of memory. */
  notLoaded = 0;
  /** Counts the spans that came and went: what was decided about compaction holds until it moves. */
  spanChanges = 0;
  readonly #compact = new CompactSeries();
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
        // Each of its own length: an array that grows from none has room for seventeen.
        series: [],
        places: [],
        backlog: 0,
        liveUnderWay: 0,
        backlogUnderWay: 0,
        nextSeries: 0,
        lastTarget: Number.NEGATIVE_INFINITY,
      };
      this.assets.set(series.asset, asset);
    }
    const state: SeriesState = {
      series: this.#compact.copy(series),
      asset,
      queue: NO_QUEUE,
      flushedSeq: -1,
      segments: 0,
      entries: 0,
      lastSeq: -1,
      backlogTimeMs: Number.NEGATIVE_INFINITY,
      held: false,
    };
    this.series[series.id] = state;
    if (asset.series.length === 0) asset.series = [state];
    else asset.series.push(state);
    return state;
  }

  /** To put values in. */
  queueOf(state: SeriesState): SeriesQueue {
    if (state.queue === NO_QUEUE) state.queue = new SeriesQueue();
    return state.queue;
  }

  /** Values have left the queue: an empty one is given back. Nothing can name a place in it. */
  releaseQueue(state: SeriesState): void {
    const { length, arrived, arrivedLate } = state.queue;
    if (length === 0 && arrived === 0 && arrivedLate === 0) state.queue = NO_QUEUE;
  }

  /** Values were committed. They stay as they came until a post, a flush or somebody who looks needs them by series. */
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
      state.lastSeq = firstSeq + i;
      if (firstSeq + i <= state.flushedSeq) continue;
      const queue = this.queueOf(state);
      if (timeMs[i]! <= state.backlogTimeMs) {
        if (queue.arrivedLate++ === 0) queue.arrivedLateSeq = firstSeq + i;
      } else if (queue.arrived++ === 0) queue.arrivedSeq = firstSeq + i;
      if (state.asset === asset) continue;
      asset = state.asset;
      this.touched.add(asset);
    }
  }

  /** Gives the arrivals to their series' queues, those up to a place where one is told. Whoever looks into a queue has called it before. */
  distribute(throughSeq = Number.POSITIVE_INFINITY): void {
    const arrivals = this.arrivalsThrough(throughSeq);
    if (arrivals.length === 0) return;
    this.#arrivals = this.#arrivals.slice(arrivals.length);
    for (const state of this.series) {
      if (!state || state.queue === NO_QUEUE) continue;
      state.queue.arrived = 0;
      state.queue.arrivedLate = 0;
    }
    for (const arrival of this.#arrivals) this.#count(arrival);
    for (const { columns, firstSeq } of arrivals) {
      for (let i = 0; i < columns.length; i++) {
        const state = this.seriesOf(columns.series[i]!);
        if (firstSeq + i <= state.flushedSeq) continue;
        const time = columns.timeMs[i]!;
        const late = time <= state.backlogTimeMs;
        this.queueOf(state).push(time, columns.value[i]!, firstSeq + i, columns.flags[i]!, late);
      }
      giveBackColumns(columns);
    }
  }

  /** No queue holds anything: the arrivals are all of the log that is not settled. */
  get holdsOnlyArrivals(): boolean {
    return !this.series.some((state) => state !== undefined && state.queue.length > 0);
  }

  /** What has arrived up to a place and no queue holds. Of some series it may be flushed already. */
  arrivalsThrough(throughSeq: number): readonly Arrival[] {
    const later = this.#arrivals.findIndex(({ firstSeq }) => firstSeq > throughSeq);
    return later < 0 ? this.#arrivals : this.#arrivals.slice(0, later);
  }

  /** Nothing of them is left: all is flushed, or in the queues. */
  dropArrivals(throughSeq: number): void {
    const dropped = this.arrivalsThrough(throughSeq);
    this.#arrivals = this.#arrivals.slice(dropped.length);
    for (const { columns } of dropped) giveBackColumns(columns);
  }

  /** Decides anew which arrivals of some series are late. */
  #recount(ids: Uint32Array, throughSeq: number): void {
    const wanted = new Uint8Array(this.series.length);
    for (const id of ids) {
      const state = this.seriesOf(id);
      wanted[id] = 1;
      if (state.queue === NO_QUEUE) continue;
      state.queue.arrived = 0;
      state.queue.arrivedLate = 0;
    }
    for (const arrival of this.#arrivals) if (arrival.firstSeq > throughSeq) this.#count(arrival, wanted);
    for (const id of ids) this.releaseQueue(this.seriesOf(id));
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
      if (asset.places.length === 0) asset.places = [{ span, from, to: entry }];
      else asset.places.splice(place, 0, { span, from, to: entry });
      this.touched.add(asset);
    }
    for (let i = 0; i < span.series.length; i++) {
      const state = this.seriesOf(span.series[i]!);
      state.entries++;
      if (span.gone[i]) continue;
      state.segments++;
      state.backlogTimeMs = Math.max(state.backlogTimeMs, span.lastTimeMs[i]!);
      const open = openValues(span, i);
      this.segmentValues += open;
      if (!state.held && !span.underWay.has(i)) state.asset.backlog += open;
    }
    this.#recount(span.series, throughSeq);
    // What waits in the log may have become late by it, or may have ceased to be while a compaction took the old spans out.
    for (const id of new Set(span.series)) {
      const { queue, backlogTimeMs } = this.seriesOf(id);
      queue.markLate(backlogTimeMs);
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
      if (state && state.queue !== NO_QUEUE) count++;
    }
    return count;
  }

  /** When the oldest value was accepted, by the clock of this run; `undefined` if there is none. */
  oldestAcceptedMs(): number | undefined {
    let oldestMs = Number.POSITIVE_INFINITY;
    for (const span of this.spans) {
      if (this.times.acceptedMs(span.run, span.firstAcceptedMs) >= oldestMs) continue;
      oldestMs = Math.min(oldestMs, this.times.acceptedMs(span.run, oldestAcceptedMs(span)));
    }
    if (oldestMs < Number.POSITIVE_INFINITY) return oldestMs;
    const row = this.rows.find(({ left }) => left > 0);
    return row && this.times.acceptedMs(row.run, row.monotonicMs);
  }

  /** Takes a span out: nothing of it is left. */
  dropSpan(span: Span): void {
    this.spanChanges++;
    const at = this.spans.indexOf(span);
    if (at < 0) return;
    this.spans.splice(at, 1);
    const assets = new Set<AssetState>();
    for (const id of span.series) {
      const state = this.seriesOf(id);
      state.entries--;
      assets.add(state.asset);
    }
    for (const asset of assets) asset.places = asset.places.filter((place) => place.span !== span);
  }

  /** One segment fewer; the series' backlog may have ended with it, and then nothing of it is late any more. */
  segmentGone(state: SeriesState): void {
    state.segments--;
    this.touched.add(state.asset);
    if (state.segments > 0) return;
    state.backlogTimeMs = Number.NEGATIVE_INFINITY;
    const { queue } = state;
    if (queue.arrivedLate > 0) {
      const { arrived, arrivedSeq, arrivedLateSeq } = queue;
      queue.arrivedSeq = arrived > 0 ? Math.min(arrivedSeq, arrivedLateSeq) : arrivedLateSeq;
      queue.arrived += queue.arrivedLate;
      queue.arrivedLate = 0;
    }
    queue.markLate(state.backlogTimeMs);
  }

  /** Takes a segment out, as `GONE` or `LOST`. Returns the number of values that were left in it. */
  loseEntry(span: Span, entry: number, as = GONE): number {
    const state = this.seriesOf(span.series[entry]!);
    const open = openValues(span, entry);
    if (!state.held && !span.underWay.has(entry)) state.asset.backlog -= open;
    this.segmentValues -= open;
    span.gone[entry] = as;
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

  /** Which run of the agent accepted the value at a place of a series' queue. */
  runOf({ queue }: SeriesState, position: number): number {
    return this.rowOf(queue.seqAt(position))?.run ?? 0;
  }

  /** Values of the log are settled or flushed: their rows lose them. Gives the run of acceptance they made. */
  leaveRows(state: SeriesState, position: number, count: number): SettledRun {
    const { queue } = state;
    let row: RowState | undefined;
    for (let at = position; at < position + count; at++) {
      const seq = queue.seqAt(at);
      if (!row || seq >= row.firstSeq + row.count) row = this.rowOf(seq);
      if (row) row.left--;
    }
    this.logValues -= count;
    return { series: state.series.id, firstSeq: queue.seqAt(position), lastSeq: queue.seqAt(position + count - 1) };
  }
}
