import type { Backoff } from '../../base/retry.ts';
import type { Action } from '../../config/action-kinds.ts';
import type { Reaction } from '../../config/reactions.ts';
import { kindOf, targetOf } from '../actions.ts';

const BASE_MS = 2_000;
const CAP_MS = 60_000;
/** Maximum delay between attempts, because each attempt requires commits. */
const MAX_CAP_MS = 300_000;
/** Minimum time for which actions of a reaction without `max_age` are retried. */
const MAX_TRYING_MS = 86_400_000;

export interface Trying {
  /** For a command, number of starts; for other actions, number of failures. */
  tries: number;
  /** Maximum number of attempts for actions with limited attempts. */
  maxTries: number;
  /** Monotonic time since this process first read the event. */
  waitedMs: number;
  /** Whether the event was replayed manually. */
  replayed: boolean;
}

/**
 * Returns whether a failed action is dead, that is, no longer retried. An action with a receiver (`post`, `publish`) is
 * retried until the event reaches `max_age` (`judgeAge`), because a receiver may need minutes to restart. Without
 * `max_age`, the action is retried for a day. For commands and replays, the number of attempts is limited instead.
 */
export function isGivenUp(action: Action, reaction: Pick<Reaction, 'maxAgeMs'>, trying: Trying): boolean {
  const hasReceiver = targetOf(action) !== undefined && !kindOf(action).runsProgram;
  if (!hasReceiver || trying.replayed) return trying.tries >= trying.maxTries;
  return reaction.maxAgeMs <= 0 && trying.tries >= trying.maxTries && trying.waitedMs > MAX_TRYING_MS;
}

/** Returns the backoff for the next attempt. After ten minutes, its maximum increases with the time waited. */
export function backoffAfter(waitedMs: number): Backoff {
  return { baseMs: BASE_MS, capMs: Math.min(MAX_CAP_MS, Math.max(CAP_MS, waitedMs / 10)) };
}

/**
 * Enforces the order of retries. While an action of one event is waiting for a retry, the same action is blocked for
 * later events of the object. The plant therefore never receives "closed" from the first event after "opened" from the
 * second event. The order is stored in memory and restored by the runner at startup.
 */
export class RetryOrder {
  readonly #owners = new Map<string, number>();

  /** Returns whether the same action of an earlier event is waiting for a retry. */
  isBlocked(reaction: string, object: string, action: string, eventId: number): boolean {
    const owner = this.#owners.get(keyOf(reaction, object, action));
    return owner !== undefined && owner < eventId;
  }

  /** Records that the action will be retried for this event. */
  block(reaction: string, object: string, action: string, eventId: number): void {
    const key = keyOf(reaction, object, action);
    const owner = this.#owners.get(key);
    if (owner === undefined || owner > eventId) this.#owners.set(key, eventId);
  }

  unblock(reaction: string, object: string, action: string, eventId: number): void {
    const key = keyOf(reaction, object, action);
    if (this.#owners.get(key) === eventId) this.#owners.delete(key);
  }

  /** Records that the event has ended. */
  release(eventId: number): void {
    for (const [key, owner] of this.#owners) if (owner === eventId) this.#owners.delete(key);
  }
}

function keyOf(reaction: string, object: string, action: string): string {
  return `${reaction}\n${object}\n${action}`;
}
