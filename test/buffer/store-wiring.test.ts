/** What the store hands on between its parts, seen by what it does. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { openDatabase } from '../../src/base/database.ts';
import { ValueColumns } from '../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../src/buffer/series.ts';
import type { StoreFacts } from '../../src/buffer/store-facts.ts';
import { ValueStore } from '../../src/buffer/value-store.ts';
import { memoryFolder } from '../memory-folder.ts';

const SERIES = ['a', 'b', 'c', 'd'];

let folder: string;
let store: ValueStore;
let catalogue: SeriesCatalogue;
let now: { monotonicMs: number; wallMs: number };
let values: number;
let dropped: StoreFacts['dropped'];

const options = (maxBytes: number) => {
  const bounds = { maxBytes, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' } as const;
  // What is in the log is flushed at once.
  return { bounds, flushAfterMs: 1_000, flushValues: 0 };
};

beforeEach(() => {
  now = { monotonicMs: 1_000, wallMs: 0 };
  folder = memoryFolder('tagferry-store-wiring-');
  const path = join(folder, 'buffer.db');
  const opened = ValueStore.open(openDatabase(path), path, options(0), { ...now, boot: 'one' });
  store = opened.store;
  catalogue = new SeriesCatalogue(opened.series);
  values = 0;
  dropped = [];
});
afterEach(() => {
  store.close();
  rmSync(folder, { recursive: true, force: true });
});

/** So many values of each series, all that is due for them, and it is on disk. */
function bring(each: number): StoreFacts {
  now.monotonicMs += 1_000;
  const columns = new ValueColumns();
  for (let i = 0; i < each; i++)
    // Readings that take what they take.
    for (const key of SERIES) columns.add(catalogue.idOf(1, key, undefined, undefined), i, Math.sin(++values), 0);
  const said = [store.commit({ columns: each > 0 ? columns : undefined, newSeries: catalogue.takeNew(), ...now })];
  while (said.at(-1)!.maintenanceDue || said.at(-1)!.dirty) {
    if (said.length > 100) expect.fail('it is never done');
    said.push(store.maintain(now), store.commit({ columns: undefined, newSeries: [], ...now }));
  }
  dropped.push(...said.flatMap((facts) => facts.dropped));
  return said.at(-1)!;
}

it('compacts no more at once than may be dropped whole by the bound on bytes', () => {
  store.configure(options(500_000));
  for (let i = 1; i <= 20; i++) expect(bring(10).spans).toBe(i);
  // Sixteen of them, once a bound is so far that they are little beside it.
  store.configure(options(100_000_000));
  expect(bring(10).spans).toBe(6);
  expect(dropped).toEqual([]);
});

it('takes no part of a flush for the bound on bytes while it is copied out, and takes it then', () => {
  bring(5_000);
  // The row of the log is gone, and its pages are counted off. An eighth of the bound is kept free: so much is too much.
  const { disk } = bring(0);
  const id = store.operator.beginExport({});
  store.configure(options(disk.usedBytes));
  expect(bring(0)).toMatchObject({ segmentValues: values, maintenanceDue: false });
  expect(dropped).toEqual([]);
  let copied = 0;
  for (let isDone = false; !isDone; ) {
    const { columns, done } = store.operator.exportPage(id);
    copied += columns.length;
    isDone = done;
  }
  expect(copied).toBe(values);
  store.operator.endExport(id);
  const { segmentValues } = bring(0);
  expect(new Set(dropped.map(({ reason }) => reason))).toEqual(new Set(['bytes']));
  expect(dropped.reduce((sum, one) => sum + one.values, 0)).toBe(values - segmentValues);
  expect(segmentValues).toBeGreaterThan(values / 2);
});
