import { afterEach, describe, expect, it } from 'vitest';
import { PlatformError } from '../../../src/base/errors.ts';
import type { UplinkOptions } from '../../../src/uplink/uplink.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { type Answering, DirectPlatform, OPTIONS, Plant, type Reply, refusal, TAKEN } from './plant.ts';

describe('uplink recovery', () => {
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
    expect(plant.buffer.inProgress.size).toBe(0);
  });

  it('ends rate-limit and quota pauses if requested by the operator, but not after a session renewal', async () => {
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
    expect(plant.uplink.snapshot().intervalMs).toBeLessThan(15_000);

    reply = { status: 402 };
    await flow(3_600, [1]);
    expect(plant.uplink.snapshot().outage?.nextTryInMs).toBeGreaterThan(60_000);
    const before = posts().length;
    plant.uplink.tryNow();
    await clock.advance(1_000);
    expect(posts()).toHaveLength(before);
    // The quota is still exhausted, so one post is sent and the pause continues.
    plant.uplink.tryNowOnRequest();
    await clock.advance(5_000);
    expect(posts()).toHaveLength(before + 1);
    expect(plant.uplink.snapshot().outage).toMatchObject({ code: '402' });
    reply = TAKEN;
    plant.uplink.setPace(OPTIONS);
    await clock.advance(5_000);
    expect(plant.uplink.snapshot().state).toBe('online');
  });

  it('restores the post size when an outage with oversized bodies ends', async () => {
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

  it('restores the post size ten minutes after a 413, and immediately after a reload', async () => {
    let mostBytes = 1_500;
    await begin((post) => (post.bytes > mostBytes ? { status: 413 } : TAKEN), { postIntervalMs: 1_000 });
    plant.accept(1, 1, 300);
    await flow(60, [1, 2]);
    const learned = plant.uplink.snapshot().maxBytes;
    expect(learned).toBeLessThan(3_000);
    mostBytes = 1e9;
    await clock.advance(600_000);
    expect(plant.uplink.snapshot().maxBytes).toBe(OPTIONS.postMaxBytes);
    plant.uplink.setPace({ ...OPTIONS, postMaxBytes: 400_000 });
    expect(plant.uplink.snapshot().maxBytes).toBe(400_000);
  });

  it('does not report a rate-limit pause as an insufficient budget', async () => {
    let reply: Reply = { status: 429, headers: { 'retry-after': '200' } };
    await begin(() => reply, { concurrency: 1 });
    plant.accept(1, 1);
    plant.accept(2, 2);
    await clock.advance(100_000);
    expect(posts()).toHaveLength(1);
    reply = TAKEN;
    await clock.advance(150_000);
    expect(posts().map(({ status }) => status)).toEqual([429, 204, 204]);
    expect(plant.uplink.snapshot().intervalMs).toBeLessThan(15_000);
  });

  it('retries a paused series immediately after a reload, and logs when it is accepted again', async () => {
    let isBroken = true;
    await begin((post) => (isBroken && post.series.some(({ series }) => series === 1) ? refusal() : TAKEN));
    for (let turn = 0; turn < 12; turn++) {
      plant.accept(1, 1);
      await flow(20, [2]);
    }
    const [waiting] = plant.uplink.snapshot().waitingSeries;
    expect(waiting).toMatchObject({ series: 1, asset: 1, status: 400 });
    expect(waiting!.nextTryInMs).toBeGreaterThan(300_000);
    expect(waiting!.nextTryInMs).toBeLessThanOrEqual(900_000);
    isBroken = false;
    plant.accept(1, 1);
    plant.uplink.setPace(OPTIONS);
    await flow(30, [2]);
    expect(plant.uplink.snapshot().waitingSeries).toEqual([]);
    const back = plant.logged.filter(({ event }) => event === 'uplink.series_back');
    expect(back).toMatchObject([{ asset: 1, series: [1] }]);
  });

  it('pauses only an asset rejected with 503 while others are accepted, without reporting an outage', async () => {
    await begin((post) => (post.asset === 1 ? { status: 503 } : TAKEN));
    await flow(60, [2, 3, 4]);
    plant.accept(1, 1);
    await flow(30, [2, 3, 4]);
    expect(plant.uplink.snapshot()).toMatchObject({ state: 'online', pausedAssets: [{ asset: 1 }] });
    expect(plant.counts.backs).toBe(0);
  });

  it('rereads a split batch after its addresses change', async () => {
    let isAsking = false;
    await begin((post) => {
      if (post.asset !== 1) return TAKEN;
      isAsking = true;
      return post.values > 4 ? refusal() : TAKEN;
    });
    let taken = 0;
    const { take } = plant.buffer;
    plant.buffer.take = (request) => {
      if (request.asset === 1) taken++;
      return take.call(plant.buffer, request);
    };
    plant.accept(1, 1, 16);
    while (!isAsking) await clock.advance(100);
    plant.uplink.addressesChanged();
    await flow(60, [2]);
    expect(taken).toBeGreaterThan(1);
    expect(platform.ledger.taken.filter(({ asset }) => asset === 1)).toHaveLength(16);
  });

  it.each(['take', 'settle'] as const)(
    'continues if the store fails to %s, and logs this only occasionally',
    async (call) => {
      await begin(() => TAKEN);
      const works = plant.buffer[call] as (...args: unknown[]) => Promise<never>;
      let failures = 0;
      Object.assign(plant.buffer, {
        [call]: (...args: unknown[]) => {
          if (failures >= 20) return works.apply(plant.buffer, args);
          failures++;
          return Promise.reject(new Error('disk I/O error'));
        },
      });
      plant.accept(1, 1, 3);
      await clock.advance(600_000);
      expect(plant.buffer.waiting + plant.buffer.inProgress.size).toBe(0);
      expect(platform.ledger.numbers.size).toBe(3);
      expect(platform.ledger.taken).toHaveLength(3);
      const said = plant.logged.filter(({ event }) => event === 'uplink.store_failed');
      expect(said[0]).toMatchObject({ error: 'disk I/O error', count: 1 });
      expect(said.length).toBeLessThan(10);
    },
  );
});

describe('uplink', () => {
  it.each([
    ['during startup', 0],
    ['after startup', 60_000],
  ])('posts nothing else if it is aborted %s', async (_name, afterMs) => {
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
    expect(plant.buffer.inProgress.size).toBe(0);
  });
});
