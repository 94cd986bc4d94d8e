import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';
import type { Repeats } from '../base/repeats.ts';
import { fullJitterMs } from '../base/retry.ts';
import { type InboxEvent, type Journal, sayJournal } from './journal.ts';

export interface EventStatesOptions {
  journal: Pick<Journal, 'markRunning' | 'finish'>;
  clock: Clock;
  logger: Logger;
  repeats: Repeats;
}

const RETRY = { baseMs: 1_000, capMs: 30_000 };

/** Writes the states of events to the inbox. */
export class EventStates {
  readonly #options: EventStatesOptions;

  constructor(options: EventStatesOptions) {
    this.#options = options;
  }

  /** The event is in progress. A disk that rejects the mark stops nothing: without it the event would run again after a crash as well. */
  async running(event: InboxEvent): Promise<void> {
    try {
      await this.#options.journal.markRunning(event.id);
    } catch (error) {
      this.#report(error, event);
    }
  }

  /** Retries until the signal fires: an event that is never settled would neither run again nor be deleted. */
  async finish(
    event: InboxEvent,
    state: 'done' | 'dead' | 'failed',
    retryInMs: number | undefined,
    signal: AbortSignal,
  ): Promise<void> {
    const { clock, journal, logger } = this.#options;
    for (let attempt = 0; ; attempt++) {
      try {
        await journal.finish(event.id, state, retryInMs);
        break;
      } catch (error) {
        if (attempt === 0) this.#report(error, event);
        if (signal.aborted) return;
        const wait = fullJitterMs(attempt, RETRY, () => clock.random(), 200);
        await clock.sleep(wait, signal).catch(() => {});
      }
    }
    const { id: inboxId, digest, eventType } = event;
    const line = { event: 'reaction.event', inboxId, digest, eventType, state, retryInMs };
    logger.debug(line, retryInMs === undefined ? 'event completed' : 'event will be retried');
  }

  #report(error: unknown, { id, digest }: InboxEvent): void {
    sayJournal(error, { inboxId: id, digest }, this.#options);
  }
}
