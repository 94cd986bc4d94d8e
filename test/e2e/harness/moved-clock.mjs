// Preloaded into each thread of the agent (`node --import`). Moves the wall clock by the number of milliseconds in the
// file named by MOVED_CLOCK. Monotonic time is unchanged.
import { readFileSync } from 'node:fs';

const RealDate = Date;

function now() {
  let movedMs = 0;
  try {
    movedMs = Number(readFileSync(process.env.MOVED_CLOCK, 'utf8')) || 0;
  } catch {}
  return RealDate.now() + movedMs;
}

globalThis.Date = new Proxy(RealDate, {
  construct: (target, args, newTarget) => Reflect.construct(target, args.length === 0 ? [now()] : args, newTarget),
  apply: (target) => new target(now()).toString(),
  get: (target, key, receiver) => (key === 'now' ? now : Reflect.get(target, key, receiver)),
});
