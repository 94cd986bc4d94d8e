import { afterEach, describe, expect, it } from 'vitest';
import { PlatformError } from '../../src/base/errors.ts';
import type { UplinkOptions } from '../../src/uplink/uplink.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { type Answering, DirectPlatform, OPTIONS, Plant, type Reply, TAKEN } from './plant.ts';

/** What the platform asked for or taught does not outlast its cause. */
describe('after a rest, a spent quota, or bodies that were too large, the uplink', () => {
  let clock: ManualClock;
  let platform: DirectPlatform;
  let plant: Plant;

  const begin = async (answering: Answering, options: Partial<UplinkOptions> = {}) => {
    clock = new ManualClock(Date.UTC(2026, 10, 21), 1);
    platform = new DirectPlatform(clock, answering);
    plant = new Plant(clock, platform, options, 400);
    await plant.uplink.start();
  };

  const flow = async (seconds: number, assets: readonly number[]) => {
    for (let second = 0; second < seconds; second++) {
      for (const asset of assets) plant.accept(asset, asset);
      if (second % 5 === 0) plant.buffer.flush(clock.monotonicMs() - 20_000);
      await clock.advance(1_000);
    }
  };

  const posts = () => platform.ledger.posts;

  afterEach(async () => {
    const stopped = plant.uplink.stop(0);
    await clock.advance(1_000);
    await stopped;
    expect(plant.buffer.underWay.size).toBe(0);
  });

  it('ends a rest and the pause of a spent quota when a person says so, not when the session renews itself', async () => {
    let reply: Reply = {
      status: 429,
      headers: { 'retry-after': '299' },
    };
    await begin(() => reply);
    await flow(30, [1]);
    expect(plant.uplink.snapshot().restsForMs).toBeGreaterThan(200_000);
    plant.uplink.tryNow();
    await flow(10, [1]);
    expect(posts()).toHaveLength(1);
    reply = TAKEN;
    plant.uplink.tryNowOnRequest();
    await clock.advance(1_000);
    expect(posts().map((post) => post.status)).toEqual([429, 204]);
    expect(plant.uplink.snapshot().restsForMs).toBeUndefined();
    // A rest is not a budget that is too small.
    expect(plant.uplink.snapshot().intervalMs).toBeLessThan(15_000);

    reply = { status: 402 };
    await flow(3_600, [1]);
    expect(plant.uplink.snapshot().outage?.nextTryInMs).toBeGreaterThan(60_000);
    const before = posts().length;
    plant.uplink.tryNow();
    await clock.advance(1_000);
    expect(posts()).toHaveLength(before);
    // Still spent: one try, and the pause goes on.
    plant.uplink.tryNowOnRequest();
    await clock.advance(5_000);
    expect(posts()).toHaveLength(before + 1);
    expect(plant.uplink.snapshot().outage).toMatchObject({ code: '402' });
    reply = TAKEN;
    plant.uplink.setPace(OPTIONS);
    await clock.advance(5_000);
    expect(plant.uplink.snapshot().state).toBe('online');
  });

  it('posts at full size again as soon as an outage has ended in which bodies were too large', async () => {
    let mostBytes = 3_000;
    await begin((post) => (post.bytes > mostBytes ? { status: 413 } : TAKEN));
    plant.accept(1, 1, 200);
    await clock.advance(60_000);
    expect(plant.uplink.snapshot().maxBytes).toBeLessThan(6_000);
    expect(plant.buffer.waiting).toBe(0);
    platform.failing = () => new PlatformError('no', { code: 'platform.connection_refused', retryable: true });
    await flow(60, [1]);
    expect(plant.uplink.snapshot().maxBytes).toBeLessThan(6_000);
    platform.failing = undefined;
    mostBytes = 1e9;
    await flow(90, [1]);
    expect(plant.uplink.snapshot()).toMatchObject({ state: 'online', maxBytes: 480_000 });
  });

  it('makes posts larger again while it goes on, and at once after a reload', async () => {
    let mostBytes = 1_500;
    await begin((post) => (post.bytes > mostBytes ? { status: 413 } : TAKEN), { postIntervalMs: 1_000 });
    plant.accept(1, 1, 300);
    await flow(60, [1, 2]);
    const learned = plant.uplink.snapshot().maxBytes;
    expect(learned).toBeLessThan(3_000);
    mostBytes = 1e9;
    for (let post = 0; post < 60; post++) {
      plant.accept(1, 1, 100);
      await clock.advance(2_000);
    }
    expect(plant.uplink.snapshot().maxBytes).toBeGreaterThanOrEqual(4 * learned);
    plant.uplink.setPace({ ...OPTIONS, postMaxBytes: 400_000 });
    expect(plant.uplink.snapshot().maxBytes).toBe(400_000);
  });
});

describe('a start that is given up', () => {
  it.each([
    ['while it begins', 0],
    ['after it began', 60_000],
  ])('posts nothing any more, %s', async (_name, afterMs) => {
    const clock = new ManualClock(Date.UTC(2026, 10, 23), 1);
    const platform = new DirectPlatform(clock, () => TAKEN);
    const plant = new Plant(clock, platform, {}, 400);
    const giveUp = new AbortController();
    plant.accept(1, 1);
    const starting = plant.uplink.start(giveUp.signal);
    if (afterMs > 0) await clock.advance(afterMs);
    const before = platform.ledger.posts.length;
    expect(before > 0).toBe(afterMs > 0);
    giveUp.abort();
    await starting;
    plant.accept(1, 1);
    await clock.advance(600_000);
    expect(platform.ledger.posts).toHaveLength(before);
    expect(plant.buffer.underWay.size).toBe(0);
  });
});
