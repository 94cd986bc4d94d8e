/**
 * A buffer on a disk with bad sectors is rebuilt next to the old file while values are accepted and posted, with other
 * faults.
 */
import { statSync } from 'node:fs';
import Database from 'better-sqlite3';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { ManualClock } from '../../unit/doubles/manual-clock.ts';
import { compileDiskLayer } from './disk-fault.ts';
import { mapPages, PAGE, SECTOR } from './page-map.ts';
import { RebuildWorld } from './rebuild-world.ts';

let library: string;
let origin: RebuildWorld;
let world: RebuildWorld | undefined;

beforeAll(async () => {
  library = compileDiskLayer();
  origin = new RebuildWorld(library);
  expect((await origin.run('fill', 1, 120)).isDone).toBe(true);
}, 300_000);
afterAll(() => origin.end());
afterEach(() => {
  world?.end();
  world = undefined;
});

/** Values that were neither delivered nor quarantined. */
function lostOf(one: RebuildWorld): number[] {
  const { delivered } = one;
  return [...one.accepted.keys()].filter((number) => !delivered.has(number) && !one.quarantined.has(number));
}

describe('bad sector under segments', () => {
  it('destroys exactly the values it contained, while values are accepted and posted without duplicates', async () => {
    world = origin.copy();
    const before = world.posts.length;
    const { kinds } = mapPages(world.path);
    world.breakSectorOf(kinds.get('a leaf page of segment')!);
    await world.run('steps', 2, 400);
    expect(world.whileCarrying).toBeGreaterThan(5);
    const meanwhile = world.posts.slice(before).filter(({ isCarrying }) => isCarrying);
    expect(meanwhile.some(({ live }) => live > 0)).toBe(true);
    expect(meanwhile.some(({ numbers, live }) => numbers.length > live)).toBe(true);
    expect(world.failures).toEqual([]);
    await world.run('drain', 3, 0);
    // Deliveries since the previous commit are lost with the old file, as after a crash: only these are repeated.
    const posts = world.posts.slice(before);
    const began = posts.findIndex(({ isCarrying }) => isCarrying);
    const again = new Set(posts.slice(Math.max(0, began - 4), began).flatMap(({ numbers }) => numbers));
    const seen = new Set<number>();
    const twice = posts.flatMap(({ numbers }) => numbers).filter((number) => seen.size === seen.add(number).size);
    expect(twice.filter((number) => !again.has(number))).toEqual([]);
    const lost = lostOf(world);
    const inSectors = world.inSectors();
    expect(lost.length).toBeGreaterThan(0);
    expect(lost.filter((number) => !inSectors.has(number))).toEqual([]);
    expect(world.told).toBe(lost.length);
    world.expectLastInOrder();
  });
});

describe('unreadable page of a log row', () => {
  it.each([
    ['first', 0, 'lostAtEdges'],
    ['last', 5, 'lostAtEdges'],
    ['third', 2, 'told'],
  ] as const)('is counted exactly if it is in the %s row', async (_place, row, counted) => {
    world = new RebuildWorld(library);
    expect((await world.run('log', 6, 6)).isDone).toBe(true);
    world.breakSectorOf(pageWithin(world.path, row * 1_000));
    expect((await world.run('drain', 7, 0)).isDone).toBe(true);
    const lost = lostOf(world);
    expect(lost.map((number) => Math.floor(number / 1_000))).toEqual(Array(1_000).fill(row));
    const { told, lostAtEdges } = world;
    expect({ told, lostAtEdges }).toEqual({ told: 0, lostAtEdges: 0, [counted]: 1_000 });
  });
});

/** A page whose whole sector is an overflow of the log row with that value. */
function pageWithin(path: string, number: number): number {
  const { numbers } = mapPages(path);
  const database = new Database(path, { readonly: true });
  const pages = database
    .prepare("SELECT pageno FROM dbstat WHERE name = 'log' AND pagetype = 'overflow' ORDER BY pageno")
    .pluck()
    .all() as number[];
  database.close();
  const isOfIt = (page: number) => pages.includes(page) && numbers.get(page)?.[0] === number;
  const found = pages.find((page) => page % (SECTOR / PAGE) === 1 && [0, 1, 2, 3].every((next) => isOfIt(page + next)));
  if (found === undefined) throw new Error(`no sector of row ${number}`);
  return found;
}

describe('bad sector at every position of a small buffer', () => {
  it('destroys only the data it contained', async () => {
    const small = new RebuildWorld(library);
    const wrong: object[] = [];
    try {
      await small.run('fill', 4, 18);
      const { size } = statSync(small.path);
      for (let page = 1; page <= size / PAGE; page += SECTOR / PAGE) {
        const one = small.copy();
        one.breakSectorOf(page);
        const { isDone } = await one.run('drain', 5, 0);
        const inSectors = one.inSectors();
        const lost = lostOf(one).filter((number) => !inSectors.has(number));
        if (!isDone || lost.length > 0) wrong.push({ page, isDone, lost: lost.length, failures: one.failures });
        one.end();
      }
    } finally {
      small.end();
    }
    expect(wrong).toEqual([]);
  });
});

/** Seeds that failed stay in the list. */
const SEEDS = [1, 2, 3, 4];

describe('random faults during a rebuild', () => {
  it.each(SEEDS)('cause no loss of acknowledged values outside the bad sector, seed %i', async (seed) => {
    world = origin.copy();
    const chance = new ManualClock(0, seed + 9_000);
    const random = (below: number) => Math.floor(chance.random() * below);
    for (let phase = 0; phase < 3; phase++) {
      const { size } = statSync(world.path);
      if (phase < 2) world.breakSectorOf(1 + random(size / PAGE));
      // Killed before a write, during or outside a rebuild, or after all work.
      const kill = phase % 2 === 0 ? `kill_write ${20 + random(800)}` : '';
      await world.run('random', seed * 10 + phase, 60, kill);
    }
    expect((await world.run('drain', seed, 0)).isDone).toBe(true);
    const inSectors = world.inSectors();
    const lost = lostOf(world);
    expect(lost.filter((number) => !inSectors.has(number))).toEqual([]);
    if (lost.length > 0) expect(world.told + world.unreadPages).toBeGreaterThan(0);
    const invented = [...world.delivered].filter(
      (number) => !world!.perhaps.has(number) && !world!.accepted.has(number),
    );
    expect(invented).toEqual([]);
    world.expectLastInOrder();
  });
});
