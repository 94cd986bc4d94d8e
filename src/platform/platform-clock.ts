import { type Clock, EARLIEST_TRUSTED_MS, plausibleWallMs } from '../base/clock.ts';
import { httpDateMs, retryAfterMs } from '../base/retry.ts';
import type { PlatformAnswer } from './http-boundary.ts';

/** Each gateway of a fleet comes back at another second of the new minute. */
const REST_SPREAD_MS = 10_000;
const MINUTE_MS = 60_000;
const RETRY_AFTER_SPREAD_MS = 1_000;
/** A `Retry-After` beyond this is taken for a mistake, and the platform is asked again. */
const MAX_REST_MS = 5 * MINUTE_MS;
/** One of 0, or of a time that is over, must not make a loop. */
const MIN_REST_MS = 1_000;

/** Permitted error of a gateway clock that nothing else has confirmed, in milliseconds. Also the limit for every other comparison. */
const TOLERANCE_MS = 30_000;
/** Error of one `Date`, in milliseconds: whole seconds plus latency. */
const READING_ERROR_MS = 2_000;
/** Oscillators drift by up to some hundred parts per million. */
const MAX_DRIFT = 500e-6;
/** A time that nothing has confirmed for so long counts for nothing. */
const CLAIM_LIFE_MS = 60_000;

interface Reading {
  platformMs: number;
  atMonotonicMs: number;
}

/**
 * Platform time from the `Date` of authenticated responses, extrapolated by the monotonic clock. Proxies can add a `Date` to any other
 * response, so no other response changes this clock.
 *
 * The first reading must agree with the gateway clock, unless the gateway clock was never set. Any reading that contradicts the known
 * time is a claim. A claim sets the clock if a second witness confirms it: the gateway clock or a token response, which nothing but the
 * platform can produce. Two other responses do not confirm each other, because every proxy can respond 204 with a wrong `Date`.
 * Within the reading error, only token responses correct the known time, and by no more than oscillator drift. The clock is not persisted.
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

  /** Reads the time of a success that was requested with an access token. */
  witness(answer: Pick<PlatformAnswer, 'header'>): void {
    const reading = this.#readingOf(answer);
    if (!reading) return;
    if (this.#known && agree(this.#known, reading)) this.#claim = undefined;
    else this.#judge(reading, this.#granted);
  }

  /**
   * Reads the time of a token response (platform 2.1). `createdAt` is its `created_at`. If `createdAt` contradicts the `Date`, the
   * response is no witness: a proxy has changed the `Date`, or the server reissued an earlier token.
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

  /** The platform's time now; `undefined` before it is known. */
  nowMs(): number | undefined {
    return this.#at(this.#known);
  }

  /** A response contradicts the gateway's clock, and the next one is to decide. */
  get isDisputed(): boolean {
    if (this.#known || !this.#claim) return false;
    return this.#clock.monotonicMs() - this.#claim.atMonotonicMs < CLAIM_LIFE_MS;
  }

  /** The time of the platform's responses, else of the gateway's clock if it is plausible: exact enough for a date. */
  trustedMs(): number | undefined {
    return this.#at(this.#known ?? this.#claim) ?? plausibleWallMs(this.#clock);
  }

  /** Platform minus this machine, in milliseconds, as far as its responses say. */
  offsetMs(): number | undefined {
    const nowMs = this.#at(this.#known ?? this.#claim);
    return nowMs === undefined ? undefined : nowMs - this.#clock.wallMs();
  }

  #at(reading: Reading | undefined): number | undefined {
    return reading && reading.platformMs + this.#clock.monotonicMs() - reading.atMonotonicMs;
  }

  /**
   * How long the limit stays closed by a 429 (docs/interface.md): as `Retry-After` says, else until the next minute starts by the
   * `Date` of the 429 itself (the limit is one per minute).
   */
  closedMs(answer: Pick<PlatformAnswer, 'header'>): number {
    const asked = this.#askedMs(answer);
    if (asked !== undefined) return Math.min(Math.max(asked, MIN_REST_MS), MAX_REST_MS);
    const nowMs = this.#timeOf(answer);
    return nowMs === undefined ? MINUTE_MS : MINUTE_MS - (nowMs % MINUTE_MS);
  }

  /**
   * How long a 429 keeps everyone waiting: until the limit opens, and a random while more, so that not every gateway comes back in that
   * second.
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

/** Moves the clock towards a reading, by no more than the drift since the previous correction. */
function corrected(known: Reading, reading: Reading): Reading {
  const limitMs = driftMs(known, reading);
  const deviation = deviationMs(known, reading);
  const correctionMs = Math.min(Math.max(deviation, -limitMs), limitMs);
  return { ...reading, platformMs: reading.platformMs - deviation + correctionMs };
}

/** Difference between a reading and the time extrapolated from an earlier one, in milliseconds. */
function deviationMs(earlier: Reading, reading: Reading): number {
  return reading.platformMs - earlier.platformMs - (reading.atMonotonicMs - earlier.atMonotonicMs);
}

function driftMs(earlier: Reading, reading: Reading): number {
  return MAX_DRIFT * (reading.atMonotonicMs - earlier.atMonotonicMs);
}

function dateOf(answer: Pick<PlatformAnswer, 'header'>): number | undefined {
  return httpDateMs(answer.header('date') ?? '');
}
