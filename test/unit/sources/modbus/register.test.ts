import { describe, expect, it } from 'vitest';
import type { MemberReport, Members } from '../../../../src/config/source-kinds.ts';
import { MODBUS } from '../../../../src/sources/modbus/modbus-kind.ts';
import {
  decode,
  encode,
  type ModbusRegister,
  REGISTER_TYPES,
  storedNumber,
  writeProblem,
} from '../../../../src/sources/modbus/register.ts';

/** Returns the register that the members of a value define, or the names of the invalid members. */
function readRegister(members: Members): ModbusRegister | string[] {
  const invalid: string[] = [];
  const report = { problem: (member: string) => invalid.push(member) } as unknown as MemberReport;
  return MODBUS.readValue(members, report, members)?.register ?? invalid;
}

function validRegister(members: Members): ModbusRegister {
  const register = readRegister(members);
  if (Array.isArray(register)) throw new Error(`${register[0]} is invalid`);
  return register;
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
    // A bare number is in Modicon notation.
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
  ] as const)('written as %s has the expected wire address', (register, table, address) => {
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
  ] as [Members, string][])('rejects %j because of its %s', (members, member) => {
    expect(readRegister(members)).toEqual([member]);
  });
});

/** Returns the value of a register in data that begins `offset` registers before it. */
function decoded(data: Uint8Array, offset: number, register: ModbusRegister) {
  return decode(data, register.address - offset, register);
}

/** Returns a number's bytes in a byte order of four or eight letters. */
function bytesInOrder(order: string, write: (view: DataView) => void): Uint8Array {
  const bytes = new Uint8Array(order.length);
  write(new DataView(bytes.buffer));
  return Uint8Array.from(order, (letter) => bytes[letter.charCodeAt(0) - 65]!);
}

describe('Modbus register value', () => {
  it.each(['ABCD', 'CDAB', 'BADC', 'DCBA'])('is read as 32 bits in byte order %s', (byte_order) => {
    const numberOf = (type: 'int32' | 'uint32' | 'float32', write: (view: DataView) => void) =>
      decoded(bytesInOrder(byte_order, write), 0, validRegister({ register: 'holding 5', type, byte_order }));
    expect(numberOf('int32', (view) => view.setInt32(0, -123_456_789))).toBe(-123_456_789);
    expect(numberOf('uint32', (view) => view.setUint32(0, 4_000_000_000))).toBe(4_000_000_000);
    expect(numberOf('float32', (view) => view.setFloat32(0, 12.3))).toBe(12.3);
  });

  it.each([
    ['ABCDEFGH', 'ABCDEFGH'],
    ['GHEFCDAB', 'GHEFCDAB'],
    ['BADCFEHG', 'BADCFEHG'],
    ['HGFEDCBA', 'HGFEDCBA'],
    ['CDAB', 'GHEFCDAB'],
    ['DCBA', 'HGFEDCBA'],
  ])('is read as 64 bits in the order %s', (byte_order, wire) => {
    const numberOf = (type: 'int64' | 'uint64' | 'float64', write: (view: DataView) => void) =>
      decoded(bytesInOrder(wire, write), 0, validRegister({ register: 'input 5', type, byte_order }));
    expect(numberOf('int64', (view) => view.setBigInt64(0, -9_007_199_254_740_991n))).toBe(-9_007_199_254_740_991);
    expect(numberOf('uint64', (view) => view.setBigUint64(0, 9_876_543_210n))).toBe(9_876_543_210);
    expect(numberOf('float64', (view) => view.setFloat64(0, -Math.E))).toBe(-Math.E);
  });

  it('is read bit by bit from registers and coils', () => {
    const word = Uint8Array.of(0x80, 0x05);
    const bits = [0, 1, 2, 3, 15].map((bit) => decoded(word, 0, validRegister({ register: 'holding 7', bit })));
    expect(bits).toEqual([1, 0, 1, 0, 1]);
    expect(decoded(word, 0, validRegister({ register: 'holding 7', bit: 8, byte_order: 'BADC' }))).toBe(1);
    const coils = [0, 1, 9, 15].map((at) =>
      decode(Uint8Array.of(0b1, 0b10), 5, validRegister({ register: `coil ${5 + at}` })),
    );
    expect(coils).toEqual([1, 0, 1, 0]);
  });

  it('is read from a range of bits', () => {
    const word = Uint8Array.of(0x0a, 0x5c);
    const read = (bit: string, more: Members = {}) =>
      decoded(word, 0, validRegister({ register: 'holding 7', bit, ...more }));
    expect([read('4-7'), read('0-15'), read('8-11'), read('2-3')]).toEqual([5, 0x0a5c, 10, 3]);
    expect(read('8-15', { byte_order: 'BADC' })).toBe(0x5c);
  });

  it('is read as text without padding', () => {
    const read = (text: string, length: number, byte_order = 'ABCD') =>
      decoded(Buffer.from(text), 0, validRegister({ register: 'holding 7', type: 'string', length, byte_order }));
    expect([read(' 12.5\0xx', 8), read('1234', 3), read('2143', 4, 'BADC')]).toEqual(['12.5', '123', '1234']);
  });

  it('is NaN if the float is not a number', () => {
    for (const number of [Number.NaN, Number.POSITIVE_INFINITY]) {
      const wire = bytesInOrder('ABCD', (view) => view.setFloat32(0, number));
      expect(decoded(wire, 0, validRegister({ register: 'holding 0', type: 'float32' }))).toBeNaN();
    }
  });
});

const NUMBERS = REGISTER_TYPES.filter((type) => type !== 'string' && type !== 'bool');
const LIMITS: Record<string, [number, number]> = {
  int16: [-32_768, 32_767],
  uint16: [0, 65_535],
  int32: [-2_147_483_648, 2_147_483_647],
  uint32: [0, 4_294_967_295],
  int64: [Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER],
  uint64: [0, Number.MAX_SAFE_INTEGER],
  bcd16: [0, 9_999],
  bcd32: [0, 99_999_999],
};

describe('content of a written Modbus register', () => {
  it.each(NUMBERS)('is read as the same number of type %s in every byte order', (type) => {
    for (const byte_order of MODBUS.valueMembers.byte_order!.enum) {
      const register = readRegister({ register: 'holding 0', type, byte_order });
      if (Array.isArray(register)) continue;
      for (const number of [0, 1, 1_234, ...(LIMITS[type] ?? [-12.5, 1e9])]) {
        const words = encode(number, register) as number[];
        expect(decoded(new Uint8Array(words.flatMap((word) => [word >> 8, word & 0xff])), 0, register)).toBe(number);
      }
    }
  });

  it.each(Object.entries(LIMITS))('does not exist for a number that does not fit %s', (type, [min, max]) => {
    const register = validRegister({ register: 'holding 0', type: type as 'int16' });
    for (const number of [min - 1, max + 1, Number.NaN, Number.POSITIVE_INFINITY]) {
      expect(encode(number, register)).toBeUndefined();
    }
    expect(storedNumber({ register }, max / 2 + 0.4)).toBe(Math.round(max / 2 + 0.4));
  });

  it('is rounded to a float', () => {
    const register = validRegister({ register: 'holding 0', type: 'float32' });
    expect([storedNumber({ register }, 0.1), storedNumber({ register }, 1e39)]).toEqual([0.1, undefined]);
  });

  it('is 0 or 1 for a coil', () => {
    const register = validRegister({ register: 'coil 3' });
    expect([0, 1, 2, 0.5].map((number) => encode(number, register))).toEqual([false, true, undefined, undefined]);
    expect(storedNumber({ register }, 1)).toBe(1);
  });

  it('does not exist for read-only tables, strings and bits of a register', () => {
    for (const written of [
      { register: 'input 0' },
      { register: 'discrete 0' },
      { register: 'holding 0', bit: 3 },
      { register: 'holding 0', type: 'string', length: 4 },
    ] as const) {
      expect(writeProblem({ register: validRegister(written) })).toMatchObject({ reason: expect.any(String) });
    }
    expect(writeProblem({ register: validRegister({ register: 'holding 0', type: 'float32' }) })).toBeUndefined();
  });
});
