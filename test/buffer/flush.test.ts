import { describe, expect, it } from 'vitest';
import { Flush } from '../../src/buffer/compaction/flush.ts';
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
});
