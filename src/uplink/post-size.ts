/**
 * Maximum body size of posts: POST_MAX_BYTES, or less after a 413. A 413 halves the size of the rejected body for ten
 * minutes, then the configured limit is retried. A 413 for one asset does not change the limit if a body of the same
 * size has just been accepted for another asset. The end of an outage and a reload restore the configured limit.
 */
const REDUCED_MS = 10 * 60_000;
/** Time within which an accepted body contradicts a 413 for a body that is not larger. */
const CONTRADICTS_MS = 10_000;
/** Minimum size, which always fits one value with its key, group and unit. */
const MIN_BYTES = 1_000;

export class PostSize {
  #configured: number;
  #limit: number;
  #reducedUntilMs = Number.NEGATIVE_INFINITY;
  #accepted = { bytes: 0, atMs: Number.NEGATIVE_INFINITY };

  constructor(maxBytes: number) {
    this.#configured = maxBytes;
    this.#limit = maxBytes;
  }

  maxBytes(nowMs: number): number {
    return nowMs < this.#reducedUntilMs ? this.#limit : this.#configured;
  }

  /** Applies settings after a reload. */
  setLimit(maxBytes: number): void {
    this.#configured = maxBytes;
    this.reset();
  }

  reset(): void {
    this.#reducedUntilMs = Number.NEGATIVE_INFINITY;
  }

  accepted(bytes: number, nowMs: number): void {
    if (bytes >= this.#accepted.bytes || nowMs - this.#accepted.atMs > CONTRADICTS_MS) {
      this.#accepted = { bytes, atMs: nowMs };
    }
  }

  /** Records a 413 response to a body of this size. Returns the new limit if it changed. */
  tooLarge(bytes: number, nowMs: number): number | undefined {
    if (this.#accepted.bytes >= bytes && nowMs - this.#accepted.atMs <= CONTRADICTS_MS) return undefined;
    const next = Math.max(MIN_BYTES, Math.floor(bytes / 2));
    if (next >= this.maxBytes(nowMs)) return undefined;
    this.#limit = next;
    this.#reducedUntilMs = nowMs + REDUCED_MS;
    return next;
  }
}
