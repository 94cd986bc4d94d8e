import { describe, expect, it } from 'vitest';
import { ByteWriter } from '../../../src/buffer/format/bytes.ts';
import { LogRowWriter, peekLogRow, readLogRow } from '../../../src/buffer/format/log-row.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { BUFFER } from '../../../src/config/settings/buffer.ts';

const HEAD = { run: 3, monotonicMs: 300, firstSeq: 12 };

function columns(...values: [series: number, timeMs: number, value: number, flags: number][]): ValueColumns {
  const found = new ValueColumns();
  for (const value of values) found.add(...value);
  return found;
}

/** The bytes after the checksum. */
function bytesOf(values: ValueColumns): string {
  return Buffer.from(
    new LogRowWriter().write(HEAD, values, [{ series: 1, firstSeq: 2, lastSeq: 9 }]).subarray(4),
  ).toString('hex');
}

/** A forged row with a valid checksum. */
function forged(...numbers: number[]): Uint8Array {
  const writer = new ByteWriter();
  writer.reset(4);
  for (const number of numbers) writer.varint(number);
  return writer.seal().slice();
}

const damage = (message: string) =>
  expect.objectContaining({ code: 'store.damaged', message: `${message} is damaged` });

describe('log row format', () => {
  // A round trip does not detect an error that is the same in writer and reader. Earlier versions wrote these bytes.
  it('matches the documented bytes', () => {
    const head = '0103ac020c';
    const settled = '010207';
    expect(bytesOf(columns())).toBe(`${head}0001${settled}`);
    // Series 2, one digit, time 1,000, integer 205; then a value in the same form, 5 ms later and 3 units higher.
    expect(bytesOf(columns([2, 1_000, 20.5, 0], [2, 1_005, 20.8, 0]))).toBe(`${head}0201${settled}0801d00f9a03010a06`);
    // Other digits: no difference to the previous integer. A flag changes the form. Another series starts at 0.
    expect(bytesOf(columns([2, 1_000, 20.5, 0], [2, 1_000, 20.25, 0], [2, 1_000, 20.5, 1], [0, 1_000, 20.5, 1]))).toBe(
      `${head}0401${settled}0801d00f9a03000200d21f001200320611009a03`,
    );
    // Values that are not decimals: eight bytes each, with the same form.
    expect(bytesOf(columns([0, 0, Math.PI, 0], [0, 0, -0, 0], [0, 0, 0, 0]))).toBe(
      `${head}0301${settled}000f00182d4454fb2109400100000000000000008000000000`,
    );
  });

  it('encodes deltas correctly when a higher series appears in the middle of a row', () => {
    const values = columns([3, 1_000, 20.5, 0], [5_000, 1_000, 7.5, 0], [3, 1_000, 20.8, 0], [5_000, 1_000, 7.6, 0]);
    const grown = new LogRowWriter();
    const bytes = () => Buffer.from(grown.write(HEAD, values, [])).toString('hex');
    const first = bytes();
    // The tables are larger by now.
    expect(bytes()).toBe(first);
    // 205 to 208 and 75 to 76, as differences.
    expect(first.endsWith('939c010006959c010002')).toBe(true);
    expect([...readLogRow(Buffer.from(first, 'hex')).values.value.slice(0, 4)]).toEqual([20.5, 7.5, 20.8, 7.6]);
  });

  it('yields the first sequence number and the count even if the end of the row is unreadable', () => {
    const row = new LogRowWriter().write(HEAD, columns([2, 1_000, 20.5, 0]), []).slice();
    expect(peekLogRow(row)).toEqual({ firstSeq: 12, count: 1 });
    expect(peekLogRow(row.subarray(0, 10))).toEqual({ firstSeq: 12, count: 1 });
    expect(peekLogRow(row.subarray(0, 8))).toBeUndefined();
    expect(peekLogRow(Uint8Array.from(row, (byte, at) => (at === 4 ? 3 : byte)))).toBeUndefined();
  });

  it('accepts the numbers of as many series as MAX_SERIES and tags.yaml allow', () => {
    const values = columns([1.5 * BUFFER.MAX_SERIES.form.max, 1_000, 20.5, 0]);
    expect(readLogRow(new LogRowWriter().write(HEAD, values, [])).values.series[0]).toBe(values.series[0]);
  });

  it.each([
    ['a row of the log', new Uint8Array(9)],
    ['a row of the log', new Uint8Array(4)],
    ['the version of a log row', forged(2, 0, 0, 0, 0, 0)],
    // No memory is allocated for a billion values or runs.
    ['the header of a log row', forged(1, 0, 0, 0, 1e9, 0)],
    ['the header of a log row', forged(1, 0, 0, 0, 0, 1e9)],
    ['the header of a log row', forged(1, 0, 0, 0, 1, 0, 4, 1)],
    ['the header of a log row', forged(1, 0, 0, 0, 0, 1, 4, 1)],
    ['a series of a log row', forged(1, 0, 0, 0, 1, 0, 2, 1, 0, 0)],
    ['a series of a log row', forged(1, 0, 0, 0, 1, 0, 4 * (2 ** 24 + 1), 1, 0, 0)],
    ['the digits of a log row', forged(1, 0, 0, 0, 1, 0, 0, 13, 0, 0)],
    ['the end of a log row', forged(1, 0, 0, 0, 0, 0, 7)],
  ])('is reported as damaged if a part is invalid: %s', (what, row) => {
    expect(() => readLogRow(row)).toThrow(damage(what));
  });
});
