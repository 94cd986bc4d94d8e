import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { openDatabase } from '../../../src/base/database.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../../src/buffer/series.ts';
import { ValueStore } from '../../../src/buffer/value-store.ts';

/** Creates a buffer with that many incompressible values in segments. Returns its path. */
export function fillBuffer(state: string, values: number): string {
  mkdirSync(state, { mode: 0o700 });
  const path = join(state, 'buffer.db');
  const options = {
    bounds: { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' } as const,
    flushAfterMs: 1_000,
    flushValues: 1_000_000,
  };
  const now = { monotonicMs: 1, wallMs: 0, boot: 'a' };
  const { store, series } = ValueStore.open(openDatabase(path), path, options, now);
  const catalogue = new SeriesCatalogue(series);
  const ids = Array.from({ length: 40 }, (_, i) => catalogue.idOf(881 + (i % 4), `k${i}`, undefined, undefined));
  let nowMs = 1_000;
  const rest = () => {
    nowMs += 200_000;
    for (let facts = store.facts(); facts.maintenanceDue; ) facts = store.maintain({ monotonicMs: nowMs });
  };
  for (let done = 0; done < values; ) {
    const columns = new ValueColumns();
    for (let i = 0; i < 20_000; i++, done++) {
      // Golden ratio step: consecutive values differ in every digit.
      columns.add(ids[done % ids.length]!, 1_700_000_000_000 + done, (done * 0.618_033_988_749_895) % 1, 0);
    }
    store.commit({ columns, newSeries: catalogue.takeUnsaved(), monotonicMs: nowMs });
    rest();
  }
  // Until the log is empty.
  for (let i = 0; i < 3; i++) {
    store.commit({ columns: undefined, newSeries: [], monotonicMs: nowMs });
    rest();
  }
  store.close();
  return path;
}
