import type { Clock } from '../../base/clock.ts';
import { StoreError } from '../../base/errors.ts';
import type { SeriesCatalogue } from '../../buffer/series.ts';
import type { Tag, TagValue } from '../../config/tags.ts';
import { SourceStatus } from '../status.ts';
import { AddressBook } from './address-book.ts';
import { Draft, type DraftOptions } from './draft.ts';
import { Gate, type GateOptions } from './gate.ts';
import type { Stamps } from './stamps.ts';
import { observeAll } from './value-watch.ts';

const PATIENCE_MS = 5_000;

export interface IntakeOptions extends Omit<GateOptions, 'status' | 'timeFrom' | 'repeats' | 'maxWaiting'> {
  catalogue: SeriesCatalogue;
  tags: ReadonlyMap<string, Tag>;
  /** Whether VALUES_PATH contains an instrumentation, which is then part of the series address. */
  byInstrumentation?: boolean;
  /** Maximum number of series that programs may open; unlimited if omitted. */
  maxSeries?: number | undefined;
  /** Called for each value that is rejected because of this limit. */
  onSeriesLimit?: () => void;
}

/**
 * Entry point for all values. A draft collects and validates values; `submit` writes either all or none of them to
 * disk.
 */
export class Intake {
  readonly #options: IntakeOptions;
  readonly #book: AddressBook;
  readonly #stamps: Stamps;
  /** Gates of pushed values, by kind of request. */
  readonly #gates = new Map<string, Gate>();

  constructor(options: IntakeOptions) {
    const { catalogue, tags, byInstrumentation = false, maxSeries, onSeriesLimit } = options;
    this.#options = options;
    this.#book = new AddressBook(catalogue, tags, byInstrumentation, maxSeries, onSeriesLimit);
    this.#stamps = options.stamps;
  }

  /** Applies a reload: new drafts use these tags. Values accepted earlier are not changed. */
  replaceTags(tags: ReadonlyMap<string, Tag>, byInstrumentation?: boolean): void {
    this.#book.replaceTags(tags, byInstrumentation);
  }

  setMaxSeries(maxSeries: number): void {
    this.#book.setMaxSeries(maxSeries);
  }

  /** Returns whether tags.yaml contains the series. */
  isOfTag(series: number): boolean {
    return this.#book.isOfTag(series);
  }

  /** Returns a draft for one request. Values without a time get the current time. */
  draft(options?: DraftOptions): Draft {
    return new Draft(this.#book, this.#stamps, this.#stamps.nowMs(this.#options.clock), options);
  }

  /** Opens and returns the series of a value that a source in tags.yaml reads. Called when the source starts. */
  seriesOf(tag: Tag, value: TagValue): number {
    return this.#book.openOfTag(tag, value);
  }

  /** Returns the series of a value, or `undefined` if no value has been accepted for the series yet. */
  seriesIfOpen(tag: Tag, value: TagValue): number | undefined {
    return this.#book.seriesIfOpen(tag, value);
  }

  /**
   * Resolves with the number of values when all of them are on disk. Throws `RejectedValues` before anything is stored,
   * or the `StoreError` of the commit.
   */
  async submit(draft: Draft, source: string): Promise<number> {
    const columns = draft.finish();
    // The gate owns the columns after the call, so read their length first.
    const { length } = columns;
    if (length === 0) return 0;
    const { watch, clock } = this.#options;
    const pending = observeAll(watch, columns);
    if (pending.size > 0) await withinPatience(Promise.all(pending), clock);
    await this.#gateOf(source).writeColumns(columns, true);
    return length;
  }

  #gateOf(source: string): Gate {
    const known = this.#gates.get(source);
    if (known) return known;
    const { clock, log } = this.#options;
    const status = new SourceStatus({ name: source, kind: 'push', points: [], isPolled: false, clock, log });
    const gate = new Gate({ ...this.#options, status, timeFrom: 'source', repeats: true });
    this.#gates.set(source, gate);
    return gate;
  }
}

/**
 * Waits for the rule transitions caused by values. Rejects with a retryable error if they cannot be stored in time, so
 * that the sender sends the values again.
 */
async function withinPatience(stored: Promise<unknown>, clock: Clock): Promise<void> {
  const late = Promise.withResolvers<never>();
  const cancel = clock.after(PATIENCE_MS, () =>
    late.reject(new StoreError('cannot store a rule on local values', { code: 'buffer.busy', retryable: true })),
  );
  await Promise.race([stored, late.promise]).finally(cancel);
}
