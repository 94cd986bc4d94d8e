import { afterEach, describe, expect, it } from 'vitest';
import { ManualClock } from '../doubles/manual-clock.ts';
import { type Answering, DirectPlatform, Plant, refusal, TAKEN } from './plant.ts';

/** What the night shift reads of the uplink: the right words, and one line for one cause. */
describe('the log of the uplink', () => {
  let clock: ManualClock;
  let plant: Plant;

  const begin = async (answering: Answering) => {
    clock = new ManualClock(Date.UTC(2026, 10, 21), 1);
    plant = new Plant(clock, new DirectPlatform(clock, answering), {}, 0);
    await plant.uplink.start();
  };
  const logged = (event: string) => plant.logged.filter((line) => line.event === event);

  afterEach(async () => {
    const stopped = plant.uplink.stop(0);
    await clock.advance(1_000);
    await stopped;
  });

  it.each<[string, Answering, RegExp]>([
    ['the platform is away', () => ({ status: 503 }), /^the platform is away:/],
    ['the connection breaks', () => undefined, /^the platform is away:/],
    [
      'a portal answers',
      () => ({ status: 200, body: '<html>sign in</html>' }),
      /^something answers in the platform's place/,
    ],
    ['there is no session', () => ({ status: 401 }), /^there is no session/],
    ['no asset is to be seen', () => ({ status: 404 }), /^the platform shows this user no asset/],
    ['everything is refused', () => refusal(), /^the platform refuses whatever is posted/],
  ])('says why nothing is posted when %s, and away only when it is', async (_name, answering, words) => {
    let broken = true;
    await begin((post) => (broken ? answering(post) : TAKEN));
    for (const asset of [1, 2, 3]) plant.accept(asset, asset);
    await clock.advance(240_000);
    const said = logged('uplink.away');
    expect(said.length).toBeGreaterThan(0);
    for (const { msg } of said) expect(msg).toMatch(words);
    broken = false;
    plant.uplink.tryNowOnRequest();
    for (const asset of [1, 2, 3, 4]) plant.accept(asset, asset);
    await clock.advance(240_000);
    expect(logged('uplink.back').map(({ msg }) => msg)).toEqual(['the platform takes values again']);
  });

  it('says once what is wrong with an asset, however many of its keys wait for it', async () => {
    const isBad = (series: number) => series >= 100;
    await begin((post) => (post.series.some(({ series }) => isBad(series)) ? refusal('unknown unit') : TAKEN));
    for (let series = 100; series < 130; series++) plant.accept(1, series, 12);
    for (let second = 0; second < 600; second++) {
      plant.accept(2, 2);
      plant.accept(1, 1);
      await clock.advance(1_000);
    }
    expect(plant.uplink.snapshot().waitingSeries).toHaveLength(30);
    // 1, 2, 4, 8, 16 of thirty.
    expect(logged('uplink.series_waits').map(({ count }) => count)).toEqual([1, 2, 4, 8, 16]);
    expect(logged('uplink.quarantined').length).toBeLessThan(12);
  });
});
