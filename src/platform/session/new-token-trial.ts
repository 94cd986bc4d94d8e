import { type Clock, raced } from '../../base/clock.ts';
import { type IssuedToken, isUsable } from './issued-token.ts';
import { NEW_TOKEN_REPEATS_MS } from './session-timing.ts';

/**
 * Retries with a new token that was rejected with 401. Servers behind a load balancer may not accept a token until
 * seconds after it is issued, and a replacement would be rejected in the same way. One call at a time uses the token,
 * after increasing delays. All other calls wait until the token is accepted or the retries end.
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

  /** Schedules the next retry. Returns false if no retry is possible. */
  schedule(): boolean {
    const delayMs = NEW_TOKEN_REPEATS_MS[this.#repeats++];
    const nowMs = this.#clock.monotonicMs();
    if (delayMs === undefined || !isUsable(this.token, nowMs + delayMs)) return false;
    this.#dueMs = nowMs + delayMs;
    this.#clock.after(delayMs, () => this.#wake());
    return true;
  }

  /** Waits until the caller may use the token, or until the trial ends. Returns false if the trial ended. */
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

  /** Ends the turn of the retried call. */
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
