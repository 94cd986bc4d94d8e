import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type Clock, systemClock } from '../../../src/base/clock.ts';
import { LoopbackPlatform, Plant, refusal, TAKEN } from './plant.ts';

/** The system clock with a constant random number, so that retries use the shortest delay. */
const clock: Clock = { ...systemClock, random: () => 0 };

describe('uplink over HTTP', () => {
  let platform: LoopbackPlatform;
  let plant: Plant;

  const begin = async (options = {}, requestsPerMinute = 0) => {
    plant = new Plant(clock, platform, { postIntervalMs: 20, ...options }, requestsPerMinute);
    await plant.uplink.start();
  };
  const until = (condition: () => boolean) =>
    vi.waitFor(() => expect(condition()).toBe(true), { timeout: 30_000, interval: 5 });

  beforeEach(async () => {
    platform = new LoopbackPlatform();
    await platform.open();
  });

  afterEach(async () => {
    await plant.uplink.stop(5_000);
    await platform.close();
  });

  it('delivers buffered values in one post per asset', async () => {
    await begin();
    plant.accept(7, 1, 10);
    plant.accept(7, 2, 10);
    plant.accept(8, 3, 5);
    await until(() => plant.buffer.waiting === 0);
    expect(platform.ledger.numbers.size).toBe(25);
    expect(platform.ledger.posts.filter((post) => post.asset === 7)).toHaveLength(1);
    expect(platform.ledger.posts.find((post) => post.asset === 7)?.series).toHaveLength(2);
  });

  it('retains values while connections are refused, and resumes when the platform is reachable', async () => {
    await platform.close();
    await begin();
    plant.accept(7, 1, 100);
    plant.accept(8, 2, 100);
    await until(() => plant.uplink.snapshot().state === 'away');
    expect(plant.uplink.snapshot().outage?.code).toBe('platform.connection_refused');
    expect(plant.buffer.waiting).toBe(200);
    await platform.open();
    await until(() => plant.buffer.waiting === 0);
    expect(platform.ledger.numbers.size).toBe(200);
    expect(plant.counts.backs).toBe(1);
    expect(plant.uplink.snapshot().state).toBe('online');
  });

  it('delivers each value once despite broken connections and 500 responses', async () => {
    let calls = 0;
    platform.ledger.answering = () => [undefined, { status: 500 }, { status: 503 }][calls++] ?? TAKEN;
    await begin();
    for (let asset = 1; asset <= 4; asset++) plant.accept(asset, asset, 50);
    await until(() => plant.buffer.waiting === 0);
    expect(platform.ledger.numbers.size).toBe(200);
    expect(plant.buffer.quarantined).toEqual([]);
  });

  it('splits a batch until the invalid value is isolated, and delivers the others', async () => {
    const bad = new Set([13, 57]);
    platform.ledger.answering = (post) =>
      post.series.some(({ data }) => data.some((value) => bad.has(value.number))) ? refusal() : TAKEN;
    await begin();
    plant.accept(7, 1, 50);
    plant.accept(7, 2, 50);
    await until(() => plant.buffer.waiting === 0);
    expect(plant.buffer.quarantined.map((one) => one.value.number).sort()).toEqual([13, 57]);
    expect(plant.buffer.quarantined[0]?.refusal).toEqual({ status: 400, message: 'invalid: no such unit: unit' });
    expect(platform.ledger.numbers.size).toBe(98);
    expect(plant.counts).toMatchObject({ delivered: 98, quarantined: 2 });
  });

  it('reduces the post size after a 413', async () => {
    platform.ledger.answering = (post) => (post.bytes > 3_000 ? { status: 413 } : TAKEN);
    await begin();
    plant.accept(7, 1, 200);
    await until(() => plant.buffer.waiting === 0);
    expect(plant.uplink.snapshot().maxBytes).toBeLessThan(6_000);
    expect(plant.buffer.quarantined).toEqual([]);
    expect(platform.ledger.numbers.size).toBe(200);
  });

  it('holds an asset rejected with 403, and continues to post the others', async () => {
    platform.ledger.answering = (post) => (post.asset === 7 ? { status: 403 } : TAKEN);
    await begin();
    plant.accept(7, 1, 5);
    plant.accept(8, 2, 5);
    await until(() => plant.access.held.has(7) && plant.buffer.settled === 5);
    plant.accept(8, 2, 5);
    await until(() => plant.buffer.settled === 10);
    expect(platform.ledger.posts.filter((post) => post.asset === 7)).toHaveLength(1);
    expect(plant.buffer.waiting).toBe(5);
  });

  it('completes a post in progress at shutdown, and returns waiting batches', async () => {
    let release = (): void => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    platform.ledger.answering = async () => {
      await held;
      return TAKEN;
    };
    await begin();
    plant.accept(7, 1, 5);
    await until(() => plant.uplink.snapshot().postsInProgress === 1);
    plant.accept(8, 2, 5);
    const stopped = plant.uplink.stop(10_000);
    release();
    await stopped;
    expect(plant.buffer.inProgress.size).toBe(0);
    expect(plant.buffer.settled).toBeGreaterThanOrEqual(5);
    expect(plant.buffer.settled + plant.buffer.waiting).toBe(10);
  });

  it('aborts a post that exceeds the shutdown time limit, and retains its values', async () => {
    platform.ledger.answering = () => new Promise(() => {});
    await begin();
    plant.accept(7, 1, 5);
    await until(() => plant.uplink.snapshot().postsInProgress === 1);
    await plant.uplink.stop(30);
    expect(plant.buffer.inProgress.size).toBe(0);
    expect(plant.buffer.waiting).toBe(5);
    expect(plant.uplink.snapshot().state).toBe('online');
  });
});
