/** Shutdown, reload, store failures, status and log of the uplink. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { PlatformError } from '../../../src/base/errors.ts';
import type { OutgoingBuffer, TakenBatch } from '../../../src/buffer/client/lanes.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import {
  type Answering,
  DirectPlatform,
  OPTIONS,
  Plant,
  type PlantOptions,
  type Reply,
  refusal,
  TAKEN,
} from './plant.ts';

const WALL = Date.UTC(2026, 10, 21);
let clock: ManualClock;
let platform: DirectPlatform;
let plant: Plant;

beforeEach(() => {
  clock = new ManualClock(WALL, 1);
});
afterEach(async () => {
  const stopped = plant.uplink.stop(0);
  await clock.advance(1_000);
  await stopped;
  expect(plant.buffer.inProgress.size).toBe(0);
});

function build(answering?: Answering, more: PlantOptions = {}): void {
  platform = new DirectPlatform(clock, answering);
  plant = new Plant(clock, platform, more);
}

async function begin(answering?: Answering, more: PlantOptions = {}): Promise<void> {
  build(answering, more);
  await plant.uplink.start();
}

async function flow(seconds: number, ...assets: number[]): Promise<void> {
  for (let second = 0; second < seconds; second++) {
    for (const asset of assets) plant.accept(asset, asset);
    if (second % 5 === 0) plant.buffer.flush(clock.monotonicMs() - 20_000);
    await clock.advance(1_000);
  }
}

const posts = () => platform.ledger.posts;
const logged = (event: string) => plant.logged.filter((line) => line.event === event);
const unreachable = () => new PlatformError('no', { code: 'platform.connection_refused', retryable: true });

/** Replaces a method of each batch. `other` receives the original one. */
function instead<Call extends keyof TakenBatch>(
  call: Call,
  other: (works: TakenBatch[Call]) => TakenBatch[Call],
): void {
  const take: OutgoingBuffer['take'] = plant.buffer.take.bind(plant.buffer);
  plant.buffer.take = async (request) => {
    const batch = await take(request);
    return batch && { ...batch, [call]: other(batch[call]) };
  };
}

describe('uplink shutdown', () => {
  it('completes posts in progress and starts no new ones', async () => {
    await begin();
    platform.latencyMs = 3_000;
    plant.accept(1, 1);
    await clock.advance(11_000);
    plant.accept(2, 2, 5_000);
    const stopped = plant.uplink.stop(60_000);
    await clock.advance(1_999);
    expect(posts()).toEqual([]);
    await clock.advance(1);
    await stopped;
    plant.uplink.tryNowOnRequest();
    await clock.advance(60_000);
    expect(posts().map(({ asset }) => asset)).toEqual([1]);
    expect(plant.buffer.waiting).toBe(5_000);
  });

  it('aborts posts after the shortest time limit and returns their values', async () => {
    await begin(() => new Promise(() => {}));
    plant.accept(1, 1, 5_000);
    await clock.advance(1_000);
    const ended: string[] = [];
    const stops = [30_000, 700].map((budgetMs) => plant.uplink.stop(budgetMs).then(() => ended.push(`${budgetMs}`)));
    await clock.advance(699);
    expect([ended, plant.buffer.inProgress.size]).toEqual([[], 1]);
    await clock.advance(1);
    await Promise.all(stops);
    expect([ended.sort(), plant.buffer.waiting, plant.uplink.snapshot().state]).toEqual([
      ['30000', '700'],
      5_000,
      'online',
    ]);
  });

  it('ends a delivery that waits for a request, or for an accepted post of another asset', async () => {
    await begin(({ asset }) => (asset === 1 ? refusal() : TAKEN), { requestsPerMinute: 2 });
    plant.accept(2, 2);
    await clock.advance(90_000);
    plant.accept(1, 1, 1);
    plant.accept(3, 3, 8);
    await clock.advance(60_000);
    await plant.uplink.stop(30_000);
    expect(plant.buffer.quarantined).toEqual([]);
  });
});

describe('operator request', () => {
  it('ends the pauses after 429 and 402, which a session renewal does not', async () => {
    let reply: Reply = { status: 429, headers: { 'retry-after': '299' } };
    await begin(() => reply);
    await flow(30, 1);
    expect(plant.uplink.snapshot().restsForMs).toBeGreaterThan(200_000);
    plant.uplink.tryNow();
    await flow(10, 1);
    expect(posts()).toHaveLength(1);
    reply = TAKEN;
    plant.uplink.tryNowOnRequest();
    await clock.advance(1_000);
    expect(posts().map(({ status }) => status)).toEqual([429, 204]);
    expect(plant.uplink.snapshot().intervalMs).toBeLessThan(15_000);
    reply = { status: 402 };
    await flow(3_600, 1);
    const before = posts().length;
    plant.uplink.tryNow();
    await clock.advance(1_000);
    expect(posts()).toHaveLength(before);
    plant.uplink.tryNowOnRequest();
    await clock.advance(5_000);
    expect(posts()).toHaveLength(before + 1);
    expect(plant.uplink.snapshot().outage).toMatchObject({ code: '402' });
    reply = TAKEN;
    plant.uplink.setPace(OPTIONS);
    await clock.advance(5_000);
    expect(plant.uplink.snapshot().state).toBe('online');
  });

  it('that changes VALUES_PATH returns a batch that is being split, so that it is taken again', async () => {
    let isAsking = false;
    await begin((post) => {
      isAsking ||= post.asset === 1;
      return post.asset === 1 && post.values > 4 ? refusal() : TAKEN;
    });
    plant.accept(1, 1, 16);
    while (!isAsking) await clock.advance(100);
    plant.addressVersion++;
    plant.uplink.wake();
    await flow(60, 2);
    expect(platform.ledger.taken.filter(({ asset }) => asset === 1)).toHaveLength(16);
  });
});

describe('size of posts', () => {
  it.each([
    ['413', { status: 413 }],
    ['504', { status: 504 }],
    ['502', { status: 502 }],
    ['a reset', undefined],
  ])('is halved if large bodies cause %s, and restored an hour later', async (_name, reply) => {
    const maxBytes = 3_000;
    let isBroken = true;
    await begin((post) => (isBroken && post.bytes > maxBytes ? reply : TAKEN));
    plant.accept(1, 1, 2_000);
    await clock.advance(300_000);
    expect(plant.buffer.waiting).toBe(0);
    expect(plant.buffer.quarantined).toEqual([]);
    const tooLarge = posts().filter(({ bytes }) => bytes > maxBytes);
    expect(tooLarge.length).toBeLessThan(20);
    const before = posts().length;
    plant.accept(1, 1, 2_000);
    await clock.advance(300_000);
    expect(
      posts()
        .slice(before)
        .filter(({ bytes }) => bytes > maxBytes),
    ).toEqual([]);
    expect(plant.uplink.snapshot().maxBytes).toBeLessThan(maxBytes + 1);
    isBroken = false;
    await clock.advance(3_600_000);
    plant.accept(1, 1, 4_000);
    await clock.advance(300_000);
    expect(posts().some(({ bytes }) => bytes > 2 * maxBytes)).toBe(true);
  });

  it('is halved if large bodies have no response before the deadline', async () => {
    await begin((post) => (post.bytes > 3_000 ? new Promise<undefined>(() => {}) : TAKEN));
    plant.accept(1, 1, 1_000);
    await clock.advance(1_800_000);
    expect(plant.buffer.waiting).toBe(0);
  });

  it('is unchanged for other assets if one asset fails, and is restored by a reload', async () => {
    await begin((post) => (post.asset === 1 ? { status: 504 } : TAKEN));
    plant.accept(1, 1, 1_000);
    plant.accept(2, 2, 5_000);
    plant.accept(3, 3, 5_000);
    await flow(60, 2, 3);
    expect(plant.uplink.snapshot()).toMatchObject({ state: 'online', pausedAssets: [{ asset: 1 }] });
    expect(posts().filter(({ asset, values }) => asset > 1 && values === 5_000)).toHaveLength(2);
    plant.uplink.setPace({ ...OPTIONS, postMaxBytes: 400_000 });
    expect(plant.uplink.snapshot().maxBytes).toBe(400_000);
  });

  it('starts with one value after an outage and doubles with each accepted post', async () => {
    await begin();
    platform.failing = unreachable;
    plant.accept(1, 1, 5_000);
    await clock.advance(60_000);
    platform.failing = undefined;
    await clock.advance(60_000);
    expect(posts()[0]!.values).toBe(1);
    const sizes = posts().map(({ bytes }) => bytes);
    for (let i = 2; i < sizes.length; i++) expect(sizes[i]!).toBeLessThanOrEqual(2.1 * Math.max(1_000, sizes[i - 1]!));
    expect(plant.buffer.waiting).toBe(0);
  });
});

describe('backlog of an asset', () => {
  it('is posted without a pause, although its lanes exclude the remainder while a batch is in flight', async () => {
    await begin();
    const lanes = plant.buffer.lanes.bind(plant.buffer);
    plant.buffer.lanes = () => (plant.buffer.inProgress.size > 0 ? new Map() : lanes());
    plant.accept(1, 1, 6_000);
    plant.buffer.flush(clock.monotonicMs() + 1);
    await clock.advance(1_000);
    expect(plant.buffer.waiting).toBe(0);
  });
});

describe('store failure', () => {
  it.each(['take', 'settle'] as const)('of %s is retried and logged only occasionally', async (call) => {
    await begin();
    let failures = 0;
    const fails = () => failures++ < 20;
    const error = new Error('disk I/O error');
    if (call === 'take') {
      const take = plant.buffer.take.bind(plant.buffer);
      plant.buffer.take = (request) => (fails() ? Promise.reject(error) : take(request));
    } else {
      // Like the store's client, the batch remembers what was settled.
      instead('settle', (works) => async (part) => {
        await works(part);
        if (fails()) throw error;
      });
    }
    for (let value = 0; value < 30; value++) {
      plant.accept(1, 1, 3);
      await clock.advance(30_000);
    }
    expect(plant.buffer.waiting).toBe(0);
    expect(platform.ledger.taken).toHaveLength(90);
    const lines = logged('uplink.store_failed');
    expect(lines[0]).toMatchObject({ error: 'disk I/O error', count: 1 });
    expect(lines.length).toBeLessThan(10);
  });

  it('during an outage is retried once per asset per second', async () => {
    await begin();
    platform.failing = unreachable;
    for (const asset of [1, 2, 3]) plant.accept(asset, asset);
    while (!plant.uplink.outage) await clock.advance(100);
    let refused = 0;
    plant.buffer.take = async () => {
      refused++;
      throw new Error('database or disk is full');
    };
    while (refused === 0) await clock.advance(100);
    // The clock does not advance, so only a busy loop could continue.
    for (let turn = 0; turn < 500; turn++) await new Promise((resolve) => setImmediate(resolve));
    expect(refused).toBeLessThanOrEqual(3);
  });

  it('while held series are registered is repeated', async () => {
    await begin();
    const { holdSeries } = plant.buffer;
    plant.buffer.holdSeries = async () => {
      throw new Error('disk I/O error');
    };
    plant.accept(1, 1);
    for (let value = 0; value < 8; value++) plant.holds.countRejection(1, 1);
    plant.holds.rejected(1, 1, { status: 400, message: 'no' });
    await clock.advance(1_000);
    plant.buffer.holdSeries = holdSeries.bind(plant.buffer);
    await clock.advance(5_000);
    expect([...plant.buffer.held]).toEqual([1]);
  });

  it('of another kind does not end the uplink', async () => {
    await begin();
    const lanes = plant.buffer.lanes.bind(plant.buffer);
    const untilMs = clock.monotonicMs() + 42_000;
    plant.buffer.lanes = () => {
      if (clock.monotonicMs() < untilMs) throw new Error('a hole in the lanes');
      return lanes();
    };
    plant.accept(1, 1);
    await clock.advance(100_000);
    expect(logged('uplink.plan_failed')[0]).toMatchObject({ level: 50, error: 'a hole in the lanes' });
    expect(posts()).toHaveLength(1);
  });
});

describe('uplink status', () => {
  it('contains the posts in progress and the latest delivery', async () => {
    await begin();
    plant.accept(1, 1, 5_000);
    await clock.advance(5);
    expect(plant.uplink.snapshot()).toMatchObject({ lastPostAtMs: WALL, postsInProgress: 1, deliveredValues: 0 });
    await clock.advance(100);
    const after = { lastDeliveredAtMs: WALL + 20, deliveredValues: 5_000, postsInProgress: 0, outage: undefined };
    expect(plant.uplink.snapshot()).toMatchObject(after);
  });

  it('contains the cause, attempts and next trial of an outage', async () => {
    await begin(() => ({ status: 503 }));
    plant.accept(1, 1, 5_000);
    await clock.advance(120);
    const cause = { code: '503', reason: 'status 503' };
    expect(plant.uplink.snapshot()).toMatchObject({
      state: 'away',
      lastRefusal: { atMs: WALL + 20, ...cause },
      outage: { ...cause, forMs: 100, isForeign: false, attempts: 1 },
    });
    await clock.advance(600_000);
    expect(plant.uplink.snapshot().outage!.attempts).toBeGreaterThan(8);
    expect(plant.uplink.snapshot().outage!.nextTryInMs).toBeLessThanOrEqual(60_000);
  });

  it('reports a longer interval only if the budget or the sockets delay live posts', async () => {
    await begin(undefined, { options: { concurrency: 1 } });
    platform.latencyMs = 3_000;
    for (const asset of [1, 2, 3, 4]) plant.accept(asset, asset);
    await clock.advance(24_000);
    expect(plant.uplink.snapshot().intervalMs).toBe(19_000);
    expect(logged('uplink.interval_lengthened')).toMatchObject([{ level: 40, configuredMs: 10_000 }]);
    await clock.advance(240_000);
    expect(logged('uplink.interval_normal')).toMatchObject([{ level: 30, intervalMs: 10_000 }]);
    for (const fail of [() => ({ status: 429, headers: { 'retry-after': '200' } }), () => ({ status: 503 })]) {
      platform.ledger.answering = fail;
      for (const asset of [1, 2, 3]) plant.accept(asset, asset);
      await clock.advance(100_000);
      platform.ledger.answering = () => TAKEN;
      platform.latencyMs = 20;
      await clock.advance(400_000);
      expect(plant.buffer.waiting).toBe(0);
    }
    expect(logged('uplink.interval_lengthened')).toHaveLength(1);
  });

  it('considers the uplink hung after two minutes without a regular check', async () => {
    build();
    const startMs = clock.monotonicMs();
    const alive = (ms: number) => plant.uplink.isAlive(startMs + ms);
    await plant.uplink.start();
    await clock.advance(16_000);
    expect([17_000, 134_999, 135_000].map(alive)).toEqual([true, true, false]);
  });
});

describe('uplink log', () => {
  it('traces a batch from the buffer to the outcome of each value', async () => {
    await begin(
      (post) => (post.series.some(({ data }) => data.some(({ number }) => number === 1)) ? refusal() : TAKEN),
      {
        level: 'debug',
      },
    );
    plant.accept(1, 1, 3);
    await clock.advance(15_000);
    const [quarantined] = logged('uplink.quarantined');
    const way = plant.logged.filter(({ batch }) => batch === quarantined!.batch);
    expect(way.map(({ event }) => event).slice(0, 4)).toEqual([
      'uplink.taken',
      'uplink.posted',
      'uplink.refused',
      'uplink.divided',
    ]);
    expect(way.filter(({ event }) => event === 'uplink.settled')).toHaveLength(2);
    expect(quarantined).toMatchObject({ level: 40, asset: 1, series: 1, status: 400, count: 1 });
  });

  it('reports an outage once with its cause, then its end', async () => {
    await begin(() => ({ status: 503 }), { level: 'debug' });
    plant.accept(1, 1, 3);
    await clock.advance(60_000);
    platform.ledger.answering = () => TAKEN;
    await clock.advance(60_000);
    const levels = logged('uplink.away').map(({ level }) => level);
    expect(levels.filter((level) => level === 40).length).toBeLessThan(levels.length);
    expect(logged('uplink.back')).toMatchObject([{ level: 30, code: '503', attempts: levels.length }]);
    expect(logged('uplink.later')[0]).toMatchObject({ asset: 1, values: 3 });
  });
});
