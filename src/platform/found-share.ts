/**
 * Pure: the share of a limit that others have a part in (one technical user for many gateways), found without talking to them. Additive
 * increase and multiplicative decrease, as TCP has them (RFC 5681): a 429 makes it smaller, time without one lets it grow.
 *
 *   configured ──429──► refused ──time──► growing ──► configured
 *                          ▲                 │
 *                          ╰───────429───────╯        back from an outage: slow-start, doubling up to what was found
 *
 * - A 429 counts for all that the share would have sent until the limit opens again, which nobody asks for. So a large share loses more
 *   than a small one by the same closed minute, which makes them even, and chance (who came just before it closed, and who just after)
 *   has little part in it.
 * - The step is a part of what the last 429 left: it suits few who share as well as a thousand. It doubles every five minutes without one.
 * - All that is a rate goes by time, not by minutes that are full: agents with few requests would grow by the luck of their rhythm.
 * - Refused time after time with nothing taken between, the share is too large by far: it falls faster each time.
 * - Who posts a backlog yields more than who posts what is live, so that the fleet's live values go first.
 * - Who does not use its share does not gain by it.
 */
export type ShareReason = 'configured' | 'refused' | 'growing' | 'slow-start';

const MINUTE_MS = 60_000;
/** Requests a minute: one in ten minutes tells soon enough that there is more. */
const MIN_SHARE = 0.1;
/** What each request that is lost to a closed limit leaves of it: to who posts a backlog, and to who does not. */
const LEFT_TO_BACKLOG = 0.78;
const LEFT_TO_LIVE = 0.88;
/** Of the requests that would have followed the one refused, on average so much of one stood before it: it may have come late. */
const OF_THE_REFUSED = 0.5;
/** However much was lost, by one 429 it falls to this part at most. */
const LEFT_AT_LEAST = 0.25;
/** From so many requests a minute on, each of them says less. */
const MANY = 10;
/** So many refusals in a row, each weighing one and a half times the one before. */
const MAX_STREAK = 5;
const STREAK_WEIGHT = 1.5;
const STREAK_MS = 2.5 * MINUTE_MS;
/** What a minute adds, of what the last 429 left; a share below `FEW` grows by a little less. Measured with 2 to 400 agents (docs/sites.md). */
const STEP = 0.05;
const FEW = 2;
/** The step doubles after so long without a 429, at most so many times. */
const DOUBLED_EVERY_MS = 5 * MINUTE_MS;
const MAX_DOUBLINGS = 5;
/** Who asks less often than once in ten minutes does not grow for all of them at once. */
const MAX_MINUTES = 10;
/** A look more often than this changes nothing that can be seen. */
const MIN_MINUTES = 0.1;
/** After an outage it begins with so much of what was found. */
const SLOW_START = 0.25;

export class FoundShare {
  readonly #max: number;
  #share: number;
  #reason: ShareReason = 'configured';
  /** Requests a minute that a minute adds. */
  #step = 0;
  #streak = 0;
  #hadOne = false;
  /** What a slow start leads to. */
  #target: number | undefined;
  #lookedMs: number;
  #lastRefusedMs = Number.NEGATIVE_INFINITY;
  #closedUntilMs = Number.NEGATIVE_INFINITY;
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

  /** The platform answered 429, and takes nothing for `closedMs`. Those that were under way beside it are one sign with it. */
  refused(nowMs: number, closedMs: number): void {
    if (nowMs < this.#closedUntilMs) return;
    const sinceMs = nowMs - this.#lastRefusedMs;
    this.#lastRefusedMs = nowMs;
    this.#closedUntilMs = nowMs + closedMs;
    this.#streak = sinceMs < STREAK_MS && !this.#hadOne ? Math.min(MAX_STREAK, this.#streak + 1) : 1;
    const lost = OF_THE_REFUSED + (closedMs / MINUTE_MS) * this.#share;
    const weight = Math.min(1, Math.sqrt(MANY / this.#share)) * STREAK_WEIGHT ** (this.#streak - 1);
    const left = (this.#isBacklog ? LEFT_TO_BACKLOG : LEFT_TO_LIVE) ** (lost * weight);
    this.#share = Math.max(Math.min(MIN_SHARE, this.#max), this.#share * Math.max(LEFT_AT_LEAST, left));
    this.#step = STEP * this.#share * Math.min(1, (this.#share / FEW) ** 0.25);
    this.#hadOne = false;
    this.#reason = 'refused';
    this.#target = undefined;
    this.#beginSpan(nowMs);
  }

  /** The platform is back, and everybody who shares comes with a backlog. */
  outageOver(nowMs: number): void {
    if (this.#reason === 'configured' || this.#target !== undefined) return;
    this.#target = this.#share;
    this.#share *= SLOW_START;
    this.#reason = 'slow-start';
    this.#beginSpan(nowMs);
  }

  /** Grows for the time that has passed, as far as it counts; gives whether the share has changed. */
  look(nowMs: number): boolean {
    const minutes = Math.min(MAX_MINUTES, (nowMs - this.#lookedMs) / MINUTE_MS);
    if (this.#reason === 'configured' || minutes < MIN_MINUTES) return false;
    this.#beginSpan(nowMs);
    if (this.#isWanted) this.#grow(nowMs, minutes);
    return this.#isWanted;
  }

  #grow(nowMs: number, minutes: number): void {
    if (this.#target !== undefined) {
      this.#share = Math.min(this.#target, this.#share * 2 ** minutes);
      if (this.#share === this.#target) this.#target = undefined;
      return;
    }
    const doublings = Math.min(MAX_DOUBLINGS, Math.floor((nowMs - this.#lastRefusedMs) / DOUBLED_EVERY_MS));
    this.#share = Math.min(this.#max, this.#share + minutes * this.#step * 2 ** doublings);
    this.#reason = this.#share === this.#max ? 'configured' : 'growing';
  }

  #beginSpan(nowMs: number): void {
    this.#lookedMs = nowMs;
    this.#isBacklog = false;
  }
}
