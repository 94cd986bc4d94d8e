import type { AssetLanes } from './client/lanes.ts';
import type { Note } from './client/notes.ts';
import type { Columns } from './format/value-columns.ts';
import type { Salvage } from './recovery/salvage.ts';
import type { Series } from './series.ts';
import type { BufferBounds, DiskUse } from './space/bounds.ts';

/** By which bound values were dropped (`quarantine`: by that on bytes, out of quarantine), or by an operator's word. */
export type DropReason = 'bytes' | 'age' | 'quarantine' | 'purge';

export interface ValueStoreOptions {
  bounds: BufferBounds;
  /** What is older is flushed, some time after the oldest has reached it. */
  flushAfterMs: number;
  /** The log is flushed when it holds more: the queues in memory are as long as the log. */
  flushValues: number;
  /**
   * So many series are loaded at most, the oldest values' first, for want of memory. Where the buffer names more, the rest stays
   * on disk for a later opening (`StoreFacts.notLoaded`). Left out: all.
   */
  maxLoadedSeries?: number | undefined;
  /** Of flushing and compaction; left out, some milliseconds' worth. */
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
  /**
   * Values that the opening left on disk, because their series exceed `maxLoadedSeries`. Until another opening finds none, nothing may
   * be taken in: what is new would go before them, and under numbers that are theirs.
   */
  notLoaded: number;
  quarantined: number;
  spans: number;
  disk: DiskUse;
  /** The disk was full and has no room yet for the reserve: new values go into free pages alone, deleting in small steps. */
  short: boolean;
  /** Nor are there such pages: new values are refused. */
  full: boolean;
  /** Free pages had better go back to the file system. */
  spare: boolean;
  /** The file is larger than the bound allows: they go back though values keep coming. */
  oversized: boolean;
  /**
   * Monotonic milliseconds at which the oldest value was accepted, by the clock of this run; `undefined` if no value waits. What an
   * earlier run accepted is as old as it is known to be without the wall clock.
   */
  oldestAcceptedMs: number | undefined;
  /** Something waits for a commit beside new values. */
  dirty: boolean;
  /** There is maintenance to do: flush, compaction, giving space back. */
  maintenanceDue: boolean;
  /** A part of it stands in a file that was set aside, and is carried over. */
  isCarrying: boolean;
  /** Since the last answer. */
  dropped: { reason: DropReason; values: number }[];
  damaged: Damage[];
}

export interface CommitRequest {
  columns: Columns | undefined;
  newSeries: Series[];
  /** Facts that stand or fall with the values. */
  notes?: readonly Note[];
  monotonicMs: number;
}
