import type { UnitReference } from '../contract/values.ts';

/**
 * Where a value goes: one series. `series` is 0 until the first value of it is accepted, so that a request that is
 * refused leaves nothing behind in the catalogue.
 */
export interface Slot {
  readonly asset: number;
  readonly key: string;
  readonly group: string | undefined;
  readonly unit: UnitReference | undefined;
  readonly instrumentation: number | undefined;
  series: number;
  /** `SeriesCatalogue.forgettings` when the series was learned: it may have been forgotten since. */
  learned: number;
  /** Named by tags.yaml: such series do not count against MAX_SERIES. */
  readonly ofTag: boolean;
  /** The address as a program last wrote it in JSON, from the brace on: for who reads many values of one writer. */
  written: Uint8Array;
  /** The slot that came behind this one last time: who sends the same tags every second sends them in the same order. */
  next: Slot | undefined;
}
