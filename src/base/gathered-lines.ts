import type { Clock } from './clock.ts';

/**
 * One line where one cause has many keys: what happens to the first is said at once, and what happens to others for the same cause within
 * the next ten seconds in one line. So an outage of a broker with two hundred topics is two lines, and nothing goes unnamed for longer
 * than that.
 */
export const GATHER_MS = 10_000;
/** Named in a line; the others are counted. */
export const MAX_NAMED = 20;

export class GatheredLines<Item> {
  readonly #clock: Pick<Clock, 'after'>;
  readonly #open = new Map<string, Item[]>();

  constructor(clock: Pick<Clock, 'after'>) {
    this.#clock = clock;
  }

  /** `write` gets the first of a cause alone, later ones together. */
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
