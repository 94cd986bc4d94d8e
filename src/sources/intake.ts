import type { Clock } from '../base/clock.ts';
import type { SeriesCatalogue } from '../buffer/series.ts';
import type { Tag, TagValue } from '../config/tags.ts';
import { AddressBook } from './address-book.ts';
import { Draft, type DraftOptions } from './draft.ts';
import type { LastReadings } from './last-readings.ts';
import type { Stamps } from './stamps.ts';
import type { CountIngested, ValueSink } from './value-sink.ts';

export interface IntakeOptions {
  catalogue: SeriesCatalogue;
  tags: ReadonlyMap<string, Tag>;
  /** VALUES_PATH names an instrumentation: it is part of a series then. */
  byInstrumentation?: boolean;
  sink: ValueSink;
  /** The one gate that gives times of arrival. */
  stamps: Stamps;
  clock: Clock;
  /** For people who look. */
  readings?: LastReadings | undefined;
  /** How many series programs may open; without a bound where it is left out. */
  maxSeries?: number | undefined;
  /** Told after each commit. */
  countIngested?: CountIngested;
  /** Of them: values whose time lies more than a day ahead of a clock that can be trusted. */
  countAhead?: CountIngested;
}

/**
 * What every value comes through: a draft takes values in and says what is wrong with them, `submit` puts them on
 * disk. All of a draft or nothing of it.
 */
export class Intake {
  readonly #book: AddressBook;
  readonly #sink: ValueSink;
  readonly #stamps: Stamps;
  readonly #clock: Clock;
  readonly #readings: LastReadings | undefined;
  readonly #countIngested: CountIngested;
  readonly #countAhead: CountIngested;

  constructor(options: IntakeOptions) {
    this.#book = new AddressBook(
      options.catalogue,
      options.tags,
      options.byInstrumentation ?? false,
      options.maxSeries,
    );
    this.#sink = options.sink;
    this.#stamps = options.stamps;
    this.#clock = options.clock;
    this.#readings = options.readings;
    this.#countIngested = options.countIngested ?? (() => {});
    this.#countAhead = options.countAhead ?? (() => {});
  }

  /** After a reload: drafts begun from now on know these tags. Values accepted before stay where they are. */
  replaceTags(tags: ReadonlyMap<string, Tag>, byInstrumentation?: boolean): void {
    this.#book.replaceTags(tags, byInstrumentation);
  }

  /** After a reload. */
  setMaxSeries(maxSeries: number): void {
    this.#book.setMaxSeries(maxSeries);
  }

  /** Whether tags.yaml names the series. */
  isOfTag(series: number): boolean {
    return this.#book.isOfTag(series);
  }

  /** Begins a request; values without a time get this moment. */
  draft(options?: DraftOptions): Draft {
    return new Draft(this.#book, this.#stamps, this.#stamps.nowMs(this.#clock), options);
  }

  /** The series of a value that a source of tags.yaml reads: opened at the source's start. */
  seriesOf(tag: Tag, value: TagValue): number {
    return this.#book.openOfTag(tag, value);
  }

  /** `undefined` where nothing was accepted for it yet. */
  seriesIfOpen(tag: Tag, value: TagValue): number | undefined {
    return this.#book.seriesIfOpen(tag, value);
  }

  /**
   * Resolves with the number of values when they are all on disk. Throws `RefusedValues` before anything is stored,
   * or what the sink rejects with.
   */
  async submit(draft: Draft, source: string): Promise<number> {
    const columns = draft.finish();
    // The sink owns the columns from here on: their length is read before.
    const { length } = columns;
    if (length === 0) return 0;
    this.#readings?.takeAll(columns, this.#clock.monotonicMs());
    await this.#sink.append(columns);
    this.#countIngested(source, length);
    if (draft.ahead > 0) this.#countAhead(source, draft.ahead);
    return length;
  }
}
