import { openValues, type Span } from '../span.ts';
import type { AssetState, BatchSlice } from '../state.ts';

/** What batches do to the segments and slices that they are made of. */

/** One more batch has (part of) the segment: none of it can be taken by another. */
export function sendEntry(asset: AssetState, span: Span, entry: number, held: boolean): void {
  const before = span.underWay.get(entry) ?? 0;
  span.changes++;
  if (before === 0 && !held) asset.backlog -= openValues(span, entry);
  span.underWay.set(entry, before + 1);
}

/** A batch has let go of the segment; what is left of it can be taken again unless its series is held. */
export function freeEntry(asset: AssetState, span: Span, entry: number, held: boolean): void {
  const before = span.underWay.get(entry) ?? 0;
  span.changes++;
  if (before > 1) {
    span.underWay.set(entry, before - 1);
    return;
  }
  span.underWay.delete(entry);
  if (!held) asset.backlog += openValues(span, entry);
}

/** Values `from` to `to` of a slice, as a slice. */
export function subSlice(slice: BatchSlice, from: number, to: number): BatchSlice {
  const { at } = slice;
  return {
    series: slice.series,
    at: 'position' in at ? { position: at.position + from } : { ...at, from: at.from + from },
    count: to - from,
    timeMs: slice.timeMs.subarray(from, to),
    value: slice.value.subarray(from, to),
    flags: slice.flags.subarray(from, to),
  };
}

/** Cuts a slice to its first `count` values, in place; gives the rest as a slice of its own. */
export function cutSlice(slice: BatchSlice, count: number): BatchSlice[] {
  const rest = subSlice(slice, count, slice.count);
  Object.assign(slice, subSlice(slice, 0, count));
  return [rest];
}
