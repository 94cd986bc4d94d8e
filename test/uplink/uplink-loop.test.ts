/** The loop of the uplink: when it looks, in what order it posts, and what it tells of the interval that assets really get. */
import { beforeEach, describe, expect, it } from 'vitest';
import { PlatformError } from '../../src/base/errors.ts';
import type { TakeRequest } from '../../src/buffer/client/lanes.ts';
import type { AccessPort } from '../../src/uplink/ports.ts';
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

describe('a store that refuses while the platform is unavailable', () => {
  it('is asked once per asset and second, not continuously', async () => {
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
    // The clock stands still: nothing but a busy loop could go on.
    for (let turn = 0; turn < 500; turn++) await new Promise((resolve) => setImmediate(resolve));
    expect(refused).toBeLessThanOrEqual(3);
    const first = refused;
    await clock.advance(10_000);
    expect(refused).toBeGreaterThan(first);
    await stop();
  });
});

describe('the uplink looks at what waits', () => {
  /** When it looked, of the next so many milliseconds. */
  const looks = async (forMs: number, nextProbeAtMs?: () => number | undefined): Promise<number[]> => {
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

  it('every five seconds where nothing happens', async () => {
    expect(await looks(15_000)).toEqual([0, 5_000, 10_000, 15_000]);
    startMs = clock.monotonicMs();
    expect(await looks(10_000, () => undefined)).toEqual([0, 5_000, 10_000]);
  });

  it('when something is to be probed, and not again and again where that is over', async () => {
    expect(await looks(15_000, () => startMs + 1_200)).toEqual([0, 1_200, 6_200, 11_200]);
    startMs = clock.monotonicMs();
    expect(await looks(10_000, () => startMs + 7_000)).toEqual([0, 5_000, 7_000]);
  });

  it('as soon as values come, and with one timer however often they come', async () => {
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
    expect(plant.uplink.snapshot().postsUnderWay).toBe(1);
    await clock.advance(1_000);
    expect(posted()).toEqual([1]);
    await stop();
    expect(clock.waiting).toBe(0);
  });

  it('so that whoever watches it sees it alive: it has not looked for two minutes where it hangs', async () => {
    build();
    const { uplink } = plant;
    const alive = (ms: number) => uplink.isAlive(startMs + ms);
    expect([0, 119_999, 120_000].map(alive)).toEqual([true, true, false]);
    await uplink.start();
    await clock.advance(16_000);
    plant.accept(1, 1);
    await clock.advance(1_000);
    await stop();
    // It looked at 15 s the last time.
    expect([17_000, 134_999, 135_000].map(alive)).toEqual([true, true, false]);
  });

  it('again at what was refused while others were taken: alone for two minutes, the asset has nobody to be compared with', async () => {
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

  it('again after five seconds where planning fails, and says so once, then whenever it has doubled', async () => {
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

describe('the uplink posts', () => {
  /** So many posts of ten values each, one after the other, with more than enough of everything. */
  const order = async (posts: number, begin: () => void, holds?: AccessPort): Promise<number[]> => {
    build({ options: { concurrency: 1, postMaxValues: 10 }, ...(holds && { holds }) });
    begin();
    await plant.uplink.start();
    while (platform.ledger.posts.length < posts) await clock.advance(20);
    const all = posted().slice(0, posts);
    await stop();
    return all;
  };

  it('four times live values, then of the backlog, again and again', async () => {
    const said = await order(20, () => {
      plant.accept(3, 3, 500);
      plant.buffer.flush(clock.monotonicMs() + 1);
      plant.accept(1, 1, 500);
    });
    const five = [1, 1, 1, 1, 3];
    expect(said).toEqual([...five, ...five, ...five, ...five]);
  });

  it('a probe at first, and after each nine others the next', async () => {
    const holds = new MemoryAccess(clock);
    for (const asset of [21, 22, 23]) holds.held.set(asset, startMs);
    holds.delivered = async () => {};
    const said = await order(
      25,
      () => {
        for (const asset of [1, 21, 22, 23]) plant.accept(asset, asset, 500);
      },
      holds,
    );
    const nine = Array<number>(9).fill(1);
    expect(said).toEqual([21, ...nine, 22, ...nine, 23, ...nine.slice(5)]);
  });

  it('by turns of whoever waits: each asset of a full uplink as often as the others', async () => {
    const said = await order(9, () => {
      for (const asset of [1, 2, 3]) plant.accept(asset, asset, 500);
    });
    expect(said).toEqual([1, 2, 3, 1, 2, 3, 1, 2, 3]);
  });

  it('with as many batches being cut at a time as may go without a budget, and with one where there is one', async () => {
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

  it('takes no batch before there is a request for it', async () => {
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

describe('the interval that is told', () => {
  it('is longer by how long the last of those had to wait that were due together', async () => {
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

  it('is not longer for what an asset waits for its own backlog', async () => {
    build({ options: { concurrency: 1, postMaxValues: 10 } });
    platform.latencyMs = 3_000;
    plant.accept(1, 11, 1_000);
    plant.buffer.flush(clock.monotonicMs() + 1);
    for (const asset of [2, 3, 4, 5]) plant.accept(asset, asset);
    await plant.uplink.start();
    await clock.advance(1);
    plant.accept(1, 1);
    await clock.advance(30_000);
    // The fifth is owed to the backlog. Whose turn it is was seen when the fourth post of the backlog had ended, at 12 s.
    expect(posted()).toEqual([1, 1, 1, 1, 2, 3, 4, 5, 1, 1]);
    expect(platform.ledger.posts.at(-1)).toMatchObject({
      atMs: startMs + 27_000,
      series: [{ series: 11 }, { series: 1 }],
    });
    expect(plant.uplink.snapshot().intervalMs).toBe(19_000);
    await stop();
  });

  it('is as configured where each post is on time, though values come while it is under way', async () => {
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
    'is not longer for a short outage in which attempts fail after %i ms',
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

  it('is not longer for an outage that everybody waited for', async () => {
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
