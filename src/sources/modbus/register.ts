/** Registers: their notation in tags.yaml, and their content in requests and responses. */

export type ModbusTable = 'holding' | 'input' | 'coil' | 'discrete';

export const isBits = (table: ModbusTable) => table === 'coil' || table === 'discrete';

/** A range of registers; in the tables `coil` and `discrete`, of bits. */
export interface Span {
  table: ModbusTable;
  /** Zero-based wire address. */
  address: number;
  length: number;
}

/** Content of a write request: the words of consecutive holding registers, or the state of a coil. */
export type Written = readonly number[] | boolean;

const MAX_FLOAT32 = 2 ** 128 - 2 ** 104;

/**
 * Types of numbers: registers per number, limits of written numbers, and the methods of `DataView` for the bytes in the
 * order ABCDEFGH. Limits of 64-bit integers are exact doubles.
 */
const NUMBERS = {
  int16: { registers: 1, min: -0x8000, max: 0x7fff, get: 'getInt16', set: 'setInt16' },
  uint16: { registers: 1, min: 0, max: 0xffff, get: 'getUint16', set: 'setUint16' },
  int32: { registers: 2, min: -0x8000_0000, max: 0x7fff_ffff, get: 'getInt32', set: 'setInt32' },
  uint32: { registers: 2, min: 0, max: 0xffff_ffff, get: 'getUint32', set: 'setUint32' },
  int64: { registers: 4, min: -(2 ** 53) + 1, max: 2 ** 53 - 1, get: 'getBigInt64', set: 'setBigInt64' },
  uint64: { registers: 4, min: 0, max: 2 ** 53 - 1, get: 'getBigUint64', set: 'setBigUint64' },
  float32: { registers: 2, min: -MAX_FLOAT32, max: MAX_FLOAT32, get: 'getFloat32', set: 'setFloat32' },
  float64: { registers: 4, min: -Number.MAX_VALUE, max: Number.MAX_VALUE, get: 'getFloat64', set: 'setFloat64' },
  bcd16: { registers: 1, min: 0, max: 9_999, get: 'getUint16', set: 'setUint16' },
  bcd32: { registers: 2, min: 0, max: 99_999_999, get: 'getUint32', set: 'setUint32' },
} as const;

type NumberType = keyof typeof NUMBERS;
export type RegisterType = NumberType | 'string' | 'bool';

export const REGISTER_TYPES: readonly RegisterType[] = [...(Object.keys(NUMBERS) as NumberType[]), 'string', 'bool'];

/** Specification of a value in tags.yaml. */
export interface ModbusValue {
  register: ModbusRegister;
  /** Register that contains a power of ten as a scale factor. */
  scaleRegister?: ModbusRegister;
  /** Register contents that mean "no value", for a bit value. */
  noValueWords?: readonly number[];
}

export interface ModbusRegister extends Span {
  type: RegisterType;
  /** Whether registers are in reverse order: CDAB and DCBA. */
  wordsReversed: boolean;
  /** Whether the bytes in each register are swapped: BADC and DCBA. */
  bytesSwapped: boolean;
  /** Bits in a register that form the value. `lowest` counts from 0. */
  bits?: { lowest: number; count: number };
  /** Number of characters of a string. */
  characters?: number;
}

/** `characters`: length of a string. */
export function registersOf(type: RegisterType, characters = 0): number {
  if (type === 'string') return Math.ceil(characters / 2);
  return type === 'bool' ? 1 : NUMBERS[type].registers;
}

/** Returns the register in tags.yaml notation, for example `holding 1013` or `holding 7 bit 4-7`. */
export function registerText({ table, address, bits }: Pick<ModbusRegister, 'table' | 'address' | 'bits'>): string {
  if (bits === undefined) return `${table} ${address}`;
  const { lowest, count } = bits;
  return `${table} ${address} bit ${lowest}${count === 1 ? '' : `-${lowest + count - 1}`}`;
}

/** Reused to reorder registers, so that reading thousands of values per second allocates no memory. */
const scratch = new DataView(new ArrayBuffer(8));

/**
 * Returns the value of a register from the data of a response that begins at the address `first`. Returns NaN if the
 * register contains a float NaN or invalid BCD. 64-bit values beyond 2^53 are rounded to the nearest double, because the
 * platform accepts only doubles.
 */
export function decode(data: Uint8Array, first: number, register: ModbusRegister): number | string {
  const { table, address, length, type, wordsReversed, bytesSwapped, bits } = register;
  const offset = address - first;
  // The first bit is the lowest bit of the first byte.
  if (isBits(table)) return (data[offset >> 3]! >> (offset & 7)) & 1;
  if (type === 'string') return textOf(data.subarray(offset * 2, (offset + length) * 2), register);
  for (let at = 0; at < length * 2; at++) {
    const word = wordsReversed ? length - 1 - (at >> 1) : at >> 1;
    scratch.setUint8(at, data[(offset + word) * 2 + (bytesSwapped ? 1 - (at & 1) : at & 1)]!);
  }
  if (bits !== undefined) return (scratch.getUint16(0) >> bits.lowest) & ((1 << bits.count) - 1);
  return numberIn(0, type as NumberType);
}

/** Returns the number that the scratch bytes from `at` represent, or NaN. */
function numberIn(at: number, type: NumberType): number {
  const number = Number(scratch[NUMBERS[type].get](at));
  if (type === 'float32') return shortest(number);
  if (type !== 'bcd16' && type !== 'bcd32') return number;
  const digits = number.toString(16);
  return /^\d+$/.test(digits) ? Number(digits) : Number.NaN;
}

/** Returns text without padding (null characters and spaces). */
function textOf(data: Uint8Array, { bytesSwapped, characters }: ModbusRegister): string {
  const bytes = Buffer.from(data);
  const text = (bytesSwapped ? bytes.swap16() : bytes).toString('latin1', 0, characters);
  const end = text.indexOf('\0');
  return (end === -1 ? text : text.slice(0, end)).trim();
}

/** Returns the content for a number, rounded to the type of the register; `undefined` if the number does not fit. */
export function encode(raw: number, register: ModbusRegister): Written | undefined {
  const { table, type, length, wordsReversed, bytesSwapped } = register;
  if (table === 'coil') return raw === 0 || raw === 1 ? raw === 1 : undefined;
  const { min, max, set } = NUMBERS[type as NumberType];
  const value = type.startsWith('float') ? raw : Math.round(raw);
  if (!(value >= min && value <= max)) return undefined;
  const view = new DataView(new ArrayBuffer(8));
  if (set === 'setBigInt64' || set === 'setBigUint64') view[set](0, BigInt(value));
  else view[set](0, type.startsWith('bcd') ? Number.parseInt(String(value), 16) : value);
  return Array.from({ length }, (_, at) => {
    const word = view.getUint16((wordsReversed ? length - 1 - at : at) * 2);
    return bytesSwapped ? ((word & 0xff) << 8) | (word >> 8) : word;
  });
}

/**
 * Codes for "no value" in the SunSpec information model, as the numbers that `decode` returns. Floats use NaN, which is
 * always rejected.
 */
const SUNSPEC: Partial<Record<RegisterType, number>> = {
  int16: -0x8000,
  uint16: 0xffff,
  int32: -0x8000_0000,
  uint32: 0xffff_ffff,
  int64: -(2 ** 63),
  uint64: 2 ** 64,
};

/** Returns the SunSpec codes for "no value" of a register. The list may be empty. */
export function sunSpecCodes({ bits, type, table }: ModbusRegister): readonly number[] {
  if (isBits(table)) return [];
  const code = SUNSPEC[bits === undefined ? type : 'uint16'];
  return code === undefined ? [] : [code];
}

/** Returns the number that a bit pattern represents in a type, if it represents one. */
function patternNumbers(pattern: bigint, type: NumberType): number[] {
  scratch.setBigUint64(0, pattern);
  // A pattern that is not a number, such as a float NaN, is always rejected.
  return [numberIn(8 - NUMBERS[type].registers * 2, type)].filter(Number.isFinite);
}

/** Example bit patterns by size, in registers. */
const PATTERNS: Readonly<Record<number, string>> = { 1: '0x8000', 2: '0x80000000', 4: '0x8000000000000000' };

/**
 * Returns the numbers that `decode` returns for a code in `no_value`: `sunspec`, a bit pattern such as `0x8000`, or a
 * number. An integer that exceeds a signed type is also a bit pattern: 65535 is -1 for int16. With `bit`, the code is
 * the content of the entire register.
 */
export function noValueOf(
  { register }: ModbusValue,
  code: number | string,
): { numbers: readonly number[] } | { reason: string; instead: string } {
  const { table, bits } = register;
  if (isBits(table)) return { reason: `does not fit ${table} registers, which contain one bit`, instead: 'remove it' };
  const type = bits === undefined ? register.type : 'uint16';
  if (code === 'sunspec') {
    if (SUNSPEC[type] !== undefined || type.startsWith('float')) return { numbers: sunSpecCodes(register) };
    return { reason: `is not defined for ${type}`, instead: 'use a number' };
  }
  if (type === 'string' || type === 'bool') {
    if (typeof code === 'number') return { numbers: [code] };
    return { reason: 'is not a number', instead: 'use a number: -9999' };
  }
  const { registers, min, max } = NUMBERS[type];
  const example = `use a number from ${min} to ${max}, or a bit pattern of ${registers * 16} bits: ${PATTERNS[registers]}`;
  if (typeof code === 'string') {
    if (!/^0x[0-9a-f]+$/i.test(code)) return { reason: 'is not a bit pattern', instead: example };
    if (BigInt(code) >> BigInt(registers * 16) > 0n) return { reason: `does not fit ${type}`, instead: example };
    return { numbers: patternNumbers(BigInt(code), type) };
  }
  const isExact = Number.isSafeInteger(code) || type.startsWith('float');
  if (!isExact) return { reason: `is not an exact number of type ${type}`, instead: example };
  if (code >= min && code <= max) return { numbers: [type === 'float32' ? shortest(Math.fround(code)) : code] };
  if (code >= 0 && code < 2 ** (registers * 16)) return { numbers: patternNumbers(BigInt(code), type) };
  return { reason: `does not fit ${type}`, instead: example };
}

/** Returns the number that a device returns after `raw` was written; `undefined` if `raw` does not fit. */
export function storedNumber({ register }: ModbusValue, raw: number): number | undefined {
  const written = encode(raw, register);
  if (written === undefined) return undefined;
  if (typeof written === 'boolean') return Number(written);
  const data = new Uint8Array(written.flatMap((word) => [word >> 8, word & 0xff]));
  return Number(decode(data, register.address, register));
}

/** Returns the reason why the register cannot be written, and a correction. */
export function writeProblem({
  register,
  scaleRegister,
}: ModbusValue): { reason: string; instead: string } | undefined {
  const { table, bits, type } = register;
  let reason: string | undefined;
  if (table === 'input' || table === 'discrete') reason = `${table} registers are read-only`;
  // Reading and writing back the register would overwrite changes of its other bits.
  else if (bits) reason = `${registerText(register)} cannot be written without the other bits of the register`;
  else if (type === 'string') reason = 'a string cannot be written';
  else if (scaleRegister) reason = 'a value with scale_register cannot be written';
  return reason === undefined ? undefined : { reason, instead: 'remove writable' };
}

/**
 * Returns the shortest decimal that represents the same 32-bit number: 12.3, not 12.300000190734863. The conversion is
 * lossless and reduces the size in the buffer and on the wire to a third.
 */
function shortest(single: number): number {
  if (!Number.isFinite(single)) return Number.NaN;
  for (let digits = 6; digits <= 9; digits++) {
    const short = Number(single.toPrecision(digits));
    if (Object.is(Math.fround(short), single)) return short;
  }
  return single;
}
