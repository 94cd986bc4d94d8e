/**
 * Budget for API calls. Every call except `/oauth/*` uses one request.
 *
 * - Pace (per minute and per day): requests are evenly spaced (GCRA, a token bucket stored as a single time). A request
 *   may precede its scheduled time by at most the tolerance, so limit + 1 requests always span more than the window.
 * - Share: if several agents use the same limit, each agent makes its requests at the times determined by its share
 *   (request-share.ts).
 * - Rest: after a 429, no requests are made until the limit is reset.
 * - Probes: at most one request in ten is a probe.
 *
 * The budget is not persisted. A new process assumes that no tolerance is left and waits for one interval, so restarts
 * never exceed the pace. `quietSinceMs` shortens this wait if no other process can have made requests since that time.
 *
 * Request slots alternate between waiting callers (`acquire`) and the uplink, which polls (`tryAcquire`).
 */
import type { Clock } from '../base/clock.ts';
import { RequestPlaces, RequestShare, type ShareReason } from './request-share.ts';

/** `paid`: the caller has already acquired the request from the budget. */
export type RequestKind = 'live' | 'backlog' | 'probe' | 'other' | 'paid';

export interface RequestBudgetOptions {
  /** 0 means no limit. */
  requestsPerMinute: number;
  /** 0 means no limit. */
  requestsPerDay: number;
  /**
   * Monotonic time since which no other process can have made requests for this installation: the start of this
   * process, or `-Infinity` if no process has run before. Default: the time of construction.
   */
  quietSinceMs?: number;
}

export interface RequestBudgetStats {
  /** Number of requests in the last 60 s. */
  minuteUsed: number;
  minuteLimit: number;
  /** Maximum number of requests per minute for this agent; 0 without a limit. */
  share: number;
  shareReason: ShareReason;
  /** Number of requests made by this process in the last 24 h. */
  dayUsed: number;
  dayLimit: number;
  /** Projected number of requests in 24 h, based on the last hour. */
  dayProjected: number | undefined;
  /** Monotonic time at which the rest after a 429 ends. */
  restingUntilMs: number | undefined;
  /** Limit that delays the next request. */
  limitedBy: 'rest' | 'day' | 'minute' | undefined;
  /** Monotonic time of the next request. */
  nextAtMs: number;
}

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;
/**
 * Minimum observation period for a projection. Shorter periods, such as a startup or the end of an outage, are not
 * representative of a day.
 */
const PROJECTED_FROM_MS = 10 * MINUTE_MS;
/**
 * Maximum variation in the time that a request takes to reach the platform, in milliseconds. The pace allows for this
 * variation.
 */
const WAY_MS = 1_750;
/** Maximum time by which a request may precede its scheduled time, to compensate for timer delays. */
const MINUTE_TOLERANCE_MS = 250;
/** Period over which the requests of one minute are spread. */
const SPAN_MS = MINUTE_MS + WAY_MS + MINUTE_TOLERANCE_MS;
/**
 * A request made within this time after it became available, or within a quarter of the interval, counts as having
 * waited for the share.
 */
const WAITED_MS = 1_000;
/**
 * The daily pace accumulates unused requests from up to two hours, so that an outage does not reduce the daily number.
 */
const DAY_TOLERANCE_MS = 2 * HOUR_MS;
const REQUESTS_PER_PROBE = 10;
/** Time within which the uplink must poll to receive the next request after a waiting caller. */
const TURN_MS = 50;

interface Waiter {
  kind: RequestKind;
  grant: () => void;
}

export class RequestBudget {
  readonly #clock: Clock;
  readonly #options: RequestBudgetOptions;
  readonly #paces: Pace[] = [];
  readonly #minute: Pace | undefined;
  readonly #share: RequestShare | undefined;
  readonly #places: RequestPlaces;
  /** Time of the latest request, which determines the time of the next one, and its value before that request. */
  #placedMs = Number.NEGATIVE_INFINITY;
  #placedBeforeMs = Number.NEGATIVE_INFINITY;
  readonly #day: Pace | undefined;
  /** Monotonic time of the next probe. */
  #probeAtMs = Number.NEGATIVE_INFINITY;
  readonly #minuteCount = new RecentCount(MINUTE_MS, 60);
  readonly #hourCount = new RecentCount(HOUR_MS, 60);
  readonly #dayCount = new RecentCount(DAY_MS, 96);
  readonly #startedMs: number;
  #restUntilMs = Number.NEGATIVE_INFINITY;
  #waiters: Waiter[] = [];
  #cancelPump: (() => void) | undefined;
  #wasWaiterServed = false;
  #isUplinkWaiting = false;

  constructor(clock: Clock, options: RequestBudgetOptions) {
    this.#clock = clock;
    this.#options = options;
    this.#startedMs = clock.monotonicMs();
    this.#places = new RequestPlaces(() => clock.random());
    const quietSinceMs = options.quietSinceMs ?? this.#startedMs;
    const { requestsPerMinute, requestsPerDay } = options;
    if (requestsPerMinute > 0) {
      this.#minute = new Pace(SPAN_MS / requestsPerMinute, MINUTE_TOLERANCE_MS, quietSinceMs);
      this.#share = new RequestShare(requestsPerMinute, this.#startedMs);
      this.#paces.push(this.#minute);
    }
    if (requestsPerDay > 0) {
      this.#day = new Pace((DAY_MS + WAY_MS + DAY_TOLERANCE_MS) / requestsPerDay, DAY_TOLERANCE_MS, quietSinceMs);
      this.#paces.push(this.#day);
    }
  }

  /** Whether a limit is configured. */
  get isLimited(): boolean {
    return this.#paces.length > 0;
  }

  /** Current interval between requests; 0 without a limit. */
  get intervalMs(): number {
    return Math.max(0, this.#shareIntervalMs, ...this.#paces.map((pace) => pace.intervalMs));
  }

  /** Acquires a request if one is available now. */
  tryAcquire(kind: RequestKind): boolean {
    if (kind === 'paid') return true;
    this.#serveWaiters();
    if (this.nextAtMs(kind) > this.#clock.monotonicMs()) {
      this.#isUplinkWaiting = true;
      return false;
    }
    this.#isUplinkWaiting = false;
    this.#wasWaiterServed = false;
    this.#take(kind);
    return true;
  }

  /** Returns the monotonic time at which a request of this kind is available; `-Infinity` without limits. */
  nextAtMs(kind: RequestKind): number {
    if (kind === 'paid') return Number.NEGATIVE_INFINITY;
    let atMs = Math.max(this.#restUntilMs, this.#placeMs);
    for (const pace of this.#paces) atMs = Math.max(atMs, pace.nextAtMs);
    if (kind === 'probe') atMs = Math.max(atMs, this.#probeAtMs);
    return atMs;
  }

  /** Waits for a request of this kind, in order of arrival. Rejects with the abort reason of the signal. */
  acquire(kind: RequestKind, signal?: AbortSignal): Promise<void> {
    if (kind === 'paid') return Promise.resolve();
    if (signal?.aborted) return Promise.reject(signal.reason);
    return new Promise((resolve, reject) => {
      const leave = () => {
        this.#waiters = this.#waiters.filter((other) => other !== waiter);
        reject(signal?.reason);
      };
      const waiter: Waiter = {
        kind,
        grant: () => {
          signal?.removeEventListener('abort', leave);
          resolve();
        },
      };
      signal?.addEventListener('abort', leave, { once: true });
      this.#waiters.push(waiter);
      this.#serveWaiters();
      this.#armPump();
    });
  }

  /** Refunds the latest request, because it did not reach the platform. */
  refund(): void {
    const nowMs = this.#clock.monotonicMs();
    for (const pace of this.#paces) pace.refund();
    this.#placedMs = this.#placedBeforeMs;
    for (const count of [this.#minuteCount, this.#hourCount, this.#dayCount]) count.remove(nowMs);
  }

  /** Records a 429 response. The platform rejects requests for `closedMs`, so the share decreases. */
  refused(closedMs: number): void {
    const nowMs = this.#clock.monotonicMs();
    const got = Math.max(0, this.#minuteCount.sum(nowMs, MINUTE_MS - closedMs) - 1);
    this.#share?.refused(nowMs, closedMs, got);
    this.#placedMs = nowMs + closedMs;
    this.#places.opensAt(this.#placedMs);
  }

  /** Records that the platform is available again after an outage of `unavailableMs`. */
  outageOver(unavailableMs: number): void {
    this.#share?.outageOver(this.#clock.monotonicMs(), unavailableMs);
  }

  get #shareIntervalMs(): number {
    return this.#share ? SPAN_MS / this.#share.perMinute : 0;
  }

  /** Time of the next request according to the share. If the share equals the limit, the pace alone limits requests. */
  get #placeMs(): number {
    if (!this.#share || this.#share.reason === 'configured') return Number.NEGATIVE_INFINITY;
    return this.#places.after(this.#placedMs, MINUTE_MS / this.#shareIntervalMs);
  }

  /** Delays every request until `monotonicMs`. Does not shorten an existing rest. */
  restUntil(monotonicMs: number): void {
    this.#restUntilMs = Math.max(this.#restUntilMs, monotonicMs);
  }

  /** Monotonic time at which the rest after a 429 ends; undefined if no rest is active. */
  get restingUntilMs(): number | undefined {
    return this.#restUntilMs > this.#clock.monotonicMs() ? this.#restUntilMs : undefined;
  }

  /** Ends the rest when an operator requests it (reload, `session renew`). */
  endRest(): void {
    this.#restUntilMs = Number.NEGATIVE_INFINITY;
    this.#placedMs = Math.min(this.#placedMs, this.#clock.monotonicMs());
    this.#serveWaiters();
    this.#armPump();
  }

  /** Number of requests in the last 60 s. */
  get minuteUsed(): number {
    return this.#minuteCount.sum(this.#clock.monotonicMs());
  }

  stats(): RequestBudgetStats {
    const nowMs = this.#clock.monotonicMs();
    const nextAtMs = this.nextAtMs('live');
    const observedMs = Math.min(HOUR_MS, nowMs - this.#startedMs);
    return {
      minuteUsed: this.minuteUsed,
      minuteLimit: this.#options.requestsPerMinute,
      share: this.#share?.perMinute ?? 0,
      shareReason: this.#share?.reason ?? 'configured',
      dayUsed: this.#dayCount.sum(nowMs),
      dayLimit: this.#options.requestsPerDay,
      dayProjected:
        observedMs < PROJECTED_FROM_MS ? undefined : Math.round((this.#hourCount.sum(nowMs) * DAY_MS) / observedMs),
      restingUntilMs: this.restingUntilMs,
      limitedBy: this.#limitAt(nowMs, nextAtMs),
      nextAtMs,
    };
  }

  #limitAt(nowMs: number, nextAtMs: number): RequestBudgetStats['limitedBy'] {
    if (nextAtMs <= nowMs) return undefined;
    if (this.#restUntilMs >= nextAtMs) return 'rest';
    return this.#day && this.#day.nextAtMs >= nextAtMs ? 'day' : 'minute';
  }

  #take(kind: RequestKind): void {
    const nowMs = this.#clock.monotonicMs();
    if (this.#minute) {
      const lateMs = nowMs - Math.max(this.#minute.nextAtMs, this.#placeMs, this.#restUntilMs);
      this.#share?.used(nowMs, lateMs < Math.max(WAITED_MS, this.#shareIntervalMs / 4));
    }
    this.#placedBeforeMs = this.#placedMs;
    this.#placedMs = nowMs;
    for (const pace of this.#paces) pace.spend(nowMs);
    if (kind === 'probe') this.#probeAtMs = nowMs + REQUESTS_PER_PROBE * this.intervalMs;
    for (const count of [this.#minuteCount, this.#hourCount, this.#dayCount]) count.add(nowMs);
  }

  /** Grants available requests to waiting callers, unless it is the uplink's turn. */
  #serveWaiters(evenIfUplinkWaits = false): void {
    for (;;) {
      if (this.#wasWaiterServed && this.#isUplinkWaiting && !evenIfUplinkWaits) return;
      const nowMs = this.#clock.monotonicMs();
      const at = this.#waiters.findIndex((waiter) => this.nextAtMs(waiter.kind) <= nowMs);
      if (at < 0) return;
      const [waiter] = this.#waiters.splice(at, 1);
      this.#wasWaiterServed = true;
      this.#take(waiter!.kind);
      waiter!.grant();
    }
  }

  #armPump(): void {
    this.#cancelPump?.();
    this.#cancelPump = undefined;
    if (this.#waiters.length === 0) return;
    const nowMs = this.#clock.monotonicMs();
    let atMs = Math.min(...this.#waiters.map((waiter) => this.nextAtMs(waiter.kind)));
    const yields = this.#wasWaiterServed && this.#isUplinkWaiting;
    if (yields) atMs = Math.max(atMs, nowMs) + TURN_MS;
    this.#cancelPump = this.#clock.after(Math.max(0, atMs - nowMs), () => {
      this.#serveWaiters(yields);
      this.#armPump();
    });
  }
}

/** Enforces even spacing with a tolerance. */
class Pace {
  readonly intervalMs: number;
  readonly #toleranceMs: number;
  #expectedMs: number;

  constructor(intervalMs: number, toleranceMs: number, quietSinceMs: number) {
    this.intervalMs = intervalMs;
    this.#toleranceMs = toleranceMs;
    this.#expectedMs = quietSinceMs + intervalMs + toleranceMs;
  }

  get nextAtMs(): number {
    return this.#expectedMs - this.#toleranceMs;
  }

  spend(nowMs: number): void {
    this.#expectedMs = Math.max(this.#expectedMs, nowMs) + this.intervalMs;
  }

  refund(): void {
    this.#expectedMs -= this.intervalMs;
  }
}

/** Counts requests in a recent period, with a fixed number of slots. */
class RecentCount {
  readonly #slotMs: number;
  readonly #counts: number[];
  readonly #slots: number[];

  constructor(windowMs: number, slots: number) {
    this.#slotMs = windowMs / slots;
    this.#counts = new Array<number>(slots).fill(0);
    this.#slots = new Array<number>(slots).fill(-1);
  }

  add(nowMs: number): void {
    const slot = Math.floor(nowMs / this.#slotMs);
    const at = slot % this.#counts.length;
    if (this.#slots[at] !== slot) {
      this.#slots[at] = slot;
      this.#counts[at] = 0;
    }
    this.#counts[at]!++;
  }

  /** Removes the latest request, which may have been counted in an earlier slot. */
  remove(nowMs: number): void {
    const newest = Math.floor(nowMs / this.#slotMs);
    for (let slot = newest; slot > newest - this.#counts.length && slot >= 0; slot--) {
      const at = slot % this.#counts.length;
      if (this.#slots[at] !== slot || this.#counts[at] === 0) continue;
      this.#counts[at]!--;
      return;
    }
  }

  sum(nowMs: number, lastMs = this.#slotMs * this.#counts.length): number {
    const oldest = Math.floor((nowMs - Math.max(0, lastMs)) / this.#slotMs);
    let sum = 0;
    for (let at = 0; at < this.#counts.length; at++) if (this.#slots[at]! > oldest) sum += this.#counts[at]!;
    return sum;
  }
}
