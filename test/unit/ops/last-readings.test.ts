import { describe, expect, it } from 'vitest';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { LastReadings } from '../../../src/ops/live/last-readings.ts';

const ofTags = (...series: number[]) => new LastReadings((one) => series.includes(one));

describe('latest readings', () => {
  it('contain only series in tags.yaml', () => {
    const readings = ofTags(7);
    readings.record(7, 20, 10, Number.NaN, 1_000, false);
    readings.record(8, 1, 1, 5, 1_000, true);
    expect(readings.of(7)).toMatchObject({ value: 20, raw: 10, timeMs: Number.NaN, takenMs: 1_000, isBad: false });
    expect(readings.of(8)).toBeUndefined();
  });

  it('contain timestamp and status for pushed values, but no raw reading', () => {
    const readings = ofTags(1, 2);
    const columns = new ValueColumns();
    columns.add(1, 123, 4.5, 0);
    columns.add(2, 124, 5.5, 3);
    readings.recordAll(columns, 50);
    expect(readings.of(1)).toMatchObject({ value: 4.5, raw: Number.NaN, timeMs: 123, takenMs: 50, isBad: false });
    expect(readings.of(2)!.isBad).toBe(true);
  });

  it('include up to 24 sparkline values, oldest first', () => {
    const series = Array.from({ length: 1_000 }, (_, i) => i + 1);
    const readings = ofTags(...series);
    for (let round = 0; round < 30; round++)
      for (const one of series) readings.record(one, round, round, 0, round, false);
    expect(readings.sparkline(1_000)).toEqual(Array.from({ length: 24 }, (_, i) => i + 6));
    expect(readings.of(500)!.value).toBe(29);
  });
});

describe('one-hour trace', () => {
  it('is recorded from the first request on, and discarded if it is not requested', () => {
    const readings = ofTags(1, 2);
    readings.record(1, 5, 5, 0, 0, false);
    expect(readings.trace(1, 1_000).since(0)).toEqual([]);
    readings.record(1, 6, 6, 0, 2_100, false);
    readings.record(1, 2, 2, 0, 2_200, false);
    readings.record(1, 4, 4, 0, 2_300, false);
    readings.record(2, 9, 9, 0, 2_300, false);
    expect(readings.trace(1, 3_000).since(0)).toEqual([[2_000, 4, 2, 6]]);
    readings.trace(2, 60_000);
    expect(readings.traces).toBe(2);
    readings.trace(2, 3_600_000);
    expect(readings.traces).toBe(1);
  });

  it('exists only for the tags that were requested last', () => {
    const series = Array.from({ length: 1_000 }, (_, at) => at + 1);
    const readings = ofTags(...series);
    const recorded = () => {
      for (const one of series) readings.record(one, 1, 1, 0, 1_000, false);
      return readings.trace(1_000, 0).since(0).length;
    };
    for (const one of series) readings.trace(one, 0);
    expect(readings.traces).toBeLessThan(100);
    expect(recorded()).toBe(1);
  });

  it('has at most 3,600 rows at any rate', () => {
    const readings = ofTags(1);
    const trace = readings.trace(1, 0);
    for (let ms = 0; ms < 5_000_000; ms += 250) readings.record(1, ms, ms, 0, ms, false);
    const rows = trace.since(0);
    expect(rows).toHaveLength(3_600);
    expect(rows.at(-1)).toEqual([4_999_000, 4_999_750, 4_999_000, 4_999_750]);
    expect(trace.since(4_998_000)).toHaveLength(2);
  });
});
