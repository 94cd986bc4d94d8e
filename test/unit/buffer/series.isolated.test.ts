/** Memory used by a series, and the limit on their number. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openDatabase } from '../../../src/base/database.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../../src/buffer/series.ts';
import type { ValueStoreOptions } from '../../../src/buffer/store-facts.ts';
import { ValueStore } from '../../../src/buffer/value-store.ts';
import type { Tag } from '../../../src/config/tags.ts';
import { AddressBook } from '../../../src/sources/intake/address-book.ts';
import { Draft } from '../../../src/sources/intake/draft.ts';
import { RejectedValues } from '../../../src/sources/intake/problem-list.ts';
import { Stamps } from '../../../src/sources/intake/stamps.ts';
import { ValueTimes } from '../../../src/sources/intake/times.ts';

const PLACE = { boot: 'one', wallMs: 0 };

let folder: string;
let store: ValueStore;
let catalogue: SeriesCatalogue;
let nowMs: number;

function open(): void {
  const database = openDatabase(join(folder, 'buffer.db'));
  const options: ValueStoreOptions = {
    bounds: { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' },
    flushAfterMs: 10_000,
    flushValues: 128 * 1024,
  };
  const opened = ValueStore.open(database, join(folder, 'buffer.db'), options, { ...PLACE, monotonicMs: nowMs });
  store = opened.store;
  catalogue = new SeriesCatalogue(opened.series);
}

function commit(columns?: ValueColumns) {
  return store.commit({ columns, newSeries: catalogue.takeUnsaved(), monotonicMs: nowMs });
}

/** Accepts one value for each of `count` series of the given number of assets. */
function write(count: number, assets = 1, from = 0): void {
  for (let at = 0; at < count; at += 5_000) {
    const columns = new ValueColumns();
    for (let i = at; i < Math.min(count, at + 5_000); i++) {
      const key = `machine.serial-${from + i}`;
      columns.add(catalogue.idOf(1 + (i % assets), key, 'process', { id: 12 }), nowMs + i, i, 0);
    }
    commit(columns);
  }
}

/** Flushes everything and deletes the log rows. */
function settleDown(): void {
  nowMs += 200_000;
  for (
    let step = 0, facts = store.maintain({ monotonicMs: nowMs });
    step < 10_000 && (facts.maintenanceDue || facts.dirty);
    step++
  ) {
    facts = facts.maintenanceDue ? store.maintain({ monotonicMs: nowMs }) : commit();
    if (facts.dirty) facts = commit();
  }
}

function drain(): number {
  let values = 0;
  for (const asset of [1, 2, 3]) {
    for (const lane of ['backlog', 'live'] as const) {
      for (;;) {
        const { batch } = store.take({ asset, lane, maxValues: 5_000, maxBytes: 480_000 });
        if (!batch) break;
        values += batch.values;
        store.settle(batch.id);
      }
    }
  }
  commit();
  return values;
}

function usedBytes(): number {
  const collect = runInNewContext('gc') as () => void;
  for (let i = 0; i < 3; i++) collect();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

beforeEach(() => {
  setFlagsFromString('--expose-gc');
  folder = mkdtempSync(join(tmpdir(), 'series-'));
  nowMs = 1_000_000;
  open();
});
afterEach(() => {
  store.close();
  rmSync(folder, { recursive: true, force: true });
});

describe('series', () => {
  it('uses less than 400 bytes while values are pending and after a restart', async () => {
    const few = 10_000;
    const many = 70_000;
    write(few);
    settleDown();
    const withFew = usedBytes();
    write(many - few, 1, few);
    settleDown();
    const running = (usedBytes() - withFew) / (many - few);
    expect(store.facts().segmentValues).toBe(many);
    expect(catalogue.size).toBe(many);
    store.close();
    store = undefined as never;
    catalogue = undefined as never;
    // By now, objects of the previous round are garbage-collected.
    await new Promise((resolve) => setImmediate(resolve));
    const empty = usedBytes();
    open();
    const started = (usedBytes() - empty) / many;
    expect(store.facts().segmentValues).toBe(many);
    // Memory in both threads: store and catalogue.
    expect({ running: running < 400, started: started < 400 }, `${running} and ${started} bytes`).toEqual({
      running: true,
      started: true,
    });
  });

  it('is not loaded at startup if it has no buffered values', () => {
    write(2_000);
    settleDown();
    expect(drain()).toBe(2_000);
    write(10, 1, 5_000);
    store.close();
    open();
    expect(catalogue.size).toBe(10);
    expect([...catalogue.all()].map(({ key }) => key)).toContain('machine.serial-5003');
  });

  it('cannot be referenced by a commit that does not define it', () => {
    const columns = new ValueColumns();
    columns.add(99, nowMs, 1, 0);
    expect(() => commit(columns)).toThrow(expect.objectContaining({ code: 'store.no_series' }));
    expect(store.facts().logValues).toBe(0);
  });
});

describe('MAX_SERIES', () => {
  const TAGS = new Map<string, Tag>([
    [
      'FT-101',
      {
        name: 'FT-101',
        asset: 881,
        values: new Map(['a', 'b', 'c'].map((key) => [key, { key, unit: { id: 1 } }])),
      } as unknown as Tag,
    ],
  ]);
  const offer = (book: AddressBook, count: number, asset: number) => {
    const draft = new Draft(book, new Stamps(), new ValueTimes(), nowMs);
    for (let i = 0; i < count; i++) {
      const slot = book.findDirect({ asset, key: `k${i}`, unit: undefined, group: undefined });
      if ('series' in slot) draft.add(slot, 1, nowMs, 0);
    }
    return draft;
  };

  it('strictly limits the series created by programs, but not the series in tags.yaml', () => {
    const book = new AddressBook({ catalogue, tags: TAGS, maxSeries: 5, log: silentLogger() });
    expect(offer(book, 5, 1).finish().length).toBe(5);
    expect(() => offer(book, 1, 2).finish()).toThrow(RejectedValues);
    const draft = new Draft(book, new Stamps(), new ValueTimes(), nowMs);
    for (const key of ['a', 'b', 'c']) draft.add(draft.slotOfTag('FT-101', key)!, 1, nowMs, 0);
    expect(draft.finish().length).toBe(3);
    expect(() => offer(book, 1, 2).finish()).toThrow(RejectedValues);
    // Values of open series are accepted.
    expect(offer(book, 5, 1).finish().length).toBe(5);
    book.reload(TAGS, false, 6);
    expect(offer(book, 1, 2).finish().length).toBe(1);
  });
});
