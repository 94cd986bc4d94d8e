import { StoreError } from '../base/errors.ts';
import type { ArrivedEvent } from './received-event.ts';

/** Puts events on disk: the inbox, by way of the store thread. What it resolved for is committed. */
export type InsertMany = (events: ArrivedEvent[]) => Promise<('new' | 'seen')[]>;

interface Waiting {
  event: ArrivedEvent;
  resolve: (outcome: 'new' | 'seen') => void;
  reject: (error: unknown) => void;
}

/** Events of one insert: a batch of the largest events stays small beside a page cache. */
const MAX_EVENTS = 256;
const MAX_BYTES = 4 * 1024 * 1024;

/**
 * One commit for all that arrive while the one before is under way: a sync of the disk is shared by whoever waits for it, and
 * nobody waits for company that may not come.
 */
export class GroupCommit {
  readonly #insertMany: InsertMany;
  readonly #maxWaiting: number;
  #waiting: Waiting[] = [];
  #running: Promise<void> | undefined;

  constructor(insertMany: InsertMany, maxWaiting: number) {
    this.#insertMany = insertMany;
    this.#maxWaiting = maxWaiting;
  }

  /** Resolves once the event is on disk. Rejects with the inbox's error, at once where too many wait already. */
  insert(event: ArrivedEvent): Promise<'new' | 'seen'> {
    if (this.#waiting.length >= this.#maxWaiting) {
      return Promise.reject(
        new StoreError('too many events wait for the disk', { code: 'inbox.busy', retryable: true }),
      );
    }
    const done = new Promise<'new' | 'seen'>((resolve, reject) => this.#waiting.push({ event, resolve, reject }));
    this.#running ??= this.#run();
    return done;
  }

  /** Resolves when nothing waits any more. */
  async drained(): Promise<void> {
    while (this.#running) await this.#running;
  }

  async #run(): Promise<void> {
    while (this.#waiting.length > 0) {
      // What the same turn of the event loop has read from other sockets comes along; it costs microseconds.
      await new Promise((resolve) => setImmediate(resolve));
      const batch = this.#take();
      try {
        const outcomes = await this.#insertMany(batch.map(({ event }) => event));
        for (const [i, { resolve }] of batch.entries()) resolve(outcomes[i] ?? 'seen');
      } catch (error) {
        for (const { reject } of batch) reject(error);
      }
    }
    this.#running = undefined;
  }

  #take(): Waiting[] {
    let bytes = 0;
    let count = 0;
    for (const { event } of this.#waiting) {
      bytes += event.payload.length;
      if (count > 0 && (count === MAX_EVENTS || bytes > MAX_BYTES)) break;
      count++;
    }
    return this.#waiting.splice(0, count);
  }
}
