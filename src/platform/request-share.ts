/**
 * Share of a request limit that several agents use. Agents determine their shares without communication, as in TCP (RFC
 * 5681): multiplicative decrease after a 429, additive increase otherwise, and a slow start after an outage.
 *
 *   configured ──429──► refused ──time──► growing ──► configured
 *                          ▲                 │
 *                          ╰───────429───────╯        after an outage: slow-start, doubling up to the previous share
 *
 * - The decrease after a 429 depends on the number of requests that the share would have allowed until the limit is
 *   reset; if there are several, on the square root of this number. Large shares therefore decrease more than small
 *   shares, so that shares converge.
 * - The increase is proportional to the share after the latest 429, which works for two agents as well as for hundreds.
 *   The increase doubles over time.
 * - An unused share does not increase.
 * - The share is at least one request per minute. If the limit is too small for all agents, the times of their requests
 *   within the minute determine which requests are made before the limit is exhausted (`RequestPlaces`).
 *
 * The constants were determined with the simulations in docs/guide/sites.md.
 */
export type ShareReason = 'configured' | 'refused' | 'growing' | 'slow-start';

const MINUTE_MS = 60_000;
/** Minimum share, in requests per minute. */
const MIN_SHARE = 1;
/** Factor by which the share decreases for each request lost because the limit was exhausted. */
const LEFT_PER_LOST = 0.92;
/** Minimum fraction of the share that remains after a single 429. */
const MIN_LEFT = 0.25;
/**
 * `step`: increase per minute, as a fraction of the share after the latest 429. The increase doubles after each
 * `doubledMs` without a 429. With a shorter time, a small number of agents would overshoot the limit, decrease further,
 * and leave more than a tenth of the limit unused.
 */
const USUAL = { step: 0.03, doubledMs: 9 * MINUTE_MS };
/** Increase during the first `forMs` after an outage, when the agents have backlogs. */
const AFTER_OUTAGE = { step: 0.2, doubledMs: MINUTE_MS, forMs: 10 * MINUTE_MS };
const MAX_DOUBLINGS = 5;
/** Maximum time since the previous request for which a share increases, in minutes. */
const MAX_MINUTES = 10;
/** Minimum duration of an outage that is followed by a slow start. Shorter outages do not cause a backlog. */
const LONG_OUTAGE_MS = MINUTE_MS;
/** Slow start: initial share, time in which the share doubles, and minimum share after a 429 ends the slow start. */
const START = { share: 10, doubledMs: 15_000, minShare: 5 };
/** Share after a 429 ends a slow start, as a fraction of the number of requests made in that minute. */
const LEFT_OF_START = 0.5;

export class RequestShare {
  readonly #max: number;
  #share: number;
  #reason: ShareReason = 'configured';
  /** Share at which a slow start ends. */
  #target: number;
  /** Current increase of the share per minute, in requests per minute. */
  #step = 0;
  #grownAtMs: number;
  #lastRefusedMs = Number.NEGATIVE_INFINITY;
  #closedUntilMs = Number.NEGATIVE_INFINITY;
  #fastUntilMs = Number.NEGATIVE_INFINITY;

  /** `max`: configured limit, in requests per minute. */
  constructor(max: number, nowMs: number) {
    this.#max = max;
    this.#share = max;
    this.#target = max;
    this.#grownAtMs = nowMs;
  }

  /** Current share, in requests per minute. */
  get perMinute(): number {
    return this.#share;
  }

  get reason(): ShareReason {
    return this.#reason;
  }

  /**
   * Records a 429 response. The platform rejects requests for `closedMs`, and further 429 responses within that time
   * are ignored. `made`: number of requests since the limit was reset, excluding this one.
   */
  refused(nowMs: number, closedMs: number, made: number): void {
    if (nowMs < this.#closedUntilMs) return;
    // On average, the limit was exhausted half a request interval before this request.
    const lost = 0.5 + (closedMs / MINUTE_MS) * this.#share;
    const left = Math.max(MIN_LEFT, LEFT_PER_LOST ** Math.min(lost, Math.sqrt(lost)));
    const next = this.#reason === 'slow-start' ? Math.max(START.minShare, made * LEFT_OF_START) : this.#share * left;
    this.#share = Math.min(this.#share, Math.max(MIN_SHARE, next));
    this.#step = this.#growth(nowMs).step * this.#share;
    this.#reason = 'refused';
    this.#lastRefusedMs = nowMs;
    this.#closedUntilMs = nowMs + closedMs;
    this.#grownAtMs = nowMs;
  }

  /**
   * Starts a slow start if the platform was unavailable for a long time, because every agent that shares the limit has
   * a backlog.
   */
  outageOver(nowMs: number, unavailableMs: number): void {
    if (this.#reason === 'slow-start' || unavailableMs < LONG_OUTAGE_MS) return;
    this.#target = this.#share;
    this.#share = Math.min(this.#share, START.share);
    this.#reason = 'slow-start';
    this.#fastUntilMs = nowMs + AFTER_OUTAGE.forMs;
    this.#grownAtMs = Math.max(nowMs, this.#closedUntilMs);
  }

  /** Records a request. `isWanted`: whether the request was made as soon as the share allowed it. */
  used(nowMs: number, isWanted: boolean): void {
    const minutes = Math.max(0, Math.min(MAX_MINUTES, (nowMs - this.#grownAtMs) / MINUTE_MS));
    this.#grownAtMs = Math.max(this.#grownAtMs, nowMs);
    if (this.#reason === 'configured') return;
    if (this.#reason === 'slow-start') {
      this.#share = Math.min(this.#target, this.#share * 2 ** ((minutes * MINUTE_MS) / START.doubledMs));
      if (this.#share < this.#target) return;
    } else if (isWanted) {
      const { doubledMs } = this.#growth(nowMs);
      const doublings = Math.min(MAX_DOUBLINGS, Math.floor((nowMs - this.#lastRefusedMs) / doubledMs));
      this.#share = Math.min(this.#max, this.#share + minutes * this.#step * 2 ** doublings);
    } else {
      return;
    }
    this.#reason = this.#share === this.#max ? 'configured' : 'growing';
  }

  #growth(nowMs: number): { step: number; doubledMs: number } {
    return nowMs < this.#fastUntilMs ? AFTER_OUTAGE : USUAL;
  }
}

/** Golden ratio. The fractional parts of its multiples are evenly distributed for any number of multiples. */
const SHIFT = (Math.sqrt(5) - 1) / 2;
/** Rounding tolerance, as a fraction of an interval. */
const ROUNDING = 1e-6;
/**
 * Reset times that differ by less than this value are considered equal, because the platform's `Date` has a resolution
 * of one second.
 */
const SAME_MINUTE_MS = 2_000;

/**
 * Determines the times of a share's requests within each minute of the limit. The times are evenly spaced, and the
 * first time shifts within its interval from minute to minute. If the limit is exhausted before the minute ends, the
 * requests rejected from each agent are therefore proportional to its share, even if an agent makes less than one
 * request per minute.
 */
export class RequestPlaces {
  /** Time before the first request in the first minute, as a fraction of an interval. */
  readonly #first: number;
  /** Start of a minute of the limit. */
  #openedMs = 0;

  constructor(random: () => number) {
    this.#first = random();
  }

  /** Sets the time at which the limit is reset and its minutes begin. */
  opensAt(ms: number): void {
    const laterMs = (((ms - this.#openedMs) % MINUTE_MS) + MINUTE_MS) % MINUTE_MS;
    if (Math.min(laterMs, MINUTE_MS - laterMs) > SAME_MINUTE_MS) this.#openedMs = ms;
  }

  /** Returns the first request time after `ms`, or `-Infinity` if `ms` is `-Infinity`. */
  after(ms: number, perMinute: number): number {
    if (ms === Number.NEGATIVE_INFINITY) return ms;
    const sinceMs = ms - this.#openedMs;
    for (let minute = Math.floor(sinceMs / MINUTE_MS); ; minute++) {
      const shifted = this.#first + minute * SHIFT;
      const part = shifted - Math.floor(shifted);
      const passed = Math.max(0, sinceMs / MINUTE_MS - minute) * perMinute;
      const number = Math.max(0, Math.floor(passed - part + ROUNDING) + 1);
      const place = (part + number) / perMinute;
      if (place < 1) return this.#openedMs + (minute + place) * MINUTE_MS;
    }
  }
}
