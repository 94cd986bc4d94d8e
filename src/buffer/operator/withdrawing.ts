/**
 * Takes values out of the buffer by an operator's word: to drop them (`purge`), or to give them to another series
 * (`retarget`). What a batch has under way is left alone: the platform may be taking it this moment.
 *
 * Settling is all that happens here, by the means of any settling: it is in memory at once and on disk with the next
 * commit. A step is some milliseconds; between steps the store takes in, posts and flushes as ever.
 */

import type { SegmentReader } from '../batches/segment-reader.ts';
import { settleRuns } from '../batches/settle.ts';
import type { SegmentValues } from '../format/segment.ts';
import { addRange, openRun, type SettledRanges } from '../format/settled-ranges.ts';
import type { Pending } from '../pending.ts';
import type { Series } from '../series.ts';
import { entryBehind, type Span, type SpanCursor } from '../span.ts';
import type { SeriesState, StoreState } from '../state.ts';

export interface Withdrawal {
  /** Only these series; all where it is left out. */
  series?: readonly number[] | undefined;
  /** Only values with an older timestamp (milliseconds since 1970). */
  beforeMs?: number | undefined;
  /** Where the last step ended; left out for the first. */
  cursor?: WithdrawalCursor | undefined;
  /** Segments of one step, read or not; left out, what takes some milliseconds. */
  stepSegments?: number | undefined;
}

/** Values of series go to others: each number to a series that may be new. */
export interface Retargeting extends Withdrawal {
  pairs: readonly { from: number; to: Series }[];
}

/** In the order of the spans; `place` is Infinity once they are done, then `entry` is a series. */
export type WithdrawalCursor = SpanCursor;

export interface WithdrawalStep {
  values: number;
  /** Where to continue; `undefined` at the end. A flush may have moved values behind it: a caller repeats until a pass finds nothing. */
  cursor: WithdrawalCursor | undefined;
}

/** Told the values that go, in their series' order of acceptance, and which run of the agent accepted each. */
export type Receiver = (
  series: SeriesState,
  values: SegmentValues,
  range: { from: number; to: number },
  runOf: (at: number) => number,
) => void;

/** Each reads and unpacks, some tens of microseconds. */
const SEGMENTS_READ = 100;
/** Segments that go whole are not read. */
const SEGMENTS_LOST = 2_000;
const VALUES_MOVED = 10_000;

export function withdraw(
  state: StoreState,
  pending: Pending,
  segments: SegmentReader,
  request: Withdrawal,
  receive?: Receiver,
): WithdrawalStep {
  const beforeMs = request.beforeMs ?? Number.POSITIVE_INFINITY;
  const wanted = request.series && new Set(request.series);
  const underWay = rangesUnderWay(state);
  const step = { values: 0, read: 0, lost: 0 };
  const isFull = () =>
    step.read >= (request.stepSegments ?? SEGMENTS_READ) ||
    step.lost >= (request.stepSegments ?? SEGMENTS_LOST) ||
    (receive !== undefined && step.values >= VALUES_MOVED);
  const start = request.cursor ?? { place: Number.NEGATIVE_INFINITY, span: 0, entry: 0 };
  // Spans that end here leave the list.
  for (const span of [...state.spans]) {
    for (let entry = entryBehind(start, span); entry < span.series.length; entry++) {
      if (span.gone[entry] || (wanted && !wanted.has(span.series[entry]!))) continue;
      if (isFull()) return { values: step.values, cursor: { place: span.place, span: span.id, entry } };
      withdrawSegment(span, entry);
    }
  }
  for (let id = start.place === Number.POSITIVE_INFINITY ? start.entry : 0; id < state.series.length; id++) {
    const series = state.series[id];
    if (!series || series.queue.length === 0 || (wanted && !wanted.has(id))) continue;
    // Queues need no reads. A flush before the next step moves values behind the cursor, so a step that found nothing does not end here.
    if (step.values > 0 && isFull())
      return { values: step.values, cursor: { place: Number.POSITIVE_INFINITY, span: 0, entry: id } };
    withdrawQueue(series);
  }
  return { values: step.values, cursor: undefined };

  function withdrawSegment(span: Span, entry: number): void {
    const series = state.seriesOf(span.series[entry]!);
    const sent = underWay.get(span)?.get(entry) ?? [];
    const runs = idleRuns(span, entry, sent);
    if (runs.length === 0) return;
    // Whole and unread where nobody wants the values and all of them are old enough.
    if (receive || span.lastTimeMs[entry]! >= beforeMs) {
      const values = segments.read(span, entry);
      step.read++;
      if (!values) return;
      const old = runs.flatMap((run) => runsBefore(values.timeMs, run, beforeMs));
      runs.splice(0, runs.length, ...old);
      for (const run of runs) receive?.(series, values, run, () => span.run);
    } else step.lost++;
    if (runs.length > 0) step.values += settleRuns(state, pending, segments, span, entry, runs);
  }

  function withdrawQueue(series: SeriesState): void {
    const { queue } = series;
    state.touched.add(series.asset);
    for (let at = queue.popped; ; ) {
      const run = queue.idleRun(at, beforeMs);
      if (!run) break;
      const count = run.to - run.from;
      const runOf = (i: number) => state.runOf(series, run.from + i);
      receive?.(series, { count, ...queue.copy(run.from, count) }, { from: 0, to: count }, runOf);
      pending.settled.push(state.leaveRows(series, run.from, count));
      queue.settle(run.from, count);
      step.values += count;
      at = run.to;
    }
    state.releaseQueue(series);
  }
}

/** What batches have of segments: per span and entry, as ranges. */
function rangesUnderWay(state: StoreState): Map<Span, Map<number, SettledRanges>> {
  const found = new Map<Span, Map<number, SettledRanges>>();
  for (const batch of state.batches.values()) {
    for (const { at, count } of batch.slices) {
      if ('position' in at) continue;
      const entries = found.get(at.span) ?? new Map<number, SettledRanges>();
      found.set(at.span, entries);
      entries.set(at.entry, addRange(entries.get(at.entry) ?? [], at.from, at.from + count));
    }
  }
  return found;
}

/** Runs of a segment that are neither settled nor under way. */
function idleRuns(span: Span, entry: number, sent: SettledRanges): { from: number; to: number }[] {
  let barred = span.progress.get(entry) ?? [];
  for (let i = 0; i < sent.length; i += 2) barred = addRange(barred, sent[i]!, sent[i + 1]!);
  const runs: { from: number; to: number }[] = [];
  for (let run = openRun(barred, span.count[entry]!); run; run = openRun(barred, span.count[entry]!, run.to))
    runs.push(run);
  return runs;
}

/** Of a run, the runs whose times lie before `beforeMs`. */
function runsBefore(timeMs: Float64Array, run: { from: number; to: number }, beforeMs: number) {
  const runs: { from: number; to: number }[] = [];
  for (let at = run.from; at < run.to; at++) {
    if (timeMs[at]! >= beforeMs) continue;
    const last = runs.at(-1);
    if (last?.to === at) last.to++;
    else runs.push({ from: at, to: at + 1 });
  }
  return runs;
}
