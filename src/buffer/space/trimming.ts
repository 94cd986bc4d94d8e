/**
 * Takes the oldest share of values that were flushed together and are too many to go at once: a compaction puts the values of
 * an hour into one group of spans, and a bound that is passed by a few kilobytes must not cost all of them.
 *
 * Of each series the first values in its order of acceptance go; what is left of a segment is written anew, in a span in the
 * same place, with all that follows it there. Some series a step, so that no commit gets long; between steps everything is as it must be.
 * What a batch has under way stays, with all of its series in the group: nothing may overtake it.
 */
import type { SegmentReader } from '../batches/segment-reader.ts';
import { lastTimeOf, packSegment, type SegmentValues } from '../format/segment.ts';
import type { Pending } from '../pending.ts';
import {
  leadAt,
  newSpan,
  openLeadSeconds,
  openRuns,
  openValues,
  type Span,
  type SpanEntry,
  segmentId,
} from '../span.ts';
import type { StoreState } from '../state.ts';
import type { StepSize } from '../store-facts.ts';

interface Place {
  span: Span;
  entry: number;
}

interface Remainder extends SpanEntry {
  packed: Uint8Array;
}

export class Trimming {
  readonly #state: StoreState;
  readonly #pending: Pending;
  readonly #share: number;
  readonly #spans: readonly Span[];
  /** Entries of the group, series by series, each in order of acceptance. */
  readonly #series: Place[][];
  #next = 0;
  /** Shares of single values add up, so that of many short series some lose one. */
  #owed = 0;

  /** `spans`: of one time, in order. `share`: of their values, above 0 and below 1. */
  constructor(state: StoreState, pending: Pending, spans: readonly Span[], share: number) {
    this.#state = state;
    this.#pending = pending;
    this.#spans = spans;
    this.#share = share;
    const bySeries = new Map<number, Place[]>();
    for (const span of spans) {
      for (let entry = 0; entry < span.series.length; entry++) {
        const places = bySeries.get(span.series[entry]!);
        if (places) places.push({ span, entry });
        else bySeries.set(span.series[entry]!, [{ span, entry }]);
      }
    }
    this.#series = [...bySeries.values()];
  }

  get isDone(): boolean {
    return this.#next === this.#series.length;
  }

  /** Trims some more series; gives the values that went. */
  step(segments: SegmentReader, size: StepSize): number {
    const remainders: Remainder[] = [];
    let dropped = 0;
    let seen = 0;
    while (!this.isDone && seen < size.values && remainders.length < size.segments) {
      const places = this.#series[this.#next++]!.filter(({ span, entry }) => !span.gone[entry]);
      seen += places.reduce((sum, { span, entry }) => sum + span.count[entry]!, 0);
      if (places.some(({ span, entry }) => span.underWay.has(entry))) continue;
      dropped += this.#trimSeries(places, segments, remainders);
    }
    for (const span of this.#spans) {
      if (span.left > 0 || !this.#state.spans.includes(span)) continue;
      this.#state.dropSpan(span);
      this.#pending.dropSpan(span);
    }
    if (remainders.length > 0) this.#addSpan(remainders);
    return dropped;
  }

  #trimSeries(places: readonly Place[], segments: SegmentReader, remainders: Remainder[]): number {
    const open = places.reduce((sum, { span, entry }) => sum + openValues(span, entry), 0);
    this.#owed += open * this.#share;
    const wanted = Math.min(open, Math.floor(this.#owed));
    const read = this.#readAnew(places, wanted, segments);
    if (!read) return 0;
    this.#owed -= wanted;
    let left = wanted;
    let isCut = false;
    for (const place of places) {
      if (left === 0 && !isCut) break;
      const { span, entry } = place;
      // It did not read just now, and went for that: counted and told by who read it.
      if (span.gone[entry]) continue;
      const values = openValues(span, entry);
      if (values > left) {
        // What follows the cut comes along: what is left of a segment stands behind the spans of its place.
        isCut = true;
        const kept = openFrom(read.get(place)!, span, entry, left);
        const leadSeconds = leadAt(openLeadSeconds(span, entry), left, values);
        remainders.push({ ...this.#remainder(kept, span.series[entry]!), leadSeconds });
      }
      segments.forget(segmentId(span.id, entry));
      this.#state.loseEntry(span, entry);
      this.#pending.dropSegment(span, entry);
      left -= Math.min(left, values);
    }
    return wanted - left;
  }

  /** What is to be written anew, as far as it is not lost. `undefined` where some of it is awaited, which leaves its series as it is. */
  #readAnew(places: readonly Place[], wanted: number, segments: SegmentReader): Map<Place, SegmentValues> | undefined {
    const found = new Map<Place, SegmentValues>();
    let left = wanted;
    let isCut = false;
    for (const place of places) {
      if (left === 0 && !isCut) break;
      const { span, entry } = place;
      const open = openValues(span, entry);
      if (open > left) {
        isCut = true;
        const values = segments.read(span, entry);
        if (values) found.set(place, values);
        else if (!span.gone[entry]) return undefined;
      }
      left -= Math.min(left, open);
    }
    return found;
  }

  #remainder(kept: SegmentValues, series: number): Omit<Remainder, 'leadSeconds'> {
    const { place } = this.#spans[0]!;
    const packed = packSegment(kept, 0, kept.count, { series, place });
    return { series, count: kept.count, lastTimeMs: lastTimeOf(kept), packed };
  }

  #addSpan(remainders: Remainder[]): void {
    const { place, run, acceptedMs } = this.#spans[0]!;
    const span = newSpan({ id: this.#state.nextSpan++, place, run, acceptedMs }, remainders);
    for (const [i, { packed }] of remainders.entries()) this.#pending.segments.set(segmentId(span.id, i), packed);
    this.#pending.newSpans.add(span);
    this.#state.addSpan(span);
  }
}

/** The values of a segment that are not settled, without the first `skip` of them. */
function openFrom(values: SegmentValues, span: Span, entry: number, skip: number): SegmentValues {
  const kept = { count: 0, timeMs: [] as number[], value: [] as number[], flags: [] as number[] };
  let left = skip;
  for (const run of openRuns(span, entry)) {
    const from = Math.min(run.to, run.from + left);
    left -= from - run.from;
    for (let at = from; at < run.to; at++) {
      kept.timeMs.push(values.timeMs[at]!);
      kept.value.push(values.value[at]!);
      kept.flags.push(values.flags[at]!);
      kept.count++;
    }
  }
  return {
    count: kept.count,
    timeMs: Float64Array.from(kept.timeMs),
    value: Float64Array.from(kept.value),
    flags: Uint8Array.from(kept.flags),
  };
}
