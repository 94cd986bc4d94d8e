import { describe, expect, it } from 'vitest';
import type { Clock } from '../../../src/base/clock.ts';
import { PlatformClock } from '../../../src/platform/platform-clock.ts';
import { RequestBudget, type RequestKind } from '../../../src/platform/request-budget.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { acquireNow } from './acquire-now.ts';

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
  readonly kind: Exclude<RequestKind, 'paid'>;
  readonly taken: number[] = [];
  #nextMs = 0;
  readonly #platformClock: PlatformClock;

  constructor(seed: number, kind: Exclude<RequestKind, 'paid'>) {
    this.clock = new Ticking(seed);
    this.kind = kind;
    this.budget = new RequestBudget(this.clock, { requestsPerMinute: CONFIGURED, requestsPerDay: 0 });
    this.#platformClock = new PlatformClock(this.clock);
  }

  /** `isTaken`: whether the platform accepts the next request. */
  work(nowMs: number, isTaken: () => boolean): void {
    this.clock.nowMs = nowMs;
    if (this.clock.monotonicMs() < this.#nextMs) return;
    while (acquireNow(this.clock, this.budget, this.kind)) {
      if (isTaken()) {
        const minute = Math.floor(nowMs / MINUTE_MS);
        this.taken[minute] = (this.taken[minute] ?? 0) + 1;
        continue;
      }
      const date = new Date(nowMs).toUTCString();
      const answer = { header: (name: string) => (name === 'date' ? date : undefined) };
      this.budget.refused(this.#platformClock.closedMs(answer));
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
const greedy = (count: number, kind: Exclude<RequestKind, 'paid'> = 'backlog', chance = 0) =>
  Array.from({ length: count }, (_, at) => new Greedy(chance + at + 1, kind));

describe('request limit share', () => {
  it.each([
    { count: 2, limit: 500 },
    { count: 10, limit: 500 },
    { count: 50, limit: 500 },
    { count: 100, limit: 500 },
  ])('is fair within a factor of three for $count agents and $limit requests per minute', ({ count, limit }) => {
    for (const seeds of [0, 1_000, 2_000]) {
      const agents = greedy(count, 'backlog', seeds);
      share(agents, limit, 60);
      const means = agents.map((agent) => agent.mean(30, 60));
      expect(Math.max(...means) / Math.min(...means)).toBeLessThan(3);
      expect(means.reduce((sum, mean) => sum + mean, 0)).toBeGreaterThan(0.7 * limit);
    }
  });

  it('becomes fair again after a new agent starts at the full configured rate', () => {
    const agents = greedy(21);
    share(agents.slice(1), 500, 60);
    agents[0]!.clock.nowMs = 60 * MINUTE_MS;
    share(agents, 500, 120, 60);
    const means = agents.map((agent) => agent.mean(90, 120));
    expect(Math.max(...means) / Math.min(...means)).toBeLessThan(3);
  });

  it('is halved once by all 429 responses of a minute, and then grows up to the configured rate', () => {
    const [alone] = greedy(1) as [Greedy];
    const { budget, clock } = alone;
    const now = () => [budget.stats().share, budget.stats().shareReason];
    expect(now()).toEqual([CONFIGURED, 'configured']);
    for (let refusal = 0; refusal < 5; refusal++, clock.nowMs += 2_000) budget.refused(2_000);
    for (let refusal = 0; refusal < 5; refusal++) budget.refused(30_000);
    expect(now()).toEqual([CONFIGURED / 2, 'refused']);
    expect(budget.nextAtMs('live')).toBeGreaterThanOrEqual(clock.monotonicMs() + 30_000);
    budget.endRest();
    expect(budget.nextAtMs('live')).toBeLessThan(clock.monotonicMs() + 30_000);
    budget.refused(30_000);
    expect(budget.nextAtMs('live')).toBeGreaterThanOrEqual(clock.monotonicMs() + 30_000);
    clock.nowMs += 30_000 + MINUTE_MS;
    expect(now()).toEqual([CONFIGURED / 2 + CONFIGURED / 20, 'growing']);
    clock.nowMs += MINUTE_MS;
    expect(budget.stats().share).toBe(CONFIGURED / 2 + CONFIGURED / 10);
    clock.nowMs += 10 * MINUTE_MS;
    expect(now()).toEqual([CONFIGURED, 'configured']);
  });

  it('is at least one request per minute', () => {
    const [alone] = greedy(1) as [Greedy];
    for (let minute = 0; minute < 20; minute++) {
      alone.budget.refused(MINUTE_MS - 1);
      alone.clock.nowMs += MINUTE_MS - 1;
    }
    expect(alone.budget.stats().share).toBe(1);
  });
});
