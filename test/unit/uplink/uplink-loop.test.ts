import { beforeEach, describe, expect, it } from 'vitest';
import { PlatformError } from '../../../src/base/errors.ts';
import type { TakeRequest } from '../../../src/buffer/client/lanes.ts';
import type { AccessPort } from '../../../src/uplink/ports.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { type DirectPlatform, MemoryAccess, type Plant, refusal, TAKEN } from './plant.ts';
import { type Around, ended, instead, planted } from './uplink-world.ts';

let clock: ManualClock;
let platform: DirectPlatform;
let plant: Plant;
let startMs: number;

const build = (around?: Around) => {
  ({ platform, plant } = planted(clock, around));
};
const now = () => clock.monotonicMs() - startMs;
const posted = () => platform.ledger.posts.map(({ asset }) => asset);
const events = () => plant.logged.map(({ event }) => event);
const stop = () => ended(plant);

beforeEach(() => {
  clock = new ManualClock(Date.UTC(2026, 10, 21), 1);
  startMs = clock.monotonicMs();
});

describe('store failure during an outage', () => {
  it('is retried once per asset per second', async () => {
    build();
    platform.failing = () => new PlatformError('no', { code: 'platform.connection_refused', retryable: true });
    for (const asset of [1, 2, 3]) plant.accept(asset, asset);
    await plant.uplink.start();
    while (!plant.uplink.outage) await clock.advance(100);
    let refused = 0;
    instead(plant.buffer, 'take', () => async () => {
      refused++;
      throw new Error('database or disk is full');
    });
    while (refused === 0) await clock.advance(100);
    // The clock does not advance, so only a busy loop could continue.
    for (let turn = 0; turn < 500; turn++) await new Promise((resolve) => setImmediate(resolve));
    expect(refused).toBeLessThanOrEqual(3);
    const first = refused;
    await clock.advance(10_000);
    expect(refused).toBeGreaterThan(first);
    await stop();
  });
});

describe('uplink loop', () => {
  /** Returns the times of planning within a duration, in milliseconds. */
  const planned = async (forMs: number, nextProbeAtMs?: () => number | undefined): Promise<number[]> => {
    const holds = new MemoryAccess(clock);
    if (nextProbeAtMs) holds.nextProbeAtMs = nextProbeAtMs;
    build({ holds });
    const at: number[] = [];
    instead(plant.buffer, 'lanes', (works) => () => {
      if (at.at(-1) !== now()) at.push(now());
      return works();
    });
    await plant.uplink.start();
    await clock.advance(forMs);
    await stop();
    return at.filter((ms) => ms <= forMs);
  };

  it('plans every five seconds while idle', async () => {
    expect(await planned(15_000)).toEqual([0, 5_000, 10_000, 15_000]);
    startMs = clock.monotonicMs();
    expect(await planned(10_000, () => undefined)).toEqual([0, 5_000, 10_000]);
  });

  it('plans early when a probe is due, and then returns to the regular interval', async () => {
    expect(await planned(15_000, () => startMs + 1_200)).toEqual([0, 1_200, 6_200, 11_200]);
    startMs = clock.monotonicMs();
    expect(await planned(10_000, () => startMs + 7_000)).toEqual([0, 5_000, 7_000]);
  });

  it('plans as soon as values arrive, with a single timer', async () => {
    build();
    await plant.uplink.start();
    await clock.advance(1);
    for (let turn = 0; turn < 20; turn++) {
      plant.accept(1, 1, 10);
      await clock.advance(1);
      expect(clock.waiting).toBe(1);
    }
    plant.accept(1, 1, 5_000);
    await clock.advance(0);
    expect(plant.uplink.snapshot().postsInProgress).toBe(1);
    await clock.advance(1_000);
    expect(posted()).toEqual([1]);
    await stop();
    expect(clock.waiting).toBe(0);
  });

  it('is considered hung after two minutes without planning', async () => {
    build();
    const { uplink } = plant;
    const alive = (ms: number) => uplink.isAlive(startMs + ms);
    expect([0, 119_999, 120_000].map(alive)).toEqual([true, true, false]);
    await uplink.start();
    await clock.advance(16_000);
    plant.accept(1, 1);
    await clock.advance(1_000);
    await stop();
    // The latest planning was at 15 s.
    expect([17_000, 134_999, 135_000].map(alive)).toEqual([true, true, false]);
  });

  it('detects an outage from one rejected asset if no other asset was active for two minutes', async () => {
    build({ answering: ({ asset }) => (asset === 1 ? refusal() : TAKEN), options: { postMaxValues: 2 } });
    await plant.uplink.start();
    plant.accept(2, 2, 2);
    await clock.advance(1_000);
    plant.accept(1, 1, 2);
    await clock.advance(119_000);
    expect([posted(), plant.uplink.snapshot().state]).toEqual([[2, 1, 1, 1], 'online']);
    await clock.advance(6_000);
    expect(plant.uplink.snapshot()).toMatchObject({ state: 'away', outage: { code: '400' } });
    await stop();
  });

  it('plans again five seconds after a planning error, and logs repeated errors with exponential spacing', async () => {
    build();
    const failsUntilMs = startMs + 42_000;
    instead(plant.buffer, 'lanes', (works) => () => {
      if (clock.monotonicMs() < failsUntilMs) throw new Error('a hole in the lanes');
      return works();
    });
    plant.accept(1, 1);
    await plant.uplink.start();
    await clock.advance(41_999);
    const said = plant.logged.map(({ event, level, error, count, atMs }) => ({ event, level, error, count, atMs }));
    const line = { event: 'uplink.plan_failed', level: 50, error: 'a hole in the lanes' };
    expect(said).toEqual([
      { ...line, count: 1, atMs: startMs },
      { ...line, count: 2, atMs: startMs + 5_000 },
      { ...line, count: 4, atMs: startMs + 15_000 },
      { ...line, count: 8, atMs: startMs + 35_000 },
    ]);
    await clock.advance(60_000);
    expect(posted()).toEqual([1]);
    await stop();
  });
});

describe('uplink post order', () => {
  /** Returns the assets of consecutive posts of ten values each. */
  const order = async (posts: number, begin: () => void, holds?: AccessPort): Promise<number[]> => {
    build({ options: { concurrency: 1, postMaxValues: 10 }, ...(holds && { holds }) });
    begin();
    await plant.uplink.start();
    while (platform.ledger.posts.length < posts) await clock.advance(20);
    const all = posted().slice(0, posts);
    await stop();
    return all;
  };

  it('alternates between four live posts and one backlog post', async () => {
    const said = await order(20, () => {
      plant.accept(3, 3, 500);
      plant.buffer.flush(clock.monotonicMs() + 1);
      plant.accept(1, 1, 500);
    });
    const five = [1, 1, 1, 1, 3];
    expect(said).toEqual([...five, ...five, ...five, ...five]);
  });

  it('alternates evenly between assets under full load', async () => {
    const said = await order(9, () => {
      for (const asset of [1, 2, 3]) plant.accept(asset, asset, 500);
    });
    expect(said).toEqual([1, 2, 3, 1, 2, 3, 1, 2, 3]);
  });

  it('reads up to four batches at a time without a budget, but only one with a budget', async () => {
    for (const [perMinute, most] of [
      [0, 4],
      [400, 1],
    ] as const) {
      build({ perMinute });
      let [cutting, mostCutting] = [0, 0];
      instead(plant.buffer, 'take', (works) => async (request: TakeRequest) => {
        mostCutting = Math.max(mostCutting, ++cutting);
        await clock.sleep(500);
        cutting--;
        return works(request);
      });
      for (const asset of [1, 2, 3, 4, 5]) plant.accept(asset, asset);
      await plant.uplink.start();
      await clock.advance(60_000);
      expect([mostCutting, plant.buffer.waiting]).toEqual([most, 0]);
      await stop();
    }
  });

  it('reads a batch only when a request is available', async () => {
    build({ perMinute: 6 });
    const taken: number[] = [];
    instead(plant.buffer, 'take', (works) => (request) => {
      taken.push(clock.monotonicMs());
      return works(request);
    });
    for (const asset of [1, 2, 3]) plant.accept(asset, asset, 5_000);
    await plant.uplink.start();
    const free: number[] = [];
    for (let post = 0; post < 3; post++) {
      free.push(plant.budget.nextAtMs('live'));
      while (platform.ledger.posts.length <= post) await clock.advance(100);
    }
    expect(taken.map((atMs, i) => Math.floor(atMs - free[i]!))).toEqual([0, 0, 0]);
    await stop();
  });
});

describe('reported post interval', () => {
  it('includes the delay of the last asset if several become due simultaneously', async () => {
    build({ options: { concurrency: 1 } });
    platform.latencyMs = 3_000;
    for (const asset of [1, 2, 3, 4]) plant.accept(asset, asset);
    await plant.uplink.start();
    await clock.advance(10_000);
    expect(plant.uplink.snapshot().intervalMs).toBe(10_000);
    await clock.advance(8_999);
    expect(plant.uplink.snapshot().intervalMs).toBe(16_000);
    await clock.advance(1);
    expect(plant.uplink.snapshot().intervalMs).toBe(19_000);
    await clock.advance(5_000);
    expect(plant.logged).toHaveLength(1);
    expect(plant.logged[0]).toMatchObject({ event: 'uplink.interval_lengthened', level: 40, configuredMs: 10_000 });
    await clock.advance(240_000);
    expect(plant.uplink.snapshot().intervalMs).toBe(10_000);
    expect(plant.logged[1]).toMatchObject({ event: 'uplink.interval_normal', level: 30, intervalMs: 10_000 });
    await stop();
  });

  it('excludes time spent waiting for the backlog of the same asset', async () => {
    build({ options: { concurrency: 1, postMaxValues: 10 } });
    platform.latencyMs = 3_000;
    plant.accept(1, 11, 1_000);
    plant.buffer.flush(clock.monotonicMs() + 1);
    for (const asset of [2, 3, 4, 5]) plant.accept(asset, asset);
    await plant.uplink.start();
    await clock.advance(1);
    plant.accept(1, 1);
    await clock.advance(30_000);
    // One of five posts is a backlog post. Asset 1 became due when its fourth backlog post ended, at 12 s.
    expect(posted()).toEqual([1, 1, 1, 1, 2, 3, 4, 5, 1, 1]);
    expect(platform.ledger.posts.at(-1)).toMatchObject({
      atMs: startMs + 27_000,
      series: [{ series: 11 }, { series: 1 }],
    });
    expect(plant.uplink.snapshot().intervalMs).toBe(19_000);
    await stop();
  });

  it('is the configured interval if all posts are on time, even if values arrive during a post', async () => {
    build();
    platform.latencyMs = 2_500;
    await plant.uplink.start();
    for (let second = 0; second < 60; second++) {
      for (const asset of [1, 2, 3]) plant.accept(asset, asset);
      await clock.advance(1_000);
    }
    expect([plant.uplink.snapshot().intervalMs, events()]).toEqual([10_000, []]);
    await stop();
  });

  it.each([1_000, 20_000])(
    'is not increased by a short outage in which attempts fail after %i ms',
    async (failsAfterMs) => {
      build();
      await plant.uplink.start();
      const seconds = async (count: number) => {
        for (let second = 0; second < count; second++) {
          for (const asset of [1, 2, 3]) plant.accept(asset, asset);
          await clock.advance(1_000);
        }
      };
      await seconds(60);
      platform.latencyMs = failsAfterMs;
      platform.failing = () => new PlatformError('no', { code: 'platform.timeout', retryable: true });
      await seconds(45);
      platform.latencyMs = 0;
      platform.failing = undefined;
      await seconds(120);
      expect(events()).not.toContain('uplink.interval_lengthened');
      await stop();
    },
  );

  it('is not increased by a platform outage', async () => {
    let isAway = true;
    build();
    platform.failing = () =>
      isAway ? new PlatformError('no', { code: 'platform.connection_refused', retryable: true }) : undefined;
    await plant.uplink.start();
    for (const asset of [1, 2, 3]) plant.accept(asset, asset);
    await clock.advance(600_000);
    isAway = false;
    await clock.advance(120_000);
    expect(new Set(posted())).toEqual(new Set([1, 2, 3]));
    expect(plant.uplink.snapshot().intervalMs).toBeLessThan(11_000);
    expect(events()).not.toContain('uplink.interval_lengthened');
    await stop();
  });
});
