/**
 * How late live posts go out because the budget or the sockets do not reach: the interval that an asset really gets.
 * The largest lateness of the last one to two minutes counts.
 */
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

  /** After a reload. */
  setInterval(postIntervalMs: number): void {
    this.#intervalMs = postIntervalMs;
  }

  note(lateMs: number, nowMs: number): void {
    this.#turn(nowMs);
    this.#now = Math.max(this.#now, lateMs);
  }

  /** POST_INTERVAL as it is now. */
  intervalMs(nowMs: number): number {
    this.#turn(nowMs);
    return Math.round(this.#intervalMs + Math.max(this.#now, this.#before));
  }

  /** Gives the interval when it begins or ends to be longer by half or more, for one line in the log. */
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
