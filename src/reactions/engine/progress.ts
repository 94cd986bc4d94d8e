import type { ActionProgress } from '../../store/event-journal.ts';

/** Outcome of an action as recorded in the journal. `unfinished`: the gateway stopped while the action was running. */
export type Outcome = 'done' | 'failed' | 'dead' | 'expired' | 'cooldown' | 'replaced' | 'interrupted' | 'unfinished';

/**
 * Progress of an event: completed and dead actions, and the number of attempts for each action. Stored separately from
 * the journal shown to users, because the journal size is limited.
 *
 * The start of a command is recorded on disk before the command runs and counts as an attempt, even if the command
 * crashes the gateway. `begun` means that the command is running, or that the gateway stopped while it was running.
 */
export class Progress {
  readonly #actions = new Map<string, ActionProgress>();
  readonly #notBeforeMs = new Map<string, number>();
  /** Monotonic time at which this process first read the event. */
  readonly firstSeenMs: number;

  constructor(firstSeenMs: number, known: readonly ActionProgress[] = []) {
    this.firstSeenMs = firstSeenMs;
    for (const one of known) this.#actions.set(keyOf(one.reaction, one.action), one);
  }

  /** Returns the record that must be on disk before a command starts. */
  beginning(reaction: string, action: string): ActionProgress {
    return { ...this.#of(reaction, action), state: 'begun', tries: this.tries(reaction, action) + 1 };
  }

  /** Applies the record from `beginning` once it is on disk. */
  begin(begun: ActionProgress): void {
    this.#set(begun);
  }

  /** Returns the record to store, if any. */
  end(reaction: string, action: string, outcome: Outcome, detail?: string): ActionProgress | undefined {
    const before = this.#of(reaction, action);
    switch (outcome) {
      case 'done':
      case 'dead':
        return this.#set({ ...before, state: outcome });
      case 'expired':
      case 'cooldown':
      case 'replaced':
        return this.#set({ ...before, state: 'skipped' });
      case 'failed':
      case 'unfinished': {
        const tries = before.state === 'begun' ? before.tries : before.tries + 1;
        return this.#set({ ...before, state: 'failed', tries, ...(detail === undefined ? {} : { detail }) });
      }
      case 'interrupted':
        // The action stays `begun` until the next run.
        return undefined;
    }
  }

  isDone(reaction: string, action: string): boolean {
    return this.#of(reaction, action).state === 'done';
  }

  isGivenUp(reaction: string, action: string): boolean {
    return this.#of(reaction, action).state === 'dead';
  }

  /** Returns whether the action was started and its end was not recorded. */
  isUnfinished(reaction: string, action: string): boolean {
    return this.#actions.get(keyOf(reaction, action))?.state === 'begun';
  }

  /** Returns whether an attempt was recorded, regardless of its outcome. */
  isAttempted(reaction: string, action: string): boolean {
    return this.#actions.has(keyOf(reaction, action));
  }

  tries(reaction: string, action: string): number {
    return this.#of(reaction, action).tries;
  }

  /** Postpones the reaction until this monotonic time. */
  postpone(reaction: string, untilMs: number): void {
    this.#notBeforeMs.set(reaction, untilMs);
  }

  /** Returns the time until the reaction may run, in milliseconds; 0 or less means now. */
  waitMs(reaction: string, nowMs: number): number {
    return (this.#notBeforeMs.get(reaction) ?? nowMs) - nowMs;
  }

  /** Returns the final outcome of a reaction with the given actions, or `undefined` if an action may still run. */
  finalOutcome(reaction: string, actions: readonly string[]): 'done' | 'dead' | undefined {
    if (this.isSkipped(reaction)) return 'done';
    if (!this.hasBegun(reaction)) return undefined;
    const open = actions.filter((name) => !this.isDone(reaction, name));
    if (open.length === 0) return 'done';
    return open.every((name) => this.isGivenUp(reaction, name)) ? 'dead' : undefined;
  }

  /** Returns the actions that were attempted and may be retried, even if they are no longer configured. */
  retriedActions(): ActionProgress[] {
    return [...this.#actions.values()].filter(({ state }) => state === 'failed' || state === 'begun');
  }

  /** Returns whether an action of any reaction failed permanently. */
  hasGivenUp(): boolean {
    return [...this.#actions.values()].some(({ state }) => state === 'dead');
  }

  /** Returns the description of the latest failure. */
  lastDetail(reaction: string, action: string): string | undefined {
    return this.#of(reaction, action).detail;
  }

  /** Returns whether the reaction was permanently skipped because of the event age or a cooldown. */
  isSkipped(reaction: string): boolean {
    return this.#of(reaction, '').state === 'skipped';
  }

  /** Returns whether the reaction has started for this event, so that a cooldown no longer applies. */
  hasBegun(reaction: string): boolean {
    return this.#begunActions(reaction).length > 0;
  }

  /** Returns whether an action of the reaction has ended. */
  hasEnded(reaction: string): boolean {
    return this.#begunActions(reaction).some(({ state }) => state !== 'begun');
  }

  #begunActions(reaction: string): ActionProgress[] {
    return [...this.#actions.values()].filter(
      (one) => one.reaction === reaction && one.action !== '' && (one.tries > 0 || one.state === 'done'),
    );
  }

  #of(reaction: string, action: string): ActionProgress {
    return this.#actions.get(keyOf(reaction, action)) ?? { reaction, action, state: 'failed', tries: 0 };
  }

  #set(progress: ActionProgress): ActionProgress {
    this.#actions.set(keyOf(progress.reaction, progress.action), progress);
    return progress;
  }
}

function keyOf(reaction: string, action: string): string {
  return `${reaction}\n${action}`;
}
