/** What stands in the buffer, series by series: what `buffer ls` shows. */
import { unpackSegment } from '../format/segment.ts';
import { openRun } from '../format/settled-ranges.ts';
import { openValues, type Span, segmentId } from '../span.ts';
import type { SeriesState, StoreState } from '../state.ts';

export interface SeriesListing {
  series: number;
  asset: number;
  /** Fresh values, and those of the backlog; neither settled. */
  live: number;
  backlog: number;
  underWay: number;
  /** Time of the oldest accepted value, and the latest time of any; milliseconds since 1970, `undefined` where nothing stands. */
  fromMs: number | undefined;
  toMs: number | undefined;
  /** On disk, about: from a few of its segments. */
  bytes: number;
  held: boolean;
}

/** What a value of the log takes, about. */
const BYTES_A_LOG_VALUE = 6;
/** Rows of the file that are opened for each series. */
const SAMPLES = 3;

type GetSegment = (id: number) => Uint8Array | undefined;

interface Sum {
  backlog: number;
  toMs: number;
  /** First, last, and one between. */
  samples: { span: Span; entry: number }[];
  segments: number;
}

/** Lists series with a number above `after`; a page takes some milliseconds. */
export function listSeries(
  state: StoreState,
  getSegment: GetSegment,
  page: { after: number; limit: number },
): SeriesListing[] {
  const rows: SeriesListing[] = [];
  const sums = new Map<SeriesState, Sum>();
  const underWay = countUnderWay(state);
  for (let id = page.after + 1; id < state.series.length && rows.length < page.limit; id++) {
    const series = state.series[id];
    if (!series) continue;
    if (series.segments > 0 && !sums.has(series)) sumAsset(state, series, sums);
    rows.push(listOne(series, sums.get(series), underWay.get(series) ?? 0, getSegment));
  }
  return rows;
}

function countUnderWay(state: StoreState): Map<SeriesState, number> {
  const counts = new Map<SeriesState, number>();
  for (const batch of state.batches.values()) {
    for (const slice of batch.slices) counts.set(slice.series, (counts.get(slice.series) ?? 0) + slice.count);
  }
  return counts;
}

/** Walks the asset's segments once for all of its series. */
function sumAsset(state: StoreState, { asset }: SeriesState, sums: Map<SeriesState, Sum>): void {
  for (const { span, from, to } of asset.places) {
    for (let entry = from; entry < to; entry++) {
      const values = openValues(span, entry);
      if (values === 0) continue;
      const series = state.seriesOf(span.series[entry]!);
      const sum = sums.get(series) ?? { backlog: 0, toMs: Number.NEGATIVE_INFINITY, samples: [], segments: 0 };
      sums.set(series, sum);
      sum.backlog += values;
      sum.toMs = Math.max(sum.toMs, span.lastTimeMs[entry]!);
      if (sum.samples.length < SAMPLES) sum.samples.push({ span, entry });
      else sum.samples[1 + (sum.segments % (SAMPLES - 1))] = { span, entry };
      sum.segments++;
    }
  }
}

function listOne(series: SeriesState, sum: Sum | undefined, underWay: number, getSegment: GetSegment): SeriesListing {
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
    let sampled = 0;
    let sampledBytes = 0;
    for (const [i, { span, entry }] of sum.samples.entries()) {
      const packed = getSegment(segmentId(span.id, entry));
      if (!packed) continue;
      sampled += span.count[entry]!;
      sampledBytes += packed.length;
      if (i === 0) fromMs = firstTime(packed, span, entry) ?? fromMs;
    }
    bytes += sampled === 0 ? 0 : Math.round((sampledBytes / sampled) * sum.backlog);
  }
  return {
    series: series.series.id,
    asset: series.series.asset,
    live,
    backlog: sum?.backlog ?? 0,
    underWay,
    fromMs: Number.isFinite(fromMs) ? fromMs : undefined,
    toMs: Number.isFinite(toMs) ? toMs : undefined,
    bytes,
    held: series.held,
  };
}

/** Time of the oldest value that is not settled; `undefined` where the segment does not read: looking mends nothing. */
function firstTime(packed: Uint8Array, span: Span, entry: number): number | undefined {
  try {
    const values = unpackSegment(packed);
    return values.timeMs[openRun(span.progress.get(entry) ?? [], values.count)?.from ?? 0];
  } catch {
    return undefined;
  }
}
