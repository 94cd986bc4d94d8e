import { describe, expect, it } from 'vitest';
import { sortArrivals } from '../../src/buffer/compaction/arrivals.ts';
import { Flush, rowsOfOneRun } from '../../src/buffer/compaction/flush.ts';
import { unpackSegment } from '../../src/buffer/format/segment.ts';
import { ValueColumns } from '../../src/buffer/format/value-columns.ts';
import { Pending } from '../../src/buffer/pending.ts';
import { StoreState } from '../../src/buffer/state.ts';

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
    for (const [at, series] of [3, 1, 3, 2, 1].entries()) columns.add(series, 100 + at, at, at);
    // Columns are longer than what is in them.
    columns.series[columns.length] = 3;
    const { series, count, timeMs, value, flags } = sortArrivals([{ columns, firstSeq: 0 }], [3, 1], 4);
    expect(series).toEqual([
      { id: 3, start: 0, count: 2 },
      { id: 1, start: 2, count: 2 },
    ]);
    expect([count, [...timeMs], [...value], [...flags]]).toEqual([4, [100, 102, 101, 104], [0, 2, 1, 4], [0, 2, 1, 4]]);
  });
});
