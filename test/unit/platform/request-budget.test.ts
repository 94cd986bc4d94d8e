import { describe, expect, it } from 'vitest';
import { RequestBudget, type RequestKind } from '../../../src/platform/request-budget.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { acquireNow } from './acquire-now.ts';

/** Returns the largest number of times in any half-open window. */
function mostInAnyWindow(times: readonly number[], windowMs: number): number {
  let most = 0;
  let from = 0;
  for (let to = 0; to < times.length; to++) {
    while (times[to]! - times[from]! >= windowMs) from++;
    most = Math.max(most, to - from + 1);
  }
  return most;
}

/** A clock that advances without running timers. */
class SkippingClock extends ManualClock {
  #skippedMs = 0;

  override monotonicMs(): number {
    return super.monotonicMs() + this.#skippedMs;
  }

  skip(ms: number): void {
    this.#skippedMs += ms;
  }
}

/** Uses every available request, with timers that are up to `lateMs` late. */
async function takeFor(
  clock: SkippingClock,
  budget: RequestBudget,
  kind: 'live' | 'backlog' | 'probe' | 'other',
  forMs: number,
  lateMs = 0,
): Promise<number[]> {
  const endMs = clock.monotonicMs() + forMs;
  const times: number[] = [];
  while (clock.monotonicMs() < endMs) {
    if (acquireNow(clock, budget, kind)) times.push(clock.monotonicMs());
    else {
      const waitMs = budget.nextAtMs(kind) - clock.monotonicMs() + clock.random() * lateMs;
      clock.skip(Math.max(0.001, Math.min(waitMs, endMs - clock.monotonicMs())));
    }
  }
  return times;
}

describe('request budget', () => {
  it('never exceeds the limit in any 60 s window, even across random restarts', async () => {
    for (let seed = 1; seed <= 30; seed++) {
      const clock = new SkippingClock(0, seed);
      const requestsPerMinute = [1, 2, 7, 30, 400, 6000][seed % 6]!;
      const times: number[] = [];
      for (let restart = 0; restart < 12; restart++) {
        const budget = new RequestBudget(clock, { requestsPerMinute, requestsPerDay: 0 });
        if (clock.random() < 0.5) clock.skip(clock.random() * 200_000);
        const lifetimeMs = clock.random() * (requestsPerMinute > 1000 ? 20_000 : 90_000);
        times.push(...(await takeFor(clock, budget, 'live', lifetimeMs, seed % 2 ? 300 : 0)));
        if (clock.random() < 0.3) clock.skip(clock.random() * 5_000);
      }
      expect(mostInAnyWindow(times, 60_000)).toBeLessThanOrEqual(requestsPerMinute);
    }
  });

  it('stays within the platform’s limit even if requests take up to 1.5 s to arrive', async () => {
    const clock = new SkippingClock(0, 5);
    const budget = new RequestBudget(clock, { requestsPerMinute: 400, requestsPerDay: 0 });
    const taken = await takeFor(clock, budget, 'live', 300_000);
    const arrived = taken.map((at) => at + clock.random() * 1_500).sort((a, b) => a - b);
    expect(mostInAnyWindow(arrived, 60_000)).toBeLessThanOrEqual(400);
    expect(taken.length).toBeGreaterThan(300 * (400 / 60) * 0.95);
  });

  it('compensates for timers that fire late', async () => {
    const clock = new SkippingClock(0, 6);
    const budget = new RequestBudget(clock, { requestsPerMinute: 3000, requestsPerDay: 0 });
    const taken = await takeFor(clock, budget, 'live', 120_000, 40);
    expect(taken.length).toBeGreaterThan(2 * 3000 * 0.95);
  });

  it('spreads requests evenly across seconds, with a small tolerance', async () => {
    const clock = new SkippingClock(0, 7);
    const budget = new RequestBudget(clock, { requestsPerMinute: 400, requestsPerDay: 0 });
    clock.skip(3_600_000);
    const taken = await takeFor(clock, budget, 'live', 60_000);
    expect(mostInAnyWindow(taken, 1_000)).toBeLessThanOrEqual(9);
  });

  it('delays the first request of a new process by one interval', () => {
    const clock = new SkippingClock();
    const startedMs = clock.monotonicMs();
    clock.skip(200);
    const options = { requestsPerMinute: 400, requestsPerDay: 0, quietSinceMs: startedMs };
    expect(acquireNow(clock, new RequestBudget(clock, options), 'live')).toBe(true);
    expect(acquireNow(clock, new RequestBudget(clock, { ...options, quietSinceMs: clock.monotonicMs() }), 'live')).toBe(
      false,
    );
    const first = new RequestBudget(clock, { requestsPerMinute: 1, requestsPerDay: 0, quietSinceMs: -Infinity });
    expect(acquireNow(clock, first, 'live')).toBe(true);
  });

  it('never exceeds the daily limit in any 24 h window, even across restarts', async () => {
    const clock = new SkippingClock(0, 8);
    const times: number[] = [];
    for (let restart = 0; restart < 8; restart++) {
      const budget = new RequestBudget(clock, { requestsPerMinute: 400, requestsPerDay: 500 });
      if (restart % 3 === 1) clock.skip(10 * 3_600_000);
      times.push(...(await takeFor(clock, budget, 'live', clock.random() * 86_400_000)));
    }
    expect(times.length).toBeGreaterThan(500);
    expect(mostInAnyWindow(times, 86_400_000)).toBeLessThanOrEqual(500);
  });

  it('reports the projected daily use and a pause', async () => {
    const clock = new SkippingClock(0, 9);
    const budget = new RequestBudget(clock, { requestsPerMinute: 400, requestsPerDay: 2_400 });
    await takeFor(clock, budget, 'live', 9 * 60_000);
    expect(budget.stats().dayProjected).toBeUndefined();
    await takeFor(clock, budget, 'live', 60_000);
    const stats = budget.stats();
    expect(stats.dayUsed).toBeGreaterThan(0);
    expect(stats.dayLimit).toBe(2_400);
    expect(stats.dayProjected).toBeGreaterThan(stats.dayUsed);
    budget.refused(3_600_000);
    expect(budget.stats().restingUntilMs).toBeGreaterThanOrEqual(clock.monotonicMs() + 3_600_000);
  });

  it('grants at most one tenth of the requests to probes', async () => {
    const clock = new SkippingClock(0, 10);
    const budget = new RequestBudget(clock, { requestsPerMinute: 100, requestsPerDay: 0 });
    const probes = await takeFor(clock, budget, 'probe', 600_000);
    expect(mostInAnyWindow(probes, 60_000)).toBeLessThanOrEqual(10);
    expect(probes.length).toBeGreaterThan(80);
  });

  it('without limits ends a pause when requested by the operator, and serves waiting calls', async () => {
    const clock = new ManualClock();
    const budget = new RequestBudget(clock, { requestsPerMinute: 0, requestsPerDay: 0 });
    for (let i = 0; i < 1_000; i++) expect(acquireNow(clock, budget, 'live')).toBe(true);
    budget.refused(300_000);
    const waiting = budget.acquire('other');
    expect(acquireNow(clock, budget, 'live')).toBe(false);
    budget.endRest();
    await waiting;
    expect(acquireNow(clock, budget, 'live')).toBe(true);
    expect(budget.stats().restingUntilMs).toBeUndefined();
  });

  it('does not count a refunded request', async () => {
    const clock = new ManualClock();
    const budget = new RequestBudget(clock, { requestsPerMinute: 1, requestsPerDay: 0, quietSinceMs: -Infinity });
    for (const ms of [3, 3, 3, 3_000]) {
      expect(acquireNow(clock, budget, 'live')).toBe(true);
      await clock.advance(ms);
      budget.refund();
    }
    expect(budget.stats()).toMatchObject({ minuteUsed: 0, dayUsed: 0 });
    expect(acquireNow(clock, budget, 'live')).toBe(true);
    expect(acquireNow(clock, budget, 'live')).toBe(false);
  });

  it('serves waiting calls in order, and skips aborted calls', async () => {
    const clock = new ManualClock();
    const budget = new RequestBudget(clock, { requestsPerMinute: 60, requestsPerDay: 0 });
    const served: number[] = [];
    const quitter = new AbortController();
    const calls = [1, 2, 3].map((name) =>
      budget.acquire('other', name === 2 ? quitter.signal : undefined).then(
        () => served.push(name),
        () => served.push(-name),
      ),
    );
    quitter.abort(new Error('enough'));
    await clock.advance(5_000);
    await Promise.all(calls);
    expect(served).toEqual([-2, 1, 3]);
    expect(budget.stats().minuteUsed).toBe(2);
    expect(clock.waiting).toBe(0);
  });

  it('alternates between posts and other calls if both compete for every request', async () => {
    const clock = new ManualClock(0, 11);
    const budget = new RequestBudget(clock, { requestsPerMinute: 60, requestsPerDay: 0 });
    const counts = { live: 0, other: 0 };
    const stop = new AbortController();
    const others = (async () => {
      while (!stop.signal.aborted) {
        await budget.acquire('other', stop.signal);
        counts.other++;
      }
    })().catch(() => {});
    const posts = (async () => {
      while (!stop.signal.aborted) {
        await budget.acquire('live', stop.signal);
        counts.live++;
      }
    })().catch(() => {});
    await clock.advance(120_000);
    stop.abort(new Error('over'));
    await Promise.all([others, posts]);
    expect(counts.live).toBeGreaterThan(40);
    expect(counts.other).toBeGreaterThan(40);
  });

  it('counts requests of all kinds together', async () => {
    const clock = new SkippingClock(0, 12);
    const budget = new RequestBudget(clock, { requestsPerMinute: 100, requestsPerDay: 0 });
    const kinds: Exclude<RequestKind, 'paid'>[] = ['live', 'backlog', 'probe', 'other'];
    const times: number[] = [];
    for (let i = 0; i < 40; i++) times.push(...(await takeFor(clock, budget, kinds[i % 4]!, 7_000)));
    expect(mostInAnyWindow(times, 60_000)).toBeLessThanOrEqual(100);
  });
});
