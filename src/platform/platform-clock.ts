import type { Clock } from '../base/clock.ts';
import { retryAfterMs } from '../base/retry.ts';
import type { PlatformAnswer } from './http-boundary.ts';

/** Each gateway of a fleet comes back at another second of the new minute. */
const REST_SPREAD_MS = 10_000;
const MINUTE_MS = 60_000;
const RETRY_AFTER_SPREAD_MS = 1_000;
/** A `Retry-After` beyond this is taken for a mistake, and the platform is asked again. */
const MAX_REST_MS = 5 * MINUTE_MS;
/** One of 0, or of a time that is over, must not make a loop. */
const MIN_REST_MS = 1_000;

/** How far the platform's clock is from this machine's, by the `Date` of its answers (whole seconds). */
export class PlatformClock {
  readonly #clock: Clock;
  #seen: { platformMs: number; atMonotonicMs: number } | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  observe(answer: Pick<PlatformAnswer, 'header'>): void {
    const platformMs = Date.parse(answer.header('date') ?? '');
    if (Number.isNaN(platformMs)) return;
    this.#seen = { platformMs, atMonotonicMs: this.#clock.monotonicMs() };
  }

  /** The platform's time now; `undefined` before its first dated answer. */
  nowMs(): number | undefined {
    if (!this.#seen) return undefined;
    return this.#seen.platformMs + this.#clock.monotonicMs() - this.#seen.atMonotonicMs;
  }

  /** Platform minus this machine, in milliseconds. */
  offsetMs(): number | undefined {
    const nowMs = this.nowMs();
    return nowMs === undefined ? undefined : nowMs - this.#clock.wallMs();
  }

  /**
   * How long the limit stays closed by a 429 (docs/interface.md): as `Retry-After` says, else until the next minute starts by the
   * platform's own clock (its limit is one of minutes).
   */
  closedMs(answer: Pick<PlatformAnswer, 'header'>): number {
    this.observe(answer);
    const asked = this.#askedMs(answer);
    if (asked !== undefined) return Math.min(Math.max(asked, MIN_REST_MS), MAX_REST_MS);
    const nowMs = this.nowMs();
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
    return retryAfterMs(answer.header('retry-after'), this.nowMs() ?? this.#clock.wallMs());
  }
}
