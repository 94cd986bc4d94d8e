import { type Clock, EARLIEST_TRUSTED_MS, plausibleWallMs } from '../base/clock.ts';
import { httpDateMs, retryAfterMs } from '../base/retry.ts';
import type { PlatformAnswer } from './http-boundary.ts';

/**
 * Maximum random delay of the first request after a 429, so that the gateways in a fleet do not retry at the same time.
 */
const REST_SPREAD_MS = 10_000;
const MINUTE_MS = 60_000;
const RETRY_AFTER_SPREAD_MS = 1_000;
/** Maximum pause. A longer `Retry-After` is considered an error. */
const MAX_REST_MS = 5 * MINUTE_MS;
/** Minimum pause, so that a `Retry-After` of 0 or in the past does not cause a retry loop. */
const MIN_REST_MS = 1_000;

/**
 * Permitted deviation between the gateway clock and an unconfirmed reading, in milliseconds. Also the upper limit for
 * all other comparisons.
 */
const TOLERANCE_MS = 30_000;
/** Maximum error of a `Date` header, in milliseconds, due to its resolution of one second and latency. */
const READING_ERROR_MS = 2_000;
/** Maximum clock drift. Oscillators drift by up to several hundred parts per million. */
const MAX_DRIFT = 500e-6;
/** Lifetime of an unconfirmed claim, in milliseconds. */
const CLAIM_LIFE_MS = 60_000;

interface Reading {
  platformMs: number;
  atMonotonicMs: number;
}

/**
 * Platform time derived from the `Date` of authenticated responses and extrapolated with the monotonic clock. Other
 * responses do not change this clock, because proxies can add a `Date` to them.
 *
 * The first reading must agree with the gateway clock, unless the gateway clock was never set. A reading that
 * contradicts the known time is a claim. A claim sets the clock if the gateway clock or a token response confirms it,
 * because only the platform can issue tokens. Two other responses do not confirm each other, because any proxy can
 * respond 204 with a wrong `Date`. If a token response agrees with the known time, it corrects the time by at most the
 * oscillator drift. The clock is not persisted.
 */
export class PlatformClock {
  readonly #clock: Clock;
  #known: Reading | undefined;
  #claim: Reading | undefined;
  /** Reading of the latest token response. */
  #granted: Reading | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Reads the time of a successful response to a request with an access token. */
  witness(answer: Pick<PlatformAnswer, 'header'>): void {
    const reading = this.#readingOf(answer);
    if (!reading) return;
    if (this.#known && agree(this.#known, reading)) this.#claim = undefined;
    else this.#judge(reading, this.#granted);
  }

  /**
   * Reads the time of a token response (platform 2.1). `createdAt` is the `created_at` member. If it contradicts the
   * `Date`, the response is treated like any other response, because a proxy may have changed the `Date` or the server
   * may have reissued an earlier token.
   */
  witnessGrant(answer: Pick<PlatformAnswer, 'header'>, createdAt: unknown): void {
    const reading = this.#readingOf(answer);
    if (!reading) return;
    if (typeof createdAt === 'number' && Math.abs(createdAt * 1000 - reading.platformMs) > READING_ERROR_MS) {
      this.witness(answer);
      return;
    }
    this.#granted = reading;
    if (this.#known && agree(this.#known, reading)) {
      this.#known = corrected(this.#known, reading);
      this.#claim = undefined;
    } else {
      this.#judge(reading, this.#claim);
    }
  }

  #judge(reading: Reading, second: Reading | undefined): void {
    const isConfirmed = (second && agree(second, reading)) || this.#agreesWithGateway(reading);
    if (isConfirmed) this.#known = reading;
    this.#claim = isConfirmed ? undefined : reading;
  }

  #agreesWithGateway(reading: Reading): boolean {
    const wallMs = this.#clock.wallMs();
    if (this.#known) return agree({ ...reading, platformMs: wallMs }, reading);
    return wallMs < EARLIEST_TRUSTED_MS || Math.abs(wallMs - reading.platformMs) <= TOLERANCE_MS;
  }

  #readingOf(answer: Pick<PlatformAnswer, 'header'>): Reading | undefined {
    const platformMs = dateOf(answer);
    return platformMs === undefined ? undefined : { platformMs, atMonotonicMs: this.#clock.monotonicMs() };
  }

  /** Returns the current platform time, or `undefined` if it is unknown. */
  nowMs(): number | undefined {
    return this.#at(this.#known);
  }

  /** Whether a response contradicts the gateway clock and has not been confirmed yet. */
  get isDisputed(): boolean {
    if (this.#known || !this.#claim) return false;
    return this.#clock.monotonicMs() - this.#claim.atMonotonicMs < CLAIM_LIFE_MS;
  }

  /**
   * Returns the platform time if it is known, otherwise the gateway time if it is plausible. Accurate enough for dates.
   */
  trustedMs(): number | undefined {
    return this.#at(this.#known ?? this.#claim) ?? plausibleWallMs(this.#clock);
  }

  /**
   * Returns the platform time minus the gateway time, in milliseconds, or `undefined` if the platform time is unknown.
   */
  offsetMs(): number | undefined {
    const nowMs = this.#at(this.#known ?? this.#claim);
    return nowMs === undefined ? undefined : nowMs - this.#clock.wallMs();
  }

  #at(reading: Reading | undefined): number | undefined {
    return reading && reading.platformMs + this.#clock.monotonicMs() - reading.atMonotonicMs;
  }

  /**
   * Returns the time for which the platform rejects requests after a 429 (docs/interface.md): the `Retry-After`, or the
   * time until the next minute according to the `Date` of the 429, because the limit applies per minute.
   */
  closedMs(answer: Pick<PlatformAnswer, 'header'>): number {
    const asked = this.#askedMs(answer);
    if (asked !== undefined) return Math.min(Math.max(asked, MIN_REST_MS), MAX_REST_MS);
    const nowMs = this.#timeOf(answer);
    return nowMs === undefined ? MINUTE_MS : MINUTE_MS - (nowMs % MINUTE_MS);
  }

  /**
   * Returns the time for which all requests are paused after a 429: until the limit is reset, plus a random delay so
   * that gateways do not retry in the same second.
   */
  restMs(answer: Pick<PlatformAnswer, 'header'>): number {
    const spreadMs = this.#askedMs(answer) === undefined ? REST_SPREAD_MS : RETRY_AFTER_SPREAD_MS;
    return this.closedMs(answer) + this.#clock.random() * spreadMs;
  }

  #askedMs(answer: Pick<PlatformAnswer, 'header'>): number | undefined {
    return retryAfterMs(answer.header('retry-after'), this.#timeOf(answer) ?? this.#clock.wallMs());
  }

  #timeOf(answer: Pick<PlatformAnswer, 'header'>): number | undefined {
    return dateOf(answer) ?? this.nowMs();
  }
}

function agree(earlier: Reading, reading: Reading): boolean {
  return (
    Math.abs(deviationMs(earlier, reading)) <= Math.min(READING_ERROR_MS + driftMs(earlier, reading), TOLERANCE_MS)
  );
}

/** Adjusts the known time towards a reading, by at most the drift since the previous correction. */
function corrected(known: Reading, reading: Reading): Reading {
  const limitMs = driftMs(known, reading);
  const deviation = deviationMs(known, reading);
  const correctionMs = Math.min(Math.max(deviation, -limitMs), limitMs);
  return { ...reading, platformMs: reading.platformMs - deviation + correctionMs };
}

/** Returns the difference between a reading and the time extrapolated from an earlier reading, in milliseconds. */
function deviationMs(earlier: Reading, reading: Reading): number {
  return reading.platformMs - earlier.platformMs - (reading.atMonotonicMs - earlier.atMonotonicMs);
}

function driftMs(earlier: Reading, reading: Reading): number {
  return MAX_DRIFT * (reading.atMonotonicMs - earlier.atMonotonicMs);
}

function dateOf(answer: Pick<PlatformAnswer, 'header'>): number | undefined {
  return httpDateMs(answer.header('date') ?? '');
}
