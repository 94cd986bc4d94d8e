/** Memory used by a series, and removal of series without values. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openDatabase } from '../../../src/base/database.ts';
import { SeriesKeeping } from '../../../src/buffer/client/series-keeping.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../../src/buffer/series.ts';
import type { ValueStoreOptions } from '../../../src/buffer/store-facts.ts';
import { ValueStore } from '../../../src/buffer/value-store.ts';
import type { Tag } from '../../../src/config/tags.ts';
import { AddressBook } from '../../../src/sources/intake/address-book.ts';
import { Draft } from '../../../src/sources/intake/draft.ts';
import { RejectedValues } from '../../../src/sources/intake/problem-list.ts';
import { Stamps } from '../../../src/sources/intake/stamps.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const PLACE = { boot: 'one', wallMs: 0 };

let folder: string;
let store: ValueStore;
let catalogue: SeriesCatalogue;
let nowMs: number;
let stamps: Stamps;

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

function keeping(isKept: (series: number) => boolean = () => false): SeriesKeeping {
  return new SeriesKeeping({
    port: {
      idleSeries: async () => store.idleSeries(),
      forgetSeries: async (ids) => store.forgetSeries(ids),
    },
    catalogue,
    committer: { watchSeries: () => ({ named: new Set(), end: () => true }) },
    clock: new ManualClock(0, 1),
    isKept,
    onForgotten: (series) => stamps.forget(series),
  });
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
  stamps = new Stamps();
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
});

describe('series without buffered values', () => {
  it('is evicted from memory, and later values are delivered as before', async () => {
    write(1_000);
    settleDown();
    expect(drain()).toBe(1_000);
    // Some series have a new value and are kept.
    write(100);
    expect(await keeping().forget()).toBe(900);
    expect(catalogue.size).toBe(100);
    // The numbers are reused, and the previous addresses have new numbers.
    write(500, 2, 10_000);
    write(300, 1, 500);
    const wanted = new Set([...catalogue.all()].map(({ asset, key }) => `${asset} ${key}`));
    expect(wanted.size).toBe(900);
    expect(Math.max(...[...catalogue.all()].map(({ id }) => id))).toBeLessThanOrEqual(1_000);
    store.close();
    open();
    expect(new Set([...catalogue.all()].map(({ asset, key }) => `${asset} ${key}`))).toEqual(wanted);
    const keys = new Map<string, number>();
    for (const asset of [1, 2]) {
      for (;;) {
        const { batch } = store.take({ asset, lane: 'live', maxValues: 5_000, maxBytes: 480_000 });
        if (!batch) break;
        const body = JSON.parse(new TextDecoder().decode(batch.body)) as { values: { key: string; data: unknown[] }[] };
        for (const { key, data } of body.values) keys.set(`${asset} ${key}`, data.length);
        store.settle(batch.id);
      }
    }
    expect(new Set(keys.keys())).toEqual(wanted);
  });

  it('is kept in memory if listed in tags.yaml, held, quarantined or in flight', async () => {
    const ids = [0, 1, 2, 3, 4].map((i) => catalogue.idOf(1, `k${i}`, undefined, undefined));
    const columns = new ValueColumns();
    for (const id of ids) columns.add(id, nowMs, 1, 0);
    commit(columns);
    const { batch } = store.take({ asset: 1, lane: 'live', maxValues: 5, maxBytes: 10_000, onlySeries: [ids[2]!] });
    store.quarantine(batch!.id, { status: 422, message: 'no', atMs: 0 });
    const inFlight = store.take({ asset: 1, lane: 'live', maxValues: 5, maxBytes: 10_000, onlySeries: [ids[3]!] });
    expect(inFlight.batch?.values).toBe(1);
    store.holdSeries([ids[1]!]);
    expect(await keeping((id) => id === ids[0]).forget()).toBe(0);
    store.settle(inFlight.batch!.id);
    for (const one of [ids[0]!, ids[1]!, ids[4]!]) {
      const { batch: next } = store.take({ asset: 1, lane: 'live', maxValues: 5, maxBytes: 10_000, onlySeries: [one] });
      store.settle(next!.id);
    }
    commit();
    settleDown();
    await keeping((id) => id === ids[0]).forget();
    expect([...catalogue.all()].map(({ id }) => id)).toEqual([ids[0], ids[1], ids[2]]);
  });

  it('is not confused with its successor by a slow request', async () => {
    const book = new AddressBook(catalogue, new Map(), false);
    const slot = () => book.findDirect({ asset: 1, key: 'flow', unit: undefined, group: undefined });
    const draftOf = () => {
      const draft = new Draft(book, new Stamps(), nowMs);
      const found = slot();
      if ('series' in found) draft.add(found, 1, nowMs, 0);
      return draft;
    };
    commit(draftOf().finish());
    expect(drain()).toBe(1);
    const slow = draftOf();
    expect(await keeping().forget()).toBe(1);
    expect(catalogue.idOf(7, 'other', undefined, undefined)).toBe(1);
    expect(() => slow.finish()).toThrow(expect.objectContaining({ code: 'buffer.busy', retryable: true }));
    const series = draftOf().finish().series[0]!;
    expect(catalogue.get(series)).toMatchObject({ asset: 1, key: 'flow' });
  });

  it('cannot be referenced by a commit that does not define it', () => {
    const columns = new ValueColumns();
    columns.add(99, nowMs, 1, 0);
    expect(() => commit(columns)).toThrow(expect.objectContaining({ code: 'store.no_series' }));
    expect(store.facts().logValues).toBe(0);
  });

  it('never uses the same arrival timestamp twice, even after a clock step', async () => {
    const book = new AddressBook(catalogue, new Map(), false);
    const arrive = (atMs: number) => {
      const draft = new Draft(book, stamps, atMs);
      const slot = book.findDirect({ asset: 1, key: 'flow', unit: undefined, group: undefined });
      if ('series' in slot) draft.add(slot, 1, Number.NaN, 0);
      const columns = draft.finish();
      commit(columns);
      return columns.timeMs[0]!;
    };
    const first = arrive(5_000_000);
    expect(drain()).toBe(1);
    expect(await keeping().forget()).toBe(1);
    expect(arrive(4_999_000)).toBeGreaterThan(first);
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
    const draft = new Draft(book, new Stamps(), nowMs);
    for (let i = 0; i < count; i++) {
      const slot = book.findDirect({ asset, key: `k${i}`, unit: undefined, group: undefined });
      if ('series' in slot) draft.add(slot, 1, nowMs, 0);
    }
    return draft;
  };

  it('strictly limits the series created by programs, but not the series in tags.yaml', () => {
    const book = new AddressBook(catalogue, TAGS, false, 5);
    expect(offer(book, 5, 1).finish().length).toBe(5);
    expect(() => offer(book, 1, 2).finish()).toThrow(RejectedValues);
    const draft = new Draft(book, new Stamps(), nowMs);
    for (const key of ['a', 'b', 'c']) draft.add(draft.slotOfTag('FT-101', key)!, 1, nowMs, 0);
    expect(draft.finish().length).toBe(3);
    expect(() => offer(book, 1, 2).finish()).toThrow(RejectedValues);
    // Values of open series are accepted.
    expect(offer(book, 5, 1).finish().length).toBe(5);
    book.setMaxSeries(6);
    expect(offer(book, 1, 2).finish().length).toBe(1);
  });
});
