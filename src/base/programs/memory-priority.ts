import { writeFileSync } from 'node:fs';

/** Half of the memory that the unit allows, added to what the kernel compares. */
const BADNESS = '500';

/**
 * Makes the kernel kill this program, and all that it starts, before the agent if the memory of the unit runs out. Without it the
 * kernel kills the largest process, which is the agent. Call it as soon as the program has been started.
 */
export function killBeforeAgent(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    writeFileSync(`/proc/${pid}/oom_score_adj`, BADNESS);
  } catch {
    // The program has ended already.
  }
}
