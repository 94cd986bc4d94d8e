import type { Clock } from '../../base/clock.ts';
import type { Action } from '../../config/action-kinds.ts';
import { kindOf, targetOf } from '../actions.ts';

/**
 * Tracks action targets (receivers, brokers and commands) and determines which of them do not respond.
 *
 * A target is either responding, with at most `MAX_ATTEMPTS` attempts in progress, or silent. It becomes silent if an
 * attempt times out, and is responding again when an attempt ends in any other way. Only one attempt at a time is made
 * for a silent target. All its other actions are postponed and occupy no slot, so that an unresponsive receiver delays
 * only its own actions. Commands are not limited, because each run is a separate process.
 *
 * The state is not persisted: after a restart, every target is considered responding.
 */
export interface TargetsOptions {
  clock: Clock;
  /** Called when a target becomes silent, or responds again after `silentMs`. */
  onChange: (target: string, reaction: string, silentMs: number | undefined) => void;
}

export interface SilentTarget {
  target: string;
  /** Reactions that had to wait for the target. */
  reactions: string[];
  silentSeconds: number;
}

/** Returns one sentence for each target that does not respond, for the notes in `/healthz`. */
export function silentTargetNotes(targets: readonly SilentTarget[]): string[] {
  return targets.map(
    ({ target, reactions, silentSeconds }) =>
      `the target "${target}" has not responded for ${silentSeconds} s, these reactions are waiting: ${reactions.join(', ')}`,
  );
}

/** How an attempt ended. `interrupted` does not indicate whether the target responds. */
export type AttemptEnd = 'responded' | 'timeout' | 'interrupted';

export interface AttemptPlace {
  leave(end: AttemptEnd): void;
}

interface Target {
  attempts: number;
  silentSinceMs: number | undefined;
  reactions: Set<string>;
  queue: (() => void)[];
}

const MAX_ATTEMPTS = 8;

export class Targets {
  readonly #options: TargetsOptions;
  readonly #targets = new Map<string, Target>();

  constructor(options: TargetsOptions) {
    this.#options = options;
  }

  /** Returns whether an action would be postponed now. */
  isClosed(action: Action): boolean {
    const name = targetOf(action);
    const target = name === undefined ? undefined : this.#targets.get(name);
    return target !== undefined && isLimited(action) && target.silentSinceMs !== undefined && target.attempts > 0;
  }

  /**
   * Waits for a free slot. Resolves with `undefined` if the target is silent and another attempt is in progress, or if
   * the signal was aborted.
   */
  async enter(action: Action, reaction: string, signal: AbortSignal): Promise<AttemptPlace | undefined> {
    const name = targetOf(action);
    if (name === undefined) return { leave: () => {} };
    const target = this.#of(name);
    while (isLimited(action)) {
      if (target.silentSinceMs !== undefined) target.reactions.add(reaction);
      if (signal.aborted || this.isClosed(action)) return undefined;
      if (target.attempts < MAX_ATTEMPTS) break;
      await untilWoken(target.queue, signal);
    }
    target.attempts++;
    return { leave: (end) => this.#leave(name, target, reaction, end) };
  }

  /** Applies new rules after a reload. Targets of removed rules are no longer reported. */
  keep(reactions: readonly { name: string; actions: readonly Action[] }[]): void {
    const known = new Set(reactions.flatMap(({ actions }) => actions.map(targetOf)));
    for (const [name, target] of this.#targets) {
      if (!known.has(name)) target.silentSinceMs = undefined;
      for (const reaction of target.reactions) {
        if (!reactions.some((one) => one.name === reaction)) target.reactions.delete(reaction);
      }
    }
  }

  get silent(): SilentTarget[] {
    const nowMs = this.#options.clock.monotonicMs();
    return [...this.#targets].flatMap(([target, { silentSinceMs, reactions }]) =>
      silentSinceMs === undefined
        ? []
        : { target, reactions: [...reactions], silentSeconds: Math.round((nowMs - silentSinceMs) / 1000) },
    );
  }

  #of(name: string): Target {
    const target = this.#targets.get(name) ?? {
      attempts: 0,
      silentSinceMs: undefined,
      reactions: new Set(),
      queue: [],
    };
    this.#targets.set(name, target);
    return target;
  }

  #leave(name: string, target: Target, reaction: string, end: AttemptEnd): void {
    const nowMs = this.#options.clock.monotonicMs();
    target.attempts--;
    if (end === 'timeout') {
      target.reactions.add(reaction);
      if (target.silentSinceMs === undefined) {
        target.silentSinceMs = nowMs;
        this.#options.onChange(name, reaction, undefined);
      }
    } else if (end === 'responded' && target.silentSinceMs !== undefined) {
      this.#options.onChange(name, reaction, nowMs - target.silentSinceMs);
      target.silentSinceMs = undefined;
      target.reactions.clear();
    }
    for (const wake of target.queue.splice(0)) wake();
    if (target.attempts === 0 && target.silentSinceMs === undefined) this.#targets.delete(name);
  }
}

function isLimited(action: Action): boolean {
  return !kindOf(action).runsProgram;
}

function untilWoken(queue: (() => void)[], signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const wake = () => {
      signal.removeEventListener('abort', wake);
      resolve();
    };
    queue.push(wake);
    signal.addEventListener('abort', wake, { once: true });
  });
}
