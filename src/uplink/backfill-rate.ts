/**
 * Token bucket for BACKFILL_VALUES_PER_SECOND, in values. Its capacity is the amount for one post interval, so backlog
 * posts are as large as the rate allows. It starts empty.
 */
export class BackfillRate {
  #perMs = 0;
  #capacity = 0;
  #tokens = 0;
  #atMs: number;

  /** A `valuesPerSecond` of 0 means no limit. */
  constructor(valuesPerSecond: number, postIntervalMs: number, postMaxValues: number, nowMs: number) {
    this.setRate(valuesPerSecond, postIntervalMs, postMaxValues);
    this.#atMs = nowMs;
  }

  /** Changes the rate after a reload and keeps saved tokens up to the new capacity. */
  setRate(valuesPerSecond: number, postIntervalMs: number, postMaxValues: number): void {
    this.#perMs = valuesPerSecond / 1000;
    const saved = Math.min(postMaxValues, this.#perMs * Math.max(1_000, postIntervalMs));
    // At high rates, late timers must not reduce the rate.
    this.#capacity = valuesPerSecond > 0 ? Math.max(1, Math.floor(saved), this.#perMs * 250) : Number.POSITIVE_INFINITY;
    this.#tokens = Math.min(this.#tokens, this.#capacity);
  }

  /** Capacity, which is also the largest backlog post. */
  get capacity(): number {
    return this.#capacity;
  }

  get isLimited(): boolean {
    return this.#perMs > 0;
  }

  /** Returns the number of values that may be posted now. */
  available(nowMs: number): number {
    if (!this.isLimited) return Number.POSITIVE_INFINITY;
    this.#tokens = Math.min(this.capacity, this.#tokens + Math.max(0, nowMs - this.#atMs) * this.#perMs);
    this.#atMs = nowMs;
    return Math.max(0, Math.floor(this.#tokens));
  }

  /** Returns the time at which the given number of values, limited to the capacity, may be posted. */
  availableAtMs(values: number, nowMs: number): number {
    const wanted = Math.min(values, Math.floor(this.capacity));
    if (this.available(nowMs) >= wanted) return nowMs;
    return nowMs + Math.max(1, (wanted - this.#tokens) / this.#perMs);
  }

  spend(values: number): void {
    if (this.isLimited) this.#tokens -= values;
  }
}
