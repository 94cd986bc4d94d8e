/**
 * Compaction: a backlog that came in slowly lies in many spans of small segments. What neighbouring spans hold of some assets
 * becomes one span, step by step until nothing is left in them, so that no commit waits long. What is read must still be
 * so when enough is packed: a span that was taken from, settled or dropped in between ends the compaction where it stands.
 */

import type { SegmentReader } from '../batches/segment-reader.ts';
import { lastTimeOf, MAX_SEGMENT_VALUES, packSegment, type SegmentValues } from '../format/segment.ts';
import type { Pending } from '../pending.ts';
import { LOST, leadAt, newSpan, openLeadSeconds, openRuns, type Span, type SpanEntry, segmentId } from '../span.ts';
import type { AssetState, SeriesState, StoreState } from '../state.ts';
import type { StepSize } from '../store-facts.ts';

/** Segments of fewer values than this on average are worth compaction: beside them the row's own bytes begin to count. */
const SMALL_VALUES = 64;
/** The spans of so many flushes become one. Fewer would write every value more often. */
const FLUSHES_A_COMPACTION = 16;
/** A compaction is worth it with fewer flushes where they make segments this large. */
const GOOD_VALUES = 512;
/** Of what a flush packs in a step: a compaction also reads and deletes what its segments are made of. */
const COMPACTION_SHARE = 2;

interface CompactedEntry extends SpanEntry {
  packed: Uint8Array;
}

/** What the spans hold of a series that is not settled, in order. */
interface Unpacked {
  parts: SegmentValues[];
  /** Of the first value. */
  leadSeconds: number;
}

export class Compaction {
  readonly #state: StoreState;
  readonly #pending: Pending;
  readonly #spans: Set<Span>;
  /** Of the first of them. */
  readonly #place: number;
  readonly #last: Span;
  #changes: number;
  readonly #series: SeriesState[];
  readonly #seriesAStep: number;
  readonly #entriesASpan: number;
  /** Those that are packed and not replaced yet begin here. */
  #packedFrom = 0;
  #next = 0;
  #entries: CompactedEntry[] = [];

  /**
   * Chooses neighbours that are worth it; `undefined` where there are none. `size`: of a flush's step. `maxValues`: what they
   * may have together, but for the last of them: the bound on bytes drops whole what is not too large.
   */
  static choose(
    state: StoreState,
    pending: Pending,
    { size, maxValues }: { size: StepSize; maxValues: number },
  ): Compaction | undefined {
    const { spans } = state;
    let from = 0;
    while (from < spans.length) {
      const { to, flushes, values, segments } = neighbours(spans, from, maxValues);
      const enough = flushes >= FLUSHES_A_COMPACTION || (flushes >= 2 && values >= GOOD_VALUES * segments);
      if (enough) return new Compaction(state, pending, spans.slice(from, to), { flushes, size });
      from = Math.max(to, from + 1);
    }
    return undefined;
  }

  constructor(
    state: StoreState,
    pending: Pending,
    spans: Span[],
    { flushes, size }: { flushes: number; size: StepSize },
  ) {
    this.#state = state;
    this.#pending = pending;
    this.#spans = new Set(spans);
    this.#place = spans[0]!.place;
    this.#last = spans.at(-1)!;
    this.#changes = this.#countChanges();
    // Tens of thousands of entries name some thousand series.
    const isIn = new Uint8Array(state.series.length);
    for (const { series } of spans) for (const id of series) isIn[id] = 1;
    this.#series = [...state.assets.values()].flatMap((asset) => asset.series.filter(({ series }) => isIn[series.id]));
    // Each has a segment of every flush.
    this.#seriesAStep = Math.max(1, Math.floor(size.segments / COMPACTION_SHARE / flushes));
    this.#entriesASpan = size.segments / COMPACTION_SHARE;
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
    for (const asset of assets) this.#compactAsset(asset, ids, segments);
    // Somebody took, settled or dropped some of it since the last step, or one of its segments does not read.
    if (this.#countChanges() !== this.#changes) return true;
    const isDone = this.#next === this.#series.length;
    if (isDone || this.#entries.length >= this.#entriesASpan) this.#replace();
    return isDone;
  }

  /** Of the series to compact, some, and their assets. */
  #some(from: number, to: number): { assets: Set<AssetState>; ids: Set<number> } {
    const some = this.#series.slice(from, to);
    return { assets: new Set(some.map(({ asset }) => asset)), ids: new Set(some.map(({ series }) => series.id)) };
  }

  #compactAsset(asset: AssetState, ids: ReadonlySet<number>, segments: SegmentReader): void {
    const bySeries = new Map<number, Unpacked>();
    for (const { span, from, to } of asset.places) {
      if (!this.#spans.has(span)) continue;
      for (let entry = from; entry < to; entry++) {
        if (span.gone[entry] || !ids.has(span.series[entry]!)) continue;
        const values = segments.read(span, entry);
        segments.forget(segmentId(span.id, entry));
        if (!values) continue;
        const series = span.series[entry]!;
        const found = bySeries.get(series) ?? { parts: [], leadSeconds: this.#leadSeconds(span, entry) };
        for (const { from: first, to: end } of openRuns(span, entry)) found.parts.push(sliceValues(values, first, end));
        bySeries.set(series, found);
      }
    }
    for (const [series, found] of bySeries) this.#pack(series, found);
  }

  /** Beside the last of the spans, whose time of acceptance the compacted span has. */
  #leadSeconds(span: Span, entry: number): number {
    return Math.ceil((this.#last.acceptedMs - span.acceptedMs) / 1000) + openLeadSeconds(span, entry);
  }

  #pack(series: number, { parts, leadSeconds }: Unpacked): void {
    const total = parts.reduce((sum, values) => sum + values.count, 0);
    const all = {
      count: total,
      timeMs: new Float64Array(total),
      value: new Float64Array(total),
      flags: new Uint8Array(total),
    };
    let at = 0;
    for (const values of parts) {
      all.timeMs.set(values.timeMs, at);
      all.value.set(values.value, at);
      all.flags.set(values.flags, at);
      at += values.count;
    }
    for (let from = 0; from < total; from += MAX_SEGMENT_VALUES) {
      const to = Math.min(total, from + MAX_SEGMENT_VALUES);
      const lastTimeMs = lastTimeOf(all, from, to);
      this.#entries.push({
        series,
        count: to - from,
        lastTimeMs,
        leadSeconds: leadAt(leadSeconds, from, total),
        packed: packSegment(all, from, to, { series, place: this.#place }),
      });
    }
  }

  /** What is packed leaves the old spans, and stands in one of its own in the place of the first. */
  #replace(): void {
    const { assets, ids } = this.#some(this.#packedFrom, this.#next);
    for (const asset of assets) this.#takeOut(asset, ids);
    this.#packedFrom = this.#next;
    const entries = this.#entries;
    this.#entries = [];
    if (entries.length > 0) {
      const state = this.#state;
      const head = { id: state.nextSpan++, place: this.#place, run: this.#last.run, acceptedMs: this.#last.acceptedMs };
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

/** From a span on those that are worth compaction with it: of how many flushes, and how many segments the largest of these has. */
function neighbours(spans: readonly Span[], from: number, maxValues: number) {
  let to = from;
  let values = 0;
  let flushes = 0;
  let segments = 0;
  let inThisPass = 0;
  for (; to < spans.length && fits(spans[from]!, spans[to]!); to++) {
    const span = spans[to]!;
    if (to === from || span.acceptedMs !== spans[to - 1]!.acceptedMs) {
      if (flushes === FLUSHES_A_COMPACTION || values >= maxValues) break;
      flushes++;
      inThisPass = 0;
    }
    values += span.values;
    inThisPass += span.left;
    segments = Math.max(segments, inThisPass);
  }
  return { to, flushes, values, segments };
}

/** Drops a span from memory, and from the disk with the next commit. Returns the number of values that were left in it. */
export function dropSpan(state: StoreState, pending: Pending, span: Span): number {
  let values = 0;
  state.dropSpan(span);
  pending.dropSpan(span);
  for (let entry = 0; entry < span.series.length; entry++) {
    if (span.gone[entry]) continue;
    values += state.loseEntry(span, entry, LOST);
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
