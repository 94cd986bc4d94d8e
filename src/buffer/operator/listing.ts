/** Buffered values per series, for `buffer ls`. */
import { readable } from '../format/bytes.ts';
import { unpackSegment } from '../format/segment.ts';
import { openRun } from '../format/settled-ranges.ts';
import type { SeriesState } from '../records.ts';
import { openValues, type Span, segmentId } from '../span.ts';
import type { StoreState } from '../state.ts';

export interface SeriesListing {
  series: number;
  asset: number;
  /** Unsettled values in the log and in segments. */
  live: number;
  backlog: number;
  inFlight: number;
  /**
   * Time of the value that was accepted first, and latest time of all values, in milliseconds since 1970; `undefined`
   * if there are no values.
   */
  fromMs: number | undefined;
  toMs: number | undefined;
  /** Estimate based on the oldest segment. */
  bytes: number;
  held: boolean;
}

/** Estimated bytes of a log value. */
const BYTES_A_LOG_VALUE = 6;
type GetSegment = (id: number) => Uint8Array | undefined;

interface Sum {
  backlog: number;
  toMs: number;
  /** Oldest segment, which is read to determine the acceptance time. */
  first: { span: Span; entry: number };
}

/** Lists series with numbers above `after`. */
export function listSeries(
  state: StoreState,
  getSegment: GetSegment,
  page: { after: number; limit: number },
): SeriesListing[] {
  const rows: SeriesListing[] = [];
  const sums = new Map<SeriesState, Sum>();
  const inFlight = countInFlight(state);
  for (let id = page.after + 1; id < state.series.length && rows.length < page.limit; id++) {
    const series = state.series[id];
    if (!series) continue;
    if (series.segments > 0 && !sums.has(series)) sumAsset(state, series, sums);
    rows.push(listOne(series, sums.get(series), inFlight.get(series) ?? 0, getSegment));
  }
  return rows;
}

function countInFlight(state: StoreState): Map<SeriesState, number> {
  const counts = new Map<SeriesState, number>();
  for (const batch of state.batches.values()) {
    for (const slice of batch.slices) counts.set(slice.series, (counts.get(slice.series) ?? 0) + slice.count);
  }
  return counts;
}

/** Iterates over the asset's segments once for all its series. */
function sumAsset(state: StoreState, { asset }: SeriesState, sums: Map<SeriesState, Sum>): void {
  for (const { span, from, to } of asset.places) {
    for (let entry = from; entry < to; entry++) {
      const values = openValues(span, entry);
      if (values === 0) continue;
      const series = state.seriesOf(span.series[entry]!);
      const sum = sums.get(series) ?? { backlog: 0, toMs: Number.NEGATIVE_INFINITY, first: { span, entry } };
      sums.set(series, sum);
      sum.backlog += values;
      sum.toMs = Math.max(sum.toMs, span.lastTimeMs[entry]!);
    }
  }
}

function listOne(series: SeriesState, sum: Sum | undefined, inFlight: number, getSegment: GetSegment): SeriesListing {
  const { queue } = series;
  let live = 0;
  let fromMs = Number.POSITIVE_INFINITY;
  let toMs = sum?.toMs ?? Number.NEGATIVE_INFINITY;
  const { timeMs } = queue.copy(queue.popped, queue.length);
  for (let i = 0; i < timeMs.length; i++) {
    if (queue.isSettled(queue.popped + i)) continue;
    if (live++ === 0) fromMs = timeMs[i]!;
    toMs = Math.max(toMs, timeMs[i]!);
  }
  let bytes = live * BYTES_A_LOG_VALUE;
  if (sum) {
    const { span, entry } = sum.first;
    const packed = getSegment(segmentId(span.id, entry));
    if (packed) {
      fromMs = firstTime(packed, span, entry) ?? fromMs;
      bytes += Math.round((packed.length / span.count[entry]!) * sum.backlog);
    }
  }
  return {
    series: series.series.id,
    asset: series.series.asset,
    live,
    backlog: sum?.backlog ?? 0,
    inFlight,
    fromMs: Number.isFinite(fromMs) ? fromMs : undefined,
    toMs: Number.isFinite(toMs) ? toMs : undefined,
    bytes,
    held: series.held,
  };
}

/**
 * Returns the time of the oldest unsettled value; `undefined` if the segment is unreadable. Listing does not modify the
 * buffer.
 */
function firstTime(packed: Uint8Array, span: Span, entry: number): number | undefined {
  const values = readable(() => unpackSegment(packed));
  return values?.timeMs[openRun(span.progress.get(entry) ?? [], values.count)?.from ?? 0];
}
