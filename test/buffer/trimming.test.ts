/** Taking the oldest share of what was flushed together: what goes, what is written anew, and what is left as it is. */
import { describe, expect, it } from 'vitest';
import { SegmentReader } from '../../src/buffer/batches/segment-reader.ts';
import { Flush } from '../../src/buffer/compaction/flush.ts';
import { packSegment, unpackSegment } from '../../src/buffer/format/segment.ts';
import { Pending } from '../../src/buffer/pending.ts';
import { Dropping, type DroppingParts } from '../../src/buffer/space/dropping.ts';
import { Trimming } from '../../src/buffer/space/trimming.ts';
import { newSpan, segmentId } from '../../src/buffer/span.ts';
import { StoreState } from '../../src/buffer/state.ts';

const COUNT = 10;

/** A span of two series with ten values each, numbered. */
function group() {
  const state = new StoreState();
  const pending = new Pending();
  const ids = [1, 2];
  for (const id of ids)
    state.addSeries({ id, asset: 1, key: `k${id}`, group: undefined, unit: undefined, instrumentation: undefined });
  const numbers = Float64Array.from({ length: COUNT }, (_, i) => i);
  const entries = ids.map((series) => ({ series, count: COUNT, lastTimeMs: COUNT - 1 }));
  const span = newSpan({ id: 1, place: 1, run: 1, acceptedMs: 0 }, entries);
  state.addSpan(span);
  const values = { count: COUNT, timeMs: numbers, value: numbers, flags: new Uint8Array(COUNT) };
  const rows = new Map(
    ids.map((series, entry) => [segmentId(1, entry), packSegment(values, 0, COUNT, { series, place: 1 })]),
  );
  const segments = new SegmentReader(
    (id) => rows.get(id),
    () => {},
  );
  const trim = (share: number) =>
    new Trimming(state, pending, [span], share).step(segments, { values: 1_000, segments: 10 });
  /** What is written anew, by series. */
  const kept = () =>
    Object.fromEntries(
      [...pending.segments.values()].map(unpackSegment).map(({ series, value }) => [series, [...value]]),
    );
  return { state, pending, segments, span, rows, trim, kept };
}

const from = (first: number) => Array.from({ length: COUNT - first }, (_, i) => first + i);

describe('a group of values that is too large to go at once', () => {
  it('loses the first of each series; the rest stands in a new span, and nothing of the old one', () => {
    const { state, pending, span, trim, kept } = group();
    expect(trim(0.5)).toBe(10);
    expect(kept()).toEqual({ 1: from(5), 2: from(5) });
    expect([state.segmentValues, state.spans.length, state.spans.includes(span)]).toEqual([10, 1, false]);
    expect([...pending.droppedSpans]).toEqual([span]);
    expect([pending.goneSegments.size, pending.changedSpans.size]).toEqual([0, 0]);
  });

  it('keeps all of a series of which a batch has something', () => {
    const { state, span, trim, kept } = group();
    span.underWay.set(0, 1);
    expect(trim(0.5)).toBe(5);
    expect([span.gone[0], span.gone[1]]).toEqual([0, 1]);
    expect(kept()).toEqual({ 2: from(5) });
    expect(state.segmentValues).toBe(15);
  });

  it('keeps all of a series whose segment is awaited, and takes the others’ share', () => {
    const { span, rows, trim, kept } = group();
    rows.delete(segmentId(1, 0));
    // Its own five and what is owed of the one before it.
    expect(trim(0.5)).toBe(10);
    expect([span.gone[0], span.gone[1]]).toEqual([0, 1]);
    expect(kept()).toEqual({});
  });

  it('goes in steps, each of which is on disk before the next, and no more of it than must', () => {
    const { state, pending, segments } = group();
    const maxBytes = 1_000_000;
    const rows = { iterate: () => [] };
    const parts = {
      state,
      pending,
      segments,
      flush: new Flush(state, pending),
      bounds: { maxBytes, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' },
      // With what the rows of twenty values take beside, twice what the bound wants.
      statements: { oldestAside: rows, oldestQuarantine: rows, bytesOfSegments: { get: () => 82_448 } },
      isWalked: () => false,
      stepSize: { values: 1_000, segments: 1 },
    };
    const dropping = new Dropping(parts as unknown as DroppingParts);
    const disk = { bytes: 0, usedBytes: 900_000, walBytes: 0, reusableBytes: 0, freeBytes: 1e9, totalBytes: 1e12 };
    for (const [fallen, left] of [
      [5, 15],
      [5, 10],
    ]) {
      dropping.keep(disk, () => 0);
      expect([state.segmentValues, dropping.isDue(disk)]).toEqual([left, false]);
      expect([dropping.committed(), dropping.isDue(disk)]).toEqual([true, true]);
      expect(dropping.take()).toEqual([{ reason: 'bytes', values: fallen }]);
    }
  });
});
