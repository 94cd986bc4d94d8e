/**
 * Flush: the front of the log becomes spans. What is settled falls away, what is not becomes a segment for each
 * series; what a batch has under way becomes a segment of its own, so that the batch still finds it.
 *
 * It goes some series a step, a span each, so that no commit waits long. A step happens in memory at once and is on disk
 * with the next commit, which writes the segments, and in the log that their values have left it; the last step deletes
 * the rows. Between steps everything is as it must be: values that are flushed stand in segments, the others in the log.
 */

import { cutSlice } from '../batches/batch-slices.ts';
import {
  lastTimeOf,
  MAX_SEGMENT_VALUES,
  packSegment,
  type SegmentHead,
  type SegmentValues,
} from '../format/segment.ts';
import type { Pending } from '../pending.ts';
import { leadAt, newSpan, type Span, type SpanEntry, segmentId } from '../span.ts';
import type { BatchSlice, RowState, SeriesState, StoreState } from '../state.ts';
import type { StepSize } from '../store-facts.ts';
import { type Arrival, type SortedValues, sortArrivals } from './arrivals.ts';

/** Of rows in order, those at the front that are loaded and were taken in by one run of the agent: a span has one. */
export function rowsOfOneRun(rows: readonly RowState[], max: number): number {
  let count = 0;
  const isOfIt = ({ run, isLoaded }: RowState) => isLoaded && run === rows[0]!.run;
  while (count < max && count < rows.length && isOfIt(rows[count]!)) count++;
  return count;
}

const WHOLE: StepSize = { values: Number.POSITIVE_INFINITY, segments: Number.POSITIVE_INFINITY };

interface Entry extends SpanEntry {
  packed: Uint8Array;
  /** The slice of a batch that is under way in it. */
  slice: BatchSlice | undefined;
}

/** One flush at a time: rows that were at the front when it began, and how far it has come. */
interface UnderWay {
  last: RowState;
  throughSeq: number;
  /** Every series there was, asset by asset; those that came later have nothing in these rows. */
  series: SeriesState[];
  next: number;
  /** Arrivals of the series from `next` on, as they were sorted; `first` is the first of them. */
  sorted: { first: Arrival | undefined; values: SortedValues; next: number } | undefined;
}

export class Flush {
  readonly #state: StoreState;
  readonly #pending: Pending;
  #underWay: UnderWay | undefined;

  constructor(state: StoreState, pending: Pending) {
    this.#state = state;
    this.#pending = pending;
  }

  get isUnderWay(): boolean {
    return this.#underWay !== undefined;
  }

  /** After opening: a flush in whose middle the agent ended goes on, so that all it flushes is of one age. */
  resume(): void {
    const { spans, rows } = this.#state;
    const last = spans.at(-1);
    if (!last) return;
    const after = rows.findIndex((row) => row.run !== last.run || row.monotonicMs > last.acceptedMs);
    const rowCount = rowsOfOneRun(rows, after < 0 ? rows.length : after);
    if (rowCount > 0) this.begin(rowCount);
  }

  /** Whether the span is one of the flush under way: more of that time are to come. */
  made({ run, acceptedMs }: Span): boolean {
    const last = this.#underWay?.last;
    return last !== undefined && last.run === run && last.monotonicMs === acceptedMs;
  }

  /** Begins with the first `rowCount` rows. */
  begin(rowCount: number): void {
    const last = this.#state.rows[rowCount - 1]!;
    const series = [...this.#state.assets.values()].flatMap((asset) => asset.series);
    this.#underWay = { last, throughSeq: last.firstSeq + last.count - 1, series, next: 0, sorted: undefined };
  }

  /** Does all that is left of a flush under way. */
  finish(): void {
    while (this.#underWay) this.step(WHOLE);
  }

  /** Leaves a flush under way as it stands: what is not flushed yet is in the queues, and may be flushed a few rows at a time. */
  abandon(): void {
    if (!this.#underWay) return;
    this.#underWay = undefined;
    this.#state.distribute();
  }

  /** Flushes some more series, one at least. */
  step(size: StepSize): void {
    const flush = this.#underWay;
    if (!flush) return;
    const state = this.#state;
    const entries: Entry[] = [];
    if (state.holdsOnlyArrivals) this.#flushArrivals(flush, size, entries);
    else {
      state.distribute(flush.throughSeq);
      this.#flushQueues(flush, size, entries);
    }
    const isDone = flush.next === flush.series.length;
    if (isDone) this.#dropRows(flush);
    if (entries.length > 0) this.#addSpan(flush, entries);
    if (isDone) state.dropArrivals(flush.throughSeq);
  }

  /** Nothing stands in the rows any more. */
  #dropRows({ last, throughSeq }: UnderWay): void {
    this.#underWay = undefined;
    const { rows } = this.#state;
    const after = rows.findIndex((row) => row.id > last.id);
    this.#state.rows = after < 0 ? [] : rows.slice(after);
    this.#pending.dropRowsThrough = Math.max(this.#pending.dropRowsThrough, last.id);
    // Runs that left these rows need no record: the rows go.
    this.#pending.settled = this.#pending.settled.filter((run) => run.lastSeq > throughSeq);
  }

  #addSpan({ last, throughSeq }: UnderWay, entries: Entry[]): void {
    const state = this.#state;
    const head = { id: state.nextSpan++, place: state.nextPlace++, run: last.run, acceptedMs: last.monotonicMs };
    const span = newSpan(head, entries);
    for (const [i, entry] of entries.entries()) {
      this.#pending.segments.set(segmentId(span.id, i), entry.packed);
      if (!entry.slice) continue;
      entry.slice.at = { span, entry: i, from: 0 };
      span.underWay.set(i, (span.underWay.get(i) ?? 0) + 1);
    }
    this.#pending.newSpans.add(span);
    state.addSpan(span, throughSeq);
  }

  /** What no batch has and no queue holds is sorted at once, in the first step. */
  #flushArrivals(flush: UnderWay, size: StepSize, entries: Entry[]): void {
    const state = this.#state;
    const old = state.arrivalsThrough(flush.throughSeq);
    // Unless they were given to the queues in between.
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
      one.flushedSeq = flush.throughSeq;
      // Their rows go when the flush ends, and are not counted down before.
      state.logValues -= count;
      this.#pending.settled.push({ series: id, firstSeq: first!.firstSeq, lastSeq: flush.throughSeq });
      const head = { series: id, place: state.nextPlace, leadSeconds: this.#leadSeconds(firstSeq) };
      addEntry(head, sorted, start, start + count, undefined, entries);
    }
  }

  #flushQueues(flush: UnderWay, size: StepSize, entries: Entry[]): void {
    const underWay = slicesInLog(this.#state);
    for (let values = 0; flush.next < flush.series.length && values < size.values && entries.length < size.segments; ) {
      const one = flush.series[flush.next++]!;
      const count = one.queue.countThrough(flush.throughSeq);
      if (count > 0) this.#flushQueue(one, count, underWay.get(one) ?? [], entries);
      values += count;
    }
  }

  #flushQueue(series: SeriesState, count: number, underWay: readonly SliceInLog[], entries: Entry[]): void {
    const { queue } = series;
    const end = queue.popped + count;
    let position = queue.popped;
    for (const { slice, position: from, slices } of underWay) {
      if (from >= end) break;
      this.#flushWaiting(series, position, from, entries);
      // A slice that reaches beyond the flushed rows is cut where they end.
      if (from + slice.count > end) slices.splice(slices.indexOf(slice) + 1, 0, ...cutSlice(slice, end - from));
      this.#flushRun(series, from, slice.count, slice, entries);
      position = from + slice.count;
    }
    this.#flushWaiting(series, position, end, entries);
    queue.dropFront(count);
    this.#state.releaseQueue(series);
  }

  /** Runs of what is not settled between two positions. */
  #flushWaiting(series: SeriesState, from: number, to: number, entries: Entry[]): void {
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
    entries: Entry[],
  ): void {
    this.#pending.settled.push(this.#state.leaveRows(state, position, count));
    const values = { count, ...state.queue.copy(position, count) };
    const leadSeconds = this.#leadSeconds(state.queue.seqAt(position));
    const head = { series: state.series.id, place: this.#state.nextPlace, leadSeconds };
    addEntry(head, values, 0, count, slice, entries);
  }

  /** By how much the value was accepted before the last one of the flush under way. */
  #leadSeconds(seq: number): number {
    const lastMs = this.#underWay!.last.monotonicMs;
    return Math.ceil((lastMs - (this.#state.rowOf(seq)?.monotonicMs ?? lastMs)) / 1000);
  }
}

interface SliceInLog {
  slice: BatchSlice;
  /** In the queue of its series. */
  position: number;
  /** All of its batch. */
  slices: BatchSlice[];
}

/** Parts of batches that stand in the log, by series, in order. */
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
  entries: Entry[],
): void {
  // What a batch has under way stays in one.
  const max = slice ? Number.POSITIVE_INFINITY : MAX_SEGMENT_VALUES;
  for (let at = from; at < to; at += max) {
    const end = Math.min(to, at + max);
    const packed = packSegment(values, at, end, { series, place });
    const lastTimeMs = lastTimeOf(values, at, end);
    const lead = leadAt(leadSeconds, at - from, to - from);
    entries.push({ series, count: end - at, lastTimeMs, leadSeconds: lead, packed, slice });
  }
}
