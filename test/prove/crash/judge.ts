/**
 * Compares what the agent acknowledged with what the platform and the actions received. A pure function, so that its
 * test shows that each kind of error is found.
 */

/** Value that a program pushed, identified by series and timestamp. */
export interface PushedValue {
  series: string;
  timestampMs: number;
  value: number;
  isAcknowledged: boolean;
  /** Number of pushes that may have been stored: those with a 204, and those without a response. */
  stores: number;
  /** Time at which the agent confirmed that the value was purged. */
  purgedAtMs?: number;
  /** Time at which the agent first listed the value in its quarantine. */
  quarantinedAtMs?: number;
}

/** Value that the platform accepted. */
export interface DeliveredValue {
  atMs: number;
  series: string;
  timestampMs: number;
  value: number;
}

export interface Evidence {
  pushed: readonly PushedValue[];
  delivered: readonly DeliveredValue[];
  /** Values in the quarantine at the end. */
  quarantined: readonly Omit<DeliveredValue, 'atMs'>[];
  /** Times of the crashes, in ascending order. */
  crashesMs: readonly number[];
  /** Events that the platform sent, and those of them that were acknowledged with 204. */
  events: { sent: ReadonlySet<number>; acknowledged: ReadonlySet<number> };
  /** Runs of the action that each event starts. */
  actions: readonly { event: number; atMs: number }[];
}

export interface CrashCounts {
  /** Acknowledged values that were neither delivered, nor purged, nor quarantined. */
  missing: number;
  /** Delivered values and run actions without a source. */
  invented: number;
  /** Delivered values that differ from the pushed value. */
  different: number;
  /** Deliveries that neither a push nor a crash explains. */
  repeated: number;
  /** Deliveries of a value after it was purged or quarantined. */
  resurrected: number;
  /** Acknowledged events whose action did not run. */
  actionless: number;
  /** Actions that ran again although their end was on disk. */
  actionsTwice: number;
}

/** Settled values are on disk at most 2 s later; the rest is for a busy machine. */
const UNSETTLED_MS = 4_000;
/** The end of an action is written immediately; the rest is for a busy machine. */
const UNRECORDED_MS = 2_000;
/** A post or an action that began before the crash may arrive this much later. */
const ORPHANED_MS = 1_000;

const nameOf = ({ series, timestampMs }: { series: string; timestampMs: number }) => `${series}@${timestampMs}`;

export function judge(evidence: Evidence): CrashCounts {
  const { pushed, delivered, quarantined, crashesMs, events } = evidence;
  const counts = { missing: 0, invented: 0, different: 0, repeated: 0, resurrected: 0, actionless: 0, actionsTwice: 0 };
  const deliveries = Map.groupBy(delivered, nameOf);
  const inQuarantine = Map.groupBy(quarantined, nameOf);
  const known = new Set(pushed.map(nameOf));
  for (const one of [...delivered, ...quarantined]) if (!known.has(nameOf(one))) counts.invented++;
  for (const value of pushed) {
    const arrived = deliveries.get(nameOf(value)) ?? [];
    const kept = inQuarantine.get(nameOf(value)) ?? [];
    const isOwed = value.isAcknowledged && value.purgedAtMs === undefined;
    if (isOwed && arrived.length + kept.length === 0) counts.missing++;
    for (const one of [...arrived, ...kept]) if (!Object.is(one.value, value.value)) counts.different++;
    const removedMs = Math.min(value.purgedAtMs ?? Infinity, value.quarantinedAtMs ?? Infinity);
    counts.resurrected += arrived.filter(({ atMs }) => atMs > removedMs).length;
    if (value.purgedAtMs !== undefined) counts.resurrected += kept.length;
    counts.repeated += Math.max(0, arrived.length - value.stores - repeatsBy(crashesMs, arrived, UNSETTLED_MS));
    counts.repeated += Math.max(0, kept.length - value.stores);
  }
  const runs = Map.groupBy(evidence.actions, ({ event }) => event);
  for (const event of events.acknowledged) if (!runs.has(event)) counts.actionless++;
  for (const [event, ran] of runs) {
    if (!events.sent.has(event)) counts.invented++;
    counts.actionsTwice += Math.max(0, ran.length - 1 - repeatsBy(crashesMs, ran, UNRECORDED_MS));
  }
  return counts;
}

/** Returns how many repetitions the crashes explain: those of something that happened shortly before the crash. */
function repeatsBy(crashesMs: readonly number[], happened: readonly { atMs: number }[], withinMs: number): number {
  const times = happened.map(({ atMs }) => atMs).sort((a, b) => a - b);
  const explains = (crashMs: number) => {
    const open = times.findIndex((atMs) => atMs > crashMs - withinMs && atMs <= crashMs + ORPHANED_MS);
    return open >= 0 && times.slice(open + 1).some((atMs) => atMs > crashMs);
  };
  return crashesMs.filter(explains).length;
}

/** Returns the counts that are not 0, as text. */
export function wrongCounts(counts: CrashCounts): string[] {
  const words: Record<keyof CrashCounts, string> = {
    missing: 'missing values',
    invented: 'invented values or actions',
    different: 'different values',
    repeated: 'repeated values',
    resurrected: 'resurrected values',
    actionless: 'events without their action',
    actionsTwice: 'repeated actions',
  };
  const names = Object.keys(words) as (keyof CrashCounts)[];
  return names.filter((name) => counts[name] > 0).map((name) => `${counts[name]} ${words[name]}`);
}
