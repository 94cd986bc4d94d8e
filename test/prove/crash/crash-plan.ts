import type { CrashPoint } from '../../../src/base/crash-points.ts';

/** What happens when the agent announces a point for the `nth` time since its start. */
export interface CrashPlan {
  point: CrashPoint;
  nth: number;
  /** `kill` sends SIGKILL to the process; `full` fills the disk until the campaign deletes `ballast`. */
  effect: 'kill' | 'full';
  /** File that fills the disk. */
  ballast: string;
  /** File that receives one line when the plan is carried out. */
  mark: string;
}

/** Environment variable that contains the plan as JSON. */
export const PLAN_VARIABLE = 'TAGFERRY_CRASH_PLAN';
