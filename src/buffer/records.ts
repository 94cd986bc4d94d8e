/** Records of the store state. Only `StoreState` writes the records of series, assets and rows. */
import type { Columns } from './format/value-columns.ts';
import type { Series } from './series.ts';
import type { SeriesQueue } from './series-queue.ts';
import type { Span } from './span.ts';

export interface SeriesState {
  series: Series;
  asset: AssetState;
  /** `NO_QUEUE` if the log contains no value of the series. */
  queue: SeriesQueue;
  /** Arrivals up to this sequence number are flushed. */
  flushedSeq: number;
  /** Number of segments that are not gone. */
  segments: number;
  /** Latest timestamp in the backlog; -Infinity if it is empty. Live values must have a later timestamp. */
  backlogTimeMs: number;
  held: boolean;
}

/** Values of one commit, not sorted by series. */
export interface Arrival {
  columns: Columns;
  /** Sequence number of the first value. */
  firstSeq: number;
}

/** A row of the log that contains unsettled values. */
export interface RowState {
  id: number;
  firstSeq: number;
  count: number;
  /** Number of values that are neither settled nor flushed. */
  left: number;
  /** Whether its values are in memory, so that they can be posted and flushed. */
  isLoaded: boolean;
  run: number;
  /** Acceptance time on the monotonic clock of `run`. */
  monotonicMs: number;
}

export interface AssetState {
  asset: number;
  series: SeriesState[];
  /** Spans that contain segments of the asset, in order, and its entries in them: [from, to). */
  places: { span: Span; from: number; to: number }[];
  /** Segment values that can be posted now: not settled, in flight or held. */
  backlog: number;
  /** Number of batches in flight, by lane. */
  liveInFlight: number;
  backlogInFlight: number;
  /** Index of the first series in the next post, so that full posts omit different series. Written by `takeBatch`. */
  nextSeries: number;
  /**
   * Target of the previous batch with `TakeRequest.oneInstrumentation`; -Infinity before the first. Written by
   * `takeBatch`.
   */
  lastTarget: number;
}

/** Values of one series in a batch, and their location. */
export interface BatchSlice {
  series: SeriesState;
  /** In the log: an absolute position in the queue. In a segment: the entry and the first value. */
  at: { position: number } | { span: Span; entry: number; from: number };
  count: number;
  timeMs: Float64Array;
  value: Float64Array;
  flags: Uint8Array;
}

export interface BatchState {
  id: number;
  asset: AssetState;
  lane: 'live' | 'backlog';
  /** Whether the batch occupies the backlog lane: a backlog batch, or a live batch with backlog values. */
  hasBacklog: boolean;
  slices: BatchSlice[];
}

/** Returns values `from` to `to` of a slice as a new slice. */
export function subSlice(slice: BatchSlice, from: number, to: number): BatchSlice {
  const { at } = slice;
  return {
    series: slice.series,
    at: 'position' in at ? { position: at.position + from } : { ...at, from: at.from + from },
    count: to - from,
    timeMs: slice.timeMs.subarray(from, to),
    value: slice.value.subarray(from, to),
    flags: slice.flags.subarray(from, to),
  };
}

/** Truncates a slice to its first `count` values and returns the rest as a new slice. */
export function cutSlice(slice: BatchSlice, count: number): BatchSlice {
  const rest = subSlice(slice, count, slice.count);
  Object.assign(slice, subSlice(slice, 0, count));
  return rest;
}
