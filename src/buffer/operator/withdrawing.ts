/**
 * Removes values from the buffer for an operator: drops them (`purge`) or moves them to another series (`retarget`).
 * Values in flight are skipped, because the platform may be accepting them. As with settling, the change takes effect
 * in memory immediately and is written to disk with the next commit. A step takes a few milliseconds.
 */

import type { SegmentReader } from '../batches/segment-reader.ts';
import { settleRuns } from '../batches/settle.ts';
import type { SegmentValues } from '../format/segment.ts';
import { addRange, openRun, type SettledRanges } from '../format/settled-ranges.ts';
import type { SeriesState } from '../records.ts';
import type { Series } from '../series.ts';
import { entryBehind, type Span, type SpanCursor } from '../span.ts';
import type { StoreState } from '../state.ts';

export interface Withdrawal {
  /** Only these series. Default: all. */
  series?: readonly number[] | undefined;
  /** Only values with an older timestamp, in milliseconds since 1970. */
  beforeMs?: number | undefined;
  /** Position at which the previous step ended. */
  cursor?: WithdrawalCursor | undefined;
  /** Maximum number of segments per step. */
  stepSegments?: number | undefined;
}

/** Pairs of a series number and the series, possibly new, to which its values are moved. */
export interface Retargeting extends Withdrawal {
  pairs: readonly { from: number; to: Series }[];
}

/** Ordered by span. After the last span, `place` is Infinity and `entry` is a series number. */
export type WithdrawalCursor = SpanCursor;

export interface WithdrawalStep {
  values: number;
  /**
   * Position at which to continue; `undefined` at the end. A flush can move values behind the cursor, so callers repeat
   * the procedure until a pass finds no values.
   */
  cursor: WithdrawalCursor | undefined;
}

/** Receives removed values in order of acceptance, and the run that accepted each. */
export type Receiver = (
  series: SeriesState,
  values: SegmentValues,
  range: { from: number; to: number },
  runOf: (at: number) => number,
) => void;

/** Maximum number of segments to read per step. Reading and unpacking a segment takes tens of microseconds. */
const SEGMENTS_READ = 100;
/** Maximum number of segments to remove per step without reading them. */
const SEGMENTS_LOST = 2_000;
const VALUES_MOVED = 10_000;

export function withdraw(
  state: StoreState,
  segments: SegmentReader,
  request: Withdrawal,
  receive?: Receiver,
): WithdrawalStep {
  const beforeMs = request.beforeMs ?? Number.POSITIVE_INFINITY;
  const wanted = request.series && new Set(request.series);
  const inFlight = rangesInFlight(state);
  const step = { values: 0, read: 0, lost: 0 };
  const isFull = () =>
    step.read >= (request.stepSegments ?? SEGMENTS_READ) ||
    step.lost >= (request.stepSegments ?? SEGMENTS_LOST) ||
    (receive !== undefined && step.values >= VALUES_MOVED);
  const start = request.cursor ?? { place: Number.NEGATIVE_INFINITY, span: 0, entry: 0 };
  // Copied, because empty spans are removed from the list.
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
    // Queues are in memory, so a step that has not found any values continues. Otherwise, a flush could move the
    // remaining values behind the cursor.
    if (step.values > 0 && isFull())
      return { values: step.values, cursor: { place: Number.POSITIVE_INFINITY, span: 0, entry: id } };
    withdrawQueue(series);
  }
  return { values: step.values, cursor: undefined };

  function withdrawSegment(span: Span, entry: number): void {
    const series = state.seriesOf(span.series[entry]!);
    const sent = inFlight.get(span)?.get(entry) ?? [];
    const runs = idleRuns(span, entry, sent);
    if (runs.length === 0) return;
    // Segments in which all values are old enough are removed without being read, unless a receiver requires the
    // values.
    if (receive || span.lastTimeMs[entry]! >= beforeMs) {
      const values = segments.readOnce(span, entry);
      step.read++;
      if (!values) return;
      const old = runs.flatMap((run) => runsBefore(values.timeMs, run, beforeMs));
      runs.splice(0, runs.length, ...old);
      for (const run of runs) receive?.(series, values, run, () => span.run);
    } else step.lost++;
    if (runs.length > 0) step.values += settleRuns(state, span, entry, runs);
  }

  function withdrawQueue(series: SeriesState): void {
    const { queue } = series;
    for (let at = queue.popped; ; ) {
      const run = queue.idleRun(at, beforeMs);
      if (!run) break;
      const count = run.to - run.from;
      const runOf = (i: number) => state.runOf(series, run.from + i);
      receive?.(series, { count, ...queue.copy(run.from, count) }, { from: 0, to: count }, runOf);
      state.settleQueued(series, run.from, count);
      step.values += count;
      at = run.to;
    }
  }
}

/** Returns ranges in flight per span and entry. */
function rangesInFlight(state: StoreState): Map<Span, Map<number, SettledRanges>> {
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

/** Returns ranges of a segment that are neither settled nor in flight. */
function idleRuns(span: Span, entry: number, sent: SettledRanges): { from: number; to: number }[] {
  let barred = span.progress.get(entry) ?? [];
  for (let i = 0; i < sent.length; i += 2) barred = addRange(barred, sent[i]!, sent[i + 1]!);
  const runs: { from: number; to: number }[] = [];
  for (let run = openRun(barred, span.count[entry]!); run; run = openRun(barred, span.count[entry]!, run.to))
    runs.push(run);
  return runs;
}

/** Returns the parts of a run with times before `beforeMs`. */
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
