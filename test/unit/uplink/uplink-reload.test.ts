import { beforeEach, describe, expect, it } from 'vitest';
import { ManualClock } from '../doubles/manual-clock.ts';
import { type DirectPlatform, OPTIONS, type Plant, refusal, TAKEN } from './plant.ts';
import { type Around, ended, instead, planted } from './uplink-world.ts';

let clock: ManualClock;
let platform: DirectPlatform;
let plant: Plant;

/** Number of values that fill a post, which is then sent immediately. */
const FULL = 10;
const PACE = { ...OPTIONS, postMaxValues: FULL };

const build = (around: Around = {}) => {
  ({ platform, plant } = planted(clock, { ...around, options: { ...PACE, ...around.options } }));
};
const WALL = Date.UTC(2026, 10, 21);
const posted = () => platform.ledger.posts.map(({ asset }) => asset);
const stop = () => ended(plant);

beforeEach(() => {
  clock = new ManualClock(WALL, 1);
  clock.random = () => 1;
});

describe('uplink snapshot', () => {
  it('contains delivered values, posts in progress and the time of the latest delivery', async () => {
    build();
    expect(plant.uplink.snapshot()).toMatchObject({ state: 'online', lastPostAtMs: undefined, deliveredValues: 0 });
    plant.accept(1, 1, FULL);
    await plant.uplink.start();
    await clock.advance(5);
    expect(plant.uplink.snapshot()).toMatchObject({ lastPostAtMs: WALL, postsInProgress: 1 });
    await clock.advance(100);
    const after = { lastDeliveredAtMs: WALL + 20, deliveredValues: FULL, postsInProgress: 0, outage: undefined };
    expect(plant.uplink.snapshot()).toMatchObject(after);
    await stop();
  });

  it('contains the cause, start, attempts and next retry of an outage', async () => {
    build({ answering: () => ({ status: 503 }) });
    plant.accept(1, 1, FULL);
    await plant.uplink.start();
    await clock.advance(120);
    const refused = { atMs: WALL + 20, code: '503', reason: 'status 503' };
    const outage = { forMs: 100, code: '503', reason: 'status 503', isForeign: false, attempts: 1, nextTryInMs: 880 };
    const away = { state: 'away', lastPostAtMs: WALL, lastRefusal: refused };
    expect(plant.uplink.snapshot()).toMatchObject({ ...away, outage });
    platform.latencyMs = 500;
    await clock.advance(1_000);
    expect(plant.uplink.snapshot()).toMatchObject({
      ...away,
      outage: { ...outage, forMs: 1_100, nextTryInMs: 0 },
      lastPostAtMs: WALL + 1_000,
      postsInProgress: 1,
    });
    await stop();
  });

  it('contains the cause of each paused series, and the number of quarantined values', async () => {
    build({ answering: (post) => (post.series.some(({ series }) => series === 7) ? refusal('no such key') : TAKEN) });
    plant.accept(1, 7, 20);
    plant.accept(2, 2, FULL);
    await plant.uplink.start();
    for (let turn = 0; turn < 6 && plant.uplink.snapshot().waitingIds.length === 0; turn++) {
      plant.accept(2, 2, FULL);
      await clock.advance(10_000);
    }
    const { waitingIds, waitingSeries, quarantinedValues } = plant.uplink.snapshot();
    const { nextTryInMs } = waitingSeries[0]!;
    const waiting = { series: 7, asset: 1, status: 400, reason: 'invalid: no such key: unit', nextTryInMs };
    expect({ waitingIds, waitingSeries, quarantinedValues }).toEqual({
      waitingIds: [7],
      waitingSeries: [waiting],
      quarantinedValues: 8,
    });
    await clock.advance(nextTryInMs - 1);
    expect(plant.uplink.snapshot().waitingSeries).toEqual([{ ...waiting, nextTryInMs: 1 }]);
    await stop();
    await clock.advance(60_000);
    expect(plant.uplink.snapshot().waitingSeries).toMatchObject([{ nextTryInMs: 0 }]);
  });

  it('contains the failures and pauses of the first fifty paused assets', async () => {
    build({ options: { concurrency: 100 } });
    let left = 60;
    instead(
      plant.buffer,
      'take',
      (works) => (request) => (left-- > 0 ? Promise.reject(new Error('away')) : works(request)),
    );
    for (let asset = 1; asset <= 60; asset++) plant.accept(asset, asset, FULL);
    await plant.uplink.start();
    await clock.advance(400);
    const fifty = Array.from({ length: 50 }, (_, i) => ({ asset: i + 1, failures: 0, forMs: 600 }));
    expect(plant.uplink.snapshot().pausedAssets).toEqual(fifty);
    await clock.advance(2_000);
    expect([plant.uplink.snapshot().pausedAssets, plant.buffer.waiting]).toEqual([[], 0]);
    await stop();
  });
});

describe('uplink reload', () => {
  it('applies the post interval, post size and concurrency', async () => {
    const options = { ...OPTIONS };
    build({ options });
    const { uplink } = plant;
    options.postIntervalMs = 1;
    plant.accept(1, 1, 30);
    await uplink.start();
    await clock.advance(4_999);
    expect(posted()).toEqual([]);
    uplink.setPace({ ...OPTIONS, postIntervalMs: 5_000, postMaxBytes: 400_000 });
    expect(uplink.snapshot()).toMatchObject({ intervalMs: 5_000, maxBytes: 400_000 });
    await clock.advance(21);
    expect(posted()).toEqual([1]);
    uplink.setPace({ ...OPTIONS, postMaxValues: 10, concurrency: 1 });
    platform.latencyMs = 100;
    plant.accept(1, 1, 20);
    plant.accept(2, 2, 20);
    await clock.advance(1_000);
    expect(platform.ledger.posts.slice(1).map(({ asset, values }) => [asset, values])).toEqual([
      [1, 10],
      [2, 10],
      [1, 10],
      [2, 10],
    ]);
    await stop();
  });

  it('starts, changes and ends backfill rate limiting', async () => {
    build({ options: { ...OPTIONS, backfillValuesPerSecond: 100 } });
    plant.accept(1, 1, 10_000);
    plant.buffer.flush(clock.monotonicMs() + 1);
    await plant.uplink.start();
    const values = () => platform.ledger.taken.length;
    await clock.advance(10_030);
    expect(values()).toBe(1_000);
    plant.uplink.setPace({ ...OPTIONS, backfillValuesPerSecond: 200 });
    await clock.advance(20_000);
    expect([values() > 3_000, values() <= 1_000 + 200 * 20.1]).toEqual([true, true]);
    plant.uplink.setPace(OPTIONS);
    await clock.advance(1_000);
    expect(values()).toBe(10_000);
    await stop();
  });

  it.each([
    [10_000, undefined, 120_000],
    [60_000, undefined, 180_000],
    [10_000, 60_000, 180_000],
    [60_000, 10_000, 120_000],
  ])('with an interval of %d ms, then %s ms, counts assets as active for %d ms', async (first, then, activeMs) => {
    for (const by of [0, 1]) {
      build({
        options: { postIntervalMs: first },
        answering: ({ asset }) => (asset === 1 ? TAKEN : { status: 503 }),
      });
      platform.latencyMs = 0;
      await plant.uplink.start();
      if (then) plant.uplink.setPace({ ...PACE, postIntervalMs: then });
      plant.accept(1, 1, FULL);
      await clock.advance(activeMs + by);
      expect(posted()).toEqual([1]);
      plant.accept(2, 2, FULL);
      await clock.advance(0);
      expect([posted(), plant.uplink.snapshot().state]).toEqual([[1, 2], by === 0 ? 'online' : 'away']);
      await stop();
    }
  });

  it('rereads batches if the path changes', async () => {
    let isSlow = true;
    build({ perMinute: 60 });
    const { take } = plant.buffer;
    let taken = 0;
    plant.buffer.take = async (request) => {
      taken++;
      if (isSlow) await clock.sleep(1_000);
      return take.call(plant.buffer, request);
    };
    plant.accept(1, 1, FULL);
    await plant.uplink.start();
    while (taken === 0) await clock.advance(100);
    isSlow = false;
    plant.uplink.addressesChanged();
    await clock.advance(5_000);
    expect([taken, posted()]).toEqual([2, [1]]);
    await stop();
  });
});
