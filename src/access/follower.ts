import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf, TagferryError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import { fullJitterMs } from '../base/retry.ts';
import type { ArrivedAccessEvent } from './access-event.ts';

/**
 * Follows the inbox for what it says about access, with a cursor of its own: no reaction, however slow, keeps values from being
 * held or released.
 *
 * The cursor on disk moves with the holds (`HoldTable`), so a crash repeats at most events that changed nothing. One whose hold the
 * disk refuses is tried until it takes it, and later events wait; one that fails otherwise is passed over after some tries.
 */
export interface AccessFeed {
  /** A page of events that concern access with a number above `afterId`, oldest first; an empty one is the end. */
  ofAccess(limit: number, afterId: number): Promise<ArrivedAccessEvent[]>;
}

export interface FollowerOptions {
  feed: AccessFeed;
  holds: { readonly cursor: number; apply(event: ArrivedAccessEvent): Promise<void> };
  clock: Clock;
  logger: Logger;
}

const PAGE = 64;
const MAX_TRIES = 8;
const RETRY = { baseMs: 1_000, capMs: 30_000 };

export class AccessFollower {
  readonly #options: FollowerOptions;
  readonly #repeats = new Repeats();
  readonly #stopping = new AbortController();
  #after = 0;
  /** Of the next event, those that failed in a way that time does not mend. */
  #tries = 0;
  #wanted = false;
  #reading: Promise<void> | undefined;

  constructor(options: FollowerOptions) {
    this.#options = options;
  }

  /** Begins after what the holds know. The holds have been started. */
  start(): void {
    this.#after = this.#options.holds.cursor;
    this.wake();
  }

  /** There is something new in the inbox. Cheap; call it after every insert. */
  wake(): void {
    if (this.#stopping.signal.aborted) return;
    this.#wanted = true;
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined;
      if (this.#wanted) this.wake();
    });
  }

  async stop(): Promise<void> {
    this.#stopping.abort(new Error('the agent stops'));
    await this.#reading;
  }

  async #read(): Promise<void> {
    let failures = 0;
    while (this.#wanted && !this.#stopping.signal.aborted) {
      this.#wanted = false;
      try {
        await this.#readOn();
        if (failures > 0) this.#repeats.end('');
        failures = 0;
      } catch (error) {
        this.#wanted = true;
        if (!this.#isPassing(error)) this.#tries++;
        this.#say(error);
        await this.#pause(failures++);
      }
    }
  }

  /** To the end of the inbox. Throws where an event cannot be kept: it is the next one again. */
  async #readOn(): Promise<void> {
    for (;;) {
      const page = await this.#options.feed.ofAccess(PAGE, this.#after);
      if (page.length === 0) return;
      for (const event of page) {
        if (this.#stopping.signal.aborted || event.id <= this.#after) return;
        if (this.#tries >= MAX_TRIES) this.#passOver(event);
        else await this.#options.holds.apply(event);
        this.#after = event.id;
        this.#tries = 0;
      }
    }
  }

  /** The disk's trouble passes. */
  #isPassing(error: unknown): boolean {
    return error instanceof TagferryError && error.retryable;
  }

  #passOver({ id, eventType }: ArrivedAccessEvent): void {
    const fields = { event: 'access.passed_over', inboxId: id, eventType };
    this.#options.logger.error(
      fields,
      'what an event says about access could not be kept; answers of the platform will tell',
    );
  }

  #say(error: unknown): void {
    const { clock, logger } = this.#options;
    const count = this.#repeats.note(`${codeOf(error)}`, clock.monotonicMs());
    const fields = { event: 'access.waiting', code: codeOf(error), error: messageOf(error), count };
    logger[count === undefined ? 'debug' : 'warn'](fields, 'what events say about access cannot be kept yet');
  }

  async #pause(failures: number): Promise<void> {
    const { clock } = this.#options;
    const waitMs = fullJitterMs(failures, RETRY, () => clock.random(), 500);
    await clock.sleep(waitMs, this.#stopping.signal).catch(() => {});
  }
}
