/** The parts that the uplink decides by, each for itself: what hours of a fleet would show, in milliseconds. */
import { describe, expect, it } from 'vitest';
import { AssetSchedule } from '../../src/uplink/asset-schedule.ts';
import { BackfillRate } from '../../src/uplink/backfill-rate.ts';
import { type BatchDelivery, slicesIn } from '../../src/uplink/batch-delivery.ts';
import { FaultAttribution } from '../../src/uplink/fault-attribution.ts';
import { PlatformAvailability } from '../../src/uplink/platform-availability.ts';
import { PostAddresses } from '../../src/uplink/post-address.ts';
import { PostLag } from '../../src/uplink/post-lag.ts';
import { SeriesWaits } from '../../src/uplink/series-waits.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { OPTIONS } from './plant.ts';

/** A clock whose chance always says the same. */
function clockOf(random: number): ManualClock {
  const clock = new ManualClock();
  clock.random = () => random;
  return clock;
}

describe('the rate of the backlog', () => {
  it('saves up what one post interval brings, from nothing', () => {
    const rate = new BackfillRate(100, 10_000, 5_000, 0);
    expect([rate.isLimited, rate.capacity, rate.available(0)]).toEqual([true, 1_000, 0]);
    expect(rate.available(1_000)).toBe(100);
    expect(rate.available(500)).toBe(100);
    expect(rate.available(100_000)).toBe(1_000);
    rate.spend(300);
    expect(rate.available(100_000)).toBe(700);
    expect(rate.availableAtMs(500, 100_000)).toBe(100_000);
    expect(rate.availableAtMs(700, 100_000)).toBe(100_000);
    expect(rate.availableAtMs(900, 100_000)).toBe(102_000);
    expect(rate.availableAtMs(9_000, 100_000)).toBe(103_000);
    rate.spend(900);
    expect(rate.available(100_000)).toBe(0);
    expect(rate.availableAtMs(700.05, 109_000)).toBe(109_001);
  });

  it.each([
    ['a second at least', 100, 10, 5_000, 100],
    ['a post at most', 1_000, 10_000, 5_000, 5_000],
    ['a value at least', 0.5, 1_000, 5_000, 1],
    ['a quarter of a second where that is more', 100_000, 10_000, 5_000, 25_000],
    ['everything without a limit', 0, 10_000, 5_000, Number.POSITIVE_INFINITY],
  ])('holds %s', (_, perSecond, intervalMs, most, capacity) => {
    expect(new BackfillRate(perSecond, intervalMs, most, 0).capacity).toBe(capacity);
  });

  it('is none at 0, whatever was spent, and keeps what fits when it is set anew', () => {
    const rate = new BackfillRate(0, 10_000, 5_000, 0);
    rate.spend(1_000);
    expect([rate.isLimited, rate.available(0)]).toEqual([false, Number.POSITIVE_INFINITY]);
    rate.setRate(100, 10_000, 5_000);
    expect(rate.available(10_000)).toBe(1_000);
    rate.setRate(10, 10_000, 5_000);
    expect(rate.available(10_000)).toBe(100);
  });
});

describe('whose fault it is', () => {
  const world = (takenBefore: number) => {
    const faults = new FaultAttribution(60_000);
    for (let asset = 1; asset <= takenBefore; asset++) faults.taken(asset, faults.number(), 0);
    return faults;
  };

  it('is the platform’s when three assets met it, or all of those that posted lately', () => {
    const faults = world(5);
    faults.met('later', 1);
    faults.met('refused', 2);
    expect(faults.isPlatform('later', 0)).toBe(false);
    faults.met('later', 3);
    expect([faults.isPlatform('later', 0), faults.isPlatform('refused', 0)]).toEqual([true, true]);
    expect(faults.assetsWith('later')).toEqual([1, 3]);
    const two = world(2);
    two.met('later', 1);
    expect([two.isPlatform('later', 0), two.isPlatform('refused', 0)]).toEqual([false, false]);
    // The other has posted nothing for a while: it would show nothing.
    expect(two.isPlatform('later', 60_000)).toBe(false);
    expect(two.isPlatform('later', 60_001)).toBe(true);
    expect(world(0).isPlatform('later', 0)).toBe(false);
  });

  it('is of permissions the platform’s when half of many have none, three at least', () => {
    const faults = world(8);
    for (const asset of [1, 2, 3]) faults.met('no-access', asset);
    expect(faults.isPlatform('no-access', 0)).toBe(false);
    faults.met('no-access', 4);
    expect(faults.isPlatform('no-access', 0)).toBe(true);
    const few = world(2);
    few.met('no-access', 1);
    few.met('no-access', 2);
    expect(few.isPlatform('no-access', 0)).toBe(false);
    few.met('no-access', 3);
    expect(few.isPlatform('no-access', 0)).toBe(true);
  });

  it('is struck out by a post that was taken and began after it, and by none that began before', () => {
    const faults = world(0);
    const before = faults.number();
    faults.met('later', 1);
    faults.met('later', 2);
    const { next } = faults;
    expect(faults.hasTakenSince(before)).toBe(false);
    faults.taken(3, before, 0);
    expect(faults.assetsWith('later')).toEqual([1, 2]);
    expect([faults.hasTakenSince(before), faults.hasTakenSince(next)]).toEqual([true, false]);
    faults.taken(2, before, 0);
    expect(faults.assetsWith('later')).toEqual([1]);
    faults.taken(3, faults.number(), 0);
    expect(faults.assetsWith('later')).toEqual([]);
    expect(faults.hasTakenSince(next)).toBe(true);
  });

  it('is nobody’s to compare with where one asset alone posted lately', () => {
    const faults = world(1);
    expect([faults.isAlone(1, 0), faults.isAlone(2, 0)]).toEqual([true, false]);
    faults.met('later', 2);
    expect(faults.isAlone(1, 0)).toBe(false);
    faults.setLately(10);
    expect([faults.isAlone(2, 10), faults.isAlone(2, 11)]).toEqual([false, true]);
  });
});

describe('the platform’s availability', () => {
  const FAILURE = { code: '503', words: 'away' };

  it('is tried again after a wait that doubles from 1 s to 55 s, counted from the start of the try', async () => {
    const clock = clockOf(1);
    const platform = new PlatformAvailability(clock);
    const waits: number[] = [];
    for (let attempt = 0; attempt < 8; attempt++) {
      const { nextTryAtMs } = platform.fail(FAILURE, clock.monotonicMs());
      waits.push(nextTryAtMs - clock.monotonicMs());
    }
    expect(waits).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 55_000, 55_000]);
    // What hung for a minute is followed after a moment.
    const startedMs = clock.monotonicMs();
    await clock.advance(60_000);
    expect(platform.fail(FAILURE, startedMs).nextTryAtMs).toBe(clock.monotonicMs() + 200);
  });

  it('waits for as long as the platform asks, up to 55 s', () => {
    const clock = clockOf(0);
    const platform = new PlatformAvailability(clock);
    const waitOf = (minMs: number) => platform.fail(FAILURE, 0, minMs).nextTryAtMs - clock.monotonicMs();
    expect([waitOf(0), waitOf(7_000), waitOf(600_000)]).toEqual([200, 7_000, 55_000]);
  });

  it('is after a spent quota a matter of minutes, doubling to an hour, until something else is met', () => {
    for (const [random, share] of [
      [0, 0.5],
      [1, 1],
    ] as const) {
      const clock = clockOf(random);
      const platform = new PlatformAvailability(clock);
      const wait = () => platform.failQuota(FAILURE).nextTryAtMs - clock.monotonicMs();
      const minutes = Array.from({ length: 8 }, () => wait() / 60_000 / share);
      expect(minutes).toEqual([1, 2, 4, 8, 16, 32, 60, 60]);
      platform.fail(FAILURE, 0);
      expect(wait() / 60_000 / share).toBe(1);
      platform.succeed();
      expect(wait() / 60_000 / share).toBe(1);
    }
  });

  it('tells when it is back and for how long it was away; the outage keeps where it began', async () => {
    const clock = clockOf(0);
    const platform = new PlatformAvailability(clock);
    const backs: number[] = [];
    const end = platform.onBack((ms) => backs.push(ms));
    expect(platform.succeed()).toBeUndefined();
    platform.fail(FAILURE, 0, 0, 7);
    await clock.advance(5_000);
    platform.fail({ code: 'portal', words: 'a page', isForeign: true }, 0, 0, 9);
    expect(platform.outage).toMatchObject({ sincePost: 7, attempts: 2, code: 'portal', isForeign: true });
    expect(platform.succeed()).toMatchObject({ attempts: 2 });
    expect([platform.outage, backs]).toEqual([undefined, [5_000]]);
    end();
    expect(platform.fail(FAILURE, 0)).toMatchObject({ attempts: 1, isForeign: false });
    platform.succeed();
    expect(backs).toEqual([5_000]);
  });

  it('is tried at once after a sign-in, after a spent quota only at a person’s word', () => {
    const clock = clockOf(1);
    const platform = new PlatformAvailability(clock);
    platform.tryNow();
    expect(platform.outage).toBeUndefined();
    platform.fail(FAILURE, clock.monotonicMs());
    platform.tryNow();
    expect(platform.outage!.nextTryAtMs).toBe(clock.monotonicMs());
    platform.failQuota(FAILURE);
    platform.tryNow();
    expect(platform.outage!.nextTryAtMs).toBe(clock.monotonicMs() + 60_000);
    platform.tryNow('person');
    expect(platform.outage!.nextTryAtMs).toBe(clock.monotonicMs());
  });
});

describe('the interval that an asset really gets', () => {
  it('is longer by the largest lateness of the last one to two minutes', () => {
    const lag = new PostLag(10_000);
    expect(lag.intervalMs(0)).toBe(10_000);
    lag.note(3_000, 0);
    lag.note(2_000, 1);
    expect(lag.intervalMs(59_999)).toBe(13_000);
    expect(lag.intervalMs(60_000)).toBe(13_000);
    expect(lag.intervalMs(119_999)).toBe(13_000);
    expect(lag.intervalMs(120_000)).toBe(10_000);
    lag.note(9_000, 120_000);
    // Nobody looked for two minutes.
    expect(lag.intervalMs(240_000)).toBe(10_000);
  });

  it('is told when it begins and ends to be longer by half, and by a second', () => {
    const lag = new PostLag(10_000);
    lag.note(4_999, 0);
    expect(lag.change(0)).toBeUndefined();
    lag.note(5_000, 0);
    expect(lag.change(0)).toEqual({ isLengthened: true, intervalMs: 15_000 });
    expect(lag.change(1)).toBeUndefined();
    expect(lag.change(120_000)).toEqual({ isLengthened: false, intervalMs: 10_000 });
    lag.setInterval(1_000);
    lag.note(999, 120_000);
    expect(lag.change(120_000)).toBeUndefined();
    lag.note(1_000, 120_000);
    expect(lag.change(120_000)).toEqual({ isLengthened: true, intervalMs: 2_000 });
  });
});

describe('what is known of the assets', () => {
  const deliveryOf = (asset: number, lane: 'live' | 'backlog', facts: Partial<BatchDelivery> = {}): BatchDelivery => ({
    name: `${lane} ${asset}`,
    asset,
    lane,
    kind: lane,
    probe: undefined,
    trial: false,
    state: { kind: 'taking', after: 'next' },
    ...facts,
  });
  const slices = slicesIn({ kind: 'returning' });

  it('is which lanes a delivery has, until it ends', () => {
    const schedule = new AssetSchedule(clockOf(1));
    const live = deliveryOf(1, 'live');
    const backlog = deliveryOf(1, 'backlog');
    schedule.begin(live);
    schedule.begin(backlog);
    schedule.occupyBoth(live);
    expect(schedule.of(1)).toMatchObject({ live, backlog });
    schedule.end(backlog);
    expect([schedule.of(1).live, schedule.of(1).backlog]).toEqual([live, undefined]);
    schedule.occupyBoth(live);
    expect(schedule.of(1).backlog).toBe(live);
    schedule.end(live);
    expect([schedule.of(1).live, schedule.of(1).backlog, schedule.deliveries.size]).toEqual([undefined, undefined, 0]);
    schedule.begin(backlog);
    schedule.occupyBoth(backlog);
    expect(schedule.of(1).live).toBe(backlog);
  });

  it('is what is under way, by lane and of assets that fail, and what waits for its turn or its request', () => {
    const schedule = new AssetSchedule(clockOf(1));
    expect([schedule.isPaying, schedule.hasTrial, schedule.ready()]).toEqual([false, false, []]);
    const waiting = deliveryOf(3, 'backlog', { state: { kind: 'ready', slices, sinceMs: 5 } });
    schedule.begin(waiting);
    schedule.begin(deliveryOf(2, 'backlog', { state: { kind: 'posting', after: 'next', slices, slice: {} as never } }));
    expect([schedule.isPaying, schedule.hasTrial]).toEqual([false, false]);
    schedule.begin(deliveryOf(1, 'live', { trial: true }));
    schedule.pause(1);
    schedule.pause(3);
    expect([schedule.isPaying, schedule.hasTrial]).toEqual([true, true]);
    expect(schedule.underWay()).toEqual({ all: 2, backlog: 1, failing: 1 });
    expect(schedule.ready()).toEqual([{ name: 'backlog 3', asset: 3, lane: 'backlog', trial: false, sinceMs: 5 }]);
    expect([schedule.named('backlog 3'), schedule.named('other')]).toEqual([waiting, undefined]);
  });

  it('is who pauses, longer after each failure, until a post is taken or the platform was to blame', async () => {
    const clock = clockOf(1);
    const schedule = new AssetSchedule(clock);
    expect([schedule.pause(1), schedule.pause(1), schedule.pause(1)]).toEqual([2_000, 4_000, 8_000]);
    expect([schedule.pause(2, 30_000), schedule.pause(2, 900_000)]).toEqual([30_000, 60_000]);
    const now = clock.monotonicMs();
    expect(schedule.paused(now)).toEqual([
      { asset: 1, failures: 3, untilMs: now + 8_000 },
      { asset: 2, failures: 2, untilMs: now + 60_000 },
    ]);
    expect(schedule.paused(now + 8_000).map(({ asset }) => asset)).toEqual([2]);
    expect([schedule.succeed(1), schedule.succeed(1), schedule.of(1).failures]).toEqual([true, false, 0]);
    schedule.of(2).dueSinceMs = 5;
    schedule.resetFailures();
    expect([schedule.paused(now), schedule.of(2)]).toMatchObject([[], { failures: 0, dueSinceMs: undefined }]);
    expect(new AssetSchedule(clockOf(0)).pause(1)).toBe(500);
  });

  it('is since when it is whose turn: from when values are due, unless the asset waits for itself', () => {
    const schedule = new AssetSchedule(clockOf(1));
    const lane = (live: number, backlog = 0) => ({
      asset: 1,
      live,
      oldestLiveAtMs: live > 0 ? 0 : Number.POSITIVE_INFINITY,
      backlog,
      oldestBacklogAt: backlog > 0 ? 1 : Number.POSITIVE_INFINITY,
    });
    const due = (nowMs: number, one = lane(3), options = {}, held = false) => {
      schedule.noteDueTimes(new Map([[1, one]]), nowMs, { ...OPTIONS, ...options }, () => held);
      return schedule.of(1).dueSinceMs;
    };
    expect([due(9_999), due(10_000), due(12_000)]).toEqual([undefined, 10_000, 10_000]);
    // Flushed meanwhile: it keeps its place, until something of it went.
    expect(due(13_000, lane(0, 3))).toBe(10_000);
    schedule.of(1).lastPostAtMs = 13_500;
    expect(due(14_000, lane(0, 3))).toBeUndefined();
    expect([due(20_000), due(21_000, lane(0))]).toEqual([20_000, undefined]);
    expect([due(22_000), due(23_000, lane(3), {}, true)]).toEqual([22_000, undefined]);
    const oldestFirst = { drainOrder: 'oldest-first' };
    expect([due(24_000, lane(3, 1), oldestFirst), due(25_000, lane(3), oldestFirst)]).toEqual([undefined, 25_000]);
    schedule.noteDueTimes(new Map(), 26_000, OPTIONS, () => false);
    expect(schedule.of(1).dueSinceMs).toBeUndefined();
    schedule.of(1).pausedUntilMs = 27_001;
    expect([due(27_000), due(27_001)]).toEqual([undefined, 27_001]);
    schedule.clearDueTimes();
    expect(schedule.of(1).dueSinceMs).toBeUndefined();
    schedule.begin(deliveryOf(1, 'live'));
    expect(due(28_000)).toBeUndefined();
  });
});

describe('where a batch is posted', () => {
  const series = { get: (id: number) => (id === 7 ? { key: 'ph', group: 'process' } : undefined) };
  const values = new Map([['ph', { key: 'ph', group: 'process' }]]) as never;
  const tags = [{ asset: 1, instrumentation: 12, values }] as never;

  it('is the path with its asset, and its instrumentation where the path names one', () => {
    const addresses = new PostAddresses(series, '/assets/{asset_id}/values', tags);
    expect(addresses.byInstrumentation).toBe(false);
    expect(addresses.of({ asset: 1, series: [7] })).toEqual({ path: '/assets/1/values' });
    expect(addresses.replace('/assets/{asset_id}/values', tags)).toBe(false);
    expect(addresses.replace('/i/{instrumentation_id}/values', tags)).toBe(true);
    expect(addresses.byInstrumentation).toBe(true);
    expect(addresses.of({ asset: 1, instrumentation: 5, series: [7] })).toEqual({
      path: '/i/5/values',
      instrumentation: 5,
    });
  });

  it('is by the tag of the series where that was accepted before it had an instrumentation, and nowhere without one', () => {
    const addresses = new PostAddresses(series, '/i/{instrumentation_id}/values', tags);
    expect(addresses.of({ asset: 1, series: [7] })?.instrumentation).toBe(12);
    expect(addresses.of({ asset: 1, series: [8] })).toBeUndefined();
    expect(addresses.of({ asset: 2, series: [7] })).toBeUndefined();
    expect(addresses.of({ asset: 1, series: [7, 7] })).toBeUndefined();
    addresses.replace('/i/{instrumentation_id}/values', []);
    expect(addresses.of({ asset: 1, series: [7] })).toBeUndefined();
  });
});

describe('a series that waits', () => {
  const refusal = { status: 400, message: 'no' } as never;

  it('is due a quarter of an hour later, at once when a try came to nothing or a person asks', () => {
    const waits = new SeriesWaits();
    expect(waits.due(0)).toEqual([]);
    expect([waits.hold(1, 7, refusal, 0), waits.hold(1, 7, refusal, 60_000)]).toEqual([true, false]);
    waits.hold(2, 8, refusal, 60_000);
    expect(waits.list()).toMatchObject([{ series: 7, sinceMs: 0, nextTryAtMs: 960_000 }, { series: 8 }]);
    expect([waits.due(959_999).length, waits.due(960_000).length]).toEqual([0, 2]);
    waits.putOff(7, 960_000);
    expect(waits.due(960_000).map(({ series }) => series)).toEqual([8]);
    waits.putBack(7, 961_000);
    expect(waits.due(961_000).map(({ series }) => series)).toEqual([7, 8]);
    // One that is due already keeps its place.
    expect(waits.list()[1]!.nextTryAtMs).toBe(960_000);
    waits.putOff(7, 961_000);
    waits.putOff(8, 961_000);
    waits.tryAll(962_000);
    expect(waits.due(962_000)).toHaveLength(2);
    expect(waits.ids()).toEqual([7, 8]);
  });

  it('counts what is refused alone until something is taken, or nothing can be said of it', () => {
    const waits = new SeriesWaits();
    expect([waits.refusedAlone(7), waits.refusedAlone(7), waits.loneRefusals(7), waits.loneRefusals(8)]).toEqual([
      1, 2, 2, 0,
    ]);
    waits.forget(7);
    expect(waits.refusedAlone(7)).toBe(1);
    waits.hold(1, 7, refusal, 0);
    waits.forget(7);
    expect(waits.loneRefusals(7)).toBe(1);
    expect(waits.taken([6, 7])).toEqual([7]);
    expect([waits.loneRefusals(7), waits.ids(), waits.taken([7])]).toEqual([0, [], []]);
  });
});
