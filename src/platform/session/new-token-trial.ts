import { type Clock, raced } from '../../base/clock.ts';
import { type IssuedToken, isUsable } from './issued-token.ts';
import { NEW_TOKEN_REPEATS_MS } from './session-timing.ts';

/**
 * Repetition of a call with a new token that was rejected with 401. The servers of a platform behind a load balancer may
 * learn of a token only seconds after its issue, and another new token would be just as unknown to them. One call at a
 * time uses the token, after increasing delays; all others wait until it is accepted or given up.
 */
export class NewTokenTrial {
  readonly token: IssuedToken;
  readonly #clock: Clock;
  #repeats = 0;
  #dueMs = 0;
  #isTaken = false;
  #isOver = false;
  #change = Promise.withResolvers<void>();

  constructor(token: IssuedToken, clock: Clock) {
    this.token = token;
    this.#clock = clock;
  }

  /** Schedules the next repetition. Returns whether there is one. */
  schedule(): boolean {
    const delayMs = NEW_TOKEN_REPEATS_MS[this.#repeats++];
    const nowMs = this.#clock.monotonicMs();
    if (delayMs === undefined || !isUsable(this.token, nowMs + delayMs)) return false;
    this.#dueMs = nowMs + delayMs;
    this.#clock.after(delayMs, () => this.#wake());
    return true;
  }

  /** Waits until the caller may use the token, or until the trial is over. Returns whether the caller repeats a call. */
  async turn(signal: AbortSignal | undefined): Promise<boolean> {
    while (!this.#isOver) {
      if (!this.#isTaken && this.#clock.monotonicMs() >= this.#dueMs) {
        this.#isTaken = true;
        return true;
      }
      await raced(this.#change.promise, signal);
    }
    return false;
  }

  /** Ends the turn of the call that repeats. */
  release(): void {
    this.#isTaken = false;
    this.#wake();
  }

  end(): void {
    this.#isOver = true;
    this.#wake();
  }

  #wake(): void {
    this.#change.resolve();
    this.#change = Promise.withResolvers();
  }
}
