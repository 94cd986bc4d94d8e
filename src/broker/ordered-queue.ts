/**
 * Passes messages to their handlers in order of arrival. If a handler rejects a message, the message stays at the head
 * of the queue and later messages wait behind it. An older value therefore never overwrites a newer one. The head is
 * retried with backoff, or as soon as an earlier message is stored, because handlers reject messages while too many are
 * not stored yet. Handlers may process many messages at once; only acceptance is ordered.
 *
 * The caller limits the queue by not reading while too many messages are waiting. A crash loses the queue, which
 * contains no acknowledged messages.
 */
import type { Clock } from '../base/clock.ts';
import { type Backoff, fullJitterMs } from '../base/retry.ts';

export interface OrderedQueueOptions<Item> {
  /** Delivers one item. Throws or rejects if the item must be retried. */
  deliver(item: Item): Promise<void>;
  /** Whether the item can no longer be acknowledged and is therefore not retried. */
  isOver(item: Item): boolean;
  /** Called when an item joins the queue because its handler rejected it. */
  onRejected(item: Item, error: unknown): void;
  clock: Clock;
  signal: AbortSignal;
}

interface Waiting<Item> {
  item: Item;
  /** Position in order of arrival. */
  number: number;
  error: unknown;
  resolve(): void;
  reject(error: unknown): void;
}

const RETRY: Backoff = { baseMs: 200, capMs: 5_000 };
const RETRY_FLOOR_MS = 50;

export class OrderedQueue<Item> {
  readonly #options: OrderedQueueOptions<Item>;
  readonly #waiting: Waiting<Item>[] = [];
  #nextNumber = 0;
  /** Number of retries since an item was last stored. */
  #attempts = 0;
  #isRetrying = false;
  /** Ends the pause before the next retry. */
  #wake: (() => void) | undefined;
  readonly #noteStored = () => {
    this.#attempts = 0;
    this.#wake?.();
  };

  constructor(options: OrderedQueueOptions<Item>) {
    this.#options = options;
  }

  /** Number of items waiting for a retry. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** Resolves when the item is stored. Rejects if it can no longer be acknowledged. */
  offer(item: Item): Promise<void> {
    const number = this.#nextNumber++;
    if (this.#waiting.length > 0) return this.#wait(item, number, undefined);
    const reject = (error: unknown) => {
      this.#options.onRejected(item, error);
      return this.#wait(item, number, error);
    };
    try {
      return this.#options.deliver(item).then(this.#noteStored, reject);
    } catch (error) {
      return reject(error);
    }
  }

  /** Empties the queue and returns its items in order. Their promises reject with `error`. */
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
    this.#isRetrying = true;
    try {
      while (this.#waiting.length > 0) {
        await this.#pause();
        this.#deliverWaiting();
      }
    } catch (error) {
      this.clear(error);
    } finally {
      this.#isRetrying = false;
    }
  }

  async #pause(): Promise<void> {
    const { clock, signal } = this.#options;
    const waitMs = fullJitterMs(this.#attempts++, RETRY, () => clock.random(), RETRY_FLOOR_MS);
    const pause = new AbortController();
    this.#wake = () => {
      this.#wake = undefined;
      pause.abort();
    };
    await clock.sleep(waitMs, AbortSignal.any([signal, pause.signal])).catch(() => signal.throwIfAborted());
  }

  /** Delivers items from the head until a handler rejects one. */
  #deliverWaiting(): void {
    let delivered = 0;
    for (const entry of this.#waiting) {
      try {
        const stored = this.#options.deliver(entry.item);
        stored.then(
          () => {
            this.#noteStored();
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
