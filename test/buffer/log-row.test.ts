import { describe, expect, it } from 'vitest';
import { ByteWriter } from '../../src/buffer/format/bytes.ts';
import { LogRowWriter, peekLogRow, readLogRow } from '../../src/buffer/format/log-row.ts';
import { ValueColumns } from '../../src/buffer/format/value-columns.ts';

const HEAD = { run: 3, monotonicMs: 300, firstSeq: 12 };

function columns(...values: [series: number, timeMs: number, value: number, flags: number][]): ValueColumns {
  const found = new ValueColumns();
  for (const value of values) found.add(...value);
  return found;
}

/** Behind the checksum. */
function bytesOf(values: ValueColumns): string {
  return Buffer.from(
    new LogRowWriter().write(HEAD, values, [{ series: 1, firstSeq: 2, lastSeq: 9 }]).subarray(4),
  ).toString('hex');
}

/** A row as only a forger writes it: whole, with its checksum. */
function forged(...numbers: number[]): Uint8Array {
  const writer = new ByteWriter();
  writer.reset(4);
  for (const number of numbers) writer.varint(number);
  return writer.seal().slice();
}

const damage = (message: string) =>
  expect.objectContaining({ code: 'store.damaged', message: `${message} is damaged` });

describe('a row of the log', () => {
  // What writer and reader get wrong alike comes out as it went in: the bytes are what files of former versions hold.
  it('has these bytes', () => {
    const head = '0103ac020c';
    const settled = '010207';
    expect(bytesOf(columns())).toBe(`${head}0001${settled}`);
    // Series 2, one digit, time 1,000, 205; the same form a step of 5 later, 3 more.
    expect(bytesOf(columns([2, 1_000, 20.5, 0], [2, 1_005, 20.8, 0]))).toBe(`${head}0201${settled}0801d00f9a03010a06`);
    // Other digits are no difference, and stay for the series; a flag changes the form; another series begins anew.
    expect(bytesOf(columns([2, 1_000, 20.5, 0], [2, 1_000, 20.25, 0], [2, 1_000, 20.5, 1], [0, 1_000, 20.5, 1]))).toBe(
      `${head}0401${settled}0801d00f9a03000200d21f001200320611009a03`,
    );
    // No whole number with digits: its eight bytes, and the form stays.
    expect(bytesOf(columns([0, 0, Math.PI, 0], [0, 0, -0, 0], [0, 0, 0, 0]))).toBe(
      `${head}0301${settled}000f00182d4454fb2109400100000000000000008000000000`,
    );
  });

  it('has as few of them for a series with a high number, and after many rows', () => {
    const writer = new LogRowWriter();
    const written = (series: number) =>
      writer.write(
        HEAD,
        columns([series, 1_000, 1e6, 0], [series, 1_001, 1e6 + 1, 0], [series, 1_002, 1e6 + 2, 0]),
        [],
      );
    const few = written(1_000).length;
    for (const series of [1_000, 1_023, 1_024, 1_025, 2_047, 2_048, 4_000, 1_000, 1_024]) {
      const row = written(series);
      expect([series, row.length]).toEqual([series, few]);
      expect([...readLogRow(row).values.value.subarray(0, 3)]).toEqual([1e6, 1e6 + 1, 1e6 + 2]);
    }
  });

  it('knows the last number of each series when a higher series is the first of its kind in the middle of it', () => {
    const values = columns([3, 1_000, 20.5, 0], [5_000, 1_000, 7.5, 0], [3, 1_000, 20.8, 0], [5_000, 1_000, 7.6, 0]);
    const grown = new LogRowWriter();
    const bytes = () => Buffer.from(grown.write(HEAD, values, [])).toString('hex');
    const first = bytes();
    // By then there is room for all.
    expect(bytes()).toBe(first);
    // 205 to 208 and 75 to 76, as differences.
    expect(first.endsWith('939c010006959c010002')).toBe(true);
    expect([...readLogRow(Buffer.from(first, 'hex')).values.value.slice(0, 4)]).toEqual([20.5, 7.5, 20.8, 7.6]);
  });

  it('keeps as many digits for a series as its values needed, whatever its number', () => {
    const bytes = (series: number) => {
      const writer = new LogRowWriter();
      writer.write(HEAD, columns([series, 1_000, 20.25, 0]), []);
      // Then 20.50: two digits, 2,050.
      return Buffer.from(writer.write(HEAD, columns([series, 1_000, 20.5, 0]), []))
        .toString('hex')
        .slice(-10);
    };
    for (const series of [1, 1_023, 1_024, 1_025, 2_048])
      expect([series, bytes(series)]).toEqual([series, '02d00f8420']);
  });

  it('may hold nothing but what was settled', () => {
    const row = new LogRowWriter().write(HEAD, columns(), [{ series: 1, firstSeq: 2, lastSeq: 9 }]);
    const { values, ...rest } = readLogRow(row);
    expect([values.length, rest]).toEqual([0, { ...HEAD, settled: [{ series: 1, firstSeq: 2, lastSeq: 9 }] }]);
  });

  it('tells by its beginning whose values stand in it, where its end does not read', () => {
    const row = new LogRowWriter().write(HEAD, columns([2, 1_000, 20.5, 0]), []).slice();
    expect(peekLogRow(row)).toEqual({ firstSeq: 12, count: 1 });
    expect(peekLogRow(row.subarray(0, 10))).toEqual({ firstSeq: 12, count: 1 });
    expect(peekLogRow(row.subarray(0, 8))).toBeUndefined();
    expect(peekLogRow(Uint8Array.from(row, (byte, at) => (at === 4 ? 3 : byte)))).toBeUndefined();
  });

  it.each([
    ['a row of the log', new Uint8Array(9)],
    ['a row of the log', new Uint8Array(4)],
    ['the version of a log row', forged(2, 0, 0, 0, 0, 0)],
    // A billion values, a billion runs: neither becomes an allocation.
    ['the head of a log row', forged(1, 0, 0, 0, 1e9, 0)],
    ['the head of a log row', forged(1, 0, 0, 0, 0, 1e9)],
    ['the head of a log row', forged(1, 0, 0, 0, 1, 0, 4, 1)],
    ['the head of a log row', forged(1, 0, 0, 0, 0, 1, 4, 1)],
    ['a series of a log row', forged(1, 0, 0, 0, 1, 0, 2, 1, 0, 0)],
    ['a series of a log row', forged(1, 0, 0, 0, 1, 0, 4 * (2 ** 22 + 1), 1, 0, 0)],
    ['the digits of a log row', forged(1, 0, 0, 0, 1, 0, 0, 13, 0, 0)],
    ['the end of a log row', forged(1, 0, 0, 0, 0, 0, 7)],
  ])('is damaged where it is not what was written: %s', (what, row) => {
    expect(() => readLogRow(row)).toThrow(damage(what));
  });

  it('may hold the first series and the last that there can be', () => {
    for (const series of [0, 2 ** 22]) {
      const { values, settled } = readLogRow(forged(1, 0, 0, 0, 1, 1, 5, 6, 7, 4 * series, 1, 10, 8));
      expect([values.series[0], values.timeMs[0], values.value[0]]).toEqual([series, 5, 0.4]);
      expect(settled).toEqual([{ series: 5, firstSeq: 6, lastSeq: 13 }]);
    }
  });
});
