const SMALLEST_BYTES = 64;
const NOTHING = Buffer.alloc(0);

/**
 * Bytes of one incomplete item, collected from chunks of any size. The capacity doubles, so that each byte is copied at
 * most twice, regardless of the chunk size. The owner limits the length.
 */
export class GrowingBuffer {
  #memory = NOTHING;
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** Collected bytes, not copied; valid until the next change. */
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

  /** Returns the bytes and empties the buffer. The caller owns the memory. */
  drain(): Buffer {
    const { bytes } = this;
    this.#memory = NOTHING;
    this.#length = 0;
    return bytes;
  }
}
