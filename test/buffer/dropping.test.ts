/** What falls by a bound: in which order, how much of it in one step, and what is said of it once it is on disk. */
import { describe, expect, it } from 'vitest';
import type { DiskUse } from '../../src/buffer/space/bounds.ts';
import { Dropping, type DroppingParts } from '../../src/buffer/space/dropping.ts';
import { segmentId } from '../../src/buffer/span.ts';
import { bytes, disk, MAX_BYTES, Shrinking, wanting } from './shrinking-store.ts';
import { SpanWorld } from './span-world.ts';

/** Values that were flushed together go together up to this. */
const WHOLE = MAX_BYTES / 16;

describe('the bound on bytes', () => {
  it.each<[string, number, number[]]>([
    ['as many copies of damaged rows as it takes', 20_000, [1, 2]],
    ['one more for a byte', 20_001, [1, 2, 3]],
    ['all of them where it must', 40_000, [1, 2, 3, 4]],
  ])('takes %s, before anything else', (_, wanted, dropped) => {
    const world = new Shrinking({}, { copies: [10_000, 10_000, 10_000, 10_000], quarantine: [[5, 10_000]] });
    world.flushes(5);
    expect(world.keep(wanting(wanted))).toBe(0);
    expect([world.pending.droppedAside, world.pending.releasedQuarantine, world.left()]).toEqual([dropped, [], [1]]);
    expect(world.dropping.isDue(wanting(wanted))).toBe(false);
    expect([world.dropping.committed(), world.dropping.take()]).toEqual([true, []]);
    expect(world.dropping.isDue(wanting(wanted))).toBe(true);
  });

  it.each<[string, number, number[], number[], number]>([
    ['no further than it must', 40_000, [], [1, 2, 3], 15],
    ['one more for a byte', 40_001, [], [1, 2, 3, 4], 20],
    ['counts what leaves already as room', 40_000, [2], [2, 1, 3], 10],
    ['and no row twice', 30_000, [1, 2], [1, 2], 0],
  ])('takes quarantine then, the oldest first: %s', (_, wanted, leaving, dropped, values) => {
    const quarantine = Array.from({ length: 9 }, (): [number, number] => [5, 10_000]);
    const world = new Shrinking({}, { copies: [10_000], quarantine });
    world.flushes(5);
    world.pending.releasedQuarantine.push(...leaving);
    expect(world.keep(wanting(wanted))).toBe(values);
    expect([world.pending.droppedAside, world.pending.releasedQuarantine, world.left()]).toEqual([[1], dropped, [1]]);
    expect(world.dropping.isDue(wanting(wanted))).toBe(false);
    expect(world.said()).toEqual(values > 0 ? [{ reason: 'quarantine', values }] : []);
  });

  it('takes no more of it before that is on disk', () => {
    for (const leaving of [[], [1]]) {
      const world = new Shrinking(
        {},
        {
          quarantine: [
            [5, 20_000],
            [5, 20_000],
          ],
        },
      );
      world.pending.releasedQuarantine.push(...leaving);
      world.keep(wanting(20_000));
      world.keep(wanting(20_000));
      expect([world.pending.releasedQuarantine, world.dropping.isDue(wanting(20_000))]).toEqual([[1], false]);
    }
  });

  it('takes a thousand rows of either a step', () => {
    const world = new Shrinking(
      {},
      { copies: Array(1_500).fill(17), quarantine: Array.from({ length: 1_500 }, () => [1, 17]) },
    );
    expect(world.keep(disk(1e6))).toBe(1_000);
    expect([world.pending.droppedAside.length, world.pending.releasedQuarantine.length]).toEqual([1_000, 1_000]);
  });

  it.each<[string, number, number[], number[]]>([
    ['as many as it must', 20_000, [3, 4, 5], [1, 2]],
    ['one more for a byte', 20_001, [4, 5], [1, 2, 3]],
    ['all there are', 1e6, [], [1, 2, 3, 4, 5]],
  ])('takes values last, flush by flush: %s', (_, wanted, left, values) => {
    const world = new Shrinking({}, {}).flushes(1, 2, 3, 4, 5);
    world.keep(wanting(wanted));
    expect(world.left()).toEqual(left);
    expect(world.dropping.take()).toEqual([]);
    expect(world.dropping.isDue(wanting(wanted))).toBe(false);
    // Not again before it is on disk and the disk was measured.
    world.keep(wanting(wanted));
    expect(world.left()).toEqual(left);
    expect(world.said()).toEqual(bytes(...values));
    expect(world.dropping.take()).toEqual([]);
  });

  it('takes copies, quarantine and values in one step where none is enough', () => {
    const world = new Shrinking({}, { copies: [10_000], quarantine: [[5, 10_000]] }).flushes(1, 2, 3);
    expect(world.keep(wanting(40_000))).toBe(5);
    expect([world.pending.droppedAside, world.pending.releasedQuarantine, world.left()]).toEqual([[1], [1], [3]]);
    expect(world.said()).toEqual([{ reason: 'quarantine', values: 5 }, ...bytes(1, 2)]);
  });

  it('wants no more a step than some megabytes, and beside what is too much a share of a large bound', () => {
    for (const [maxBytes, excess, gone] of [
      [MAX_BYTES, 8 * 1024 * 1024, 9],
      // A sixty-fourth, and four megabytes at most.
      [64e6, 1, 2],
      [128e6, 1, 3],
      [256e6, 1, 5],
      [1e9, 1, 5],
    ] as const) {
      const headroom = Math.min(4e6, maxBytes / 8);
      const world = new Shrinking({ maxBytes }, { segmentBytes: 1e6 }).flushes(...Array(12).fill(1));
      world.keep(disk(0, { usedBytes: maxBytes - headroom + excess }));
      expect(12 - world.left().length).toBe(gone);
    }
  });

  it('counts what was packed and is not on disk yet, less what has left it', () => {
    const world = new Shrinking();
    for (let i = 0; i < 4; i++) world.span([1, 2], 3);
    const { pending, state } = world;
    for (const span of state.spans) {
      pending.segments.set(segmentId(span.id, 0), new Uint8Array(9_984));
      state.loseEntry(span, 1);
      pending.dropSegment(span, 1);
    }
    world.keep(wanting(20_000));
    expect(world.left()).toEqual([3, 4]);
  });

  it('asks for nothing by refuse-new, nor where it is kept', () => {
    const refusing = new Shrinking({ full: 'refuse-new' }).flushes(1, 2);
    expect([refusing.dropping.isDue(disk(1e6)), refusing.keep(disk(1e6)), refusing.left()]).toEqual([false, 0, [1, 2]]);
    const kept = new Shrinking().flushes(1, 2);
    expect([kept.dropping.isDue(disk(0)), kept.keep(disk(0)), kept.left()]).toEqual([false, 0, [1, 2]]);
    expect([kept.dropping.isDue(disk(1)), kept.dropping.committed()]).toEqual([true, false]);
  });
});

describe('what would fall under another bound', () => {
  it('is nothing where that is kept, whatever the WAL holds, and all where nothing fits', () => {
    const { state } = new SpanWorld();
    state.logValues = 10;
    const statements = { sizeOfQuarantine: { get: () => ({ values: 0, bytes: 0, rows: 0 }) } };
    const dropping = new Dropping({ state, statements } as unknown as DroppingParts);
    const forecast = (use: DiskUse) => dropping.forecast(use, { maxBytes: MAX_BYTES });
    expect(forecast(disk(0, { walBytes: 1e9 }))).toEqual({ values: 0, quarantined: 0 });
    // Seven hundred thousand of a million bytes have room.
    expect(forecast(disk(300_000))).toEqual({ values: 3, quarantined: 0 });
    expect(forecast(disk(1e12)).values).toBe(10);
    const quarantined = { sizeOfQuarantine: { get: () => ({ values: 7, bytes: 2e6 - 16, rows: 1 }) } };
    const full = new Dropping({ state, statements: quarantined } as unknown as DroppingParts);
    // More than what is too much, and than there is: it is a forecast.
    expect(full.forecast(disk(1.5e6), { maxBytes: MAX_BYTES })).toEqual({ values: 0, quarantined: 6 });
    expect(full.forecast(disk(2e6 + 1), { maxBytes: 1 })).toEqual({ values: 10, quarantined: 7 });
  });
});

describe('the bound on age', () => {
  it('takes what is older, group by group', () => {
    const world = new Shrinking({ maxAgeMs: 1_000 }).group(2, 1_000).group(1, 1_400).group(1, 1_500).group(1, 9_000);
    const keep = (nowMs: number) => world.dropping.keep(disk(0), ({ acceptedMs }) => nowMs - acceptedMs);
    keep(2_000);
    expect([world.left(), world.dropping.committed()]).toEqual([[1, 2, 3, 4, 5], false]);
    keep(2_500);
    expect(world.left()).toEqual([4, 5]);
    expect([world.dropping.take(), world.dropping.isDue(disk(1))]).toEqual([[], false]);
    expect(world.said()).toEqual([3, 3, 3].map((values) => ({ reason: 'age', values })));
    keep(1e6);
    expect(world.left()).toEqual([]);
  });

  it('is none at 0', () => {
    const world = new Shrinking({ maxAgeMs: 0 }).group(2, 1_000);
    world.dropping.keep(disk(0), () => 1e12);
    expect(world.left()).toEqual([1, 2]);
  });

  it('holds beside that on bytes', () => {
    const world = new Shrinking({ maxAgeMs: 1_000 }).flushes(1, 2, 3, 4);
    world.dropping.keep(wanting(20_000), ({ id }) => (id <= 3 ? 1_001 : 0));
    expect(world.said()).toEqual([...bytes(1, 2), { reason: 'age', values: 3 }]);
  });
});

describe('what is said of it', () => {
  it('is what something else dropped too, once that is on disk, and nothing of nothing', () => {
    const { dropping } = new Shrinking();
    dropping.count('purge', 0);
    expect([dropping.committed(), dropping.take()]).toEqual([false, []]);
    dropping.count('purge', 5);
    dropping.count('quarantine', 6);
    expect(dropping.take()).toEqual([]);
    expect([dropping.committed(), dropping.committed()]).toEqual([true, false]);
    dropping.count('age', 1);
    dropping.committed();
    const said = [
      { reason: 'purge', values: 5 },
      { reason: 'quarantine', values: 6 },
      { reason: 'age', values: 1 },
    ];
    expect([dropping.take(), dropping.take()]).toEqual([said, []]);
  });
});

describe('what a compaction may put together', () => {
  it('is half of what goes whole, by what the values take', () => {
    const world = new Shrinking();
    const { state, dropping } = world;
    expect(dropping.maxGroupValues(disk(0))).toBe(Number.POSITIVE_INFINITY);
    state.logValues = 30_000;
    state.segmentValues = 40_000;
    // Ten bytes each: half of fifty thousand.
    expect(dropping.maxGroupValues(disk(0))).toBe(WHOLE / 2 / 10);
    expect(dropping.maxGroupValues(disk(0, { usedBytes: 0 }))).toBe((WHOLE / 2) * 70_000);
    state.logValues = 0;
    state.segmentValues = 0;
    expect(dropping.maxGroupValues(disk(0))).toBe(Number.POSITIVE_INFINITY);
    const unbound = new Shrinking({ maxBytes: 0 });
    unbound.state.logValues = 1;
    expect(unbound.dropping.maxGroupValues(disk(0))).toBe(Number.POSITIVE_INFINITY);
  });
});
