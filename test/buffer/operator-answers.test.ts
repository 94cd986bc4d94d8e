/** What operators are answered, and what else of the store hears of it. */

import { describe, expect, it } from 'vitest';
import { OperatorCalls, type OperatorParts } from '../../src/buffer/operator/operator-calls.ts';
import { ReadLeases } from '../../src/buffer/read-leases.ts';
import { idleMaintenance, mixedWorld, SpanWorld } from './span-world.ts';

describe('what operators ask', () => {
  function calls(world: SpanWorld) {
    const { state, pending, segments } = world;
    const readers = new ReadLeases();
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
      readers,
      maintenance: idleMaintenance(world),
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
      disk: { use, lookNow: note('lookNow') },
    };
    return { operator: new OperatorCalls(parts as unknown as OperatorParts), readers, said, use };
  }

  it('forecasts drops with the disk use of the moment', () => {
    const { operator, said, use } = calls(mixedWorld());
    expect(operator.forecastDrops({ maxBytes: 5 })).toEqual({ values: 3, quarantined: 4 });
    expect(said).toEqual([
      ['lookNow', 1_000],
      ['forecast', use, { maxBytes: 5 }],
    ]);
  });

  it('gives each reader of the files a lease of its own', () => {
    const { operator, readers } = calls(mixedWorld());
    const lease = operator.expectCopy({ forMs: 500 });
    const other = operator.expectCopy({ forMs: 900 });
    operator.endCopy(other);
    expect([readers.isAny(1_499, 'files'), readers.isAny(1_500)]).toEqual([true, false]);
    expect(operator.expectCopy({ lease, forMs: 700 })).toBe(lease);
    expect([readers.isAny(1_699), readers.isAny(1_700)]).toEqual([true, false]);
    expect(operator.expectCopy({ lease: other, forMs: 900 })).not.toBe(other);
  });

  it('exports in pages until the export ends', () => {
    const { operator, readers } = calls(mixedWorld());
    const id = operator.beginExport({ series: [2] });
    expect([operator.exportPage(id).columns.length, readers.isAny(1_000, 'export')]).toEqual([6, true]);
    operator.endExport(id);
    expect(readers.isAny(1_000)).toBe(false);
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
    // Times of 1970 by a clock that nobody knows: none is marked as to be corrected any more.
    expect(Array.from({ length }, (_, i) => [series[i], timeMs[i], value[i], flags[i]])).toEqual(
      [[7, before[0]!.slice(0, 2)] as const, [3, before[1]!] as const, [7, before[0]!.slice(2)] as const].flatMap(
        ([id, readings]) => readings.map((reading) => [id, reading, reading, reading % 4]),
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
