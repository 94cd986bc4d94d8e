/** What changed sources ask: which change is on in this process or thread, and (where that is counted) which were reached. */
import { appendFileSync } from 'node:fs';

export interface MutantSwitch {
  /** The change that is on. */
  active: string | undefined;
  /** How often it was asked for: a loop that a change makes endless ends by this. */
  asked: number;
  /** When the trial ends at the latest: what spins leaves no timer its turn. */
  endsAtMs: number;
  reached: Set<string> | undefined;
  /** Where a thread or a process that a test starts tells what it reached: the test cannot ask it. */
  tellTo: string | undefined;
}

const ENOUGH = 2_000_000;
const LOOK_AT_CLOCK_EACH = 1024;
// Before a test puts another clock in its place.
const { performance } = globalThis;
const nowMs = performance.now.bind(performance);
let passed = 0;

const place = globalThis as { tagferryMutants?: MutantSwitch };
place.tagferryMutants ??= {
  active: process.env.TAGFERRY_MUTANT || undefined,
  asked: 0,
  endsAtMs: Number.POSITIVE_INFINITY,
  reached: process.env.TAGFERRY_MUTANTS_REACHED ? new Set() : undefined,
  tellTo: process.env.TAGFERRY_MUTANTS_REACHED || undefined,
};
/** One in a process or thread, however often this file is loaded there. */
export const mutants: MutantSwitch = place.tagferryMutants;

export function isMutantActive(id: string): boolean {
  if (mutants.active !== id) return false;
  if (++mutants.asked > ENOUGH) throw new Error('a change made something endless');
  return true;
}

export function coverMutants(...ids: string[]): void {
  const { reached, tellTo, endsAtMs } = mutants;
  if (++passed % LOOK_AT_CLOCK_EACH === 0 && nowMs() > endsAtMs) throw new Error('a change made something endless');
  if (!reached) return;
  for (const id of ids) {
    if (reached.has(id)) continue;
    reached.add(id);
    if (tellTo) appendFileSync(tellTo, `${id}\n`);
  }
}
