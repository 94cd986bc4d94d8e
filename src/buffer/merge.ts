/**
 * Merging: a backlog that came in slowly lies in many spans of small segments. What neighbouring spans hold of some assets
 * becomes one span, step by step until nothing is left in them, so that no commit waits long. What is read must still be
 * so when enough is packed: a span that was taken from, settled or dropped in between ends the merge where it stands.
 */
import type { Pending } from './pending.ts';
import { packSegment, type SegmentValues } from './segment.ts';
import type { SegmentReader } from './segment-reader.ts';
import { openRun } from './settled-ranges.ts';
import { newSpan, type Span, segmentId } from './span.ts';
import type { AssetState, SeriesState, StoreState } from './state.ts';
import type { StepSize } from './store-facts.ts';

/** Segments of fewer values than this on average are worth merging: beside them the row's own bytes begin to count. */
const SMALL_VALUES = 64;
/** The spans of so many folds become one. Fewer would write every value more often. */
const FOLDS_A_MERGE = 16;
/** A merge is worth it with fewer folds where they make segments this large. */
const GOOD_VALUES = 512;
/** Larger segments are unpacked for nothing when a post takes a part. */
const LARGEST_VALUES = 2048;
/** Of what a fold packs in a step: a merge also reads and deletes what its segments are made of. */
const MERGE_SHARE = 2;

interface MergedEntry {
  series: number;
  count: number;
  lastTimeMs: number;
  packed: Uint8Array;
}

export class Merge {
  readonly #state: StoreState;
  readonly #pending: Pending;
  readonly #spans: Set<Span>;
  #changes: number;
  readonly #series: SeriesState[];
  readonly #seriesAStep: number;
  readonly #entriesASpan: number;
  /** Those that are packed and not replaced yet begin here. */
  #packedFrom = 0;
  #next = 0;
  #entries: MergedEntry[] = [];

  /** Chooses neighbours that are worth it; `undefined` where there are none. `size`: of a fold's step. */
  static choose(state: StoreState, pending: Pending, size: StepSize): Merge | undefined {
    const { spans } = state;
    let from = 0;
    while (from < spans.length) {
      const { to, folds, values, segments } = neighbours(spans, from);
      const enough = folds >= FOLDS_A_MERGE || (folds >= 2 && values >= GOOD_VALUES * segments);
      if (enough) return new Merge(state, pending, spans.slice(from, to), { folds, size });
      from = Math.max(to, from + 1);
    }
    return undefined;
  }

  constructor(state: StoreState, pending: Pending, spans: Span[], { folds, size }: { folds: number; size: StepSize }) {
    this.#state = state;
    this.#pending = pending;
    this.#spans = new Set(spans);
    this.#changes = this.#countChanges();
    // Tens of thousands of entries name some thousand series.
    const isIn = new Uint8Array(state.series.length);
    for (const span of spans) for (let i = 0; i < span.series.length; i++) isIn[span.series[i]!] = 1;
    this.#series = [...state.assets.values()].flatMap((asset) => asset.series.filter(({ series }) => isIn[series.id]));
    // Each has a segment of every fold.
    this.#seriesAStep = Math.max(1, Math.floor(size.segments / MERGE_SHARE / folds));
    this.#entriesASpan = size.segments / MERGE_SHARE;
  }

  /** Each only ever grows. */
  #countChanges(): number {
    let changes = 0;
    for (const span of this.#spans) changes += span.changes;
    return changes;
  }

  /** Packs some more series, and puts them in their place when they are enough; `true` when there is no more to do. */
  step(segments: SegmentReader): boolean {
    const from = this.#next;
    this.#next = Math.min(this.#series.length, from + this.#seriesAStep);
    const { assets, ids } = this.#some(from, this.#next);
    for (const asset of assets) this.#mergeAsset(asset, ids, segments);
    // Somebody took, settled or dropped some of it since the last step, or one of its segments does not read.
    if (this.#countChanges() !== this.#changes) return true;
    const isDone = this.#next === this.#series.length;
    if (isDone || this.#entries.length >= this.#entriesASpan) this.#replace();
    return isDone;
  }

  /** Of the series to merge, some, and their assets. */
  #some(from: number, to: number): { assets: Set<AssetState>; ids: Set<number> } {
    const some = this.#series.slice(from, to);
    return { assets: new Set(some.map(({ asset }) => asset)), ids: new Set(some.map(({ series }) => series.id)) };
  }

  #mergeAsset(asset: AssetState, ids: ReadonlySet<number>, segments: SegmentReader): void {
    const bySeries = new Map<number, SegmentValues[]>();
    for (const { span, from, to } of asset.places) {
      if (!this.#spans.has(span)) continue;
      for (let entry = from; entry < to; entry++) {
        if (span.gone[entry] || !ids.has(span.series[entry]!)) continue;
        const values = segments.read(span, entry);
        segments.forget(segmentId(span.id, entry));
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

  /** What is packed leaves the old spans, and stands in one of its own in the place of the first. */
  #replace(): void {
    const [first] = this.#spans;
    const last = [...this.#spans].at(-1)!;
    const { assets, ids } = this.#some(this.#packedFrom, this.#next);
    for (const asset of assets) this.#takeOut(asset, ids);
    this.#packedFrom = this.#next;
    const entries = this.#entries;
    this.#entries = [];
    if (entries.length > 0) {
      const state = this.#state;
      const head = { id: state.nextSpan++, place: first!.place, run: last.run, acceptedMs: last.acceptedMs };
      const span = newSpan(head, entries);
      for (const [i, entry] of entries.entries()) this.#pending.segments.set(segmentId(span.id, i), entry.packed);
      this.#pending.newSpans.add(span);
      state.addSpan(span);
    }
    this.#changes = this.#countChanges();
  }

  #takeOut(asset: AssetState, ids: ReadonlySet<number>): void {
    for (const { span, from, to } of [...asset.places]) {
      if (!this.#spans.has(span)) continue;
      for (let entry = from; entry < to; entry++) {
        if (span.gone[entry] || !ids.has(span.series[entry]!)) continue;
        this.#state.loseEntry(span, entry);
        this.#pending.dropSegment(span, entry);
      }
      if (span.left > 0) continue;
      this.#state.dropSpan(span);
      this.#pending.dropSpan(span);
    }
  }
}

/** From a span on those that are worth merging with it: of how many folds, and how many segments the largest of these has. */
function neighbours(spans: readonly Span[], from: number) {
  let to = from;
  let values = 0;
  let folds = 0;
  let segments = 0;
  let ofThisFold = 0;
  for (; to < spans.length && fits(spans[from]!, spans[to]!); to++) {
    const span = spans[to]!;
    if (to === from || span.acceptedMs !== spans[to - 1]!.acceptedMs) {
      if (folds === FOLDS_A_MERGE) break;
      folds++;
      ofThisFold = 0;
    }
    values += span.values;
    ofThisFold += span.left;
    segments = Math.max(segments, ofThisFold);
  }
  return { to, folds, values, segments };
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
