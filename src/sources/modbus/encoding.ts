/** Converts numbers to registers: the inverse of `decodeRegister`. */
import { decodeRegister, type ModbusRegister, type ModbusValue, registerText } from './register.ts';

/** Content of a write request: the words of consecutive holding registers, or the state of a coil. */
export type Written = readonly number[] | boolean;

/** Returns the reason why the register cannot be written, and a correction. */
export function writeProblem({ register }: ModbusValue): { reason: string; instead: string } | undefined {
  const reason = problemOf(register);
  return reason === undefined ? undefined : { reason, instead: 'remove writable' };
}

function problemOf(register: ModbusRegister): string | undefined {
  const { table, bits, type } = register;
  if (table === 'input' || table === 'discrete') return `${table} registers are read-only`;
  // Reading and writing back the register would overwrite changes of its other bits.
  if (bits !== undefined) return `${registerText(register)} cannot be written without the other bits of the register`;
  return type === 'string' ? 'a string cannot be written' : undefined;
}

/** Returns the content for a number, rounded to the type of the register; `undefined` if the number does not fit. */
export function encodeRegister(raw: number, register: ModbusRegister): Written | undefined {
  if (register.table === 'coil') return raw === 0 || raw === 1 ? raw === 1 : undefined;
  const { type, length, wordsReversed, bytesSwapped } = register;
  const view = new DataView(new ArrayBuffer(8));
  if (!Number.isFinite(raw) || !writeAs(view, type, raw)) return undefined;
  return Array.from({ length }, (_, at) => {
    const word = view.getUint16((wordsReversed ? length - 1 - at : at) * 2);
    return bytesSwapped ? ((word & 0xff) << 8) | (word >> 8) : word;
  });
}

/** Returns the number that a device returns after `raw` was written; `undefined` if `raw` does not fit. */
export function storedNumber({ register }: ModbusValue, raw: number): number | undefined {
  const written = encodeRegister(raw, register);
  if (written === undefined) return undefined;
  if (typeof written === 'boolean') return Number(written);
  return decodeRegister(new Uint8Array(written.flatMap((word) => [word >> 8, word & 0xff])), 0, register);
}

/** Integer types by name: their limits and how they are stored. Limits of 64 bits are exact doubles. */
const INTEGERS: Readonly<Record<string, { min: number; max: number; set(view: DataView, value: number): void }>> = {
  uint16: { min: 0, max: 0xffff, set: (view, value) => view.setUint16(0, value) },
  int16: { min: -0x8000, max: 0x7fff, set: (view, value) => view.setInt16(0, value) },
  uint32: { min: 0, max: 0xffff_ffff, set: (view, value) => view.setUint32(0, value) },
  int32: { min: -0x8000_0000, max: 0x7fff_ffff, set: (view, value) => view.setInt32(0, value) },
  uint64: { min: 0, max: Number.MAX_SAFE_INTEGER, set: (view, value) => view.setBigUint64(0, BigInt(value)) },
  int64: {
    min: Number.MIN_SAFE_INTEGER,
    max: Number.MAX_SAFE_INTEGER,
    set: (view, value) => view.setBigInt64(0, BigInt(value)),
  },
  bcd16: { min: 0, max: 9_999, set: (view, value) => view.setUint16(0, toBcd(value)) },
  bcd32: { min: 0, max: 99_999_999, set: (view, value) => view.setUint32(0, toBcd(value)) },
};

/** Returns whether the number fits the type. */
function writeAs(view: DataView, type: ModbusRegister['type'], raw: number): boolean {
  if (type === 'float32' || type === 'float64') {
    if (type === 'float32') view.setFloat32(0, raw);
    else view.setFloat64(0, raw);
    return type === 'float64' || Number.isFinite(view.getFloat32(0));
  }
  const integer = INTEGERS[type];
  const value = Math.round(raw);
  if (integer === undefined || value < integer.min || value > integer.max) return false;
  integer.set(view, value);
  return true;
}

function toBcd(value: number): number {
  return Number.parseInt(String(value), 16);
}
