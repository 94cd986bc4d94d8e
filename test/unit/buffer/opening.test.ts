/** Startup of a store: unreadable rows, and series left on disk because of the memory limit. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openDatabase } from '../../../src/base/database.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../../src/buffer/series.ts';
import { ValueStore } from '../../../src/buffer/value-store.ts';
import { newFolder } from '../../fresh-folder.ts';

let folder: string;
let path: string;
beforeEach(() => {
  folder = newFolder('tagferry-opening-');
  path = join(folder, 'buffer.db');
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function open(maxLoadedSeries?: number) {
  const bounds = { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' as const };
  const options = { bounds, flushAfterMs: 60_000, flushValues: 1_000, maxLoadedSeries };
  const now = { monotonicMs: 1_000, wallMs: 0, boot: 'one' };
  return ValueStore.open(openDatabase(path), path, options, now);
}

/** Five commits with two values each, of different series. */
function fill(): void {
  const { store } = open();
  const catalogue = new SeriesCatalogue();
  for (let commit = 0; commit < 5; commit++) {
    const columns = new ValueColumns();
    for (const key of ['a', 'b']) columns.add(catalogue.idOf(1, `${key}${commit}`, undefined, undefined), 5, 1, 0);
    store.commit({ columns, newSeries: catalogue.takeUnsaved(), monotonicMs: 1_000 });
  }
  store.close();
}

describe('store startup', () => {
  it('reports an unreadable row once', () => {
    fill();
    const database = openDatabase(path);
    database.exec("UPDATE log SET row = x'00' WHERE id = (SELECT max(id) FROM log)");
    database.close();
    const { store, facts } = open();
    expect(facts.damaged).toEqual([{ what: 'log', values: 0 }]);
    expect(facts.logValues).toBe(8);
    expect(store.facts().damaged).toEqual([]);
    store.close();
  });

  it.each([
    [undefined, 10, 0],
    [10, 10, 0],
    [4, 4, 6],
    // A row is loaded completely or not at all; the first one is always loaded.
    [5, 4, 6],
    [1, 2, 8],
  ])('with a limit of %s series loads %d and leaves %d values on disk', (max, loaded, left) => {
    fill();
    const { store, series, facts } = open(max);
    expect([series.length, facts.notLoaded, facts.logValues]).toEqual([loaded, left, loaded]);
    store.close();
  });

  it('always loads the first span, and later spans up to the limit', () => {
    const { store: filled } = open();
    const catalogue = new SeriesCatalogue();
    for (let turn = 1; turn <= 2; turn++) {
      const columns = new ValueColumns();
      for (const key of ['a', 'b']) columns.add(catalogue.idOf(1, `${key}${turn}`, undefined, undefined), 5, 1, 0);
      filled.commit({ columns, newSeries: catalogue.takeUnsaved(), monotonicMs: 1_000 });
      const monotonicMs = turn * 1e6;
      for (let steps = 0; steps < 100 && filled.maintain({ monotonicMs }).maintenanceDue; steps++);
      filled.commit({ columns: undefined, newSeries: [], monotonicMs });
    }
    expect(filled.facts()).toMatchObject({ logValues: 0, segmentValues: 4 });
    filled.close();
    for (const [max, loaded] of [
      [4, 4],
      [3, 2],
      [1, 2],
    ]) {
      const { store, facts } = open(max);
      expect([facts.segmentValues, facts.notLoaded]).toEqual([loaded, 4 - loaded!]);
      store.close();
    }
  });

  it('continues the series numbering and stores a series without a value', () => {
    fill();
    const { store, series } = open();
    const catalogue = new SeriesCatalogue(series);
    catalogue.idOf(1, 'late', undefined, undefined);
    store.commit({ columns: undefined, newSeries: catalogue.takeUnsaved(), monotonicMs: 1_000 });
    store.close();
    const database = openDatabase(path);
    expect(database.prepare('SELECT DISTINCT since FROM series ORDER BY since').pluck().all()).toEqual([
      1, 2, 3, 4, 5, 6,
    ]);
    database.close();
  });
});
