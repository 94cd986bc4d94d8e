/** Loaded with `NODE_OPTIONS=--import` into every thread of the agent. Carries out the plan at its crash point. */
import { subscribe } from 'node:diagnostics_channel';
import { appendFileSync, closeSync, openSync, writeSync } from 'node:fs';
import { type CrashPlan, PLAN_VARIABLE } from './crash-plan.ts';

const text = process.env[PLAN_VARIABLE];
if (text !== undefined) {
  const { point, nth, effect, ballast, mark } = JSON.parse(text) as CrashPlan;
  // Each point belongs to one thread, so every thread counts alone.
  let announced = 0;
  subscribe('tagferry:crash-point', (name) => {
    if (name !== point || ++announced !== nth) return;
    appendFileSync(mark, `${point}\n`);
    if (effect === 'kill') process.kill(process.pid, 'SIGKILL');
    else fillDisk(ballast);
  });
}

function fillDisk(ballast: string): void {
  const file = openSync(ballast, 'a');
  for (const size of [1 << 20, 1 << 16, 1 << 12, 1 << 10]) {
    const piece = Buffer.alloc(size, 1);
    try {
      for (;;) writeSync(file, piece);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
    }
  }
  closeSync(file);
}
