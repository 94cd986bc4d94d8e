import { afterEach, describe, expect, it } from 'vitest';
import { ManualClock } from '../doubles/manual-clock.ts';
import { type Answering, DirectPlatform, OPTIONS, Plant, refusal, TAKEN } from './plant.ts';

describe('uplink log', () => {
  let clock: ManualClock;
  let plant: Plant;

  const begin = async (answering: Answering, level?: 'debug', seed = 1, perMinute = 0) => {
    clock = new ManualClock(Date.UTC(2026, 10, 21), seed);
    plant = new Plant(clock, new DirectPlatform(clock, answering), {}, perMinute, undefined, undefined, level);
    await plant.uplink.start();
  };
  const logged = (event: string) => plant.logged.filter((line) => line.event === event);

  afterEach(async () => {
    const stopped = plant.uplink.stop(0);
    await clock.advance(1_000);
    await stopped;
  });

  it.each<[string, Answering, string]>([
    ['the platform is unavailable', () => ({ status: 503 }), 'away'],
    ['connections break', () => undefined, 'away'],
    ['a portal responds', () => ({ status: 200, body: '<html>sign in</html>' }), 'away'],
    ['the session is invalid', () => ({ status: 401 }), 'signed_out'],
    ['no asset is visible', () => ({ status: 404 }), 'none_visible'],
    ['every post is rejected', () => refusal(), 'all_refused'],
  ])('reports the reason if no posts are accepted because %s', async (_name, answering, event) => {
    let broken = true;
    await begin((post) => (broken ? answering(post) : TAKEN));
    for (const asset of [1, 2, 3]) plant.accept(asset, asset);
    await clock.advance(240_000);
    const said = logged(`uplink.${event}`);
    for (const other of ['away', 'signed_out', 'none_visible', 'all_refused']) {
      if (other !== event) expect(logged(`uplink.${other}`)).toEqual([]);
    }
    expect(said.length).toBeGreaterThan(0);
    broken = false;
    plant.uplink.tryNowOnRequest();
    for (const asset of [1, 2, 3, 4]) plant.accept(asset, asset);
    await clock.advance(240_000);
    expect(logged('uplink.back')).toHaveLength(1);
  });

  it('reports a second outage immediately, even if an earlier outage was reported', async () => {
    let broken = true;
    await begin(() => (broken ? { status: 503 } : TAKEN));
    for (const turn of [1, 2, 3]) {
      broken = true;
      plant.accept(1, 1);
      await clock.advance(60_000);
      const said = logged('uplink.away').slice(-1000);
      expect(said.filter(({ attempts }) => attempts === 1)).toMatchObject(Array(turn).fill({ level: 40, count: 1 }));
      broken = false;
      plant.uplink.tryNowOnRequest();
      await clock.advance(60_000);
      expect(logged('uplink.back')).toHaveLength(turn);
    }
  });

  it('does not report an outage if all values of the only asset are rejected', async () => {
    let broken = true;
    await begin(() => (broken ? refusal('unknown unit') : TAKEN));
    for (let series = 0; series < 5; series++) plant.accept(1, series, 12);
    await clock.advance(600_000);
    expect(logged('uplink.away')).toEqual([]);
    expect(logged('uplink.all_refused').length).toBeGreaterThan(0);
    expect(logged('uplink.all_refused')[0]).toMatchObject({ code: expect.stringContaining('400') });
    broken = false;
    plant.uplink.tryNowOnRequest();
    await clock.advance(240_000);
    expect(logged('uplink.back').length).toBe(1);
  });

  it('reports once when the post interval is exceeded and once when it is restored', async () => {
    await begin(() => TAKEN, undefined, 1, 30);
    const flow = async (seconds: number, assets: number) => {
      for (let second = 0; second < seconds; second++) {
        for (let asset = 1; asset <= assets; asset++) plant.accept(asset, asset);
        await clock.advance(1_000);
      }
    };
    await flow(120, 2);
    expect(logged('uplink.interval_lengthened')).toEqual([]);
    await flow(300, 60);
    expect(logged('uplink.interval_lengthened')).toMatchObject([{ level: 40, configuredMs: OPTIONS.postIntervalMs }]);
    expect(logged('uplink.interval_lengthened')[0]!.intervalMs).toBeGreaterThan(OPTIONS.postIntervalMs);
    expect(logged('uplink.interval_normal')).toEqual([]);
    await flow(600, 2);
    expect(logged('uplink.interval_normal')).toMatchObject([{ level: 30, configuredMs: OPTIONS.postIntervalMs }]);
    expect(logged('uplink.interval_lengthened')).toHaveLength(1);
  });

  it.each([1, 2, 3, 4, 5])(
    'reports the duration of a rate-limit pause once if four posts return 429, seed %d',
    async (seed) => {
      let limited = true;
      await begin(() => (limited ? { status: 429 } : TAKEN), 'debug', seed);
      for (let asset = 1; asset <= 4; asset++) plant.accept(asset, asset);
      for (let second = 0; logged('uplink.rest').length < 4; second++) {
        expect(second).toBeLessThan(60);
        await clock.advance(1_000);
      }
      limited = false;
      const rests = logged('uplink.rest');
      await clock.advance(90_000);
      const next = logged('uplink.posted').find(({ meaning }) => meaning === 'delivered');
      // The final line contains the end of the longest pause.
      const { waitMs, atMs } = rests.at(-1) as unknown as { waitMs: number; atMs: number };
      const startedMs = (next!.atMs as number) - (next!.tookMs as number);
      expect(startedMs - atMs).toBeGreaterThanOrEqual(waitMs - 1);
      expect(startedMs - atMs).toBeLessThan(waitMs + 300);
      expect(Math.max(...rests.map((rest) => rest.waitMs as number))).toBe(waitMs);
    },
  );

  it('reports a rejection once per asset, regardless of the number of affected keys', async () => {
    const isBad = (series: number) => series >= 100;
    await begin((post) => (post.series.some(({ series }) => isBad(series)) ? refusal('unknown unit') : TAKEN));
    for (let series = 100; series < 160; series++) plant.accept(1, series, 12);
    for (let second = 0; second < 600; second++) {
      plant.accept(2, 2);
      plant.accept(1, 1);
      await clock.advance(1_000);
    }
    expect(plant.uplink.snapshot().waitingIds).toHaveLength(60);
    expect(plant.uplink.snapshot().waitingSeries).toHaveLength(50);
    expect(logged('uplink.series_waits').map(({ count }) => count)).toEqual([1, 2, 4, 8, 16, 32]);
    expect(logged('uplink.quarantined').length).toBeLessThan(14);
  });
});
