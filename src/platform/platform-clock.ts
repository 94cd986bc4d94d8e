import type { Clock } from '../clock.ts';
import { retryAfterMs } from '../retry.ts';
import type { PlatformAnswer } from './http-boundary.ts';

/** Each gateway of a fleet comes back at another second of the new minute. */
const REST_SPREAD_MS = 10_000;
const MINUTE_MS = 60_000;
/** A `Retry-After` beyond this is taken for a mistake. */
const LONGEST_REST_MS = 5 * MINUTE_MS;

/** How far the platform's clock is from this machine's, by the `Date` of its answers (whole seconds). */
export class PlatformClock {
  readonly #clock: Clock;
  #seen: { platformMs: number; atMonotonicMs: number } | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  observe(answer: PlatformAnswer): void {
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
   * How long a 429 keeps everyone waiting (INTERFACE.md): `Retry-After`, else until the next minute by the platform's
   * `Date` and up to 10 s more.
   */
  restMs(answer: PlatformAnswer): number {
    this.observe(answer);
    const nowMs = this.nowMs() ?? this.#clock.wallMs();
    const asked = retryAfterMs(answer.header('retry-after'), nowMs);
    if (asked !== undefined) return Math.min(asked, LONGEST_REST_MS);
    return MINUTE_MS - (nowMs % MINUTE_MS) + this.#clock.random() * REST_SPREAD_MS;
  }
}
