import type { SeriesCatalogue } from '../buffer/series.ts';
import type { Clock } from '../clock.ts';
import type { Tag, TagValue } from '../config/tags.ts';
import { AddressBook } from './address-book.ts';
import { Draft } from './draft.ts';
import type { CountIngested, ValueSink } from './value-sink.ts';

export interface IntakeOptions {
  catalogue: SeriesCatalogue;
  tags: ReadonlyMap<string, Tag>;
  sink: ValueSink;
  clock: Clock;
  /** Told after each commit. */
  countIngested?: CountIngested;
}

/**
 * The door that every value comes through: a draft takes values in and says what is wrong with them, `submit` puts them on
 * disk. All of a draft or nothing of it.
 */
export class Intake {
  readonly #book: AddressBook;
  readonly #catalogue: SeriesCatalogue;
  readonly #sink: ValueSink;
  readonly #clock: Clock;
  readonly #countIngested: CountIngested;

  constructor(options: IntakeOptions) {
    this.#book = new AddressBook(options.catalogue, options.tags);
    this.#catalogue = options.catalogue;
    this.#sink = options.sink;
    this.#clock = options.clock;
    this.#countIngested = options.countIngested ?? (() => {});
  }

  /** After a reload: drafts begun from now on know these tags. Values accepted before stay where they are. */
  replaceTags(tags: ReadonlyMap<string, Tag>): void {
    this.#book.replaceTags(tags);
  }

  /** Begins a request of about `expected` values; those without a time get this moment. */
  draft(expected?: number): Draft {
    return new Draft(this.#book, Math.max(0, Math.round(this.#clock.wallMs())), expected);
  }

  /** The series of a value that a source of tags.yaml reads: opened at the source's start. */
  seriesOf(tag: Tag, value: TagValue): number {
    return this.#catalogue.idOf(tag.asset, value.key, value.group, value.unit);
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
    await this.#sink.append(columns);
    this.#countIngested(source, length);
    return length;
  }
}
