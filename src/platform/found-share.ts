/**
 * Pure: the share of a limit that others have a part in (one technical user for many gateways), found without talking to them. Additive
 * increase and multiplicative decrease, as TCP has them (RFC 5681): a 429 makes it smaller, time without one lets it grow.
 *
 *   configured ──429──► refused ──time──► growing ──► configured
 *                          ▲                 │
 *                          ╰───────429───────╯        back from an outage: slow-start, doubling up to what it was
 *
 * - A 429 counts for all that the share would have sent until the limit opens again, which nobody asks for; of more than one, for its
 *   square root. So a large share loses more than a small one by the same closed minute, which makes them even; but one bad minute,
 *   in which somebody comes with all that is configured, disturbs little what was found.
 * - The step is a part of what the last 429 left: it suits few who share as well as a thousand. It doubles every five minutes without one.
 *   Steps and losses are small: all who share are refused in turn then (`RequestPlaces`), and not all in one minute and nobody in the next.
 * - Who was refused for the first time has far too much: for a while each 429 counts twice.
 * - For a while after an outage, while there is still a backlog to post, all is faster: steps are larger and double each minute, losses
 *   too; and where the limit closed early in its minute, all shares together were too large by just that: none falls to less than fits.
 * - All that is a rate goes by time, not by minutes that are full: agents with few requests would grow by the luck of their rhythm.
 * - Who posts a backlog yields more than who posts what is live, so that the fleet's live values go first.
 * - Who does not use its share does not gain by it.
 * - None falls below one request a minute. Where that is more than fits, the limit itself decides by where in its minute a request comes:
 *   by their places all are early as often. Only where it is open for nobody they ask less.
 * - After an outage all come back with a backlog: each begins small, so that nobody has the whole limit of the first minute, and who is
 *   refused then goes on with half of what it got.
 */
export type ShareReason = 'configured' | 'refused' | 'growing' | 'slow-start';

const MINUTE_MS = 60_000;
/** Requests a minute that everybody asks for, however many share the limit: shares smaller than that would be a matter of luck. */
const MIN_SHARE = 1;
/** Refused so often in a row the limit is open for nobody (a quota of the day): one in ten minutes tells soon enough that it is again. */
const CLOSED_AFTER = 30;
const CLOSED_SHARE = 0.1;
/** Of the requests that would have followed the one refused, on average so much of one stood before it: it may have come late. */
const OF_THE_REFUSED = 0.5;
/** However much was lost, by one 429 it falls to this part at most. */
const LEFT_AT_LEAST = 0.25;
/** Who posted some of a backlog so lately posts a backlog. */
const LATELY_MS = MINUTE_MS;
/** A limit that was open for a smaller part of its minute closed early: shares are too large by more than the last step. */
const EARLY = 0.8;
/**
 * `step`: what a minute adds, of what the last 429 left; it doubles after so long without one, at most so many times. What each request
 * that is lost to a closed limit leaves: to who posts a backlog, and to who does not. Measured with 2 to 400 agents (docs/sites.md).
 */
const USUAL = { step: 0.025, doubledMs: 5 * MINUTE_MS, leftToBacklog: 0.93, leftToLive: 0.955 };
const MAX_DOUBLINGS = 5;
/** For so long after its first 429 a share that was all that is configured loses so many times as much. */
const FIRST = { forMs: 15 * MINUTE_MS, times: 2 };
/** For so long after an outage shares are found anew: what others leave is taken up faster, while there is still a backlog to post. */
const ANEW_MS = 10 * MINUTE_MS;
const ANEW = { step: 0.2, doubledMs: MINUTE_MS, leftToBacklog: 0.86, leftToLive: 0.91 };
/** Who asks less often than once in ten minutes does not grow for all of them at once. */
const MAX_MINUTES = 10;
/** A look more often than this changes nothing that can be seen. */
const MIN_MINUTES = 0.02;
/** A shorter outage leaves no backlog that would need a slow start. */
const LONG_OUTAGE_MS = MINUTE_MS;
/** Requests a minute with which a slow start begins, and where others have used the limit up already. */
const START = { perMinute: 12, doubledMs: 15_000 };
const START_REFUSED = { perMinute: 6, doubledMs: 30_000 };
/** Of what it got in the minute in which a slow start met the limit, so much is left. */
const LEFT_OF_START = 0.5;

export class FoundShare {
  readonly #max: number;
  #share: number;
  #reason: ShareReason = 'configured';
  /** Requests a minute that a minute adds. */
  #step = 0;
  /** Refused since the last that was taken. */
  #inVain = 0;
  #takenMs = Number.NEGATIVE_INFINITY;
  #backlogMs = Number.NEGATIVE_INFINITY;
  /** What a slow start leads to, and how fast. */
  #start: { target: number; doubledMs: number } | undefined;
  #lookedMs: number;
  #lastRefusedMs = Number.NEGATIVE_INFINITY;
  #closedUntilMs = Number.NEGATIVE_INFINITY;
  #anewUntilMs = Number.NEGATIVE_INFINITY;
  #firstUntilMs = Number.NEGATIVE_INFINITY;
  #isWanted = false;

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
  used(nowMs: number, isBacklog: boolean, isWanted: boolean): void {
    if (isBacklog) this.#backlogMs = nowMs;
    this.#isWanted = isWanted;
  }

  /** The platform took a request. */
  accepted(nowMs: number): void {
    this.#inVain = 0;
    this.#takenMs = nowMs;
    this.#share = Math.max(this.#share, Math.min(MIN_SHARE, this.#max));
  }

  /**
   * The platform answered 429, and takes nothing for `closedMs`. Those that were under way beside it are one sign with it. `got`: requests
   * that were made since the limit opened last, without this one.
   */
  refused(nowMs: number, closedMs: number, got: number): void {
    if (nowMs < this.#closedUntilMs) return;
    if (this.#reason === 'configured') this.#firstUntilMs = nowMs + FIRST.forMs;
    this.#lastRefusedMs = nowMs;
    this.#closedUntilMs = nowMs + closedMs;
    const next = this.#start ? this.#leftOfStart(got) : this.#share * this.#left(nowMs, closedMs);
    const isClosed = ++this.#inVain > CLOSED_AFTER;
    const minShare = Math.min(isClosed ? CLOSED_SHARE : MIN_SHARE, this.#max);
    this.#share = Math.min(this.#share, Math.max(minShare, isClosed ? this.#share / 2 : next));
    this.#step = this.#rhythm(nowMs).step * this.#share;
    this.#reason = 'refused';
    this.#start = undefined;
    this.#lookedMs = nowMs;
  }

  #leftOfStart(got: number): number {
    return Math.max(START_REFUSED.perMinute, got * LEFT_OF_START);
  }

  /** What a 429 leaves of the share, as a part of it. */
  #left(nowMs: number, closedMs: number): number {
    const lost = OF_THE_REFUSED + (closedMs / MINUTE_MS) * this.#share;
    const { leftToBacklog, leftToLive } = this.#rhythm(nowMs);
    const leftOfEach = nowMs - this.#backlogMs < LATELY_MS ? leftToBacklog : leftToLive;
    const left = leftOfEach ** (Math.min(lost, Math.sqrt(lost)) * (nowMs < this.#firstUntilMs ? FIRST.times : 1));
    // Where in its minute the limit closed lies between the last request that was taken and this one.
    const openedMs = nowMs + closedMs - MINUTE_MS;
    const open = ((Math.max(this.#takenMs, openedMs) + nowMs) / 2 - openedMs) / MINUTE_MS;
    return Math.max(LEFT_AT_LEAST, left, this.#isAnew(nowMs) && open < EARLY ? open : 0);
  }

  /** The platform is back after `unavailableMs`, and everybody who shares comes with a backlog. */
  outageOver(nowMs: number, unavailableMs: number): void {
    if (this.#start || unavailableMs < LONG_OUTAGE_MS) return;
    const isClosed = nowMs < this.#closedUntilMs;
    const { perMinute, doubledMs } = isClosed ? START_REFUSED : START;
    this.#start = { target: this.#share, doubledMs };
    this.#anewUntilMs = nowMs + ANEW_MS;
    this.#share = Math.min(this.#share, perMinute);
    this.#reason = 'slow-start';
    this.#lookedMs = Math.max(nowMs, this.#closedUntilMs);
  }

  /** Grows for the time that has passed, as far as it counts; gives whether the share has changed. */
  look(nowMs: number): boolean {
    const minutes = Math.min(MAX_MINUTES, (nowMs - this.#lookedMs) / MINUTE_MS);
    if (this.#reason === 'configured' || minutes < MIN_MINUTES) return false;
    this.#lookedMs = nowMs;
    if (this.#start) this.#share *= 2 ** ((minutes * MINUTE_MS) / this.#start.doubledMs);
    else if (this.#isWanted) this.#share += minutes * this.#stepNow(nowMs);
    else return false;
    this.#share = Math.min(this.#share, this.#start?.target ?? this.#max);
    if (this.#start && this.#share < this.#start.target) return true;
    this.#start = undefined;
    this.#reason = this.#share === this.#max ? 'configured' : 'growing';
    return true;
  }

  #stepNow(nowMs: number): number {
    const { doubledMs } = this.#rhythm(nowMs);
    return this.#step * 2 ** Math.min(MAX_DOUBLINGS, Math.floor((nowMs - this.#lastRefusedMs) / doubledMs));
  }

  #rhythm(nowMs: number): typeof USUAL {
    return this.#isAnew(nowMs) ? ANEW : USUAL;
  }

  #isAnew(nowMs: number): boolean {
    return nowMs < this.#anewUntilMs;
  }
}
