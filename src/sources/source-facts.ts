import type { SourceState } from './source-kind.ts';

/** What is known of a source of tags.yaml at work: its own word, and what its gate counts. Times are monotonic. */
export interface SourceFacts extends SourceState {
  name: string;
  kind: string;
  openedMs: number;
  /** Configured for it. */
  values: number;
  /** The shortest period of its values; 0 where the source itself says when. */
  everyMs: number;
  /** Values on disk since the start. */
  stored: number;
  /** Of the last value on disk. */
  lastStoredMs: number | undefined;
  /** Of the last reading, sent or left out by the dead band. */
  lastTakenMs: number | undefined;
  /** Values that wait for the disk. */
  waiting: number;
}
