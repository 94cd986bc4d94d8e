/** Spans in memory, without a database: what the lanes say of them, how they end, when neighbours become one. */

import { describe, expect, it } from 'vitest';
import { lanesOf } from '../../src/buffer/asset-lanes.ts';
import { freeEntry, sendEntry } from '../../src/buffer/batches/batch-slices.ts';
import { BodyWriter } from '../../src/buffer/batches/body-writer.ts';
import { SegmentReader } from '../../src/buffer/batches/segment-reader.ts';
import { setAsideSegment, settleRuns } from '../../src/buffer/batches/settle.ts';
import { takeBatch } from '../../src/buffer/batches/take.ts';
import type { TakeRequest } from '../../src/buffer/client/lanes.ts';
import { Compaction, dropSpan } from '../../src/buffer/compaction/compaction.ts';
import { Flush } from '../../src/buffer/compaction/flush.ts';
import { Maintenance } from '../../src/buffer/compaction/maintenance.ts';
import { packSegment } from '../../src/buffer/format/segment.ts';
import { ValueColumns } from '../../src/buffer/format/value-columns.ts';
import { Pending } from '../../src/buffer/pending.ts';
import { ReadLeases } from '../../src/buffer/read-leases.ts';
import { handOver, takeOver } from '../../src/buffer/recovery/handover.ts';
import { type Span, segmentId } from '../../src/buffer/span.ts';
import { StoreState } from '../../src/buffer/state.ts';

const NEVER = Number.POSITIVE_INFINITY;

/** Some series of one asset. Times, readings and ages go on from one value to the next. */
function world(series = 2) {
  const state = new StoreState();
  state.times.open(1, 0, []);
  const pending = new Pending();
  const flush = new Flush(state, pending);
  const onDisk = new Map<number, Uint8Array>();
  const segments = new SegmentReader(
    (id) => pending.segments.get(id) ?? onDisk.get(id),
    (span, entry) => expect.fail(`segment ${entry} of span ${span.id} does not read`),
  );
  const plain = { group: undefined, unit: undefined, instrumentation: undefined };
  for (let id = 1; id <= series; id++) state.addSeries({ id, asset: 1, key: `k${id}`, ...plain });
  let number = 0;
  /** A row of the log with so many values of each of these series. */
  const row = (ids: readonly number[], values: number, monotonicMs = state.nextRow * 10) => {
    const columns = new ValueColumns();
    for (let i = 0; i < values; i++) for (const id of ids) columns.add(id, ++number, number, 0);
    const { length: count } = columns;
    const { nextSeq: firstSeq } = state;
    state.rows.push({ id: state.nextRow++, firstSeq, count, left: count, isLoaded: true, run: 1, monotonicMs });
    state.takeIn(columns);
  };
  const span = (ids: readonly number[], values: number): Span => {
    row(ids, values);
    flush.begin(state.rows.length);
    flush.finish();
    return state.spans.at(-1)!;
  };
  const commit = () => {
    for (const [id, packed] of pending.segments) onDisk.set(id, packed);
    pending.clear();
  };
  const lanes = () => lanesOf(state, state.assets.get(1)!);
  return { state, pending, flush, segments, row, span, commit, lanes, asset: state.assets.get(1)! };
}

describe('the lanes of an asset', () => {
  it('say since when the oldest live value waits, and where the oldest segment stands that may be taken', () => {
    const { state, span, row, lanes, asset } = world();
    expect(lanes()).toEqual({ asset: 1, live: 0, oldestLiveAtMs: NEVER, backlog: 0, oldestBacklogAt: NEVER });
    const first = span([1], 1);
    const second = span([1, 2], 1);
    row([2], 3, 70);
    row([1], 1, 80);
    expect(lanes()).toEqual({ asset: 1, live: 4, oldestLiveAtMs: 70, backlog: 3, oldestBacklogAt: first.place });
    sendEntry(asset, first, 0, false);
    expect(lanes()).toMatchObject({ backlog: 2, oldestBacklogAt: second.place });
    state.holdSeries([1]);
    expect(lanes()).toMatchObject({ live: 3, backlog: 1, oldestBacklogAt: second.place });
    state.holdSeries([2]);
    expect(lanes()).toMatchObject({ live: 1, oldestLiveAtMs: 80, backlog: 1, oldestBacklogAt: second.place });
    state.holdSeries([]);
    freeEntry(asset, first, 0, false);
    expect(lanes()).toMatchObject({ live: 4, backlog: 3, oldestBacklogAt: first.place });
    // A span of which nothing is left at the front is not looked at again.
    state.loseEntry(first, 0);
    expect([lanes().oldestBacklogAt, asset.places.map((place) => place.span)]).toEqual([second.place, [second]]);
  });
});

describe('a span that comes', () => {
  it('adds nothing to the backlog of its asset for a series that is held', () => {
    const { state, span, asset } = world();
    state.holdSeries([1]);
    span([1, 2], 2);
    expect([asset.backlog, state.segmentValues]).toEqual([2, 4]);
  });
});

describe('a segment', () => {
  it('that is another series’ of as many values is none of this one', () => {
    const { span } = world();
    const one = span([1, 2], 2);
    const two = Float64Array.of(1, 2);
    const values = { count: 2, timeMs: two, value: two, flags: new Uint8Array(2) };
    const damaged: number[] = [];
    const segments = new SegmentReader(
      () => packSegment(values, 0, 2, { series: 2, place: one.place }),
      (_, entry) => damaged.push(entry),
    );
    expect([segments.read(one, 0), damaged]).toEqual([undefined, [0]]);
    expect(segments.read(one, 1)?.count).toBe(2);
  });
});

describe('a store that is taken over from another', () => {
  it('has its series, what is held of them and the number of its next batch, and tells every lane', () => {
    const { state } = world(4);
    state.addSeries({ id: 5, asset: 2, key: 'k5', group: undefined, unit: undefined, instrumentation: undefined });
    state.holdSeries([2]);
    state.nextBatch = 7;
    // One that was forgotten meanwhile.
    state.series[3] = undefined;
    const options = { flushValues: 5 } as never;
    const handover = handOver(state, options);
    expect([handover.series.map(({ id }) => id), handover.held, handover.options]).toEqual([
      [1, 2, 4, 5],
      [2],
      options,
    ]);
    const taken = new StoreState();
    takeOver(taken, { ...handover, damage: [] });
    expect(taken.series.flatMap((one) => (one ? [[one.series.key, one.held]] : []))).toEqual([
      ['k1', false],
      ['k2', true],
      ['k4', false],
      ['k5', false],
    ]);
    expect([taken.nextBatch, [...taken.touched].map(({ asset }) => asset)]).toEqual([7, [1, 2]]);
  });
});

describe('a live batch', () => {
  it.each([
    ['as much of the backlog along as fits', undefined, [4, 3]],
    ['none while a batch of the backlog is under way', [1], [4, 0]],
  ])('takes %s', (_, underWay, expected) => {
    const { state, segments, span, row } = world(3);
    span([1, 2], 2);
    row([3], 4);
    state.distribute();
    const take = (request: Pick<TakeRequest, 'lane' | 'onlySeries'>) => {
      const limits = { asset: 1, maxValues: 7, maxBytes: 10_000, alongValues: 100 };
      const { answer } = takeBatch(state, segments, new BodyWriter(), { ...limits, ...request })!;
      return [answer.liveValues, answer.backlogValues];
    };
    if (underWay) expect(take({ lane: 'backlog', onlySeries: underWay })).toEqual([0, 2]);
    expect(take({ lane: 'live' })).toEqual(expected);
  });
});

describe('what leaves a span', () => {
  it('takes it away with the last segment that does not read', () => {
    const { state, pending, span, commit, asset } = world();
    const one = span([1, 2], 3);
    commit();
    expect(setAsideSegment(state, pending, one, 0, undefined)).toBe(3);
    expect([state.spans, pending.droppedSpans.size, asset.places.length]).toEqual([[one], 0, 1]);
    expect([...pending.goneSegments]).toEqual([segmentId(one.id, 0)]);
    expect(setAsideSegment(state, pending, one, 1, undefined)).toBe(3);
    expect([state.spans, [...pending.droppedSpans], asset.places]).toEqual([[], [one], []]);
    // It goes with all that is in it.
    expect(pending.goneSegments.size).toBe(0);
    expect(pending.aside.map(({ place }) => place)).toEqual([segmentId(one.id, 0), segmentId(one.id, 1)]);
  });

  it('waits no longer, and is not counted twice where it was under way', () => {
    const { state, pending, segments, span, asset } = world();
    const one = span([1], 9);
    expect(settleRuns(state, pending, segments, one, 0, [{ from: 1, to: 3 }])).toBe(2);
    expect([asset.backlog, state.segmentValues]).toEqual([7, 7]);
    sendEntry(asset, one, 0, false);
    expect(settleRuns(state, pending, segments, one, 0, [{ from: 0, to: 2 }])).toBe(1);
    expect([asset.backlog, state.segmentValues]).toEqual([0, 6]);
    freeEntry(asset, one, 0, false);
    expect(asset.backlog).toBe(6);
  });

  it('is counted once, though a bound drops the rest of the span later', () => {
    const { state, pending, span } = world();
    const first = span([1, 2], 2);
    const second = span([1], 2);
    state.loseEntry(first, 0);
    expect(dropSpan(state, pending, first)).toBe(2);
    const { segments, backlogTimeMs } = state.seriesOf(1);
    expect([segments, backlogTimeMs, first.left]).toEqual([1, second.lastTimeMs[0], 0]);
    expect(state.seriesOf(2).segments).toBe(0);
  });

  it('is deleted on disk where it stands there, and never written where it does not', () => {
    const { pending, span, commit } = world();
    const one = span([1, 2], 2);
    pending.dropSegment(one, 0);
    expect([[...pending.segments.keys()], [...pending.goneSegments]]).toEqual([[segmentId(one.id, 1)], []]);
    commit();
    pending.dropSegment(one, 1);
    expect([...pending.goneSegments]).toEqual([segmentId(one.id, 1)]);
  });
});

describe('a compaction', () => {
  /** So many flushes of two series, on disk. */
  function flushed(flushes: number, values: number) {
    const one = world();
    for (let i = 0; i < flushes; i++) one.span([1, 2], values);
    one.commit();
    const choose = (segments: number, maxValues = NEVER) =>
      Compaction.choose(one.state, one.pending, { size: { values: NEVER, segments }, maxValues });
    return { ...one, choose };
  }

  it('puts sixteen flushes of small segments into one span, every value once and in its order', () => {
    const { state, segments, choose } = flushed(16, 3);
    const { place } = state.spans[0]!;
    expect(choose(512)!.step(segments)).toBe(true);
    expect(state.spans.map((span) => [span.place, ...span.count])).toEqual([[place, 48, 48]]);
    const readings = (entry: number) => [...segments.read(state.spans[0]!, entry)!.value];
    expect(readings(0)).toEqual(Array.from({ length: 48 }, (_, i) => 2 * i + 1));
    expect(readings(1)).toEqual(Array.from({ length: 48 }, (_, i) => 2 * i + 2));
    expect(state.segmentValues).toBe(96);
  });

  it('puts in its place what is enough for a span, a step at a time', () => {
    const { state, pending, segments, choose } = flushed(16, 3);
    const compaction = choose(2)!;
    expect(compaction.step(segments)).toBe(false);
    expect([state.spans.length, pending.newSpans.size, state.segmentValues]).toEqual([17, 1, 96]);
    expect(compaction.step(segments)).toBe(true);
    expect(state.spans.map(({ count }) => [...count])).toEqual([[48], [48]]);
  });

  it.each([
    ['fifteen flushes', 15, 3, false],
    ['sixteen', 16, 3, true],
    ['sixteen whose segments are large enough', 16, 64, false],
    ['sixteen whose segments are not quite', 16, 63, true],
  ])('is worth it, or not: %s', (_, flushes, values, isWorthIt) => {
    expect(flushed(flushes, values).choose(512) !== undefined).toBe(isWorthIt);
  });
});

describe('a flush on a disk with little room', () => {
  it('takes the rows that fit, once what was packed before is written', () => {
    const { state, pending, segments, flush, row, commit } = world();
    const limits = { flushAfterMs: 1e9, flushValues: 5 };
    const readers = new ReadLeases();
    const maintenance = new Maintenance({
      state,
      pending,
      segments,
      flush,
      readers,
      limits,
      maxGroupValues: () => NEVER,
    });
    for (let i = 0; i < 3; i++) row([1, 2], 5);
    const roomFor = (maxValues: number) => ({ maxValues, atOnce: false });
    expect([maintenance.isDue(100, roomFor(9)), maintenance.isDue(100, roomFor(25))]).toEqual([false, true]);
    maintenance.step(100, roomFor(25));
    expect([state.spans.map(({ values }) => values), state.rows.length, flush.isUnderWay]).toEqual([[20], 1, false]);
    maintenance.step(100, roomFor(25));
    expect([maintenance.isDue(100, roomFor(25)), state.rows.length]).toEqual([false, 1]);
    commit();
    maintenance.step(100, roomFor(25));
    expect([state.spans.map(({ values }) => values), state.rows.length]).toEqual([[20, 10], 0]);
  });

  it('does not let rows grow old of which some values have left', () => {
    const { state, pending, segments, flush, row } = world();
    const limits = { flushAfterMs: 1e9, flushValues: 1e9 };
    const readers = new ReadLeases();
    const maintenance = new Maintenance({
      state,
      pending,
      segments,
      flush,
      readers,
      limits,
      maxGroupValues: () => NEVER,
    });
    row([1], 2);
    row([1], 2);
    const isDue = (atOnce: boolean) => maintenance.isDue(100, { maxValues: 100, atOnce });
    expect([isDue(true), isDue(false)]).toEqual([false, false]);
    state.rows[0]!.left--;
    expect([isDue(true), isDue(false)]).toEqual([true, false]);
  });
});
