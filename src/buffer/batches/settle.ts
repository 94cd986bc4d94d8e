/** How a batch ends: the platform took it, it waits again, or its values are put aside; and what becomes of a segment that does not read. */

import { packSegment } from '../format/segment.ts';
import { addRange, settledCount } from '../format/settled-ranges.ts';
import type { Pending } from '../pending.ts';
import { LOST, type Span, segmentId } from '../span.ts';
import type { BatchSlice, BatchState, StoreState } from '../state.ts';
import { freeEntry } from './batch-slices.ts';
import type { SegmentReader } from './segment-reader.ts';

/** The values of a slice are done with. */
export function settleSlice(state: StoreState, pending: Pending, segments: SegmentReader, slice: BatchSlice): void {
  const { series, at, count } = slice;
  if ('position' in at) {
    pending.settled.push(state.leaveRows(series, at.position, count));
    series.queue.settle(at.position, count);
    state.releaseQueue(series);
    return;
  }
  const { span, entry, from } = at;
  // The span may have been dropped by a bound while the post was under way.
  if (!span.gone[entry]) settleRuns(state, pending, segments, span, entry, [{ from, to: from + count }]);
  freeEntry(series.asset, span, entry, series.held);
}

/** Runs of a segment are done with. Gives the values that were not yet. */
export function settleRuns(
  state: StoreState,
  pending: Pending,
  segments: SegmentReader,
  span: Span,
  entry: number,
  runs: readonly { from: number; to: number }[],
): number {
  const before = span.progress.get(entry) ?? [];
  let ranges = before;
  for (const { from, to } of runs) ranges = addRange(ranges, from, to);
  const values = settledCount(ranges) - settledCount(before);
  if (settledCount(ranges) === span.count[entry]) {
    state.loseEntry(span, entry);
    segments.forget(segmentId(span.id, entry));
    if (span.left === 0) {
      state.dropSpan(span);
      pending.dropSpan(span);
    } else pending.dropSegment(span, entry);
    return values;
  }
  const { asset, held } = state.seriesOf(span.series[entry]!);
  // What is under way is not counted as waiting.
  if (!held && !span.underWay.has(entry)) asset.backlog -= values;
  span.progress.set(entry, ranges);
  span.changes++;
  state.segmentValues -= values;
  state.touched.add(asset);
  pending.progress.set(segmentId(span.id, entry), span);
  return values;
}

/** A segment does not read: its bytes are kept aside for an expert, its values are lost. Gives how many. */
export function setAsideSegment(
  state: StoreState,
  pending: Pending,
  span: Span,
  entry: number,
  bytes: Uint8Array | undefined,
): number {
  pending.aside.push({ what: 'segment', place: segmentId(span.id, entry), atMs: 0, bytes });
  const values = state.loseEntry(span, entry, LOST);
  if (span.left === 0) {
    state.dropSpan(span);
    pending.dropSpan(span);
  } else pending.dropSegment(span, entry);
  return values;
}

/** The values of a slice wait again, in their old place. */
export function releaseSlice(state: StoreState, slice: BatchSlice): void {
  const { series, at } = slice;
  state.touched.add(series.asset);
  if ('position' in at) series.queue.giveBack(at.position, slice.count, series.backlogTimeMs);
  else freeEntry(series.asset, at.span, at.entry, series.held);
}

/** The values of a slice go to quarantine with the platform's words. */
export function quarantineBatch(
  state: StoreState,
  pending: Pending,
  segments: SegmentReader,
  batch: BatchState,
  refusal: { status: number; message: string; atMs: number },
): void {
  for (const slice of batch.slices) {
    pending.quarantine.push({
      series: slice.series.series.id,
      count: slice.count,
      packed: packSegment(slice),
      status: refusal.status,
      message: refusal.message.slice(0, 500),
      atMs: refusal.atMs,
    });
    state.quarantined += slice.count;
    settleSlice(state, pending, segments, slice);
  }
}
