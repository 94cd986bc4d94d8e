import { describe, expect, it } from 'vitest';
import { decodeBit, decodeRegister } from '../../../src/sources/modbus/decode.ts';
import { type ModbusRegister, readRegister, type WrittenRegister } from '../../../src/sources/modbus/register.ts';

function sound(written: WrittenRegister): ModbusRegister {
  const read = readRegister(written);
  if ('reason' in read) throw new Error(`${read.member} ${read.reason}`);
  return read;
}

describe('a register', () => {
  it.each([
    ['holding 0', 'holding', 0],
    ['holding 40070', 'holding', 40_070],
    ['holding 40001', 'holding', 40_001],
    ['Holding  65535', 'holding', 65_535],
    ['input 30013', 'input', 30_013],
    ['coil 17', 'coil', 17],
    ['discrete 10001', 'discrete', 10_001],
  ] as const)('written as %s is the address on the wire', (register, table, address) => {
    expect(sound({ register })).toMatchObject({ table, address });
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
  ] as const)('written as %s alone is in the manner of Modicon', (register, table, address) => {
    expect(sound({ register })).toMatchObject({ table, address });
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
  ] as [WrittenRegister, string][])('%j is a problem of %s', (written, member) => {
    expect(readRegister(written)).toMatchObject({ member });
  });
});

/** The bytes of a number as they come over the wire in an order of eight or four letters. */
function onTheWire(order: string, write: (view: DataView) => void): Uint8Array {
  const bytes = new Uint8Array(order.length);
  write(new DataView(bytes.buffer));
  return Uint8Array.from(order, (letter) => bytes[letter.charCodeAt(0) - 65]!);
}

describe('what a register holds', () => {
  it.each(['ABCD', 'CDAB', 'BADC', 'DCBA'])('is read as 32 bits in the order %s', (byte_order) => {
    const decoded = (type: 'int32' | 'uint32' | 'float32', write: (view: DataView) => void) =>
      decodeRegister(onTheWire(byte_order, write), 0, sound({ register: 'holding 5', type, byte_order }));
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
      decodeRegister(onTheWire(wire, write), 0, sound({ register: 'input 5', type, byte_order }));
    expect(decoded('int64', (view) => view.setBigInt64(0, -9_007_199_254_740_991n))).toBe(-9_007_199_254_740_991);
    expect(decoded('uint64', (view) => view.setBigUint64(0, 9_876_543_210n))).toBe(9_876_543_210);
    expect(decoded('float64', (view) => view.setFloat64(0, -Math.E))).toBe(-Math.E);
  });

  it('is read as 16 bits, the last two orders swapping its bytes', () => {
    const words = Uint8Array.of(0xff, 0x29, 0x29, 0xff);
    expect(decodeRegister(words, 0, sound({ register: 40_001, type: 'int16' }))).toBe(-215);
    expect(decodeRegister(words, 0, sound({ register: 40_001, type: 'int16', byte_order: 'CDAB' }))).toBe(-215);
    expect(decodeRegister(words, 1, sound({ register: 40_001, type: 'int16', byte_order: 'BADC' }))).toBe(-215);
    expect(decodeRegister(words, 1, sound({ register: 40_001, byte_order: 'DCBA' }))).toBe(0xff29);
  });

  it('is read bit by bit, of a register and of coils', () => {
    const word = Uint8Array.of(0x80, 0x05);
    const bits = [0, 1, 2, 3, 15].map((bit) => decodeRegister(word, 0, sound({ register: 'holding 7', bit })));
    expect(bits).toEqual([1, 0, 1, 0, 1]);
    expect(decodeRegister(word, 0, sound({ register: 'holding 7', bit: 8, byte_order: 'BADC' }))).toBe(1);
    expect([0, 1, 9, 15].map((at) => decodeBit(Uint8Array.of(0b1, 0b10), at))).toEqual([1, 0, 1, 0]);
  });

  it('is no number where a float holds none', () => {
    for (const number of [Number.NaN, Number.POSITIVE_INFINITY]) {
      const wire = onTheWire('ABCD', (view) => view.setFloat32(0, number));
      expect(decodeRegister(wire, 0, sound({ register: 'holding 0', type: 'float32' }))).toBeNaN();
    }
  });
});
