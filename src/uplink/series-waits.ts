/**
 * Series whose values the platform rejects. After 8 individual rejections without an accepted value the series is
 * paused, because dividing every post would require one request per value. One value is posted every 15 minutes; if it
 * is accepted, the series is resumed. This state is not persisted.
 */
import type { Refusal } from '../buffer/client/lanes.ts';

export const MAX_REJECTIONS = 8;
const PROBE_INTERVAL_MS = 15 * 60_000;

/** Reason for pausing a series until a reload adds an address. */
export const NO_ADDRESS: Refusal = {
  status: 0,
  message: 'VALUES_PATH requires an instrumentation, but tags.yaml has none for this series',
};

export interface WaitingSeries {
  series: number;
  asset: number;
  refusal: Refusal;
  sinceMs: number;
  nextTryAtMs: number;
}

export class SeriesWaits {
  readonly #rejections = new Map<number, number>();
  readonly #waiting = new Map<number, WaitingSeries>();

  /** Counts an individual rejection and returns the count since the latest accepted value. */
  countRejection(series: number): number {
    const count = (this.#rejections.get(series) ?? 0) + 1;
    this.#rejections.set(series, count);
    return count;
  }

  rejections(series: number): number {
    return this.#rejections.get(series) ?? 0;
  }

  /** Resets the count after an outage. */
  resetCount(series: number): void {
    if (!this.#waiting.has(series)) this.#rejections.delete(series);
  }

  pause(asset: number, series: number, refusal: Refusal, nowMs: number): boolean {
    const before = this.#waiting.get(series);
    this.#waiting.set(series, {
      series,
      asset,
      refusal,
      sinceMs: before?.sinceMs ?? nowMs,
      nextTryAtMs: nowMs + PROBE_INTERVAL_MS,
    });
    return before === undefined;
  }

  /** Records accepted values of these series. Returns the series that were paused. */
  accepted(series: readonly number[]): number[] {
    for (const one of series) this.#rejections.delete(one);
    return series.filter((one) => this.#waiting.delete(one));
  }

  /** Removes a series without buffered values. Returns whether it was paused. */
  remove(series: number): boolean {
    this.#rejections.delete(series);
    return this.#waiting.delete(series);
  }

  /** Returns the due series. */
  due(nowMs: number): readonly WaitingSeries[] {
    if (this.#waiting.size === 0) return [];
    return [...this.#waiting.values()].filter((one) => one.nextTryAtMs <= nowMs);
  }

  /** Records that a value is being posted. The next value is due in 15 minutes. */
  postpone(series: number, nowMs: number): void {
    const waiting = this.#waiting.get(series);
    if (waiting) waiting.nextTryAtMs = nowMs + PROBE_INTERVAL_MS;
  }

  /** Makes the series due again after a post without a result. */
  makeDue(series: number, nowMs: number): void {
    const waiting = this.#waiting.get(series);
    if (waiting) waiting.nextTryAtMs = Math.min(waiting.nextTryAtMs, nowMs);
  }

  /** Makes every series due after a reload. */
  makeAllDue(nowMs: number): void {
    for (const series of this.#waiting.keys()) this.makeDue(series, nowMs);
  }

  list(): readonly WaitingSeries[] {
    return [...this.#waiting.values()];
  }

  /** Returns the first `max` series, for `status`. */
  describe(nowMs: number, max: number) {
    return this.list()
      .slice(0, max)
      .map(({ series, asset, refusal, nextTryAtMs }) => ({
        series,
        asset,
        status: refusal.status,
        reason: refusal.message,
        nextTryInMs: Math.max(0, nextTryAtMs - nowMs),
      }));
  }

  ids(): readonly number[] {
    return [...this.#waiting.keys()];
  }
}
