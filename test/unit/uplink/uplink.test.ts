import { afterEach, describe, expect, it } from 'vitest';
import { PlatformError } from '../../../src/base/errors.ts';
import type { UplinkOptions } from '../../../src/uplink/uplink.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { type Answering, DirectPlatform, Plant, type Posted, refusal, TAKEN } from './plant.ts';

/** Interval between requests at 60 per minute. The budget stays slightly below the limit. */
const PACE_MS = 62_000 / 60;

describe('uplink over several hours', () => {
  let clock: ManualClock;
  let platform: DirectPlatform;
  let plant: Plant;

  const begin = async (answering?: Answering, options: Partial<UplinkOptions> = {}, perMinute = 400, seed = 1) => {
    clock = new ManualClock(Date.UTC(2026, 10, 21), seed);
    platform = new DirectPlatform(clock, answering);
    plant = new Plant(clock, platform, { options, requestsPerMinute: perMinute });
    await plant.uplink.start();
  };

  /** Accepts a value per second for each asset. Values older than twice the interval become backlog. */
  const flow = async (seconds: number, assets: readonly number[], postIntervalMs = 10_000) => {
    for (let second = 0; second < seconds; second++) {
      for (const asset of assets) plant.accept(asset, asset);
      if (second % 5 === 0) plant.buffer.flush(clock.monotonicMs() - 2 * postIntervalMs);
      await clock.advance(1_000);
    }
  };

  const range = (count: number) => Array.from({ length: count }, (_, i) => i + 1);
  const posts = (which: (post: Posted & { status: number }) => boolean = () => true) =>
    platform.ledger.posts.filter(which);

  afterEach(async () => {
    const stopped = plant.uplink.stop(0);
    await clock.advance(1_000);
    await stopped;
    expect(plant.buffer.inProgress.size).toBe(0);
  });

  const bads: [string, Answering][] = [
    ['gets 400', (post) => (post.asset === 50 ? refusal() : TAKEN)],
    ['gets 500', (post) => (post.asset === 50 ? { status: 500 } : TAKEN)],
    ['gets 403', (post) => (post.asset === 50 ? { status: 403 } : TAKEN)],
    ['gets a connection reset', (post) => (post.asset === 50 ? undefined : TAKEN)],
    ['never gets a response', (post) => (post.asset === 50 ? new Promise(() => {}) : TAKEN)],
  ];
  /** Returns each of the other 99 assets' delivered values and longest time without a post. */
  const paceOfOthers = (startMs: number) => {
    const endMs = clock.monotonicMs();
    return range(100)
      .filter((asset) => asset !== 50)
      .map((asset) => {
        const times = [startMs, ...posts((post) => post.asset === asset).map((post) => post.atMs), endMs];
        return {
          delivered: platform.ledger.taken.filter((value) => value.asset === asset).length,
          longestGapMs: Math.max(...times.slice(1).map((atMs, i) => atMs - times[i]!)),
        };
      });
  };
  const hundred = async (answering?: Answering) => {
    await begin(answering, { postIntervalMs: 20_000 });
    const startMs = clock.monotonicMs();
    await flow(180, range(100), 20_000);
    return paceOfOthers(startMs);
  };
  it.each(bads)('does not delay 99 assets while one of 100 %s', async (_name, answering) => {
    // Same seed and values, on a platform that accepts everything.
    const control = await hundred();
    const stopped = plant.uplink.stop(0);
    await clock.advance(1_000);
    await stopped;
    const beside = await hundred(answering);
    for (const [i, { delivered, longestGapMs }] of beside.entries()) {
      // An asset's final post, with the values of one interval, may fall after the end of the run.
      expect(delivered).toBeGreaterThanOrEqual(control[i]!.delivered - 20);
      expect(longestGapMs).toBeLessThanOrEqual(control[i]!.longestGapMs + 5_000);
    }
    const sum = (of: typeof control) => of.reduce((all, { delivered }) => all + delivered, 0);
    expect(sum(beside)).toBeGreaterThan(0.99 * sum(control));
    expect(plant.uplink.snapshot().state).toBe('online');
  });

  it('retries an unavailable platform with one post at least every 60 s, and resumes within 75 s of its recovery', async () => {
    await begin();
    let away = true;
    const tries: number[] = [];
    platform.failing = () => {
      if (!away) return undefined;
      tries.push(clock.monotonicMs());
      return new PlatformError('no', { code: 'platform.connection_refused', retryable: true });
    };
    await flow(1_800, range(10));
    const late = tries.filter((at) => at > tries[0]! + 60_000);
    for (let i = 1; i < late.length; i++) expect(late[i]! - late[i - 1]!).toBeLessThanOrEqual(60_000);
    expect(tries.length).toBeLessThan(200);
    away = false;
    const returnedMs = clock.monotonicMs();
    await flow(90, range(10));
    expect(platform.ledger.posts[0]!.atMs - returnedMs).toBeLessThanOrEqual(60_000);
    expect(new Set(posts((post) => post.atMs - returnedMs <= 75_000).map((post) => post.asset)).size).toBe(10);
    await flow(240, range(10));
    expect(plant.buffer.waiting).toBeLessThan(10 * 40);
    expect(platform.ledger.numbers.size).toBe(platform.ledger.taken.length);
    expect(plant.counts.backs).toBe(1);
  });

  it('treats 500 for every asset as an outage without pausing any asset', async () => {
    let broken = true;
    await begin(() => (broken ? { status: 500 } : TAKEN));
    await flow(300, range(20));
    expect(plant.uplink.snapshot()).toMatchObject({ state: 'away', outage: { code: '500' } });
    expect(posts().length).toBeLessThan(60);
    broken = false;
    await flow(120, range(20));
    expect(plant.uplink.snapshot().state).toBe('online');
    expect(plant.uplink.snapshot().pausedAssets).toEqual([]);
  });

  it.each([1, 2, 5, 40])('quarantines nothing if every post for %d assets is rejected', async (count) => {
    let broken = true;
    await begin(() => (broken ? { status: 400, body: '<html>Bad request</html>' } : TAKEN));
    await flow(600, range(count));
    expect(plant.buffer.quarantined).toEqual([]);
    expect(plant.uplink.snapshot()).toMatchObject({ state: 'away', outage: { code: '400', reason: 'Bad request' } });
    broken = false;
    await flow(600, range(count));
    expect(plant.uplink.snapshot().state).toBe('online');
    expect(plant.buffer.quarantined).toEqual([]);
    expect(plant.buffer.waiting).toBeLessThan(count * 30);
    expect(plant.counts.delivered + plant.buffer.waiting).toBe(plant.accepted);
  });

  it.each([1, 2, 5, 30])(
    'isolates the invalid value in each of %d assets if no complete batch is accepted',
    async (count) => {
      const bad = new Set<number>();
      await begin((post) =>
        post.series.some(({ data }) => data.some((value) => bad.has(value.number))) ? refusal() : TAKEN,
      );
      for (const asset of range(count)) {
        plant.accept(asset, asset, 10);
        bad.add(plant.accept(asset, asset, 1)[0]!);
        plant.accept(asset, asset, 9);
      }
      await clock.advance(120_000);
      await flow(240, range(count));
      expect(new Set(plant.buffer.quarantined.map((one) => one.value.number))).toEqual(bad);
      expect(plant.uplink.snapshot().state).toBe('online');
      expect(plant.buffer.waiting).toBeLessThan(count * 30);
    },
  );

  it('quarantines an asset’s only invalid value after a later value is accepted', async () => {
    await begin((post) => (post.series[0]!.data.some((value) => value.number === 0) ? refusal() : TAKEN));
    plant.accept(1, 1);
    await clock.advance(120_000);
    expect(plant.buffer.quarantined).toEqual([]);
    plant.accept(1, 1);
    await clock.advance(120_000);
    expect(plant.buffer.quarantined.map((one) => one.value.number)).toEqual([0]);
    expect([...platform.ledger.numbers]).toEqual([1]);
  });

  it('quarantines an asset’s only value, which is invalid, while values of another asset are accepted', async () => {
    await begin((post) => (post.asset === 1 ? refusal() : TAKEN));
    await flow(30, [2]);
    const [bad] = plant.accept(1, 1);
    await flow(60, [2]);
    expect(plant.buffer.quarantined.map((one) => one.value.number)).toEqual([bad]);
    expect(posts((post) => post.asset === 1)).toHaveLength(2);
  });

  it.each([
    ['one of several', [1, 2]],
    ['the only one', [1]],
  ])('pauses a series after 8 individual rejections, on an asset that is %s', async (_name, assets) => {
    let broken = true;
    await begin((post) => (broken && post.series.some((one) => one.series === 99) ? refusal('unknown key') : TAKEN));
    plant.accept(1, 99, 300);
    await flow(120, assets);
    expect(plant.buffer.quarantined.length).toBeLessThanOrEqual(8);
    expect(plant.uplink.snapshot().waitingSeries).toMatchObject([{ series: 99, asset: 1, status: 400 }]);
    const before = posts().length;
    await flow(60, assets);
    expect(posts((post) => post.series.some((one) => one.series === 99)).length).toBeLessThan(60);
    expect(posts().length - before).toBeLessThanOrEqual(7 * assets.length);
    broken = false;
    await clock.advance(16 * 60_000);
    await flow(30, assets);
    expect(plant.uplink.snapshot().waitingSeries).toEqual([]);
    const taken = platform.ledger.taken.filter((value) => value.series === 99);
    expect(taken.length + plant.buffer.quarantined.length).toBe(300);
    expect(plant.buffer.quarantined.length).toBeLessThanOrEqual(8);
  });

  it('stays within the budget in any 60 s window, and alternates between assets if it is too small for all', async () => {
    await begin(undefined, {}, 60);
    await flow(600, range(100));
    const times = posts().map((post) => post.atMs);
    for (let i = 0; i + 60 < times.length; i++) expect(times[i + 60]! - times[i]!).toBeGreaterThanOrEqual(60_000);
    const counts = range(100).map((asset) => posts((post) => post.asset === asset).length);
    expect(Math.min(...counts)).toBeGreaterThanOrEqual(4);
    expect(Math.max(...counts)).toBeLessThanOrEqual(9);
    expect(plant.uplink.snapshot().intervalMs).toBeGreaterThan(60_000);
    expect(platform.ledger.taken.length).toBeGreaterThan(plant.accepted * 0.7);
  });

  it('pauses all posts after a 429 until the platform’s next minute plus at most 10 s', async () => {
    let limited = true;
    await begin(() => (limited ? { status: 429, headers: { date: new Date(clock.wallMs()).toUTCString() } } : TAKEN));
    await flow(45, range(10));
    const first = posts().length;
    expect(first).toBeLessThanOrEqual(4);
    limited = false;
    const refusedAtMs = posts().at(-1)!.atMs;
    await flow(60, range(10));
    const next = posts()[first]!;
    const toNextMinuteMs = 60_000 - ((refusedAtMs - 1_000) % 60_000);
    expect(next.atMs - refusedAtMs).toBeGreaterThanOrEqual(toNextMinuteMs);
    expect(next.atMs - refusedAtMs).toBeLessThanOrEqual(toNextMinuteMs + 11_500);
    expect(plant.uplink.snapshot().state).toBe('online');
  });

  it.each([4, 8])('isolates an invalid value although every %dth post for its asset gets 429', async (every) => {
    let tries = 0;
    const limited = { status: 429, headers: { 'retry-after': '1' } };
    await begin((post) => {
      if (post.asset !== 1) return TAKEN;
      if (++tries % every === 0) return limited;
      return post.series.some(({ data }) => data.some(({ number }) => number === 0)) ? refusal() : TAKEN;
    });
    plant.accept(1, 1, 1_000);
    await flow(120, [2, 3]);
    expect(platform.ledger.taken.filter((value) => value.asset === 1)).toHaveLength(999);
    expect(plant.buffer.quarantined.map((one) => one.value.number)).toEqual([0]);
    expect(posts((post) => post.asset === 1 && post.values > 500)).toHaveLength(1);
  });

  it('does not report a longer interval for an asset without values', async () => {
    await begin();
    // The values become backlog before the live lane posts them.
    platform.latencyMs = 30_000;
    for (const asset of range(4)) plant.accept(asset, asset);
    plant.accept(7, 7, 3);
    await clock.advance(25_000);
    plant.buffer.flush(clock.monotonicMs());
    platform.latencyMs = 20;
    await clock.advance(60_000);
    expect(plant.buffer.waiting).toBe(0);
    await clock.advance(3_600_000);
    plant.accept(7, 7, 3);
    await clock.advance(30_000);
    expect(plant.buffer.waiting).toBe(0);
    expect(plant.uplink.snapshot().intervalMs).toBeLessThan(15_000);
  });

  it('lengthens the pause while the quota is exhausted', async () => {
    await begin(() => ({ status: 402 }));
    await flow(60, [1]);
    for (let minute = 1; minute < 4 * 60; minute++) {
      plant.accept(1, 1);
      plant.buffer.flush(clock.monotonicMs() - 20_000);
      await clock.advance(60_000);
    }
    const times = posts().map((post) => post.atMs);
    expect(times.length).toBeLessThan(20);
    expect(times.at(-1)! - times.at(-2)!).toBeGreaterThanOrEqual(1_800_000);
    expect(plant.uplink.snapshot().outage?.code).toBe('402');
    expect(plant.buffer.waiting).toBe(plant.accepted);
  });

  it('treats 404 for every asset as an outage, and restores all assets within 75 s', async () => {
    let broken = true;
    await begin(() => (broken ? { status: 404 } : TAKEN));
    await flow(400, range(30));
    expect(plant.holds.heldCount()).toBeGreaterThanOrEqual(3);
    expect(plant.uplink.snapshot().state).toBe('away');
    broken = false;
    await flow(75, range(30));
    expect(plant.holds.heldCount()).toBe(0);
    await flow(30, range(30));
    expect(new Set(platform.ledger.taken.map((value) => value.asset)).size).toBe(30);
  });

  it('treats 404 for three of six assets as an outage once, and probes each of them immediately afterwards', async () => {
    let broken = false;
    await begin((post) => (broken && post.asset <= 3 ? { status: 404 } : TAKEN), {}, 0);
    await flow(30, range(6));
    broken = true;
    const startMs = clock.monotonicMs();
    await flow(110, range(6));
    expect(plant.logged.filter(({ event }) => event === 'uplink.none_visible')).toHaveLength(1);
    const denied = posts((post) => post.status === 404);
    for (const asset of [1, 2, 3]) expect(denied.filter((post) => post.asset === asset)).toHaveLength(2);
    expect(denied.at(-1)!.atMs - startMs).toBeLessThan(60_000);
    const taken = platform.ledger.taken.filter((value) => value.asset > 3);
    expect(taken.length).toBeGreaterThanOrEqual(3 * 120);
    await flow(300, range(6));
    expect(plant.logged.filter(({ event }) => event === 'uplink.none_visible')).toHaveLength(1);
  });

  it('probes a held asset every two minutes, and releases it after an accepted post', async () => {
    let forbidden = true;
    await begin((post) => (forbidden && post.asset === 1 ? { status: 404 } : TAKEN));
    await flow(600, [1, 2]);
    const tries = posts((post) => post.asset === 1);
    expect(tries.length).toBeGreaterThanOrEqual(4);
    expect(tries.length).toBeLessThanOrEqual(6);
    expect(Math.max(...tries.slice(1).map((post) => post.values))).toBeLessThanOrEqual(50);
    forbidden = false;
    await flow(150, [1, 2]);
    expect(plant.holds.isHeld(1)).toBe(false);
    expect(platform.ledger.taken.filter((value) => value.asset === 1).length).toBeGreaterThan(700);
  });

  it('posts live values on time while a backlog drains, oldest first', async () => {
    await begin(undefined, { postMaxValues: 500 }, 60);
    for (const asset of [1, 2, 3, 4]) plant.accept(asset, asset, 5_000, () => clock.wallMs() - 3_600_000);
    plant.buffer.flush(clock.monotonicMs() + 1);
    const backlogEnd = plant.accepted;
    const monotonicOfWallMs = clock.monotonicMs() - clock.wallMs();
    const toMonotonic = ({ timeMs }: { timeMs: number }) => timeMs + monotonicOfWallMs;
    await flow(120, range(9));
    // Nine assets that start together share the first turn at the rate of the budget, of which the live lane uses four
    // fifths. Later values are posted within their interval plus two other posts and one backlog post.
    const firstTurnMs = 10_000 + (9 * PACE_MS) / 0.8;
    const laterMs = 10_000 + 3 * PACE_MS;
    const served = new Set<number>();
    for (const { asset, series, atMs } of posts()) {
      const acceptedMs = series
        .flatMap(({ data }) => data.filter((value) => value.number >= backlogEnd))
        .map(toMonotonic);
      if (acceptedMs.length === 0) continue;
      expect(atMs - Math.min(...acceptedMs)).toBeLessThanOrEqual(served.has(asset) ? laterMs : firstTurnMs);
      served.add(asset);
    }
    // Only newer values are still in the buffer. Nine values per second were accepted, in this order.
    const dueCount = 9 * Math.floor((120_000 - laterMs) / 1_000);
    const taken = platform.ledger.numbers;
    const left = range(dueCount).filter((n) => !taken.has(backlogEnd + n - 1));
    expect(left).toEqual([]);
    expect(platform.ledger.taken.filter((value) => value.number < backlogEnd)).toHaveLength(20_000);
    for (const asset of [1, 2, 3, 4]) {
      const old = platform.ledger.taken.filter((value) => value.asset === asset && value.number < backlogEnd);
      expect(old.map((value) => value.number)).toEqual(old.map((value) => value.number).sort((a, b) => a - b));
    }
  });

  it('reserves a fifth of scarce requests for the backlog', async () => {
    await begin(undefined, { postMaxValues: 100 }, 60);
    // Assets 51 to 60 have only a backlog. Live posts alone could use every request.
    for (let asset = 51; asset <= 60; asset++) plant.accept(asset, asset, 2_000);
    plant.buffer.flush(clock.monotonicMs() + 1);
    await flow(300, range(50));
    const backlog = posts((post) => post.asset > 50).length;
    expect(backlog / posts().length).toBeGreaterThan(0.15);
    expect(backlog / posts().length).toBeLessThan(0.3);
  });

  it('drains an asset’s backlog before its live values if the order is oldest-first', async () => {
    await begin(undefined, { postMaxValues: 500, drainOrder: 'oldest-first' }, 60);
    plant.accept(1, 1, 20_000, () => clock.wallMs() - 3_600_000);
    plant.buffer.flush(clock.monotonicMs() + 1);
    await flow(120, [1, 2]);
    const numbers = platform.ledger.taken.filter((value) => value.asset === 1).map((value) => value.number);
    expect(numbers.length).toBeGreaterThan(20_000);
    expect(numbers).toEqual([...numbers].sort((a, b) => a - b));
  });

  it('drains the backlog at up to BACKFILL_VALUES_PER_SECOND', async () => {
    await begin(undefined, { backfillValuesPerSecond: 50 });
    plant.accept(1, 1, 20_000, () => clock.wallMs() - 3_600_000);
    plant.buffer.flush(clock.monotonicMs() + 1);
    await flow(200, [1, 2]);
    const old = platform.ledger.taken.filter((value) => value.number < 20_000).length;
    expect(old).toBeGreaterThan(8_000);
    expect(old).toBeLessThanOrEqual(200 * 50);
    expect(posts().length).toBeLessThan(90);
  });

  it('counts every backlog value towards the backfill rate when several posts are planned at a time', async () => {
    const perSecond = 100;
    await begin(undefined, { backfillValuesPerSecond: perSecond, concurrency: 8 }, 0);
    for (const asset of range(20)) plant.accept(asset, asset, 2_000, () => clock.wallMs() - 3_600_000);
    plant.buffer.flush(clock.monotonicMs() + 1);
    const startMs = clock.monotonicMs();
    for (let step = 0; step < 300; step++) {
      await clock.advance(100);
      const seconds = (clock.monotonicMs() - startMs) / 1000;
      expect(platform.ledger.taken.length).toBeLessThanOrEqual(perSecond * seconds + 1);
    }
    expect(platform.ledger.taken.length).toBeGreaterThan(perSecond * 10);
  });

  it('never exceeds POST_CONCURRENCY or one post per lane and asset', async () => {
    await begin(undefined, { concurrency: 3 }, 0);
    platform.latencyMs = 3_000;
    await flow(100, range(30));
    expect(platform.mostInFlight).toBe(3);
    expect(platform.ledger.numbers.size).toBe(platform.ledger.taken.length);
  });

  it('retries immediately when a session becomes available', async () => {
    await begin();
    let session = false;
    platform.failing = () =>
      session ? undefined : new PlatformError('no', { code: 'platform.no_session', retryable: true });
    await flow(600, [1, 2]);
    session = true;
    plant.uplink.tryNow();
    await clock.advance(200);
    expect(plant.uplink.snapshot().state).toBe('online');
  });
});
