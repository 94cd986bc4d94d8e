import { describe, expect, it } from 'vitest';
import type { Clock } from '../../../src/base/clock.ts';
import { PlatformClock } from '../../../src/platform/platform-clock.ts';
import { RequestBudget, type RequestKind } from '../../../src/platform/request-budget.ts';
import { RequestShare } from '../../../src/platform/request-share.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const MINUTE_MS = 60_000;
const TICK_MS = 100;
const CONFIGURED = 400;

/** Manual clock with its own seed and uptime. */
class Ticking implements Clock {
  nowMs = 0;
  readonly #chance: ManualClock;
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

/** Agent that makes every request that its budget allows. */
class Greedy {
  readonly clock: Ticking;
  readonly budget: RequestBudget;
  readonly kind: RequestKind;
  readonly taken: number[] = [];
  #nextMs = 0;
  readonly #platformClock: PlatformClock;

  constructor(seed: number, kind: RequestKind) {
    this.clock = new Ticking(seed);
    this.kind = kind;
    this.budget = new RequestBudget(this.clock, { requestsPerMinute: CONFIGURED, requestsPerDay: 0 });
    this.#platformClock = new PlatformClock(this.clock);
  }

  /** `isTaken`: whether the platform accepts the next request. */
  work(nowMs: number, isTaken: () => boolean): void {
    this.clock.nowMs = nowMs;
    if (this.clock.monotonicMs() < this.#nextMs) return;
    while (this.budget.tryAcquire(this.kind)) {
      if (isTaken()) {
        const minute = Math.floor(nowMs / MINUTE_MS);
        this.taken[minute] = (this.taken[minute] ?? 0) + 1;
        continue;
      }
      const date = new Date(nowMs).toUTCString();
      const answer = { header: (name: string) => (name === 'date' ? date : undefined) };
      this.budget.refused(this.#platformClock.closedMs(answer));
      this.budget.restUntil(this.clock.monotonicMs() + this.#platformClock.restMs(answer));
    }
    this.#nextMs = this.budget.nextAtMs(this.kind);
  }

  mean(fromMinute: number, toMinute: number): number {
    let sum = 0;
    for (let minute = fromMinute; minute < toMinute; minute++) sum += this.taken[minute] ?? 0;
    return sum / (toMinute - fromMinute);
  }
}

/** Runs agents that share a limit per minute. Returns the number of rejected requests per minute. */
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

/** `chance`: offset of the seeds. */
const greedy = (count: number, kind: RequestKind = 'backlog', chance = 0) =>
  Array.from({ length: count }, (_, at) => new Greedy(chance + at + 1, kind));

describe('request limit share', () => {
  it.each([
    { count: 2, limit: 500, chances: 3, used: 0.9 },
    { count: 10, limit: 500, chances: 3, used: 0.95 },
    { count: 20, limit: 500, chances: 3, used: 0.95 },
    { count: 50, limit: 500, chances: 3, used: 0.95 },
    { count: 200, limit: 500, chances: 2, used: 0.99 },
    { count: 200, limit: 300, chances: 2, used: 0.99 },
    { count: 200, limit: 250, chances: 2, used: 0.99 },
    { count: 200, limit: 200, chances: 2, used: 0.99 },
    { count: 200, limit: 150, chances: 2, used: 0.99 },
    // Fewer than one request per minute for each agent.
    { count: 200, limit: 100, chances: 2, used: 0.99 },
    { count: 400, limit: 200, chances: 1, used: 0.99 },
  ])(
    'is fair within a factor of two for $count agents and $limit requests per minute, and most of the limit is used',
    (one) => {
      for (let chance = 0; chance < one.chances; chance++) {
        const agents = greedy(one.count, 'backlog', 1_000 * chance);
        const refused = share(agents, one.limit, 60);
        const means = agents.map((agent) => agent.mean(30, 60));
        expect(Math.max(...means) / Math.min(...means)).toBeLessThan(2);
        expect(means.reduce((sum, mean) => sum + mean, 0)).toBeGreaterThan(one.used * one.limit);
        const refusals = refused.slice(30).reduce((sum, ofMinute) => sum + ofMinute, 0) / 30;
        expect(refusals).toBeLessThan(0.55 * one.count);
      }
    },
  );

  it('becomes fair again after a new agent starts at the full configured rate', () => {
    const agents = greedy(21);
    share(agents.slice(1), 500, 60);
    const [joining, ...others] = agents as [Greedy, ...Greedy[]];
    joining.clock.nowMs = 60 * MINUTE_MS;
    share(agents, 500, 120, 60);
    const means = agents.map((agent) => agent.mean(90, 120));
    expect(Math.max(...means) / Math.min(...means)).toBeLessThan(2);
    expect(others.reduce((sum, agent) => sum + agent.mean(60, 70), 0)).toBeGreaterThan(0.6 * 500);
  });

  it('recovers to the configured rate for a single agent after a 429', () => {
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

  it('does not grow while unused', () => {
    const found = new RequestShare(CONFIGURED, 0);
    found.refused(1_000, 1_000, 6);
    const after = found.perMinute;
    for (let minute = 1; minute < 60; minute++) {
      found.used(minute * MINUTE_MS, false);
    }
    expect(found.perMinute).toBe(after);
  });

  it('restarts small after a one-minute outage and doubles every 15 s up to its previous value', () => {
    const found = new RequestShare(CONFIGURED, 0);
    found.outageOver(MINUTE_MS, 59_000);
    expect([found.perMinute, found.reason]).toEqual([CONFIGURED, 'configured']);
    found.outageOver(MINUTE_MS, MINUTE_MS);
    expect([found.perMinute, found.reason]).toEqual([10, 'slow-start']);
    const shares = [1, 2, 3, 6].map((times) => {
      found.used(MINUTE_MS + 15_000 * times, true);
      return Math.round(found.perMinute);
    });
    expect(shares).toEqual([20, 40, 80, CONFIGURED]);
    expect(found.reason).toBe('configured');
  });
});
