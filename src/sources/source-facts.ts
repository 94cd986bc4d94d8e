import { counted, countText } from '../base/amounts.ts';
import type { Arrivals, Unread } from './arrivals.ts';
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
  missing: MissingValues;
}

/** Values that have not arrived since the source was opened, beyond their time of grace. */
interface MissingValues {
  count: number;
  first: readonly MissingValue[];
}

export interface MissingValue {
  /** `FT-101 flow` */
  name: string;
  /** Of what came for it; `null` if nothing came. */
  problem: string | null;
}

const NONE_MISSING: MissingValues = { count: 0, first: [] };
const MISSING_SHOWN = 5;
/** Polled values get three of their periods too. */
const GRACE_MS = 20_000;
const GRACE_POLLS = 3;

interface Running {
  name: string;
  kind: string;
  source: RunningSource;
  gate: Gate;
  points: readonly Point[];
  openedMs: number;
  /** Whether every poll brings a value. */
  isPolled: boolean;
  nowMs: number;
}

export function runningFacts({ name, kind, source, gate, points, openedMs, isPolled, nowMs }: Running): SourceFacts {
  const { stored, lastStoredMs, lastTakenMs, waiting } = gate;
  const minimumMs = Math.min(...points.map((point) => point.everyMs).filter((ms) => ms > 0));
  const everyMs = isPolled && Number.isFinite(minimumMs) ? minimumMs : 0;
  const values = points.length;
  const state = source.state();
  const { rejected } = gate.arrivals;
  const isAllRejected = lastTakenMs === undefined && rejected !== undefined && state.problem === undefined;
  const missing = missingOf(points, gate.arrivals, nowMs - openedMs);
  return {
    ...state,
    ...(isAllRejected ? { problem: rejectedWords(rejected) } : {}),
    ...{ name, kind, openedMs, values, everyMs, stored, lastStoredMs, lastTakenMs, waiting, missing },
  };
}

/** That nothing of a source could be read. */
export function rejectedWords({ count, problem }: Unread): string {
  return count === 1 ? `rejected: ${problem}` : `${countText(count)} rejected, the latest: ${problem}`;
}

function missingOf(points: readonly Point[], arrivals: Arrivals, openMs: number): MissingValues {
  if (openMs < GRACE_MS) return NONE_MISSING;
  const missing = points.filter((point) => openMs >= GRACE_POLLS * point.everyMs && !arrivals.has(point));
  const first = missing.slice(0, MISSING_SHOWN).map((point) => {
    const unread = arrivals.unreadOf(point);
    return { name: point.name, problem: unread ? unreadWords(unread) : null };
  });
  return { count: missing.length, first };
}

/** Why a value could not be read, of so many messages for it. */
export function unreadWords({ problem, count }: Unread): string {
  return count === 1 ? problem : `${counted(count, 'message')} received; the latest: ${problem}`;
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
  return {
    ...unopened,
    ...nothing,
    openedMs: unopened.sinceMs,
    connected: false,
    everyMs: 0,
    errors: 1,
    missing: NONE_MISSING,
  };
}
