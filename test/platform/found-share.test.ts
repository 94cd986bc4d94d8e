import { describe, expect, it } from 'vitest';
import type { Clock } from '../../src/base/clock.ts';
import { FoundShare } from '../../src/platform/found-share.ts';
import { PlatformClock } from '../../src/platform/platform-clock.ts';
import { RequestBudget, type RequestKind } from '../../src/platform/request-budget.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const MINUTE_MS = 60_000;
const TICK_MS = 100;
const CONFIGURED = 400;

/** A clock for many, moved by whoever runs them; chance of its own for each. */
class Ticking implements Clock {
  nowMs = 0;
  readonly #chance: ManualClock;
  /** No two machines were started at the same second. */
  readonly #upMs: number;

  constructor(seed: number) {
    this.#chance = new ManualClock(0, seed);
    this.#upMs = Math.floor(new ManualClock(0, seed + 1e6).random() * 3_600_000);
  }
  wallMs = () => this.nowMs;
  monotonicMs = () => this.#upMs + this.nowMs;
  random = () => this.#chance.random();
  after = () => () => {};
  sleep = () => Promise.resolve();
}

/** One that wants all it can get, of one kind, by the real budget. */
class Greedy {
  readonly clock: Ticking;
  readonly budget: RequestBudget;
  readonly kind: RequestKind;
  readonly taken: number[] = [];
  /** When it asked again after a 429. */
  readonly returns: number[] = [];
  #isRefused = false;
  #nextMs = 0;
  readonly #platformClock: PlatformClock;

  constructor(seed: number, kind: RequestKind) {
    this.clock = new Ticking(seed);
    this.kind = kind;
    this.budget = new RequestBudget(this.clock, { requestsPerMinute: CONFIGURED, requestsPerDay: 0 });
    this.#platformClock = new PlatformClock(this.clock);
  }

  /** `isTaken`: whether the platform takes one more. */
  work(nowMs: number, isTaken: () => boolean): void {
    this.clock.nowMs = nowMs;
    if (this.clock.monotonicMs() < this.#nextMs) return;
    while (this.budget.tryTake(this.kind)) {
      if (this.#isRefused) this.returns.push(nowMs);
      this.#isRefused = false;
      if (isTaken()) {
        this.budget.accepted();
        const minute = Math.floor(nowMs / MINUTE_MS);
        this.taken[minute] = (this.taken[minute] ?? 0) + 1;
        continue;
      }
      const date = new Date(nowMs).toUTCString();
      const answer = { header: (name: string) => (name === 'date' ? date : undefined) };
      this.budget.refused(this.#platformClock.closedMs(answer));
      this.budget.restUntil(this.clock.monotonicMs() + this.#platformClock.restMs(answer));
      this.#isRefused = true;
    }
    this.#nextMs = this.budget.nextAtMs(this.kind);
  }

  mean(fromMinute: number, toMinute: number): number {
    let sum = 0;
    for (let minute = fromMinute; minute < toMinute; minute++) sum += this.taken[minute] ?? 0;
    return sum / (toMinute - fromMinute);
  }
}

/** Agents behind one limit a minute, from one minute to another; gives what the platform refused in each. */
function share(agents: readonly Greedy[], limit: number, minutes: number, fromMinute = 0): number[] {
  const refused = new Array<number>(minutes).fill(0);
  for (let minute = fromMinute; minute < minutes; minute++) {
    let used = 0;
    const isTaken = () => {
      if (++used <= limit) return true;
      refused[minute]!++;
      return false;
    };
    for (let ms = 0; ms < MINUTE_MS; ms += TICK_MS) {
      for (const agent of agents) agent.work(minute * MINUTE_MS + ms, isTaken);
    }
  }
  return refused;
}

/** `chance`: other numbers begin with another. */
const greedy = (count: number, kind: RequestKind = 'backlog', chance = 0) =>
  Array.from({ length: count }, (_, at) => new Greedy(chance + at + 1, kind));

describe('the share of a limit that many use', () => {
  it.each([
    { count: 2, limit: 500, chances: 3, used: 0.9 },
    { count: 10, limit: 500, chances: 3, used: 0.95 },
    { count: 20, limit: 500, chances: 3, used: 0.95 },
    { count: 50, limit: 500, chances: 3, used: 0.95 },
    { count: 200, limit: 500, chances: 2, used: 0.99 },
    // About one a minute: neither who has just more than that nor who has just less is early more often.
    { count: 200, limit: 300, chances: 2, used: 0.99 },
    { count: 200, limit: 250, chances: 2, used: 0.99 },
    { count: 200, limit: 200, chances: 2, used: 0.99 },
    { count: 200, limit: 150, chances: 2, used: 0.99 },
    // Fewer than one a minute: fifteen in all, and it is for their places in the minute that they are spread as evenly.
    { count: 200, limit: 100, chances: 2, used: 0.99 },
    { count: 400, limit: 200, chances: 1, used: 0.99 },
  ])(
    'is fair within a factor of two among $count of $limit a minute, means of 30 minutes after 30, and the limit is used',
    (one) => {
      for (let chance = 0; chance < one.chances; chance++) {
        const agents = greedy(one.count, 'backlog', 1_000 * chance);
        const refused = share(agents, one.limit, 60);
        const means = agents.map((agent) => agent.mean(30, 60));
        // Of all of them: the one that has most, and the one that has least.
        expect(Math.max(...means) / Math.min(...means)).toBeLessThan(2);
        expect(means.reduce((sum, mean) => sum + mean, 0)).toBeGreaterThan(one.used * one.limit);
        // Not everybody is refused every minute, as without a share.
        const refusals = refused.slice(30).reduce((sum, ofMinute) => sum + ofMinute, 0) / 30;
        expect(refusals).toBeLessThan(0.55 * one.count);
      }
    },
  );

  it('becomes even for who joins with all that is configured, while those who are there go on', () => {
    const agents = greedy(21);
    share(agents.slice(1), 500, 60);
    const [joining, ...others] = agents as [Greedy, ...Greedy[]];
    joining.clock.nowMs = 60 * MINUTE_MS;
    share(agents, 500, 120, 60);
    const means = agents.map((agent) => agent.mean(90, 120));
    expect(Math.max(...means) / Math.min(...means)).toBeLessThan(2);
    expect(others.reduce((sum, agent) => sum + agent.mean(60, 70), 0)).toBeGreaterThan(0.6 * 500);
  });

  it('goes to who posts live values before who posts a backlog', () => {
    const agents = [...greedy(10, 'live'), ...greedy(10, 'backlog')];
    share(agents, 500, 60);
    const mean = (some: readonly Greedy[]) => some.reduce((sum, agent) => sum + agent.mean(30, 60), 0) / some.length;
    expect(mean(agents.slice(0, 10))).toBeGreaterThan(1.3 * mean(agents.slice(10)));
  });

  it('rests after a 429 for the interval of each, so that those who share it do not meet again', () => {
    const agents = greedy(400);
    const refused = share(agents, 200, 30);
    // By ten seconds alone, all who were refused in a minute would come back together.
    expect(Math.max(...refused.slice(15))).toBeGreaterThan(80);
    const returns = agents.flatMap((agent) => agent.returns).filter((ms) => ms > 16 * MINUTE_MS && ms < 29 * MINUTE_MS);
    const inTenSeconds = new Map<number, number>();
    for (const ms of returns) {
      const slot = Math.floor(ms / 10_000);
      inTenSeconds.set(slot, (inTenSeconds.get(slot) ?? 0) + 1);
    }
    expect(Math.max(...inTenSeconds.values())).toBeLessThan(0.75 * Math.max(...refused.slice(15)));
  });

  it('is asked for ever less often where nothing is taken for long, and once a minute as soon as something is', () => {
    const [alone] = greedy(1) as [Greedy];
    share([alone], 0, 120);
    expect(alone.budget.stats().share).toBeLessThan(0.5);
    share([alone], 10_000, 140, 120);
    expect(alone.budget.stats().share).toBeGreaterThanOrEqual(1);
  });

  it('is all of it for one alone, and comes back after a 429 of a minute', () => {
    const [alone] = greedy(1) as [Greedy];
    share([alone], 10_000, 2);
    expect(alone.budget.stats()).toMatchObject({ share: CONFIGURED, shareReason: 'configured' });
    alone.clock.nowMs += 1;
    alone.budget.refused(1_000);
    const { share: left, shareReason } = alone.budget.stats();
    expect(shareReason).toBe('refused');
    expect(left).toBeLessThan(0.95 * CONFIGURED);
    share([alone], 10_000, 30, 2);
    expect(alone.budget.stats()).toMatchObject({ share: CONFIGURED, shareReason: 'configured' });
  });

  it('loses by a 429 what the limit stayed closed for, and to a quarter at most', () => {
    const left = (closedMs: number) => {
      const found = new FoundShare(10, 0);
      found.refused(0, closedMs, 0);
      return found.perMinute / 10;
    };
    expect(left(6_000)).toBeLessThan(left(600));
    expect(left(12_000)).toBeLessThan(left(6_000));
    expect(left(3_600_000)).toBe(0.25);
  });

  it('does not grow for who does not use it', () => {
    const found = new FoundShare(CONFIGURED, 0);
    found.refused(1_000, 1_000, 6);
    const after = found.perMinute;
    for (let minute = 1; minute < 60; minute++) {
      found.used(minute * MINUTE_MS, false, false);
      found.look(minute * MINUTE_MS + 2_000);
    }
    expect(found.perMinute).toBe(after);
  });

  it('begins small after an outage of a minute, also where no 429 ever came, and doubles each fifteen seconds up to what it was', () => {
    const found = new FoundShare(CONFIGURED, 0);
    found.outageOver(MINUTE_MS, 59_000);
    expect([found.perMinute, found.reason]).toEqual([CONFIGURED, 'configured']);
    found.outageOver(MINUTE_MS, MINUTE_MS);
    expect([found.perMinute, found.reason]).toEqual([12, 'slow-start']);
    const shares = [1, 2, 3, 6].map((times) => {
      found.look(MINUTE_MS + 15_000 * times);
      return Math.round(found.perMinute);
    });
    expect(shares).toEqual([24, 48, 96, CONFIGURED]);
    expect(found.reason).toBe('configured');
  });

  it('goes on with half of what it got where a slow start meets the limit, and smaller where it was used up before', () => {
    const met = new FoundShare(CONFIGURED, 0);
    met.outageOver(0, MINUTE_MS);
    met.look(30_000);
    met.refused(30_000, 30_000, 20);
    expect([met.perMinute, met.reason]).toEqual([10, 'refused']);
    const late = new FoundShare(CONFIGURED, 0);
    late.refused(40_000, 20_000, 0);
    late.outageOver(40_000, MINUTE_MS);
    expect([late.perMinute, late.reason]).toEqual([6, 'slow-start']);
    // The limit is closed until then: that time does not count.
    late.look(60_000 + 30_000);
    expect(Math.round(late.perMinute)).toBe(12);
  });

  it('falls to no less than fits where the limit closed early in its minute, for a while after an outage', () => {
    const left = (atMs: number) => {
      const found = new FoundShare(40, -2 * MINUTE_MS);
      found.outageOver(-2 * MINUTE_MS, MINUTE_MS);
      found.look(-MINUTE_MS);
      found.accepted(atMs - 1_000);
      found.used(atMs, true, true);
      found.refused(atMs, MINUTE_MS - atMs, 0);
      return found.perMinute / 40;
    };
    expect(left(30_500)).toBeCloseTo(0.5);
    // Late in it chance and the size of the share have their part.
    expect(left(57_000)).not.toBeCloseTo(56.5 / 60);
  });
});
