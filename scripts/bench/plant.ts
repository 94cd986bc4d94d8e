/** Readings for all benchmarks: 500 interleaved series of slowly varying decimals, or random doubles. */
import { ValueColumns } from '../../src/buffer/format/value-columns.ts';

export const SERIES = 500;
/** Ten keys per asset. */
export const ASSETS = SERIES / 10;

export class Plant {
  readonly #level: Float64Array;
  readonly #kind: 'decimals' | 'doubles';
  #state = 1;
  #timeMs = Date.UTC(2026, 10, 21);
  #at = 0;

  constructor(kind: 'decimals' | 'doubles' = 'decimals', series = SERIES) {
    this.#kind = kind;
    this.#level = new Float64Array(series).fill(2000);
  }

  /** xorshift32, for the same readings in every run. */
  #random(): number {
    this.#state ^= this.#state << 13;
    this.#state ^= this.#state >>> 17;
    this.#state ^= this.#state << 5;
    return (this.#state >>> 0) / 4294967296;
  }

  /** Returns the next `count` readings; series are numbered from 1. */
  next(count: number): ValueColumns {
    const columns = new ValueColumns();
    for (let i = 0; i < count; i++) {
      const series = this.#at++ % this.#level.length;
      if (series === 0) this.#timeMs += 1000;
      this.#level[series]! += Math.round((this.#random() - 0.5) * 20);
      const value = this.#kind === 'decimals' ? this.#level[series]! / 100 : this.#random() * 100;
      columns.add(series + 1, this.#timeMs, value, 0);
    }
    return columns;
  }
}
