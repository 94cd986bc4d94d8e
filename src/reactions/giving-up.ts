import type { Backoff } from '../base/retry.ts';
import type { Action, Reaction } from '../config/reactions.ts';

/** Between tries of an action: a dashboard that restarts is back in a minute or two. */
const BASE_MS = 2_000;
const CAP_MS = 60_000;
/** Each try is a few commits: after hours of an outage nobody waits for the second. */
const MAX_CAP_MS = 300_000;
/** Where `max_age` sets no limit. */
const MAX_TRYING_MS = 86_400_000;

export interface Trying {
  /** Starts of a command, failures of everything else. */
  tries: number;
  /** How often an action is tried that is given up by its count. */
  maxTries: number;
  /** Monotonic, since this process first looked at the event. */
  waitedMs: number;
  /** A person asked for it, and looks at what becomes of it. */
  replayed: boolean;
}

/**
 * Whether an action that failed is given up. What goes to somebody who may be away (`post`, `publish`) is worth trying for as
 * long as the event is worth acting on: a Node-RED that restarts on a slow gateway takes minutes, and the alarm must not be gone
 * by then. So `max_age` ends it (`judgeAge`), and a day where there is none. A command that fails is mended by no waiting:
 * it is given up by count, as is what a person replays, whose event is of any age.
 */
export function isGivenUp(action: Action, reaction: Pick<Reaction, 'maxAgeMs'>, trying: Trying): boolean {
  const goesElsewhere = action.kind === 'post' || action.kind === 'publish';
  if (!goesElsewhere || trying.replayed) return trying.tries >= trying.maxTries;
  return reaction.maxAgeMs <= 0 && trying.tries >= trying.maxTries && trying.waitedMs > MAX_TRYING_MS;
}

/** The wait before the next try, for `fullJitterMs`: from ten minutes on it grows with what was waited already. */
export function backoffAfter(waitedMs: number): Backoff {
  return { baseMs: BASE_MS, capMs: Math.min(MAX_CAP_MS, Math.max(CAP_MS, waitedMs / 10)) };
}
