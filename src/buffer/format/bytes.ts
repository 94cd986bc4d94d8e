/**
 * Primitives of the buffer's formats: LEB128 varints and zigzag for integers up to 2^53, raw doubles, CRC-32. Integers
 * are JavaScript numbers, so varints above 28 bits are encoded by division instead of bit shifts.
 */
import { crc32 } from 'node:zlib';
import { StoreError } from '../../base/errors.ts';

/** Largest integer that can be encoded. */
const MAX_VARINT = 2 ** 53;

const scratch = new DataView(new ArrayBuffer(8));

/** Writer with a growing buffer. `bytes()` is a view that is valid until the next write. */
export class ByteWriter {
  #bytes: Uint8Array;
  at = 0;

  constructor(room = 1024) {
    this.#bytes = new Uint8Array(room);
  }

  /** Restarts at an offset and reuses the buffer. */
  reset(at = 0): void {
    this.at = at;
  }

  /** Ensures space for `more` bytes. */
  reserve(more: number): void {
    const wanted = this.at + more;
    if (wanted <= this.#bytes.length) return;
    const grown = new Uint8Array(Math.max(wanted, this.#bytes.length * 2));
    grown.set(this.#bytes.subarray(0, this.at));
    this.#bytes = grown;
  }

  byte(value: number): void {
    this.reserve(1);
    this.#bytes[this.at++] = value;
  }

  /** Writes an integer from 0 to 2^53. */
  varint(value: number): void {
    this.reserve(8);
    const bytes = this.#bytes;
    let at = this.at;
    let left = value;
    while (left >= 0x1000_0000) {
      bytes[at++] = (left % 128) | 0x80;
      left = Math.floor(left / 128);
    }
    while (left >= 0x80) {
      bytes[at++] = (left & 0x7f) | 0x80;
      left >>>= 7;
    }
    bytes[at++] = left;
    this.at = at;
  }

  /** Writes a signed integer up to 2^52. */
  zigzag(value: number): void {
    this.varint(value < 0 ? -2 * value - 1 : 2 * value);
  }

  double(value: number): void {
    this.reserve(8);
    scratch.setFloat64(0, value, true);
    for (let i = 0; i < 8; i++) this.#bytes[this.at + i] = scratch.getUint8(i);
    this.at += 8;
  }

  raw(bytes: Uint8Array): void {
    this.reserve(bytes.length);
    this.#bytes.set(bytes, this.at);
    this.at += bytes.length;
  }

  bytes(): Uint8Array {
    return this.#bytes.subarray(0, this.at);
  }

  /** Stores the CRC-32 of all following bytes in the first four bytes. Called last, after `reset(4)`. */
  seal(): Uint8Array {
    const all = this.bytes();
    const sum = crc32(all.subarray(4));
    all[0] = sum & 0xff;
    all[1] = (sum >>> 8) & 0xff;
    all[2] = (sum >>> 16) & 0xff;
    all[3] = (sum >>> 24) & 0xff;
    return all;
  }
}

/** Returns an error for bytes that differ from those written. The row is set aside. */
export function damaged(what: string): StoreError {
  return new StoreError(`${what} is damaged`, { code: 'store.damaged' });
}

/** Reads bytes written by `ByteWriter`. Throws `store.damaged` at the end of the bytes. */
export class ByteReader {
  readonly #bytes: Uint8Array;
  at: number;

  constructor(bytes: Uint8Array, at = 0) {
    this.#bytes = bytes;
    this.at = at;
  }

  /**
   * Verifies the checksum written by `seal`. If one bit of a field type is flipped, SQLite returns text or a number
   * without an error.
   */
  static unseal(bytes: Uint8Array, what: string): ByteReader {
    if (!(bytes instanceof Uint8Array) || bytes.length < 5) throw damaged(what);
    const sum = (bytes[0]! | (bytes[1]! << 8) | (bytes[2]! << 16) | (bytes[3]! << 24)) >>> 0;
    if (crc32(bytes.subarray(4)) !== sum) throw damaged(what);
    return new ByteReader(bytes, 4);
  }

  get left(): number {
    return this.#bytes.length - this.at;
  }

  byte(): number {
    if (this.at >= this.#bytes.length) throw damaged('a row');
    return this.#bytes[this.at++]!;
  }

  varint(): number {
    const bytes = this.#bytes;
    let at = this.at;
    let byte = bytes[at++]!;
    if (byte < 0x80) {
      this.at = at;
      return byte;
    }
    let value = byte & 0x7f;
    let shift = 7;
    while (shift < 28) {
      byte = bytes[at++]!;
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) {
        this.at = at;
        return value;
      }
      shift += 7;
    }
    let factor = 0x1000_0000;
    for (let more = 0; more < 4; more++) {
      byte = bytes[at++]!;
      value += (byte & 0x7f) * factor;
      factor *= 128;
      if (byte < 0x80) {
        // Rejects values above MAX_VARINT, which a number cannot represent exactly.
        if (value > MAX_VARINT) break;
        this.at = at;
        return value;
      }
    }
    throw damaged('a row');
  }

  zigzag(): number {
    const value = this.varint();
    return value % 2 === 1 ? -(value + 1) / 2 : value / 2;
  }

  double(): number {
    if (this.left < 8) throw damaged('a row');
    for (let i = 0; i < 8; i++) scratch.setUint8(i, this.#bytes[this.at + i]!);
    this.at += 8;
    return scratch.getFloat64(0, true);
  }
}

/** Returns the result of `read`, or undefined if the row is damaged (`StoreError`). */
export function readable<Result>(read: () => Result): Result | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof StoreError) return undefined;
    throw error;
  }
}

/**
 * 10^0 to 10^12, which a double represents exactly. Readings are usually decimals: 20.37 is stored as the integer 2037
 * with two digits, in two bytes instead of eight. Readings rarely have more than twelve digits.
 */
export const POWERS_OF_TEN: readonly number[] = [1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12];
export const MAX_DIGITS = 12;

/** The difference between two larger integers does not fit in a varint. */
const MAX_WHOLE = 2 ** 50;

/** No integer represents the value: -0, too large, or too many digits. */
const NOT_WHOLE = Number.NaN;

/** Returns `value` × 10^`digits` if that is an integer and exact in both directions, otherwise `NOT_WHOLE`. */
export function wholeOf(value: number, digits: number): number {
  const power = POWERS_OF_TEN[digits]!;
  const whole = Math.round(value * power);
  if (whole / power !== value || whole > MAX_WHOLE || whole < -MAX_WHOLE) return NOT_WHOLE;
  // In divisions and comparisons, -0 behaves like 0, so it is checked separately.
  if (Object.is(value, -0)) return NOT_WHOLE;
  return whole;
}

/** Returns the smallest number of digits that represents `value` exactly; -1 if there is none. */
export function digitsOf(value: number): number {
  for (let digits = 0; digits <= MAX_DIGITS; digits++) {
    if (!Number.isNaN(wholeOf(value, digits))) return digits;
  }
  return -1;
}
