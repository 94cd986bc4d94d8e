import { openDatabase } from '../../src/base/database.ts';
import type { ValueColumns } from '../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../src/buffer/series.ts';
import { ValueStore } from '../../src/buffer/value-store.ts';
import { SERIES } from './plant.ts';

/** Opens the store without its thread, with ten series per asset and the agent's flush settings. */
export function benchStore(path: string, count = SERIES) {
  const opening = ValueStore.open(
    openDatabase(path),
    path,
    {
      bounds: { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' },
      flushAfterMs: 20_000,
      flushValues: 128 * 1024,
    },
    { monotonicMs: performance.now(), wallMs: 0, boot: 'bench' },
  );
  const { store, series } = opening;
  const catalogue = new SeriesCatalogue(series);
  for (let i = 0; i < count; i++) catalogue.idOf(1 + Math.floor(i / 10), `k${i % 10}`, undefined, { id: 12 });
  /** Commits and runs all due maintenance. */
  const commit = (columns?: ValueColumns) => {
    const monotonicMs = performance.now();
    let facts = store.commit({ columns, newSeries: catalogue.takeUnsaved(), monotonicMs });
    while (facts.maintenanceDue) facts = store.maintain({ monotonicMs });
    return facts;
  };
  return { store, catalogue, commit };
}
