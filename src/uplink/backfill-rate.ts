/**
 * BACKFILL_VALUES_PER_SECOND: a token bucket in values. It saves up what one post interval brings (a request is the
 * unit of cost, so posts of the backlog are made as large as the rate allows) and starts empty.
 */
export class BackfillRate {
  #perMs = 0;
  #capacity = 0;
  #tokens = 0;
  #atMs: number;

  /** `valuesPerSecond` 0 is no limit. */
  constructor(valuesPerSecond: number, postIntervalMs: number, postMaxValues: number, nowMs: number) {
    this.setRate(valuesPerSecond, postIntervalMs, postMaxValues);
    this.#atMs = nowMs;
  }

  /** After a reload. What is saved up stays, as far as it fits. */
  setRate(valuesPerSecond: number, postIntervalMs: number, postMaxValues: number): void {
    this.#perMs = valuesPerSecond / 1000;
    const saved = Math.min(postMaxValues, this.#perMs * Math.max(1_000, postIntervalMs));
    // At high rates a late timer must not cost anything.
    this.#capacity = valuesPerSecond > 0 ? Math.max(1, Math.floor(saved), this.#perMs * 250) : Number.POSITIVE_INFINITY;
    this.#tokens = Math.min(this.#tokens, this.#capacity);
  }

  /** The most that can be saved up, and so the largest post of the backlog. */
  get capacity(): number {
    return this.#capacity;
  }

  get isLimited(): boolean {
    return this.#perMs > 0;
  }

  /** Values that may be taken now. */
  available(nowMs: number): number {
    if (!this.isLimited) return Number.POSITIVE_INFINITY;
    this.#tokens = Math.min(this.capacity, this.#tokens + Math.max(0, nowMs - this.#atMs) * this.#perMs);
    this.#atMs = nowMs;
    return Math.max(0, Math.floor(this.#tokens));
  }

  /** When so many may be taken (at most the capacity). */
  availableAtMs(values: number, nowMs: number): number {
    const wanted = Math.min(values, Math.floor(this.capacity));
    if (this.available(nowMs) >= wanted) return nowMs;
    return nowMs + Math.max(1, (wanted - this.#tokens) / this.#perMs);
  }

  spend(values: number): void {
    if (this.isLimited) this.#tokens -= values;
  }
}
