import type { BufferBounds, DiskUse } from './bounds.ts';
import type { AssetLanes } from './lanes.ts';
import type { Series } from './series.ts';
import type { Columns } from './value-columns.ts';

export interface ValueStoreOptions {
  bounds: BufferBounds;
  /** The log is folded when its oldest value is older. */
  foldAfterMs: number;
  /** The log is folded when it holds more: the queues in memory are as long as the log. */
  foldValues: number;
}

/** What the main thread keeps current with every answer. */
export interface StoreFacts {
  /** Assets whose lanes changed. */
  lanes: AssetLanes[];
  logValues: number;
  segmentValues: number;
  quarantined: number;
  spans: number;
  disk: DiskUse;
  /** Age of the oldest value in milliseconds, as far as it is known without trusting the wall clock. */
  oldestAgeMs: number;
  /** Something waits for a commit beside new values. */
  dirty: boolean;
  /** There is tidying to do: folding, merging, giving space back. */
  untidy: boolean;
  /** Since the last answer. */
  dropped: { reason: 'bytes' | 'age'; values: number }[];
  damaged: { what: string; values: number }[];
}

export interface CommitRequest {
  columns: Columns | undefined;
  newSeries: Series[];
  monotonicMs: number;
  wallMs: number;
}
