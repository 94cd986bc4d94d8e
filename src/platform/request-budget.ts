/**
 * Budget for API calls. Every call except `/oauth/*` uses one request.
 *
 * - Pace (per minute and per day): requests are evenly spaced (GCRA, a token bucket stored as a single time). A request
 *   may precede its scheduled time by at most the tolerance, so limit + 1 requests always span more than the window.
 * - Share: if several agents use the same limit, the platform rejects requests with 429. A 429 halves the agent's share
 *   of the limit, at most once per minute. Each minute without a 429 adds 5 % of the limit (AIMD, as in TCP). The share
 *   is at least one request per minute.
 * - Rest: after a 429, no requests are made until the limit is reset. The first request is then sent at a random time.
 *   Therefore, no agent is always the last one, and the gateways in a fleet do not retry simultaneously.
 * - Probes: at most one request in ten is a probe.
 *
 * The budget is not persisted. A new process assumes that no tolerance is left and waits for one interval, so restarts
 * never exceed the pace. `quietSinceMs` shortens this wait if no other process can have made requests since that time.
 *
 * Callers are served in order of arrival. If posts and other calls wait, they are served alternately. The uplink decides
 * whether its next post is a live post or a backlog post.
 */
import { type Clock, raced } from '../base/clock.ts';

/** `paid`: the caller has already acquired the request from the budget. */
export type RequestKind = 'live' | 'backlog' | 'other' | 'probe' | 'paid';

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
 * The daily pace accumulates unused requests from up to two hours, so that an outage does not reduce the daily number.
 */
const DAY_TOLERANCE_MS = 2 * HOUR_MS;
const REQUESTS_PER_PROBE = 10;
/** Share of the limit that remains after a 429, and that each minute without one adds. */
const LEFT_AFTER_REFUSAL = 0.5;
const ADDED_PER_MINUTE = 1 / 20;
const MIN_SHARE = 1;
/** Maximum random delay of the first request after a 429; at most the length of the rest. */
const REST_SPREAD_MS = 10_000;

interface Waiter {
  kind: RequestKind;
  grant: () => void;
}

export class RequestBudget {
  readonly #clock: Clock;
  readonly #options: RequestBudgetOptions;
  readonly #minute: Pace | undefined;
  readonly #paces: readonly Pace[];
  /** Share after the latest 429, in requests per minute. */
  #shareAfterRefusal: number;
  /** Monotonic time at which the platform accepts requests again after the latest 429. */
  #openMs = 0;
  /** Monotonic time at which a 429 halved the share. */
  #halvedMs = Number.NEGATIVE_INFINITY;
  /** Monotonic time of the next probe. */
  #probeAtMs = Number.NEGATIVE_INFINITY;
  readonly #minuteCount = new RecentCount(1_000, MINUTE_MS);
  readonly #dayCount = new RecentCount(MINUTE_MS, DAY_MS);
  readonly #startedMs: number;
  #restUntilMs = Number.NEGATIVE_INFINITY;
  #waiters: Waiter[] = [];
  #cancelTimer: (() => void) | undefined;
  /** Whether the latest request was for a post. */
  #wasPost = false;

  constructor(clock: Clock, options: RequestBudgetOptions) {
    this.#clock = clock;
    this.#options = options;
    this.#startedMs = clock.monotonicMs();
    const { requestsPerMinute, requestsPerDay, quietSinceMs = this.#startedMs } = options;
    this.#shareAfterRefusal = requestsPerMinute;
    const dayMs = (DAY_MS + WAY_MS + DAY_TOLERANCE_MS) / requestsPerDay;
    this.#minute =
      requestsPerMinute > 0 ? new Pace(SPAN_MS / requestsPerMinute, MINUTE_TOLERANCE_MS, quietSinceMs) : undefined;
    const day = requestsPerDay > 0 ? new Pace(dayMs, DAY_TOLERANCE_MS, quietSinceMs) : undefined;
    this.#paces = [this.#minute, day].filter((pace) => pace !== undefined);
  }

  /** Whether a limit is configured. */
  get isLimited(): boolean {
    return this.#paces.length > 0;
  }

  /** Returns the monotonic time at which a request of this kind is available; `-Infinity` without limits. */
  nextAtMs(kind: RequestKind): number {
    if (kind === 'paid') return Number.NEGATIVE_INFINITY;
    const atMs = Math.max(this.#restUntilMs, ...this.#paces.map((pace) => pace.nextAtMs));
    return kind === 'probe' ? Math.max(atMs, this.#probeAtMs) : atMs;
  }

  /** Waits for a request of this kind. Rejects with the abort reason of the signal. */
  async acquire(kind: RequestKind, signal?: AbortSignal): Promise<void> {
    if (kind === 'paid') return;
    signal?.throwIfAborted();
    const { promise, resolve } = Promise.withResolvers<void>();
    const waiter = { kind, grant: resolve };
    this.#waiters.push(waiter);
    this.#serve();
    try {
      await raced(promise, signal);
    } finally {
      this.#waiters = this.#waiters.filter((other) => other !== waiter);
    }
  }

  /** Refunds the latest request, because it did not reach the platform. */
  refund(): void {
    for (const pace of this.#paces) pace.refund();
    for (const count of [this.#minuteCount, this.#dayCount]) count.add(this.#clock.monotonicMs(), -1);
  }

  /** Records a 429 response. The platform rejects requests for `closedMs`, in which further 429 have no effect. */
  refused(closedMs: number): void {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs < this.#openMs) return;
    const isHalved = nowMs - this.#halvedMs >= MINUTE_MS;
    if (isHalved) this.#halvedMs = nowMs;
    this.#shareAfterRefusal = isHalved ? Math.max(MIN_SHARE, this.#share * LEFT_AFTER_REFUSAL) : this.#share;
    this.#openMs = nowMs + closedMs;
    const spreadMs = Math.max(Math.min(closedMs, REST_SPREAD_MS), this.#minute ? SPAN_MS / this.#share : 0);
    // A 429 does not shorten an existing rest.
    this.#restUntilMs = Math.max(this.#restUntilMs, this.#openMs + this.#clock.random() * spreadMs);
  }

  /** Monotonic time at which the rest after a 429 ends; undefined if no rest is active. */
  get restingUntilMs(): number | undefined {
    return this.#restUntilMs > this.#clock.monotonicMs() ? this.#restUntilMs : undefined;
  }

  /** Ends the rest when an operator requests it (reload, `session renew`). */
  endRest(): void {
    this.#restUntilMs = Number.NEGATIVE_INFINITY;
    // The next 429 starts another rest.
    this.#openMs = Math.min(this.#openMs, this.#clock.monotonicMs());
    this.#serve();
  }

  /** Number of requests in the last 60 s. */
  get minuteUsed(): number {
    return this.#minuteCount.sum(this.#clock.monotonicMs(), MINUTE_MS);
  }

  stats() {
    const { requestsPerMinute, requestsPerDay } = this.#options;
    const nowMs = this.#clock.monotonicMs();
    const share = this.#share;
    const observedMs = Math.min(HOUR_MS, nowMs - this.#startedMs);
    const projected = Math.round((this.#dayCount.sum(nowMs, HOUR_MS) * DAY_MS) / observedMs);
    const reduced = nowMs - this.#openMs < MINUTE_MS ? 'refused' : 'growing';
    /** `refused`: reduced by a 429 within the last minute. `growing`: reduced, without a 429 for a minute. */
    const shareReason: 'configured' | 'refused' | 'growing' = share === requestsPerMinute ? 'configured' : reduced;
    return {
      minuteUsed: this.minuteUsed,
      minuteLimit: requestsPerMinute,
      /** Maximum number of requests per minute for this agent; 0 without a limit. */
      share,
      shareReason,
      /** Number of requests made by this process in the last 24 h. */
      dayUsed: this.#dayCount.sum(nowMs, DAY_MS),
      dayLimit: requestsPerDay,
      /** Projected number of requests in 24 h, based on the last hour. */
      dayProjected: observedMs < PROJECTED_FROM_MS ? undefined : projected,
      restingUntilMs: this.restingUntilMs,
    };
  }

  /** Current share of the limit, in requests per minute, which grows in each full minute without a 429. */
  get #share(): number {
    const max = this.#options.requestsPerMinute;
    const quietMinutes = Math.max(0, Math.floor((this.#clock.monotonicMs() - this.#openMs) / MINUTE_MS));
    return Math.min(max, this.#shareAfterRefusal + quietMinutes * max * ADDED_PER_MINUTE);
  }

  #spend(kind: RequestKind): void {
    const nowMs = this.#clock.monotonicMs();
    if (this.#minute) this.#minute.intervalMs = SPAN_MS / this.#share;
    for (const pace of this.#paces) pace.spend(nowMs);
    const intervalMs = Math.max(0, ...this.#paces.map((pace) => pace.intervalMs));
    if (kind === 'probe') this.#probeAtMs = nowMs + REQUESTS_PER_PROBE * intervalMs;
    for (const count of [this.#minuteCount, this.#dayCount]) count.add(nowMs, 1);
  }

  /** Grants available requests to waiting callers, and continues when the next request is available. */
  #serve(): void {
    this.#cancelTimer?.();
    const nowMs = this.#clock.monotonicMs();
    for (;;) {
      const ready = this.#waiters.filter((waiter) => this.nextAtMs(waiter.kind) <= nowMs);
      const next = ready.find(({ kind }) => isPost(kind) !== this.#wasPost) ?? ready[0];
      if (!next) break;
      this.#waiters = this.#waiters.filter((waiter) => waiter !== next);
      this.#wasPost = isPost(next.kind);
      this.#spend(next.kind);
      next.grant();
    }
    if (this.#waiters.length === 0) return;
    const atMs = Math.min(...this.#waiters.map((waiter) => this.nextAtMs(waiter.kind)));
    this.#cancelTimer = this.#clock.after(Math.max(0, atMs - nowMs), () => this.#serve());
  }
}

function isPost(kind: RequestKind): boolean {
  return kind === 'live' || kind === 'backlog';
}

/** Even spacing with a tolerance. */
class Pace {
  intervalMs: number;
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

/** Number of requests in recent periods, counted in time slots. */
class RecentCount {
  readonly #slotMs: number;
  readonly #windowMs: number;
  /** Number of requests by the number of the slot, oldest first. */
  readonly #counts = new Map<number, number>();

  constructor(slotMs: number, windowMs: number) {
    this.#slotMs = slotMs;
    this.#windowMs = windowMs;
  }

  /** Counts a request, or a refund as -1. A refund is counted in the current slot, not in the slot of its request. */
  add(nowMs: number, requests: 1 | -1): void {
    const slot = Math.floor(nowMs / this.#slotMs);
    this.#counts.set(slot, (this.#counts.get(slot) ?? 0) + requests);
    for (const old of this.#counts.keys()) {
      if (old > slot - this.#windowMs / this.#slotMs) break;
      this.#counts.delete(old);
    }
  }

  sum(nowMs: number, forMs: number): number {
    const oldest = Math.floor(nowMs / this.#slotMs) - forMs / this.#slotMs;
    let sum = 0;
    for (const [slot, count] of this.#counts) if (slot > oldest) sum += count;
    return Math.max(0, sum);
  }
}
