import { join } from 'node:path';
import { expect } from 'vitest';
import { type Database, openDatabase } from '../../../src/base/database.ts';
import { readLogRow } from '../../../src/buffer/format/log-row.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../../src/buffer/series.ts';
import type { BufferBounds } from '../../../src/buffer/space/bounds.ts';
import type { CommitRequest, StoreFacts, ValueStoreOptions } from '../../../src/buffer/store-facts.ts';
import { type OpenedValueStore, ValueStore } from '../../../src/buffer/value-store.ts';

export const BOUNDS: BufferBounds = { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' };
const NEVER = Number.POSITIVE_INFINITY;

/** A store on disk, its results and its rows. */
export class StoreFolder {
  readonly folder: string;
  readonly path: string;
  database!: Database;
  opened!: OpenedValueStore;
  store!: ValueStore;
  catalogue!: SeriesCatalogue;

  constructor(folder: string) {
    this.folder = folder;
    this.path = join(folder, 'buffer.db');
    this.open();
  }

  open(more: Partial<ValueStoreOptions> = {}, monotonicMs = 1_000): void {
    this.database = openDatabase(this.path);
    const options = { bounds: { ...BOUNDS }, flushAfterMs: 1_000, flushValues: 1_000, ...more };
    this.opened = ValueStore.open(this.database, this.path, options, { boot: 'one', monotonicMs, wallMs: 0 });
    this.store = this.opened.store;
    this.catalogue = new SeriesCatalogue(this.opened.series);
  }

  /** Commits these readings by `asset/key`. */
  commit(readings: Record<string, number[]> = {}, more: Partial<CommitRequest> = {}): StoreFacts {
    const columns = new ValueColumns();
    for (const [place, values] of Object.entries(readings)) {
      const [asset, key] = place.split('/') as [string, string];
      const series = this.catalogue.idOf(Number(asset), key, undefined, undefined);
      for (const value of values) columns.add(series, value, value, 0);
    }
    const newSeries = this.catalogue.takeUnsaved();
    const whole = { columns: columns.length > 0 ? columns : undefined, newSeries, monotonicMs: 1_000, wallMs: 7_000 };
    return this.store.commit({ ...whole, ...more });
  }

  take(lane: 'live' | 'backlog' = 'live', asset = 1) {
    return this.store.take({ asset, lane, maxValues: 100, maxBytes: 100_000 });
  }

  rows(table: string): unknown[] {
    return this.database.prepare(`SELECT * FROM ${table} ORDER BY 1`).raw().all();
  }

  /** Returns the log rows. */
  log() {
    return (this.rows('log') as [number, Buffer][]).map(([id, row]) => {
      const { run, monotonicMs, firstSeq, values, settled } = readLogRow(row);
      const { length, series, value } = values;
      return {
        id,
        run,
        monotonicMs,
        firstSeq,
        series: [...series.subarray(0, length)],
        values: [...value.subarray(0, length)],
        settled,
      };
    });
  }
}

/** Facts without disk usage and age, which other tests check. */
export const withoutDisk = ({ disk, oldestAcceptedMs: _, ...facts }: StoreFacts) => {
  expect(disk.bytes).toBeGreaterThan(0);
  return facts;
};
export const IDLE = {
  ...{ lanes: [], logValues: 0, segmentValues: 0, notLoaded: 0, quarantined: 0, spans: 0 },
  ...{
    short: false,
    full: false,
    spare: false,
    oversized: false,
    dirty: false,
    maintenanceDue: false,
    isCarrying: false,
  },
  ...{ dropped: [], damaged: [] },
};
export const lane = (asset: number, more = {}) => ({
  asset,
  live: 0,
  oldestLiveAtMs: NEVER,
  backlog: 0,
  oldestBacklogAt: NEVER,
  ...more,
});
