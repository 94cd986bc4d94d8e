/** What waits for a quiet moment: when it is due, what of it comes first, and how much at once. */
import { describe, expect, it } from 'vitest';
import { type FlushSpace, Maintenance } from '../../src/buffer/compaction/maintenance.ts';
import { ReadLeases } from '../../src/buffer/read-leases.ts';
import type { StepSize } from '../../src/buffer/store-facts.ts';
import { SpanWorld } from './span-world.ts';

const NEVER = Number.POSITIVE_INFINITY;

interface Limits {
  flushAfterMs?: number;
  flushValues?: number;
  stepSize?: StepSize;
}

const maintenanceOf = (
  { state, pending, segments, flush }: SpanWorld,
  limits: Limits = {},
  maxGroupValues = NEVER,
  readers = new ReadLeases(),
) =>
  new Maintenance({
    state,
    pending,
    segments,
    flush,
    readers,
    limits: { flushAfterMs: 1_000, flushValues: 1e9, ...limits },
    maxGroupValues: () => maxGroupValues,
  });

const rowsOf = ({ state }: SpanWorld) => state.rows.map(({ id }) => id);

interface Case {
  /** When each row came, and how many values of series 1, 2 and so on it has. */
  rows: [atMs: number, values?: number, ids?: number[]][];
  settledAtMs?: number;
  limits?: Limits;
  arrange?: (world: SpanWorld) => void;
}

describe('what is old enough is flushed', () => {
  it.each<[string, Case, dueAtMs: number, rowsLeft: number[]]>([
    [
      'a little later while the platform takes values, with all that has reached that age',
      { rows: [[100], [1_100], [1_101]], settledAtMs: 100 },
      2_100,
      [3],
    ],
    [
      'a quarter of the age later where that is more',
      { rows: [[100], [5_100], [5_101]], settledAtMs: 20_000, limits: { flushAfterMs: 20_000 } },
      25_100,
      [3],
    ],
    ['much later while it does not', { rows: [[100], [100_100], [100_101]] }, 101_100, [3]],
    ['soon where that makes segments of a good size', { rows: [[100, 64, [1, 2]], [1_500]] }, 2_100, [2]],
    [
      'not soon where it makes some of a good size',
      {
        rows: [
          [100, 64, [1]],
          [1_500, 1, [2]],
        ],
      },
      101_100,
      [],
    ],
    ['not soon where they lack a value', { rows: [[100, 63]] }, 101_100, []],
    [
      'soon where several rows make such segments together',
      {
        rows: [
          [100, 30],
          [200, 30],
          [300, 4],
        ],
      },
      2_100,
      [],
    ],
    [
      'not soon where too little is left of them',
      { rows: [[100, 64]], arrange: ({ state }) => void state.rows[0]!.left-- },
      101_100,
      [],
    ],
    ['soon for fifteen seconds after the platform took some', { rows: [[14_000]], settledAtMs: 1_001 }, 16_000, []],
    ['and no longer', { rows: [[14_000]], settledAtMs: 1_000 }, 115_000, []],
    [
      'as if it had come when the agent started, where it is of an earlier run',
      { rows: [[9_900], [9_950]], settledAtMs: 5_000, arrange: ({ state }) => state.times.open(2, 5_000, []) },
      7_000,
      [],
    ],
  ])('%s', (_, { rows, settledAtMs, limits, arrange }, dueAtMs, rowsLeft) => {
    const world = new SpanWorld(2);
    for (const [atMs, values = 1, ids = [1]] of rows) world.row(ids, values, atMs);
    arrange?.(world);
    const maintenance = maintenanceOf(world, limits);
    if (settledAtMs !== undefined) maintenance.noteSettled(settledAtMs);
    maintenance.step(dueAtMs - 1);
    const moments = [...Array(Math.ceil(dueAtMs / 500)).keys()].map((i) => i * 500);
    expect([...moments, dueAtMs - 1].filter((nowMs) => maintenance.isDue(nowMs))).toEqual([]);
    expect(world.state.spans).toEqual([]);
    expect(maintenance.isDue(dueAtMs)).toBe(true);
    maintenance.step(dueAtMs);
    expect([rowsOf(world), world.state.spans.length]).toEqual([rowsLeft, 1]);
  });

  it('nothing where there is nothing', () => {
    expect(maintenanceOf(new SpanWorld()).isDue(1e9)).toBe(false);
  });

  it('at once where it is too much, all of one run', () => {
    const world = new SpanWorld();
    const maintenance = maintenanceOf(world, { flushValues: 10 });
    for (let i = 0; i < 5; i++) world.row([1, 2], 1, 100 + i);
    expect(maintenance.isDue(105)).toBe(false);
    world.row([1], 1, 1, { run: 2 });
    expect(maintenance.isDue(105)).toBe(true);
    maintenance.step(105);
    expect([rowsOf(world), world.state.segmentValues]).toEqual([[6], 10]);
  });

  it('at once where some was left on disk for want of memory', () => {
    const world = new SpanWorld();
    const maintenance = maintenanceOf(world);
    for (let i = 0; i < 3; i++) world.row([1], 1, 100);
    world.row([1], 1, 100, { run: 2 });
    expect(maintenance.isDue(100)).toBe(false);
    world.state.notLoaded = 1;
    maintenance.step(100);
    expect(rowsOf(world)).toEqual([4]);
  });
});

describe('with little room', () => {
  it.each([
    [9, 0],
    [10, 1],
    [19, 1],
    [20, 2],
    [30, 3],
    [99, 3],
  ])('for %i values, so many rows of ten are flushed at once: %i', (maxValues, rows) => {
    for (const [atOnce, limits] of [
      [false, { flushValues: 25 }],
      [true, {}],
    ] as const) {
      const world = new SpanWorld();
      for (let i = 0; i < 3; i++) world.row([1], 10);
      world.row([1], 10, 40, { run: 2 });
      const maintenance = maintenanceOf(world, limits);
      // Of some row a value has left: it is worth the while.
      const room: FlushSpace = { maxValues: atOnce ? maxValues - 1 : maxValues, atOnce };
      if (atOnce) world.state.rows[0]!.left--;
      expect(maintenance.isDue(50, room)).toBe(rows > 0);
      maintenance.step(50, room);
      expect([rowsOf(world), world.state.segmentValues]).toEqual([[1, 2, 3, 4].slice(rows), 10 * rows]);
      // What was packed is written first.
      expect(maintenance.isDue(50, { ...room, maxValues: 99 })).toBe(rows === 0);
    }
  });

  it('a flush under way is given up for one of the rows that fit, and nothing is flushed twice', () => {
    const world = new SpanWorld();
    for (let i = 0; i < 3; i++) world.row([1, 2], 5);
    const values = world.everything();
    world.flush.begin(3);
    world.flush.step({ values: 1, segments: 1 });
    world.commit();
    maintenanceOf(world, { flushValues: 5 }).step(50, { maxValues: 10, atOnce: false });
    expect([rowsOf(world), world.flush.isUnderWay, world.state.segmentValues]).toEqual([[2, 3], false, 15 + 5]);
    expect(world.everything()).toEqual(values);
    world.check();
  });
});

describe('what is packed', () => {
  it.each<[string, StepSize | undefined, StepSize, boolean]>([
    ['leaves room for more below two steps', { values: 10, segments: 4 }, { values: 19, segments: 7 }, true],
    ['is enough with the values of two', { values: 10, segments: 4 }, { values: 20, segments: 7 }, false],
    ['is enough with the segments of two', { values: 10, segments: 4 }, { values: 19, segments: 8 }, false],
    ['leaves room for more below two of the usual steps', undefined, { values: 65_535, segments: 1_023 }, true],
    ['is enough with the values of two of these', undefined, { values: 65_536, segments: 1_023 }, false],
    ['is enough with the segments of two of these', undefined, { values: 65_535, segments: 1_024 }, false],
  ])('%s', (_, stepSize, packed, isDue) => {
    const world = new SpanWorld();
    const { pending, flush } = world;
    world.row([1], 3);
    for (const values of [1, packed.values - 1]) pending.newSpans.add({ values } as never);
    for (let id = 0; id < packed.segments; id++) pending.segments.set(id, new Uint8Array());
    const maintenance = maintenanceOf(world, { flushValues: 2, ...(stepSize && { stepSize }) });
    expect(maintenance.isDue(20)).toBe(isDue);
    maintenance.step(20);
    expect(world.state.spans.length).toBe(isDue ? 1 : 0);
    world.row([1], 3);
    flush.begin(world.state.rows.length);
    expect(maintenance.isDue(20)).toBe(isDue && packed.segments < 1_023 && packed.values < 19);
  });
});

describe('maintenance', () => {
  it('flushes what is due a step at a time, then compacts a step at a time, then rests until spans come or go', () => {
    const world = new SpanWorld(3);
    for (let i = 0; i < 14; i++) world.span([1, 2, 3], 2);
    world.row([1, 2, 3], 2, 150);
    world.row([1, 2, 3], 2, 160, { run: 2 });
    world.commit();
    const maintenance = maintenanceOf(world, { flushValues: 8, stepSize: { values: 2, segments: 2 } });
    const values = world.everything();
    const step = () => {
      expect(maintenance.isDue(200)).toBe(true);
      maintenance.step(200);
      const { spans, rows } = world.state;
      const found = [spans.length, rows.length, world.flush.isUnderWay];
      expect(world.everything()).toEqual(values);
      world.check();
      return found;
    };
    expect([step(), step(), step()]).toEqual([
      [15, 2, true],
      [16, 2, true],
      [17, 1, false],
    ]);
    // Three spans of one time are one flush: fifteen.
    expect(step()).toEqual([17, 1, false]);
    expect(maintenance.isDue(200)).toBe(false);
    world.state.rows[0]!.run = 1;
    world.flush.begin(1);
    expect([step(), step(), step()]).toEqual([
      [18, 1, true],
      [19, 1, true],
      [20, 0, false],
    ]);
    // A series a step, each a span in the place of the first; of two flushes it had spans of its own.
    expect([step(), step(), step()]).toEqual([
      [19, 0, false],
      [18, 0, false],
      [3, 0, false],
    ]);
    // It looks once more, and finds nothing.
    expect([step(), maintenance.isDue(200)]).toEqual([[3, 0, false], false]);
    maintenance.step(200);
    world.check();
    expect(world.state.spans.length).toBe(3);
  });

  it('goes on with a compaction of which nothing has taken its place yet', () => {
    const world = new SpanWorld(5);
    for (let i = 0; i < 16; i++) world.span([1, 2, 3, 4, 5], 2);
    world.commit();
    const maintenance = maintenanceOf(world, { stepSize: { values: 99, segments: 64 } });
    const found: [number, boolean][] = [];
    for (let i = 0; i < 3; i++) {
      maintenance.step(1_000);
      found.push([world.state.spans.length, maintenance.isDue(1_000)]);
    }
    expect(found).toEqual([
      [16, true],
      [16, true],
      [1, true],
    ]);
  });

  it('puts no more together than it is told', () => {
    const world = new SpanWorld(1);
    for (let i = 0; i < 16; i++) world.span([1], 2);
    world.commit();
    maintenanceOf(world, {}, 30).step(1_000);
    expect(world.state.spans.length).toBe(16);
    maintenanceOf(world, {}, 31).step(1_000);
    expect(world.state.spans.length).toBe(1);
  });

  it('begins and continues no compaction while a reader has a lease', () => {
    const world = new SpanWorld(2);
    for (let i = 0; i < 16; i++) world.span([1, 2], 2);
    world.commit();
    const readers = new ReadLeases();
    const maintenance = maintenanceOf(world, { stepSize: { values: 99, segments: 2 } }, NEVER, readers);
    maintenance.step(1_000);
    expect(world.state.spans.length).toBe(17);
    readers.open('export', 1_000, 2_000);
    readers.end(readers.open('files', 1_000, 3_000));
    maintenance.step(1_999);
    expect([maintenance.isDue(1_999), world.state.spans.length]).toEqual([false, 17]);
    expect(maintenance.isDue(2_000)).toBe(true);
    maintenance.step(2_000);
    expect(world.state.spans.length).toBe(2);
  });
});

describe('rows of which nothing is left', () => {
  it.each<[string, rows: number, settled: number, dropped: number]>([
    ['are none where there are no rows', 0, 0, 0],
    ['stay behind one of which something is left', 3, 0, 0],
    ['stay until they are many', 100, 63, 0],
    ['go when they are many', 100, 64, 64],
    ['go as many as there are', 100, 70, 70],
    ['go when they are all', 2, 2, 2],
    ['go when it is the only one', 1, 1, 1],
  ])('%s', (_, rows, settled, dropped) => {
    const world = new SpanWorld();
    for (let i = 0; i < rows; i++) world.row([1], 10);
    const { state, pending } = world;
    for (const [at, row] of state.rows.entries()) row.left = at < settled || at > settled ? 0 : 3;
    const through = 10 * dropped - 1;
    const runs = [
      { series: 1, firstSeq: 0, lastSeq: through },
      { series: 1, firstSeq: 0, lastSeq: through + 1 },
      { series: 2, firstSeq: 0, lastSeq: through - 1 },
    ];
    pending.settled = [...runs];
    maintenanceOf(world).dropSettledRows();
    expect(rowsOf(world)).toEqual(Array.from({ length: rows - dropped }, (_, i) => dropped + i + 1));
    expect([pending.dropRowsThrough, pending.settled]).toEqual([dropped, dropped > 0 ? [runs[1]] : runs]);
  });
});
