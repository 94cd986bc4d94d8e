/**
 * Forgets series without values, because a program that uses serial numbers as keys creates series without limit, and
 * each one uses memory. The store returns the candidates; series used in the meantime and series in tags.yaml are
 * retained. Code that cached a number calls `SeriesCatalogue.isCurrent`. Nothing is written to disk.
 */
import type { Clock } from '../../base/clock.ts';
import type { SeriesCatalogue } from '../series.ts';
import type { Committer } from './committer.ts';

export interface SeriesKeepingOptions {
  port: { idleSeries(): Promise<number[]>; forgetSeries(ids: readonly number[]): Promise<void> };
  catalogue: SeriesCatalogue;
  committer: Pick<Committer, 'watchSeries'>;
  clock: Clock;
  /** Whether a series must always be retained. */
  isKept(series: number): boolean;
  /** Called when the numbers become available for reuse. */
  onForgotten(series: readonly number[]): void;
}

/** Minimum interval between searches. */
const PAUSE_MS = 30_000;

export class SeriesKeeping {
  readonly #options: SeriesKeepingOptions;
  #isSearching = false;
  #notBeforeMs = Number.NEGATIVE_INFINITY;

  constructor(options: SeriesKeepingOptions) {
    this.#options = options;
  }

  /** Forgets series, at most twice per minute. Returns their number. */
  async keep(): Promise<number> {
    const { clock } = this.#options;
    if (this.#isSearching || clock.monotonicMs() < this.#notBeforeMs) return 0;
    this.#isSearching = true;
    try {
      return await this.forget();
    } finally {
      this.#isSearching = false;
      this.#notBeforeMs = clock.monotonicMs() + PAUSE_MS;
    }
  }

  /** Forgets series now. Returns their number. */
  async forget(): Promise<number> {
    const { port, catalogue, committer, isKept } = this.#options;
    const watch = committer.watchSeries();
    let forgotten: number[];
    try {
      const idle = await port.idleSeries();
      forgotten = idle.filter((id) => !watch.named.has(id) && !isKept(id));
      if (forgotten.length === 0) return 0;
      catalogue.forget(forgotten);
      this.#options.onForgotten(forgotten);
    } finally {
      watch.end();
    }
    // The store performs calls in order, so it forgets the series before their numbers are reused.
    await port.forgetSeries(forgotten);
    return forgotten.length;
  }
}
