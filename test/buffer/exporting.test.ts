/** What operators copy out, in memory: each value once, at every size of a page. */
import { describe, expect, it } from 'vitest';
import { dropSpan } from '../../src/buffer/compaction/compaction.ts';
import { type ExportPage, Exports } from '../../src/buffer/operator/exporting.ts';
import { ReadLeases } from '../../src/buffer/read-leases.ts';
import { segmentId } from '../../src/buffer/span.ts';
import { mixedWorld, range, SpanWorld } from './span-world.ts';

const LEASE_MS = 600_000;

describe('an export', () => {
  function exportsOf(world: SpanWorld) {
    const { state, pending, segments } = world;
    const readers = new ReadLeases();
    return { readers, exports: new Exports({ state, pending, segments, readers }) };
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
        const world = mixedWorld();
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
    expect(exports.page(id, 0)).toMatchObject({ done: true, isComplete: true, columns: { length: 0 } });
  });

  it('has what stood at its start, but for what has left meanwhile', () => {
    const world = mixedWorld();
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

  it('waits for a segment that is awaited, and is incomplete without one that is lost', () => {
    const world = new SpanWorld(1);
    for (let i = 0; i < 4; i++) world.span([1], 2);
    world.commit();
    const { exports } = exportsOf(world);
    const ids = world.state.spans.map((span) => segmentId(span.id, 0));
    world.awaited.add(ids[1]!);
    const id = exports.begin({}, 0);
    const page = () => {
      const one = exports.page(id, 0);
      return [rowsOf(one).map(([, , reading]) => reading), one.done, one.isComplete];
    };
    expect([page(), page()]).toEqual([
      [[1, 2], false, true],
      [[], false, true],
    ]);
    world.awaited.clear();
    world.onDisk.delete(ids[2]!);
    expect([page(), world.lost]).toEqual([[[3, 4, 7, 8], true, false], [2]]);
  });

  it('is incomplete where a bound dropped values that it had not read, and only there', () => {
    for (const [dropped, isComplete] of [
      [0, true],
      [1, false],
    ] as const) {
      const world = new SpanWorld(1);
      for (let i = 0; i < 2; i++) world.span([1], 2);
      world.commit();
      const { exports } = exportsOf(world);
      const id = exports.begin({ pageSegments: 1 }, 0);
      exports.page(id, 0);
      dropSpan(world.state, world.pending, world.state.spans[dropped]!);
      expect(exports.page(id, 0)).toMatchObject({ done: true, isComplete });
    }
  });

  it('contains values that are moving to another series', () => {
    const world = new SpanWorld(2);
    world.span([1], 2);
    world.pending.moved.add(2, 7, 8, 1);
    const { exports } = exportsOf(world);
    expect(rowsOf(exports.page(exports.begin({ series: [2] }, 0), 0))).toEqual([[2, 7, 8, 1]]);
  });

  it('is incomplete where values of its series moved to another series, and only there', () => {
    const world = new SpanWorld(2);
    world.span([1, 2], 2);
    const { exports } = exportsOf(world);
    const [one, other] = [exports.begin({ series: [1] }, 0), exports.begin({ series: [2] }, 0)];
    exports.noteMoved([2]);
    expect([exports.page(one, 0).isComplete, exports.page(other, 0).isComplete]).toEqual([true, false]);
  });

  it('has a lease from each page on, and fails once the lease has expired', () => {
    const { exports, readers } = exportsOf(mixedWorld());
    const lasts = (nowMs: number) => [readers.isAny(nowMs + LEASE_MS - 1), readers.isAny(nowMs + LEASE_MS)];
    const one = exports.begin({}, 1_000);
    expect(lasts(1_000)).toEqual([true, false]);
    exports.page(one, 5_000);
    expect(lasts(5_000)).toEqual([true, false]);
    const other = exports.begin({}, 6_000);
    exports.end(one);
    expect(lasts(6_000)).toEqual([true, false]);
    expect(() => exports.page(other, 6_000 + LEASE_MS)).toThrow(expect.objectContaining({ code: 'store.export_gone' }));
  });

  it('is refused where too many are running', () => {
    const { exports } = exportsOf(mixedWorld());
    const ids = range(1, 6).map(() => exports.begin({}, 0));
    expect(() => exports.begin({}, 0)).toThrow(expect.objectContaining({ code: 'store.readers', retryable: true }));
    for (const id of ids) expect(exports.page(id, 0).columns.length).toBeGreaterThan(0);
    expect(() => exports.begin({}, LEASE_MS)).not.toThrow();
  });
});
