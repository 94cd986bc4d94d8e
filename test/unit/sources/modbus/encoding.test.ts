import { describe, expect, it } from 'vitest';
import { encodeRegister, storedNumber, writeProblem } from '../../../../src/sources/modbus/encoding.ts';
import {
  BYTE_ORDERS,
  decodeRegister,
  type ModbusRegister,
  REGISTER_TYPES,
  readRegister,
  type WrittenRegister,
} from '../../../../src/sources/modbus/register.ts';

const registerOf = (written: WrittenRegister) => readRegister(written) as ModbusRegister;
const bytesOf = (words: readonly number[]) => new Uint8Array(words.flatMap((word) => [word >> 8, word & 0xff]));
const TYPES = REGISTER_TYPES.filter((type) => type !== 'string' && type !== 'bool');
const LIMITS: Record<string, [number, number]> = {
  int16: [-32_768, 32_767],
  uint16: [0, 65_535],
  int32: [-2_147_483_648, 2_147_483_647],
  uint32: [0, 4_294_967_295],
  bcd16: [0, 9_999],
  bcd32: [0, 99_999_999],
};

describe('encoded register', () => {
  it.each(TYPES)('returns the same number when it is read as %s in every byte order', (type) => {
    for (const byte_order of BYTE_ORDERS) {
      const register = registerOf({ register: 'holding 0', type, byte_order });
      if ('reason' in register) continue;
      const numbers = [0, 1, 1_234, ...(LIMITS[type] ?? [-12.5, 1e9])].map((one) =>
        /64|float/.test(type) && !type.startsWith('float') ? Math.abs(Math.round(one)) : one,
      );
      for (const number of numbers) {
        const words = encodeRegister(number, register) as number[];
        expect(decodeRegister(bytesOf(words), 0, register)).toBe(number);
      }
    }
  });

  it.each(Object.entries(LIMITS))('does not exist for a number that does not fit %s', (type, [min, max]) => {
    const register = registerOf({ register: 'holding 0', type: type as 'int16' });
    for (const number of [min - 1, max + 1, Number.NaN, Number.POSITIVE_INFINITY]) {
      expect(encodeRegister(number, register)).toBeUndefined();
    }
    expect(storedNumber({ register }, max + 0.4)).toBe(max);
  });

  it('contains only 0 or 1 for a coil', () => {
    const register = registerOf({ register: 'coil 3' });
    expect([0, 1, 2, 0.5].map((number) => encodeRegister(number, register))).toEqual([
      false,
      true,
      undefined,
      undefined,
    ]);
  });

  it('does not exist for read-only tables, strings and bits of a register', () => {
    for (const written of [
      { register: 'input 0' },
      { register: 'discrete 0' },
      { register: 'holding 0', bit: 3 },
      { register: 'holding 0', type: 'string', length: 4 },
    ] as const) {
      expect(writeProblem({ register: registerOf(written) })).toMatchObject({ reason: expect.any(String) });
    }
    expect(writeProblem({ register: registerOf({ register: 'holding 0', type: 'float32' }) })).toBeUndefined();
  });
});
