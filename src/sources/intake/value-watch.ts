import { type Columns, STATUS_FLAGS, STATUS_MASK } from '../../buffer/format/value-columns.ts';
import type { ValueStatus } from '../../contract/values.ts';

/**
 * Interface through which inputs pass values to value rules. Receives accepted values before the dead band is applied.
 */
export interface ValueWatch {
  /** Whether any series is watched. */
  readonly isIdle: boolean;
  uses(series: number): boolean;
  /**
   * Called in order of acceptance. Returns a promise that resolves when the rule transitions caused by this value and
   * by earlier values of the series are on disk, or undefined if there are no such transitions. The value must not be
   * confirmed before the promise resolves.
   */
  observe(
    series: number,
    value: number,
    timestampMs: number,
    status: ValueStatus | undefined,
  ): Promise<void> | undefined;
}

const STATUS_OF = new Map<number, ValueStatus>(
  Object.entries(STATUS_FLAGS).map(([status, flags]) => [flags, status as ValueStatus]),
);

/** Passes the watched values of a batch to `watch`. Returns the promises for which the batch must wait. */
export function observeAll(
  watch: ValueWatch | undefined,
  { length, series, timeMs, value, flags }: Columns,
): Set<Promise<void>> {
  const pending = new Set<Promise<void>>();
  if (watch === undefined || watch.isIdle) return pending;
  for (let at = 0; at < length; at++) {
    if (!watch.uses(series[at]!)) continue;
    const stored = watch.observe(series[at]!, value[at]!, timeMs[at]!, STATUS_OF.get(flags[at]! & STATUS_MASK));
    if (stored) pending.add(stored);
  }
  return pending;
}
