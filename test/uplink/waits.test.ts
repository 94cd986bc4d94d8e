/** How long things wait, each to the millisecond: series that are refused, the backlog for its rate, everybody for the platform. */
import { describe, expect, it } from 'vitest';
import { BackfillRate } from '../../src/uplink/backfill-rate.ts';
import { PlatformAvailability } from '../../src/uplink/platform-availability.ts';
import { SeriesWaits } from '../../src/uplink/series-waits.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const QUARTER_MS = 15 * 60_000;

describe('series that wait', () => {
  const unit = { status: 400, message: 'no such unit' };
  const key = { status: 422, message: 'no such key' };

  it('are known with their asset, the last refusal, since when, and when they are tried next', () => {
    const waits = new SeriesWaits();
    const whole = () => [waits.list(), waits.ids()];
    expect(whole()).toEqual([[], []]);
    expect(waits.hold(1, 7, unit, 1_000)).toBe(true);
    expect(waits.hold(2, 8, unit, 2_000)).toBe(true);
    expect(waits.hold(1, 7, key, 5_000)).toBe(false);
    const seven = { series: 7, asset: 1, refusal: key, sinceMs: 1_000, nextTryAtMs: 5_000 + QUARTER_MS };
    const eight = { series: 8, asset: 2, refusal: unit, sinceMs: 2_000, nextTryAtMs: 2_000 + QUARTER_MS };
    expect(whole()).toEqual([
      [seven, eight],
      [7, 8],
    ]);
    expect([waits.taken([6, 8]), ...whole()]).toEqual([[8], [seven], [7]]);
    // What waits again waits from now.
    expect(waits.hold(2, 8, key, 9_000)).toBe(true);
    expect(waits.list()[1]).toEqual({ ...eight, refusal: key, sinceMs: 9_000, nextTryAtMs: 9_000 + QUARTER_MS });
  });

  it('are due from that moment on, in the order in which they began to wait', () => {
    const waits = new SeriesWaits();
    const due = (nowMs: number) => waits.due(nowMs).map(({ series }) => series);
    waits.hold(1, 7, unit, 1_000);
    waits.hold(2, 8, unit, 1_001);
    const atMs = 1_000 + QUARTER_MS;
    expect([atMs - 1, atMs, atMs + 1].map(due)).toEqual([[], [7], [7, 8]]);
    expect(waits.due(atMs)).toEqual([waits.list()[0]]);
  });

  it('wait a quarter of an hour from when they are tried, no longer than before where the try came to nothing', () => {
    const waits = new SeriesWaits();
    const next = () => waits.list().map(({ nextTryAtMs }) => nextTryAtMs);
    waits.hold(1, 7, unit, 0);
    waits.hold(1, 8, unit, 5);
    const steps: [() => void, number[]][] = [
      [() => waits.putOff(7, 100), [100 + QUARTER_MS, 5 + QUARTER_MS]],
      [() => waits.putBack(7, 200), [200, 5 + QUARTER_MS]],
      [() => waits.putBack(7, 300), [200, 5 + QUARTER_MS]],
      [() => waits.putBack(8, QUARTER_MS + 4), [200, QUARTER_MS + 4]],
      [() => waits.putOff(8, 400), [200, 400 + QUARTER_MS]],
      [() => waits.tryAll(500), [200, 500]],
      [() => waits.tryAll(600), [200, 500]],
    ];
    for (const [step, after] of steps) {
      step();
      expect(next()).toEqual(after);
    }
  });

  it('are those alone that were refused too often: of others nothing is put off or back', () => {
    const waits = new SeriesWaits();
    waits.refusedAlone(9);
    waits.putOff(9, 100);
    waits.putBack(9, 100);
    waits.tryAll(100);
    expect([waits.list(), waits.due(1e9), waits.taken([9])]).toEqual([[], [], []]);
  });

  it('keep what was counted against them until something is taken; others forget it when it was an outage', () => {
    const waits = new SeriesWaits();
    const counts = () => [7, 8, 9].map((series) => waits.loneRefusals(series));
    expect([7, 7, 8, 7].map((series) => waits.refusedAlone(series))).toEqual([1, 2, 1, 3]);
    waits.hold(1, 7, unit, 0);
    expect(counts()).toEqual([3, 1, 0]);
    for (const series of [7, 8, 9]) waits.forget(series);
    expect(counts()).toEqual([3, 0, 0]);
    waits.refusedAlone(8);
    expect([waits.taken([8, 9]), counts()]).toEqual([[], [3, 0, 0]]);
    expect([waits.taken([7]), counts()]).toEqual([[7], [0, 0, 0]]);
  });
});

describe('the rate of the backlog', () => {
  /** What may be taken now, and in how many milliseconds so many. */
  const whole = (rate: BackfillRate, nowMs: number) => [
    rate.available(nowMs),
    ...[0, 1, 100, 1_000, 9_000].map((values) => rate.availableAtMs(values, nowMs) - nowMs),
  ];

  it('is saved up from the start, to what an interval brings, and spent as it is taken', () => {
    const rate = new BackfillRate(100, 10_000, 5_000, 50_000);
    const at = (ms: number) => whole(rate, 50_000 + ms);
    expect(at(0)).toEqual([0, 0, 10, 1_000, 10_000, 10_000]);
    expect(at(9)).toEqual([0, 0, 1, 991, 9_991, 9_991]);
    expect(at(10)).toEqual([1, 0, 0, 990, 9_990, 9_990]);
    expect(at(9_999)).toEqual([999, 0, 0, 0, 1, 1]);
    expect(at(10_000)).toEqual([1_000, 0, 0, 0, 0, 0]);
    expect(at(90_000)).toEqual([1_000, 0, 0, 0, 0, 0]);
    rate.spend(950);
    expect(at(90_000)).toEqual([50, 0, 0, 500, 9_500, 9_500]);
    // More than there is: the rest is owed.
    rate.spend(150);
    expect(at(90_000)).toEqual([0, 0, 1_010, 2_000, 11_000, 11_000]);
    rate.spend(-100);
    expect(at(90_000)).toEqual([0, 0, 10, 1_000, 10_000, 10_000]);
    // A clock that was read a moment earlier takes nothing away.
    expect(at(91_000)[0]).toBe(100);
    expect(rate.available(50_000 + 90_500)).toBe(100);
  });

  it('has no wait that a timer would take for none', () => {
    const rate = new BackfillRate(100_000, 10_000, 5_000, 0);
    rate.available(10);
    rate.spend(999.5);
    expect(rate.availableAtMs(1, 10)).toBe(11);
  });

  it('is at 0 no limit at all', () => {
    const rate = new BackfillRate(0, 10_000, 5_000, 0);
    expect(whole(rate, 5)).toEqual([Number.POSITIVE_INFINITY, 0, 0, 0, 0, 0]);
    expect(rate.capacity).toBe(Number.POSITIVE_INFINITY);
    // What was spent without one is not owed when there is one.
    rate.spend(5_000);
    rate.setRate(100, 10_000, 5_000);
    expect(whole(rate, 10)).toEqual([1, 0, 0, 990, 9_990, 9_990]);
  });

  it('keeps of what is saved up what fits when it is set anew, and goes on at the new pace', () => {
    const rate = new BackfillRate(100, 10_000, 5_000, 0);
    rate.available(6_000);
    rate.setRate(200, 10_000, 5_000);
    expect(whole(rate, 6_000)).toEqual([600, 0, 0, 0, 2_000, 7_000]);
    rate.setRate(10, 10_000, 5_000);
    expect(whole(rate, 6_000)).toEqual([100, 0, 0, 0, 0, 0]);
    rate.setRate(0, 10_000, 5_000);
    expect([rate.isLimited, rate.available(6_000)]).toEqual([false, Number.POSITIVE_INFINITY]);
  });
});

describe('an outage', () => {
  const FAILURE = { code: '503', words: 'busy' };
  const begin = (random: number) => {
    const clock = new ManualClock();
    clock.random = () => random;
    return { clock, platform: new PlatformAvailability(clock), startMs: clock.monotonicMs() };
  };

  it('is known with where it began, the last failure, how many tries failed, and when the next is', async () => {
    const { clock, platform, startMs } = begin(1);
    const first = { sinceMs: startMs, sincePost: 0, ...FAILURE, isForeign: false, attempts: 1 };
    expect(platform.fail(FAILURE, startMs)).toEqual({ ...first, nextTryAtMs: startMs + 1_000 });
    await clock.advance(1_500);
    const portal = { code: '200', words: 'sign in', isForeign: true };
    const second = { ...first, ...portal, attempts: 2 };
    expect(platform.fail(portal, startMs + 1_000, 0, 7)).toEqual({ ...second, nextTryAtMs: startMs + 3_000 });
    expect(platform.outage).toEqual({ ...second, nextTryAtMs: startMs + 3_000 });
    await clock.advance(500);
    const third = { ...first, code: '402', words: 'spent', attempts: 3 };
    const quota = platform.failQuota({ code: '402', words: 'spent' }, 9);
    expect(quota).toEqual({ ...third, nextTryAtMs: startMs + 2_000 + 60_000 });
    expect(platform.succeed()).toEqual({ ...third, nextTryAtMs: startMs + 2_000 + 60_000 });
    expect([platform.outage, platform.succeed()]).toEqual([undefined, undefined]);
    // The next begins anew, at the post that it began with.
    const later = { sinceMs: startMs + 2_000, sincePost: 9, ...FAILURE, isForeign: false, attempts: 1 };
    expect(platform.fail(FAILURE, clock.monotonicMs(), 0, 9)).toEqual({ ...later, nextTryAtMs: startMs + 3_000 });
    platform.succeed();
    const ended = platform.failQuota(FAILURE, 4);
    expect(ended).toEqual({ ...later, sincePost: 4, nextTryAtMs: startMs + 62_000 });
  });

  it.each([
    // Chance, how long the try took, what was asked, then the wait from its end.
    [0, 0, 0, 200],
    [0, 0, 199, 200],
    [0, 0, 201, 201],
    [0.5, 0, 0, 500],
    [0.5, 0, 501, 501],
    [0.5, 299, 0, 201],
    [0.5, 301, 0, 200],
    [1, 0, 0, 1_000],
    [1, 0, 54_999, 54_999],
    [1, 0, 55_001, 55_000],
  ])(
    'of which chance says %d, after %d ms and asked for %d, is tried again in %d',
    async (random, tookMs, askedMs, waitMs) => {
      const { clock, platform, startMs } = begin(random);
      await clock.advance(tookMs);
      expect(platform.fail(FAILURE, startMs, askedMs).nextTryAtMs - clock.monotonicMs()).toBe(waitMs);
    },
  );

  it('that is a spent quota is waited out from a minute on, doubling, and from a minute again once anything else was met', () => {
    const { clock, platform } = begin(0.5);
    const wait = () => platform.failQuota(FAILURE).nextTryAtMs - clock.monotonicMs();
    expect([wait(), wait(), wait()]).toEqual([45_000, 90_000, 180_000]);
    platform.fail(FAILURE, 0);
    expect([wait(), wait()]).toEqual([45_000, 90_000]);
    platform.succeed();
    expect(wait()).toBe(45_000);
    for (let turn = 0; turn < 20; turn++) wait();
    expect(wait()).toBe(2_700_000);
  });

  it('ends for everyone who listens, once, with how long it was', async () => {
    const { clock, platform } = begin(0);
    const heard: [string, number][] = [];
    const end = platform.onBack((ms) => heard.push(['one', ms]));
    platform.onBack((ms) => heard.push(['other', ms]));
    platform.fail(FAILURE, 0);
    await clock.advance(1_234);
    platform.fail(FAILURE, 0);
    await clock.advance(1);
    platform.succeed();
    platform.succeed();
    expect(heard).toEqual([
      ['one', 1_235],
      ['other', 1_235],
    ]);
    end();
    platform.fail(FAILURE, 0);
    platform.succeed();
    expect(heard.slice(2)).toEqual([['other', 0]]);
  });

  it('is tried now where there is a session again, and a spent quota where a person says so', async () => {
    const { clock, platform } = begin(1);
    const wait = () => platform.outage!.nextTryAtMs - clock.monotonicMs();
    platform.tryNow('person');
    expect(platform.outage).toBeUndefined();
    platform.fail(FAILURE, clock.monotonicMs());
    platform.tryNow();
    expect(wait()).toBe(0);
    platform.failQuota(FAILURE);
    await clock.advance(5_000);
    platform.tryNow('session');
    expect(wait()).toBe(55_000);
    platform.tryNow('person');
    expect(wait()).toBe(0);
    // Anything else than a spent quota is met: a session is enough again.
    platform.fail(FAILURE, clock.monotonicMs());
    platform.tryNow('session');
    expect(wait()).toBe(0);
  });
});
