/**
 * Creates batches: selects values of one asset, writes their body and marks them as in flight.
 *
 * Within a series, the order of acceptance is preserved: backlog before live values, and nothing after a value that is
 * still in flight. In a full post, each series gets a share of the space.
 */

import type { Batch, TakeRequest } from '../client/lanes.ts';
import { openRun } from '../format/settled-ranges.ts';
import { type AssetState, type BatchSlice, type BatchState, type SeriesState, subSlice } from '../records.ts';
import type { Span } from '../span.ts';
import type { StoreState } from '../state.ts';
import type { BodyWriter } from './body-writer.ts';
import type { SegmentReader } from './segment-reader.ts';

/** Returns `undefined` if the lane of the asset is empty. */
export function takeBatch(
  state: StoreState,
  segments: SegmentReader,
  body: BodyWriter,
  request: TakeRequest,
): { batch: BatchState; answer: Batch } | undefined {
  const asset = state.assets.get(request.asset);
  if (!asset || (request.lane === 'live' ? asset.liveInFlight : asset.backlogInFlight) > 0) return undefined;
  const only = request.onlySeries && new Set(request.onlySeries);
  const wanted = (series: SeriesState) => (only ? only.has(series.series.id) : !series.held);
  const { live, old } = request.oneInstrumentation
    ? chooseOfOneTarget(state, segments, asset, wanted, request)
    : choose(state, segments, asset, wanted, request);
  const stamped = restamp(state, [...old, ...live], request.trustedOffsetMs);
  const slices = writeBody(body, stamped.slices, request.maxBytes);
  if (slices.length === 0) return undefined;
  for (const { series, at, count } of slices) {
    if ('position' in at) series.queue.markInFlight(at.position, count);
    else state.markInFlight(at.span, at.entry);
  }
  const batch = state.addBatch({ asset, lane: request.lane, hasBacklog: old.length > 0, slices });
  const { corrected, doubtful } = stamped;
  return { batch, answer: { ...summarize(batch, body.end()), corrected, doubtful } };
}

interface Chosen {
  live: BatchSlice[];
  old: BatchSlice[];
}

/** Selects values for a lane. A live batch includes backlog values only in addition to live values. */
function choose(
  state: StoreState,
  segments: SegmentReader,
  asset: AssetState,
  wanted: (series: SeriesState) => boolean,
  { lane, maxValues, alongValues }: TakeRequest,
): Chosen {
  if (lane === 'backlog') return { live: [], old: chooseBacklog(state, segments, asset, wanted, maxValues) };
  const live = chooseLive(asset, wanted, maxValues);
  const liveCount = live.reduce((sum, slice) => sum + slice.count, 0);
  const room = asset.backlogInFlight > 0 || liveCount === 0 ? 0 : Math.min(alongValues ?? 0, maxValues - liveCount);
  return { live, old: chooseBacklog(state, segments, asset, wanted, room) };
}

/** Rotates targets, so that a rejected target does not block the asset's other targets. */
function chooseOfOneTarget(
  state: StoreState,
  segments: SegmentReader,
  asset: AssetState,
  wanted: (series: SeriesState) => boolean,
  request: TakeRequest,
): Chosen {
  const targets = [...targetsWaiting(state, asset, wanted, request.lane)].sort((one, other) => one - other);
  const { lastTarget } = asset;
  const first = Math.max(
    0,
    targets.findIndex((target) => target > lastTarget),
  );
  for (let i = 0; i < targets.length; i++) {
    const target = targets[(first + i) % targets.length]!;
    const chosen = choose(state, segments, asset, (series) => targetOf(series) === target && wanted(series), request);
    if (chosen.live.length + chosen.old.length === 0) continue;
    asset.lastTarget = target;
    return chosen;
  }
  return { live: [], old: [] };
}

function targetsWaiting(
  state: StoreState,
  asset: AssetState,
  wanted: (series: SeriesState) => boolean,
  lane: TakeRequest['lane'],
): Set<number> {
  const waiting = new Set<SeriesState>();
  if (lane === 'live') for (const series of asset.series) if (series.queue.waiting > 0) waiting.add(series);
  for (const { span, from, to } of lane === 'backlog' ? asset.places : []) {
    for (let entry = from; entry < to; entry++) {
      if (!span.gone[entry] && !span.inFlight.has(entry)) waiting.add(state.seriesOf(span.series[entry]!));
    }
  }
  return new Set([...waiting].filter(wanted).map(targetOf));
}

/** Returns the target of a series: its instrumentation, or a negative number for a series without one. */
const targetOf = ({ series }: SeriesState): number => series.instrumentation ?? -series.id;

/** Corrects times assigned before the clock was trusted, if the offset is known. */
function restamp(state: StoreState, slices: readonly BatchSlice[], trustedOffsetMs: number | undefined) {
  let corrected = 0;
  let doubtful = 0;
  const result: BatchSlice[] = [];
  const add = (slice: BatchSlice, run: number): void => {
    const times = state.stamps.correct(slice, run, trustedOffsetMs);
    corrected += times.corrected;
    doubtful += times.left;
    result.push(times.corrected > 0 ? { ...slice, timeMs: times.timeMs } : slice);
  };
  for (const slice of slices) {
    if ('position' in slice.at) forEachRun(state, slice, slice.at.position, add);
    else add(slice, slice.at.span.run);
  }
  return { slices: result, corrected, doubtful };
}

/** Splits a slice by run, because each run has its own clock. */
function forEachRun(
  state: StoreState,
  slice: BatchSlice,
  position: number,
  call: (part: BatchSlice, run: number) => void,
): void {
  const { series, count } = slice;
  const runOf = (i: number) => state.runOf(series, position + i);
  const first = runOf(0);
  if (runOf(count - 1) === first) {
    call(slice, first);
    return;
  }
  for (let from = 0; from < count; ) {
    const run = runOf(from);
    let to = from + 1;
    while (to < count && runOf(to) === run) to++;
    call(subSlice(slice, from, to), run);
    from = to;
  }
}

/** Divides a batch into new batches that replace it. Returns `[]` if it cannot be divided. */
export function divideBatch(state: StoreState, body: BodyWriter, whole: BatchState): Batch[] {
  const groups = divideSlices(whole.slices);
  if (groups.length === 0) return [];
  // The slices stay in flight. A segment that is cut in two is in flight in both parts.
  for (const { at } of groups.flat()) if (!('position' in at)) state.markInFlight(at.span, at.entry);
  for (const { at } of whole.slices) if (!('position' in at)) state.releaseEntry(at.span, at.entry);
  const { asset, lane, hasBacklog } = whole;
  const batches = groups.map((slices) => {
    // Part of a body is never larger than the whole body.
    writeBody(body, slices, Number.POSITIVE_INFINITY);
    return summarize(state.addBatch({ asset, lane, hasBacklog, slices }), body.end());
  });
  state.endBatch(whole.id);
  return batches;
}

function summarize(batch: BatchState, body: Uint8Array): Batch {
  let values = 0;
  let liveValues = 0;
  for (const slice of batch.slices) {
    values += slice.count;
    if ('position' in slice.at) liveValues += slice.count;
  }
  const series = [...new Set(batch.slices.map((slice) => slice.series.series.id))];
  const { instrumentation } = batch.slices[0]!.series.series;
  return {
    id: batch.id,
    asset: batch.asset.asset,
    series,
    ...(instrumentation === undefined ? {} : { instrumentation }),
    values,
    liveValues,
    backlogValues: values - liveValues,
    body,
  };
}

/** Selects the oldest run of each waiting series, with shares in proportion to the number of waiting values. */
function chooseLive(asset: AssetState, wanted: (series: SeriesState) => boolean, max: number): BatchSlice[] {
  const waiting = asset.series.filter((series) => series.queue.waiting > 0 && wanted(series));
  const total = waiting.reduce((sum, series) => sum + series.queue.waiting, 0);
  const slices: BatchSlice[] = [];
  let room = max;
  const first = asset.nextSeries++ % waiting.length;
  for (let i = 0; i < waiting.length && room > 0; i++) {
    const series = waiting[(first + i) % waiting.length]!;
    const share = Math.ceil((max * series.queue.waiting) / total);
    const position = series.queue.firstWaiting();
    const count = series.queue.runOfWaiting(position, Math.min(share, room));
    slices.push({ series, at: { position }, count, ...series.queue.copy(position, count) });
    room -= count;
  }
  return slices;
}

interface OpenEntry {
  span: Span;
  entry: number;
  run: { from: number; to: number };
  series: SeriesState;
}

/** Selects the oldest segments of the asset, span by span. If a span does not fit, each series gets a share. */
function chooseBacklog(
  state: StoreState,
  segments: SegmentReader,
  asset: AssetState,
  wanted: (series: SeriesState) => boolean,
  max: number,
): BatchSlice[] {
  const slices: BatchSlice[] = [];
  const blocked = new Set<SeriesState>();
  let room = max;
  for (const { span, from, to } of [...asset.places]) {
    if (room <= 0) break;
    const open: OpenEntry[] = [];
    for (let entry = from; entry < to; entry++) {
      if (span.gone[entry]) continue;
      const series = state.seriesOf(span.series[entry]!);
      if (!wanted(series) || blocked.has(series)) continue;
      const run = openRun(span.progress.get(entry) ?? [], span.count[entry]!);
      // Values in flight block their series.
      if (!run || span.inFlight.has(entry)) blocked.add(series);
      else open.push({ span, entry, run, series });
    }
    const sizes = new Map<SeriesState, number>();
    for (const { series, run } of open) sizes.set(series, (sizes.get(series) ?? 0) + run.to - run.from);
    const total = open.reduce((sum, { run }) => sum + run.to - run.from, 0);
    // Shares are per series, because a span can contain several segments of a series.
    const shares = new Map([...sizes].map(([series, size]) => [series, Math.ceil((room * size) / total)]));
    for (const { entry, run, series } of open) {
      // A segment must not overtake an incomplete one of the same series.
      if (blocked.has(series)) continue;
      const size = run.to - run.from;
      const share = shares.get(series)!;
      const count = Math.min(room, size, share);
      shares.set(series, share - count);
      // Later runs and spans must not overtake the rest of this segment.
      if (count < size || run.to < span.count[entry]!) blocked.add(series);
      if (count === 0) continue;
      const values = segments.read(span, entry);
      if (!values) {
        // If the segment may still be found, no later value of its series may overtake it.
        if (!span.gone[entry]) blocked.add(series);
        continue;
      }
      slices.push({
        series,
        at: { span, entry, from: run.from },
        count,
        timeMs: values.timeMs.subarray(run.from, run.from + count),
        value: values.value.subarray(run.from, run.from + count),
        flags: values.flags.subarray(run.from, run.from + count),
      });
      room -= count;
    }
  }
  return slices;
}

/** Writes slices, grouped by series. Returns those that fit, the final one truncated if necessary. */
function writeBody(body: BodyWriter, slices: readonly BatchSlice[], maxBytes: number): BatchSlice[] {
  const bySeries = new Map<SeriesState, BatchSlice[]>();
  for (const slice of slices) {
    const list = bySeries.get(slice.series);
    if (list) list.push(slice);
    else bySeries.set(slice.series, [slice]);
  }
  const written: BatchSlice[] = [];
  body.begin(maxBytes);
  for (const [series, list] of bySeries) {
    if (!body.openKey(series.series)) break;
    for (const slice of list) {
      let count = 0;
      while (count < slice.count && body.point(slice.timeMs[count]!, slice.value[count]!, slice.flags[count]!)) count++;
      // After a value that did not fit, no other value or key fits.
      if (count > 0) written.push(count < slice.count ? subSlice(slice, 0, count) : slice);
    }
    body.closeKey();
  }
  return written;
}

/** Divides slices by series, or a single series into halves. Returns `[]` for a single value. */
function divideSlices(slices: readonly BatchSlice[]): BatchSlice[][] {
  const series = [...new Set(slices.map((slice) => slice.series))];
  if (series.length > 1) {
    const first = new Set(series.slice(0, series.length >> 1));
    return [slices.filter((slice) => first.has(slice.series)), slices.filter((slice) => !first.has(slice.series))];
  }
  const total = slices.reduce((sum, slice) => sum + slice.count, 0);
  if (total < 2) return [];
  const halves: [BatchSlice[], BatchSlice[]] = [[], []];
  let left = total >> 1;
  for (const slice of slices) {
    const count = Math.min(left, slice.count);
    if (count > 0) halves[0].push(subSlice(slice, 0, count));
    if (count < slice.count) halves[1].push(subSlice(slice, count, slice.count));
    left -= count;
  }
  return halves;
}
