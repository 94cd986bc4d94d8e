import { StoreError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { type ArrivalPath, type ArrivedEvent, arrivalLine } from './received-event.ts';

export interface ArrivalsParts {
  /** Commits events to the inbox. If it rejects, no event is stored. */
  insertMany(events: ArrivedEvent[]): Promise<('new' | 'seen')[]>;
  log: Logger;
  /** Counts new events, for the metric `tagferry_events_received_total{event_type}`. */
  received?(eventType: string): void;
  /** Called for each new event of a known type that cannot be read. */
  unreadable?(eventType: string, problem: string): void;
  /** Called when the inbox contains new events. */
  inserted?(): void;
  /** Maximum number of events waiting for a commit. Default: 4,096. */
  maxWaiting?: number;
}

interface Waiting {
  event: ArrivedEvent;
  resolve: (outcome: 'new' | 'seen') => void;
  reject: (error: unknown) => void;
}

/** Limits for one commit. */
const MAX_EVENTS = 256;
const MAX_BYTES = 4 * 1024 * 1024;
const MAX_WAITING = 4_096;

/**
 * Stores all received events in the inbox, and logs and counts new events. Individual events that arrive during a
 * commit share the next commit.
 */
export class Arrivals {
  readonly #parts: ArrivalsParts;
  #waiting: Waiting[] = [];
  #running: Promise<void> | undefined;

  constructor(parts: ArrivalsParts) {
    this.#parts = parts;
  }

  /**
   * Resolves when the event is on disk. Rejects with the inbox error, or immediately if too many events are waiting.
   */
  async store(event: ArrivedEvent, via: ArrivalPath): Promise<void> {
    if ((await this.#commit(event)) === 'new') {
      this.#reportNew(event, via);
      this.#parts.inserted?.();
    } else this.#parts.log.debug({ ...arrivalLine(event, via), event: 'webhook.repeated' }, 'duplicate event received');
  }

  /** Stores a page of events in one commit. Returns the number of new events. */
  async storePage(events: ArrivedEvent[], via: ArrivalPath): Promise<number> {
    if (events.length === 0) return 0;
    const outcomes = await this.#parts.insertMany(events);
    const fresh = events.filter((_, i) => outcomes[i] === 'new');
    for (const event of fresh) this.#reportNew(event, via);
    if (fresh.length > 0) this.#parts.inserted?.();
    return fresh.length;
  }

  /** Resolves when no event is waiting for a commit. */
  async drained(): Promise<void> {
    while (this.#running) await this.#running;
  }

  #reportNew(event: ArrivedEvent, via: ArrivalPath): void {
    const { eventType, problem } = event;
    const line = arrivalLine(event, via);
    if (problem === undefined) this.#parts.log.info(line, 'event received');
    else {
      const fields = { ...line, event: 'webhook.unreadable', problem };
      this.#parts.log.warn(fields, 'failed to read event of a known type, reactions skipped');
      this.#parts.unreadable?.(eventType, problem);
    }
    this.#parts.received?.(event.unrecognised ? 'unrecognised' : event.eventType);
  }

  #commit(event: ArrivedEvent): Promise<'new' | 'seen'> {
    if (this.#waiting.length >= (this.#parts.maxWaiting ?? MAX_WAITING)) {
      const error = new StoreError('too many events are waiting for the disk', { code: 'inbox.busy', retryable: true });
      return Promise.reject(error);
    }
    const { promise, resolve, reject } = Promise.withResolvers<'new' | 'seen'>();
    this.#waiting.push({ event, resolve, reject });
    this.#running ??= this.#commitWaiting();
    return promise;
  }

  async #commitWaiting(): Promise<void> {
    while (this.#waiting.length > 0) {
      // Wait until events from other sockets in the same event loop turn have arrived.
      await new Promise((resolve) => setImmediate(resolve));
      const batch = this.#nextBatch();
      try {
        const outcomes = await this.#parts.insertMany(batch.map(({ event }) => event));
        for (const [i, { resolve }] of batch.entries()) resolve(outcomes[i] ?? 'seen');
      } catch (error) {
        for (const { reject } of batch) reject(error);
      }
    }
    this.#running = undefined;
  }

  #nextBatch(): Waiting[] {
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
