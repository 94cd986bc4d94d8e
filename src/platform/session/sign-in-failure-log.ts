import type { Clock } from '../../base/clock.ts';
import { codeOf, messageOf, TagferryError } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import { Repeats } from '../../base/repeats.ts';

/**
 * Logs sign-in failures: the first failure of each kind immediately, later failures at the repeat interval. This keeps
 * the log short during a long outage.
 */
export class SignInFailureLog {
  readonly #clock: Clock;
  readonly #log: Logger;
  #sinceMs: number | undefined;
  #attempts = 0;
  readonly #repeats = new Repeats();

  constructor(clock: Clock, log: Logger) {
    this.#clock = clock;
    this.#log = log;
  }

  failed(error: unknown, refused: boolean, retryInMs: number): void {
    const nowMs = this.#clock.monotonicMs();
    this.#sinceMs ??= nowMs;
    this.#attempts++;
    const code = codeOf(error) ?? 'unknown';
    const fields = {
      code,
      error: messageOf(error),
      hint: error instanceof TagferryError ? error.hint : undefined,
      retryInMs: Math.round(retryInMs),
      attempts: this.#attempts,
      failingForMs: Math.round(nowMs - this.#sinceMs),
    };
    const count = this.#repeats.note(code, nowMs);
    if (count === 1) {
      const level = refused ? 'error' : 'warn';
      this.#log[level]({ event: refused ? 'session.refused' : 'session.failed', ...fields }, 'sign-in failed');
    } else if (count !== undefined) {
      this.#log.warn({ event: 'session.still_failing', ...fields }, 'sign-in still failing');
    } else {
      this.#log.debug({ event: 'session.attempt_failed', ...fields }, 'sign-in attempt failed');
    }
  }

  /** Logs the recovery after failures. */
  recovered(grant: string): void {
    const lastedMs = this.#sinceMs === undefined ? undefined : this.#clock.monotonicMs() - this.#sinceMs;
    const fields = {
      event: 'session.valid',
      grant,
      ...(lastedMs === undefined ? {} : { attempts: this.#attempts, missedForMs: Math.round(lastedMs) }),
    };
    if (grant === 'password' || lastedMs !== undefined) this.#log.info(fields, 'signed in to the platform');
    else this.#log.debug(fields, 'session renewed');
    this.#sinceMs = undefined;
    this.#attempts = 0;
    this.#repeats.end('');
  }
}
