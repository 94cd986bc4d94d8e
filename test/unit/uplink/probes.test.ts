import { afterEach, describe, expect, it } from 'vitest';
import { Holds } from '../../../src/access/holds.ts';
import { PlatformError } from '../../../src/base/errors.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import type { UplinkOptions } from '../../../src/uplink/uplink.ts';
import { tag } from '../access/plant.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { type Answering, DirectPlatform, Plant, refusal, TAKEN } from './plant.ts';

describe('access probes under load', () => {
  let clock: ManualClock;
  let platform: DirectPlatform;
  let plant: Plant;
  let holds: Holds;

  const range = (from: number, count: number) => Array.from({ length: count }, (_, i) => from + i);
  const LOAD = range(1, 60);

  const begin = async (
    answering: Answering,
    perMinute: number,
    options: Partial<UplinkOptions> = {},
    tags = [] as ReturnType<typeof tag>[],
  ) => {
    clock = new ManualClock(Date.UTC(2026, 10, 21), 1);
    platform = new DirectPlatform(clock, answering);
    const series = {
      // The id of a series is its key.
      ofAsset: (asset: number) =>
        tags
          .filter((one) => one.asset === asset)
          .flatMap((one) => [...one.values.keys()].map((key) => ({ id: Number(key), asset, key, group: undefined }))),
      ofInstrumentation: () => [],
      size: 0,
    };
    const store = { load: async () => ({ objects: [], refusals: [], damaged: 0, cursor: 0 }), save: async () => {} };
    const logger = silentLogger();
    holds = new Holds({
      store,
      tags,
      series,
      clock,
      logger,
    });
    await holds.start();
    plant = new Plant(clock, platform, options, perMinute, undefined, holds);
    await plant.uplink.start();
  };

  const flow = async (seconds: number, assets: readonly number[]) => {
    for (let second = 0; second < seconds; second++) {
      for (const asset of assets) plant.accept(asset, asset);
      if (second % 5 === 0) plant.buffer.flush(clock.monotonicMs() - 20_000);
      await clock.advance(1_000);
    }
  };

  const postsOf = (assets: readonly number[]) => platform.ledger.posts.filter((post) => assets.includes(post.asset));

  afterEach(async () => {
    const stopped = plant.uplink.stop(0);
    await clock.advance(1_000);
    await stopped;
    expect(plant.buffer.inProgress.size).toBe(0);
  });

  it('are sent every two minutes for an asset rejected with 403, until a post is accepted', async () => {
    let forbidden = true;
    await begin((post) => (forbidden && post.asset === 99 ? { status: 403 } : TAKEN), 30);
    await flow(900, [...LOAD, 99]);
    const tries = postsOf([99]);
    expect(tries.length).toBeGreaterThanOrEqual(6);
    expect(tries.length).toBeLessThanOrEqual(8);
    expect(holds.list()[0]).toMatchObject({ id: 99, cause: 'answered_403' });
    const lastTryMs = tries.at(-1)!.atMs - clock.monotonicMs() + clock.wallMs();
    expect(Math.abs(Date.parse(holds.list()[0]!.last_probe!) - lastTryMs)).toBeLessThan(1_000);
    forbidden = false;
    await flow(150, LOAD);
    expect(holds.heldCount()).toBe(0);
  });

  it('cover many held assets in turn, within one tenth of the budget', async () => {
    const held = range(101, 12);
    await begin((post) => (held.includes(post.asset) ? { status: 404 } : TAKEN), 60);
    await flow(60, [...LOAD, ...held]);
    for (const asset of held) if (!holds.isHeld(asset)) await holds.refused(asset, 404);
    platform.ledger.posts.length = 0;
    await flow(1_200, [...LOAD, ...held]);
    const counts = held.map((asset) => postsOf([asset]).length);
    expect(Math.min(...counts)).toBeGreaterThanOrEqual(7);
    expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(1);
    expect(postsOf(held).length / platform.ledger.posts.length).toBeLessThanOrEqual(0.11);
  });

  it('test an instrumentation through any of its assets with values, without blocking other instrumentations', async () => {
    const tags = [tag('A', 201, 4711, '1001'), tag('B', 202, 4711, '1002'), tag('C', 201, 4712, '1003')];
    await begin(() => TAKEN, 30, {}, tags);
    for (const id of [4711, 4712]) {
      const content = { instrumentation: { id } };
      const event = { id, eventType: 'instrumentation_disappeared', occurredAtMs: 1, envelope: { content } };
      await holds.apply(event);
    }
    // Series 1001 has no values.
    plant.accept(202, 1002, 3);
    plant.accept(201, 1003, 3);
    await flow(16 * 60, LOAD);
    expect(holds.list()).toEqual([]);
    await flow(60, LOAD);
    expect(platform.ledger.taken.filter((value) => value.series > 1000)).toHaveLength(6);
  });

  it('keep their position during pauses and outages', async () => {
    let platformState: 'resting' | 'unreachable' | 'available' = 'available';
    let taken = false;
    await begin((post) => {
      if (post.asset === 99 && !taken) return { status: 403 };
      return platformState === 'resting' ? { status: 429, headers: { 'retry-after': '20' } } : TAKEN;
    }, 60);
    plant.accept(99, 99, 5);
    await flow(60, [1]);
    expect(holds.isHeld(99)).toBe(true);
    platformState = 'unreachable';
    platform.failing = () =>
      platformState === 'unreachable'
        ? new PlatformError('no', { code: 'platform.connection_refused', retryable: true })
        : undefined;
    await flow(300, [1]);
    expect(holds.list()[0]!.last_probe).toBeNull();
    platformState = 'resting';
    taken = true;
    await flow(60, [1]);
    platformState = 'available';
    await flow(90, [1]);
    expect(holds.isHeld(99)).toBe(false);
  });

  it('with rejected values are split until each value is settled, within the budget', async () => {
    const bad = new Set<number>();
    let forbidden = true;
    await begin((post) => {
      if (forbidden && post.asset === 99) return { status: 403 };
      return post.series.some(({ data }) => data.some((value) => bad.has(value.number))) ? refusal() : TAKEN;
    }, 30);
    bad.add(plant.accept(99, 99, 1)[0]!);
    plant.accept(99, 99, 20);
    await flow(60, [1, 2]);
    expect(holds.isHeld(99)).toBe(true);
    forbidden = false;
    await flow(240, [1, 2]);
    expect(holds.isHeld(99)).toBe(false);
    expect(plant.buffer.quarantined.map((one) => one.value.number)).toEqual([...bad]);
  });
});
