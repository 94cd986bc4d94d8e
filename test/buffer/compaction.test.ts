/** When neighbouring spans become one, what of them does, and in which steps. */
import { describe, expect, it } from 'vitest';
import { freeEntry, sendEntry } from '../../src/buffer/batches/batch-slices.ts';
import { settleRuns } from '../../src/buffer/batches/settle.ts';
import { Compaction, dropSpan } from '../../src/buffer/compaction/compaction.ts';
import { type Span, segmentId } from '../../src/buffer/span.ts';
import { range, SpanWorld } from './span-world.ts';

const NEVER = Number.POSITIVE_INFINITY;
/** A flush's step that leaves no step of a compaction half done. */
const WHOLE = 1e6;

const choose = ({ state, pending }: SpanWorld, segments = WHOLE, maxValues = NEVER) =>
  Compaction.choose(state, pending, { size: { values: NEVER, segments }, maxValues });

/** Which spans were put together, of those that stood. */
function compacted(world: SpanWorld, maxValues = NEVER): number[] | undefined {
  const before = world.spans().map(({ id }) => id);
  const values = world.everything();
  const compaction = choose(world, WHOLE, maxValues);
  if (!compaction) return undefined;
  expect(compaction.step(world.segments)).toBe(true);
  const left = new Set(world.spans().map(({ id }) => id));
  expect(world.everything()).toEqual(values);
  world.check();
  return before.filter((id) => !left.has(id));
}

/** What stands on disk: spans by what each of their segments has. */
interface Spec {
  /** Of series 1, 2 and so on. */
  counts: number[];
  acceptedMs: number;
  run?: number;
  /** Segments at the front that have gone since. */
  gone?: number;
  isUnderWay?: boolean;
}

function worldOf(specs: readonly Spec[]): SpanWorld {
  const world = new SpanWorld(16);
  for (const { counts, gone = 0, isUnderWay, ...head } of specs) {
    const span = world.addSpan(
      counts.map((count, at) => [at + 1, count]),
      head,
    );
    for (let entry = 0; entry < gone; entry++) {
      world.state.loseEntry(span, entry);
      world.pending.dropSegment(span, entry);
    }
    if (isUnderWay) sendEntry(world.asset, span, 0, false);
  }
  world.commit();
  return world;
}

/** So many flushes, each of spans with these counts. */
const flushes = (count: number, spans: readonly number[][], more: Partial<Spec> = {}): Spec[] =>
  Array.from({ length: count }, (_, i) => spans.map((counts) => ({ counts, acceptedMs: 100 + i, ...more }))).flat();

describe('spans become one', () => {
  const small = [[5, 5]];
  it.each<[string, Spec[], number[] | undefined, number?]>([
    ['not of fifteen flushes', flushes(15, small), undefined],
    ['of sixteen', flushes(16, small), range(1, 16)],
    ['of sixteen and no more', flushes(18, small), range(1, 16)],
    ['of sixteen whatever spans each has', flushes(17, [[5], [6], [7]]), range(1, 48)],
    ['not where their segments are large enough', flushes(16, [[64, 64]]), undefined],
    ['where they are not, on average', flushes(16, [[127, 1]]), undefined],
    ['where they are a value short of it, on average', flushes(16, [[126, 1]]), range(1, 16)],
    ['behind a large one', [...flushes(1, [[64]]), ...flushes(16, small)], range(2, 17)],
    ['behind too few', [...flushes(9, small), ...flushes(1, [[64]]), ...flushes(16, small)], range(11, 26)],
    ['of one run alone', [...flushes(15, small), ...flushes(16, small, { run: 2 })], range(16, 31)],
    [
      'behind one that is under way',
      [...flushes(8, small), ...flushes(1, small, { isUnderWay: true }), ...flushes(16, small)],
      range(10, 25),
    ],
    ['of fewer flushes not before they fill their segments', [...flushes(9, [[56]]), ...flushes(1, [[7]])], undefined],
    ['of fewer flushes that fill their segments', flushes(10, [[56]]), range(1, 10)],
    ['not of one flush', flushes(1, [[...Array(15).fill(63), 63]], { gone: 15 }), undefined],
    [
      'of two flushes of which little is left',
      [63, 63].map((count, i) => ({ counts: Array(16).fill(count), acceptedMs: i, gone: 15 })),
      [1, 2],
    ],
    [
      'not of two where one has two segments to fill',
      [
        { counts: [50, 50, 50, 50, 56], acceptedMs: 1, gone: 4 },
        { counts: [50, 50, 50, 50, 56], acceptedMs: 1, gone: 4 },
        { counts: [50, 50, 50, 50, 50, 50, 50, 50, 50, 61], acceptedMs: 2, gone: 9 },
      ],
      undefined,
    ],
    [
      'of two that fill the two segments of one of them',
      [
        { counts: [50, 50, 50, 50, 56], acceptedMs: 1, gone: 4 },
        { counts: [50, 50, 50, 50, 56], acceptedMs: 1, gone: 4 },
        { counts: [50, 50, 50, 50, 50, 50, 50, 50, 50, 62], acceptedMs: 2, gone: 9 },
      ],
      [1, 2, 3],
    ],
    ['as long as the values are fewer than they may be', flushes(12, [[56]]), range(1, 10), 505],
    ['not where too few of them may go together', flushes(12, [[56]]), undefined, 504],
    ['with all spans of a flush that began below that', flushes(16, [[63], [63]]), range(1, 18), 1009],
    ['not with a flush that begins at it', flushes(16, [[63], [63]]), undefined, 1008],
  ])('%s', (_, specs, expected, maxValues = NEVER) => {
    expect(compacted(worldOf(specs), maxValues)).toEqual(expected);
  });
});

describe('a span that a bound drops', () => {
  it('goes with what is left in it, and gives how much that was', () => {
    const world = worldOf(flushes(3, [[5, 6, 7]]));
    const { state, pending, segments } = world;
    const [first, second] = state.spans;
    settleRuns(state, pending, segments, first!, 0, [{ from: 1, to: 3 }]);
    settleRuns(state, pending, segments, second!, 1, [{ from: 0, to: 6 }]);
    expect([dropSpan(state, pending, first!), dropSpan(state, pending, second!)]).toEqual([16, 12]);
    expect(state.spans.map(({ id }) => id)).toEqual([3]);
    world.check();
  });
});

describe('what becomes one span', () => {
  /** Sixteen flushes with three values of each series, on disk. */
  function flushed(series: number, assetOf?: (id: number) => number): SpanWorld {
    const world = new SpanWorld(series, assetOf);
    for (let i = 0; i < 16; i++) world.span(range(1, series), 3);
    world.commit();
    return world;
  }

  it('stands in the place of the first, with the age of the last, and nothing of the old ones is left', () => {
    const world = flushed(2);
    const values = world.everything();
    const before = [...world.state.spans];
    choose(world)!.step(world.segments);
    expect(world.spans()).toEqual([
      {
        id: 17,
        place: 1,
        run: 1,
        acceptedMs: 160,
        segments: [
          { series: 1, readings: values[0] },
          { series: 2, readings: values[1] },
        ],
      },
    ]);
    expect(world.changes()).toEqual({
      segments: [
        [17, 0],
        [17, 1],
      ],
      newSpans: [17],
      goneSegments: [],
      changedSpans: [],
      droppedSpans: range(1, 16),
      progress: [],
      settled: [],
      dropRowsThrough: 0,
    });
    world.check();
    // Nothing of them is kept in memory: they are read anew.
    const reads = world.read.length;
    world.segments.read({ ...before[3]!, gone: new Uint8Array(2) } as Span, 1);
    expect(world.read.length).toBe(reads + 1);
  });

  it.each([
    // Of a flush's step half as many segments, of the series that have them in each flush: 2, and a span of 32.
    [64, 5, [[], [], [range(1, 5)]]],
    [63, 3, [[], [], [range(1, 3)]]],
    [96, 7, [[], [], [range(1, 7)]]],
    // One series a step at least, and spans of two.
    [
      4,
      5,
      [
        [],
        [[1, 2]],
        [[1, 2]],
        [
          [1, 2],
          [3, 4],
        ],
        [[1, 2], [3, 4], [5]],
      ],
    ],
    [5, 4, [[], [], [[1, 2, 3]], [[1, 2, 3], [4]]]],
    [1, 2, [[[1]], [[1], [2]]]],
  ])('of steps of %i segments and %i series, takes its place span by span', (segments, series, expected) => {
    const world = flushed(series);
    const values = world.everything();
    const compaction = choose(world, segments)!;
    const found: number[][][] = [];
    for (let isDone = false; !isDone; ) {
      isDone = compaction.step(world.segments);
      found.push(
        world
          .spans()
          .filter(({ id }) => id > 16)
          .map((span) => span.segments.map((one) => one.series)),
      );
      // The old ones stand for as long as anything is left in them.
      const left = range(1, series).filter((id) => !found.at(-1)!.flat().includes(id));
      const old = world.spans().filter(({ id }) => id <= 16);
      expect(old.map((span) => span.segments.map((one) => one.series))).toEqual(
        left.length > 0 ? Array(16).fill(left) : [],
      );
      expect(world.everything()).toEqual(values);
      world.check();
    }
    expect(found).toEqual(expected);
  });

  it('goes asset by asset, and passes over series that have nothing in these spans', () => {
    const world = new SpanWorld(6, (id) => 1 + (id % 2));
    for (let i = 0; i < 16; i++) world.span([1, 2, 4, 5], 3);
    world.span([3, 6], 70);
    world.commit();
    const values = world.everything();
    const compaction = choose(world, 1)!;
    const order: number[] = [];
    let steps = 0;
    for (let isDone = false; !isDone; steps++) {
      isDone = compaction.step(world.segments);
      order.push(
        ...world
          .spans()
          .filter(({ id }) => id === 18 + order.length)
          .flatMap((span) => span.segments.map((one) => one.series)),
      );
    }
    // Without a step for those that are not of it.
    expect([order, steps]).toEqual([[1, 5, 2, 4], 4]);
    expect(world.everything()).toEqual(values);
    world.check();
  });

  it('is one of several assets where a step has room for them', () => {
    const world = flushed(6, (id) => 1 + (id % 2));
    const values = world.everything();
    choose(world)!.step(world.segments);
    expect(world.spans().map(({ segments }) => segments.map(({ series }) => series))).toEqual([[1, 3, 5, 2, 4, 6]]);
    expect(world.everything()).toEqual(values);
    world.check();
  });

  it('is what is not settled, cut where a segment is full, of one series and of the next', () => {
    const world = new SpanWorld(8);
    const spans = range(1, 16).map((acceptedMs) =>
      world.addSpan([[1, 300], ...range(2, 8).map((id) => [id, 1] as const)], { acceptedMs }),
    );
    const settle = (span: Span, entry: number, ...runs: [number, number][]) =>
      settleRuns(
        world.state,
        world.pending,
        world.segments,
        span,
        entry,
        runs.map(([from, to]) => ({ from, to })),
      );
    settle(spans[0]!, 0, [0, 7]);
    settle(spans[1]!, 0, [10, 20], [30, 40], [290, 300]);
    settle(spans[2]!, 0, [0, 300]);
    settle(spans[3]!, 1, [0, 1]);
    for (const span of spans) settle(span, 7, [0, 1]);
    world.commit();
    const values = world.everything();
    expect(values.map(({ length }) => length)).toEqual([15 * 300 - 37, 15, ...Array(5).fill(16), 0]);
    expect(choose(world)!.step(world.segments)).toBe(true);
    expect(
      world.spans().map(({ segments }) => segments.map(({ series, readings }) => [series, readings.length])),
    ).toEqual([[[1, 2_048], [1, 2_048], [1, 367], [2, 15], ...range(3, 7).map((id) => [id, 16])]]);
    expect(world.everything()).toEqual(values);
    world.check();
  });

  it('is no more than its values where these fill a segment', () => {
    const world = new SpanWorld(4);
    for (const acceptedMs of range(1, 16))
      world.addSpan([[1, 128], ...range(2, 4).map((id) => [id, 1] as const)], { acceptedMs });
    choose(world)!.step(world.segments);
    expect(world.state.spans.map(({ count }) => [...count])).toEqual([[2_048, 16, 16, 16]]);
    world.check();
  });

  it('is no span at all where the last series had nothing left', () => {
    const world = flushed(3);
    for (const span of world.state.spans) {
      world.state.loseEntry(span, 2);
      world.pending.dropSegment(span, 2);
    }
    const compaction = choose(world, 4)!;
    expect([1, 2, 3].map(() => compaction.step(world.segments))).toEqual([false, false, true]);
    expect(world.spans().map(({ segments }) => segments.map(({ series }) => series))).toEqual([[1, 2]]);
    world.check();
  });

  it.each<[string, (world: SpanWorld) => void]>([
    ['a batch takes some of it', ({ asset, state }) => sendEntry(asset, state.spans.at(-2)!, 3, false)],
    [
      'a batch took some of it and let go',
      ({ asset, state }) => {
        sendEntry(asset, state.spans[3]!, 3, false);
        freeEntry(asset, state.spans[3]!, 3, false);
      },
    ],
    [
      'some of it is settled',
      ({ state, pending, segments }) => settleRuns(state, pending, segments, state.spans[3]!, 3, [{ from: 0, to: 1 }]),
    ],
    ['a bound drops some of it', ({ state, pending }) => dropSpan(state, pending, state.spans[3]!)],
  ])('ends where it stands when %s', (_, happens) => {
    const world = flushed(4);
    const compaction = choose(world, 4)!;
    expect([compaction.step(world.segments), compaction.step(world.segments)]).toEqual([false, false]);
    happens(world);
    const before = world.spans();
    expect(compaction.step(world.segments)).toBe(true);
    expect(world.spans()).toEqual(before);
    world.check();
  });

  it('ends where a segment does not read, and is that without it the next time', () => {
    const world = flushed(4);
    const compaction = choose(world, 4)!;
    compaction.step(world.segments);
    world.onDisk.delete(segmentId(world.state.spans[3]!.id, 1));
    expect([compaction.step(world.segments), world.lost, world.state.spans.length]).toEqual([true, [3], 16]);
    world.check();
    const values = world.everything();
    expect(values.map(({ length }) => length)).toEqual([48, 45, 48, 48]);
    expect(choose(world)!.step(world.segments)).toBe(true);
    expect([world.everything(), world.state.spans.length]).toEqual([values, 1]);
  });

  it('goes on though what is no part of it changes', () => {
    const world = flushed(2);
    const other = world.span([1, 2], 70);
    world.commit();
    const compaction = choose(world, 4)!;
    expect(compaction.step(world.segments)).toBe(false);
    sendEntry(world.asset, other, 0, false);
    expect(compaction.step(world.segments)).toBe(true);
    expect(world.spans().map(({ id }) => id)).toEqual([18, 17]);
  });
});
