/** What a store has in memory: series, spans in their order, rows of the log and what has arrived. */
import { describe, expect, it } from 'vitest';
import { NO_QUEUE } from '../../src/buffer/series-queue.ts';
import { newSpan } from '../../src/buffer/span.ts';
import { MemoryStore } from './memory-store.ts';

describe('the state of a store', () => {
  const SERIES_3 = { id: 3, asset: 2, key: 'k', group: undefined, unit: undefined, instrumentation: undefined };

  it('knows a series once, and none that was not brought', () => {
    const store = new MemoryStore([1, 1]);
    const { state } = store;
    store.row([1], 2);
    const first = state.seriesOf(1);
    expect(state.addSeries({ ...SERIES_3, id: 1, key: 'another' })).toBe(first);
    expect([state.seriesOf(1).series.key, store.asset().series.length]).toEqual(['k1', 2]);
    expect(() => state.seriesOf(3)).toThrow('series 3 is not known to the store');
    const added = state.addSeries(SERIES_3);
    expect([state.seriesOf(3), [...state.assets.keys()]]).toEqual([added, [1, 2]]);
    const { asset, queue, series, ...rest } = added;
    expect(rest).toEqual({
      ...{ flushedSeq: -1, segments: 0, entries: 0, lastSeq: -1, held: false },
      backlogTimeMs: Number.NEGATIVE_INFINITY,
    });
    expect([asset, queue, series]).toEqual([state.assets.get(2), NO_QUEUE, { ...SERIES_3, since: 0 }]);
    expect(asset).toEqual({
      ...{ asset: 2, series: [added], places: [], backlog: 0, liveUnderWay: 0, backlogUnderWay: 0, nextSeries: 0 },
      lastTarget: Number.NEGATIVE_INFINITY,
    });
  });

  it('has spans in the order of acceptance, however they come, and drops each once', () => {
    const { state, asset } = (() => {
      const store = new MemoryStore([1, 1]);
      return { state: store.state, asset: store.asset() };
    })();
    const spans = [3, 1, 2, 2].map((place, i) =>
      newSpan({ id: i + 1, place, run: 1, acceptedMs: 10 * place }, [
        { series: 1, count: 2, lastTimeMs: place, leadSeconds: 0 },
        { series: 2, count: 1, lastTimeMs: 9, leadSeconds: 0 },
      ]),
    );
    for (const span of spans) state.addSpan(span);
    const order = [2, 3, 4, 1];
    const places = () => [state.spans.map(({ id }) => id), asset.places.map(({ span }) => span.id)];
    expect(places()).toEqual([order, order]);
    expect(asset.places.map(({ from, to }) => [from, to])).toEqual(order.map(() => [0, 2]));
    expect([state.segmentValues, asset.backlog, state.spanChanges]).toEqual([12, 12, 4]);
    const ages = () => state.oldestAcceptedMs();
    state.times.open(1, 0, []);
    expect(ages()).toBe(10);
    const entries = () => [1, 2].map((id) => state.seriesOf(id).entries);
    for (const _ of [1, 2]) {
      state.dropSpan(spans[1]!);
      expect([places(), entries(), ages()]).toEqual([
        [
          [3, 4, 1],
          [3, 4, 1],
        ],
        [3, 3],
        20,
      ]);
    }
    expect(state.spanChanges).toBe(6);
    for (const span of spans) state.dropSpan(span);
    expect([places(), entries(), ages()]).toEqual([[[], []], [0, 0], undefined]);
  });

  it('counts of a span that comes what is not gone of it, and decides anew what waits late', () => {
    const store = new MemoryStore([1, 1]);
    const { state } = store;
    for (const _ of [1, 2]) store.row([1, 2], 1);
    const span = newSpan({ id: 1, place: 1, run: 1, acceptedMs: 0 }, [
      { series: 1, count: 4, lastTimeMs: 2, leadSeconds: 0 },
      { series: 2, count: 5, lastTimeMs: 9, leadSeconds: 0 },
    ]);
    span.gone[1] = 1;
    span.progress.set(0, [1, 2]);
    state.addSpan(span);
    const told = (id: number) => {
      const { segments, entries, backlogTimeMs, queue } = state.seriesOf(id);
      return { segments, entries, backlogTimeMs, live: [queue.arrived, queue.arrivedSeq], late: queue.arrivedLate };
    };
    // Of the first series the values 1 and 3, at those times.
    expect([told(1), told(2)]).toEqual([
      { segments: 1, entries: 1, backlogTimeMs: 2, live: [1, 2], late: 1 },
      { segments: 0, entries: 1, backlogTimeMs: Number.NEGATIVE_INFINITY, live: [2, 1], late: 0 },
    ]);
    expect([state.segmentValues, store.asset().backlog]).toEqual([3, 3]);
  });

  it('does not count again what a flush under way has taken of a series, nor give it to its queue', () => {
    for (const ids of [
      [1, 2],
      [2, 1],
    ]) {
      const store = new MemoryStore([1, 1]);
      const { state, flush } = store;
      for (const _ of [1, 2]) store.row(ids, 1);
      flush.begin(2);
      flush.step({ values: 1, segments: 1 });
      const live = () => [1, 2].map((id) => state.seriesOf(id).queue.waiting + state.seriesOf(id).queue.arrived);
      expect([live(), flush.isUnderWay]).toEqual([[0, 2], true]);
      // As a compaction brings one.
      state.addSpan(
        newSpan({ id: 9, place: 0, run: 1, acceptedMs: 0 }, [{ series: 1, count: 1, lastTimeMs: 0, leadSeconds: 0 }]),
      );
      expect(live()).toEqual([0, 2]);
      state.distribute();
      expect([live(), state.seriesOf(1).queue]).toEqual([[0, 2], NO_QUEUE]);
    }
  });

  it('takes of each row what has left it, where a run of values goes over several', () => {
    const store = new MemoryStore([1]);
    for (const count of [2, 1, 3, 2]) store.row([1], count);
    store.state.distribute();
    const lefts = () => store.state.rows.map(({ left }) => left);
    expect(store.state.leaveRows(store.state.seriesOf(1), 1, 5)).toEqual({ series: 1, firstSeq: 1, lastSeq: 5 });
    expect([lefts(), store.state.logValues]).toEqual([[1, 0, 0, 2], 3]);
    store.state.leaveRows(store.state.seriesOf(1), 0, 1);
    store.state.leaveRows(store.state.seriesOf(1), 6, 2);
    expect([lefts(), store.state.logValues]).toEqual([[0, 0, 0, 0], 0]);
  });

  it('is as old as the first row that holds something, where there is no span', () => {
    const store = new MemoryStore([1]);
    const { state } = store;
    state.times.open(1, 0, []);
    for (const monotonicMs of [10, 20, 30]) store.row([1], 1, monotonicMs);
    expect(state.oldestAcceptedMs()).toBe(10);
    state.rows[0]!.left = 0;
    expect(state.oldestAcceptedMs()).toBe(20);
    for (const row of state.rows) row.left = 0;
    expect(state.oldestAcceptedMs()).toBeUndefined();
    expect([-1, 0, 1, 2, 9].map((seq) => state.rowOf(seq)?.id)).toEqual([undefined, 1, 2, 3, 3]);
  });

  it('gives its arrivals to the queues up to a place, and counts what is left', () => {
    const store = new MemoryStore([1, 2]);
    const { state } = store;
    for (const _ of [1, 2, 3]) store.row([1, 2], 1);
    const { queue } = state.seriesOf(1);
    const counted = () => [queue.length, queue.waiting, queue.arrived, queue.arrivedSeq, state.holdsOnlyArrivals];
    expect(counted()).toEqual([0, 0, 3, 0, true]);
    expect([-1, 0, 1, 2, 4, 99].map((seq) => state.arrivalsThrough(seq).length)).toEqual([0, 1, 1, 2, 3, 3]);
    state.distribute(-1);
    expect(counted()).toEqual([0, 0, 3, 0, true]);
    state.distribute(1);
    expect(counted()).toEqual([1, 1, 2, 2, false]);
    state.dropArrivals(2);
    expect(state.arrivalsThrough(99).map(({ firstSeq }) => firstSeq)).toEqual([4]);
    state.distribute();
    expect([queue.length, queue.arrived, state.arrivalsThrough(99).length]).toEqual([2, 0, 0]);
    expect([queue.seqAt(0), queue.seqAt(1)]).toEqual([0, 4]);
  });
});
