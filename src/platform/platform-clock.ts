import { type Clock, plausibleWallMs } from '../base/clock.ts';
import { retryAfterMs } from '../base/retry.ts';
import type { PlatformAnswer } from './http-boundary.ts';
import { dateOf, jsonObjectOf } from './response-body.ts';

const MINUTE_MS = 60_000;
/** Maximum pause. A longer `Retry-After` is considered an error. */
const MAX_REST_MS = 5 * MINUTE_MS;
/** Minimum pause, so that a `Retry-After` of 0 or in the past does not cause a retry loop. */
const MIN_REST_MS = 1_000;
/** Maximum difference between `Date` and `created_at` of one response, in milliseconds. */
const TOLERANCE_MS = 2_000;

/**
 * Platform time, read from the `Date` of token responses and extrapolated with the monotonic clock. No other response
 * sets this clock, because any proxy can add a `Date`, but only the platform can issue tokens. The clock is not
 * persisted.
 */
export class PlatformClock {
  readonly #clock: Clock;
  /** Platform time minus the monotonic clock. */
  #offsetMs: number | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Reads the time of a token response, and ignores any other response. A `Date` that contradicts `created_at` is
   * ignored, because a proxy may have changed it, or the server may have issued an earlier token again.
   */
  read(answer: PlatformAnswer): void {
    const body = answer.status === 200 ? jsonObjectOf(answer) : undefined;
    const dateMs = dateOf(answer);
    if (typeof body?.access_token !== 'string' || dateMs === undefined) return;
    const { created_at: createdAt } = body;
    if (typeof createdAt === 'number' && Math.abs(createdAt * 1000 - dateMs) > TOLERANCE_MS) return;
    this.#offsetMs = dateMs - this.#clock.monotonicMs();
  }

  /** Returns the current platform time, or `undefined` if it is unknown. */
  nowMs(): number | undefined {
    return this.#offsetMs === undefined ? undefined : this.#offsetMs + this.#clock.monotonicMs();
  }

  /** Returns the platform time if it is known, otherwise the gateway time if it is plausible. */
  trustedMs(): number | undefined {
    return this.nowMs() ?? plausibleWallMs(this.#clock);
  }

  /** Returns the platform time minus the gateway time, in milliseconds, or `undefined` if the former is unknown. */
  offsetMs(): number | undefined {
    const nowMs = this.nowMs();
    return nowMs === undefined ? undefined : nowMs - this.#clock.wallMs();
  }

  /**
   * Returns the time for which the platform rejects requests after a 429 (docs/interface.md): the `Retry-After`, or the
   * time until the next minute according to the `Date` of the 429, because the limit applies per minute. A `Retry-After`
   * that is a date is relative to the `Date` of the response.
   */
  closedMs(answer: Pick<PlatformAnswer, 'header'>): number {
    const nowMs = dateOf(answer) ?? this.nowMs();
    const retryMs = retryAfterMs(answer.header('retry-after'), nowMs ?? this.#clock.wallMs());
    if (retryMs !== undefined) return Math.min(Math.max(retryMs, MIN_REST_MS), MAX_REST_MS);
    return nowMs === undefined ? MINUTE_MS : MINUTE_MS - (nowMs % MINUTE_MS);
  }
}
