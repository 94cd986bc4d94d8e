import { ManualClock } from '../unit/doubles/manual-clock.ts';

/** One fault with its start time and duration. */
export interface Happening {
  fault: string;
  atMs: number;
  forMs: number;
  /** Displayed name, if it differs from the fault's name. */
  as?: string;
}

/** Scheduling properties of a fault. Only one fault per slot is active at a time. */
export interface Slotted {
  slot: string;
  /** Minimum and maximum duration, in milliseconds. */
  holdMs: readonly [number, number];
}

/** Returns a random schedule of `count` faults. The same seed, length and count return the same schedule. */
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
    // Every fault occurs once before any occurs twice.
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

/** Formats a schedule for a failed run's output. */
export function scheduleText(schedule: readonly Happening[]): string {
  return schedule
    .map(({ fault, atMs, forMs }) => `${(atMs / 1000).toFixed(1)} s ${fault} for ${(forMs / 1000).toFixed(1)} s`)
    .join(', ');
}
