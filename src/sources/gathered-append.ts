import { type Columns, ValueColumns } from '../buffer/value-columns.ts';
import type { Clock } from '../clock.ts';
import { codeOf, messageOf } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { TroubleLog } from './trouble-log.ts';
import { type CountIngested, retryAfterOf, type ValueSink } from './value-sink.ts';

export interface GatheredAppendOptions {
  /** Of the source in tags.yaml. */
  name: string;
  sink: ValueSink;
  clock: Clock;
  log: Logger;
  countIngested?: CountIngested;
  /** Values that may wait behind the append under way; 10,000 unless told. */
  mostWaiting?: number;
}

interface Waiter {
  resolve: () => void;
  reject: (reason: unknown) => void;
}

/**
 * For sources that bring values one by one. One append is under way at most; what comes meanwhile goes together with the next, so a
 * hundred messages between two commits cost one append. While the store refuses, values wait here and
 * are offered again; beyond the bound new ones are refused and counted. A crash loses what waits, none of which was acknowledged.
 */
export class GatheredAppend {
  readonly #options: GatheredAppendOptions;
  readonly #trouble: TroubleLog;
  readonly #end = new AbortController();
  #columns = new ValueColumns();
  #waiters: Waiter[] = [];
  #running: Promise<void> | undefined;
  /** Values refused because too many waited. */
  dropped = 0;

  constructor(options: GatheredAppendOptions) {
    this.#options = options;
    this.#trouble = new TroubleLog(options.log, options.clock);
  }

  /** Resolves when the values are on disk. Rejects when too many wait, and when the source stops before. */
  add(values: Columns): Promise<void> {
    const { mostWaiting = 10_000, name: source } = this.#options;
    if (this.#end.signal.aborted) return Promise.reject(new Error('the source has stopped'));
    if (this.#columns.length + values.length > mostWaiting) {
      this.dropped += values.length;
      this.#trouble.again(
        { event: 'source.values_dropped', source, dropped: this.dropped },
        'Values were not taken: too many wait',
      );
      return Promise.reject(new Error('too many values wait for the disk'));
    }
    this.#columns.addAll(values);
    return new Promise((resolve, reject) => {
      this.#waiters.push({ resolve, reject });
      this.#running ??= this.#run();
    });
  }

  /** Ends waiting for a store that refuses; what is being written is still acknowledged. */
  async stop(): Promise<void> {
    this.#end.abort(new Error('the source has stopped'));
    await this.#running;
  }

  async #run(): Promise<void> {
    const { signal } = this.#end;
    while (this.#columns.length > 0) {
      const columns = this.#columns;
      const waiters = this.#waiters;
      this.#columns = new ValueColumns();
      this.#waiters = [];
      try {
        await this.#append(columns, signal);
        for (const { resolve } of waiters) resolve();
      } catch (error) {
        for (const { reject } of waiters) reject(error);
      }
    }
    // In the same turn as the look at the length: a value added later finds no run that has ended.
    this.#running = undefined;
  }

  async #append(columns: ValueColumns, signal: AbortSignal): Promise<void> {
    const { sink, clock, name: source, countIngested } = this.#options;
    const { length } = columns;
    for (;;) {
      // The sink owns what it gets, and what it refuses is offered again: so it gets a copy.
      const copy = new ValueColumns();
      copy.addAll(columns);
      try {
        await sink.append(copy);
        this.#trouble.over('source.store_refused', { source }, 'The store takes the values of a source again');
        countIngested?.(source, length);
        return;
      } catch (error) {
        const retryAfterMs = retryAfterOf(error);
        const fields = { source, code: codeOf(error), error: messageOf(error) };
        this.#trouble.again(
          { event: 'source.store_refused', ...fields },
          'The store does not take the values of a source',
        );
        if (retryAfterMs === undefined) throw error;
        await clock.sleep(Math.max(100, retryAfterMs), signal);
      }
    }
  }
}
