import type { Clock } from './clock.ts';

/**
 * Groups log lines with the same cause. The first item is logged immediately, and further items within ten seconds are
 * combined into one line. For example, an outage of a broker with two hundred topics results in two lines.
 *
 * Causes of one subject, such as failures and recoveries, are logged in the order in which they occurred to each object.
 */
export const GATHER_MS = 10_000;
/** Maximum number of items listed in a line. Further items are only counted. */
export const MAX_NAMED = 20;

interface Entry<Item> {
  cause: string;
  object: string | undefined;
  item: Item;
  write: (items: readonly Item[]) => void;
}

/** Ten seconds in which the items of a subject are gathered. */
interface Window<Item> {
  /** Causes whose first item was logged. */
  causes: Set<string>;
  entries: Entry<Item>[];
}

export class GatheredLines<Item> {
  readonly #clock: Pick<Clock, 'after'>;
  readonly #open = new Map<string, Window<Item>>();

  constructor(clock: Pick<Clock, 'after'>) {
    this.#clock = clock;
  }

  /**
   * Calls `write` with the first item of a cause immediately, and with later items combined. `subject`: common subject
   * of several causes. `object`: object that the item concerns; of several items with the same cause, only the latest
   * is kept.
   */
  note(
    cause: string,
    item: Item,
    write: (items: readonly Item[]) => void,
    { subject = cause, object }: { subject?: string; object?: string } = {},
  ): void {
    let window = this.#open.get(subject);
    if (window === undefined) {
      window = { causes: new Set(), entries: [] };
      this.#open.set(subject, window);
      this.#wait(subject);
    }
    const isFirst = !window.causes.has(cause) && window.entries.length === 0;
    window.causes.add(cause);
    if (isFirst) write([item]);
    else window.entries.push({ cause, object, item, write });
  }

  #wait(subject: string): void {
    this.#clock.after(GATHER_MS, () => {
      const { entries } = this.#open.get(subject)!;
      if (entries.length === 0) {
        this.#open.delete(subject);
        return;
      }
      this.#open.set(subject, { causes: new Set(entries.map(({ cause }) => cause)), entries: [] });
      for (const line of linesOf(entries)) line[0]!.write(line.map(({ item }) => item));
      this.#wait(subject);
    });
  }
}

/** Combines entries with the same cause, without changing the order of the entries about an object. */
function linesOf<Item>(entries: readonly Entry<Item>[]): Entry<Item>[][] {
  const latest = new Map(entries.map((entry) => [`${entry.cause} ${entry.object}`, entry]));
  const lines: Entry<Item>[][] = [];
  /** Index of the first line that can contain the next entry about an object. */
  const from = new Map<string, number>();
  for (const entry of entries) {
    const { cause, object } = entry;
    if (object !== undefined && latest.get(`${cause} ${object}`) !== entry) continue;
    const first = object === undefined ? 0 : (from.get(object) ?? 0);
    const found = lines.findIndex((line, index) => index >= first && line[0]!.cause === cause);
    const at = found < 0 ? lines.length : found;
    lines[at] ??= [];
    lines[at].push(entry);
    if (object !== undefined) from.set(object, at + 1);
  }
  return lines;
}
