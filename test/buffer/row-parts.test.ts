/** What rows and segments are made of: numbers as bytes, decimals, ranges, columns. Whole results, at every boundary. */
import { crc32 } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { ByteReader, ByteWriter } from '../../src/buffer/format/bytes.ts';
import { digitsOf, wholeOf } from '../../src/buffer/format/decimal.ts';
import { addRange, openRun, packRanges, settledCount, unpackRanges } from '../../src/buffer/format/settled-ranges.ts';
import { giveBackColumns, NO_VALUES, ValueColumns } from '../../src/buffer/format/value-columns.ts';

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex');
const damage = (what: string) => expect.objectContaining({ code: 'store.damaged', message: `${what} is damaged` });

/** Seven bits a byte, the lowest first, a high bit on each but the last. */
function leb128(value: bigint): string {
  const bytes: number[] = [];
  for (let left = value; bytes.length === 0 || left > 0n; left >>= 7n) bytes.push(Number(left & 127n) | 128);
  bytes[bytes.length - 1]! &= 127;
  return Buffer.from(bytes).toString('hex');
}

/** Around each power of two up to 2^53. */
const WHOLE = Array.from({ length: 54 }, (_, power) => 2 ** power)
  .flatMap((power) => [power - 1, power, power + 1])
  .filter((value) => value <= 2 ** 53);

describe('bytes', () => {
  it('of a whole number are its groups of seven bits, and say where they end', () => {
    const writer = new ByteWriter(1);
    for (const value of WHOLE) {
      writer.reset();
      writer.varint(value);
      expect([value, hex(writer.bytes())]).toEqual([value, leb128(BigInt(value))]);
      writer.byte(0xff);
      const reader = new ByteReader(writer.bytes());
      expect([reader.varint(), reader.left, reader.byte(), reader.left]).toEqual([value, 1, 255, 0]);
      for (let length = 0; length < writer.at - 1; length++) {
        const cut = new ByteReader(writer.bytes().subarray(0, length));
        expect(() => cut.varint(), `${value} in ${length} bytes`).toThrow(damage('a row'));
        // Where somebody goes on, it is from where the number begins.
        expect(cut.at).toBe(0);
      }
    }
  });

  it('of a number of either sign alternate, and are read as they were', () => {
    const numbers = WHOLE.filter((value) => value <= 2 ** 52).flatMap((value) => [value, -value]);
    const writer = new ByteWriter();
    for (const value of numbers) {
      writer.reset();
      writer.zigzag(value);
      expect(hex(writer.bytes())).toBe(leb128(value < 0 ? BigInt(value) * -2n - 1n : BigInt(value) * 2n));
      expect(new ByteReader(writer.bytes()).zigzag()).toBe(value + 0);
    }
  });

  it.each([
    ['is beyond 2^53', '8280808080808010'],
    ['goes on for a ninth byte, though of nothing', '808080808080808000'],
    ['never ends', 'ffffffffffffffffff'],
  ])('are damaged where a number %s', (_, bytes) => {
    expect(() => new ByteReader(Buffer.from(bytes, 'hex')).varint()).toThrow(damage('a row'));
  });

  it('of a double are its eight, the lowest first, behind one another', () => {
    const writer = new ByteWriter(3);
    const doubles = [Math.PI, -0, Number.MIN_VALUE, -Number.MAX_VALUE];
    for (const double of doubles) writer.double(double);
    expect(hex(writer.bytes())).toBe(Buffer.from(Float64Array.from(doubles).buffer).toString('hex'));
    const reader = new ByteReader(writer.bytes());
    expect(doubles.map(() => reader.double())).toEqual(doubles);
    expect(() => reader.double()).toThrow(damage('a row'));
    expect(() => reader.byte()).toThrow(damage('a row'));
    expect(() => new ByteReader(new Uint8Array(7)).double()).toThrow(damage('a row'));
  });

  it('come in any number and stay as they are while the room for them grows', () => {
    for (const length of [0, 1, 2, 3, 4, 5, 8, 9, 100]) {
      const writer = new ByteWriter(2);
      const all: number[] = [];
      for (let turn = 0; turn < 4; turn++) {
        const some = Uint8Array.from({ length }, (_, i) => i * 3 + turn);
        writer.raw(some);
        writer.byte(turn);
        all.push(...some, turn);
      }
      expect([...writer.bytes()]).toEqual(all);
    }
  });

  it('that are sealed begin with their checksum, the lowest byte first; others are no row', () => {
    for (let length = 0; length < 40; length++) {
      const writer = new ByteWriter(1);
      writer.reset(4);
      writer.raw(Uint8Array.from({ length }, (_, i) => i * 11 + length));
      const sealed = writer.seal().slice();
      expect(Buffer.from(sealed).readUInt32LE(0)).toBe(crc32(sealed.subarray(4)));
      if (length === 0) expect(() => ByteReader.unseal(sealed, 'it')).toThrow(damage('it'));
      else expect([ByteReader.unseal(sealed, 'it').at, ByteReader.unseal(sealed, 'it').left]).toEqual([4, length]);
      for (let at = 0; at < sealed.length; at++) {
        const broken = sealed.map((byte, i) => (i === at ? byte ^ 0x80 : byte));
        expect(() => ByteReader.unseal(broken, 'it')).toThrow(damage('it'));
      }
    }
    expect(() => ByteReader.unseal(new Uint8Array(0), 'it')).toThrow(damage('it'));
    // As SQLite gives a row of which the kind of the field is garbled.
    for (const other of ['a text', 5, null])
      expect(() => ByteReader.unseal(other as never, 'it')).toThrow(damage('it'));
  });
});

describe('a decimal', () => {
  const MAX = 2 ** 50;

  it.each([
    [20.37, 2, 2_037],
    [20.37, 3, 20_370],
    [20.37, 1, Number.NaN],
    [-20.37, 2, -2_037],
    [0, 0, 0],
    [0, 12, 0],
    [-0, 0, Number.NaN],
    [-0, 5, Number.NaN],
    [0.1 + 0.2, 1, Number.NaN],
    [MAX, 0, MAX],
    [-MAX, 0, -MAX],
    [MAX + 1, 0, Number.NaN],
    [-MAX - 1, 0, Number.NaN],
    [MAX / 10, 1, MAX],
    [MAX / 8, 3, Number.NaN],
    [1e-12, 12, 1],
    [Number.MIN_VALUE, 12, Number.NaN],
    [Number.MAX_VALUE, 12, Number.NaN],
    [Number.POSITIVE_INFINITY, 0, Number.NaN],
    [Number.NaN, 0, Number.NaN],
  ])('%d with %d digits is the whole number %d', (value, digits, whole) => {
    expect(wholeOf(value, digits)).toBe(whole);
  });

  it.each([
    [0, 0],
    [-0, -1],
    [7, 0],
    [700, 0],
    [0.5, 1],
    [-20.37, 2],
    [20.5, 1],
    [1e-12, 12],
    [1.5e-12, -1],
    [MAX, 0],
    [MAX + 1, -1],
    [Math.PI, -1],
    [Number.NEGATIVE_INFINITY, -1],
  ])('%d has so few digits as it can: %d', (value, digits) => {
    expect(digitsOf(value)).toBe(digits);
  });
});

describe('what is settled of a segment', () => {
  const COUNT = 7;
  const NUMBERS = Array.from({ length: 2 ** COUNT }, (_, number) => number);
  const isSet = (bits: number, at: number) => at < COUNT && ((bits >> at) & 1) === 1;

  /** Ranges of the values whose bit is set. */
  function rangesOf(bits: number): number[] {
    const ranges: number[] = [];
    for (let at = 0; at <= COUNT; at++) if (isSet(bits, at) !== (ranges.length % 2 === 1)) ranges.push(at);
    return ranges;
  }

  it('is, after each addition there can be, what was settled before and what came', () => {
    for (const bits of NUMBERS) {
      const before = rangesOf(bits);
      for (let from = 0; from < COUNT; from++) {
        for (let to = from + 1; to <= COUNT; to++) {
          const added = (1 << to) - (1 << from);
          expect(addRange(before, from, to)).toEqual(rangesOf(bits | added));
        }
      }
      expect(before).toEqual(rangesOf(bits));
    }
  });

  it('is counted, and the next that is not settled is found from anywhere', () => {
    for (const bits of NUMBERS) {
      const ranges = rangesOf(bits);
      expect(settledCount(ranges)).toBe(NUMBERS.slice(0, COUNT).filter((at) => isSet(bits, at)).length);
      expect(openRun(ranges, COUNT)).toEqual(openRun(ranges, COUNT, 0));
      for (let at = 0; at <= COUNT; at++) {
        let from = at;
        while (isSet(bits, from)) from++;
        let to = from;
        while (to < COUNT && !isSet(bits, to)) to++;
        expect(openRun(ranges, COUNT, at), `${ranges} from ${at}`).toEqual(from < COUNT ? { from, to } : undefined);
      }
    }
  });

  it('is read as it was written, and has these bytes', () => {
    for (const ranges of [...NUMBERS.map(rangesOf), [0, 2 ** 31], Array.from({ length: 40 }, (_, i) => i * i)])
      expect(unpackRanges(packRanges(ranges))).toEqual(ranges);
    expect(hex(packRanges([0, 3, 200, 300]).subarray(4))).toBe('040003c801ac02');
  });

  it.each([
    ['a bound that is missing', [1, 5]],
    ['bounds that stand still', [2, 5, 5]],
    ['bounds that go back', [4, 1, 3, 2, 9]],
    ['ranges that touch', [4, 1, 3, 3, 9]],
    ['more than there is', [3, 1, 2]],
    ['more than there can be', [1e9]],
  ])('is damaged where there are %s', (_, numbers) => {
    const writer = new ByteWriter();
    writer.reset(4);
    for (const number of numbers) writer.varint(number);
    expect(() => unpackRanges(writer.seal())).toThrow(damage('the progress of a segment'));
  });
});

describe('columns', () => {
  const row = (i: number): [number, number, number, number] => [i * 3 + 1, 1e12 + i, i / 7, i % 8];
  const filled = (length: number, from = 0) => {
    const columns = new ValueColumns();
    for (let i = 0; i < length; i++) columns.add(...row(from + i));
    return columns;
  };
  const rowsOf = ({ length, series, timeMs, value, flags }: typeof NO_VALUES) =>
    Array.from({ length }, (_, i) => [series[i], timeMs[i], value[i], flags[i]]);
  const rows = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => row(from + i));
  const room = ({ series, timeMs, value, flags }: typeof NO_VALUES) => [
    series.length,
    timeMs.length,
    value.length,
    flags.length,
  ];
  const all = (length: number) => [length, length, length, length];

  it('have room for what is expected, and for sixteen', () => {
    for (const [expected, given] of [
      [0, 16],
      [15, 16],
      [16, 16],
      [17, 17],
      [5_000, 5_000],
    ])
      expect(room(new ValueColumns(expected))).toEqual(all(given!));
    expect(room(new ValueColumns())).toEqual(all(16));
    expect([NO_VALUES.length, room(NO_VALUES)]).toEqual([0, all(0)]);
  });

  it('double when they are full, and then alone', () => {
    for (const [length, expected] of [
      [16, 16],
      [17, 32],
      [32, 32],
      [33, 64],
    ]) {
      const columns = filled(length!);
      expect([room(columns), rowsOf(columns)]).toEqual([all(expected!), rows(0, length!)]);
    }
  });

  it.each([
    [0, 0, 16],
    [3, 13, 16],
    [3, 14, 32],
    [16, 16, 32],
    [16, 17, 33],
    [10, 90, 100],
    [60, 5, 128],
  ])('of %d and %d more are one behind the other, in room for %d', (one, other, expected) => {
    const columns = filled(one);
    const more = filled(other, one);
    columns.addAll(more);
    expect([columns.length, room(columns), rowsOf(columns)]).toEqual([
      one + other,
      all(expected),
      rows(0, one + other),
    ]);
    expect(rowsOf(more)).toEqual(rows(one, one + other));
    columns.add(...row(one + other));
    expect(rowsOf(columns)).toEqual(rows(0, one + other + 1));
  });

  it('lose the rows that are named, and no others', () => {
    for (let bits = 0; bits < 2 ** 6; bits++) {
      const columns = filled(6);
      const places = [0, 1, 2, 3, 4, 5].filter((at) => ((bits >> at) & 1) === 1);
      columns.remove(places);
      expect(rowsOf(columns)).toEqual(rows(0, 6).filter((_, at) => !places.includes(at)));
    }
  });

  it('that are large are given back when nobody reads them, and when larger ones take their place', () => {
    for (const [expected, left] of [
      [4_095, 4_095],
      [4_096, 0],
    ]) {
      const columns = new ValueColumns(expected);
      columns.add(...row(1));
      columns.giveBack();
      expect([columns.length, room(columns)]).toEqual([left === 0 ? 0 : 1, all(left!)]);
    }
    for (const [length, left] of [
      [2_048, 2_048],
      [4_096, 0],
    ]) {
      const columns = filled(length!);
      const { series, timeMs, value, flags } = columns;
      columns.add(...row(length!));
      expect(room({ length: 0, series, timeMs, value, flags })).toEqual(all(left!));
      expect(rowsOf(columns)).toEqual(rows(0, length! + 1));
    }
    const { series, timeMs, value, flags } = filled(3);
    giveBackColumns({ length: 3, series, timeMs, value, flags });
    expect(room({ length: 0, series, timeMs, value, flags })).toEqual(all(0));
  });
});
