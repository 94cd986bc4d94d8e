/**
 * Bytes of the buffer's formats: LEB128 varints and zigzag for whole numbers up to 2^53, raw doubles, CRC-32.
 * Whole numbers are JavaScript numbers throughout, so every varint beyond 28 bits goes the slow way by division.
 */
import { crc32 } from 'node:zlib';
import { StoreError } from '../../base/errors.ts';

/** What the largest whole number of either sign comes to. */
const MAX_VARINT = 2 ** 53;

const scratch = new DataView(new ArrayBuffer(8));

/** Writes into a buffer that grows by itself. `bytes()` is a view, good until the next write. */
export class ByteWriter {
  #bytes: Uint8Array;
  at = 0;

  constructor(room = 1024) {
    this.#bytes = new Uint8Array(room);
  }

  /** Forgets what was written; keeps the room. */
  reset(at = 0): void {
    this.at = at;
  }

  /** Makes sure that `more` bytes fit behind what is written. */
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

  /** A whole number from 0 to 2^53. */
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

  /** A whole number of either sign, up to 2^52. */
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

  /** Four bytes at the start are the CRC-32 of all behind them. Call last; the row must have begun with `reset(4)`. */
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

/** Thrown where bytes are not what was written: the row is set aside, never guessed at. */
export function damaged(what: string): StoreError {
  return new StoreError(`${what} is damaged`, { code: 'store.damaged' });
}

/** Reads what `ByteWriter` wrote; throws `store.damaged` where it runs past the end. */
export class ByteReader {
  readonly #bytes: Uint8Array;
  at: number;

  constructor(bytes: Uint8Array, at = 0) {
    this.#bytes = bytes;
    this.at = at;
  }

  /**
   * A row whose first four bytes are the checksum of the rest, as `seal` wrote it. Of a row in which one bit of a field's kind was
   * garbled SQLite gives a text or a number, and sees no damage.
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
        // Eight bytes hold more than a number here is ever: what is beyond could not be written again as it was.
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
