import { describe, expect, it } from 'vitest';
import {
  decodeBit,
  decodeRegister,
  decodeText,
  type ModbusRegister,
  readRegister,
  type WrittenRegister,
} from '../../../../src/sources/modbus/register.ts';

function validRegister(written: WrittenRegister): ModbusRegister {
  const read = readRegister(written);
  if ('reason' in read) throw new Error(`${read.member} ${read.reason}`);
  return read;
}

describe('Modbus register', () => {
  it.each([
    ['holding 0', 'holding', 0],
    ['holding 40070', 'holding', 40_070],
    ['holding 40001', 'holding', 40_001],
    ['Holding  65535', 'holding', 65_535],
    ['input 30013', 'input', 30_013],
    ['coil 17', 'coil', 17],
    ['discrete 10001', 'discrete', 10_001],
  ] as const)('uses the wire address for %s', (register, table, address) => {
    expect(validRegister({ register })).toMatchObject({ table, address });
  });

  it.each([
    [40_001, 'holding', 0],
    ['40001', 'holding', 0],
    [49_999, 'holding', 9_998],
    [400_001, 'holding', 0],
    [465_536, 'holding', 65_535],
    [30_013, 'input', 12],
    [300_001, 'input', 0],
    [10_001, 'discrete', 0],
    [165_536, 'discrete', 65_535],
    [1, 'coil', 0],
    [9_999, 'coil', 9_998],
  ] as const)('uses Modicon notation for the bare number %s', (register, table, address) => {
    expect(validRegister({ register })).toMatchObject({ table, address });
  });

  it.each([
    [{ register: 'holding 65536' }, 'register'],
    [{ register: 'holding 400001' }, 'register'],
    [{ register: 'holding' }, 'register'],
    [{ register: 'register 7' }, 'register'],
    [{ register: 0 }, 'register'],
    [{ register: 10_000 }, 'register'],
    [{ register: 20_001 }, 'register'],
    [{ register: 40_000 }, 'register'],
    [{ register: 465_537 }, 'register'],
    [{ register: 'holding 65535', type: 'int32' }, 'register'],
    [{ register: 465_536, type: 'float64' }, 'register'],
    [{ register: 'coil 1', type: 'int16' }, 'type'],
    [{ register: 'holding 1', type: 'bool' }, 'type'],
    [{ register: 'holding 1', type: 'int32', bit: 3 }, 'type'],
    [{ register: 'discrete 1', bit: 3 }, 'bit'],
    [{ register: 'holding 1', type: 'int32', byte_order: 'GHEFCDAB' }, 'byte_order'],
  ] as [WrittenRegister, string][])('rejects %j because of its %s', (written, member) => {
    expect(readRegister(written)).toMatchObject({ member });
  });
});

/** Returns a number's bytes in a byte order of four or eight letters. */
function bytesInOrder(order: string, write: (view: DataView) => void): Uint8Array {
  const bytes = new Uint8Array(order.length);
  write(new DataView(bytes.buffer));
  return Uint8Array.from(order, (letter) => bytes[letter.charCodeAt(0) - 65]!);
}

describe('Modbus register value', () => {
  it.each(['ABCD', 'CDAB', 'BADC', 'DCBA'])('is read as 32 bits in byte order %s', (byte_order) => {
    const decoded = (type: 'int32' | 'uint32' | 'float32', write: (view: DataView) => void) =>
      decodeRegister(bytesInOrder(byte_order, write), 0, validRegister({ register: 'holding 5', type, byte_order }));
    expect(decoded('int32', (view) => view.setInt32(0, -123_456_789))).toBe(-123_456_789);
    expect(decoded('uint32', (view) => view.setUint32(0, 4_000_000_000))).toBe(4_000_000_000);
    expect(decoded('float32', (view) => view.setFloat32(0, 12.3))).toBe(12.3);
  });

  it.each([
    ['ABCDEFGH', 'ABCDEFGH'],
    ['GHEFCDAB', 'GHEFCDAB'],
    ['BADCFEHG', 'BADCFEHG'],
    ['HGFEDCBA', 'HGFEDCBA'],
    ['CDAB', 'GHEFCDAB'],
    ['DCBA', 'HGFEDCBA'],
  ])('is read as 64 bits in the order %s', (byte_order, wire) => {
    const decoded = (type: 'int64' | 'uint64' | 'float64', write: (view: DataView) => void) =>
      decodeRegister(bytesInOrder(wire, write), 0, validRegister({ register: 'input 5', type, byte_order }));
    expect(decoded('int64', (view) => view.setBigInt64(0, -9_007_199_254_740_991n))).toBe(-9_007_199_254_740_991);
    expect(decoded('uint64', (view) => view.setBigUint64(0, 9_876_543_210n))).toBe(9_876_543_210);
    expect(decoded('float64', (view) => view.setFloat64(0, -Math.E))).toBe(-Math.E);
  });

  it('is read as 16 bits, with bytes swapped in the last two orders', () => {
    const words = Uint8Array.of(0xff, 0x29, 0x29, 0xff);
    expect(decodeRegister(words, 0, validRegister({ register: 40_001, type: 'int16' }))).toBe(-215);
    expect(decodeRegister(words, 0, validRegister({ register: 40_001, type: 'int16', byte_order: 'CDAB' }))).toBe(-215);
    expect(decodeRegister(words, 1, validRegister({ register: 40_001, type: 'int16', byte_order: 'BADC' }))).toBe(-215);
    expect(decodeRegister(words, 1, validRegister({ register: 40_001, byte_order: 'DCBA' }))).toBe(0xff29);
  });

  it('is read bit by bit from registers and coils', () => {
    const word = Uint8Array.of(0x80, 0x05);
    const bits = [0, 1, 2, 3, 15].map((bit) => decodeRegister(word, 0, validRegister({ register: 'holding 7', bit })));
    expect(bits).toEqual([1, 0, 1, 0, 1]);
    expect(decodeRegister(word, 0, validRegister({ register: 'holding 7', bit: 8, byte_order: 'BADC' }))).toBe(1);
    expect([0, 1, 9, 15].map((at) => decodeBit(Uint8Array.of(0b1, 0b10), at))).toEqual([1, 0, 1, 0]);
  });

  it('is read from a range of bits', () => {
    const word = Uint8Array.of(0x0a, 0x5c);
    const read = (bit: string, more: Partial<WrittenRegister> = {}) =>
      decodeRegister(word, 0, validRegister({ register: 'holding 7', bit, ...more }));
    expect([read('4-7'), read('0-15'), read('8-11'), read('2-3')]).toEqual([5, 0x0a5c, 10, 3]);
    expect(read('8-15', { byte_order: 'BADC' })).toBe(0x5c);
  });

  it('is read as BCD in every byte order, and is NaN if it contains a digit above 9', () => {
    const read = (type: 'bcd16' | 'bcd32', hex: string, byte_order = 'ABCD') =>
      decodeRegister(Buffer.from(hex, 'hex'), 0, validRegister({ register: 'holding 7', type, byte_order }));
    expect([read('bcd16', '9870'), read('bcd16', '7098', 'BADC')]).toEqual([9870, 9870]);
    expect([read('bcd32', '99999999'), read('bcd32', '56781234', 'CDAB')]).toEqual([99_999_999, 12_345_678]);
    expect([read('bcd16', '00a0'), read('bcd32', 'f0000000')]).toEqual([Number.NaN, Number.NaN]);
  });

  it('is read as text without padding', () => {
    const read = (text: string, length: number, byte_order = 'ABCD') =>
      decodeText(Buffer.from(text), 0, validRegister({ register: 'holding 7', type: 'string', length, byte_order }));
    expect([read(' 12.5\0xx', 8), read('1234', 3), read('2143', 4, 'BADC')]).toEqual(['12.5', '123', '1234']);
  });

  it('is NaN if the float is not a number', () => {
    for (const number of [Number.NaN, Number.POSITIVE_INFINITY]) {
      const wire = bytesInOrder('ABCD', (view) => view.setFloat32(0, number));
      expect(decodeRegister(wire, 0, validRegister({ register: 'holding 0', type: 'float32' }))).toBeNaN();
    }
  });
});
