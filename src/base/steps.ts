/** Regular steps of the monotonic clock: multiples of an interval. */
export interface NextStep {
  /** Monotonic time of the next step. */
  dueMs: number;
  /** Number of steps that passed without being used. */
  missed: number;
}

/** Returns the step to use after the one at `dueMs`. A timer may fire slightly early, and no step is used twice. */
export function nextStep(dueMs: number, nowMs: number, everyMs: number): NextStep {
  const nextMs = firstStepAfter(dueMs, everyMs);
  const usedMs = nextMs > nowMs ? nextMs : firstStepAfter(nowMs, everyMs);
  return { dueMs: usedMs, missed: Math.round((usedMs - nextMs) / everyMs) };
}

function firstStepAfter(nowMs: number, everyMs: number): number {
  return (Math.floor(nowMs / everyMs) + 1) * everyMs;
}
