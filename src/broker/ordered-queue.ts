/**
 * Passes messages to their handlers in the order of arrival. If a handler rejects a message, the message stays at the head of the queue
 * and every later message waits behind it, so back-pressure never lets an older value overtake a newer one. The head is retried with
 * backoff. Handlers may work on many messages at once; only acceptance is ordered.
 *
 * The caller bounds the queue: it stops reading while too much waits. A crash loses the queue, which holds nothing acknowledged.
 */
import type { Clock } from '../base/clock.ts';
import { type Backoff, fullJitterMs } from '../base/retry.ts';

export interface OrderedQueueOptions<Item> {
  /** Passes one item on. Throws at once or rejects if the item must be retried. Items stored together may share a promise. */
  deliver(item: Item): Promise<void>;
  /** Whether the item can no longer be acknowledged. Such an item is not retried. */
  isOver(item: Item): boolean;
  /** Called when an item joins the queue because its handler rejected it. */
  onRefused(item: Item, error: unknown): void;
  clock: Clock;
  signal: AbortSignal;
}

interface Waiting<Item> {
  item: Item;
  /** Position in the order of arrival. */
  number: number;
  error: unknown;
  resolve(): void;
  reject(error: unknown): void;
}

/** Items that share one promise. */
interface Together<Item> {
  answer: Promise<void>;
  items: { item: Item; number: number }[];
  stored: Promise<void>;
}

const RETRY: Backoff = { baseMs: 200, capMs: 5_000 };
const RETRY_FLOOR_MS = 50;

export class OrderedQueue<Item> {
  readonly #options: OrderedQueueOptions<Item>;
  readonly #waiting: Waiting<Item>[] = [];
  #nextNumber = 0;
  /** Retries since an item was last stored. */
  #attempts = 0;
  #isRetrying = false;
  #last: Together<Item> | undefined;

  constructor(options: OrderedQueueOptions<Item>) {
    this.#options = options;
  }

  /** Number of items that wait for a retry. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** Resolves when the item is stored. Rejects if the item is over before. Items stored together share the promise. */
  offer(item: Item): Promise<void> {
    const number = this.#nextNumber++;
    if (this.#waiting.length > 0) return this.#wait(item, number, undefined);
    let answer: Promise<void>;
    try {
      answer = this.#options.deliver(item);
    } catch (error) {
      this.#options.onRefused(item, error);
      return this.#wait(item, number, error);
    }
    if (this.#last?.answer === answer) {
      this.#last.items.push({ item, number });
      return this.#last.stored;
    }
    const items = [{ item, number }];
    const forget = () => {
      if (this.#last?.answer === answer) this.#last = undefined;
    };
    const stored = answer.then(forget, async (error: unknown) => {
      forget();
      this.#options.onRefused(item, error);
      await Promise.all(items.map((one) => this.#wait(one.item, one.number, error)));
    });
    this.#last = { answer, items, stored };
    return stored;
  }

  /** Empties the queue and returns what waited, in order. Each item's promise rejects with `error`. */
  clear(error: unknown): Item[] {
    const cleared = this.#waiting.splice(0);
    for (const { reject } of cleared) reject(error);
    return cleared.map(({ item }) => item);
  }

  #wait(item: Item, number: number, error: unknown): Promise<void> {
    return new Promise((resolve, reject) => this.#insert({ item, number, error, resolve, reject }));
  }

  #insert(entry: Waiting<Item>): void {
    if (this.#options.isOver(entry.item)) {
      entry.reject(entry.error);
      return;
    }
    const behind = this.#waiting.findLastIndex(({ number }) => number < entry.number);
    this.#waiting.splice(behind + 1, 0, entry);
    if (!this.#isRetrying) void this.#retry();
  }

  async #retry(): Promise<void> {
    const { clock, signal } = this.#options;
    this.#isRetrying = true;
    try {
      while (this.#waiting.length > 0) {
        const waitMs = fullJitterMs(this.#attempts++, RETRY, () => clock.random(), RETRY_FLOOR_MS);
        await clock.sleep(waitMs, signal);
        this.#deliverWaiting();
      }
    } catch (error) {
      this.clear(error);
    } finally {
      this.#isRetrying = false;
    }
  }

  /** Delivers from the head until a handler rejects an item. */
  #deliverWaiting(): void {
    let delivered = 0;
    for (const entry of this.#waiting) {
      try {
        const stored = this.#options.deliver(entry.item);
        stored.then(
          () => {
            this.#attempts = 0;
            entry.resolve();
          },
          (error: unknown) => this.#insert({ ...entry, error }),
        );
      } catch (error) {
        entry.error = error;
        break;
      }
      delivered++;
    }
    this.#waiting.splice(0, delivered);
  }
}
