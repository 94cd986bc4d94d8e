/** Bytes of segments and log rows, in the format of earlier versions, and invalid bytes. */
import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { ByteWriter } from '../../../src/buffer/format/bytes.ts';
import { LogRowWriter } from '../../../src/buffer/format/log-row.ts';
import { packSegment, readSegmentHead, unpackSegment } from '../../../src/buffer/format/segment.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const HEAD = { series: 5, place: 6 };

/** Columns with extra values after their end. */
function between(timeMs: readonly number[], value: readonly number[], flags: readonly number[]) {
  const around = (column: readonly number[]) => [column[0]!, ...column, column.at(-1)!];
  return {
    count: timeMs.length + 2,
    timeMs: Float64Array.from(around(timeMs)),
    value: Float64Array.from(around(value)),
    flags: Uint8Array.from(around(flags)),
  };
}

/** Bytes after checksum, version and header. */
function bytesOf(timeMs: readonly number[], value: readonly number[], flags: readonly number[]): string {
  const packed = packSegment(between(timeMs, value, flags), 1, timeMs.length + 1, HEAD);
  const whole = { count: timeMs.length, timeMs, value, flags } as never;
  expect(packSegment(whole, undefined, undefined, HEAD)).toEqual(packed);
  expect(unpackSegment(packed)).toEqual({
    ...HEAD,
    count: timeMs.length,
    timeMs: Float64Array.from(timeMs),
    value: Float64Array.from(value),
    flags: Uint8Array.from(flags),
  });
  expect(readSegmentHead(packed)).toEqual({ ...HEAD, count: timeMs.length });
  const hex = Buffer.from(packed.subarray(4)).toString('hex');
  expect(hex.slice(0, 6)).toBe('030506');
  return hex.slice(6);
}

/** A forged segment with a valid checksum. */
function forged(...numbers: number[]): Uint8Array {
  const writer = new ByteWriter();
  writer.reset(4);
  for (const number of numbers) writer.varint(number);
  return writer.seal().slice();
}

describe('segment format', () => {
  it('matches the documented bytes', () => {
    // One value: time 1,000, no step; flag 0 once; no digits, 7, no exceptions.
    expect(bytesOf([1_000], [7], [0])).toBe('01d00f0001000e00');
    // Steps: 10 three times, -5, 0 twice, 1, 0. Two flags in three runs.
    expect(bytesOf([0, 10, 20, 30, 25, 25, 25, 26, 26], [1, 1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 2, 1, 1, 1, 1, 1])).toBe(
      '090029023a150104020103020101050002000000000000000000',
    );
    // Because one value has two digits, all values have two; differences can be negative.
    expect(bytesOf([5, 5, 5], [20.5, 20.37, 21], [0, 0, 0])).toBe('030a01010003028420197e00');
  });

  it.each([
    ['a segment', new Uint8Array(9)],
    ['the version of a segment', forged(2, 5, 6, 1, 0, 0, 1, 0, 0, 0)],
    ['the header of a segment', forged(3, 5, 6, 0, 0, 0, 0, 0)],
    ['the header of a segment', forged(3, 5, 6, 1e9, 0, 0, 1, 0, 0, 0)],
    // Three values: a run of three steps where only two remain.
    ['the times of a segment', forged(3, 5, 6, 3, 0, 41, 2, 0, 3, 0, 0, 0, 0, 0)],
    ['the flags of a segment', forged(3, 5, 6, 2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0)],
    ['the flags of a segment', forged(3, 5, 6, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0)],
    ['the flags of a segment', forged(3, 5, 6, 3, 0, 1, 1, 0, 2, 0, 2, 0, 0, 0, 0, 0)],
    ['the digits of a segment', forged(3, 5, 6, 1, 0, 0, 1, 13, 0, 0)],
    ['the values of a segment', forged(3, 5, 6, 1, 0, 0, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0)],
    ['the end of a segment', forged(3, 5, 6, 1, 0, 0, 1, 0, 0, 0, 0)],
  ])('is reported as damaged if a part is invalid: %s', (what, bytes) => {
    expect(() => unpackSegment(bytes)).toThrow(
      expect.objectContaining({ code: 'store.damaged', message: `${what} is damaged` }),
    );
  });
});

/** All kinds of readings, steps and flags, with a fixed seed. */
function* plant(
  seed: number,
): Generator<{ columns: ValueColumns; head: { run: number; monotonicMs: number; firstSeq: number } }> {
  const clock = new ManualClock(0, seed);
  const below = (limit: number) => Math.floor(clock.random() * limit);
  const readings = [
    () => below(2_000) / 100,
    () => below(2_000) / 100,
    () => below(30) - 15,
    () => below(3) / 10,
    () => Math.sqrt(below(99)),
    () => 2 ** 45 + below(9),
    () => below(1e6) / 1e12,
    () => -0,
  ];
  for (let turn = 0, firstSeq = 0; turn < 60; turn++) {
    const columns = new ValueColumns();
    const kinds = 1 + below(readings.length);
    for (let i = below(120), timeMs = below(2e9) * 1_000; i >= 0; i--) {
      timeMs += below(8) === 0 ? below(2_000) - 1_000 : 500;
      const series = turn % 9 === 8 ? below(5_000) : below(6);
      columns.add(series, timeMs, readings[below(kinds)]!(), below(5) === 0 ? below(8) : 0);
    }
    yield { columns, head: { run: 1 + (turn >> 4), monotonicMs: turn * 997, firstSeq } };
    firstSeq += columns.length;
  }
}

describe('plant data', () => {
  const sha = (rows: Iterable<Uint8Array>) => {
    const hash = createHash('sha256');
    for (const row of rows) hash.update(row);
    return hash.digest('hex').slice(0, 16);
  };
  function* rows(seed: number) {
    const writer = new LogRowWriter();
    let series = 0;
    for (const { columns, head } of plant(seed)) {
      series += 3;
      yield writer.write(head, columns, [{ series, firstSeq: series * 7, lastSeq: series * 7 + head.run }]);
    }
  }
  function* segments(seed: number) {
    for (const { columns, head } of plant(seed)) {
      const { length: count, ...arrays } = columns;
      const from = head.firstSeq % 3;
      if (count > from + 2)
        yield packSegment({ count, ...arrays }, from, count - 2, { series: count, place: head.run });
    }
  }

  // If these numbers change, the format has changed, but existing files must remain readable for years.
  it.each([
    [1, '22faddf53edd1946', '977413c6ef35ed71'],
    [2, '25e692da2c086bc2', 'fe1e073798ed76e1'],
  ])('is encoded to the same bytes as in the released format, seed %i', (seed, ofRows, ofSegments) => {
    expect([sha(rows(seed)), sha(segments(seed))]).toEqual([ofRows, ofSegments]);
  });
});
