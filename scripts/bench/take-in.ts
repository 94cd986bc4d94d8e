/** Takes readings into a store at 1,000 a commit and ends: what a layer below counts is the store's alone. */
import { SeriesCatalogue } from '../../src/buffer/series.ts';
import { ValueStore } from '../../src/buffer/value-store.ts';
import { openDatabase } from '../../src/database.ts';
import { Plant, SERIES } from './plant.ts';

const [path, total] = [process.argv[2]!, Number(process.argv[3])];
const store = new ValueStore(openDatabase(path), path, {
  bounds: { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' },
  foldAfterMs: 20_000,
  foldValues: 256 * 1024,
});
store.open({ monotonicMs: 0, wallMs: 0, boot: 'bench' });
const catalogue = new SeriesCatalogue();
for (let i = 0; i < SERIES; i++) catalogue.idOf(1 + Math.floor(i / 10), `k${i % 10}`, undefined, { id: 12 });
const plant = new Plant();
for (let done = 0; done < total; done += 1000) {
  const monotonicMs = performance.now();
  let facts = store.commit({ columns: plant.next(1000), newSeries: catalogue.takeNew(), monotonicMs, wallMs: 0 });
  while (facts.untidy) facts = store.tidy({ monotonicMs });
}
