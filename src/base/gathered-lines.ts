import type { Clock } from './clock.ts';

/**
 * Groups log lines with the same cause. The first item is logged immediately, and further items within ten seconds are
 * combined into one line. For example, an outage of a broker with two hundred topics results in two lines.
 */
export const GATHER_MS = 10_000;
/** Maximum number of items listed in a line. Further items are only counted. */
export const MAX_NAMED = 20;

export class GatheredLines<Item> {
  readonly #clock: Pick<Clock, 'after'>;
  readonly #open = new Map<string, Item[]>();

  constructor(clock: Pick<Clock, 'after'>) {
    this.#clock = clock;
  }

  /** Calls `write` with the first item of a cause immediately, and with later items combined. */
  note(cause: string, item: Item, write: (items: readonly Item[]) => void): void {
    const gathered = this.#open.get(cause);
    if (gathered) {
      gathered.push(item);
      return;
    }
    this.#open.set(cause, []);
    write([item]);
    this.#wait(cause, write);
  }

  #wait(cause: string, write: (items: readonly Item[]) => void): void {
    this.#clock.after(GATHER_MS, () => {
      const gathered = this.#open.get(cause)!;
      if (gathered.length === 0) {
        this.#open.delete(cause);
        return;
      }
      this.#open.set(cause, []);
      write(gathered);
      this.#wait(cause, write);
    });
  }
}
