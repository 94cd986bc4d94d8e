/**
 * Folding: the front of the log becomes a span. What is settled falls away, what is not becomes a segment for each
 * series; what a batch has under way becomes a segment of its own, so that the batch still finds it.
 *
 * It happens in memory at once and on disk with the next commit, which also deletes the rows. A crash before that
 * commit leaves the rows as they were.
 */
import { type Arrival, sortArrivals } from './arrivals.ts';
import { cutPart } from './parts.ts';
import type { Pending } from './pending.ts';
import { packSegment, type SegmentValues } from './segment.ts';
import { newSpan, type Span, segmentId } from './span.ts';
import type { AssetState, Part, RowState, SeriesState, StoreState } from './state.ts';

/** Of rows in order, those at the front that were taken in by one run of the agent: a span has one. */
export function rowsOfOneRun(rows: readonly RowState[], most: number): number {
  let count = 0;
  while (count < most && count < rows.length && rows[count]!.run === rows[0]!.run) count++;
  return count;
}

interface Entry {
  series: number;
  count: number;
  lastTimeMs: number;
  packed: Uint8Array;
  /** The part of a batch that is under way in it. */
  part: Part | undefined;
}

/** Folds the first `rowCount` rows. Gives the span, or `undefined` where all of them was settled. */
export function foldRows(state: StoreState, pending: Pending, rowCount: number): Span | undefined {
  const rows = state.rows.slice(0, rowCount);
  const last = rows[rows.length - 1]!;
  const throughSeq = last.firstSeq + last.count - 1;
  const entries: Entry[] = [];
  const later: Arrival[] = [];
  if (state.holdsOnlyArrivals) {
    const arrivals = state.takeArrivals();
    const count = arrivals.filter(({ firstSeq }) => firstSeq <= throughSeq).length;
    later.push(...arrivals.splice(count));
    foldArrivals(state, arrivals, entries);
  } else {
    state.distribute();
    const underWay = partsInLog(state);
    for (const asset of state.assets.values()) foldAsset(asset, throughSeq, underWay, entries);
  }
  state.rows = state.rows.slice(rowCount);
  pending.dropRowsThrough = last.id;
  // Runs that were settled in these rows need no record: the rows go.
  pending.settled = pending.settled.filter((run) => run.lastSeq > throughSeq);
  for (const row of rows) state.logValues -= row.left;
  const span = entries.length === 0 ? undefined : addFolded(state, pending, last, entries);
  state.bringBack(later);
  return span;
}

function addFolded(state: StoreState, pending: Pending, last: RowState, entries: Entry[]): Span {
  const head = { id: state.nextSpan++, place: state.nextPlace++, run: last.run, acceptedMs: last.monotonicMs };
  const span = newSpan(head, entries);
  for (const [i, entry] of entries.entries()) {
    pending.segments.set(segmentId(span.id, i), entry.packed);
    if (!entry.part) continue;
    entry.part.at = { span, entry: i, from: 0 };
    span.underWay.set(i, (span.underWay.get(i) ?? 0) + 1);
  }
  pending.newSpans.add(span);
  state.addSpan(span);
  return span;
}

/** What no batch has and no queue holds is sorted at once. */
function foldArrivals(state: StoreState, arrivals: readonly Arrival[], entries: Entry[]): void {
  const order: number[] = [];
  for (const asset of state.assets.values()) for (const { series } of asset.series) order.push(series.id);
  const { series, timeMs, value, flags } = sortArrivals(arrivals, order, state.series.length);
  for (const { id, start, count } of series) {
    addEntry(id, { count, timeMs, value, flags }, start, start + count, undefined, entries);
  }
}

/** Parts of batches that stand in the log, by series, in order. */
function partsInLog(state: StoreState): Map<SeriesState, { part: Part; parts: Part[] }[]> {
  const found = new Map<SeriesState, { part: Part; parts: Part[] }[]>();
  for (const batch of state.batches.values()) {
    for (const part of batch.parts) {
      if (!('position' in part.at)) continue;
      const list = found.get(part.series) ?? [];
      list.push({ part, parts: batch.parts });
      found.set(part.series, list);
    }
  }
  for (const list of found.values()) list.sort((a, b) => positionOf(a.part) - positionOf(b.part));
  return found;
}

const positionOf = (part: Part) => ('position' in part.at ? part.at.position : 0);

function foldAsset(
  asset: AssetState,
  throughSeq: number,
  underWay: ReturnType<typeof partsInLog>,
  entries: Entry[],
): void {
  for (const series of asset.series) {
    const { queue } = series;
    const count = queue.countThrough(throughSeq);
    if (count === 0) continue;
    const end = queue.popped + count;
    let position = queue.popped;
    for (const { part, parts } of underWay.get(series) ?? []) {
      const from = positionOf(part);
      if (from >= end) break;
      foldWaiting(series, position, from, entries);
      // A part that reaches beyond the folded rows is cut where they end.
      if (from + part.count > end) parts.splice(parts.indexOf(part) + 1, 0, ...cutPart(part, end - from));
      addFromQueue(series, from, part.count, part, entries);
      position = from + part.count;
    }
    foldWaiting(series, position, end, entries);
    queue.dropFront(count);
  }
}

/** Runs of what is not settled between two positions. */
function foldWaiting(series: SeriesState, from: number, to: number, entries: Entry[]): void {
  const { queue } = series;
  let position = from;
  while (position < to) {
    if (queue.isSettled(position)) {
      position++;
      continue;
    }
    let end = position + 1;
    while (end < to && !queue.isSettled(end)) end++;
    addFromQueue(series, position, end - position, undefined, entries);
    position = end;
  }
}

function addFromQueue(
  { series, queue }: SeriesState,
  position: number,
  count: number,
  part: Part | undefined,
  entries: Entry[],
): void {
  addEntry(series.id, { count, ...queue.copy(position, count) }, 0, count, part, entries);
}

function addEntry(
  series: number,
  values: SegmentValues,
  from: number,
  to: number,
  part: Part | undefined,
  entries: Entry[],
): void {
  let lastTimeMs = Number.NEGATIVE_INFINITY;
  for (let i = from; i < to; i++) if (values.timeMs[i]! > lastTimeMs) lastTimeMs = values.timeMs[i]!;
  entries.push({ series, count: to - from, lastTimeMs, packed: packSegment(values, from, to), part });
}
