import type { Span } from '../span.ts';
import { type AssetState, openValues, type Part } from '../state.ts';

/** What batches do to the segments and parts that they are made of. */

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

/** Values `from` to `to` of a part, as a part. */
export function sliceOfPart(part: Part, from: number, to: number): Part {
  const { at } = part;
  return {
    series: part.series,
    at: 'position' in at ? { position: at.position + from } : { ...at, from: at.from + from },
    count: to - from,
    timeMs: part.timeMs.subarray(from, to),
    value: part.value.subarray(from, to),
    flags: part.flags.subarray(from, to),
  };
}

/** Cuts a part to its first `count` values, in place; gives the rest as a part of its own. */
export function cutPart(part: Part, count: number): Part[] {
  const rest = sliceOfPart(part, count, part.count);
  Object.assign(part, sliceOfPart(part, 0, count));
  return [rest];
}
