import { ManualClock } from '../doubles/manual-clock.ts';

/** One fault: when it begins and how long it holds. */
export interface Happening {
  fault: string;
  atMs: number;
  forMs: number;
  /** What it is to be called, where the name of the fault says something else. */
  as?: string;
}

/** What a fault needs of a schedule: of one slot there is one at a time. */
export interface Slotted {
  slot: string;
  /** How long it holds, at least and at most. */
  holdMs: readonly [number, number];
}

/** So many faults within so long, mixed by a seed: the same seed, length and count give the same schedule. */
export function mixed(
  seed: number,
  lengthMs: number,
  count: number,
  faults: Readonly<Record<string, Slotted>>,
): Happening[] {
  const clock = new ManualClock(0, seed);
  const names = Object.keys(faults).sort();
  const order = [...names];
  for (let i = order.length - 1; i > 0; i--) {
    const other = Math.floor(clock.random() * (i + 1));
    [order[i], order[other]] = [order[other]!, order[i]!];
  }
  const freeAt = new Map<string, number>();
  const schedule: Happening[] = [];
  for (let n = 0; n < count; n++) {
    // Each once before any a second time.
    const fault = n < order.length ? order[n]! : names[Math.floor(clock.random() * names.length)]!;
    const { slot, holdMs } = faults[fault]!;
    const forMs = Math.round(holdMs[0] + clock.random() * (holdMs[1] - holdMs[0]));
    const atMs = Math.max(Math.round(clock.random() * lengthMs), freeAt.get(slot) ?? 0);
    if (atMs + forMs > lengthMs) continue;
    freeAt.set(slot, atMs + forMs + 200);
    schedule.push({ fault, atMs, forMs });
  }
  return schedule.sort((a, b) => a.atMs - b.atMs);
}

/** As a failing run prints it. */
export function scheduleText(schedule: readonly Happening[]): string {
  return schedule
    .map(({ fault, atMs, forMs }) => `${(atMs / 1000).toFixed(1)} s ${fault} for ${(forMs / 1000).toFixed(1)} s`)
    .join(', ');
}
