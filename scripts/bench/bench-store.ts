import { SeriesCatalogue } from '../../src/buffer/series.ts';
import type { ValueColumns } from '../../src/buffer/value-columns.ts';
import { ValueStore } from '../../src/buffer/value-store.ts';
import { openDatabase } from '../../src/database.ts';
import { SERIES } from './plant.ts';

/** The store without its thread, as bare as the loops beside it: ten series an asset, folded as the daemon folds. */
export function benchStore(path: string, count = SERIES) {
  const store = new ValueStore(openDatabase(path), path, {
    bounds: { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' },
    foldAfterMs: 20_000,
    foldValues: 128 * 1024,
  });
  const { series } = store.open({ monotonicMs: performance.now(), wallMs: 0, boot: 'bench' });
  const catalogue = new SeriesCatalogue(series);
  for (let i = 0; i < count; i++) catalogue.idOf(1 + Math.floor(i / 10), `k${i % 10}`, undefined, { id: 12 });
  /** Commits and tidies up until there is nothing to tidy. */
  const commit = (columns?: ValueColumns) => {
    const monotonicMs = performance.now();
    let facts = store.commit({ columns, newSeries: catalogue.takeNew(), monotonicMs, wallMs: 0 });
    while (facts.untidy) facts = store.tidy({ monotonicMs });
    return facts;
  };
  return { store, catalogue, commit };
}
