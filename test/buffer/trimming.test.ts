/** Taking the oldest share of what was flushed together: what goes, what is written anew, and what is left as it is. */
import { describe, expect, it } from 'vitest';
import { sendEntry } from '../../src/buffer/batches/batch-slices.ts';
import { SegmentReader } from '../../src/buffer/batches/segment-reader.ts';
import { settleRuns } from '../../src/buffer/batches/settle.ts';
import { Flush } from '../../src/buffer/compaction/flush.ts';
import { packSegment, unpackSegment } from '../../src/buffer/format/segment.ts';
import { Pending } from '../../src/buffer/pending.ts';
import { Dropping, type DroppingParts } from '../../src/buffer/space/dropping.ts';
import { Trimming } from '../../src/buffer/space/trimming.ts';
import { newSpan, segmentId } from '../../src/buffer/span.ts';
import { StoreState } from '../../src/buffer/state.ts';
import { SpanWorld } from './span-world.ts';

const COUNT = 10;

/** A span of two series with ten values each, numbered. */
function group() {
  const state = new StoreState();
  const pending = new Pending();
  const ids = [1, 2];
  for (const id of ids)
    state.addSeries({ id, asset: 1, key: `k${id}`, group: undefined, unit: undefined, instrumentation: undefined });
  const numbers = Float64Array.from({ length: COUNT }, (_, i) => i);
  const entries = ids.map((series) => ({ series, count: COUNT, lastTimeMs: COUNT - 1 }));
  const span = newSpan({ id: 1, place: 1, run: 1, acceptedMs: 0 }, entries);
  state.addSpan(span);
  const values = { count: COUNT, timeMs: numbers, value: numbers, flags: new Uint8Array(COUNT) };
  const rows = new Map(
    ids.map((series, entry) => [segmentId(1, entry), packSegment(values, 0, COUNT, { series, place: 1 })]),
  );
  const segments = new SegmentReader(
    (id) => rows.get(id),
    () => {},
  );
  const trim = (share: number) =>
    new Trimming(state, pending, [span], share).step(segments, { values: 1_000, segments: 10 });
  /** What is written anew, by series. */
  const kept = () =>
    Object.fromEntries(
      [...pending.segments.values()].map(unpackSegment).map(({ series, value }) => [series, [...value]]),
    );
  return { state, pending, segments, span, rows, trim, kept };
}

const from = (first: number) => Array.from({ length: COUNT - first }, (_, i) => first + i);

describe('a group of values that is too large to go at once', () => {
  it('loses the first of each series; the rest stands in a new span, and nothing of the old one', () => {
    const { state, pending, span, trim, kept } = group();
    expect(trim(0.5)).toBe(10);
    expect(kept()).toEqual({ 1: from(5), 2: from(5) });
    expect([state.segmentValues, state.spans.length, state.spans.includes(span)]).toEqual([10, 1, false]);
    expect([...pending.droppedSpans]).toEqual([span]);
    expect([pending.goneSegments.size, pending.changedSpans.size]).toEqual([0, 0]);
  });

  it('keeps all of a series of which a batch has something', () => {
    const { state, span, trim, kept } = group();
    span.underWay.set(0, 1);
    expect(trim(0.5)).toBe(5);
    expect([span.gone[0], span.gone[1]]).toEqual([0, 1]);
    expect(kept()).toEqual({ 2: from(5) });
    expect(state.segmentValues).toBe(15);
  });

  it('keeps all of a series whose segment is awaited, and takes the others’ share', () => {
    const { span, rows, trim, kept } = group();
    rows.delete(segmentId(1, 0));
    // Its own five and what is owed of the one before it.
    expect(trim(0.5)).toBe(10);
    expect([span.gone[0], span.gone[1]]).toEqual([0, 1]);
    expect(kept()).toEqual({});
  });

  it('goes in steps, each of which is on disk before the next, and no more of it than must', () => {
    const { state, pending, segments } = group();
    const maxBytes = 1_000_000;
    const rows = { iterate: () => [] };
    const parts = {
      state,
      pending,
      segments,
      flush: new Flush(state, pending),
      bounds: { maxBytes, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' },
      // With what the rows of twenty values take beside, twice what the bound wants.
      statements: { oldestAside: rows, oldestQuarantine: rows, bytesOfSegments: { get: () => 82_448 } },
      isRead: () => false,
      stepSize: { values: 1_000, segments: 1 },
    };
    const dropping = new Dropping(parts as unknown as DroppingParts);
    const disk = { bytes: 0, usedBytes: 900_000, walBytes: 0, reusableBytes: 0, freeBytes: 1e9, totalBytes: 1e12 };
    for (const [fallen, left] of [
      [5, 15],
      [5, 10],
    ]) {
      dropping.keep(disk, () => 0);
      expect([state.segmentValues, dropping.isDue(disk)]).toEqual([left, false]);
      expect([dropping.committed(), dropping.isDue(disk)]).toEqual([true, true]);
      expect(dropping.take()).toEqual([{ reason: 'bytes', values: fallen }]);
    }
  });
});

const WHOLE = { values: 1e9, segments: 1e9 };

describe('the oldest share', () => {
  type Counts = readonly (readonly [series: number, count: number])[];

  /** Spans of one time on disk. */
  function spansOf(...spans: Counts[]): SpanWorld {
    const world = new SpanWorld(6, (id) => 1 + (id % 2));
    for (const counts of spans) world.addSpan(counts, { acceptedMs: 7 });
    world.check();
    return world;
  }

  const trimmingOf = ({ state, pending }: SpanWorld, share: number) =>
    new Trimming(state, pending, [...state.spans], share);

  /** What is left by a few lines of arithmetic: of each series the first go, and what is less than a value is owed by the next. */
  function expected(values: readonly number[][], order: readonly number[], share: number): number[][] {
    let owed = 0;
    const left = [...values];
    for (const series of order) {
      const all = values[series - 1]!;
      owed += all.length * share;
      const going = Math.min(all.length, Math.floor(owed));
      owed -= going;
      left[series - 1] = all.slice(going);
    }
    return left;
  }

  it.each([
    [
      'of a span',
      [
        [
          [1, 10],
          [3, 7],
          [2, 5],
        ],
      ],
      [1, 3, 2],
    ],
    [
      'of single values',
      [
        [
          [1, 1],
          [3, 1],
          [5, 1],
          [2, 1],
          [4, 1],
          [6, 1],
        ],
      ],
      [1, 3, 5, 2, 4, 6],
    ],
    ['of spans with a series each', [[[2, 4]], [[1, 9]], [[4, 4]]], [2, 1, 4]],
    [
      'of series with a segment in each span',
      [
        [
          [1, 4],
          [2, 3],
        ],
        [
          [1, 4],
          [2, 5],
        ],
        [
          [1, 4],
          [2, 2],
        ],
      ],
      [1, 2],
    ],
    [
      'of series with several in one',
      [
        [
          [1, 5],
          [1, 5],
          [1, 5],
          [2, 8],
          [2, 8],
        ],
      ],
      [1, 2],
    ],
  ] as [string, Counts[], number[]][])('%s goes series by series, the first of each', (_, spans, order) => {
    for (const share of [0.05, 0.25, 1 / 3, 0.5, 0.75, 0.99]) {
      const world = spansOf(...spans);
      const values = world.everything();
      const trimming = trimmingOf(world, share);
      const gone = trimming.step(world.segments, WHOLE);
      const left = expected(values, order, share);
      expect([trimming.isDone, world.everything()]).toEqual([true, left]);
      expect(gone).toBe(values.flat().length - left.flat().length);
      // All of one place and of one time; nothing of a span that is empty.
      expect(
        world.spans().filter(({ segments, run, acceptedMs }) => segments.length === 0 || run !== 1 || acceptedMs !== 7),
      ).toEqual([]);
      world.check();
    }
  });

  it('of what is settled in part goes in steps, each small enough', () => {
    for (const [size, steps] of [
      [{ values: 1, segments: 99 }, [1, 1, 1]],
      [{ values: 12, segments: 99 }, [2, 1]],
      [{ values: 10, segments: 99 }, [1, 2]],
      [{ values: 99, segments: 1 }, [1, 1, 1]],
      [{ values: 99, segments: 2 }, [2, 1]],
      [{ values: 99, segments: 3 }, [3]],
    ] as const) {
      const world = spansOf([
        [1, 10],
        [3, 2],
        [2, 4],
      ]);
      const { state, pending, segments } = world;
      const [span] = state.spans;
      settleRuns(state, pending, segments, span!, 0, [
        { from: 0, to: 2 },
        { from: 4, to: 6 },
      ]);
      world.commit();
      const [first, , second] = [world.standing(1), world.standing(2), world.standing(3)];
      const third = world.standing(2);
      const trimming = trimmingOf(world, 0.5);
      const series = () => world.everything().filter((values, i) => values.length < [6, 4, 2][i]!).length;
      const found: number[] = [];
      while (!trimming.isDone) {
        const before = series();
        trimming.step(segments, size);
        found.push(series() - before);
        world.check();
      }
      expect(found).toEqual(steps);
      expect(world.everything().slice(0, 3)).toEqual([first!.slice(3), third.slice(2), second!.slice(1)]);
    }
  });

  it('takes what stands behind the cut along, and leaves where they are the segments behind one that went whole', () => {
    const world = spansOf(
      [
        [1, 4],
        [2, 4],
      ],
      [
        [1, 4],
        [2, 4],
      ],
      [
        [1, 4],
        [2, 4],
      ],
    );
    const [one, two] = world.everything();
    // Of the first series a segment and a half, of the second the rest of it: a segment.
    const { state, pending, segments } = world;
    settleRuns(state, pending, segments, state.spans[2]!, 1, [{ from: 0, to: 4 }]);
    expect(trimmingOf(world, 0.5).step(segments, WHOLE)).toBe(10);
    expect(world.spans()).toEqual(
      [
        { id: 2, place: 2, run: 1, acceptedMs: 7, segments: [{ series: 2, readings: two!.slice(4, 8) }] },
        {
          id: 4,
          place: 1,
          run: 1,
          acceptedMs: 7,
          segments: [
            { series: 1, readings: one!.slice(6, 8) },
            { series: 1, readings: one!.slice(8) },
          ],
        },
      ].sort((a, b) => a.place - b.place),
    );
    expect(world.changes()).toMatchObject({ newSpans: [4], droppedSpans: [1, 3], goneSegments: [[2, 0]] });
    world.check();
  });

  it('is taken of what still stands when its step comes, and drops no span twice', () => {
    const world = spansOf(
      [[1, 4]],
      [[3, 4]],
      [
        [2, 4],
        [4, 4],
      ],
    );
    const { state, pending, segments } = world;
    const trimming = trimmingOf(world, 0.5);
    const step = () => trimming.step(segments, { values: 1, segments: 1 });
    expect(step()).toBe(2);
    world.commit();
    settleRuns(state, pending, segments, state.spans.find(({ id }) => id === 2)!, 0, [{ from: 0, to: 4 }]);
    world.commit();
    expect([step(), world.changes().droppedSpans, trimming.isDone]).toEqual([2, [], false]);
    expect([step(), world.changes().droppedSpans, trimming.isDone]).toEqual([2, [3], true]);
    expect(world.everything().map(({ length }) => length)).toEqual([2, 2, 0, 2, 0, 0]);
    world.check();
  });

  it('stays of a series of which a batch has something, and is not owed by the others', () => {
    const world = spansOf(
      [
        [1, 4],
        [3, 4],
        [2, 4],
      ],
      [
        [1, 4],
        [3, 4],
        [2, 4],
      ],
    );
    sendEntry(world.state.seriesOf(3).asset, world.state.spans[1]!, 1, false);
    expect(trimmingOf(world, 0.5).step(world.segments, WHOLE)).toBe(8);
    expect(world.everything().map(({ length }) => length)).toEqual([4, 4, 8, 0, 0, 0]);
    world.check();
  });

  it.each([
    ['that goes whole need not read', [0], [3, 5]],
    ['that is cut is awaited: the series stays, and the next one loses its share', [1], [8, 0]],
    ['behind the cut is awaited: the same', [2], [8, 0]],
  ])('a segment %s', (_, awaited, left) => {
    const world = spansOf(
      [
        [1, 4],
        [2, 12],
      ],
      [[1, 2]],
      [[1, 2]],
    );
    for (const at of awaited) world.awaited.add(segmentId(world.state.spans[at]!.id, 0));
    const gone = trimmingOf(world, 0.625).step(world.segments, WHOLE);
    expect(
      world
        .everything()
        .slice(0, 2)
        .map(({ length }) => length),
    ).toEqual(left);
    expect([gone, world.lost]).toEqual([20 - left[0]! - left[1]!, []]);
    world.check();
  });

  it('needs nothing of the segments behind one that goes whole, and reads none where nothing goes', () => {
    const world = spansOf([[1, 4]], [[1, 4]], [[2, 4]]);
    for (const { id } of world.state.spans) world.awaited.add(segmentId(id, 0));
    const trimming = trimmingOf(world, 0.05);
    expect([trimming.step(world.segments, WHOLE), world.read]).toEqual([0, []]);
    // Of the second series nothing goes either: what is owed is half a value.
    expect(trimmingOf(world, 0.5).step(world.segments, { values: 8, segments: 9 })).toBe(4);
    expect([world.state.spans.map(({ id }) => id), world.read]).toEqual([[2, 3], []]);
    world.awaited.clear();
    world.check();
  });

  it('keeps nothing of what it took out in memory', () => {
    const world = spansOf([[1, 4]], [[1, 4]]);
    const [first, second] = world.state.spans;
    trimmingOf(world, 0.75).step(world.segments, WHOLE);
    expect(world.read).toEqual([segmentId(second!.id, 0)]);
    world.segments.read({ ...second!, gone: new Uint8Array(1) }, 0);
    expect([world.read.length, world.state.spans.includes(first!)]).toEqual([2, false]);
  });

  it('gives what went, where a segment that is cut does not read and no other is there to take it from', () => {
    const world = spansOf([[1, 4]], [[1, 4]]);
    world.onDisk.delete(segmentId(world.state.spans[1]!.id, 0));
    expect(trimmingOf(world, 0.75).step(world.segments, WHOLE)).toBe(4);
    expect([world.lost, world.state.spans]).toEqual([[4], []]);
    world.check();
  });

  it('is taken from the next segment where the one that is cut does not read, which goes once', () => {
    const world = spansOf(
      [[1, 4]],
      [
        [1, 4],
        [3, 4],
      ],
      [[1, 4]],
    );
    const [, , other] = world.everything();
    world.onDisk.delete(segmentId(world.state.spans[1]!.id, 0));
    const trimming = trimmingOf(world, 0.5);
    expect(trimming.step(world.segments, { values: 1, segments: 1 })).toBe(6);
    expect([world.lost, world.standing(1).length, world.standing(3)]).toEqual([[4], 2, other]);
    world.check();
  });
});
