import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf, TagferryError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import { fullJitterMs } from '../base/retry.ts';
import type { ArrivedAccessEvent } from './access-event.ts';

/**
 * Reads access events from the inbox with its own cursor, so that slow reactions do not delay holds and releases.
 *
 * The cursor is stored with the holds (`HoldTable`), so a crash repeats only events that caused no change. If a hold
 * cannot be written to the disk, the event is retried before later events are read. If an event fails for another
 * reason, it is skipped after MAX_TRIES attempts.
 */
export interface AccessFeed {
  /**
   * Returns a page of access events with IDs above `afterId`, oldest first. An empty page means that there are no more
   * events.
   */
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
  /** Number of failed attempts on the next event, excluding retryable errors. */
  #tries = 0;
  #wanted = false;
  #reading: Promise<void> | undefined;

  constructor(options: FollowerOptions) {
    this.#options = options;
  }

  /** Starts after the stored cursor. The holds must be started first. */
  start(): void {
    this.#after = this.#options.holds.cursor;
    this.wake();
  }

  /** Starts reading new events in the inbox. Cheap enough to call after every insert. */
  wake(): void {
    if (this.#stopping.signal.aborted) return;
    this.#wanted = true;
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined;
      if (this.#wanted) this.wake();
    });
  }

  async stop(): Promise<void> {
    this.#stopping.abort(new Error('the agent is stopping'));
    await this.#reading;
  }

  async #read(): Promise<void> {
    let failures = 0;
    while (this.#wanted && !this.#stopping.signal.aborted) {
      this.#wanted = false;
      try {
        await this.#readToEnd();
        if (failures > 0) this.#repeats.end('');
        failures = 0;
      } catch (error) {
        this.#wanted = true;
        if (!this.#isTemporary(error)) this.#tries++;
        this.#logFailure(error);
        await this.#pause(failures++);
      }
    }
  }

  /**
   * Reads all remaining events in the inbox. Throws if an event cannot be stored; the next call starts with that event.
   */
  async #readToEnd(): Promise<void> {
    for (;;) {
      const page = await this.#options.feed.ofAccess(PAGE, this.#after);
      if (page.length === 0) return;
      for (const event of page) {
        if (this.#stopping.signal.aborted || event.id <= this.#after) return;
        if (this.#tries >= MAX_TRIES) this.#skip(event);
        else await this.#options.holds.apply(event);
        this.#after = event.id;
        this.#tries = 0;
      }
    }
  }

  /** Whether the error is temporary, such as a disk error. */
  #isTemporary(error: unknown): boolean {
    return error instanceof TagferryError && error.retryable;
  }

  #skip({ id, eventType }: ArrivedAccessEvent): void {
    const fields = { event: 'access.passed_over', inboxId: id, eventType };
    this.#options.logger.error(
      fields,
      "access event skipped after repeated failures, the platform's responses now determine access",
    );
  }

  #logFailure(error: unknown): void {
    const { clock, logger } = this.#options;
    const count = this.#repeats.note(`${codeOf(error)}`, clock.monotonicMs());
    const fields = { event: 'access.waiting', code: codeOf(error), error: messageOf(error), count };
    logger[count === undefined ? 'debug' : 'warn'](fields, 'failed to store an access event, retrying');
  }

  async #pause(failures: number): Promise<void> {
    const { clock } = this.#options;
    const waitMs = fullJitterMs(failures, RETRY, () => clock.random(), 500);
    await clock.sleep(waitMs, this.#stopping.signal).catch(() => {});
  }
}
