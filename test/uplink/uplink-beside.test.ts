/** The uplink beside its loop: what it says of itself, and what a reload and a sign-in change. */
import { beforeEach, describe, expect, it } from 'vitest';
import { PlatformError } from '../../src/base/errors.ts';
import { silentLogger } from '../../src/base/logger.ts';
import { Uplink } from '../../src/uplink/uplink.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { type DirectPlatform, OPTIONS, type Plant, type Reply, refusal, TAKEN } from './plant.ts';
import { type Around, ended, instead, planted } from './uplink-world.ts';

let clock: ManualClock;
let platform: DirectPlatform;
let plant: Plant;
let startMs: number;

/** So many values fill a post, which goes at once. */
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
  startMs = clock.monotonicMs();
});

describe('what the uplink says of itself', () => {
  const NOTHING = {
    state: 'online',
    outage: undefined,
    restsForMs: undefined,
    lastPostAtMs: undefined,
    lastDeliveredAtMs: undefined,
    lastRefusal: undefined,
    deliveredValues: 0,
    quarantinedValues: 0,
    postsUnderWay: 0,
    intervalMs: 10_000,
    maxBytes: 480_000,
    waitingIds: [],
    waitingSeries: [],
    pausedAssets: [],
  };

  it('is what it has posted, what is under way, and what was taken when', async () => {
    build();
    expect(plant.uplink.snapshot()).toEqual(NOTHING);
    plant.accept(1, 1, FULL);
    await plant.uplink.start();
    await clock.advance(5);
    expect(plant.uplink.snapshot()).toEqual({ ...NOTHING, lastPostAtMs: WALL, postsUnderWay: 1 });
    await clock.advance(100);
    const after = { ...NOTHING, lastPostAtMs: WALL, lastDeliveredAtMs: WALL + 20, deliveredValues: FULL };
    expect(plant.uplink.snapshot()).toEqual(after);
    expect([plant.uplink.deliveredValues, plant.uplink.outage]).toEqual([FULL, undefined]);
    await stop();
  });

  it('is in an outage what was met, since when, how often it was tried, and in how long it is tried again', async () => {
    build({ answering: () => ({ status: 503 }) });
    plant.accept(1, 1, FULL);
    await plant.uplink.start();
    await clock.advance(120);
    const refused = { atMs: WALL + 20, code: '503', words: 'status 503' };
    const outage = { forMs: 100, code: '503', words: 'status 503', isForeign: false, attempts: 1, nextTryInMs: 880 };
    const away = { ...NOTHING, state: 'away', lastPostAtMs: WALL, lastRefusal: refused };
    expect(plant.uplink.snapshot()).toEqual({ ...away, outage });
    expect(plant.uplink.outage).toMatchObject({ code: '503', attempts: 1, nextTryAtMs: startMs + 1_000 });
    platform.latencyMs = 500;
    await clock.advance(1_000);
    // It is being tried: it cannot be sooner than now.
    expect(plant.uplink.snapshot()).toEqual({
      ...away,
      outage: { ...outage, forMs: 1_100, nextTryInMs: 0 },
      lastPostAtMs: WALL + 1_000,
      postsUnderWay: 1,
    });
    await stop();
  });

  it('is in a rest how long that still is', async () => {
    build({ answering: () => ({ status: 429, headers: { 'retry-after': '30' } }) });
    plant.accept(1, 1, FULL);
    await plant.uplink.start();
    await clock.advance(20);
    const whole = plant.uplink.snapshot().restsForMs!;
    expect(whole).toBeGreaterThanOrEqual(30_000);
    await clock.advance(10_000);
    expect(plant.uplink.snapshot()).toMatchObject({ restsForMs: whole - 10_000, state: 'online' });
    await stop();
  });

  it('is of series that wait what they wait for, and of quarantine how many values are there', async () => {
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
    const waiting = { series: 7, asset: 1, status: 400, words: 'invalid: no such key: unit', nextTryInMs };
    expect({ waitingIds, waitingSeries, quarantinedValues }).toEqual({
      waitingIds: [7],
      waitingSeries: [waiting],
      quarantinedValues: 8,
    });
    await clock.advance(nextTryInMs - 1);
    expect(plant.uplink.snapshot().waitingSeries).toEqual([{ ...waiting, nextTryInMs: 1 }]);
    await stop();
    // Nothing tries it any more.
    await clock.advance(60_000);
    expect(plant.uplink.snapshot().waitingSeries).toMatchObject([{ nextTryInMs: 0 }]);
  });

  it('is of assets that pause how often they failed and for how long they do, of the first fifty of them', async () => {
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

describe('a reload', () => {
  it('changes how long values wait, how much a post holds, and how many go at a time', async () => {
    const options = { ...OPTIONS };
    build({ options });
    const { uplink } = plant;
    // What it was made with is its own.
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

  it('begins, changes and ends a rate of the backlog', async () => {
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

  it('lets a series that waits be tried at once, a rest end, and a spent quota be asked for again', async () => {
    let reply: Reply = { status: 402 };
    build({ answering: () => reply });
    plant.accept(1, 1, FULL);
    await plant.uplink.start();
    await clock.advance(1_000);
    expect(plant.uplink.snapshot().outage).toMatchObject({ attempts: 1, code: '402' });
    reply = { status: 429, headers: { 'retry-after': '300' } };
    for (const attempts of [1, 2]) {
      plant.uplink.tryNow();
      await clock.advance(50);
      expect(posted()).toHaveLength(attempts);
      plant.uplink.setPace(PACE);
      await clock.advance(50);
      expect(posted()).toHaveLength(attempts + 1);
    }
    expect(plant.uplink.snapshot().restsForMs).toBeGreaterThan(290_000);
    reply = TAKEN;
    plant.uplink.tryNowOnRequest();
    await clock.advance(50);
    expect(plant.uplink.snapshot()).toMatchObject({ restsForMs: undefined, deliveredValues: FULL, state: 'online' });
    await stop();
  });

  // An asset that was taken so lately would show an outage; of one that was silent for longer nobody knows.
  it.each([
    [10_000, undefined, 120_000],
    [60_000, undefined, 180_000],
    [10_000, 60_000, 180_000],
    [60_000, 10_000, 120_000],
  ])(
    'and the interval say who could show an outage: of %d, then %s ms those of the last %d',
    async (first, then, latelyMs) => {
      for (const by of [0, 1]) {
        build({
          options: { postIntervalMs: first },
          answering: ({ asset }) => (asset === 1 ? TAKEN : { status: 503 }),
        });
        platform.latencyMs = 0;
        await plant.uplink.start();
        if (then) plant.uplink.setPace({ ...PACE, postIntervalMs: then });
        plant.accept(1, 1, FULL);
        await clock.advance(latelyMs + by);
        expect(posted()).toEqual([1]);
        plant.accept(2, 2, FULL);
        await clock.advance(0);
        expect([posted(), plant.uplink.snapshot().state]).toEqual([[1, 2], by === 0 ? 'online' : 'away']);
        await stop();
      }
    },
  );

  it('with another path puts what was taken together anew', async () => {
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

it('the uplink is told that there is a session again: during an outage it tries at once', async () => {
  let isAway = true;
  build();
  platform.failing = () =>
    isAway ? new PlatformError('no', { code: 'platform.no_session', retryable: true }) : undefined;
  const backs: number[] = [];
  const end = plant.uplink.onBack((ms) => backs.push(ms));
  plant.accept(1, 1, FULL);
  await plant.uplink.start();
  await clock.advance(10_000);
  isAway = false;
  const { outage } = plant.uplink.snapshot();
  plant.uplink.tryNow();
  await clock.advance(20);
  expect([backs, posted(), plant.uplink.snapshot().state]).toEqual([[outage!.forMs + 20], [1], 'online']);
  end();
  isAway = true;
  plant.accept(1, 1, FULL);
  await clock.advance(100);
  isAway = false;
  plant.uplink.tryNow();
  await clock.advance(100);
  expect([backs.length, plant.uplink.snapshot().state]).toEqual([1, 'online']);
  await stop();
});

it('the uplink needs nobody who counts what it does', async () => {
  build();
  const { buffer, budget, access } = plant;
  const addresses = { byInstrumentation: false, of: () => ({ path: '/v1/assets/1/values' }) };
  const uplink = new Uplink({ buffer, client: platform, budget, access, clock, log: silentLogger(), addresses }, PACE);
  plant.accept(1, 1, FULL);
  await uplink.start();
  await clock.advance(100);
  expect(uplink.deliveredValues).toBe(FULL);
  const stopped = uplink.stop(0);
  await clock.advance(100);
  await stopped;
});
