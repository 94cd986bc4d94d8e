import type { Clock } from '../base/clock.ts';

/** The first posts and values load the last modules and leave the last garbage of a start. */
const AFTER_MS = 5_000;

type Collect = (options: { type: 'major'; execution: 'sync'; flavor: 'last-resort' }) => void;

/**
 * Collects what is garbage now and gives its memory back, at the price of a pause of some ten milliseconds. Nothing where the
 * runtime was not started with `--expose-gc`, as the package's command starts it.
 */
export function collectGarbage(): void {
  const { gc } = globalThis as { gc?: Collect };
  gc?.({ type: 'major', execution: 'sync', flavor: 'last-resort' });
}

/**
 * Gives back what reading the configuration or opening the stores has left behind, some seconds after a start or a reload: V8
 * keeps a heap that has grown, and of an idle agent's memory a fifth was that. Each thread has its own.
 */
export function giveBackMemory(clock: Clock): void {
  clock.after(AFTER_MS, collectGarbage);
}
