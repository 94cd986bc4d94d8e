/** How a batch ends: the platform took it, it waits again, or its values are put aside. */
import type { Pending } from './pending.ts';
import { packSegment } from './segment.ts';
import type { SegmentReader } from './segment-reader.ts';
import { addRange, settledCount } from './settled-ranges.ts';
import { segmentId } from './span.ts';
import { type BatchState, freeEntry, type Part, type StoreState } from './state.ts';

/** The values of a part are done with. */
export function settlePart(state: StoreState, pending: Pending, segments: SegmentReader, part: Part): void {
  const { series, at, count } = part;
  state.touched.add(series.asset);
  if ('position' in at) {
    pending.settled.push(state.leaveRows(series, at.position, count));
    series.queue.settle(at.position, count);
    return;
  }
  const { span, entry, from } = at;
  // The span may have been dropped by a bound while the post was under way.
  if (!span.gone[entry]) {
    const before = settledCount(span.progress.get(entry) ?? []);
    const ranges = addRange(span.progress.get(entry) ?? [], from, from + count);
    const now = settledCount(ranges);
    if (now === span.count[entry]) {
      state.loseEntry(span, entry);
      segments.forget(segmentId(span.id, entry));
      if (span.left === 0) {
        state.dropSpan(span);
        pending.dropSpan(span);
      } else pending.dropSegment(span, entry);
    } else {
      span.progress.set(entry, ranges);
      state.segmentValues -= now - before;
      pending.progress.set(segmentId(span.id, entry), span);
    }
  }
  freeEntry(series.asset, span, entry, series.held);
}

/** The values of a part wait again, in their old place. */
export function releasePart(state: StoreState, part: Part): void {
  const { series, at } = part;
  state.touched.add(series.asset);
  if ('position' in at) series.queue.giveBack(at.position, part.count, series.backlogTimeMs);
  else freeEntry(series.asset, at.span, at.entry, series.held);
}

/** The values of a part go to quarantine with the platform's words. */
export function quarantineBatch(
  state: StoreState,
  pending: Pending,
  segments: SegmentReader,
  batch: BatchState,
  refusal: { status: number; message: string; atMs: number },
): void {
  for (const part of batch.parts) {
    pending.quarantine.push({
      series: part.series.series.id,
      count: part.count,
      packed: packSegment(part),
      status: refusal.status,
      message: refusal.message.slice(0, 500),
      atMs: refusal.atMs,
    });
    settlePart(state, pending, segments, part);
  }
}
