/**
 * Makes batches: chooses values of one asset, writes their body, marks them as under way.
 *
 * Within a series the order of acceptance is kept: the backlog before the live values, and nothing of a series behind
 * something of it that is still under way. A full post gives each series its share of the room.
 */

import type { Batch, TakeRequest } from '../client/lanes.ts';
import { openRun } from '../format/settled-ranges.ts';
import type { Span } from '../span.ts';
import type { AssetState, BatchSlice, BatchState, SeriesState, StoreState } from '../state.ts';
import { sendEntry, subSlice } from './batch-slices.ts';
import type { BodyWriter } from './body-writer.ts';
import type { SegmentReader } from './segment-reader.ts';

/** `undefined` where the asset has nothing to take in that lane. */
export function takeBatch(
  state: StoreState,
  segments: SegmentReader,
  body: BodyWriter,
  request: TakeRequest,
): { batch: BatchState; answer: Batch } | undefined {
  const asset = state.assets.get(request.asset);
  if (!asset || (request.lane === 'live' ? asset.liveUnderWay : asset.backlogUnderWay) > 0) return undefined;
  const only = request.onlySeries && new Set(request.onlySeries);
  const wanted = (series: SeriesState) => (only ? only.has(series.series.id) : !series.held);
  const { live, old } = request.oneInstrumentation
    ? chooseOfOneTarget(state, segments, asset, wanted, request)
    : choose(state, segments, asset, wanted, request);
  const stamped = restamp(state, [...old, ...live], request.trustedOffsetMs);
  const slices = writeBody(body, stamped.slices, request.maxBytes);
  if (slices.length === 0) return undefined;
  const batch: BatchState = { id: state.nextBatch++, asset, lane: request.lane, along: old.length > 0, slices };
  for (const slice of slices) send(slice);
  enterLanes(batch);
  state.batches.set(batch.id, batch);
  state.touched.add(asset);
  const { corrected, doubtful } = stamped;
  return { batch, answer: { ...describe(batch, body.end()), corrected, doubtful } };
}

interface Chosen {
  live: BatchSlice[];
  old: BatchSlice[];
}

/** What the lane has: of the live lane nothing but with live values, beside which as much of the backlog as is asked for. */
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
  const room = asset.backlogUnderWay > 0 || liveCount === 0 ? 0 : Math.min(alongValues ?? 0, maxValues - liveCount);
  return { live, old: chooseBacklog(state, segments, asset, wanted, room) };
}

/** Each target in turn, so that one that is not taken does not stand before the asset's others. */
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
      if (!span.gone[entry] && !span.underWay.has(entry)) waiting.add(state.seriesOf(span.series[entry]!));
    }
  }
  return new Set([...waiting].filter(wanted).map(targetOf));
}

/** What goes to one address has the same number: an instrumentation, or a series that was accepted without one. */
const targetOf = ({ series }: SeriesState): number => series.instrumentation ?? -series.id;

/** Gives times that were stamped before the clock was trusted their true value, as far as it is known. */
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

/** Each run of the agent had its own clock. In the log values of the run before stand beside those of this one. */
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

function enterLanes(batch: BatchState): void {
  if (batch.lane === 'live') batch.asset.liveUnderWay++;
  if (batch.along) batch.asset.backlogUnderWay++;
}

/** The batch is over; its lanes are free unless its sisters by division are under way. */
export function leaveLanes(batch: BatchState): void {
  if (batch.lane === 'live') batch.asset.liveUnderWay--;
  if (batch.along) batch.asset.backlogUnderWay--;
}

/** Divides a batch into batches of its own, which take its place; `[]` where it cannot be divided. */
export function divideBatch(state: StoreState, body: BodyWriter, whole: BatchState): Batch[] {
  const groups = divideSlices(whole.slices);
  if (groups.length === 0) return [];
  // The slices stay under way; only who has them changes. A segment cut in two is held by both.
  const recount = ({ at }: BatchSlice, by: number) => {
    if (!('position' in at)) at.span.underWay.set(at.entry, (at.span.underWay.get(at.entry) ?? 0) + by);
  };
  for (const slice of whole.slices) recount(slice, -1);
  for (const slice of groups.flat()) recount(slice, 1);
  const batches = groups.map((slices) => batchOfSlices(state, body, whole, slices).answer);
  leaveLanes(whole);
  state.batches.delete(whole.id);
  return batches;
}

/** A batch made of slices of another, which are under way already. */
function batchOfSlices(
  state: StoreState,
  body: BodyWriter,
  from: BatchState,
  slices: BatchSlice[],
): { batch: BatchState; answer: Batch } {
  const batch: BatchState = { id: state.nextBatch++, asset: from.asset, lane: from.lane, along: from.along, slices };
  // Parts of what has been one body fit into one.
  writeBody(body, slices, Number.POSITIVE_INFINITY);
  enterLanes(batch);
  state.batches.set(batch.id, batch);
  return { batch, answer: describe(batch, body.end()) };
}

function describe(batch: BatchState, body: Uint8Array): Batch {
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

function send(slice: BatchSlice): void {
  if ('position' in slice.at) slice.series.queue.send(slice.at.position, slice.count);
  else sendEntry(slice.series.asset, slice.at.span, slice.at.entry, slice.series.held);
}

/** Each waiting series' oldest run, its share of the room in proportion to what waits. */
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

/** The oldest segments of the asset, span by span; where a span has more than fits, a share of each of its series. */
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
      // What is under way, or has a slice under way before it, bars the way for its series.
      if (!run || span.underWay.has(entry)) blocked.add(series);
      else open.push({ span, entry, run, series });
    }
    const sizes = new Map<SeriesState, number>();
    for (const { series, run } of open) sizes.set(series, (sizes.get(series) ?? 0) + run.to - run.from);
    const total = open.reduce((sum, { run }) => sum + run.to - run.from, 0);
    // By series, not by segment: a large backlog has many segments of each in a span. Where the span fits a share is more than there is.
    const shares = new Map([...sizes].map(([series, size]) => [series, Math.ceil((room * size) / total)]));
    for (const { entry, run, series } of open) {
      // A span may hold several segments of a series: none behind one that is not taken to its end.
      if (blocked.has(series)) continue;
      const size = run.to - run.from;
      const share = shares.get(series)!;
      const count = Math.min(room, size, share);
      shares.set(series, share - count);
      // A later run of the same segment, or a later span, must not overtake what is left of this one.
      if (count < size || run.to < span.count[entry]!) blocked.add(series);
      if (count === 0) continue;
      const values = segments.read(span, entry);
      if (!values) {
        // Lost, or awaited: then nothing of its series may overtake it.
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

/** Writes the slices, the values of a series together; gives those that fitted, the last one cut where it had to be. */
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
      // Behind a value for which there was no room none fits, nor does a key. Live posts have many small slices, of which none is cut.
      if (count > 0) written.push(count < slice.count ? subSlice(slice, 0, count) : slice);
    }
    body.closeKey();
  }
  return written;
}

/** By series where there are several, else by halves; a lone value stays whole: `[]`. */
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
