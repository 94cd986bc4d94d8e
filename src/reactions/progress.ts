import type { Attempt } from './journal.ts';

/** Recorded when a person has an event run again: what the journal says before it does not count. */
export const REPLAY_MARK = { reaction: '', action: 'replay', outcome: 'begun' } as const;

/**
 * How far an event has come: which of its actions are done, which were given up, how often each failed. Read from the
 * journal after a restart, so that what is done is not done again because something beside it failed.
 */
export class Progress {
  readonly #done = new Set<string>();
  readonly #failures = new Map<string, number>();
  readonly #details = new Map<string, string>();
  readonly #givenUp = new Set<string>();
  readonly #begun = new Set<string>();
  readonly #skipped = new Set<string>();
  /** Monotonic clock when this process first looked at the event. */
  readonly firstSeenMs: number;
  /** How often `before` failed in a way that time does not mend. */
  beforeFailures = 0;
  /** `before` is done. */
  prepared = false;

  constructor(firstSeenMs: number, journal: readonly Attempt[] = []) {
    this.firstSeenMs = firstSeenMs;
    const replayedAt = journal.findLastIndex((attempt) => attempt.action === REPLAY_MARK.action);
    for (const attempt of journal.slice(replayedAt + 1)) this.note(attempt);
  }

  note(attempt: Pick<Attempt, 'reaction' | 'action' | 'outcome' | 'detail'>): void {
    const key = keyOf(attempt.reaction, attempt.action);
    if (attempt.outcome === 'done') this.#done.add(key);
    if (attempt.outcome === 'expired' || attempt.outcome === 'cooldown') this.#skipped.add(attempt.reaction);
    if (attempt.outcome === 'dead') this.#givenUp.add(key);
    if (attempt.outcome === 'failed') {
      this.#failures.set(key, this.failures(attempt.reaction, attempt.action) + 1);
      if (attempt.detail !== undefined) this.#details.set(key, attempt.detail);
    }
    if (attempt.outcome === 'done' || attempt.outcome === 'failed') this.#begun.add(attempt.reaction);
  }

  isDone(reaction: string, action: string): boolean {
    return this.#done.has(keyOf(reaction, action));
  }

  failures(reaction: string, action: string): number {
    return this.#failures.get(keyOf(reaction, action)) ?? 0;
  }

  /** How it failed last. */
  lastDetail(reaction: string, action: string): string | undefined {
    return this.#details.get(keyOf(reaction, action));
  }

  isGivenUp(reaction: string, action: string): boolean {
    return this.#givenUp.has(keyOf(reaction, action));
  }

  /** It was too late for the reaction, or it rested: that does not change while the event comes back for another. */
  isSkipped(reaction: string): boolean {
    return this.#skipped.has(reaction);
  }

  /** The reaction has fired for this event: its own cooldown is no reason against going on. */
  hasBegun(reaction: string): boolean {
    return this.#begun.has(reaction);
  }
}

function keyOf(reaction: string, action: string): string {
  return `${reaction}\n${action}`;
}
