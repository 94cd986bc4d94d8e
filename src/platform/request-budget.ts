/**
 * The budget of API calls: every call but `/oauth/*` takes one request from it.
 *
 * Two paces, one for the minute and one for the day, both of the same kind (GCRA: a token bucket written as one time).
 * `#expectedMs` is when the next request stands if all were spread evenly; a request may come at most `tolerance`
 * earlier. So count + 1 requests always span more than the window.
 *
 * A restart: nothing is persisted, so a fresh process knows only that the one before it made no request after this one
 * started. It therefore starts as if the tolerance were used up, and waits one interval counted from its own start:
 * the requests of both, merged, keep the pace, however often and whenever the agent is killed. At the default of 400 a
 * minute that wait (155 ms) is over before the first token is there; at one a minute it cannot be shorter, because the
 * last process may have posted the moment before it died. Where it is known that none ran, `quietSinceMs` says so.
 *
 * Where others have a part in the limit, requests come no faster than the share that was found (`FoundShare`), at places of their own in
 * each minute (`RequestPlaces`); those that come while the limit is closed are lost.
 *
 * Calls that wait here (`acquire`) and the uplink, which asks (`tryTake`), take turns when both want the next request.
 */
import type { Clock } from '../base/clock.ts';
import { FoundShare, type ShareReason } from './found-share.ts';
import { RequestPlaces } from './request-places.ts';

/** `paid`: the caller has taken from the budget already. */
export type RequestKind = 'live' | 'backlog' | 'probe' | 'other' | 'paid';

export interface RequestBudgetOptions {
  /** 0 is none. */
  requestsPerMinute: number;
  /** 0 is none. */
  requestsPerDay: number;
  /**
   * Monotonic time since which no other process can have made requests for this installation: the start of this
   * process; `-Infinity` where none ever ran. Unless told, the time of construction.
   */
  quietSinceMs?: number;
}

export interface RequestBudgetStats {
  /** Requests in the last 60 s. */
  minuteUsed: number;
  minuteLimit: number;
  /** Requests a minute that were found to be this one's of what is configured, and why; 0 where there is no limit. */
  share: number;
  shareReason: ShareReason;
  /** Requests of this process in the last 24 h. */
  dayUsed: number;
  dayLimit: number;
  /** What 24 h would use at the pace of the last hour. */
  dayProjected: number | undefined;
  /** Monotonic; the platform asked for a rest until then. `undefined` where it did not. */
  restingUntilMs: number | undefined;
  /** What the next request waits for. */
  limitedBy: 'rest' | 'day' | 'minute' | undefined;
  /** Monotonic time of the next request. */
  nextAtMs: number;
}

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;
/** The requests of a start or of the minutes after an outage say nothing about a day. */
const PROJECTED_FROM_MS = 10 * MINUTE_MS;
/**
 * A request reaches the platform some time after it was taken: a connection, a token, a slow disk lie between. The
 * pace is so much slower than the budget that the platform's own count holds although these times vary.
 */
const WAY_MS = 1_750;
/** How far a request may come before its even place: what lets a late timer be caught up. */
const MINUTE_TOLERANCE_MS = 250;
/** In which the requests of a minute are made. */
const SPAN_MS = MINUTE_MS + WAY_MS + MINUTE_TOLERANCE_MS;
/** One that comes so soon after it was free had been waiting for it: this long, or a quarter of the interval. */
const WAITED_MS = 1_000;
/** A day's pace may save up two hours, so that an outage costs nothing of the day. */
const DAY_TOLERANCE_MS = 2 * HOUR_MS;
/** Probes of held assets take a tenth of the budget at most. */
const PROBE_SHARE = 10;
/** A call that had the last request lets the uplink have this one, if it comes for it within so long. */
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
  readonly #share: FoundShare | undefined;
  readonly #places: RequestPlaces;
  /** The next place is one after this; and what it was before the last request. */
  #placedMs = Number.NEGATIVE_INFINITY;
  #placedBeforeMs = Number.NEGATIVE_INFINITY;
  readonly #day: Pace | undefined;
  readonly #probes: Pace | undefined;
  readonly #minuteCount = new RecentCount(MINUTE_MS, 60);
  readonly #hourCount = new RecentCount(HOUR_MS, 60);
  readonly #dayCount = new RecentCount(DAY_MS, 96);
  readonly #startedMs: number;
  #restUntilMs = Number.NEGATIVE_INFINITY;
  #waiters: Waiter[] = [];
  #cancelPump: (() => void) | undefined;
  #waiterHadLast = false;
  #uplinkWants = false;

  constructor(clock: Clock, options: RequestBudgetOptions) {
    this.#clock = clock;
    this.#options = options;
    this.#startedMs = clock.monotonicMs();
    this.#places = new RequestPlaces(() => clock.random());
    const quietSinceMs = options.quietSinceMs ?? this.#startedMs;
    const { requestsPerMinute, requestsPerDay } = options;
    if (requestsPerMinute > 0) {
      this.#minute = new Pace(SPAN_MS / requestsPerMinute, MINUTE_TOLERANCE_MS, quietSinceMs);
      this.#share = new FoundShare(requestsPerMinute, this.#startedMs);
      this.#paces.push(this.#minute);
    }
    if (requestsPerDay > 0) {
      this.#day = new Pace((DAY_MS + WAY_MS + DAY_TOLERANCE_MS) / requestsPerDay, DAY_TOLERANCE_MS, quietSinceMs);
      this.#paces.push(this.#day);
    }
    if (this.#paces.length > 0) {
      const slowestMs = Math.max(...this.#paces.map((pace) => pace.intervalMs));
      // The first probe waits for nothing beyond what every request waits for.
      this.#probes = new Pace(slowestMs * PROBE_SHARE, 0, Number.NEGATIVE_INFINITY);
    }
  }

  /** Whether there is any limit but the platform's own. */
  get isLimited(): boolean {
    return this.#paces.length > 0;
  }

  /** From one request to the next, as it lets them go now; 0 without a limit. */
  get intervalMs(): number {
    return Math.max(0, this.#shareIntervalMs, ...this.#paces.map((pace) => pace.intervalMs));
  }

  /** Takes a request where one is free now. */
  tryTake(kind: RequestKind): boolean {
    if (kind === 'paid') return true;
    this.#serveWaiters();
    if (this.nextAtMs(kind) > this.#clock.monotonicMs()) {
      this.#uplinkWants = true;
      return false;
    }
    this.#uplinkWants = false;
    this.#waiterHadLast = false;
    this.#take(kind);
    return true;
  }

  /** Monotonic time at which a request of the kind is free; in the past where one is free now, `-Infinity` without limits. */
  nextAtMs(kind: RequestKind): number {
    if (kind === 'paid') return Number.NEGATIVE_INFINITY;
    let atMs = Math.max(this.#restUntilMs, this.#placeMs);
    for (const pace of this.#paces) atMs = Math.max(atMs, pace.nextAtMs);
    if (kind === 'probe' && this.#probes) atMs = Math.max(atMs, this.#probes.nextAtMs);
    return atMs;
  }

  /** Waits for a request of the kind, first come first served. Rejects with the signal's reason. */
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

  /** The last request taken never left: its connection was refused. */
  giveBack(): void {
    const nowMs = this.#clock.monotonicMs();
    for (const pace of this.#paces) pace.giveBack();
    this.#placedMs = this.#placedBeforeMs;
    for (const count of [this.#minuteCount, this.#hourCount, this.#dayCount]) count.takeBack(nowMs);
  }

  /** The platform took a request. */
  accepted(): void {
    this.#share?.accepted(this.#clock.monotonicMs());
  }

  /** The platform answered 429, and takes nothing for `closedMs`: the share becomes smaller. */
  refused(closedMs: number): void {
    const nowMs = this.#clock.monotonicMs();
    const got = Math.max(0, this.#minuteCount.sum(nowMs, MINUTE_MS - closedMs) - 1);
    this.#share?.refused(nowMs, closedMs, got);
    this.#placedMs = nowMs + closedMs;
    this.#places.opensAt(this.#placedMs);
  }

  /** The platform is there again after an outage of `unavailableMs`. */
  outageOver(unavailableMs: number): void {
    this.#share?.outageOver(this.#clock.monotonicMs(), unavailableMs);
  }

  get #shareIntervalMs(): number {
    return this.#share ? SPAN_MS / this.#share.perMinute : 0;
  }

  /** Where the share has the next request: a share that is all that is configured is kept by its pace. */
  get #placeMs(): number {
    if (!this.#share || this.#share.reason === 'configured') return Number.NEGATIVE_INFINITY;
    return this.#places.after(this.#placedMs, MINUTE_MS / this.#shareIntervalMs);
  }

  /** Nothing is free before `monotonicMs`: the platform answered 429. A shorter rest never ends a longer one. */
  restUntil(monotonicMs: number): void {
    this.#restUntilMs = Math.max(this.#restUntilMs, monotonicMs);
  }

  /** Monotonic; until when the platform asked for a rest. `undefined` where it did not. */
  get restingUntilMs(): number | undefined {
    return this.#restUntilMs > this.#clock.monotonicMs() ? this.#restUntilMs : undefined;
  }

  /** The rest ends now: a person says so (a reload, `session renew`). */
  endRest(): void {
    this.#restUntilMs = Number.NEGATIVE_INFINITY;
    this.#placedMs = Math.min(this.#placedMs, this.#clock.monotonicMs());
    this.#serveWaiters();
    this.#armPump();
  }

  /** Requests in the last 60 s. */
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
      // A rest is waited for like the pace: who comes right after it wanted to come before.
      const lateMs = nowMs - Math.max(this.#minute.nextAtMs, this.#placeMs, this.#restUntilMs);
      this.#share?.used(nowMs, kind === 'backlog', lateMs < Math.max(WAITED_MS, this.#shareIntervalMs / 4));
      this.#share?.look(nowMs);
    }
    this.#placedBeforeMs = this.#placedMs;
    this.#placedMs = nowMs;
    for (const pace of this.#paces) pace.take(nowMs);
    if (kind === 'probe') this.#probes?.take(nowMs);
    for (const count of [this.#minuteCount, this.#hourCount, this.#dayCount]) count.add(nowMs);
  }

  /** Gives waiters what is free now, unless the last was theirs and the uplink wants this one. */
  #serveWaiters(evenIfUplinkWants = false): void {
    for (;;) {
      if (this.#waiterHadLast && this.#uplinkWants && !evenIfUplinkWants) return;
      const nowMs = this.#clock.monotonicMs();
      const at = this.#waiters.findIndex((waiter) => this.nextAtMs(waiter.kind) <= nowMs);
      if (at < 0) return;
      const [waiter] = this.#waiters.splice(at, 1);
      this.#waiterHadLast = true;
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
    const yields = this.#waiterHadLast && this.#uplinkWants;
    if (yields) atMs = Math.max(atMs, nowMs) + TURN_MS;
    this.#cancelPump = this.#clock.after(Math.max(0, atMs - nowMs), () => {
      this.#serveWaiters(yields);
      this.#armPump();
    });
  }
}

/** Even spacing with a little tolerance: see the head of this file. */
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

  take(nowMs: number): void {
    this.#expectedMs = Math.max(this.#expectedMs, nowMs) + this.intervalMs;
  }

  giveBack(): void {
    this.#expectedMs -= this.intervalMs;
  }
}

/** How many happened in the last while, in a fixed number of slots: for people, not for decisions. */
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

  /** Takes the last one out, which may stand in an earlier slot. */
  takeBack(nowMs: number): void {
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
