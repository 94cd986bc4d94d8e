/** What falls by the bound on bytes of values that were flushed together, and of those that are not flushed yet. */
import { describe, expect, it } from 'vitest';
import { sendEntry } from '../../src/buffer/batches/batch-slices.ts';
import { bytes, disk, Shrinking, wanting } from './shrinking-store.ts';

/** What is passed by this may wait for an export. */
const OVERSHOOT = 12 * 1024 * 1024;

describe('values that were flushed together', () => {
  it.each<[string, number, number, number[], number]>([
    ['go together though a part of them were enough', 5, 20_000, [6], 15],
    ['go together where all of them must go', 8, 80_000, [9], 24],
    // A quarter of each series, and what is left of it in a span of its own.
    ['go by a share where they are too many', 8, 20_000, [7], 6],
    ['go by a share where a byte less must go than they take', 8, 79_999, [9, 10], 23],
  ])('%s', (_, segments, wanted, left, gone) => {
    const world = new Shrinking().group(segments, 1_000).group(1, 2_000);
    world.keep(wanting(wanted));
    expect(world.said().reduce((sum, { values }) => sum + values, 0)).toBe(gone);
    if (segments === 5 || wanted === 80_000) expect(world.left()).toEqual(left);
    expect(world.everything().flat()).toHaveLength(3 * segments + 3 - gone);
  });

  it('are those of one time and of one run', () => {
    for (const [run, acceptedMs] of [
      [1, 1_001],
      [2, 1_000],
      [2, 999],
    ] as const) {
      const world = new Shrinking().group(2, 1_000).group(2, acceptedMs, run).group(2, 3_000, 3);
      world.keep(wanting(20_000));
      expect(world.left()).toEqual([3, 4, 5, 6]);
    }
  });

  it('go by a share of what is wanted then, once others have gone', () => {
    const world = new Shrinking().flushes(3).group(8, 5_000);
    world.keep(wanting(50_000 + 10_000));
    // Fifty of eighty thousand: of twenty-four values fifteen.
    expect(world.said()).toEqual(bytes(3, 15));
  });

  it('go by their share a step at a time, and no further once the bound is kept', () => {
    const world = new Shrinking({}, {}, { values: 1e6, segments: 1 }).group(8, 1_000);
    // A quarter of each series.
    const use = wanting(20_000);
    const series = () => world.everything().map(({ length }) => length);
    world.keep(use);
    expect([series(), world.dropping.isDue(use)]).toEqual([[5, 6, 6, 6], false]);
    expect(world.said()).toEqual(bytes(1));
    expect(world.dropping.isDue(use)).toBe(true);
    world.keep(use);
    expect([series(), world.said()]).toEqual([[5, 4, 6, 6], bytes(2)]);
    world.keep(disk(0));
    expect(series()).toEqual([5, 4, 6, 6]);
    // Passed once more, it is begun anew: by what stands now.
    world.keep(use);
    expect([series(), world.said()]).toEqual([[4, 4, 6, 6], bytes(1)]);
  });

  it('stay while a reader has a lease, unless the bound is exceeded by much', () => {
    for (const [excess, left] of [
      [OVERSHOOT, 10],
      [OVERSHOOT + 1, 0],
    ] as const) {
      const world = new Shrinking({}, { segmentBytes: 1e6 }).group(10, 1_000);
      world.isRead = true;
      world.keep(disk(excess));
      expect([world.left().length, world.dropping.isDue(disk(excess))]).toEqual([left, false]);
      expect([world.dropping.committed(), world.dropping.isDue(disk(excess))]).toEqual([left === 0, left === 0]);
    }
  });

  it('go together where a batch has something of each series, once a step has looked at all of them', () => {
    const one = new Shrinking().group(8, 1_000);
    for (const span of one.state.spans) sendEntry(one.asset, span, 0, false);
    one.keep(wanting(20_000));
    expect([one.left(), one.dropping.take()]).toEqual([[], []]);
    one.dropping.committed();
    expect(one.dropping.take()).toEqual(bytes(...Array(8).fill(3)));
    const another = new Shrinking({}, {}, { values: 1, segments: 1 }).group(8, 1_000);
    for (const span of another.state.spans) sendEntry(another.asset, span, 0, false);
    for (let step = 1; step <= 3; step++) {
      another.keep(wanting(20_000));
      expect([another.left().length, another.dropping.isDue(wanting(20_000))]).toEqual([8, true]);
    }
  });
});

describe('values that are not flushed yet', () => {
  it('go with their flush, a run at a time', () => {
    const world = new Shrinking();
    world.row([1, 2], 3);
    world.row([1, 2], 3);
    world.row([1], 1, 99, { run: 2 });
    world.keep(wanting(20_000));
    expect([world.said(), world.everything().flat()]).toEqual([bytes(12, 1), []]);
  });

  it('go with the spans that their flush has made already', () => {
    const world = new Shrinking();
    world.row([1, 2], 3);
    world.flush.begin(1);
    world.flush.step({ values: 1, segments: 1 });
    world.check();
    world.keep(wanting(20_000));
    expect([world.said(), world.everything().flat(), world.flush.isUnderWay]).toEqual([bytes(3, 3), [], false]);
  });

  it('stay for the spans of an earlier time, with the flush under way', () => {
    const world = new Shrinking({}, { segmentBytes: 20_000 }).flushes(5);
    world.row([1, 2], 3, 2_000);
    world.flush.begin(1);
    world.keep(wanting(20_000));
    expect([world.said(), world.flush.isUnderWay, world.everything().flat().length]).toEqual([bytes(5), true, 6]);
  });

  it('are begun with by a flush under way that has made none', () => {
    const world = new Shrinking();
    for (let i = 0; i < 3; i++) world.row([1, 2], 3);
    world.flush.begin(1);
    world.keep(wanting(16_385));
    expect([world.said(), world.everything().flat().length]).toEqual([bytes(6, 12), 0]);
  });

  it('are none where all is settled: then nothing is due until the bound was kept', () => {
    const world = new Shrinking();
    world.row([1], 3);
    world.settle(world.take(9));
    world.keep(disk(1));
    expect([world.left(), world.state.rows.length, world.dropping.isDue(disk(1))]).toEqual([[], 1, false]);
    world.keep(disk(0));
    expect(world.dropping.isDue(disk(1))).toBe(true);
  });
});

describe('values that were left on disk for want of memory', () => {
  it('stay, in front of what could go', () => {
    const world = new Shrinking();
    world.row([1], 3);
    world.state.rows[0]!.isLoaded = false;
    expect([world.keep(wanting(20_000)), world.dropping.committed(), world.state.rows.length]).toEqual([0, false, 1]);
  });
});
