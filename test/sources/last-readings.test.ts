import { describe, expect, it } from 'vitest';
import { ValueColumns } from '../../src/buffer/format/value-columns.ts';
import { LastReadings } from '../../src/sources/last-readings.ts';

const ofTags = (...series: number[]) => new LastReadings((one) => series.includes(one));

describe('the last readings', () => {
  it('are kept of what tags.yaml names, and of nothing else that comes', () => {
    const readings = ofTags(7);
    readings.take(7, 20, 10, Number.NaN, 1_000, false);
    readings.take(8, 1, 1, 5, 1_000, true);
    expect(readings.of(7)).toEqual({ value: 20, raw: 10, timeMs: Number.NaN, takenMs: 1_000, isBad: false });
    expect(readings.of(8)).toBeUndefined();
    expect(readings.takenMs(8)).toBe(Number.NEGATIVE_INFINITY);
  });

  it('of what programs push have its time and status, and no raw reading', () => {
    const readings = ofTags(1, 2);
    const columns = new ValueColumns();
    columns.add(1, 123, 4.5, 0);
    columns.add(2, 124, 5.5, 3);
    readings.takeAll(columns, 50);
    expect(readings.of(1)).toEqual({ value: 4.5, raw: Number.NaN, timeMs: 123, takenMs: 50, isBad: false });
    expect(readings.of(2)!.isBad).toBe(true);
  });

  it('are two dozen for the small line, oldest first, of as many values as there are', () => {
    const series = Array.from({ length: 1_000 }, (_, i) => i + 1);
    const readings = ofTags(...series);
    for (let round = 0; round < 30; round++)
      for (const one of series) readings.take(one, round, round, 0, round, false);
    expect(readings.line(1_000)).toEqual(Array.from({ length: 24 }, (_, i) => i + 6));
    expect(readings.of(500)!.value).toBe(29);
  });

  it('are forgotten with the tags that a reload takes away, and the others stay', () => {
    const named = new Set([1, 2, 3]);
    const readings = new LastReadings((series) => named.has(series));
    for (const series of named) for (let i = 0; i < series; i++) readings.take(series, series * 10 + i, 0, 0, 5, false);
    named.delete(2);
    readings.forgetOthers();
    expect([1, 2, 3].map((series) => readings.of(series)?.value)).toEqual([10, undefined, 32]);
    expect(readings.line(3)).toEqual([30, 31, 32]);
  });
});

describe('the last hour of a tag', () => {
  it('is kept while somebody looks, a minute longer, and no more', () => {
    const readings = ofTags(1, 2);
    readings.take(1, 5, 5, 0, 0, false);
    const watched = readings.watch(1, 1_000);
    readings.take(1, 6, 6, 0, 2_100, false);
    readings.take(1, 2, 2, 0, 2_200, false);
    readings.take(1, 4, 4, 0, 2_300, false);
    readings.take(2, 9, 9, 0, 2_300, false);
    expect(watched.trace.since(0)).toEqual([[2_000, 4, 2, 6]]);
    watched.end(10_000);
    // Who comes back soon finds it.
    readings.take(1, 7, 7, 0, 11_000, false);
    expect(readings.watch(1, 20_000).trace.since(0)).toHaveLength(2);
    const other = readings.watch(2, 30_000);
    other.end(30_000);
    expect(readings.traces).toBe(2);
    readings.watch(1, 100_000);
    expect(readings.traces).toBe(1);
  });

  it('is 3,600 rows at most, however quickly readings come', () => {
    const readings = ofTags(1);
    const { trace } = readings.watch(1, 0);
    for (let ms = 0; ms < 5_000_000; ms += 250) readings.take(1, ms, ms, 0, ms, false);
    const rows = trace.since(0);
    expect(rows).toHaveLength(3_600);
    expect(rows.at(-1)).toEqual([4_999_000, 4_999_750, 4_999_000, 4_999_750]);
    expect(trace.since(4_998_000)).toHaveLength(2);
  });
});
