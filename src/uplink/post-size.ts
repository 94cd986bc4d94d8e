/**
 * The largest body that the way to the platform lets through: POST_MAX_BYTES, until a 413 teaches less. After an hour
 * the double is tried again: a proxy's limit may have been raised, and small posts cost requests.
 */
const GROW_AFTER_MS = 3_600_000;
/** A value with its key, group and unit must fit at any rate. */
const LEAST_BYTES = 1_000;

export class PostSize {
  #configured: number;
  #learned: number;
  #learnedAtMs = 0;

  constructor(maxBytes: number) {
    this.#configured = maxBytes;
    this.#learned = maxBytes;
  }

  /** After a reload. What a 413 taught stays, as long as it is less. */
  setLimit(maxBytes: number): void {
    this.#learned = this.#learned === this.#configured ? maxBytes : Math.min(this.#learned, maxBytes);
    this.#configured = maxBytes;
  }

  maxBytes(nowMs: number): number {
    if (this.#learned < this.#configured && nowMs - this.#learnedAtMs >= GROW_AFTER_MS) {
      this.#learned = Math.min(this.#configured, this.#learned * 2);
      this.#learnedAtMs = nowMs;
    }
    return this.#learned;
  }

  /** A body of so many bytes was answered 413. Gives the new limit where it changed. */
  refused(bytes: number, nowMs: number): number | undefined {
    const next = Math.min(this.#configured, Math.max(LEAST_BYTES, Math.floor(bytes / 2)));
    if (next >= this.#learned) return undefined;
    this.#learned = next;
    this.#learnedAtMs = nowMs;
    return next;
  }
}
