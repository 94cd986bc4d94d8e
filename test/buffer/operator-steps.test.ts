/** What operators look at, copy out and take away, in memory: all of it, at every size of a step. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type Database, openDatabase } from '../../src/base/database.ts';
import { Maintenance } from '../../src/buffer/compaction/maintenance.ts';
import { packSegment } from '../../src/buffer/format/segment.ts';
import { type ExportPage, Exports } from '../../src/buffer/operator/exporting.ts';
import { listSeries } from '../../src/buffer/operator/listing.ts';
import { OperatorCalls, type OperatorParts } from '../../src/buffer/operator/operator-calls.ts';
import { requeue, showQuarantine } from '../../src/buffer/operator/requeueing.ts';
import {
  type Withdrawal,
  type WithdrawalCursor,
  type WithdrawalStep,
  withdraw,
} from '../../src/buffer/operator/withdrawing.ts';
import { Pending } from '../../src/buffer/pending.ts';
import { segmentId } from '../../src/buffer/span.ts';
import { prepareStatements, prepareTables, quarantineSum, type Statements } from '../../src/buffer/tables.ts';
import { memoryFolder } from '../memory-folder.ts';
import { SpanWorld } from './span-world.ts';

const EXPORT_BARS_MS = 600_000;
const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i);

/**
 * Two assets. Series 1 and 3 have segments, of which a part is settled, a part under way and one gone; 2 has none; 4 has one, and is held; in
 * the log stand values of 1, 2 and 4, some settled, some under way.
 */
function mixed(): SpanWorld {
  const world = new SpanWorld(5, (id) => (id === 4 ? 2 : 1));
  const { state } = world;
  world.span([1, 3, 4], 6);
  world.span([1, 3], 4);
  world.settle(world.take(3, [1], 'backlog'));
  world.take(5, [1], 'backlog');
  const gone = world.span([1], 2);
  state.loseEntry(gone, 0);
  state.dropSpan(gone);
  world.pending.dropSpan(gone);
  world.span([3], 3);
  const part = world.span([1, 3], 2);
  state.loseEntry(part, 1);
  world.pending.dropSegment(part, 1);
  world.row([1, 2, 4], 5);
  world.row([1, 2], 5, undefined, { lateBy: 7 });
  const [first, second] = [world.take(2, [2]), world.take(4, [2])];
  world.settle(second!);
  state.holdSeries([4]);
  expect(first!.slices.length).toBe(1);
  world.check();
  return world;
}

describe('what stands, series by series', () => {
  const list = (world: SpanWorld, page = { after: 0, limit: 99 }) => {
    world.state.distribute();
    return listSeries(world.state, (id) => world.onDisk.get(id), page);
  };

  it('is told wholly', () => {
    const world = mixed();
    const { state, onDisk } = world;
    const all = range(1, 5).map((series) => world.standing(series));
    const times = all.map((readings) => readings.map((reading) => world.timeOf(reading)));
    const segmentsOf = (series: number) =>
      state.spans.flatMap((span) =>
        [...span.series.keys()]
          .filter((entry) => span.series[entry] === series && !span.gone[entry])
          .map((entry) => ({ count: span.count[entry]!, bytes: onDisk.get(segmentId(span.id, entry))!.length })),
      );
    const rows = list(world);
    expect(rows.map(({ bytes: _, ...row }) => row)).toEqual(
      range(1, 5).map((series, i) => {
        const { queue, held, asset } = state.seriesOf(series);
        const live = range(queue.popped, queue.end - 1).filter((at) => !queue.isSettled(at)).length;
        return {
          series,
          asset: asset.asset,
          live,
          backlog: all[i]!.length - live,
          underWay: [5, 2, 0, 0, 0][i],
          fromMs: times[i]![0],
          toMs: times[i]!.length > 0 ? Math.max(...times[i]!) : undefined,
          held,
        };
      }),
    );
    expect(rows.map(({ live, backlog }) => [live, backlog])).toEqual([
      [10, 9],
      [6, 0],
      [0, 13],
      [5, 6],
      [0, 0],
    ]);
    // Six bytes of a value of the log, of a segment's what it takes on disk.
    expect(rows.map(({ bytes }) => bytes)).toEqual(
      rows.map(({ series, live, backlog }) => {
        const sampled = segmentsOf(series);
        const [count, bytes] = [
          sampled.reduce((sum, one) => sum + one.count, 0),
          sampled.reduce((sum, one) => sum + one.bytes, 0),
        ];
        return live * 6 + (count > 0 ? Math.round((bytes / count) * backlog) : 0);
      }),
    );
    expect(world.everything()).toEqual(all);
  });

  it('comes in pages, without series that are forgotten', () => {
    const world = new SpanWorld(5);
    world.state.series[3] = undefined;
    const page = (after: number, limit: number) => list(world, { after, limit }).map(({ series }) => series);
    expect([page(0, 2), page(2, 2), page(5, 2), page(0, 0)]).toEqual([[1, 2], [4, 5], [], []]);
  });

  it.each([
    [1, [0]],
    [2, [0, 1]],
    [3, [0, 1, 2]],
    [4, [0, 1, 3]],
    [5, [0, 4, 3]],
    [6, [0, 4, 5]],
    [7, [0, 6, 5]],
  ])('takes its bytes from few of its segments: of %i from %j', (segments, sampled) => {
    const world = new SpanWorld(1);
    for (let i = 0; i < segments; i++) world.addSpan([[1, 1 + i * i * 40]], { acceptedMs: i });
    const at = sampled.map((i) => world.state.spans[i]!);
    const bytes = at.reduce((sum, { id }) => sum + world.onDisk.get(segmentId(id, 0))!.length, 0);
    const count = at.reduce((sum, { values }) => sum + values, 0);
    const all = world.standing(1).length;
    expect(list(world)).toEqual([
      {
        series: 1,
        asset: 1,
        live: 0,
        backlog: all,
        underWay: 0,
        fromMs: 1,
        toMs: all,
        bytes: Math.round((bytes / count) * all),
        held: false,
      },
    ]);
  });

  it('is told as far as it reads, and nothing is mended by looking', () => {
    const world = new SpanWorld(2);
    world.span([1, 2], 3);
    world.span([1], 4);
    world.commit();
    world.row([1], 2);
    const ids = [...world.onDisk.keys()];
    const readings = world.standing(1);
    const told = () => list(world).map(({ fromMs, toMs, backlog, bytes }) => ({ fromMs, toMs, backlog, bytes }));
    const [whole, other] = told();
    world.onDisk.set(ids[0]!, new Uint8Array(20));
    // Its first value does not read: the oldest that is known is the first of the log.
    expect(told()[0]).toMatchObject({ fromMs: readings[7], toMs: readings.at(-1), backlog: 7 });
    world.onDisk.delete(ids[0]!);
    const { length } = world.onDisk.get(ids[2]!)!;
    expect(told()).toEqual([{ ...whole, fromMs: readings[7], bytes: 2 * 6 + Math.round((length / 4) * 7) }, other]);
    world.onDisk.clear();
    expect(told()).toEqual([
      { ...whole, fromMs: readings[7], bytes: 2 * 6 },
      { ...other, fromMs: undefined, bytes: 0 },
    ]);
    expect([world.lost, world.state.segmentValues]).toEqual([[], 10]);
  });
});

describe('an export', () => {
  function exportsOf(world: SpanWorld) {
    const { state, pending, segments, flush } = world;
    const limits = { flushAfterMs: 1e9, flushValues: 1e9 };
    const maintenance = new Maintenance(state, pending, segments, flush, limits, () => Number.POSITIVE_INFINITY);
    return { maintenance, exports: new Exports(state, segments, maintenance) };
  }
  const rowsOf = ({ columns }: ExportPage) => {
    const { length, series, timeMs, value, flags } = columns;
    expect([series, timeMs, value, flags].map((column) => column.length)).toEqual(Array(4).fill(length));
    return Array.from(value, (reading, i) => [series[i], timeMs[i], reading, flags[i]]);
  };
  const pagesOf = (exports: Exports, id: number) => {
    const pages: number[][][] = [];
    for (let done = false; !done; ) {
      const page = exports.page(id, 0);
      ({ done } = page);
      pages.push(rowsOf(page) as number[][]);
    }
    return pages;
  };

  /** What comes out: segment by segment, then run by run of the log. */
  function expected(world: SpanWorld, wanted: readonly number[]): (readonly number[])[] {
    const inSegments = world
      .spans()
      .flatMap(({ segments }) => segments.filter(({ series }) => wanted.includes(series)));
    const counts = new Map<number, number>();
    for (const { series, readings } of inSegments) counts.set(series, (counts.get(series) ?? 0) + readings.length);
    const inLog = wanted.map((series) => world.standing(series).slice(counts.get(series) ?? 0));
    return [...inSegments.map(({ readings }) => readings), ...inLog];
  }

  it.each([
    [undefined, [1, 2, 3, 4, 5]],
    [[3], [3]],
    [
      [1, 4],
      [1, 4],
    ],
    [[5], [5]],
    [[], []],
  ])(
    'of series %j has each value once, segment by segment and then the log, whatever a page holds',
    (series, wanted) => {
      for (const pageSegments of [1, 2, 3, 4, undefined]) {
        const world = mixed();
        const { exports } = exportsOf(world);
        const runs = expected(world, wanted);
        const pages = pagesOf(exports, exports.begin({ series, ...(pageSegments && { pageSegments }) }, 0));
        expect(pages.flat().map(([, , reading]) => reading)).toEqual(runs.flat());
        for (const [id, timeMs, reading, flags] of pages.flat())
          expect([world.standing(id!).includes(reading!), timeMs, flags]).toEqual([
            true,
            world.timeOf(reading!),
            reading! % 8,
          ]);
        const segments = world.spans().flatMap((span) => span.segments.filter((one) => wanted.includes(one.series)));
        const most = pageSegments ?? 100;
        // A page of so many segments, and one of what is behind the last full one.
        const full = Math.floor(segments.length / most);
        expect([full, full + 1]).toContain(pages.length);
        expect(pages.slice(0, full).map((page) => page.length)).toEqual(
          range(0, full - 1).map(
            (at) => segments.slice(at * most, (at + 1) * most).flatMap(({ readings }) => readings).length,
          ),
        );
      }
    },
  );

  it('holds some thousand values a page, of the log too', () => {
    const world = new SpanWorld(3);
    for (const values of [2_000, 2_000, 1_000, 1]) world.span([1], values);
    world.row([1], 4_999);
    world.row([2], 1);
    world.row([3], 1);
    const { exports } = exportsOf(world);
    const id = exports.begin({}, 0);
    expect(pagesOf(exports, id).map(({ length }) => length)).toEqual([5_000, 5_000, 2]);
    expect(exports.page(id, 0)).toMatchObject({ done: true, columns: { length: 0 } });
  });

  it('has what stood at its start, but for what has left meanwhile', () => {
    const world = mixed();
    const { exports } = exportsOf(world);
    const before = expected(world, range(1, 5)).flat();
    const id = exports.begin({ pageSegments: 2 }, 0);
    const first = rowsOf(exports.page(id, 0)).map(([, , reading]) => reading!);
    world.row([1, 3], 3);
    world.flush.begin(world.state.rows.length);
    world.flush.finish();
    world.settle(world.take(99, [3], 'backlog'));
    const left = before.filter((reading) => world.everything().flat().includes(reading));
    const rest = pagesOf(exports, id)
      .flat()
      .map(([, , reading]) => reading!);
    expect(first).toEqual(before.slice(0, first.length));
    expect([...first, ...rest]).toEqual(before.filter((reading) => first.includes(reading) || left.includes(reading)));
    expect(rest.length).toBeLessThan(before.length - first.length);
    world.check();
  });

  it('waits for a segment that is awaited, and goes on without one that is lost', () => {
    const world = new SpanWorld(1);
    for (let i = 0; i < 4; i++) world.span([1], 2);
    world.commit();
    const { exports } = exportsOf(world);
    const ids = world.state.spans.map((span) => segmentId(span.id, 0));
    world.awaited.add(ids[1]!);
    const id = exports.begin({}, 0);
    const page = () => {
      const one = exports.page(id, 0);
      return [rowsOf(one).map(([, , reading]) => reading), one.done];
    };
    expect([page(), page()]).toEqual([
      [[1, 2], false],
      [[], false],
    ]);
    world.awaited.clear();
    world.onDisk.delete(ids[2]!);
    expect([page(), world.lost]).toEqual([[[3, 4, 7, 8], true], [2]]);
  });

  it('bars compaction for some minutes from its last page on, and no longer than the last of several lasts', () => {
    const { exports, maintenance } = exportsOf(mixed());
    const bars = (nowMs: number) => [
      maintenance.isWalked(nowMs + EXPORT_BARS_MS - 1),
      maintenance.isWalked(nowMs + EXPORT_BARS_MS),
    ];
    const one = exports.begin({}, 1_000);
    expect(bars(1_000)).toEqual([true, false]);
    exports.page(one, 5_000);
    expect(bars(5_000)).toEqual([true, false]);
    const other = exports.begin({}, 6_000);
    exports.end(one);
    exports.end(99);
    expect(bars(6_000)).toEqual([true, false]);
    exports.end(other);
    expect(maintenance.isWalked(6_000)).toBe(false);
    expect(() => exports.page(other, 6_000)).toThrow(expect.objectContaining({ code: 'store.export_gone' }));
  });
});

describe('what is taken out', () => {
  type Taken = { values: number[]; received: number[] };

  /** Step by step until nothing is left to do: how many each took, and what was received. */
  function withdrawAll(world: SpanWorld, request: Withdrawal, receives: boolean): Taken {
    const { state, pending, segments } = world;
    const taken: Taken = { values: [], received: [] };
    let cursor: WithdrawalCursor | undefined;
    do {
      const step = withdraw(
        state,
        pending,
        segments,
        { ...request, cursor },
        receives
          ? ({ series }, { value }, from, to) => {
              for (const reading of value.subarray(from, to)) {
                expect(world.seriesOf(reading)).toBe(series.id);
                taken.received.push(reading);
              }
            }
          : undefined,
      );
      taken.values.push(step.values);
      ({ cursor } = step);
      world.check();
    } while (cursor);
    return taken;
  }

  const cases: [string, Omit<Withdrawal, 'cursor'>][] = [
    ['all', {}],
    ['all of one series', { series: [3] }],
    ['all of two', { series: [1, 4] }],
    ['of a series that has nothing', { series: [5] }],
    ['none', { series: [] }],
    ['what is older than a value in a segment', { beforeMs: 20 }],
    ['what is older than one in the log', { beforeMs: 52 }],
    ['what is older than that of one series', { series: [2], beforeMs: 52 }],
    ['what is older than all', { beforeMs: 1 }],
  ];
  it.each(cases)('%s is all of it that no batch has, however small a step', (_, request) => {
    for (const receives of [false, true])
      for (const stepSegments of [1, 2, 3, undefined]) {
        const world = mixed();
        const before = world.everything();
        const sent = new Set(
          [...world.state.batches.values()].flatMap(({ slices }) => slices.flatMap(({ value }) => [...value])),
        );
        const goes = (reading: number) =>
          !sent.has(reading) &&
          (request.series ?? range(1, 5)).includes(world.seriesOf(reading)) &&
          world.timeOf(reading) < (request.beforeMs ?? Number.POSITIVE_INFINITY);
        const { values, received } = withdrawAll(world, { ...request, stepSegments }, receives);
        const gone = before.flat().filter(goes);
        expect(world.everything()).toEqual(before.map((all) => all.filter((reading) => !goes(reading))));
        expect(values.reduce((sum, count) => sum + count, 0)).toBe(gone.length);
        expect([...received].sort((a, b) => a - b)).toEqual(receives ? [...gone].sort((a, b) => a - b) : []);
        // Of each series in the order of acceptance.
        for (const series of range(1, 5)) {
          const own = received.filter((reading) => world.seriesOf(reading) === series);
          expect(own).toEqual(receives ? before[series - 1]!.filter(goes) : []);
        }
        for (const batch of [...world.state.batches.values()]) world.settle(batch);
        world.check();
        expect(
          world
            .everything()
            .flat()
            .filter((reading) => sent.has(reading)),
        ).toEqual([]);
      }
  });

  it.each([
    // A segment of which a batch has the rest costs nothing.
    [undefined, 1, [3, 3, 3]],
    [undefined, 2, [6, 3]],
    [undefined, 3, [9]],
    // Those of the second flush are read; read and unread ones are counted apart.
    [10, 1, [3, 2, 1]],
    [10, 2, [6]],
    // The time itself is not before it.
    [11, 1, [3, 2, 2]],
    [7, 1, [3, 0, 0]],
    [7, 2, [3]],
  ])('before %s goes by steps of %i segments, read or not: %j', (beforeMs, stepSegments, expected) => {
    const world = new SpanWorld(2);
    for (let i = 0; i < 2; i++) world.span([1, 2], 3);
    world.settle(world.take(2, [2], 'backlog'));
    world.take(1, [2], 'backlog');
    expect(withdrawAll(world, { beforeMs, stepSegments }, false).values).toEqual(expected);
  });

  it('goes a hundred segments a step where they are read, and two thousand where they are not', () => {
    const spans = (count: number) => {
      const world = new SpanWorld(1);
      for (let i = 0; i < count; i++) world.addSpan([[1, 1]], { acceptedMs: i });
      return world;
    };
    const { state, pending, segments } = spans(101);
    const received: number[] = [];
    const step = withdraw(state, pending, segments, {}, (_, { value }) => received.push(value[0]!));
    expect([step, received]).toEqual([{ values: 100, cursor: { place: 101, span: 101, entry: 0 } }, range(1, 100)]);
    const many = spans(2_001);
    expect(withdraw(many.state, many.pending, many.segments, {})).toEqual({
      values: 2_000,
      cursor: { place: 2_001, span: 2_001, entry: 0 },
    });
    expect(many.read).toEqual([]);
  });

  it('looks at each queue, wherever in a span the segments before it ended', () => {
    const world = new SpanWorld(3);
    world.span([1, 2, 3], 2);
    world.row([1], 2);
    world.state.distribute();
    expect(withdrawAll(world, { stepSegments: 1 }, false).values).toEqual([2, 2, 2, 2]);
  });

  it('goes ten thousand values a step where they are received, and as many as there are where they are not', () => {
    const world = () => {
      const one = new SpanWorld(3);
      for (let i = 0; i < 6; i++) one.span([1], 2_000);
      one.row([1, 2], 6_000);
      one.row([3], 1);
      one.state.distribute();
      return one;
    };
    const steps = (receive?: () => void) => {
      const { state, pending, segments } = world();
      const found: WithdrawalStep[] = [];
      do found.push(withdraw(state, pending, segments, { cursor: found.at(-1)?.cursor }, receive));
      while (found.at(-1)!.cursor);
      return found;
    };
    expect(steps()).toEqual([{ values: 24_001, cursor: undefined }]);
    expect(steps(() => {})).toEqual([
      { values: 10_000, cursor: { place: 6, span: 6, entry: 0 } },
      { values: 14_000, cursor: { place: Number.POSITIVE_INFINITY, span: 0, entry: 3 } },
      { values: 1, cursor: undefined },
    ]);
  });

  it('writes nothing where it is nothing', () => {
    const world = new SpanWorld(1);
    const { state, pending, segments } = world;
    const { changes } = world.span([1], 3);
    world.commit();
    expect(withdraw(state, pending, segments, { beforeMs: 1 })).toEqual({ values: 0, cursor: undefined });
    expect([pending.isEmpty, state.spans[0]!.changes]).toEqual([true, changes]);
  });

  it('gives the queue of a series back, and says that its asset changed', () => {
    const world = new SpanWorld(3, (id) => id);
    world.row([1, 2], 3);
    world.state.distribute();
    world.state.touched.clear();
    const { state, pending, segments } = world;
    withdraw(state, pending, segments, { series: [1] });
    expect([state.seriesInLog(), [...state.touched].map(({ asset }) => asset)]).toEqual([1, [1]]);
  });

  it('leaves out a segment that does not read', () => {
    const world = new SpanWorld(1);
    world.span([1], 3);
    world.span([1], 3);
    world.commit();
    world.onDisk.delete(segmentId(world.state.spans[0]!.id, 0));
    const { state, pending, segments } = world;
    const received: number[] = [];
    const step = withdraw(state, pending, segments, {}, (_, { value }, from, to) =>
      received.push(...value.subarray(from, to)),
    );
    expect([step, received, world.lost]).toEqual([{ values: 3, cursor: undefined }, [4, 5, 6], [3]]);
  });
});

describe('quarantine', () => {
  /** Rows with so many values each, of series in turn, numbered as they come. */
  function quarantined(
    counts: readonly number[],
    run: (statements: Statements, world: SpanWorld, database: Database) => void,
  ): void {
    const folder = memoryFolder('tagferry-quarantine-');
    const database = openDatabase(join(folder, 'buffer.db'));
    try {
      prepareTables(database);
      const statements = prepareStatements(database);
      let number = 0;
      database.transaction(() => {
        for (const [at, count] of counts.entries()) {
          const series = 1 + (at % 3);
          const value = Float64Array.from({ length: count }, () => ++number);
          const packed = packSegment({ count, value, timeMs: value, flags: new Uint8Array(count).fill(at % 8) });
          const sum = quarantineSum(series, count, 400 + at, 'no', at);
          statements.addQuarantine.run(series, count, packed, 400 + at, 'no', at, sum);
        }
      })();
      run(statements, new SpanWorld(2), database);
    } finally {
      database.close();
      rmSync(folder, { recursive: true, force: true });
    }
  }
  const ALL = { after: 0, through: 1e9 };

  it('is sent again row by row, of the series that are known and wanted, as far as it is told', () => {
    quarantined([2, 3, 4, 5, 6, 7, 8], (statements, { state }) => {
      const of = (request: Partial<Parameters<typeof requeue>[3]>, leaving: number[] = []) => {
        const pending = new Pending();
        pending.releasedQuarantine.push(...leaving);
        const step = requeue(statements, state, pending, { ...ALL, ...request });
        const { length, series, timeMs, value, flags } = pending.moved;
        const rows = Array.from({ length }, (_, i) => [series[i], timeMs[i], value[i], flags[i]]);
        return { step, released: pending.releasedQuarantine, rows };
      };
      const row = (id: number, from: number, count: number) =>
        range(from, from + count - 1).map((number) => [1 + ((id - 1) % 3), number, number, (id - 1) % 8]);
      // Nobody knows the third series.
      expect(of({})).toEqual({
        step: { values: 2 + 3 + 5 + 6 + 8, after: undefined },
        released: [1, 2, 4, 5, 7],
        rows: [...row(1, 1, 2), ...row(2, 3, 3), ...row(4, 10, 5), ...row(5, 15, 6), ...row(7, 28, 8)],
      });
      expect(of({ series: [2] })).toEqual({
        step: { values: 9, after: undefined },
        released: [2, 5],
        rows: [...row(2, 3, 3), ...row(5, 15, 6)],
      });
      expect(of({ after: 2, through: 4 })).toEqual({
        step: { values: 5, after: undefined },
        released: [4],
        rows: row(4, 10, 5),
      });
      expect(of({ through: 2 }, [1])).toEqual({
        step: { values: 3, after: undefined },
        released: [1, 2],
        rows: row(2, 3, 3),
      });
    });
  });

  it.each([
    [
      'ten thousand values',
      [5_000, 5_000, 0, 1],
      [
        [10_000, 2],
        [1, undefined],
      ],
    ],
    [
      'a row more where a value lacks',
      [5_000, 4_999, 1, 5, 2],
      [
        [10_004, 4],
        [2, undefined],
      ],
    ],
  ] as [string, number[], [number, number | undefined][]][])('is sent again %s a step', (_, counts, steps) => {
    // Of the third series, which nobody knows, a row stays.
    quarantined(
      counts.map((count) => Math.max(1, count)),
      (statements, { state }) => {
        const found: [number, number | undefined][] = [];
        for (let after: number | undefined = 0; after !== undefined; ) {
          const step = requeue(statements, state, new Pending(), { ...ALL, after });
          found.push([step.values, step.after]);
          ({ after } = step);
        }
        expect(found).toEqual(steps);
      },
    );
  });

  it('is sent again five hundred rows a step', () => {
    quarantined(Array(1_000).fill(1), (statements, { state }) => {
      const step = (after: number) => requeue(statements, state, new Pending(), { ...ALL, after, series: [1] });
      expect([step(0), step(500), step(501), step(1_000)]).toEqual([
        { values: 167, after: 500 },
        { values: 167, after: 1_000 },
        { values: 167, after: undefined },
        { values: 0, after: undefined },
      ]);
    });
  });

  it('stays where its values do not read, though the rest of its row does', () => {
    quarantined([2, 3], (statements, { state }, database) => {
      database.exec("UPDATE quarantine SET packed = x'0011223344556677' WHERE id = 1");
      const pending = new Pending();
      expect(requeue(statements, state, pending, ALL)).toEqual({ values: 3, after: undefined });
      expect(pending.releasedQuarantine).toEqual([2]);
      expect(showQuarantine(statements, { after: 0, limit: 1 })).toMatchObject([
        { count: 2, value: [], damaged: true },
      ]);
    });
  });

  it('is counted by series, and leaves the count of the store as it is sent again', () => {
    quarantined([2, 3, 4, 5], (statements, { state, pending }) => {
      state.quarantined = 20;
      const parts = { state, pending, statements, facts: () => 'facts' };
      const operator = new OperatorCalls(parts as unknown as OperatorParts);
      const series = [
        { series: 1, count: 7 },
        { series: 2, count: 3 },
        { series: 3, count: 4 },
      ];
      expect(operator.countQuarantine()).toEqual({ last: 4, series });
      expect(operator.showQuarantine({ after: 3, limit: 9 })).toEqual(
        showQuarantine(statements, { after: 3, limit: 9 }),
      );
      expect(operator.requeue({ ...ALL, series: [1] })).toEqual({ values: 7, after: undefined, facts: 'facts' });
      expect(state.quarantined).toBe(13);
    });
    quarantined([], (statements) => {
      const operator = new OperatorCalls({ statements } as unknown as OperatorParts);
      expect(operator.countQuarantine()).toEqual({ last: 0, series: [] });
    });
  });

  it('is shown page by page, with the first values of each row', () => {
    quarantined([7, 2, 1], (statements) => {
      const row = (at: number, readings: number[], count: number) => ({
        id: at + 1,
        series: at + 1,
        count,
        status: 400 + at,
        message: 'no',
        atMs: at,
        timeMs: readings,
        value: readings,
        damaged: false,
      });
      const rows = [row(0, [1, 2, 3, 4, 5], 7), row(1, [8, 9], 2), row(2, [10], 1)];
      expect(showQuarantine(statements, { after: 0, limit: 9 })).toEqual(rows);
      expect(showQuarantine(statements, { after: 1, limit: 1 })).toEqual([rows[1]]);
    });
  });
});

describe('what operators ask', () => {
  function calls(world: SpanWorld) {
    const { state, pending, segments, flush } = world;
    const limits = { flushAfterMs: 1e9, flushValues: 1e9 };
    const maintenance = new Maintenance(state, pending, segments, flush, limits, () => Number.POSITIVE_INFINITY);
    const said: unknown[] = [];
    const note =
      (what: string) =>
      (...args: unknown[]) =>
        void said.push([what, ...args]);
    const use = { bytes: 1 };
    let since = 6;
    const parts = {
      state,
      pending,
      segments,
      maintenance,
      statements: { getSegment: { get: (id: number) => world.onDisk.get(id) } },
      dropping: {
        count: note('count'),
        forecast: (...args: unknown[]) => {
          note('forecast')(...args);
          return { values: 3, quarantined: 4 };
        },
      },
      facts: () => 'facts',
      nowMs: () => 1_000,
      nextSince: () => ++since,
      disk: { use, lookNow: note('lookNow'), keepWal: note('keepWal') },
    };
    return { operator: new OperatorCalls(parts as unknown as OperatorParts), maintenance, said, use };
  }

  it('is answered with the disk as it is, and holds up what would take it from who reads the files', () => {
    const { operator, maintenance, said, use } = calls(mixed());
    expect(operator.forecastDrops({ maxBytes: 5 })).toEqual({ values: 3, quarantined: 4 });
    operator.expectCopy({ forMs: 500 });
    expect([maintenance.isWalked(1_499), maintenance.isWalked(1_500)]).toEqual([true, false]);
    operator.expectCopy({ forMs: 0 });
    expect(maintenance.isWalked(0)).toBe(false);
    expect(said).toEqual([
      ['lookNow', 1_000],
      ['forecast', use, { maxBytes: 5 }],
      ['keepWal', 1_500],
      ['keepWal', 0],
    ]);
  });

  it('copies out in pages, until it is told that nobody asks for more', () => {
    const { operator, maintenance } = calls(mixed());
    const id = operator.beginExport({ series: [2] });
    expect([operator.exportPage(id).columns.length, maintenance.isWalked(1_000)]).toEqual([6, true]);
    operator.endExport(id);
    expect(maintenance.isWalked(1_000)).toBe(false);
    expect(() => operator.exportPage(id)).toThrow(expect.objectContaining({ code: 'store.export_gone' }));
  });

  it('looks into what has arrived too, and into what is packed and not on disk yet', () => {
    const world = new SpanWorld(1);
    world.span([1], 3);
    world.row([1], 2);
    const { operator } = calls(world);
    expect(operator.list({ after: 0, limit: 9 })).toMatchObject([{ live: 2, backlog: 3, fromMs: 1, toMs: 5 }]);
  });

  it('drops what is purged, of what has arrived too, and says how much', () => {
    const world = new SpanWorld(2);
    world.row([1, 2], 3);
    world.row([1], 3);
    const { operator, said } = calls(world);
    expect(operator.purge({ series: [1] })).toEqual({ values: 6, cursor: undefined, facts: 'facts' });
    expect(said).toEqual([['count', 'purge', 6]]);
    expect(operator.purge({})).toEqual({ values: 3, cursor: undefined, facts: 'facts' });
    // Nothing stands in the rows: they go.
    expect([world.state.rows, world.pending.dropRowsThrough, world.pending.settled]).toEqual([[], 2, []]);
    world.check();
  });

  it('gives values to other series, which are new or known, in the order of acceptance', () => {
    const world = new SpanWorld(3);
    const { state, pending } = world;
    world.span([1, 2], 2);
    world.row([1, 3], 2);
    const before = world.everything();
    const plain = { key: 'k', group: undefined, unit: undefined, instrumentation: undefined };
    const pairs = [
      { from: 1, to: { id: 7, asset: 9, ...plain } },
      { from: 2, to: { id: 3, asset: 1, ...plain } },
    ];
    const { operator, said } = calls(world);
    expect(operator.retarget({ pairs })).toEqual({ values: 6, cursor: undefined, facts: 'facts' });
    const { length, series, timeMs, value, flags } = pending.moved;
    expect(Array.from({ length }, (_, i) => [series[i], timeMs[i], value[i], flags[i]])).toEqual(
      [[7, before[0]!.slice(0, 2)] as const, [3, before[1]!] as const, [7, before[0]!.slice(2)] as const].flatMap(
        ([id, readings]) => readings.map((reading) => [id, reading, reading, reading % 8]),
      ),
    );
    expect([...pending.newSeries]).toEqual([
      [7, { ...pairs[0]!.to, since: 7 }],
      [3, { ...pairs[1]!.to, since: 7 }],
    ]);
    expect([state.seriesOf(7).asset.asset, state.seriesOf(3).series.key, said]).toEqual([9, 'k3', []]);
    expect(world.standing(3)).toEqual(before[2]);
  });
});
