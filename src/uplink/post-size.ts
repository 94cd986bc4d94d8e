/**
 * Maximum body size of posts, in bytes. A post that is too large halves the size; each accepted post doubles it again,
 * up to the configured size. A size that failed twice while smaller ones passed is not tried for an hour.
 */
const RETRY_MS = 3_600_000;
/** Minimum size, which always fits one value with its key, group and unit. */
const MIN_BYTES = 1_000;

export class PostSize {
  #limit = Number.POSITIVE_INFINITY;
  /** Smallest body that failed, and how often bodies of its size failed. */
  #failed = { bytes: Number.POSITIVE_INFINITY, times: 0, atMs: 0 };

  /** Returns the limit; Infinity if only the configured one applies. */
  get maxBytes(): number {
    return this.#limit;
  }

  /** Limits the next post, and forgets failures. */
  restart(bytes = Number.POSITIVE_INFINITY): void {
    this.#limit = Math.max(MIN_BYTES, bytes);
    this.#failed = { bytes: Number.POSITIVE_INFINITY, times: 0, atMs: 0 };
  }

  accepted(bytes: number, nowMs: number): void {
    if (bytes * 2 < this.#limit && this.#limit > MIN_BYTES) return;
    if (nowMs - this.#failed.atMs > RETRY_MS) this.#failed = { bytes: Number.POSITIVE_INFINITY, times: 0, atMs: 0 };
    const next = this.#limit * 2;
    // Bodies of the same number of values differ slightly in size.
    if (this.#failed.times >= 2 && next * 2 > this.#failed.bytes) return;
    this.#limit = next;
  }

  /** Records a post that was too large. */
  tooLarge(bytes: number, nowMs: number): void {
    const isSame = bytes * 2 > this.#failed.bytes;
    this.#failed = {
      bytes: Math.min(bytes, this.#failed.bytes),
      times: isSame ? this.#failed.times + 1 : 1,
      atMs: nowMs,
    };
    this.#limit = Math.max(MIN_BYTES, Math.min(this.#limit, Math.floor(bytes / 2)));
  }
}
