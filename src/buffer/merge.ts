/**
 * Merging: a backlog that came in slowly lies in many spans of small segments. Neighbouring spans become one, a few
 * assets a step, so that no commit waits long. What a step reads must still be so when the last one is done: a
 * span that was taken from, settled or dropped in between makes the merge void, and nothing was written.
 */
import type { Pending } from './pending.ts';
import { packSegment, type SegmentValues } from './segment.ts';
import type { SegmentReader } from './segment-reader.ts';
import { openRun } from './settled-ranges.ts';
import { newSpan, type Span, segmentId } from './span.ts';
import type { AssetState, StoreState } from './state.ts';

/** Segments of fewer values than this on average are worth merging: beside them the row's own bytes begin to count. */
const SMALL_VALUES = 64;
/** So many spans become one. Fewer would write every value more often. */
const SPANS_A_MERGE = 16;
/** A merge is worth it with fewer spans where they make segments this large. */
const GOOD_VALUES = 512;
/** Larger segments are unpacked for nothing when a post takes a part. */
const LARGEST_VALUES = 2048;
/** Segments read in one step: some milliseconds. */
const SEGMENTS_A_STEP = 400;

interface MergedEntry {
  series: number;
  count: number;
  lastTimeMs: number;
  packed: Uint8Array;
}

export class Merge {
  readonly #spans: Span[];
  readonly #changes: number[];
  readonly #assets: AssetState[];
  readonly #entries: MergedEntry[] = [];
  #next = 0;

  /** Chooses neighbours that are worth it; `undefined` where there are none. */
  static choose(state: StoreState): Merge | undefined {
    const { spans } = state;
    let from = 0;
    while (from < spans.length) {
      let to = from;
      let values = 0;
      let segments = 0;
      while (to < spans.length && to - from < SPANS_A_MERGE && fits(spans[from]!, spans[to]!)) {
        values += spans[to]!.values;
        segments = Math.max(segments, spans[to]!.left);
        to++;
      }
      const enough = to - from >= SPANS_A_MERGE || (to - from >= 2 && values >= GOOD_VALUES * segments);
      if (enough) return new Merge(state, spans.slice(from, to));
      from = Math.max(to, from + 1);
    }
    return undefined;
  }

  constructor(state: StoreState, spans: Span[]) {
    this.#spans = spans;
    this.#changes = spans.map((span) => span.changes);
    const ids = new Set(spans.flatMap((span) => Array.from(span.series)));
    this.#assets = [...new Set(Array.from(ids, (id) => state.seriesOf(id).asset))];
  }

  /** Whether what was read is still so. */
  get isVoid(): boolean {
    return this.#spans.some((span, i) => span.changes !== this.#changes[i]);
  }

  /** Packs some more assets; `true` when all are done. */
  step(segments: SegmentReader): boolean {
    let read = 0;
    while (this.#next < this.#assets.length && read < SEGMENTS_A_STEP) {
      read += this.#mergeAsset(this.#assets[this.#next++]!, segments);
    }
    return this.#next === this.#assets.length;
  }

  #mergeAsset(asset: AssetState, segments: SegmentReader): number {
    const bySeries = new Map<number, SegmentValues[]>();
    let read = 0;
    for (const { span, from, to } of asset.places) {
      if (!this.#spans.includes(span)) continue;
      for (let entry = from; entry < to; entry++) {
        if (span.gone[entry]) continue;
        const values = segments.read(span, entry);
        segments.forget(segmentId(span.id, entry));
        read++;
        if (!values) continue;
        const list = bySeries.get(span.series[entry]!) ?? [];
        for (let run = openRun(span.progress.get(entry) ?? [], values.count); run; ) {
          list.push(sliceValues(values, run.from, run.to));
          run = openRun(span.progress.get(entry) ?? [], values.count, run.to);
        }
        bySeries.set(span.series[entry]!, list);
      }
    }
    for (const [series, list] of bySeries) this.#pack(series, list);
    return read;
  }

  #pack(series: number, list: SegmentValues[]): void {
    const total = list.reduce((sum, values) => sum + values.count, 0);
    if (total === 0) return;
    const all = {
      count: total,
      timeMs: new Float64Array(total),
      value: new Float64Array(total),
      flags: new Uint8Array(total),
    };
    let at = 0;
    for (const values of list) {
      all.timeMs.set(values.timeMs, at);
      all.value.set(values.value, at);
      all.flags.set(values.flags, at);
      at += values.count;
    }
    for (let from = 0; from < total; from += LARGEST_VALUES) {
      const to = Math.min(total, from + LARGEST_VALUES);
      let lastTimeMs = Number.NEGATIVE_INFINITY;
      for (let i = from; i < to; i++) lastTimeMs = Math.max(lastTimeMs, all.timeMs[i]!);
      this.#entries.push({ series, count: to - from, lastTimeMs, packed: packSegment(all, from, to) });
    }
  }

  /** Puts the new span in the place of the old ones. */
  finish(state: StoreState, pending: Pending): void {
    const first = this.#spans[0]!;
    const last = this.#spans[this.#spans.length - 1]!;
    for (const span of this.#spans) removeSpan(state, pending, span);
    if (this.#entries.length === 0) return;
    const head = { id: state.nextSpan++, place: first.place, run: last.run, acceptedMs: last.acceptedMs };
    const span = newSpan(head, this.#entries);
    for (const [i, entry] of this.#entries.entries()) pending.segments.set(segmentId(span.id, i), entry.packed);
    pending.newSpans.add(span);
    state.addSpan(span);
  }
}

/** Takes a span with all that is left in it out of memory, and with the next commit off the disk. Gives the values that were left. */
export function removeSpan(state: StoreState, pending: Pending, span: Span): number {
  let values = 0;
  state.dropSpan(span);
  pending.dropSpan(span);
  for (let entry = 0; entry < span.series.length; entry++) {
    if (span.gone[entry]) continue;
    values += state.loseEntry(span, entry);
  }
  return values;
}

function fits(first: Span, span: Span): boolean {
  return span.run === first.run && span.underWay.size === 0 && span.values < SMALL_VALUES * span.series.length;
}

function sliceValues(values: SegmentValues, from: number, to: number): SegmentValues {
  return {
    count: to - from,
    timeMs: values.timeMs.subarray(from, to),
    value: values.value.subarray(from, to),
    flags: values.flags.subarray(from, to),
  };
}
