/**
 * Drops the oldest share of a group of values that were flushed together. A compaction combines the values of an hour,
 * and exceeding a limit by a few kilobytes must not drop all of them.
 *
 * In each series, the values that were accepted first are dropped. The rest of a cut segment, and all later segments of
 * the series, are rewritten to a new span with the same `place`. A step trims a few series, so that commits remain
 * short; the state is consistent between steps. Series with values in flight are skipped, so that no value overtakes
 * them.
 */
import type { SegmentReader } from '../batches/segment-reader.ts';
import { lastTimeOf, packSegment, type SegmentValues } from '../format/segment.ts';
import { leadAt, openLeadSeconds, openRuns, openValues, type Span } from '../span.ts';
import type { PackedEntry, StoreState } from '../state.ts';
import type { StepSize } from '../store-facts.ts';

interface Place {
  span: Span;
  entry: number;
}

export class Trimming {
  readonly #state: StoreState;
  readonly #share: number;
  readonly #spans: readonly Span[];
  /** Entries of the group by series, in order of acceptance. */
  readonly #series: Place[][];
  #next = 0;
  /** Sum of the fractions of values to drop, so that some of many short series lose a value. */
  #owed = 0;

  /**
   * `spans` are the spans of one flush, in order. `share` is the share of their values to drop, above 0 and below 1.
   */
  constructor(state: StoreState, spans: readonly Span[], share: number) {
    this.#state = state;
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

  /** Trims the next series. Returns the number of dropped values. */
  step(segments: SegmentReader, size: StepSize): number {
    const remainders: PackedEntry[] = [];
    let dropped = 0;
    let seen = 0;
    while (!this.isDone && seen < size.values && remainders.length < size.segments) {
      const places = this.#series[this.#next++]!.filter(({ span, entry }) => !span.gone[entry]);
      seen += places.reduce((sum, { span, entry }) => sum + span.count[entry]!, 0);
      if (places.some(({ span, entry }) => span.inFlight.has(entry))) continue;
      dropped += this.#trimSeries(places, segments, remainders);
    }
    const { place, run, acceptedMs } = this.#spans[0]!;
    this.#state.addSegments({ place, run, acceptedMs }, remainders);
    return dropped;
  }

  #trimSeries(places: readonly Place[], segments: SegmentReader, remainders: PackedEntry[]): number {
    const open = places.reduce((sum, { span, entry }) => sum + openValues(span, entry), 0);
    this.#owed += open * this.#share;
    const wanted = Math.min(open, Math.floor(this.#owed));
    const read = this.#readForRewrite(places, wanted, segments);
    if (!read) return 0;
    this.#owed -= wanted;
    let left = wanted;
    let isCut = false;
    for (const place of places) {
      if (left === 0 && !isCut) break;
      const { span, entry } = place;
      // The reader has already counted an unreadable segment as lost.
      if (span.gone[entry]) continue;
      const values = openValues(span, entry);
      if (values > left) {
        // The rest of a segment moves behind the spans of the same `place`, so everything after the cut moves with it.
        isCut = true;
        const kept = openFrom(read.get(place)!, span, entry, left);
        const leadSeconds = leadAt(openLeadSeconds(span, entry), left, values);
        remainders.push({ ...this.#remainder(kept, span.series[entry]!), leadSeconds });
      }
      this.#state.removeSegment(span, entry);
      left -= Math.min(left, values);
    }
    return wanted - left;
  }

  /**
   * Returns the segments to rewrite, except lost segments; `undefined` if one of them may still be found
   * (`Carrying.awaits`). In that case, the series remains unchanged.
   */
  #readForRewrite(
    places: readonly Place[],
    wanted: number,
    segments: SegmentReader,
  ): Map<Place, SegmentValues> | undefined {
    const found = new Map<Place, SegmentValues>();
    let left = wanted;
    let isCut = false;
    for (const place of places) {
      if (left === 0 && !isCut) break;
      const { span, entry } = place;
      const open = openValues(span, entry);
      if (open > left) {
        isCut = true;
        const values = segments.readOnce(span, entry);
        if (values) found.set(place, values);
        else if (!span.gone[entry]) return undefined;
      }
      left -= Math.min(left, open);
    }
    return found;
  }

  #remainder(kept: SegmentValues, series: number): Omit<PackedEntry, 'leadSeconds'> {
    const { place } = this.#spans[0]!;
    const packed = packSegment(kept, 0, kept.count, { series, place });
    return { series, count: kept.count, lastTimeMs: lastTimeOf(kept), packed };
  }
}

/** Returns the values of a segment that are not settled, without the first `skip` of them. */
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
