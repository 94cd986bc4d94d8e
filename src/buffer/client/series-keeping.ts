/**
 * Forgets series that have no values: a program that puts a serial number into its key opens one after the other, and each
 * costs memory for as long as it is known. Nothing happens while there are few of them.
 *
 * The store says which have nothing; one that was named while it looked is kept, and so is one that tags.yaml names.
 * Whoever learned a number before asks `SeriesCatalogue.isCurrent`. Nothing is written: a crash leaves what was there.
 */
import type { Clock } from '../../base/clock.ts';
import type { SeriesCatalogue } from '../series.ts';
import type { Committer } from './committer.ts';

export interface SeriesKeepingOptions {
  port: { idleSeries(): Promise<number[]>; forgetSeries(ids: readonly number[]): Promise<void> };
  catalogue: SeriesCatalogue;
  committer: Pick<Committer, 'watchSeries'>;
  clock: Clock;
  /** Whether a series is kept whatever stands of it. */
  isKept(series: number): boolean;
  /** Told in the moment in which the numbers become free. */
  onForgotten(series: readonly number[]): void;
}

const FIRST_PAUSE_MS = 10_000;
/** Where looking found little, it is not done again soon. */
const LAST_PAUSE_MS = 300_000;
const LITTLE = 1 / 16;

export class SeriesKeeping {
  readonly #options: SeriesKeepingOptions;
  #looks = false;
  #notBeforeMs = Number.NEGATIVE_INFINITY;
  #pauseMs = FIRST_PAUSE_MS;

  constructor(options: SeriesKeepingOptions) {
    this.#options = options;
  }

  /** Looks for series to forget, now and then, however often it is asked. Gives how many were forgotten. */
  async keep(): Promise<number> {
    const { catalogue, clock } = this.#options;
    const nowMs = clock.monotonicMs();
    if (this.#looks || nowMs < this.#notBeforeMs) return 0;
    this.#looks = true;
    try {
      const before = catalogue.size;
      const forgotten = await this.forget();
      this.#pauseMs = forgotten > before * LITTLE ? FIRST_PAUSE_MS : Math.min(LAST_PAUSE_MS, this.#pauseMs * 2);
      return forgotten;
    } finally {
      this.#looks = false;
      this.#notBeforeMs = clock.monotonicMs() + this.#pauseMs;
    }
  }

  /** Forgets what may be forgotten now; gives how many. */
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
    // The store hears of it before anything that gives the numbers to others: calls are answered in their order.
    await port.forgetSeries(forgotten);
    return forgotten.length;
  }
}
