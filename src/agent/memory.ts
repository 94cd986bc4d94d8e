import type { Clock } from '../base/clock.ts';

/** Delay after startup, during which the first posts and values load the remaining modules. */
const AFTER_MS = 5_000;

type Collect = (options: { type: 'major'; execution: 'sync'; flavor: 'last-resort' }) => void;

/**
 * Collects garbage and returns memory to the system, which pauses the thread for tens of milliseconds. Has no effect
 * without `--expose-gc`, which the packaged command sets.
 */
export function collectGarbage(): void {
  const { gc } = globalThis as { gc?: Collect };
  gc?.({ type: 'major', execution: 'sync', flavor: 'last-resort' });
}

/**
 * Releases the memory that was used to read the configuration or open the stores. Runs a few seconds after startup or a
 * reload and saves one fifth of an idle agent's memory, because V8 does not shrink its heap by itself. Must be called
 * in each thread.
 */
export function giveBackMemory(clock: Clock): void {
  clock.after(AFTER_MS, collectGarbage);
}
