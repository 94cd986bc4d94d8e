import { type Clock, systemClock } from '../../../src/base/clock.ts';

/** Returns a clock that runs faster than real time. */
export function fasterClock(factor: number): Clock {
  return {
    ...systemClock,
    monotonicMs: () => systemClock.monotonicMs() * factor,
    after: (ms, run) => systemClock.after(ms / factor, run),
    sleep: (ms, signal) => systemClock.sleep(ms / factor, signal),
  };
}
