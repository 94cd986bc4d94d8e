/** Settings that a reload can change. */
interface BackfillOptions {
  /** 0 means no limit. */
  readonly backfillValuesPerSecond: number;
  readonly postIntervalMs: number;
  readonly postMaxValues: number;
}

/**
 * Token bucket for BACKFILL_VALUES_PER_SECOND, in values. Its capacity is the amount for one post interval, so backlog
 * posts are as large as the rate allows. It starts empty.
 */
export class BackfillRate {
  readonly #options: BackfillOptions;
  #tokens = 0;
  #atMs: number;

  constructor(options: BackfillOptions, nowMs: number) {
    this.#options = options;
    this.#atMs = nowMs;
  }

  get isLimited(): boolean {
    return this.#options.backfillValuesPerSecond > 0;
  }

  get #perMs(): number {
    return this.#options.backfillValuesPerSecond / 1000;
  }

  get #capacity(): number {
    const { postIntervalMs, postMaxValues } = this.#options;
    const saved = Math.min(postMaxValues, this.#perMs * Math.max(1_000, postIntervalMs));
    // At high rates, late timers must not reduce the rate.
    return Math.max(1, Math.floor(saved), this.#perMs * 250);
  }

  /** Returns the number of values that may be posted now. */
  available(nowMs: number): number {
    if (!this.isLimited) return Number.POSITIVE_INFINITY;
    this.#tokens = Math.min(this.#capacity, this.#tokens + Math.max(0, nowMs - this.#atMs) * this.#perMs);
    this.#atMs = nowMs;
    return Math.max(0, Math.floor(this.#tokens));
  }

  /** Returns the time at which the given number of values, limited to the capacity, may be posted. */
  availableAtMs(values: number, nowMs: number): number {
    const wanted = Math.min(values, Math.floor(this.#capacity));
    if (this.available(nowMs) >= wanted) return nowMs;
    return nowMs + Math.max(1, (wanted - this.#tokens) / this.#perMs);
  }

  spend(values: number): void {
    if (this.isLimited) this.#tokens -= values;
  }
}
