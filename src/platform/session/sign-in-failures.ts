import type { Clock } from '../../base/clock.ts';
import { codeOf, messageOf, TagferryError } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import { Repeats } from '../../base/repeats.ts';
import { fullJitterMs } from '../../base/retry.ts';
import { GrantError, isSignInRefused } from '../response-meanings.ts';

/** After rejected credentials, the delay doubles from 5 s to 60 s, and after 15 minutes to 1 h (docs/interface.md). */
const REFUSED_FIRST_MS = 5_000;
const REFUSED_CAP_MS = 60_000;
const REFUSED_PATIENCE_MS = 15 * 60_000;
const REFUSED_SLOW_CAP_MS = 3_600_000;
/** With a timeout of 20 s per attempt, an unavailable platform is retried at least every 60 s (docs/interface.md). */
const UNAVAILABLE = { baseMs: 1_000, capMs: 30_000 };
const UNAVAILABLE_FLOOR_MS = 500;
/** Maximum `Retry-After` that is honored: for a 429, and for an unavailable platform, which is retried every 60 s. */
const MAX_RATE_REST_MS = 15 * 60_000;
const MAX_UNAVAILABLE_REST_MS = 60_000;

/**
 * Failed token requests since the latest sign-in. Determines the delay before the next request, and logs the first
 * failure of each kind immediately and later failures at the repeat interval.
 */
export class SignInFailures {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #repeats = new Repeats();
  #count = 0;
  #sinceMs = 0;
  /** Monotonic time since which the platform has rejected the credentials; undefined if the latest failure differs. */
  #refusedSinceMs: number | undefined;
  #delayMs = 0;
  #latest: unknown;

  constructor(clock: Clock, log: Logger) {
    this.#clock = clock;
    this.#log = log;
  }

  get count(): number {
    return this.#count;
  }

  /** Error of the latest failure; undefined after a sign-in. */
  get latest(): unknown {
    return this.#latest;
  }

  /** Records a failure. Returns the delay before the next request, in milliseconds. Default: depends on the error. */
  add(error: unknown, fixedDelayMs?: number): number {
    const nowMs = this.#clock.monotonicMs();
    if (this.#count === 0) this.#sinceMs = nowMs;
    this.#count++;
    this.#latest = error;
    const isRefused = isSignInRefused(error);
    this.#delayMs = fixedDelayMs ?? (isRefused ? this.#refusedDelayMs(nowMs) : this.#unavailableDelayMs(error));
    if (!isRefused) this.#refusedSinceMs = undefined;
    this.#logFailure(error, isRefused, nowMs);
    return this.#delayMs;
  }

  /** Restarts the delays, because an operator requests an attempt. */
  restartDelays(): void {
    this.#refusedSinceMs = undefined;
  }

  /** Records a sign-in, and logs the recovery after failures. */
  recovered(grant: string): void {
    const hasFailed = this.#count > 0;
    const missedForMs = Math.round(this.#clock.monotonicMs() - this.#sinceMs);
    const fields = { event: 'session.valid', grant, ...(hasFailed ? { attempts: this.#count, missedForMs } : {}) };
    if (grant === 'password' || hasFailed) this.#log.info(fields, 'signed in to the platform');
    else this.#log.debug(fields, 'session renewed');
    this.#count = 0;
    this.#refusedSinceMs = undefined;
    this.#latest = undefined;
    this.#repeats.end('');
  }

  #refusedDelayMs(nowMs: number): number {
    if (this.#refusedSinceMs === undefined) {
      this.#refusedSinceMs = nowMs;
      return REFUSED_FIRST_MS;
    }
    const isPatient = nowMs - this.#refusedSinceMs < REFUSED_PATIENCE_MS;
    return Math.min(this.#delayMs * 2, isPatient ? REFUSED_CAP_MS : REFUSED_SLOW_CAP_MS);
  }

  #unavailableDelayMs(error: unknown): number {
    const jitterMs = fullJitterMs(this.#count - 1, UNAVAILABLE, () => this.#clock.random(), UNAVAILABLE_FLOOR_MS);
    if (!(error instanceof GrantError)) return jitterMs;
    const maxRestMs = error.failure === 'rate_limited' ? MAX_RATE_REST_MS : MAX_UNAVAILABLE_REST_MS;
    return Math.max(jitterMs, Math.min(error.retryAfterMs ?? 0, maxRestMs));
  }

  #logFailure(error: unknown, isRefused: boolean, nowMs: number): void {
    const code = codeOf(error) ?? 'unknown';
    const fields = {
      code,
      error: messageOf(error),
      hint: error instanceof TagferryError ? error.hint : undefined,
      retryInMs: Math.round(this.#delayMs),
      attempts: this.#count,
      failingForMs: Math.round(nowMs - this.#sinceMs),
    };
    const repeats = this.#repeats.note(code, nowMs);
    if (repeats === 1) {
      const level = isRefused ? 'error' : 'warn';
      this.#log[level]({ event: isRefused ? 'session.refused' : 'session.failed', ...fields }, 'sign-in failed');
    } else if (repeats !== undefined) {
      this.#log.warn({ event: 'session.still_failing', ...fields }, 'sign-in still failing');
    } else {
      this.#log.debug({ event: 'session.attempt_failed', ...fields }, 'sign-in attempt failed');
    }
  }
}
