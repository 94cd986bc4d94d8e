/**
 * Series whose values the platform refuses one after the other. After 8 lone refusals with nothing of the series taken
 * in between it waits: dividing every post down to its values would cost a request a value for ever. Every 15 minutes
 * one value is posted; taken, the series goes on. In memory only: after a restart it is found out anew.
 */
import type { Refusal } from '../buffer/client/lanes.ts';

export const MAX_LONE_REFUSALS = 8;
const TRY_AGAIN_MS = 15 * 60_000;

export interface WaitingSeries {
  series: number;
  asset: number;
  refusal: Refusal;
  sinceMs: number;
  nextTryAtMs: number;
}

export class SeriesWaits {
  readonly #refusals = new Map<number, number>();
  readonly #waiting = new Map<number, WaitingSeries>();

  /** Counts one more; gives how many there are with nothing taken in between. */
  refusedAlone(series: number): number {
    const count = (this.#refusals.get(series) ?? 0) + 1;
    this.#refusals.set(series, count);
    return count;
  }

  loneRefusals(series: number): number {
    return this.#refusals.get(series) ?? 0;
  }

  /** It was an outage: what was refused during it says nothing about values. */
  forget(series: number): void {
    if (!this.#waiting.has(series)) this.#refusals.delete(series);
  }

  hold(asset: number, series: number, refusal: Refusal, nowMs: number): boolean {
    const before = this.#waiting.get(series);
    this.#waiting.set(series, {
      series,
      asset,
      refusal,
      sinceMs: before?.sinceMs ?? nowMs,
      nextTryAtMs: nowMs + TRY_AGAIN_MS,
    });
    return before === undefined;
  }

  /** Something of these series was taken. Gives those that waited and wait no longer. */
  taken(series: readonly number[]): number[] {
    for (const one of series) this.#refusals.delete(one);
    return series.filter((one) => this.#waiting.delete(one));
  }

  /** Nothing of the series is left in the buffer. Returns whether it waited. */
  drop(series: number): boolean {
    this.#refusals.delete(series);
    return this.#waiting.delete(series);
  }

  /** Those whose turn it is. */
  due(nowMs: number): readonly WaitingSeries[] {
    if (this.#waiting.size === 0) return [];
    return [...this.#waiting.values()].filter((one) => one.nextTryAtMs <= nowMs);
  }

  /** It is being tried: its next turn comes later, whatever becomes of this one. */
  putOff(series: number, nowMs: number): void {
    const waiting = this.#waiting.get(series);
    if (waiting) waiting.nextTryAtMs = nowMs + TRY_AGAIN_MS;
  }

  /** The try came to nothing: it is due again. */
  putBack(series: number, nowMs: number): void {
    const waiting = this.#waiting.get(series);
    if (waiting) waiting.nextTryAtMs = Math.min(waiting.nextTryAtMs, nowMs);
  }

  /** A person mended something: each is due. */
  tryAll(nowMs: number): void {
    for (const series of this.#waiting.keys()) this.putBack(series, nowMs);
  }

  list(): readonly WaitingSeries[] {
    return [...this.#waiting.values()];
  }

  /** The first of them, for `status`. */
  describe(nowMs: number, max: number) {
    return this.list()
      .slice(0, max)
      .map(({ series, asset, refusal, nextTryAtMs }) => ({
        series,
        asset,
        status: refusal.status,
        words: refusal.message,
        nextTryInMs: Math.max(0, nextTryAtMs - nowMs),
      }));
  }

  ids(): readonly number[] {
    return [...this.#waiting.keys()];
  }
}
