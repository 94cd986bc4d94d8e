import type { Clock } from '../../base/clock.ts';
import { codeOf, messageOf, TagferryError } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import { Repeats } from '../../base/repeats.ts';

/**
 * Says what is wrong with the sign-in: each kind of failure once and clearly, with what to do; after that in
 * the rhythm of all repeats. An outage of a weekend makes a few hundred lines less than attempts.
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
      this.#log[level](
        { event: refused ? 'session.refused' : 'session.failed', ...fields },
        'no session with the platform',
      );
    } else if (count !== undefined) {
      this.#log.warn({ event: 'session.still_failing', ...fields }, 'still no session with the platform');
    } else {
      this.#log.debug({ event: 'session.attempt_failed', ...fields }, 'another sign-in failed');
    }
  }

  /** The session is there: says so where it was missed. */
  recovered(grant: string): void {
    const lastedMs = this.#sinceMs === undefined ? undefined : this.#clock.monotonicMs() - this.#sinceMs;
    const fields = {
      event: 'session.valid',
      grant,
      ...(lastedMs === undefined ? {} : { attempts: this.#attempts, missedForMs: Math.round(lastedMs) }),
    };
    if (grant === 'password' || lastedMs !== undefined) this.#log.info(fields, 'session with the platform');
    else this.#log.debug(fields, 'session renewed');
    this.#sinceMs = undefined;
    this.#attempts = 0;
    this.#repeats.end('');
  }
}
