import type { AssetLanes } from './client/lanes.ts';
import type { Note } from './client/notes.ts';
import type { Columns } from './format/value-columns.ts';
import type { Salvage } from './recovery/salvage.ts';
import type { Series } from './series.ts';
import type { BufferBounds, DiskUse } from './space/bounds.ts';

/** Reason why values were dropped: a bound (`quarantine`: quarantined values, by the bound on bytes) or an operator. */
export type DropReason = 'bytes' | 'age' | 'quarantine' | 'purge';

export interface ValueStoreOptions {
  bounds: BufferBounds;
  /** Age at which log rows are flushed, in milliseconds. */
  flushAfterMs: number;
  /** Number of log values above which the log is flushed. */
  flushValues: number;
  /**
   * Maximum number of series loaded at startup, oldest values first. The rest remains on disk until the store is opened
   * again (`StoreFacts.notLoaded`). Default: no limit.
   */
  maxLoadedSeries?: number | undefined;
  /** Size of one flush or compaction step. Default: a few milliseconds. */
  stepSize?: StepSize;
}

/** Maximum size of one step, which limits how much a commit writes in addition to new values. */
export interface StepSize {
  values: number;
  segments: number;
}

/** An unreadable row that was set aside, or an unreadable file. */
export interface Damage {
  what: string;
  /** Known number of lost values. */
  values: number;
  /** Name of the file that was set aside, and what was recovered. */
  file?: string;
  salvaged?: Salvage;
}

/** State of the store, returned by every call. */
export interface StoreFacts {
  /** Assets whose lanes changed. */
  lanes: AssetLanes[];
  logValues: number;
  segmentValues: number;
  /**
   * Values left on disk because their series exceed `maxLoadedSeries`. While this number is not 0, no values may be
   * accepted, because they would overtake older values.
   */
  notLoaded: number;
  quarantined: number;
  spans: number;
  disk: DiskUse;
  /** Whether the disk was full and there is no space for the reserve yet. Values are written only into free pages. */
  short: boolean;
  /** Whether there are also no free pages, so that new values are rejected. */
  full: boolean;
  /** Whether free pages should be returned to the file system. */
  spare: boolean;
  /** Whether the file exceeds its bound, so that free pages are returned even while values arrive. */
  oversized: boolean;
  /** Acceptance time of the oldest value on the monotonic clock of this run; `undefined` if the buffer is empty. */
  oldestAcceptedMs: number | undefined;
  /** Whether changes are waiting for a commit. */
  dirty: boolean;
  /** Whether background work is due. */
  maintenanceDue: boolean;
  /** Whether segments are being copied from a file that was set aside. */
  isCarrying: boolean;
  /** Values dropped since the previous call. */
  dropped: { reason: DropReason; values: number }[];
  damaged: Damage[];
}

export interface CommitRequest {
  columns: Columns | undefined;
  newSeries: Series[];
  /** Notes that are stored only together with the values. */
  notes?: readonly Note[];
  monotonicMs: number;
}
