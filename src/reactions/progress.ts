import type { ActionProgress } from './journal.ts';

/** How an action ended, as the journal calls it. `unfinished`: the gateway ended while it ran. */
export type Outcome = 'done' | 'failed' | 'dead' | 'expired' | 'cooldown' | 'interrupted' | 'unfinished';

/**
 * How far an event has come: which of its actions are done, which were given up, how often each was tried. Kept apart from
 * the journal that people read, which is bounded: what was done is not done again however much was tried beside it.
 *
 * A command's start is on disk before the command begins, and counts as a try: what ends the gateway has had its try. So
 * `begun` means that it runs now, or that the gateway ended meanwhile.
 */
export class Progress {
  readonly #actions = new Map<string, ActionProgress>();
  readonly #notBeforeMs = new Map<string, number>();
  /** Monotonic clock when this process first looked at the event. */
  readonly firstSeenMs: number;

  constructor(firstSeenMs: number, known: readonly ActionProgress[] = []) {
    this.firstSeenMs = firstSeenMs;
    for (const one of known) this.#actions.set(keyOf(one.reaction, one.action), one);
  }

  /** A command is about to start: what has to be on disk before. Where that is refused nothing has begun. */
  beginning(reaction: string, action: string): ActionProgress {
    return { ...this.#of(reaction, action), state: 'begun', tries: this.tries(reaction, action) + 1 };
  }

  /** What `beginning` gave is on disk. */
  begin(begun: ActionProgress): void {
    this.#set(begun);
  }

  /** Gives what has to be written down; `undefined` where nothing is to be known of it. */
  end(reaction: string, action: string, outcome: Outcome, detail?: string): ActionProgress | undefined {
    const before = this.#of(reaction, action);
    switch (outcome) {
      case 'done':
      case 'dead':
        return this.#set({ ...before, state: outcome });
      case 'expired':
      case 'cooldown':
        return this.#set({ ...before, state: 'skipped' });
      case 'failed':
      case 'unfinished': {
        const tries = before.state === 'begun' ? before.tries : before.tries + 1;
        return this.#set({ ...before, state: 'failed', tries, ...(detail === undefined ? {} : { detail }) });
      }
      case 'interrupted':
        // A start that did not end: the next run of the event finds it so.
        return undefined;
    }
  }

  isDone(reaction: string, action: string): boolean {
    return this.#of(reaction, action).state === 'done';
  }

  isGivenUp(reaction: string, action: string): boolean {
    return this.#of(reaction, action).state === 'dead';
  }

  /** It was started, and did not end. */
  isUnfinished(reaction: string, action: string): boolean {
    return this.#actions.get(keyOf(reaction, action))?.state === 'begun';
  }

  tries(reaction: string, action: string): number {
    return this.#of(reaction, action).tries;
  }

  /** The reaction is not run before then, by the monotonic clock. */
  postpone(reaction: string, untilMs: number): void {
    this.#notBeforeMs.set(reaction, untilMs);
  }

  /** Milliseconds until the reaction may run; 0 or less: now. */
  waitMs(reaction: string, nowMs: number): number {
    return (this.#notBeforeMs.get(reaction) ?? nowMs) - nowMs;
  }

  /** The final outcome of a reaction with these actions; `undefined` while one of them may still run. */
  finalOutcome(reaction: string, actions: readonly string[]): 'done' | 'dead' | undefined {
    if (this.isSkipped(reaction)) return 'done';
    if (!this.hasBegun(reaction)) return undefined;
    const open = actions.filter((name) => !this.isDone(reaction, name));
    if (open.length === 0) return 'done';
    return open.every((name) => this.isGivenUp(reaction, name)) ? 'dead' : undefined;
  }

  /** How it failed last. */
  lastDetail(reaction: string, action: string): string | undefined {
    return this.#of(reaction, action).detail;
  }

  /** It was too late for the reaction, or it rested: that does not change while the event comes back for another. */
  isSkipped(reaction: string): boolean {
    return this.#of(reaction, '').state === 'skipped';
  }

  /** The reaction has fired for this event: its own cooldown is no reason against going on. */
  hasBegun(reaction: string): boolean {
    for (const one of this.#actions.values()) {
      if (one.reaction === reaction && one.action !== '' && (one.tries > 0 || one.state === 'done')) return true;
    }
    return false;
  }

  /** Something of it has come to an end, well or not. */
  hasEnded(reaction: string): boolean {
    for (const one of this.#actions.values()) {
      if (
        one.reaction === reaction &&
        one.action !== '' &&
        one.state !== 'begun' &&
        (one.tries > 0 || one.state === 'done')
      )
        return true;
    }
    return false;
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
