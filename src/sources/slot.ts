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
}
