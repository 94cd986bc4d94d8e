import { SourceStatus } from '../status.ts';
import { AddressBook, type AddressBookOptions } from './address-book.ts';
import { Draft, type DraftOptions } from './draft.ts';
import { Gate, type GateOptions } from './gate.ts';
import { ValueTimes } from './times.ts';

export type IntakeOptions = AddressBookOptions & Omit<GateOptions, 'status' | 'timeFrom' | 'repeats' | 'maxWaiting'>;

/**
 * Entry point for pushed values, and the address book of all values. A draft collects and validates the values of a
 * request; `submit` writes either all or none of them to disk.
 */
export class Intake extends AddressBook {
  readonly #options: IntakeOptions;
  readonly #times: ValueTimes;
  /** Gates of pushed values, by kind of request. */
  readonly #gates = new Map<string, Gate>();

  constructor(options: IntakeOptions) {
    super(options);
    this.#options = options;
    this.#times = options.times ?? new ValueTimes();
  }

  /** Returns a draft for one request. Values without a time get the current time. */
  draft(options?: DraftOptions): Draft {
    const { stamps, clock } = this.#options;
    return new Draft(this, stamps, this.#times, stamps.nowMs(clock), options);
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
    const gate = this.#gateOf(source);
    if (draft.zoneProblem !== undefined) gate.reportMissingZone(draft.zoneProblem);
    await gate.writeColumns(columns);
    return length;
  }

  #gateOf(source: string): Gate {
    const known = this.#gates.get(source);
    if (known) return known;
    const { clock, log } = this.#options;
    const status = new SourceStatus({ name: source, kind: 'push', points: [], isPolled: false, clock, log });
    const nameOf = (series: number) => this.nameOf(series);
    const gate = new Gate({ ...this.#options, times: this.#times, nameOf, status, timeFrom: 'source', repeats: true });
    this.#gates.set(source, gate);
    return gate;
  }
}
