import { describe, expect, it } from 'vitest';
import { AssetSchedule } from '../../../src/uplink/asset-schedule.ts';
import { BackfillRate } from '../../../src/uplink/backfill-rate.ts';
import { type BatchDelivery, NO_SLICES } from '../../../src/uplink/delivery.ts';
import { FaultAttribution } from '../../../src/uplink/fault-attribution.ts';
import { PlatformAvailability } from '../../../src/uplink/platform-availability.ts';
import { PostAddresses } from '../../../src/uplink/post-address.ts';
import { PostLag } from '../../../src/uplink/post-lag.ts';
import { SeriesWaits } from '../../../src/uplink/series-waits.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { OPTIONS } from './plant.ts';

/** A clock with a constant random number. */
function clockOf(random: number): ManualClock {
  const clock = new ManualClock();
  clock.random = () => random;
  return clock;
}

describe('backfill rate', () => {
  it('accumulates values for up to one post interval, starting from zero', () => {
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
    // A timer would round a shorter wait to zero.
    expect(rate.availableAtMs(700.05, 109_000)).toBe(109_001);
  });

  it.each([
    ['at least one second', 100, 10, 5_000, 100],
    ['at most one post', 1_000, 10_000, 5_000, 5_000],
    ['at least one value', 0.5, 1_000, 5_000, 1],
    ['a quarter of a second at high rates', 100_000, 10_000, 5_000, 25_000],
    ['all values without a limit', 0, 10_000, 5_000, Number.POSITIVE_INFINITY],
  ])('has a capacity of %s', (_, perSecond, intervalMs, most, capacity) => {
    expect(new BackfillRate(perSecond, intervalMs, most, 0).capacity).toBe(capacity);
  });

  it('is unlimited if set to 0, and keeps accumulated values up to the new capacity after a change', () => {
    const rate = new BackfillRate(0, 10_000, 5_000, 0);
    rate.spend(1_000);
    expect([rate.isLimited, rate.available(0)]).toEqual([false, Number.POSITIVE_INFINITY]);
    rate.setRate(100, 10_000, 5_000);
    expect(rate.available(10_000)).toBe(1_000);
    rate.setRate(10, 10_000, 5_000);
    expect(rate.available(10_000)).toBe(100);
  });
});

describe('fault attribution', () => {
  const world = (takenBefore: number) => {
    const faults = new FaultAttribution(60_000);
    for (let asset = 1; asset <= takenBefore; asset++) faults.accepted(asset, faults.nextNumber(), 0);
    return faults;
  };

  it('blames the platform if the fault affected three assets or all recently active assets', () => {
    const faults = world(5);
    faults.record('later', 1);
    faults.record('refused', 2);
    expect(faults.isPlatform('later', 0)).toBe(false);
    faults.record('later', 3);
    expect([faults.isPlatform('later', 0), faults.isPlatform('refused', 0)]).toEqual([true, true]);
    expect(faults.assetsWith('later')).toEqual([1, 3]);
    const two = world(2);
    two.record('later', 1);
    expect([two.isPlatform('later', 0), two.isPlatform('refused', 0)]).toEqual([false, false]);
    expect(two.isPlatform('later', 60_000)).toBe(false);
    expect(two.isPlatform('later', 60_001)).toBe(true);
    expect(world(0).isPlatform('later', 0)).toBe(false);
  });

  it('blames the platform for missing permissions if they affect at least half of the assets and at least three', () => {
    const faults = world(8);
    for (const asset of [1, 2, 3]) faults.record('no-access', asset);
    expect(faults.isPlatform('no-access', 0)).toBe(false);
    faults.record('no-access', 4);
    expect(faults.isPlatform('no-access', 0)).toBe(true);
    const few = world(2);
    few.record('no-access', 1);
    few.record('no-access', 2);
    expect(few.isPlatform('no-access', 0)).toBe(false);
    few.record('no-access', 3);
    expect(few.isPlatform('no-access', 0)).toBe(true);
  });

  it('clears a fault only after an accepted post that started later', () => {
    const faults = world(0);
    const before = faults.nextNumber();
    faults.record('later', 1);
    faults.record('later', 2);
    const { next } = faults;
    expect(faults.acceptedSince(before)).toBe(false);
    faults.accepted(3, before, 0);
    expect(faults.assetsWith('later')).toEqual([1, 2]);
    expect([faults.acceptedSince(before), faults.acceptedSince(next)]).toEqual([true, false]);
    faults.accepted(2, before, 0);
    expect(faults.assetsWith('later')).toEqual([1]);
    faults.accepted(3, faults.nextNumber(), 0);
    expect(faults.assetsWith('later')).toEqual([]);
    expect(faults.acceptedSince(next)).toBe(true);
  });

  it('treats an asset as the only active one if no other asset was recently active', () => {
    const faults = world(1);
    expect([faults.isAlone(1, 0), faults.isAlone(2, 0)]).toEqual([true, false]);
    faults.record('later', 2);
    expect(faults.isAlone(1, 0)).toBe(false);
    faults.setActiveMs(10);
    expect([faults.isAlone(2, 10), faults.isAlone(2, 11)]).toEqual([false, true]);
  });
});

describe('outage retry', () => {
  const FAILURE = { code: '503', reason: 'away' };

  it('backs off from 1 s to 55 s, measured from the start of the previous attempt', async () => {
    const clock = clockOf(1);
    const platform = new PlatformAvailability(clock);
    const waits: number[] = [];
    for (let attempt = 0; attempt < 8; attempt++) {
      const { nextTryAtMs } = platform.fail(FAILURE, clock.monotonicMs());
      waits.push(nextTryAtMs - clock.monotonicMs());
    }
    expect(waits).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 55_000, 55_000]);
    const startedMs = clock.monotonicMs();
    await clock.advance(60_000);
    expect(platform.fail(FAILURE, startedMs).nextTryAtMs).toBe(clock.monotonicMs() + 200);
  });

  it('respects the delay requested by the platform, up to 55 s', () => {
    const clock = clockOf(0);
    const platform = new PlatformAvailability(clock);
    const waitOf = (minMs: number) => platform.fail(FAILURE, 0, minMs).nextTryAtMs - clock.monotonicMs();
    expect([waitOf(0), waitOf(7_000), waitOf(600_000)]).toEqual([200, 7_000, 55_000]);
  });

  it('is attempted at least every 60 s, regardless of how long an attempt takes', () => {
    const clock = new ManualClock(0, 3);
    const platform = new PlatformAvailability(clock);
    for (let attempt = 0; attempt < 2_000; attempt++) {
      const startedMs = clock.monotonicMs() - clock.random() * 50_000;
      const { nextTryAtMs } = platform.fail(FAILURE, startedMs);
      expect(nextTryAtMs - startedMs).toBeLessThanOrEqual(60_000);
      expect(nextTryAtMs).toBeGreaterThan(clock.monotonicMs());
    }
  });

  it('for an exhausted quota backs off from minutes to one hour until a different failure occurs', () => {
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

  it('notifies listeners of outage end and duration, and retains the start time', async () => {
    const clock = clockOf(0);
    const platform = new PlatformAvailability(clock);
    const backs: number[] = [];
    const end = platform.onRestored((ms) => backs.push(ms));
    expect(platform.succeed()).toBeUndefined();
    platform.fail(FAILURE, 0, 0, 7);
    await clock.advance(5_000);
    platform.fail({ code: 'portal', reason: 'a page', isForeign: true }, 0, 0, 9);
    expect(platform.outage).toMatchObject({ sincePost: 7, attempts: 2, code: 'portal', isForeign: true });
    expect(platform.succeed()).toMatchObject({ attempts: 2 });
    expect([platform.outage, backs]).toEqual([undefined, [5_000]]);
    end();
    expect(platform.fail(FAILURE, 0)).toMatchObject({ attempts: 1, isForeign: false });
    platform.succeed();
    expect(backs).toEqual([5_000]);
  });

  it('is immediate after a sign-in, but for an exhausted quota only if requested by the operator', () => {
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

describe('effective post interval', () => {
  it('includes the longest delay from the previous one to two minutes', () => {
    const lag = new PostLag(10_000);
    expect(lag.intervalMs(0)).toBe(10_000);
    lag.note(3_000, 0);
    lag.note(2_000, 1);
    expect(lag.intervalMs(59_999)).toBe(13_000);
    expect(lag.intervalMs(60_000)).toBe(13_000);
    expect(lag.intervalMs(119_999)).toBe(13_000);
    expect(lag.intervalMs(120_000)).toBe(10_000);
    lag.note(9_000, 120_000);
    expect(lag.intervalMs(240_000)).toBe(10_000);
  });

  it('is reported when it increases by at least half and one second, and when it returns to normal', () => {
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

describe('asset schedule', () => {
  const deliveryOf = (asset: number, lane: 'live' | 'backlog', facts: Partial<BatchDelivery> = {}): BatchDelivery => ({
    name: `${lane} ${asset}`,
    asset,
    lane,
    kind: lane,
    probe: undefined,
    trial: false,
    phase: 'reading',
    slices: NO_SLICES,
    readySinceMs: 0,
    isRecalled: false,
    ...facts,
  });

  it('tracks the lanes that a delivery occupies until it ends', () => {
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

  it('counts deliveries in progress per lane and for failing assets, and waiting deliveries', () => {
    const schedule = new AssetSchedule(clockOf(1));
    expect([schedule.isPaying, schedule.hasTrial, schedule.ready()]).toEqual([false, false, []]);
    const waiting = deliveryOf(3, 'backlog', { phase: 'ready' });
    schedule.begin(waiting);
    schedule.begin(deliveryOf(2, 'backlog', { phase: 'posting' }));
    expect([schedule.isPaying, schedule.hasTrial]).toEqual([false, false]);
    schedule.begin(deliveryOf(1, 'live', { trial: true }));
    schedule.pause(1);
    schedule.pause(3);
    expect([schedule.isPaying, schedule.hasTrial]).toEqual([true, true]);
    expect(schedule.inProgress()).toEqual({ all: 2, backlog: 1, failing: 1, probes: 0 });
    expect(schedule.ready()).toEqual([waiting]);
  });

  it('pauses a failing asset for increasing periods until a post is accepted or the platform is at fault', async () => {
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

  it('tracks how long an asset has been due, excluding time spent waiting for its own posts', () => {
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

describe('post path', () => {
  const series = { get: (id: number) => (id === 7 ? { key: 'ph', group: 'process' } : undefined) };
  const values = new Map([['ph', { key: 'ph', group: 'process' }]]) as never;
  const tags = [{ asset: 1, instrumentation: 12, values }] as never;

  it('contains the asset and, if the path requires it, the instrumentation', () => {
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

  it('uses the tag’s instrumentation for a series without one, and is undefined without a tag', () => {
    const addresses = new PostAddresses(series, '/i/{instrumentation_id}/values', tags);
    expect(addresses.of({ asset: 1, series: [7] })?.instrumentation).toBe(12);
    expect(addresses.of({ asset: 1, series: [8] })).toBeUndefined();
    expect(addresses.of({ asset: 2, series: [7] })).toBeUndefined();
    expect(addresses.of({ asset: 1, series: [7, 7] })).toBeUndefined();
    addresses.replace('/i/{instrumentation_id}/values', []);
    expect(addresses.of({ asset: 1, series: [7] })).toBeUndefined();
  });
});

describe('paused series', () => {
  const refusal = { status: 400, message: 'no' } as never;

  it('is due after 15 minutes, or immediately on request or after a probe without a result', () => {
    const waits = new SeriesWaits();
    expect(waits.due(0)).toEqual([]);
    expect([waits.pause(1, 7, refusal, 0), waits.pause(1, 7, refusal, 60_000)]).toEqual([true, false]);
    waits.pause(2, 8, refusal, 60_000);
    expect(waits.list()).toMatchObject([{ series: 7, sinceMs: 0, nextTryAtMs: 960_000 }, { series: 8 }]);
    expect([waits.due(959_999).length, waits.due(960_000).length]).toEqual([0, 2]);
    waits.postpone(7, 960_000);
    expect(waits.due(960_000).map(({ series }) => series)).toEqual([8]);
    waits.makeDue(7, 961_000);
    expect(waits.due(961_000).map(({ series }) => series)).toEqual([7, 8]);
    expect(waits.list()[1]!.nextTryAtMs).toBe(960_000);
    waits.postpone(7, 961_000);
    waits.postpone(8, 961_000);
    waits.makeAllDue(962_000);
    expect(waits.due(962_000)).toHaveLength(2);
    expect(waits.ids()).toEqual([7, 8]);
  });

  it('counts individual rejections until a value is accepted or the count is reset', () => {
    const waits = new SeriesWaits();
    expect([waits.countRejection(7), waits.countRejection(7), waits.rejections(7), waits.rejections(8)]).toEqual([
      1, 2, 2, 0,
    ]);
    waits.resetCount(7);
    expect(waits.countRejection(7)).toBe(1);
    waits.pause(1, 7, refusal, 0);
    waits.resetCount(7);
    expect(waits.rejections(7)).toBe(1);
    expect(waits.accepted([6, 7])).toEqual([7]);
    expect([waits.rejections(7), waits.ids(), waits.accepted([7])]).toEqual([0, [], []]);
  });
});
