/** Longest delay of live posts caused by the budget or the sockets within the past one to two minutes. */
const WINDOW_MS = 60_000;

export class PostLag {
  #intervalMs: number;
  #windowStartMs = Number.NEGATIVE_INFINITY;
  #now = 0;
  #before = 0;
  #isLengthened = false;

  constructor(postIntervalMs: number) {
    this.#intervalMs = postIntervalMs;
  }

  /** Applies settings after a reload. */
  setInterval(postIntervalMs: number): void {
    this.#intervalMs = postIntervalMs;
  }

  note(lateMs: number, nowMs: number): void {
    this.#turn(nowMs);
    this.#now = Math.max(this.#now, lateMs);
  }

  /** Effective POST_INTERVAL. */
  intervalMs(nowMs: number): number {
    this.#turn(nowMs);
    return Math.round(this.#intervalMs + Math.max(this.#now, this.#before));
  }

  /** Returns a change if the interval increases by half or returns to normal. */
  change(nowMs: number): { isLengthened: boolean; intervalMs: number } | undefined {
    const intervalMs = this.intervalMs(nowMs);
    const isLengthened = intervalMs >= this.#intervalMs * 1.5 && intervalMs >= this.#intervalMs + 1_000;
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
