// Loaded before the daemon (`node --import`), in each of its threads: the wall clock is moved by as many milliseconds as the
// file of MOVED_CLOCK says, and chance is at its least, so that pauses are short. Monotonic time stays as it is.
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
