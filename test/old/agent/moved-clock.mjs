// Preloaded into each thread of the agent (`node --import`). Shifts the wall clock by the number of milliseconds in the
// file named by MOVED_CLOCK, and makes `Math.random` return 0, so that delays are short. Monotonic time is unchanged.
import { readFileSync } from 'node:fs';

const realNow = Date.now.bind(Date);
Date.now = () => realNow() + movedBy();
Math.random = () => 0;

function movedBy() {
  try {
    return Number(readFileSync(process.env.MOVED_CLOCK ?? '', 'utf8')) || 0;
  } catch {
    return 0;
  }
}
