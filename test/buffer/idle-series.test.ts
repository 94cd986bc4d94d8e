/** Series that may be forgotten, and what is shared by those that are known. */
import { describe, expect, it } from 'vitest';
import { CompactSeries } from '../../src/buffer/compact-series.ts';
import { ValueColumns } from '../../src/buffer/format/value-columns.ts';
import { checkSeries, forgetSeries, idleSeries } from '../../src/buffer/idle-series.ts';
import type { Series } from '../../src/buffer/series.ts';
import type { Statements } from '../../src/buffer/tables.ts';
import { SpanWorld } from './span-world.ts';

const SERIES: Series = { id: 9, asset: 9, key: 'k', group: undefined, unit: undefined, instrumentation: undefined };

describe('a series is idle', () => {
  const idle = ({ state, pending }: SpanWorld, quarantined: number[] = []) =>
    idleSeries(state, pending, {
      quarantineBySeries: { all: () => quarantined.map((series) => ({ series, count: 1 })) },
    } as unknown as Statements);

  it.each<[string, (world: SpanWorld) => void, number[]]>([
    ['where nothing names it', () => {}, [1, 2, 3]],
    ['unless a value of it has arrived', (world) => world.row([2], 1), [1, 3]],
    [
      'unless a value of it stands in its queue',
      (world) => {
        world.row([2], 1);
        world.state.distribute();
      },
      [1, 3],
    ],
    ['unless it has a segment', (world) => void world.span([2], 1), [1, 3]],
    [
      'unless a span names it still',
      (world) => {
        const span = world.span([2, 3], 1);
        world.state.loseEntry(span, 0);
        world.pending.dropSegment(span, 0);
      },
      [1],
    ],
    [
      'once the span is gone',
      (world) => {
        const span = world.span([2], 1);
        world.settle(world.take(9, [2], 'backlog'));
        expect(span.left).toBe(0);
      },
      [1, 2, 3],
    ],
    [
      'unless a row of the log names it still',
      (world) => {
        world.row([2], 1);
        world.row([3], 1);
        world.settle(world.take(9, [2]));
      },
      [1],
    ],
    [
      'once the row is gone, from the first that is left on',
      (world) => {
        for (const id of [2, 3]) {
          world.row([id], 1);
          world.settle(world.take(9, [id]));
        }
        world.state.rows.shift();
      },
      [1, 2],
    ],
    [
      'once all rows are gone',
      (world) => {
        world.row([2], 1);
        world.settle(world.take(9, [2]));
        world.state.rows = [];
      },
      [1, 2, 3],
    ],
    [
      'unless a batch has something of it, though its span was dropped',
      (world) => {
        const span = world.span([2], 1);
        world.take(9, [2], 'backlog');
        world.state.loseEntry(span, 0);
        world.state.dropSpan(span);
      },
      [1, 3],
    ],
    ['unless it is held', ({ state }) => state.holdSeries([2]), [1, 3]],
    [
      'unless some of it is on its way to quarantine',
      ({ pending }) => pending.quarantine.push({ series: 2 } as never),
      [1, 3],
    ],
    ['not while values change their place', ({ pending }) => pending.moved.add(1, 1, 1, 0), []],
    ['not while series come for them', ({ pending }) => pending.newSeries.set(9, SERIES), []],
    ['not while some are left on disk', ({ state }) => void state.notLoaded++, []],
    ['and is known', ({ state }) => forgetSeries(state, [2]), [1, 3]],
  ])('%s', (_, arrange, expected) => {
    const world = new SpanWorld(3);
    arrange(world);
    expect(idle(world)).toEqual(expected);
    if (expected.length > 0) expect(idle(world, [1])).toEqual(expected.filter((id) => id !== 1));
  });
});

describe('a series that is forgotten', () => {
  it('takes its asset along where that was its last, and no place of the asset is left', () => {
    const world = new SpanWorld(5, (id) => Math.ceil(id / 2));
    const { state } = world;
    const known = () =>
      [...state.assets.values()].map(({ asset, series }) => [asset, series.map((one) => one.series.id)]);
    forgetSeries(state, [1, 7]);
    expect(known()).toEqual([
      [1, [2]],
      [2, [3, 4]],
      [3, [5]],
    ]);
    forgetSeries(state, [2, 5, 5]);
    expect([known(), state.series.flatMap((one) => one?.series.id ?? [])]).toEqual([[[2, [3, 4]]], [3, 4]]);
    // Of an asset that has a place in a span still: lanes are told of it.
    const asset = state.assets.get(2)!;
    asset.places = [{ span: {} as never, from: 0, to: 1 }];
    forgetSeries(state, [3, 4]);
    expect(known()).toEqual([[2, []]]);
  });
});

describe('values of a series that nobody knows', () => {
  it('are none that the store takes, unless the series comes with them or before', () => {
    const { state, pending } = new SpanWorld(1);
    const check = (ids: readonly number[], newIds: readonly number[] = []) => {
      const columns = new ValueColumns();
      for (const id of ids) columns.add(id, 1, 1, 0);
      // What stands behind the end is nobody's.
      columns.series[columns.length] = 77;
      checkSeries(
        state,
        columns,
        newIds.map((id) => ({ ...SERIES, id })),
        pending,
      );
    };
    expect(() => check([1, 1])).not.toThrow();
    expect(() => check([1, 9, 8], [8, 9])).not.toThrow();
    expect(() => check([1, 9, 8], [9])).toThrow(
      expect.objectContaining({ code: 'store.no_series', message: expect.stringContaining('series 8 ') }),
    );
    pending.newSeries.set(8, SERIES);
    expect(() => check([1, 9, 8], [9])).not.toThrow();
    expect(() => check([0])).toThrow(expect.objectContaining({ code: 'store.no_series' }));
  });
});

describe('copies of series', () => {
  it('say the same, and share units of one number or of one code', () => {
    const compact = new CompactSeries();
    const one = compact.copy({ ...SERIES, group: 'g', unit: { id: 5 }, instrumentation: 3, since: 4 });
    expect(one).toEqual({ id: 9, asset: 9, key: 'k', group: 'g', unit: { id: 5 }, instrumentation: 3, since: 4 });
    expect(compact.copy(SERIES)).toEqual({ ...SERIES, since: 0 });
    const unitOf = (unit: Series['unit']) => compact.copy({ ...SERIES, unit }).unit;
    expect(unitOf({ id: 5 })).toBe(one.unit);
    const [number, code] = [unitOf({ id: 6 }), unitOf({ code: '6' })];
    expect([number, code]).toEqual([{ id: 6 }, { code: '6' }]);
    expect([unitOf({ id: 6 }) === number, unitOf({ code: '6' }) === code, unitOf(undefined)]).toEqual([
      true,
      true,
      undefined,
    ]);
  });

  it('share a thousand units and no more, however many programs write', () => {
    const compact = new CompactSeries();
    const unitOf = (id: number) => compact.copy({ ...SERIES, unit: { id } }).unit;
    const first = Array.from({ length: 1_001 }, (_, id) => unitOf(id));
    const shared = first.filter((unit, id) => unitOf(id) === unit);
    expect([shared.length, shared.at(-1)]).toEqual([1_000, { id: 999 }]);
  });
});
