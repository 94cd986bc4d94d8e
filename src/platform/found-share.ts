/**
 * Pure: the share of a limit that others have a part in (one technical user for many gateways), found without talking to them. Increase
 * and multiplicative decrease, as TCP has them (RFC 5681): a 429 makes it smaller, minutes without one let it grow.
 *
 *   configured ──429──► refused ──a minute──► growing ──► configured
 *                          ▲                     │
 *                          ╰─────────429─────────╯        back from an outage: slow-start, doubling up to what was found
 *
 * - The step is the root of the share: small ones gain more of themselves than large ones, and lose less often, which makes them even,
 *   whether ten share or a thousand (binomial control, Bansal and Balakrishnan 2001). A constant step suits one number of agents alone, and one
 *   that grows with the time since the last 429 makes the lucky rich.
 * - Refused minute after minute with nothing taken between, the share is far too large: it falls faster each time.
 * - Who posts a backlog yields more than who posts what is live, so that the fleet's live values go first.
 * - Who does not use its share does not gain by it.
 */
export type ShareReason = 'configured' | 'refused' | 'growing' | 'slow-start';

const MINUTE_MS = 60_000;
/** Requests a minute: one in ten minutes tells soon enough that there is more. */
const MIN_SHARE = 0.1;
/** What a 429 leaves of it: to who posts a backlog, and to who does not. */
const LEFT_TO_BACKLOG = 0.7;
const LEFT_TO_LIVE = 0.85;
/** So many refusals in a row make it fall by the fifth power of a half. */
const MAX_STREAK = 5;
const STREAK_MS = 2.5 * MINUTE_MS;
/** Requests a minute, in each minute, for a share of one; measured with 2 to 1,000 agents (docs/fleet.md). */
const STEP = 0.3;
/** Who asks less often than once in ten minutes does not grow for all of them at once. */
const MAX_MINUTES = 10;
/** After an outage it begins with so much of what was found. */
const SLOW_START = 0.25;

export class FoundShare {
  readonly #max: number;
  #share: number;
  #reason: ShareReason = 'configured';
  #streak = 0;
  #hadOne = false;
  /** What a slow start leads to. */
  #target: number | undefined;
  #lookedMs: number;
  #lastRefusedMs = Number.NEGATIVE_INFINITY;
  #isWanted = false;
  #isBacklog = false;

  /** `max`: requests a minute that are configured. */
  constructor(max: number, nowMs: number) {
    this.#max = max;
    this.#share = max;
    this.#lookedMs = nowMs;
  }

  /** Requests a minute. */
  get perMinute(): number {
    return this.#share;
  }

  get reason(): ShareReason {
    return this.#reason;
  }

  /** A request was made. `isWanted`: as soon as the share allowed it. */
  used(isBacklog: boolean, isWanted: boolean): void {
    this.#isBacklog ||= isBacklog;
    this.#isWanted = isWanted;
  }

  /** The platform took a request. */
  accepted(): void {
    this.#hadOne = true;
  }

  /** The platform answered 429. Those of one minute are one sign. */
  refused(nowMs: number): void {
    const sinceMs = nowMs - this.#lastRefusedMs;
    if (sinceMs < MINUTE_MS / 2) return;
    this.#lastRefusedMs = nowMs;
    this.#streak = sinceMs < STREAK_MS && !this.#hadOne ? Math.min(MAX_STREAK, this.#streak + 1) : 1;
    const left = this.#isBacklog ? LEFT_TO_BACKLOG : LEFT_TO_LIVE;
    this.#share = Math.max(
      Math.min(MIN_SHARE, this.#max),
      this.#share * (this.#streak > 1 ? 0.5 ** this.#streak : left),
    );
    this.#hadOne = false;
    this.#reason = 'refused';
    this.#target = undefined;
    this.#beginMinute(nowMs);
  }

  /** The platform is back, and everybody who shares comes with a backlog. */
  outageOver(nowMs: number): void {
    if (this.#reason === 'configured' || this.#target !== undefined) return;
    this.#target = this.#share;
    this.#share *= SLOW_START;
    this.#reason = 'slow-start';
    this.#beginMinute(nowMs);
  }

  /** One step for each minute that has passed, as far as it counts; gives whether the share has changed. */
  look(nowMs: number): boolean {
    const minutes = Math.min(MAX_MINUTES, Math.floor((nowMs - this.#lookedMs) / MINUTE_MS));
    if (this.#reason === 'configured' || minutes < 1) return false;
    this.#beginMinute(nowMs);
    if (this.#isWanted) for (let minute = 0; minute < minutes; minute++) this.#grow();
    return this.#isWanted;
  }

  #grow(): void {
    if (this.#target !== undefined) {
      this.#share = Math.min(this.#target, this.#share * 2);
      if (this.#share === this.#target) this.#target = undefined;
      return;
    }
    this.#share = Math.min(this.#max, this.#share + STEP * Math.sqrt(this.#share));
    this.#reason = this.#share === this.#max ? 'configured' : 'growing';
  }

  #beginMinute(nowMs: number): void {
    this.#lookedMs = nowMs;
    this.#isBacklog = false;
  }
}
