import { describe, expect, it } from 'vitest';
import { BodyWriter } from '../../src/buffer/batches/body-writer.ts';
import { divideBatch } from '../../src/buffer/batches/take.ts';
import { sortArrivals } from '../../src/buffer/compaction/arrivals.ts';
import { Flush, rowsOfOneRun } from '../../src/buffer/compaction/flush.ts';
import { unpackSegment } from '../../src/buffer/format/segment.ts';
import { ValueColumns } from '../../src/buffer/format/value-columns.ts';
import { Pending } from '../../src/buffer/pending.ts';
import { StoreState } from '../../src/buffer/state.ts';
import { range, SpanWorld } from './span-world.ts';

const SERIES = 6;

/** A log of five rows with two values of each series, numbered as they come. */
function log() {
  const state = new StoreState();
  const pending = new Pending();
  for (let id = 1; id <= SERIES; id++) {
    state.addSeries({
      id,
      asset: 1 + (id % 2),
      key: `k${id}`,
      group: undefined,
      unit: undefined,
      instrumentation: undefined,
    });
  }
  let number = 0;
  for (let id = 1; id <= 5; id++) {
    const columns = new ValueColumns();
    for (let i = 0; i < 2 * SERIES; i++) columns.add(1 + (i % SERIES), 1_000 + number, number++, 0);
    const { length: count } = columns;
    state.rows.push({ id, firstSeq: state.nextSeq, count, left: count, isLoaded: true, run: 1, monotonicMs: id });
    state.takeIn(columns);
  }
  return { state, pending, flush: new Flush(state, pending), values: number };
}

const flushed = ({ pending }: { pending: Pending }) =>
  [...pending.segments.values()].flatMap((packed) => [...unpackSegment(packed).value]).sort((a, b) => a - b);
const numbers = (below: number) => Array.from({ length: below }, (_, i) => i);

describe('a flush', () => {
  it('takes some series a step, and leaves the others in the log until it is their turn', () => {
    const world = log();
    const { state, pending, flush, values } = world;
    flush.begin(5);
    flush.step({ values: Number.POSITIVE_INFINITY, segments: 4 });
    expect(flushed(world)).toHaveLength(4 * 10);
    expect(state.logValues).toBe(values - 4 * 10);
    expect(pending.dropRowsThrough).toBe(0);
    expect(pending.settled).toHaveLength(4);
    flush.step({ values: Number.POSITIVE_INFINITY, segments: 4 });
    expect(flush.isUnderWay).toBe(false);
    expect(flushed(world)).toEqual(numbers(values));
    expect([state.logValues, state.rows.length, pending.dropRowsThrough]).toEqual([0, 0, 5]);
    // Nothing is said of values whose rows go.
    expect(pending.settled).toEqual([]);
  });

  it.each([1, 3, 5])('that is given up for one of %i rows flushes nothing twice and leaves nothing out', (rows) => {
    const world = log();
    const { state, flush, values } = world;
    flush.begin(5);
    flush.step({ values: 1, segments: 1 });
    flush.step({ values: 1, segments: 1 });
    flush.abandon();
    expect(flush.isUnderWay).toBe(false);
    flush.begin(rows);
    flush.finish();
    // Two series whole, of the others what those rows hold.
    expect(flushed(world)).toHaveLength(2 * 10 + 4 * 2 * rows);
    expect(state.rows).toHaveLength(5 - rows);
    if (rows < 5) {
      flush.begin(5 - rows);
      flush.finish();
    }
    expect(flushed(world)).toEqual(numbers(values));
    expect(state.logValues).toBe(0);
  });

  it('goes on after a start where it had begun, and begins nothing of another age or of another run', () => {
    const world = log();
    const { state, pending, flush } = world;
    flush.begin(3);
    flush.step({ values: 1, segments: 1 });
    const after = new Flush(state, pending);
    after.resume();
    expect(after.isUnderWay).toBe(true);
    after.finish();
    expect(state.rows.map(({ id }) => id)).toEqual([4, 5]);
    after.resume();
    expect(after.isUnderWay).toBe(false);
    // Of a run whose clock is behind.
    state.rows = state.rows.map((row) => ({ ...row, run: 2, monotonicMs: 1 }));
    after.resume();
    expect(after.isUnderWay).toBe(false);
  });

  it('takes rows of one run that are loaded, no more than it is told', () => {
    const { rows } = log().state;
    const counts = (...most: number[]) => most.map((max) => rowsOfOneRun(rows, max));
    expect(counts(0, 2, 5, 9)).toEqual([0, 2, 5, 5]);
    rows[4]!.run = 2;
    rows[3]!.isLoaded = false;
    expect(counts(2, 3, 4, 5)).toEqual([2, 3, 3, 3]);
    expect(rowsOfOneRun([], 1)).toBe(0);
  });
});

describe('arrivals', () => {
  it('are sorted by series as they were asked for, without what stands behind their end', () => {
    const columns = new ValueColumns();
    for (const [at, series] of [3, 1, 3, 2, 1, 2].entries()) columns.add(series, 100 + at, at, at);
    // Columns are longer than what is in them.
    columns.series[columns.length] = 3;
    const { series, count, timeMs, value, flags } = sortArrivals([{ columns, firstSeq: 0 }], [3, 1], 4);
    expect(series).toEqual([
      { id: 3, start: 0, count: 2, firstSeq: 0 },
      { id: 1, start: 2, count: 2, firstSeq: 1 },
    ]);
    expect([count, [...timeMs], [...value], [...flags]]).toEqual([4, [100, 102, 101, 104], [0, 2, 1, 4], [0, 2, 1, 4]]);
  });
});

const EVERYTHING = { values: Number.POSITIVE_INFINITY, segments: Number.POSITIVE_INFINITY };

describe.each([
  ['what has arrived', 0],
  ['what stands in queues', 99],
  ['what stands in queues and what has arrived behind them', 1],
])('a flush of %s', (_, queuedRows) => {
  /** Rows of four values each, of some of six series in two assets. */
  function arrived(...rows: number[][]): SpanWorld {
    const world = new SpanWorld(6, (id) => 1 + (id % 2));
    for (const [at, ids] of rows.entries()) {
      world.row(ids, 4);
      if (at < queuedRows) world.state.distribute();
    }
    return world;
  }

  it.each([
    // Those that have nothing cost nothing; a step ends with the series that fills it.
    [{ values: 1, segments: 99 }, [[1], [5], [2], [4], [6]]],
    [{ values: 8, segments: 99 }, [[1], [5], [2, 4], [6]]],
    [
      { values: 9, segments: 99 },
      [
        [1, 5],
        [2, 4, 6],
      ],
    ],
    [{ values: 99, segments: 1 }, [[1], [5], [2], [4], [6]]],
    [{ values: 99, segments: 2 }, [[1, 5], [2, 4], [6]]],
    [{ values: 99, segments: 99 }, [[1, 5, 2, 4, 6]]],
  ])('takes as many series a step as %o has room for', (size, expected) => {
    const world = arrived([1, 2, 4, 5, 6], [1, 5]);
    world.row([3, 6], 4);
    const values = world.everything();
    world.flush.begin(2);
    for (const [at, series] of expected.entries()) {
      expect(world.flush.isUnderWay).toBe(true);
      world.flush.step(size);
      const { segments, ...head } = world.spans().at(-1)!;
      expect(head).toEqual({ id: at + 1, place: at + 1, run: 1, acceptedMs: 20 });
      expect(segments.map((one) => one.series)).toEqual(series);
      expect(world.everything()).toEqual(values);
      expect(world.pending.dropRowsThrough).toBe(at === expected.length - 1 ? 2 : 0);
      world.check();
    }
    // What is behind the last that has something is passed over in its step, or in one of its own.
    while (world.flush.isUnderWay) world.flush.step(size);
    expect([world.state.spans.length, world.state.rows.map(({ id }) => id)]).toEqual([expected.length, [3]]);
    world.flush.begin(1);
    world.flush.finish();
    // No series has a queue any more, and nothing is left to do.
    expect([world.state.seriesInLog(), world.state.holdsOnlyArrivals]).toEqual([0, true]);
    world.flush.step(size);
    expect(world.everything()).toEqual(values);
    world.check();
  });

  it('cuts what is more than a segment holds', () => {
    const world = new SpanWorld(2);
    world.row([1], 5_000);
    if (queuedRows > 0) world.state.distribute();
    world.row([2], 2_048);
    if (queuedRows > 1) world.state.distribute();
    const values = world.everything();
    world.flush.begin(2);
    world.flush.finish();
    expect([...world.state.spans[0]!.count]).toEqual([2_048, 2_048, 904, 2_048]);
    expect(world.everything()).toEqual(values);
    world.check();
  });

  it('that ended in its middle goes on with all rows of its age, and of its run', () => {
    for (const [rows, left] of [
      [4, [4]],
      [3, []],
    ] as const) {
      const world = new SpanWorld();
      for (let i = 0; i < 3; i++) world.row([1, 2], 2, 50);
      if (rows > 3) world.row([1], 2, 51);
      if (queuedRows > 0) world.state.distribute();
      world.flush.begin(3);
      world.flush.step({ values: 1, segments: 1 });
      world.flush.abandon();
      world.flush.resume();
      expect(world.flush.isUnderWay).toBe(true);
      world.flush.finish();
      expect(world.state.rows.map(({ id }) => id)).toEqual(left);
      world.check();
    }
    const world = new SpanWorld();
    world.row([1], 2, 50);
    world.flush.resume();
    expect(world.flush.isUnderWay).toBe(false);
  });

  it('knows the spans that it made by their run and their time', () => {
    const world = arrived([1, 2], [1, 2]);
    const made = (run: number, acceptedMs: number) => world.flush.made({ run, acceptedMs } as never);
    expect(made(1, 20)).toBe(false);
    world.flush.begin(2);
    expect([made(1, 20), made(1, 10), made(2, 20)]).toEqual([true, false, false]);
    world.flush.finish();
    expect(made(1, 20)).toBe(false);
  });

  it('of rows that have gone meanwhile leaves none of them to be dropped again, and none behind', () => {
    const world = arrived([1], [1], [1], [1]);
    const { state, pending, flush } = world;
    flush.begin(2);
    pending.dropRowsThrough = 3;
    state.rows = state.rows.slice(3);
    flush.finish();
    expect([pending.dropRowsThrough, state.rows.map(({ id }) => id)]).toEqual([3, [4]]);
  });
});

describe('what a batch has of the log', () => {
  it('becomes segments of its own, cut where the flushed rows end; what was settled falls away', () => {
    const world = new SpanWorld(2);
    const { state, pending, flush } = world;
    for (let i = 0; i < 3; i++) world.row([1], 10);
    world.row([2], 4);
    const [first, settled, third] = [5, 10, 10].map((values) => world.take(values, [1]));
    world.settle(settled!);
    const beyond = world.take(3, [1]);
    world.settle(beyond);
    expect(world.standing(1)).toEqual([...range(1, 5), ...range(16, 25), 29, 30]);
    flush.begin(2);
    flush.step(EVERYTHING);
    const [span] = state.spans;
    expect(world.spans().map(({ segments }) => segments)).toEqual([
      [
        { series: 1, readings: range(1, 5) },
        { series: 1, readings: range(16, 20) },
      ],
    ]);
    const slices = [first!, third!].map((batch) =>
      batch.slices.map(({ at, count, value }) => ({ at, count, value: [...value] })),
    );
    expect(slices).toEqual([
      [{ at: { span, entry: 0, from: 0 }, count: 5, value: range(1, 5) }],
      [
        { at: { span, entry: 1, from: 0 }, count: 5, value: range(16, 20) },
        { at: { position: 20 }, count: 5, value: range(21, 25) },
      ],
    ]);
    expect(span!.underWay).toEqual(
      new Map([
        [0, 1],
        [1, 1],
      ]),
    );
    // What was settled of the rows that go needs no record any more.
    expect(pending.settled).toEqual([{ series: 1, firstSeq: 25, lastSeq: 27 }]);
    expect(state.rows.map(({ id, left }) => [id, left])).toEqual([
      [3, 7],
      [4, 4],
    ]);
    world.check();
    world.settle(first!);
    world.check();
    flush.begin(2);
    flush.finish();
    world.check();
    world.settle(third!);
    expect(world.everything()).toEqual([[29, 30], range(31, 34)]);
    world.check();
  });

  it('goes beside what waits before it, and is not touched where it stands behind the rows', () => {
    const world = new SpanWorld(1);
    for (let i = 0; i < 2; i++) world.row([1], 10);
    const [before, first, second] = [4, 6, 10].map((values) => world.take(values));
    world.release(before!);
    world.flush.begin(1);
    world.flush.finish();
    expect(world.spans()[0]!.segments.map(({ readings }) => readings)).toEqual([range(1, 4), range(5, 10)]);
    expect([first, second].map((batch) => batch!.slices.map(({ at, count }) => ['position' in at, count]))).toEqual([
      [[false, 6]],
      [[true, 10]],
    ]);
    expect(world.standing(1)).toEqual(range(1, 20));
    world.check();
  });

  it('and was settled behind what was flushed leaves no queue when its rows are flushed', () => {
    const world = new SpanWorld(1);
    for (let i = 0; i < 2; i++) world.row([1], 5);
    const [first, second] = [world.take(5), world.take(5)];
    world.settle(second);
    world.release(first);
    for (const left of [1, 0]) {
      world.flush.begin(1);
      world.flush.finish();
      expect([world.state.rows.length, world.state.seriesInLog(), world.standing(1)]).toEqual([
        left,
        left,
        range(1, 5),
      ]);
      world.check();
    }
  });

  it('of several series is cut slice by slice, each part behind the other', () => {
    const world = new SpanWorld(2);
    world.row([1, 2], 3);
    world.row([1, 2], 3);
    const values = world.everything();
    const batch = world.take(10);
    world.flush.begin(1);
    world.flush.finish();
    const slices = batch.slices.map(({ series, at, count }) => [
      series.series.id,
      'position' in at ? 'log' : 'span',
      count,
    ]);
    expect(slices).toEqual([
      [1, 'span', 3],
      [1, 'log', 2],
      [2, 'span', 3],
      [2, 'log', 2],
    ]);
    expect(world.everything()).toEqual(values);
    world.check();
    world.release(batch);
    expect(world.everything()).toEqual(values);
    world.check();
  });

  it('goes in the order in which it stands, though a batch was divided', () => {
    const world = new SpanWorld(1);
    world.row([1], 30);
    const first = world.take(10);
    world.take(10);
    divideBatch(world.state, new BodyWriter(), first);
    const values = world.everything();
    world.flush.begin(1);
    world.flush.finish();
    expect(world.spans()[0]!.segments.map(({ readings }) => readings.length)).toEqual([5, 5, 10, 10]);
    expect(world.everything()).toEqual(values);
    world.check();
  });

  it('stays in one segment, however long it is', () => {
    const world = new SpanWorld(1);
    world.row([1], 9_000);
    world.take(3_000);
    world.flush.begin(1);
    world.flush.finish();
    expect([...world.state.spans[0]!.count]).toEqual([3_000, 2_048, 2_048, 1_904]);
    world.check();
  });

  it('and was settled in the middle of a flush is not flushed', () => {
    const world = new SpanWorld(3);
    world.row([1, 2, 3], 4);
    world.flush.begin(1);
    world.flush.step({ values: 1, segments: 1 });
    const batch = world.take(99, [2]);
    world.settle(batch);
    world.settle(world.take(99, [3]));
    world.row([1], 2);
    world.flush.finish();
    expect(world.everything().map(({ length }) => length)).toEqual([6, 0, 0]);
    expect(world.spans().map(({ segments }) => segments.map(({ series }) => series))).toEqual([[1]]);
    world.check();
  });
});
