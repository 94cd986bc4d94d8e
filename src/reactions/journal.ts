import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { Repeats } from '../base/repeats.ts';
import { fullJitterMs } from '../base/retry.ts';
import { MANUAL_WRITE } from '../contract/value-events.ts';
import type { ActionProgress, Attempt } from '../store/event-journal.ts';

/** An event from the inbox in the form that the runner receives. */
export interface InboxEvent {
  id: number;
  /** Identifies the event in the log. */
  digest?: string;
  eventType: string;
  /** Event time according to the platform clock; undefined if the event contains no valid time. */
  occurredAtMs: number | undefined;
  /** JSON text as received. */
  payload: string;
  /** The parsed payload; `{}` if it is not a JSON object. */
  readonly envelope: Readonly<Record<string, unknown>>;
  /** Whether the event was replayed manually and runs regardless of age and cooldown. */
  replayed?: boolean;
  /** Running time since the event was stored, in milliseconds, when it was read. */
  storedAgoMs?: number;
  /** Whether an earlier process stored the event. */
  isFromEarlierRun?: boolean;
  /** Progress of the event's actions since it was received or replayed. */
  progress: readonly ActionProgress[];
}

/** Interface through which reactions use the inbox in the store thread. */
export interface Journal {
  /**
   * Returns a page of recognised events that have not run, oldest first, with IDs above `afterId`. Only an empty page
   * marks the end, because the page size is also limited in bytes. Includes events that were running during a crash.
   */
  fresh(limit: number, afterId: number): Promise<InboxEvent[]>;
  /** Returns a page of failed events whose retry is due. */
  due(limit: number, afterId: number): Promise<InboxEvent[]>;
  /** Returns a page of failed events, regardless of whether they are due. */
  retried(limit: number, afterId: number): Promise<InboxEvent[]>;
  markRunning(id: number): Promise<void>;
  /** Resolves when the record is on disk. Users see only the `attempt`. */
  record(id: number, progress: ActionProgress | undefined, attempt?: Attempt): Promise<void>;
  /** Stores the state of an event. `failed` events are retried after `retryInMs` of running time. */
  finish(id: number, state: 'done' | 'failed' | 'dead', retryInMs?: number): Promise<void>;
  replay(id: number): Promise<'queued' | 'unknown' | 'refused'>;
  /** Returns the remaining cooldown of a reaction for an object, in running time. */
  cooldown(reaction: string, object: string): Promise<number | undefined>;
  setCooldown(reaction: string, object: string, restMs: number): Promise<void>;
}

interface JournalLog {
  clock: Clock;
  logger: Logger;
  repeats: Repeats;
}

/** Logs that the journal cannot be read or written. Failures of all events share one repeat counter. */
export function logJournalError(
  error: unknown,
  about: { inboxId: number; digest?: string | undefined; reaction?: string },
  { clock, logger, repeats }: JournalLog,
): void {
  const code = codeOf(error);
  const count = repeats.note(`journal:${code}`, clock.monotonicMs());
  const fields = { event: 'reaction.journal', ...about, code, error: messageOf(error), count };
  logger[count === undefined ? 'debug' : 'warn'](fields, 'failed to access the journal of reactions');
}

export const INTERRUPTED = 'interrupted by a crash or power failure';
const RETRY = { baseMs: 1_000, capMs: 30_000 };

/** Writes event states to the inbox. */
export class EventStates {
  readonly #options: JournalLog & { journal: Pick<Journal, 'markRunning' | 'record' | 'finish'> };

  constructor(options: JournalLog & { journal: Pick<Journal, 'markRunning' | 'record' | 'finish'> }) {
    this.#options = options;
  }

  /**
   * Marks the event as running. Disk errors are only logged, because after a crash the event runs again even without
   * the mark.
   */
  async markRunning({ id, digest }: InboxEvent): Promise<void> {
    await this.#options.journal
      .markRunning(id)
      .catch((error) => logJournalError(error, { inboxId: id, digest }, this.#options));
  }

  /**
   * Stores the state of an event. Retries until the signal is aborted, because an unfinished event would neither run
   * again nor be deleted.
   */
  async finish(
    event: InboxEvent,
    state: 'done' | 'dead' | 'failed',
    retryInMs: number | undefined,
    signal: AbortSignal,
  ): Promise<void> {
    const { id: inboxId, digest, eventType } = event;
    if (eventType === MANUAL_WRITE) await this.#recordManualWrite(event);
    const { clock, journal, logger } = this.#options;
    for (let attempt = 0; ; attempt++) {
      try {
        await journal.finish(inboxId, state, retryInMs);
        break;
      } catch (error) {
        if (attempt === 0) logJournalError(error, { inboxId, digest }, this.#options);
        if (signal.aborted) return;
        const waitMs = fullJitterMs(attempt, RETRY, () => clock.random(), 200);
        await clock.sleep(waitMs, signal).catch(() => {});
      }
    }
    const fields = { event: 'reaction.event', inboxId, digest, eventType, state, retryInMs };
    logger.debug(fields, retryInMs === undefined ? 'event completed' : 'event will be retried');
  }

  /** Records why a manual write that an earlier process began, or that was replayed, is not repeated. */
  async #recordManualWrite({ id, digest, replayed }: InboxEvent): Promise<void> {
    const { clock, journal } = this.#options;
    const reason = replayed ? 'manual writes cannot be replayed' : INTERRUPTED;
    const detail = `${reason}; to write the value again, run \`sudo tagferry write\``;
    const attempt = { reaction: '', action: 'write', outcome: 'dead', detail, durationMs: 0, atMs: clock.wallMs() };
    await journal
      .record(id, undefined, attempt)
      .catch((error) => logJournalError(error, { inboxId: id, digest }, this.#options));
  }
}
