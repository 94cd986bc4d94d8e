import { rmSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { newFolder } from '../../fresh-folder.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { numbersIn, World } from './store-world.ts';

/**
 * Each value was delivered once or is in quarantine. Of values with equal times, the one accepted last was delivered
 * last.
 */
function expectInOrder(world: World): void {
  const numbers = world.delivered.flat();
  expect(numbers.length).toBe(new Set(numbers).size);
  expect(numbers.length + world.quarantined.size).toBe(world.accepted.size);
  expectLastInOrder(world);
}

/**
 * Of values with equal times, the one accepted last was delivered last, even if a crash repeated some. Dropped values
 * are excluded: a crash can undo their delivery before the drop.
 */
function expectLastInOrder(world: World): void {
  const lastTime = new Map(world.delivered.flat().map((number, at) => [number, at]));
  const last = new Map<string, number>();
  const overtaken: string[] = [];
  for (const [number] of [...lastTime].sort(([, a], [, b]) => a - b)) {
    if (world.dropped.has(number)) continue;
    const { asset, key, timeMs } = world.accepted.get(number)!;
    const place = `${asset}/${key}/${timeMs}`;
    const before = last.get(place) ?? -1;
    if (before >= number) overtaken.push(`${place}: ${number} came after ${before}`);
    last.set(place, number);
  }
  expect(overtaken).toEqual([]);
}

let folder: string;
beforeEach(() => {
  folder = newFolder('tagferry-model-');
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** Includes all seeds that have failed before. */
const SEEDS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 987, 999, 1044];

describe('value store under random operations', () => {
  it.each(SEEDS)('loses no accepted values and invents none, seed %i', async (seed) => {
    const world = new World(folder, seed);
    for (let turn = 0; turn < 600; turn++) {
      world.step();
      await world.clock.advance(world.random(20));
      if (world.random(60) === 0) world.crash();
    }
    world.crash();
    world.drain();
    const found = new Set([...world.deliveredOnce, ...world.quarantined]);
    expect([...world.accepted.keys()].filter((number) => !found.has(number))).toEqual([]);
    expect([...found].filter((number) => !world.accepted.has(number))).toEqual([]);
    expectLastInOrder(world);
    const { facts } = world.store.take({ asset: 1, lane: 'live', maxValues: 1, maxBytes: 1000 });
    expect(facts).toMatchObject({ logValues: 0, segmentValues: 0 });
  });

  it.each(SEEDS)('drops and counts only the values that its limits require, oldest first, seed %i', async (seed) => {
    const chance = new ManualClock(0, seed + 500);
    const random = (below: number) => Math.floor(chance.random() * below);
    // Limits on age, size or both, with outages.
    const maxAgeMs = random(3) === 0 ? 0 : 300 + random(1_500);
    const maxBytes = maxAgeMs > 0 && random(2) ? 0 : 26_000 + random(12_000);
    const world = new World(folder, seed + 500, { maxAgeMs, maxBytes });
    for (let turn = 0; turn < 60; turn++) {
      if (world.random(6) === 0) await world.outage(1 + world.random(40));
      for (let step = world.random(20); step > 0; step--) {
        world.step();
        await world.clock.advance(world.random(20));
        const { logValues, segmentValues } = world.store.facts();
        expect(logValues + segmentValues).toBe(world.standing().size);
      }
      if (world.random(6) === 0) world.crash();
      // Reloads change, remove and restore the size limit.
      if (random(8) === 0)
        world.rebind({ maxAgeMs, maxBytes: random(3) === 0 ? 0 : maxBytes && 22_000 + random(16_000) });
    }
    world.drain();
    const found = new Set([...world.deliveredOnce, ...world.quarantined, ...world.dropped]);
    expect([...world.accepted.keys()].filter((number) => !found.has(number))).toEqual([]);
    expect(world.dropped.size).toBeGreaterThan(0);
    expect(world.deliveredOnce.size).toBeGreaterThan(0);
    expectLastInOrder(world);
  });

  it.each(SEEDS)('loses only purged values during operator calls, seed %i', async (seed) => {
    const world = new World(folder, seed + 200);
    for (let turn = 0; turn < 400; turn++) {
      world.step();
      await world.clock.advance(world.random(20));
      const kind = world.random(40);
      if (kind === 0) world.purge();
      if (kind === 1) world.retarget();
      if (kind === 2) world.requeue();
      if (kind === 3) world.crash();
    }
    world.crash();
    world.drain();
    const found = new Set([...world.deliveredOnce, ...world.quarantined, ...world.purged]);
    expect([...world.accepted.keys()].filter((number) => !found.has(number))).toEqual([]);
  });

  it.each(SEEDS)('moves, purges and exports exactly the requested values without a crash, seed %i', async (seed) => {
    const world = new World(folder, seed + 300);
    for (let turn = 0; turn < 400; turn++) {
      world.step();
      await world.clock.advance(world.random(20));
      const kind = world.random(60);
      if (kind === 0) {
        const { wanted, gone } = world.purge();
        expect(gone).toBe(wanted);
      } else if (kind === 1) {
        const { wanted, gone } = world.retarget();
        expect(gone).toBe(wanted);
      } else if (kind === 2) {
        const { size } = world.quarantined;
        expect(world.requeue()).toBe(size);
      } else if (kind < 20) world.export();
      const { logValues, segmentValues } = world.store.facts();
      expect(logValues + segmentValues).toBe(world.standing().size);
    }
    const listed = world.store.operator.list({ after: 0, limit: 1000 });
    expect(listed.reduce((sum, row) => sum + row.live + row.backlog, 0)).toBe(world.standing().size);
    world.drain();
    const numbers = world.delivered.flat();
    expect(numbers.length).toBe(new Set(numbers).size);
    expect(numbers.length + world.quarantined.size + world.purged.size).toBe(world.accepted.size);
  });

  it.each(SEEDS)(
    'delivers no duplicates and keeps the order of values with equal times without a crash, seed %i',
    async (seed) => {
      const world = new World(folder, seed + 100);
      for (let turn = 0; turn < 600; turn++) {
        world.step();
        await world.clock.advance(world.random(20));
      }
      world.drain();
      expectInOrder(world);
    },
  );

  it.each(SEEDS)('flushes values from outages exactly once and in order, seed %i', async (seed) => {
    const world = new World(folder, seed + 400);
    for (let turn = 0; turn < 12; turn++) {
      await world.outage(1 + world.random(40));
      expect(world.store.facts().logValues + world.store.facts().segmentValues).toBe(world.standing().size);
      for (let step = world.random(30); step > 0; step--) world.step();
    }
    world.drain();
    expectInOrder(world);
  });
});

describe('long outage', () => {
  it.each(SEEDS)('is flushed and compacted in steps, across crashes and posts, seed %i', async (seed) => {
    const world = new World(folder, seed + 600);
    let compactions = 0;
    for (let turn = 0; turn < 10; turn++) {
      compactions += await world.longOutage(turn === 0 ? 300 : 20 + world.random(40));
      const kind = world.random(5);
      if (kind === 0) world.crash();
      else if (kind < 4) for (let step = world.random(12); step > 0; step--) world.step();
      else
        do world.export();
        while (world.exporting);
      const { logValues, segmentValues } = world.store.facts();
      expect(logValues + segmentValues).toBe(world.standing().size);
    }
    expect(compactions).toBeGreaterThan(0);
    world.crash();
    world.drain();
    const found = new Set([...world.deliveredOnce, ...world.quarantined]);
    expect([...world.accepted.keys()].filter((number) => !found.has(number))).toEqual([]);
    expectLastInOrder(world);
    const { facts } = world.store.take({ asset: 1, lane: 'live', maxValues: 1, maxBytes: 1000 });
    expect(facts).toMatchObject({ logValues: 0, segmentValues: 0 });
  });
});

describe('value store', () => {
  it('counts values as live only if they are later than the backlog', () => {
    const { store, catalogue } = new World(folder, 1);
    const commit = (...times: number[]) => {
      const columns = new ValueColumns();
      for (const timeMs of times) columns.add(catalogue.idOf(1, 'flow', undefined, undefined), timeMs, 1, 0);
      return store.commit({ columns, newSeries: catalogue.takeUnsaved(), monotonicMs: 0 });
    };
    commit(1_000);
    store.maintain({ monotonicMs: 1_000_000 });
    expect(commit(500, 1_000, 1_001, 2_000).lanes).toMatchObject([{ asset: 1, live: 2, backlog: 1 }]);
  });

  it('keeps quarantined values bit for bit', () => {
    const world = new World(folder, 5);
    world.append();
    const { batch } = world.store.take({
      asset: [...world.accepted.values()][0]!.asset,
      lane: 'live',
      maxValues: 500,
      maxBytes: 50_000,
    });
    const numbers = numbersIn(batch!);
    world.store.quarantine(batch!.id, { status: 422, message: 'unit unknown', atMs: 7 });
    for (const number of numbers) world.quarantined.add(number);
    world.commit();
    world.crash();
    const kept = world.store.operator.showQuarantine({ after: 0, limit: 100 });
    expect(kept.flatMap((row) => row.value)).toEqual(expect.arrayContaining(numbers.slice(0, 1)));
    expect(world.requeue()).toBe(numbers.length);
    world.crash();
    world.drain();
    expect(numbers.every((number) => world.deliveredOnce.has(number))).toBe(true);
    expect(kept.every((row) => row.status === 422 && row.message === 'unit unknown')).toBe(true);
  });
});
