import { describe, expect, it } from 'vitest';
import { ValueColumns } from '../../src/buffer/format/value-columns.ts';
import { SeriesQueue } from '../../src/buffer/series-queue.ts';
import { StoreState } from '../../src/buffer/state.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

interface Value {
  timeMs: number;
  value: number;
  seq: number;
  flags: number;
  late: boolean;
  state: 'waits' | 'under way' | 'settled';
}

describe('the queue of a series', () => {
  it.each([1, 2])('says at each step what a plain list of its values says, seed %i', (seed) => {
    const clock = new ManualClock(0, seed);
    const random = (below: number) => Math.floor(clock.random() * below);
    const queue = new SeriesQueue();
    /** All that ever came; those before `popped` have left. */
    const all: Value[] = [];
    let popped = 0;
    let backlogMs = Number.NEGATIVE_INFINITY;
    const left = () => all.slice(popped);
    const waits = (at: number) => all[at]!.state === 'waits' && !all[at]!.late;
    const positions = () => left().map((_, i) => popped + i);
    const runFrom = (at: number, most: number, fits: (at: number) => boolean) => {
      let count = 0;
      while (count < most && at + count < all.length && fits(at + count)) count++;
      return count;
    };
    const popSettled = () => {
      while (popped < all.length && all[popped]!.state === 'settled') popped++;
    };
    const steps: (() => void)[] = [
      () => {
        for (let count = random(25); count >= 0; count--) {
          const late = random(4) === 0;
          const value: Value = {
            timeMs: random(1_000),
            value: random(99),
            seq: all.length * 3,
            flags: random(8),
            late,
            state: 'waits',
          };
          all.push(value);
          queue.push(value.timeMs, value.value, value.seq, value.flags, late);
        }
      },
      () => {
        const from = queue.firstWaiting();
        const count = queue.runOfWaiting(from, 1 + random(40));
        if (count === 0) return;
        queue.send(from, count);
        for (let at = from; at < from + count; at++) all[at]!.state = 'under way';
      },
      () => {
        const from = positions().find((at) => all[at]!.state === 'under way');
        if (from === undefined) return;
        const count = runFrom(from, 1 + random(40), (at) => all[at]!.state === 'under way');
        if (random(3) === 0) {
          queue.giveBack(from, count, backlogMs);
          for (let at = from; at < from + count; at++)
            Object.assign(all[at]!, { state: 'waits', late: all[at]!.timeMs <= backlogMs });
        } else {
          queue.settle(from, count);
          for (let at = from; at < from + count; at++) all[at]!.state = 'settled';
          popSettled();
        }
      },
      () => {
        const count = Math.min(random(30), left().length);
        queue.dropFront(count);
        popped += count;
      },
      () => {
        backlogMs = random(3) === 0 ? Number.NEGATIVE_INFINITY : random(1_000);
        queue.markLate(backlogMs);
        for (const one of left()) if (one.state === 'waits') one.late = one.timeMs <= backlogMs;
      },
    ];
    for (let turn = 0; turn < 150; turn++) {
      steps[random(steps.length)]!();
      const standing = left();
      expect([queue.length, queue.popped, queue.end]).toEqual([standing.length, popped, all.length]);
      expect(queue.waiting).toBe(standing.filter((one) => one.state === 'waits' && !one.late).length);
      expect(queue.late).toBe(standing.filter((one) => one.state === 'waits' && one.late).length);
      expect(queue.firstWaiting()).toBe(positions().find(waits) ?? all.length);
      const at = popped + random(standing.length + 1);
      const most = random(30);
      expect(queue.runOfWaiting(at, most)).toBe(runFrom(at, most, waits));
      const copied = queue.copy(popped, standing.length);
      expect([...copied.timeMs]).toEqual(standing.map(({ timeMs }) => timeMs));
      expect([...copied.value]).toEqual(standing.map(({ value }) => value));
      expect([...copied.flags]).toEqual(standing.map(({ flags }) => flags));
      expect(positions().map((one) => queue.seqAt(one))).toEqual(standing.map(({ seq }) => seq));
      expect(positions().map((one) => queue.isSettled(one))).toEqual(standing.map(({ state }) => state === 'settled'));
      const seq = random(all.length * 3 + 5);
      expect(queue.countThrough(seq)).toBe(standing.filter((one) => one.seq <= seq).length);
      const beforeMs = random(1_200);
      const isIdle = (one: number) => all[one]!.state === 'waits' && all[one]!.timeMs < beforeMs;
      const from = positions().find((one) => one >= at && isIdle(one));
      const idle = from === undefined ? undefined : { from, to: from + runFrom(from, all.length, isIdle) };
      expect(queue.idleRun(at, beforeMs)).toEqual(idle);
    }
    expect(popped).toBeGreaterThan(100);
  });
});

describe('values of a queue', () => {
  const queued = (times: readonly number[], late = false) => {
    const queue = new SeriesQueue();
    for (const [i, timeMs] of times.entries()) queue.push(timeMs, i, 10 * i, 3, late);
    return queue;
  };
  const counted = (queue: SeriesQueue) => [queue.length, queue.waiting, queue.late, queue.firstWaiting()];

  it.each([
    [0, [4, 4, 0, 0]],
    [2, [4, 2, 2, 2]],
    [9, [4, 0, 4, 4]],
  ])(
    'that come back from a post are late as far as their time lies before the backlog of %i',
    (backlogMs, expected) => {
      const queue = queued([1, 2, 3, 4]);
      queue.send(0, 4);
      expect(counted(queue)).toEqual([4, 0, 0, 4]);
      queue.giveBack(0, 4, backlogMs);
      expect([counted(queue), [...queue.copy(0, 4).flags]]).toEqual([expected, [3, 3, 3, 3]]);
      queue.markLate(Number.NEGATIVE_INFINITY);
      expect(counted(queue)).toEqual([4, 4, 0, 0]);
    },
  );

  it.each([true, false])('that nobody had sent may be settled, at the front or behind it, late: %s', (late) => {
    const queue = queued([1, 2, 3, 4], late);
    queue.settle(1, 2);
    expect(counted(queue)).toEqual(late ? [4, 0, 2, 4] : [4, 2, 0, 0]);
    queue.settle(0, 1);
    expect([counted(queue), queue.popped, queue.seqAt(3)]).toEqual([late ? [1, 0, 1, 4] : [1, 1, 0, 3], 3, 30]);
    queue.settle(3, 1);
    expect([counted(queue), queue.popped]).toEqual([[0, 0, 0, 4], 4]);
  });
});

describe('values that have arrived', () => {
  const SERIES = { asset: 1, key: 'k', group: undefined, unit: undefined, instrumentation: undefined };

  /** A series with a segment up to `backlogMs`, and arrivals at these times behind it. */
  function arrived(backlogMs: number, times: readonly number[]) {
    const state = new StoreState();
    const series = state.addSeries({ id: 1, ...SERIES });
    series.segments = 1;
    series.backlogTimeMs = backlogMs;
    state.addSeries({ id: 2, ...SERIES });
    // The first place in the order of acceptance is another's.
    const columns = new ValueColumns();
    columns.add(2, 0, 0, 0);
    for (const timeMs of times) columns.add(1, timeMs, 0, 0);
    state.takeIn(columns);
    return { state, series };
  }

  it.each([
    ['late ones alone', [1, 2, 3], 1],
    ['late ones first', [1, 99, 2], 1],
    ['late ones behind others', [99, 1, 2], 1],
    ['none late', [98, 99], 1],
  ])('are late no longer when the last segment has gone: %s', (_, times, firstSeq) => {
    const { state, series } = arrived(50, times);
    const late = times.filter((timeMs) => timeMs <= 50).length;
    expect([series.queue.arrived, series.queue.arrivedLate]).toEqual([times.length - late, late]);
    state.touched.clear();
    state.segmentGone(series);
    expect([series.queue.arrived, series.queue.arrivedLate, series.queue.arrivedSeq]).toEqual([
      times.length,
      0,
      firstSeq,
    ]);
    expect([series.backlogTimeMs, state.touched.has(series.asset)]).toEqual([Number.NEGATIVE_INFINITY, true]);
  });

  it('stay late while a segment is left', () => {
    const { state, series } = arrived(50, [1, 99]);
    series.segments = 2;
    state.segmentGone(series);
    expect([series.queue.arrived, series.queue.arrivedLate, series.backlogTimeMs]).toEqual([1, 1, 50]);
  });

  it('that a queue holds are late no longer either', () => {
    const { state, series } = arrived(50, [1, 99]);
    state.distribute();
    expect([series.queue.waiting, series.queue.late]).toEqual([1, 1]);
    state.segmentGone(series);
    expect([series.queue.waiting, series.queue.late]).toEqual([2, 0]);
  });
});
