import { giveBack } from '../give-back.ts';

/** Chunks of at least this size are kept as they arrive. */
const SMALL_CHUNK_BYTES = 4_096;
const FIRST_BLOCK_BYTES = 1_024;
const LARGEST_BLOCK_BYTES = 65_536;

/**
 * Bytes that arrive in chunks. A chunk is an object of some 200 bytes however small its content is, so a sender of one-byte chunks
 * would cost 200 times what it sends: small chunks are copied into blocks.
 */
export class CollectedBytes {
  readonly #chunks: Buffer[] = [];
  /** Filled up to `#filled`; the content behind the chunks. */
  #block: Buffer | undefined;
  #filled = 0;
  #length = 0;

  get length(): number {
    return this.#length;
  }

  add(chunk: Buffer): void {
    if (chunk.length === 0) return;
    this.#length += chunk.length;
    // Most bodies are one chunk, which needs no copy.
    if (chunk.length >= SMALL_CHUNK_BYTES || this.#length === chunk.length) {
      this.#endBlock();
      this.#chunks.push(chunk);
      return;
    }
    for (let rest = chunk; rest.length > 0; ) {
      this.#block ??= Buffer.allocUnsafeSlow(this.#nextBlockBytes());
      const copied = rest.copy(this.#block, this.#filled);
      this.#filled += copied;
      if (this.#filled === this.#block.length) this.#endBlock();
      rest = rest.subarray(copied);
    }
  }

  /** Returns all bytes and starts again from none. The chunks belong to the collection: their memory is released. */
  takeAll(): Buffer {
    this.#endBlock();
    const [first = Buffer.alloc(0), ...more] = this.#chunks;
    if (more.length === 0) {
      this.#forget();
      return first;
    }
    const whole = Buffer.concat(this.#chunks, this.#length);
    this.release();
    return whole;
  }

  /** Discards the bytes and releases their memory. */
  release(): void {
    this.#endBlock();
    for (const chunk of this.#chunks) giveBack(chunk);
    this.#forget();
  }

  #forget(): void {
    this.#chunks.length = 0;
    this.#length = 0;
  }

  /** As large as the content so far, so that a small body costs little and a large one needs few blocks. */
  #nextBlockBytes(): number {
    return Math.min(LARGEST_BLOCK_BYTES, Math.max(FIRST_BLOCK_BYTES, this.#length));
  }

  #endBlock(): void {
    if (this.#block && this.#filled > 0) this.#chunks.push(this.#block.subarray(0, this.#filled));
    this.#block = undefined;
    this.#filled = 0;
  }
}
