import { Pending } from '../../src/buffer/pending.ts';
import { recoverState } from '../../src/buffer/recovery/recovery.ts';
import { SeriesCopy } from '../../src/buffer/recovery/series-copy.ts';
import { StoreState } from '../../src/buffer/state.ts';
import type { HandMadeBuffer } from './hand-made-buffer.ts';

const NOW = { monotonicMs: 5_000, wallMs: 77, boot: 'this' };

export function recovered(buffer: HandMadeBuffer, maxLoadedSeries?: number) {
  const state = new StoreState();
  const pending = new Pending();
  const found = recoverState(buffer.database, state, pending, NOW, {
    path: buffer.path,
    copy: new SeriesCopy(buffer.path),
    maxLoadedSeries,
  });
  found.carrying?.close();
  return { state, pending, found };
}

/** Of the state what stands there, of `Pending` what is not empty. */
export function picture(buffer: HandMadeBuffer, maxLoadedSeries?: number) {
  const { state, pending, found } = recovered(buffer, maxLoadedSeries);
  const { nextRow, nextSeq, nextSpan, nextPlace, logValues, segmentValues, notLoaded } = state;
  const known = state.series.filter((one) => one !== undefined);
  return {
    next: { row: nextRow, seq: nextSeq, span: nextSpan, place: nextPlace },
    values: { log: logValues, segments: segmentValues, notLoaded },
    rows: state.rows.map(({ id, firstSeq, count, left, isLoaded }) => [id, firstSeq, count, left, isLoaded]),
    spans: state.spans.map(({ id, series, gone, left, progress }) => [id, [...series], [...gone], left, [...progress]]),
    // Of each: segments, the latest time there, and of the values in its queue place, time, and whether they wait or are late.
    series: known.map(({ series, segments, backlogTimeMs, lastSeq, queue }) => [
      series.id,
      series.asset,
      segments,
      backlogTimeMs,
      lastSeq,
      Array.from({ length: queue.length }, (_, i) => queue.popped + i)
        .filter((at) => !queue.isSettled(at))
        .map((at) => queue.seqAt(at)),
      [...queue.copy(queue.popped, queue.length).timeMs],
      [...queue.copy(queue.popped, queue.length).flags],
      [queue.waiting, queue.late],
    ]),
    // How many have a queue.
    inLog: state.seriesInLog(),
    touched: [...state.touched].map(({ asset }) => asset),
    pending: pendingOf(pending),
    damaged: found.damaged,
    read: found.series.map(({ id }) => id),
    run: found.run,
    isCarrying: found.carrying !== undefined,
  };
}

function pendingOf(pending: Pending) {
  const { aside, droppedRows, droppedSeries, newSeries, goneSegments, changedSpans, droppedSpans } = pending;
  const all = {
    aside: aside.map(({ what, place, atMs, bytes }) => [what, place, atMs, bytes?.length]),
    droppedRows,
    droppedSeries,
    newSeries: [...newSeries.keys()],
    goneSegments: [...goneSegments],
    changedSpans: [...changedSpans].map(({ id }) => id),
    droppedSpans: [...droppedSpans].map(({ id }) => id),
  };
  return Object.fromEntries(Object.entries(all).filter(([, list]) => list.length > 0));
}

export const NOTHING = {
  next: { row: 1, seq: 0, span: 1, place: 1 },
  values: { log: 0, segments: 0, notLoaded: 0 },
  rows: [],
  spans: [],
  series: [],
  inLog: 0,
  touched: [],
  pending: {},
  damaged: [],
  read: [],
  run: { id: 1, boot: 'this', isNew: true, began: { monotonicMs: 5_000, wallMs: 77 }, notedMs: 5_000 },
  isCarrying: false,
};
