const WINDOW_MS = 60_000;

/** Longest delay of live posts caused by the budget or the sockets within the past one to two minutes. */
export class PostLag {
  readonly #options: { readonly postIntervalMs: number };
  #windowStartMs = Number.NEGATIVE_INFINITY;
  #now = 0;
  #before = 0;
  #isLengthened = false;
  /** End of the latest delay with another cause: an outage, a pause after a 429, or a hold. */
  #excusedUntilMs = Number.NEGATIVE_INFINITY;

  /** `options`: settings that a reload can change. */
  constructor(options: { readonly postIntervalMs: number }) {
    this.#options = options;
  }

  /** Excludes the time until `untilMs` from delays. */
  excuse(untilMs: number): void {
    this.#excusedUntilMs = Math.max(this.#excusedUntilMs, untilMs);
  }

  /** Records a live post whose values have been waiting since `sinceMs`. Its asset was not posted before `freeAtMs`. */
  note(sinceMs: number, freeAtMs: number, nowMs: number): void {
    this.#turn(nowMs);
    const dueMs = Math.max(sinceMs + this.#options.postIntervalMs, freeAtMs, this.#excusedUntilMs);
    this.#now = Math.max(this.#now, nowMs - dueMs);
  }

  /** Effective POST_INTERVAL. */
  intervalMs(nowMs: number): number {
    this.#turn(nowMs);
    return Math.round(this.#options.postIntervalMs + Math.max(this.#now, this.#before));
  }

  /** Returns a change if the interval increases by half or returns to normal. */
  change(nowMs: number): { isLengthened: boolean; intervalMs: number } | undefined {
    const { postIntervalMs } = this.#options;
    const intervalMs = this.intervalMs(nowMs);
    const isLengthened = intervalMs >= postIntervalMs * 1.5 && intervalMs >= postIntervalMs + 1_000;
    if (isLengthened === this.#isLengthened) return undefined;
    this.#isLengthened = isLengthened;
    return { isLengthened, intervalMs };
  }

  #turn(nowMs: number): void {
    if (nowMs - this.#windowStartMs < WINDOW_MS) return;
    this.#before = nowMs - this.#windowStartMs < 2 * WINDOW_MS ? this.#now : 0;
    this.#now = 0;
    this.#windowStartMs = nowMs;
  }
}
