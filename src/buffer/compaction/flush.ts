/**
 * A flush converts the front of the log into spans. Settled values are omitted; the rest becomes one segment per
 * series. Values in flight become a separate segment, so that their batch can still find them.
 *
 * A step flushes some series into one span, so that commits remain short. A step changes memory immediately and is
 * written to disk with the next commit, which writes the segments and records that the values left the log. The final
 * step deletes the rows.
 */

import { announce } from '../../base/crash-points.ts';
import {
  lastTimeOf,
  MAX_SEGMENT_VALUES,
  packSegment,
  type SegmentHead,
  type SegmentValues,
} from '../format/segment.ts';
import type { Columns } from '../format/value-columns.ts';
import { type Arrival, type BatchSlice, cutSlice, type RowState, type SeriesState } from '../records.ts';
import { leadAt, MAX_ENTRIES, type Span, type SpanEntry } from '../span.ts';
import type { PackedEntry, StoreState } from '../state.ts';
import type { StepSize } from '../store-facts.ts';

/** Returns the number of loaded rows of one run at the front, because a span belongs to one run. */
export function rowsOfOneRun(rows: readonly RowState[], max: number): number {
  let count = 0;
  const isOfIt = ({ run, isLoaded }: RowState) => isLoaded && run === rows[0]!.run;
  while (count < max && count < rows.length && isOfIt(rows[count]!)) count++;
  return count;
}

/** Half of the maximum, because the segments of the final series can exceed the step size. */
const WHOLE: StepSize = { values: Number.POSITIVE_INFINITY, segments: MAX_ENTRIES / 2 };

/** A flush in progress: its position, and the rows at the front when it started. */
interface RunningFlush {
  last: RowState;
  throughSeq: number;
  /** All series when the flush started, ordered by asset. Later series have no values in these rows. */
  series: SeriesState[];
  next: number;
  /** Sorted arrivals of the series from `next`; `first` is the first arrival. */
  sorted: { first: Arrival | undefined; values: SortedValues; next: number } | undefined;
}

export class Flush {
  readonly #state: StoreState;
  #running: RunningFlush | undefined;

  constructor(state: StoreState) {
    this.#state = state;
  }

  get isRunning(): boolean {
    return this.#running !== undefined;
  }

  /** Resumes a flush that was interrupted, so that all its spans have the same age. */
  resume(): void {
    const { spans, rows } = this.#state;
    const last = spans.at(-1);
    if (!last) return;
    const after = rows.findIndex((row) => row.run !== last.run || row.monotonicMs > last.acceptedMs);
    const rowCount = rowsOfOneRun(rows, after < 0 ? rows.length : after);
    if (rowCount > 0) this.begin(rowCount);
  }

  /** Returns whether the span belongs to the flush in progress, which will create more spans. */
  isWriting({ run, acceptedMs }: Span): boolean {
    const last = this.#running?.last;
    return last !== undefined && last.run === run && last.monotonicMs === acceptedMs;
  }

  /** Starts a flush of the first `rowCount` rows. */
  begin(rowCount: number): void {
    const last = this.#state.rows[rowCount - 1]!;
    const series = [...this.#state.assets.values()].flatMap((asset) => asset.series);
    this.#running = { last, throughSeq: last.firstSeq + last.count - 1, series, next: 0, sorted: undefined };
  }

  /** Completes the flush in progress. */
  finish(): void {
    while (this.#running) this.step(WHOLE);
  }

  /** Abandons the flush in progress. Values that have not been flushed are moved to the queues. */
  abandon(): void {
    if (!this.#running) return;
    this.#running = undefined;
    this.#state.distribute();
  }

  /** Flushes the next series, at least one. */
  step(size: StepSize): void {
    const flush = this.#running;
    if (!flush) return;
    const state = this.#state;
    const entries: PackedEntry[] = [];
    if (state.hasOnlyArrivals) this.#flushArrivals(flush, size, entries);
    else {
      state.distribute(flush.throughSeq);
      this.#flushQueues(flush, size, entries);
    }
    const isDone = flush.next === flush.series.length;
    const { last, throughSeq } = flush;
    if (isDone) {
      this.#running = undefined;
      state.dropRows(state.rows.indexOf(last) + 1);
    }
    announce('flush');
    state.addSegments({ run: last.run, acceptedMs: last.monotonicMs }, entries, throughSeq);
    if (isDone) state.dropArrivals(flush.throughSeq);
  }

  /** Flushes values that no batch or queue contains; they are sorted once, in the first step. */
  #flushArrivals(flush: RunningFlush, size: StepSize, entries: PackedEntry[]): void {
    const state = this.#state;
    const old = state.arrivalsThrough(flush.throughSeq);
    // Arrivals can move to the queues between steps.
    if (!flush.sorted || flush.sorted.first !== old[0]) {
      const order = flush.series.map(({ series }) => series.id);
      flush.sorted = { first: old[0], values: sortArrivals(old, order, state.series.length), next: 0 };
    }
    const { first, values: sorted } = flush.sorted;
    for (let values = 0; flush.next < flush.series.length && values < size.values && entries.length < size.segments; ) {
      const one = flush.series[flush.next++]!;
      const { id } = one.series;
      const found = sorted.series[flush.sorted.next];
      if (found?.id !== id) continue;
      flush.sorted.next++;
      const { start, count, firstSeq } = found;
      values += count;
      state.flushArrivals(one, { firstSeq: first!.firstSeq, throughSeq: flush.throughSeq, count });
      const head = { series: id, place: state.next.place, leadSeconds: this.#leadSeconds(firstSeq) };
      addEntry(head, sorted, start, start + count, undefined, entries);
    }
  }

  #flushQueues(flush: RunningFlush, size: StepSize, entries: PackedEntry[]): void {
    const inFlight = slicesInLog(this.#state);
    for (let values = 0; flush.next < flush.series.length && values < size.values && entries.length < size.segments; ) {
      const one = flush.series[flush.next++]!;
      const count = one.queue.countThrough(flush.throughSeq);
      if (count > 0) this.#flushQueue(one, count, inFlight.get(one) ?? [], entries);
      values += count;
    }
  }

  #flushQueue(series: SeriesState, count: number, inFlight: readonly SliceInLog[], entries: PackedEntry[]): void {
    const { queue } = series;
    const end = queue.popped + count;
    let position = queue.popped;
    for (const { slice, position: from, slices } of inFlight) {
      if (from >= end) break;
      this.#flushWaiting(series, position, from, entries);
      // A slice that extends beyond the flushed rows is cut.
      if (from + slice.count > end) slices.splice(slices.indexOf(slice) + 1, 0, cutSlice(slice, end - from));
      this.#flushRun(series, from, slice.count, slice, entries);
      position = from + slice.count;
    }
    this.#flushWaiting(series, position, end, entries);
    this.#state.dropFlushed(series, count);
  }

  /** Flushes the unsettled runs between two positions. */
  #flushWaiting(series: SeriesState, from: number, to: number, entries: PackedEntry[]): void {
    const { queue } = series;
    let position = from;
    while (position < to) {
      if (queue.isSettled(position)) {
        position++;
        continue;
      }
      let end = position + 1;
      while (end < to && !queue.isSettled(end)) end++;
      this.#flushRun(series, position, end - position, undefined, entries);
      position = end;
    }
  }

  #flushRun(
    state: SeriesState,
    position: number,
    count: number,
    slice: BatchSlice | undefined,
    entries: PackedEntry[],
  ): void {
    this.#state.leaveRows(state, position, count);
    const values = { count, ...state.queue.copy(position, count) };
    const leadSeconds = this.#leadSeconds(state.queue.seqAt(position));
    const head = { series: state.series.id, place: this.#state.next.place, leadSeconds };
    addEntry(head, values, 0, count, slice, entries);
  }

  /** Returns how many seconds the value was accepted before the latest value of the flush. */
  #leadSeconds(seq: number): number {
    const lastMs = this.#running!.last.monotonicMs;
    return Math.ceil((lastMs - (this.#state.rowOf(seq)?.monotonicMs ?? lastMs)) / 1000);
  }
}

interface SliceInLog {
  slice: BatchSlice;
  /** Position in the series queue. */
  position: number;
  /** All slices of its batch. */
  slices: BatchSlice[];
}

/** Returns the slices in the log by series, each in order. */
function slicesInLog(state: StoreState): Map<SeriesState, SliceInLog[]> {
  const found = new Map<SeriesState, SliceInLog[]>();
  for (const batch of state.batches.values()) {
    for (const slice of batch.slices) {
      if (!('position' in slice.at)) continue;
      const list = found.get(slice.series) ?? [];
      list.push({ slice, position: slice.at.position, slices: batch.slices });
      found.set(slice.series, list);
    }
  }
  for (const list of found.values()) list.sort((a, b) => a.position - b.position);
  return found;
}

function addEntry(
  { series, place, leadSeconds }: SegmentHead & Pick<SpanEntry, 'leadSeconds'>,
  values: SegmentValues,
  from: number,
  to: number,
  slice: BatchSlice | undefined,
  entries: PackedEntry[],
): void {
  // Values in flight stay in one segment.
  const max = slice ? Number.POSITIVE_INFINITY : MAX_SEGMENT_VALUES;
  for (let at = from; at < to; at += max) {
    const end = Math.min(to, at + max);
    const packed = packSegment(values, at, end, { series, place });
    const lastTimeMs = lastTimeOf(values, at, end);
    const lead = leadAt(leadSeconds, at - from, to - from);
    entries.push({ series, count: end - at, lastTimeMs, leadSeconds: lead, packed, slice });
  }
}

/**
 * Values grouped by series, each group in order of acceptance. The values of a series are at indexes `start` up to
 * `start + count`.
 */
interface SortedValues {
  /** `firstSeq` is the sequence number of the first value. */
  series: { id: number; start: number; count: number; firstSeq: number }[];
  /** Total number of values. */
  count: number;
  timeMs: Float64Array;
  value: Float64Array;
  flags: Uint8Array;
}

/** Sorts arrivals by series, in the given order of series. */
function sortArrivals(arrivals: readonly Arrival[], order: readonly number[], seriesRoom: number): SortedValues {
  const counts = new Uint32Array(seriesRoom);
  const firstSeqs = new Float64Array(seriesRoom);
  for (const { columns, firstSeq } of arrivals) {
    const { series, length } = columns;
    for (let i = 0; i < length; i++) {
      const id = series[i]!;
      if (counts[id]!++ === 0) firstSeqs[id] = firstSeq + i;
    }
  }
  const total = order.reduce((sum, id) => sum + counts[id]!, 0);
  const next = new Int32Array(seriesRoom).fill(NOT_WANTED);
  const sorted: SortedValues = {
    series: [],
    count: total,
    timeMs: new Float64Array(total),
    value: new Float64Array(total),
    flags: new Uint8Array(total),
  };
  let start = 0;
  for (const id of order) {
    const count = counts[id]!;
    if (count === 0) continue;
    sorted.series.push({ id, start, count, firstSeq: firstSeqs[id]! });
    next[id] = start;
    start += count;
  }
  for (const { columns } of arrivals) scatter(columns, next, sorted);
  return sorted;
}

const NOT_WANTED = -1;

function scatter({ length, series, timeMs, value, flags }: Columns, next: Int32Array, to: SortedValues): void {
  for (let i = 0; i < length; i++) {
    const id = series[i]!;
    const at = next[id]!;
    if (at === NOT_WANTED) continue;
    next[id] = at + 1;
    to.timeMs[at] = timeMs[i]!;
    to.value[at] = value[i]!;
    to.flags[at] = flags[i]!;
  }
}
