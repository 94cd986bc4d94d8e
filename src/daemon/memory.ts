import type { Clock } from '../base/clock.ts';

/** The first posts and values load the last modules and leave the last garbage of a start. */
const AFTER_MS = 5_000;

type Collect = (options: { type: 'major'; execution: 'sync'; flavor: 'last-resort' }) => void;

/**
 * Gives back what reading the configuration has left behind, some seconds after a start or a reload: V8 keeps a heap that
 * has grown, and of an idle agent's memory a fifth was that. It costs one pause of some ten milliseconds, and is left out
 * where the runtime was not started with `--expose-gc`, as the package's command starts it.
 */
export function giveBackMemory(clock: Clock): void {
  const { gc } = globalThis as { gc?: Collect };
  if (gc) clock.after(AFTER_MS, () => gc({ type: 'major', execution: 'sync', flavor: 'last-resort' }));
}
