import type { Clock } from '../base/clock.ts';
import type { Action } from '../config/reactions.ts';

/**
 * The receivers, brokers and commands that actions go to, and which of them do not respond.
 *
 * States of a target: responding, with at most `MAX_ATTEMPTS` attempts in progress; silent after an attempt that timed out, until any
 * attempt ends otherwise. A silent target gets one attempt at a time. All other actions that go there are postponed and hold no place,
 * so that a receiver that does not respond delays its own actions only. Commands are never limited: each run is a process of its own.
 *
 * Kept in memory: after a restart every target counts as responding.
 */
export interface TargetsOptions {
  clock: Clock;
  /** A target has become silent, or responds again after `silentMs`. */
  onChange: (target: string, reaction: string, silentMs: number | undefined) => void;
}

export interface SilentTarget {
  target: string;
  /** Reactions that have waited for it. */
  reactions: string[];
  silentSeconds: number;
}

/** One sentence per target that does not respond, for the notes of `/healthz`. */
export function silentTargetNotes(targets: readonly SilentTarget[]): string[] {
  return targets.map(
    ({ target, reactions, silentSeconds }) =>
      `the target "${target}" has not responded for ${silentSeconds} s, these reactions wait: ${reactions.join(', ')}`,
  );
}

/** How an attempt ended; `interrupted` says nothing about the target. */
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

  /** Whether an action would be postponed now. */
  isClosed(action: Action): boolean {
    const name = nameTarget(action);
    const target = name === undefined ? undefined : this.#targets.get(name);
    return target !== undefined && isLimited(action) && target.silentSinceMs !== undefined && target.attempts > 0;
  }

  /** Waits for a place. `undefined`: the target is silent and another attempt is in progress, or the signal has fired. */
  async enter(action: Action, reaction: string, signal: AbortSignal): Promise<AttemptPlace | undefined> {
    const name = nameTarget(action);
    if (name === undefined) return { leave: () => {} };
    const target = this.#of(name);
    while (isLimited(action)) {
      if (target.silentSinceMs !== undefined) target.reactions.add(reaction);
      if (signal.aborted || this.isClosed(action)) return undefined;
      if (target.attempts < MAX_ATTEMPTS) break;
      await turn(target.queue, signal);
    }
    target.attempts++;
    return { leave: (end) => this.#leave(name, target, reaction, end) };
  }

  /** Only these rules are in force: what others wait for is no longer reported. */
  keep(reactions: readonly { name: string; actions: readonly Action[] }[]): void {
    const known = new Set(reactions.flatMap(({ actions }) => actions.map(nameTarget)));
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
  return action.kind !== 'run';
}

/** The host of a `post`, the broker of a `publish`, the program of a `run`; `undefined` for the log, which always responds. */
function nameTarget(action: Action): string | undefined {
  switch (action.kind) {
    case 'post':
      return `post ${URL.parse(action.url)?.origin ?? '(unreadable address)'}`;
    case 'publish':
      return `publish ${action.broker}`;
    case 'run':
      return `run ${action.command[0]}`;
    case 'log':
      return undefined;
  }
}

function turn(queue: (() => void)[], signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const wake = () => {
      signal.removeEventListener('abort', wake);
      resolve();
    };
    queue.push(wake);
    signal.addEventListener('abort', wake, { once: true });
  });
}
