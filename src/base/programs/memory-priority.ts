import { writeFileSync } from 'node:fs';

/** Adds half of the memory limit to the score by which the kernel selects the process to kill. */
const BADNESS = '500';

/**
 * Makes the kernel kill this program and its children before the agent if the unit runs out of memory. By default the
 * kernel kills the largest process, which is the agent. Must be called immediately after the program is started.
 */
export function killBeforeAgent(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    writeFileSync(`/proc/${pid}/oom_score_adj`, BADNESS);
  } catch {
    // The program has already exited.
  }
}
