import type { Gate } from './gate.ts';
import type { Point } from './points.ts';
import type { RunningSource, SourceState } from './source-kind.ts';

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

interface Running {
  name: string;
  kind: string;
  source: RunningSource;
  gate: Gate;
  points: readonly Point[];
  openedMs: number;
  /** Whether every poll brings a value. */
  isPolled: boolean;
}

export function runningFacts({ name, kind, source, gate, points, openedMs, isPolled }: Running): SourceFacts {
  const { stored, lastStoredMs, lastTakenMs, waiting } = gate;
  const minimumMs = Math.min(...points.map((point) => point.everyMs).filter((ms) => ms > 0));
  const everyMs = isPolled && Number.isFinite(minimumMs) ? minimumMs : 0;
  const values = points.length;
  return { ...source.state(), name, kind, openedMs, values, everyMs, stored, lastStoredMs, lastTakenMs, waiting };
}

interface Unopened {
  name: string;
  kind: string;
  problem: string;
  sinceMs: number;
  values: number;
}

/** Facts of a source that could not be opened. */
export function unopenedFacts(unopened: Unopened): SourceFacts {
  const nothing = { stored: 0, lastStoredMs: undefined, lastTakenMs: undefined, waiting: 0, pollsLate: 0 };
  return { ...unopened, ...nothing, openedMs: unopened.sinceMs, connected: false, everyMs: 0, errors: 1 };
}
