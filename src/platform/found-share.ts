/**
 * Pure: the share of a limit that others have a part in (one technical user for many gateways), found without talking to them. Additive
 * increase and multiplicative decrease, as TCP has them (RFC 5681): a 429 makes it smaller, time without one lets it grow.
 *
 *   configured ──429──► refused ──time──► growing ──► configured
 *                          ▲                 │
 *                          ╰───────429───────╯        back from an outage: slow-start, doubling up to what it was
 *
 * - A 429 counts for all that the share would have sent until the limit opens again, which nobody asks for. So a large share loses more
 *   than a small one by the same closed minute, which makes them even, and chance (who came just before it closed, and who just after)
 *   has little part in it.
 * - The step is a part of what the last 429 left: it suits few who share as well as a thousand. It doubles every five minutes without one;
 *   for a while after an outage, while there is still a backlog to post, it is larger and doubles each minute.
 * - In that while, where the limit closed early in its minute, all shares together were too large by just that: none falls to less than fits.
 * - All that is a rate goes by time, not by minutes that are full: agents with few requests would grow by the luck of their rhythm.
 * - Refused time after time with nothing taken between, the share is too large by far: it falls faster each time.
 * - Who posts a backlog yields more than who posts what is live, so that the fleet's live values go first.
 * - Who does not use its share does not gain by it.
 * - None falls below one request a minute. Where that is more than fits, the limit itself decides by where in its minute a request comes,
 *   and each agent's requests come at places spread evenly over it (`isScarce`): in half an hour all have been early as often.
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
/** Below it a request at the same place of every minute would always be early, or never. */
const SCARCE = 1.25;
/** What each request that is lost to a closed limit leaves of it: to who posts a backlog, and to who does not. */
const LEFT_TO_BACKLOG = 0.86;
const LEFT_TO_LIVE = 0.91;
/** Of the requests that would have followed the one refused, on average so much of one stood before it: it may have come late. */
const OF_THE_REFUSED = 0.5;
/** However much was lost, by one 429 it falls to this part at most. */
const LEFT_AT_LEAST = 0.25;
/** Who posted some of a backlog so lately posts a backlog. */
const LATELY_MS = MINUTE_MS;
/** A limit that was open for a smaller part of its minute closed early: shares are too large by more than the last step. */
const EARLY = 0.8;
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
/** For so long after an outage shares are found anew: what others leave is taken up faster, while there is still a backlog to post. */
const ANEW_MS = 10 * MINUTE_MS;
const ANEW = { step: 0.2, doubledMs: MINUTE_MS };
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
  #streak = 0;
  /** Refused since the last that was taken. */
  #inVain = 0;
  #hadOne = false;
  #takenMs = Number.NEGATIVE_INFINITY;
  #backlogMs = Number.NEGATIVE_INFINITY;
  /** What a slow start leads to, and how fast. */
  #start: { target: number; doubledMs: number } | undefined;
  #lookedMs: number;
  #lastRefusedMs = Number.NEGATIVE_INFINITY;
  #closedUntilMs = Number.NEGATIVE_INFINITY;
  #anewUntilMs = Number.NEGATIVE_INFINITY;
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

  /** So small that it matters at which place of the limit's minute its requests come. */
  get isScarce(): boolean {
    return this.#reason !== 'configured' && this.#share < SCARCE;
  }

  /** A request was made. `isWanted`: as soon as the share allowed it. */
  used(nowMs: number, isBacklog: boolean, isWanted: boolean): void {
    if (isBacklog) this.#backlogMs = nowMs;
    this.#isWanted = isWanted;
  }

  /** The platform took a request. */
  accepted(nowMs: number): void {
    this.#hadOne = true;
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
    const sinceMs = nowMs - this.#lastRefusedMs;
    this.#lastRefusedMs = nowMs;
    this.#closedUntilMs = nowMs + closedMs;
    this.#streak = sinceMs < STREAK_MS && !this.#hadOne ? Math.min(MAX_STREAK, this.#streak + 1) : 1;
    const next = this.#start ? this.#leftOfStart(got) : this.#share * this.#left(nowMs, closedMs);
    const minShare = ++this.#inVain > CLOSED_AFTER ? CLOSED_SHARE : MIN_SHARE;
    this.#share = Math.min(this.#share, Math.max(Math.min(minShare, this.#max), next));
    this.#step = (this.#isAnew(nowMs) ? ANEW.step : STEP) * this.#share * Math.min(1, (this.#share / FEW) ** 0.25);
    this.#hadOne = false;
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
    const weight = Math.min(1, Math.sqrt(MANY / this.#share)) * STREAK_WEIGHT ** (this.#streak - 1);
    const leftOfEach = nowMs - this.#backlogMs < LATELY_MS ? LEFT_TO_BACKLOG : LEFT_TO_LIVE;
    // Where in its minute the limit closed lies between the last request that was taken and this one.
    const openedMs = nowMs + closedMs - MINUTE_MS;
    const open = ((Math.max(this.#takenMs, openedMs) + nowMs) / 2 - openedMs) / MINUTE_MS;
    return Math.max(LEFT_AT_LEAST, leftOfEach ** (lost * weight), this.#isAnew(nowMs) && open < EARLY ? open : 0);
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
    const doubledMs = this.#isAnew(nowMs) ? ANEW.doubledMs : DOUBLED_EVERY_MS;
    return this.#step * 2 ** Math.min(MAX_DOUBLINGS, Math.floor((nowMs - this.#lastRefusedMs) / doubledMs));
  }

  #isAnew(nowMs: number): boolean {
    return nowMs < this.#anewUntilMs;
  }
}
