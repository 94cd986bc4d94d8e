/**
 * Folding: the front of the log becomes spans. What is settled falls away, what is not becomes a segment for each
 * series; what a batch has under way becomes a segment of its own, so that the batch still finds it.
 *
 * It goes some series a step, a span each, so that no commit waits long. A step happens in memory at once and is on disk
 * with the next commit, which writes the segments, and in the log that their values have left it; the last step deletes
 * the rows. Between steps everything is as it must be: values that are folded stand in segments, the others in the log.
 */
import { type Arrival, type SortedValues, sortArrivals } from './arrivals.ts';
import { cutPart } from './parts.ts';
import type { Pending } from './pending.ts';
import { packSegment, type SegmentValues } from './segment.ts';
import { newSpan, type Span, segmentId } from './span.ts';
import type { Part, RowState, SeriesState, StoreState } from './state.ts';
import type { StepSize } from './store-facts.ts';

/** Of rows in order, those at the front that were taken in by one run of the agent: a span has one. */
export function rowsOfOneRun(rows: readonly RowState[], most: number): number {
  let count = 0;
  while (count < most && count < rows.length && rows[count]!.run === rows[0]!.run) count++;
  return count;
}

const WHOLE: StepSize = { values: Number.POSITIVE_INFINITY, segments: Number.POSITIVE_INFINITY };

interface Entry {
  series: number;
  count: number;
  lastTimeMs: number;
  packed: Uint8Array;
  /** The part of a batch that is under way in it. */
  part: Part | undefined;
}

/** One fold at a time: rows that were at the front when it began, and how far it has come. */
interface UnderWay {
  last: RowState;
  throughSeq: number;
  /** Every series there was, asset by asset; those that came later have nothing in these rows. */
  series: SeriesState[];
  next: number;
  /** Arrivals of the series from `next` on, as they were sorted; `first` is the first of them. */
  sorted: { first: Arrival | undefined; values: SortedValues; next: number } | undefined;
}

export class Folding {
  readonly #state: StoreState;
  readonly #pending: Pending;
  #underWay: UnderWay | undefined;

  constructor(state: StoreState, pending: Pending) {
    this.#state = state;
    this.#pending = pending;
  }

  get isUnderWay(): boolean {
    return this.#underWay !== undefined;
  }

  /** After opening: a fold in whose middle the agent ended goes on, so that all it folds is of one age. */
  resume(): void {
    const { spans, rows } = this.#state;
    const last = spans.at(-1);
    if (!last) return;
    const after = rows.findIndex((row) => row.run !== last.run || row.monotonicMs > last.acceptedMs);
    const rowCount = after < 0 ? rows.length : after;
    if (rowCount > 0) this.begin(rowCount);
  }

  /** Whether the span is one of the fold under way: more of that time are to come. */
  made({ run, acceptedMs }: Span): boolean {
    const last = this.#underWay?.last;
    return last !== undefined && last.run === run && last.monotonicMs === acceptedMs;
  }

  /** Begins with the first `rowCount` rows. */
  begin(rowCount: number): void {
    const last = this.#state.rows[rowCount - 1]!;
    const series = [...this.#state.assets.values()].flatMap((asset) => asset.series);
    this.#underWay = { last, throughSeq: last.firstSeq + last.count - 1, series, next: 0, sorted: undefined };
  }

  /** Does all that is left of a fold under way. */
  finish(): void {
    while (this.#underWay) this.step(WHOLE);
  }

  /** Leaves a fold under way as it stands: what is not folded yet is in the queues, and may be folded a few rows at a time. */
  abandon(): void {
    if (!this.#underWay) return;
    this.#underWay = undefined;
    this.#state.distribute();
  }

  /** Folds some more series, one at least. */
  step(size: StepSize): void {
    const fold = this.#underWay;
    if (!fold) return;
    const state = this.#state;
    const entries: Entry[] = [];
    if (state.holdsOnlyArrivals) this.#foldArrivals(fold, size, entries);
    else {
      state.distribute(fold.throughSeq);
      this.#foldQueues(fold, size, entries);
    }
    const isDone = fold.next === fold.series.length;
    if (isDone) this.#dropRows(fold);
    if (entries.length > 0) this.#addSpan(fold, entries);
    if (isDone) state.dropArrivals(fold.throughSeq);
  }

  /** Nothing stands in the rows any more. */
  #dropRows({ last, throughSeq }: UnderWay): void {
    this.#underWay = undefined;
    const { rows } = this.#state;
    const after = rows.findIndex((row) => row.id > last.id);
    this.#state.rows = after < 0 ? [] : rows.slice(after);
    this.#pending.dropRowsThrough = Math.max(this.#pending.dropRowsThrough, last.id);
    // Runs that left these rows need no record: the rows go.
    this.#pending.settled = this.#pending.settled.filter((run) => run.lastSeq > throughSeq);
  }

  #addSpan({ last, throughSeq }: UnderWay, entries: Entry[]): void {
    const state = this.#state;
    const head = { id: state.nextSpan++, place: state.nextPlace++, run: last.run, acceptedMs: last.monotonicMs };
    const span = newSpan(head, entries);
    for (const [i, entry] of entries.entries()) {
      this.#pending.segments.set(segmentId(span.id, i), entry.packed);
      if (!entry.part) continue;
      entry.part.at = { span, entry: i, from: 0 };
      span.underWay.set(i, (span.underWay.get(i) ?? 0) + 1);
    }
    this.#pending.newSpans.add(span);
    state.addSpan(span, throughSeq);
  }

  /** What no batch has and no queue holds is sorted at once, in the first step. */
  #foldArrivals(fold: UnderWay, size: StepSize, entries: Entry[]): void {
    const state = this.#state;
    const old = state.arrivalsThrough(fold.throughSeq);
    // Unless they were given to the queues in between.
    if (!fold.sorted || fold.sorted.first !== old[0]) {
      const order = fold.series.slice(fold.next).map(({ series }) => series.id);
      fold.sorted = { first: old[0], values: sortArrivals(old, order, state.series.length), next: 0 };
    }
    const { first, values: sorted } = fold.sorted;
    for (let values = 0; fold.next < fold.series.length && values < size.values && entries.length < size.segments; ) {
      const one = fold.series[fold.next++]!;
      const { id } = one.series;
      const found = sorted.series[fold.sorted.next];
      if (found?.id !== id) continue;
      fold.sorted.next++;
      const { start, count } = found;
      values += count;
      one.foldedSeq = fold.throughSeq;
      // Their rows go when the fold ends, and are not counted down before.
      state.logValues -= count;
      this.#pending.settled.push({ series: id, firstSeq: first!.firstSeq, lastSeq: fold.throughSeq });
      addEntry(id, sorted, start, start + count, undefined, entries);
    }
  }

  #foldQueues(fold: UnderWay, size: StepSize, entries: Entry[]): void {
    const underWay = partsInLog(this.#state);
    for (let values = 0; fold.next < fold.series.length && values < size.values && entries.length < size.segments; ) {
      const one = fold.series[fold.next++]!;
      const count = one.queue.countThrough(fold.throughSeq);
      if (count > 0) this.#foldQueue(one, count, underWay.get(one) ?? [], entries);
      values += count;
    }
  }

  #foldQueue(series: SeriesState, count: number, underWay: readonly PartInLog[], entries: Entry[]): void {
    const { queue } = series;
    const end = queue.popped + count;
    let position = queue.popped;
    for (const { part, parts } of underWay) {
      const from = positionOf(part);
      if (from >= end) break;
      this.#foldWaiting(series, position, from, entries);
      // A part that reaches beyond the folded rows is cut where they end.
      if (from + part.count > end) parts.splice(parts.indexOf(part) + 1, 0, ...cutPart(part, end - from));
      this.#foldRun(series, from, part.count, part, entries);
      position = from + part.count;
    }
    this.#foldWaiting(series, position, end, entries);
    queue.dropFront(count);
  }

  /** Runs of what is not settled between two positions. */
  #foldWaiting(series: SeriesState, from: number, to: number, entries: Entry[]): void {
    const { queue } = series;
    let position = from;
    while (position < to) {
      if (queue.isSettled(position)) {
        position++;
        continue;
      }
      let end = position + 1;
      while (end < to && !queue.isSettled(end)) end++;
      this.#foldRun(series, position, end - position, undefined, entries);
      position = end;
    }
  }

  #foldRun(state: SeriesState, position: number, count: number, part: Part | undefined, entries: Entry[]): void {
    this.#pending.settled.push(this.#state.leaveRows(state, position, count));
    const values = { count, ...state.queue.copy(position, count) };
    addEntry(state.series.id, values, 0, count, part, entries);
  }
}

interface PartInLog {
  part: Part;
  /** All of its batch. */
  parts: Part[];
}

/** Parts of batches that stand in the log, by series, in order. */
function partsInLog(state: StoreState): Map<SeriesState, PartInLog[]> {
  const found = new Map<SeriesState, PartInLog[]>();
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
