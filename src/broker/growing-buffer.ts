const SMALLEST_BYTES = 64;
const NOTHING = Buffer.alloc(0);

/**
 * Bytes of one incomplete item, collected from pieces of any size. Its capacity doubles, so that collecting costs a copy of each byte and
 * at most one more while growing, however small the pieces are. The owner bounds the length.
 */
export class GrowingBuffer {
  #memory = NOTHING;
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** The bytes so far, without a copy; valid until the next change. */
  get bytes(): Buffer {
    return this.#memory.subarray(0, this.#length);
  }

  add(piece: Buffer): void {
    const length = this.#length + piece.length;
    if (length > this.#memory.length) {
      const memory = Buffer.allocUnsafeSlow(Math.max(SMALLEST_BYTES, length, 2 * this.#memory.length));
      this.#memory.copy(memory, 0, 0, this.#length);
      this.#memory = memory;
    }
    piece.copy(this.#memory, this.#length);
    this.#length = length;
  }

  /** Returns the bytes and starts again with none. The memory belongs to the caller. */
  take(): Buffer {
    const { bytes } = this;
    this.#memory = NOTHING;
    this.#length = 0;
    return bytes;
  }
}
