/**
 * Merges neighbouring spans of small segments, which a slow backlog produces. It replaces the segments of some assets
 * per step, so that commits remain short. If one of the spans changes between steps (values taken, settled or dropped),
 * the compaction is abandoned.
 */

import { announce } from '../../base/crash-points.ts';
import type { SegmentReader } from '../batches/segment-reader.ts';
import { lastTimeOf, MAX_SEGMENT_VALUES, packSegment, type SegmentValues } from '../format/segment.ts';
import type { AssetState, SeriesState } from '../records.ts';
import { leadAt, openLeadSeconds, openRuns, type Span } from '../span.ts';
import type { PackedEntry, StoreState } from '../state.ts';
import type { StepSize } from '../store-facts.ts';

/** Average segment size below which compaction is worthwhile, because the fixed cost of a row becomes noticeable. */
const SMALL_VALUES = 64;
/** Number of flushes to merge. Merging fewer would rewrite every value more often. */
const FLUSHES_A_COMPACTION = 16;
/** Segment size at which merging fewer flushes is worthwhile. */
const GOOD_VALUES = 512;
/** Divisor of the step size of a flush, because a compaction also reads and deletes. */
const COMPACTION_SHARE = 2;

/** Unsettled values of a series, in order. */
interface Unpacked {
  parts: SegmentValues[];
  /** `Span.leadSeconds` of the first value, relative to the latest span. */
  leadSeconds: number;
}

export class Compaction {
  readonly #state: StoreState;
  readonly #spans: Set<Span>;
  /** `place` of the first span. */
  readonly #place: number;
  readonly #last: Span;
  #changes: number;
  readonly #series: SeriesState[];
  readonly #seriesAStep: number;
  readonly #entriesASpan: number;
  /** Index of the first series that has been packed but not replaced. */
  #packedFrom = 0;
  #next = 0;
  #entries: PackedEntry[] = [];

  /**
   * Selects neighbouring spans. Returns `undefined` if no merge is worthwhile. `size` is the size of a flush step.
   * `maxValues` limits the values in all spans but the final one, because the bound on bytes drops whole groups.
   */
  static choose(state: StoreState, { size, maxValues }: { size: StepSize; maxValues: number }): Compaction | undefined {
    const { spans } = state;
    let from = 0;
    while (from < spans.length) {
      const { to, flushes, values, segments } = neighbours(spans, from, maxValues);
      const enough = flushes >= FLUSHES_A_COMPACTION || (flushes >= 2 && values >= GOOD_VALUES * segments);
      if (enough) return new Compaction(state, spans.slice(from, to), { flushes, size });
      from = Math.max(to, from + 1);
    }
    return undefined;
  }

  constructor(state: StoreState, spans: Span[], { flushes, size }: { flushes: number; size: StepSize }) {
    this.#state = state;
    this.#spans = new Set(spans);
    this.#place = spans[0]!.place;
    this.#last = spans.at(-1)!;
    this.#changes = this.#countChanges();
    // Tens of thousands of entries belong to only about a thousand series.
    const isIn = new Uint8Array(state.series.length);
    for (const { series } of spans) for (const id of series) isIn[id] = 1;
    this.#series = [...state.assets.values()].flatMap((asset) => asset.series.filter(({ series }) => isIn[series.id]));
    // Each series has one segment per flush.
    this.#seriesAStep = Math.max(1, Math.floor(size.segments / COMPACTION_SHARE / flushes));
    this.#entriesASpan = size.segments / COMPACTION_SHARE;
  }

  /** Counts never decrease, so an unchanged sum means that no span changed. */
  #countChanges(): number {
    let changes = 0;
    for (const span of this.#spans) changes += span.changes;
    return changes;
  }

  /** Packs the next series and replaces their segments once there are enough. Returns true when done. */
  step(segments: SegmentReader): boolean {
    const from = this.#next;
    this.#next = Math.min(this.#series.length, from + this.#seriesAStep);
    const { assets, ids } = this.#some(from, this.#next);
    for (const asset of assets) this.#compactAsset(asset, ids, segments);
    // Something else changed a span, or a segment is unreadable.
    if (this.#countChanges() !== this.#changes) return true;
    const isDone = this.#next === this.#series.length;
    if (isDone || this.#entries.length >= this.#entriesASpan) this.#replace();
    return isDone;
  }

  /** Returns part of the series, and their assets. */
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
        const values = segments.readOnce(span, entry);
        if (!values) continue;
        const series = span.series[entry]!;
        const found = bySeries.get(series) ?? { parts: [], leadSeconds: this.#leadSeconds(span, entry) };
        for (const { from: first, to: end } of openRuns(span, entry)) found.parts.push(sliceValues(values, first, end));
        bySeries.set(series, found);
      }
    }
    for (const [series, found] of bySeries) this.#pack(series, found);
  }

  /** Returns `leadSeconds` relative to the latest span, whose acceptance time the merged span adopts. */
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

  /** Removes packed values from the old spans and adds a span with the `place` of the first one. */
  #replace(): void {
    const { assets, ids } = this.#some(this.#packedFrom, this.#next);
    for (const asset of assets) this.#takeOut(asset, ids);
    this.#packedFrom = this.#next;
    const { run, acceptedMs } = this.#last;
    announce('merge');
    this.#state.addSegments({ place: this.#place, run, acceptedMs }, this.#entries);
    this.#entries = [];
    this.#changes = this.#countChanges();
  }

  #takeOut(asset: AssetState, ids: ReadonlySet<number>): void {
    for (const { span, from, to } of [...asset.places]) {
      if (!this.#spans.has(span)) continue;
      for (let entry = from; entry < to; entry++) {
        if (!span.gone[entry] && ids.has(span.series[entry]!)) this.#state.removeSegment(span, entry);
      }
    }
  }
}

/**
 * Returns the spans from `from` that can be merged with it, with the number of flushes and the segments of the largest
 * one.
 */
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

function fits(first: Span, span: Span): boolean {
  return span.run === first.run && span.inFlight.size === 0 && span.values < SMALL_VALUES * span.series.length;
}

function sliceValues(values: SegmentValues, from: number, to: number): SegmentValues {
  return {
    count: to - from,
    timeMs: values.timeMs.subarray(from, to),
    value: values.value.subarray(from, to),
    flags: values.flags.subarray(from, to),
  };
}
