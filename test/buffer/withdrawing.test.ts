/** What operators take out, in memory: all of it, at every size of a step. */
import { describe, expect, it } from 'vitest';
import {
  type Withdrawal,
  type WithdrawalCursor,
  type WithdrawalStep,
  withdraw,
} from '../../src/buffer/operator/withdrawing.ts';
import { segmentId } from '../../src/buffer/span.ts';
import { mixedWorld, range, SpanWorld } from './span-world.ts';

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
          ? ({ series }, { value }, { from, to }) => {
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
        const world = mixedWorld();
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
    const step = withdraw(state, pending, segments, {}, (_, { value }, { from, to }) =>
      received.push(...value.subarray(from, to)),
    );
    expect([step, received, world.lost]).toEqual([{ values: 3, cursor: undefined }, [4, 5, 6], [3]]);
  });
});
