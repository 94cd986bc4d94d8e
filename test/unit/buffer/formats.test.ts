import { describe, expect, it } from 'vitest';
import { BodyWriter } from '../../../src/buffer/batches/body-writer.ts';
import { LogRowWriter, readLogRow } from '../../../src/buffer/format/log-row.ts';
import { packSegment, unpackSegment } from '../../../src/buffer/format/segment.ts';
import { STAMPED_HERE, ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

/** Values that often break number formats, mixed with ordinary ones. */
function awkward(random: () => number): number {
  const kind = Math.floor(random() * 14);
  const plain = Math.round(random() * 1e5) / 100;
  if (kind === 0) return -0;
  if (kind === 1) return random();
  if (kind === 2) return Number.MAX_VALUE * (random() - 0.5);
  if (kind === 3) return Number.MIN_VALUE;
  if (kind === 4) return 2 ** 53 - 1 - Math.floor(random() * 5);
  if (kind === 5) return -(2 ** 50) + Math.floor(random() * 3) - 1;
  if (kind === 6) return 0.1 + 0.2;
  if (kind === 7) return plain * 1e-9;
  if (kind === 8) return Math.round(random() * 1e12) / 1e12;
  return kind % 2 ? plain : -plain;
}

function randomColumns(random: () => number, length: number, seriesSpread: number): ValueColumns {
  const columns = new ValueColumns();
  let time = Math.floor(random() * 4e12);
  for (let i = 0; i < length; i++) {
    if (random() < 0.02) time = Math.floor(random() * 253402300799999);
    else time += Math.floor(random() * 3) * 500;
    const flags = Math.floor(random() * 4) | (random() < 0.1 ? STAMPED_HERE : 0);
    columns.add(1 + Math.floor(random() * seriesSpread), time, awkward(random), flags);
  }
  return columns;
}

const bits = (value: number) => Buffer.from(new Float64Array([value]).buffer).toString('hex');

function rows(
  values: { series?: ArrayLike<number>; timeMs: ArrayLike<number>; value: ArrayLike<number>; flags: ArrayLike<number> },
  length: number,
) {
  return Array.from({ length }, (_, i) => [
    values.series?.[i],
    values.timeMs[i],
    bits(values.value[i]!),
    values.flags[i],
  ]);
}

describe('stored log row', () => {
  it.each([1, 2, 3, 4, 5, 6, 7, 8])('restores edge-case values bit for bit, seed %i', (seed) => {
    const clock = new ManualClock(0, seed);
    const writer = new LogRowWriter();
    const spread = seed % 3 === 0 ? 2 ** 20 : 40;
    for (let turn = 0; turn < (spread > 1000 ? 2 : 60); turn++) {
      const values = randomColumns(
        () => clock.random(),
        Math.floor(clock.random() * 300),
        spread > 1000 ? 4000 : spread,
      );
      const settled = Array.from({ length: turn % 4 }, (_, i) => ({
        series: i * 7,
        firstSeq: turn * 1e6,
        lastSeq: turn * 1e6 + i,
      }));
      const head = { run: turn, monotonicMs: turn * 12345, firstSeq: turn * 2 ** 40 };
      const back = readLogRow(writer.write(head, values, settled).slice());
      expect(rows(back.values, back.values.length)).toEqual(rows(values, values.length));
      expect(back).toMatchObject({ ...head, settled });
    }
  });

  it('detects every flipped bit', () => {
    const clock = new ManualClock();
    const row = new LogRowWriter()
      .write(
        { run: 1, monotonicMs: 5, firstSeq: 9 },
        randomColumns(() => clock.random(), 50, 9),
        [],
      )
      .slice();
    for (let at = 0; at < row.length; at++) {
      const broken = row.slice();
      broken[at]! ^= 1 << Math.floor(clock.random() * 8);
      expect(() => readLogRow(broken)).toThrow(/damaged/);
    }
    for (let length = 0; length < row.length; length += 7)
      expect(() => readLogRow(row.slice(0, length))).toThrow(/damaged/);
  });
});

describe('segment', () => {
  it.each([11, 12, 13, 14, 15, 16])('restores edge-case values bit for bit, seed %i', (seed) => {
    const clock = new ManualClock(0, seed);
    for (let turn = 0; turn < 80; turn++) {
      const values = randomColumns(() => clock.random(), 1 + Math.floor(clock.random() * 200), 1);
      const from = Math.floor(clock.random() * values.length);
      const back = unpackSegment(packSegment({ ...values, count: values.length } as never, from));
      expect(rows({ timeMs: back.timeMs, value: back.value, flags: back.flags }, back.count)).toEqual(
        rows(
          {
            timeMs: values.timeMs.subarray(from),
            value: values.value.subarray(from),
            flags: values.flags.subarray(from),
          },
          values.length - from,
        ),
      );
    }
  });

  it('uses at most three bytes per value for slowly changing decimals at a steady interval', () => {
    const clock = new ManualClock(0, 3);
    const values = new ValueColumns();
    let level = 20;
    for (let i = 0; i < 1000; i++) {
      level += Math.round((clock.random() - 0.5) * 40) / 100;
      values.add(1, 1.7e12 + i * 1000, Math.round(level * 100) / 100, 0);
    }
    expect(packSegment({ ...values, count: values.length } as never).length / 1000).toBeLessThan(2);
  });
});

describe('request body', () => {
  it('never exceeds its size limit', () => {
    const writer = new BodyWriter();
    const series = { key: 'k'.repeat(128), group: undefined, unit: { code: 'degree_celsius' } };
    for (const bound of [400, 1000, 5000]) {
      writer.begin(bound);
      let points = 0;
      while (writer.openKey(series)) {
        while (points % 9 !== 8 && writer.point(1.7e12, -Number.MIN_VALUE / 3 - 1 / 3, 3)) points++;
        points++;
        writer.closeKey();
      }
      expect(writer.end().length).toBeLessThanOrEqual(bound);
      expect(points).toBeGreaterThan(0);
    }
  });
});
