import { beforeEach, describe, expect, it } from 'vitest';
import type { Probe } from '../../../src/uplink/ports.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { type DirectPlatform, MemoryAccess, type Plant, refusal, TAKEN } from './plant.ts';
import { type Around, ended, instead, planted } from './uplink-world.ts';

let clock: ManualClock;
let platform: DirectPlatform;
let plant: Plant;
let startMs: number;

const build = (around?: Around) => {
  ({ platform, plant } = planted(clock, around));
};
const posted = () => platform.ledger.posts.map(({ asset }) => asset);

beforeEach(() => {
  clock = new ManualClock(Date.UTC(2026, 10, 21), 1);
  startMs = clock.monotonicMs();
});

describe('uplink shutdown', () => {
  it('completes posts in progress, starts no new ones, and removes its listeners and timers', async () => {
    let listeners = 0;
    const holds = new MemoryAccess(clock);
    build({ holds });
    const counted = (works: (listener: () => void) => () => void) => (listener: () => void) => {
      listeners++;
      const end = works(listener);
      return () => {
        listeners--;
        end();
      };
    };
    instead(plant.buffer, 'onChange', counted);
    holds.onChange = counted(holds.onChange.bind(holds));
    platform.latencyMs = 3_000;
    plant.accept(1, 1);
    await plant.uplink.start();
    expect(listeners).toBe(2);
    await clock.advance(11_000);
    plant.accept(2, 2, 5_000);
    const stopped = plant.uplink.stop(60_000);
    await clock.advance(1_999);
    expect(posted()).toEqual([]);
    await clock.advance(1);
    await stopped;
    expect([posted(), listeners, clock.waiting, plant.buffer.waiting]).toEqual([[1], 0, 0, 5_000]);
    plant.uplink.tryNowOnRequest();
    await clock.advance(60_000);
    expect(posted()).toEqual([1]);
  });

  it('aborts posts after the shortest time limit, and then completes for all callers', async () => {
    build({ answering: () => new Promise(() => {}) });
    plant.accept(1, 1, 5_000);
    await plant.uplink.start();
    await clock.advance(1_000);
    const over: string[] = [];
    const stops = [
      plant.uplink.stop(30_000).then(() => over.push('first')),
      plant.uplink.stop(700).then(() => over.push('second')),
      plant.uplink.stop(20_000).then(() => over.push('third')),
    ];
    await clock.advance(699);
    expect([over, plant.buffer.inProgress.size]).toEqual([[], 1]);
    await clock.advance(1);
    await Promise.all(stops);
    expect([over.toSorted(), plant.buffer.inProgress.size, plant.buffer.waiting]).toEqual([
      ['first', 'second', 'third'],
      0,
      5_000,
    ]);
    expect(clock.waiting).toBe(0);
    expect(plant.uplink.snapshot().state).toBe('online');
  });

  it('waits until the store has accepted all parts of split batches', async () => {
    build({ answering: (post) => (post.values > 1 ? refusal() : TAKEN), options: { concurrency: 1 }, perMinute: 2 });
    plant.accept(1, 1, 8);
    plant.accept(1, 2, 8);
    await plant.uplink.start();
    let isDivided = false;
    let released = 0;
    instead(plant.buffer, 'divide', (works) => async (batch) => {
      isDivided = true;
      return works(batch);
    });
    instead(plant.buffer, 'release', (works) => async (batch) => {
      await clock.sleep(400);
      released++;
      return works(batch);
    });
    while (!isDivided) await clock.advance(100);
    await clock.advance(1_000);
    let isOver = false;
    const stopped = plant.uplink.stop(30_000).then(() => {
      isOver = true;
    });
    await clock.advance(799);
    expect([isOver, released]).toEqual([false, 1]);
    await clock.advance(1);
    await stopped;
    expect([released, plant.buffer.inProgress.size, plant.buffer.waiting]).toEqual([2, 0, 16]);
  });

  it('does not wait for retried store calls that have no caller', async () => {
    build({ answering: (post) => (post.values > 1 ? refusal() : TAKEN), perMinute: 2 });
    let isDivided = false;
    instead(plant.buffer, 'divide', (works) => async (batch) => {
      isDivided = true;
      return works(batch);
    });
    instead(plant.buffer, 'release', () => () => Promise.reject(new Error('disk I/O error')));
    plant.accept(1, 1, 8);
    await plant.uplink.start();
    while (!isDivided) await clock.advance(100);
    await clock.advance(100);
    plant.uplink.addressesChanged();
    await clock.advance(0);
    expect(clock.waiting).toBe(2);
    const stopped = plant.uplink.stop(30_000);
    await clock.advance(0);
    await stopped;
    expect(clock.waiting).toBe(0);
  });

  it('completes if the store fails, and logs the unfinished post', async () => {
    build();
    instead(plant.buffer, 'settle', () => () => Promise.reject(new Error('disk I/O error')));
    plant.accept(1, 1, 5_000);
    await plant.uplink.start();
    await clock.advance(500);
    const stopped = plant.uplink.stop(5_000);
    await clock.advance(5_000);
    await stopped;
    expect(plant.logged.at(-1)).toMatchObject({ event: 'uplink.post_failed', level: 50, error: 'disk I/O error' });
    expect(clock.waiting).toBe(0);
  });
});

describe('uplink access changes', () => {
  it('are applied to the buffer at startup and on each change, even if the store fails at first', async () => {
    const held: (readonly number[])[] = [];
    let series = [7, 8];
    let change = () => {};
    const holds = new MemoryAccess(clock);
    holds.heldSeries = () => series;
    holds.onChange = (listener) => {
      change = listener;
      return () => {};
    };
    build({ holds });
    let isAway = false;
    instead(plant.buffer, 'holdSeries', () => async (these) => {
      held.push(these);
      if (isAway) throw new Error('disk I/O error');
    });
    const starting = plant.uplink.start();
    await starting;
    expect(held).toEqual([[7, 8]]);
    for (const [next, away] of [
      [[7], true],
      [[9, 7], false],
    ] as const) {
      [series, isAway] = [[...next], away];
      change();
      await clock.advance(0);
    }
    expect(held).toEqual([[7, 8], [7], [9, 7]]);
    await ended(plant);
  });

  it('take effect immediately, and released values are posted', async () => {
    const holds = new MemoryAccess(clock);
    holds.held.set(1, startMs + 900_000);
    build({ holds });
    instead(plant.buffer, 'holdSeries', () => async () => {});
    plant.accept(1, 1);
    await plant.uplink.start();
    await clock.advance(61_000);
    expect(posted()).toEqual([]);
    await holds.delivered(1);
    await clock.advance(20);
    expect(posted()).toEqual([1]);
    // The time of the hold does not count as a delay.
    expect(plant.uplink.snapshot().intervalMs).toBe(10_000);
    const probed: Probe[] = [];
    holds.probed = (probe) => void probed.push(probe);
    await ended(plant);
    expect(probed).toEqual([]);
  });
});
