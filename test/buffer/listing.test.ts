/** What operators are told of each series: all of it, page by page, and as far as it reads. */
import { describe, expect, it } from 'vitest';
import { listSeries } from '../../src/buffer/operator/listing.ts';
import { segmentId } from '../../src/buffer/span.ts';
import { mixedWorld, range, SpanWorld } from './span-world.ts';

describe('what stands, series by series', () => {
  const list = (world: SpanWorld, page = { after: 0, limit: 99 }) => {
    world.state.distribute();
    return listSeries(world.state, (id) => world.onDisk.get(id), page);
  };

  it('is told wholly', () => {
    const world = mixedWorld();
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
