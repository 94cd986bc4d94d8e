import type { BufferBounds, DiskUse } from './bounds.ts';
import type { AssetLanes } from './lanes.ts';
import type { Salvage } from './salvage.ts';
import type { Series } from './series.ts';
import type { Columns } from './value-columns.ts';

/** By which bound values were dropped, or by an operator's word. */
export type DropReason = 'bytes' | 'age' | 'purge';

export interface ValueStoreOptions {
  bounds: BufferBounds;
  /** What is older is folded, some time after the oldest has reached it. */
  foldAfterMs: number;
  /** The log is folded when it holds more: the queues in memory are as long as the log. */
  foldValues: number;
  /** Of folding and merging; left out, some milliseconds' worth. */
  stepSize?: StepSize;
}

/** How much is packed in one step, between two commits; and so what one commit writes beside new values. */
export interface StepSize {
  values: number;
  segments: number;
}

/** Something that did not read: a row that was set aside, or the whole file. */
export interface Damage {
  what: string;
  /** Values lost with it, as far as they are known. */
  values: number;
  /** Where the whole file was set aside, and what was carried over. */
  file?: string;
  salvaged?: Salvage;
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
  /** The disk was full and has no room yet for the reserve: new values go into free pages alone, deleting in small steps. */
  short: boolean;
  /** Nor are there such pages: new values are refused. */
  full: boolean;
  /** Free pages had better go back to the file system. */
  spare: boolean;
  /** Age of the oldest value in milliseconds, as far as it is known without trusting the wall clock. */
  oldestAgeMs: number;
  /** Something waits for a commit beside new values. */
  dirty: boolean;
  /** There is tidying to do: folding, merging, giving space back. */
  untidy: boolean;
  /** Since the last answer. */
  dropped: { reason: DropReason; values: number }[];
  damaged: Damage[];
}

export interface CommitRequest {
  columns: Columns | undefined;
  newSeries: Series[];
  monotonicMs: number;
  wallMs: number;
}
