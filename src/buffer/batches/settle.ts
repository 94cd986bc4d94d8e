/** The ways in which a batch ends: settled, released or quarantined. */
import { packSegment } from '../format/segment.ts';
import { addRange, settledCount } from '../format/settled-ranges.ts';
import type { BatchSlice, BatchState } from '../records.ts';
import type { Span } from '../span.ts';
import type { StoreState } from '../state.ts';

/** Maximum length of a platform message in quarantine. */
const MAX_MESSAGE = 500;

/** Settles the values of a slice. */
export function settleSlice(state: StoreState, { series, at, count }: BatchSlice): void {
  if ('position' in at) {
    state.settleQueued(series, at.position, count);
    return;
  }
  const { span, entry, from } = at;
  // The span may have been dropped by a bound while the post was in flight.
  if (!span.gone[entry]) settleRuns(state, span, entry, [{ from, to: from + count }]);
  state.releaseEntry(span, entry);
}

/** Settles ranges of a segment. Returns the number of newly settled values. */
export function settleRuns(
  state: StoreState,
  span: Span,
  entry: number,
  runs: readonly { from: number; to: number }[],
): number {
  const before = span.progress.get(entry) ?? [];
  let ranges = before;
  for (const { from, to } of runs) ranges = addRange(ranges, from, to);
  const settled = settledCount(ranges);
  if (settled === span.count[entry]) state.removeSegment(span, entry);
  else state.settleEntry(span, entry, ranges);
  return settled - settledCount(before);
}

/** Releases a slice: its values are waiting again at their previous position. */
export function releaseSlice(state: StoreState, { series, at, count }: BatchSlice): void {
  state.markChanged(series.asset);
  if ('position' in at) series.queue.release(at.position, count, series.backlogTimeMs);
  else state.releaseEntry(at.span, at.entry);
}

/** Moves the values of a batch to quarantine with the platform message. */
export function quarantineBatch(
  state: StoreState,
  batch: BatchState,
  { status, message, atMs }: { status: number; message: string; atMs: number },
): void {
  for (const slice of batch.slices) {
    const series = slice.series.series.id;
    const packed = packSegment(slice);
    state.quarantine({ series, count: slice.count, packed, status, message: message.slice(0, MAX_MESSAGE), atMs });
    settleSlice(state, slice);
  }
}
