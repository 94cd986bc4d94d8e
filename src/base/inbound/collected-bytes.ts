import { releaseMemory } from '../release-memory.ts';

/** Chunks of at least this size are not copied. */
const SMALL_CHUNK_BYTES = 4_096;
const FIRST_BLOCK_BYTES = 1_024;
const LARGEST_BLOCK_BYTES = 65_536;

/**
 * Collects bytes that arrive in chunks. A chunk object takes about 200 bytes regardless of its content, so small
 * chunks are copied into blocks. Otherwise, one-byte chunks would use 200 times their size.
 */
export class CollectedBytes {
  readonly #chunks: Buffer[] = [];
  /** Block for the bytes that follow the chunks, filled up to `#filled`. */
  #block: Buffer | undefined;
  #filled = 0;
  #length = 0;

  get length(): number {
    return this.#length;
  }

  add(chunk: Buffer): void {
    if (chunk.length === 0) return;
    this.#length += chunk.length;
    // Most bodies consist of one chunk, which does not have to be copied.
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

  /** Returns and clears all bytes. The memory of the chunks is released. */
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
    for (const chunk of this.#chunks) releaseMemory(chunk);
    this.#forget();
  }

  #forget(): void {
    this.#chunks.length = 0;
    this.#length = 0;
  }

  /** Doubles the capacity, so that small bodies use little memory and large ones require few blocks. */
  #nextBlockBytes(): number {
    return Math.min(LARGEST_BLOCK_BYTES, Math.max(FIRST_BLOCK_BYTES, this.#length));
  }

  #endBlock(): void {
    if (this.#block && this.#filled > 0) this.#chunks.push(this.#block.subarray(0, this.#filled));
    this.#block = undefined;
    this.#filled = 0;
  }
}
