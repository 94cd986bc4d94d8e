import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { BufferBounds } from '../../src/buffer/bounds.ts';
import { SeriesCatalogue } from '../../src/buffer/series.ts';
import type { StoreFacts } from '../../src/buffer/store-facts.ts';
import { ValueColumns } from '../../src/buffer/value-columns.ts';
import { ValueStore } from '../../src/buffer/value-store.ts';
import { type Database, openDatabase } from '../../src/database.ts';
import { seeded } from '../sources/sink-double.ts';

let folder: string;
let store: ValueStore;
let database: Database;
let catalogue: SeriesCatalogue;
let nowMs = 0;
let value = 0;
let dropped: StoreFacts['dropped'];
const random = seeded(5);

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-bounds-'));
  nowMs = 1000;
  value = 0;
  dropped = [];
});
afterEach(() => {
  store.close();
  rmSync(folder, { recursive: true, force: true });
});

function open(bounds: Partial<BufferBounds>): void {
  const path = join(folder, 'buffer.db');
  database = openDatabase(path);
  store = new ValueStore(database, path, {
    bounds: { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest', ...bounds },
    foldAfterMs: 5_000,
    foldValues: 20_000,
  });
  catalogue = new SeriesCatalogue(store.open({ monotonicMs: nowMs, wallMs: 0, boot: 'one' }).series);
}

function note(facts: StoreFacts): StoreFacts {
  dropped.push(...facts.dropped);
  return facts;
}

/** A second of readings; random doubles, so that they take what they take. */
function second(count = 2000): StoreFacts {
  nowMs += 1000;
  const columns = new ValueColumns();
  for (let i = 0; i < count; i++) {
    columns.add(catalogue.idOf(1 + (i % 4), 'k', undefined, undefined), nowMs, random(), 0);
    value++;
  }
  let facts = note(store.commit({ columns, newSeries: catalogue.takeNew(), monotonicMs: nowMs, wallMs: 0 }));
  while (facts.untidy) facts = note(store.tidy({ monotonicMs: nowMs }));
  return facts;
}

const commit = () => note(store.commit({ columns: undefined, newSeries: [], monotonicMs: nowMs, wallMs: 0 }));
const onDisk = () =>
  readdirSync(folder).reduce((sum, name) => sum + (name.endsWith('-shm') ? 0 : statSync(join(folder, name)).size), 0);
const standing = () => store.facts().logValues + store.facts().segmentValues;

/** Delivers everything that stands. */
function deliverAll(most = Number.POSITIVE_INFINITY): number {
  let values = 0;
  for (let asset = 1; asset <= 4; asset++) {
    for (const lane of ['backlog', 'live'] as const) {
      for (;;) {
        const { batch } = store.take({ asset, lane, maxValues: 5000, maxBytes: 480_000 });
        if (!batch) break;
        values += batch.values;
        note(store.settle(batch.id));
        if (values >= most) return values;
      }
    }
  }
  return values;
}

describe('the bound on bytes', () => {
  it('is never passed on disk: the oldest values go, whole spans at a time, and each is counted', () => {
    const maxBytes = 3_000_000;
    open({ maxBytes });
    for (let i = 0; i < 400; i++) {
      second();
      expect(onDisk()).toBeLessThanOrEqual(maxBytes);
    }
    commit();
    const gone = dropped.filter(({ reason }) => reason === 'bytes').reduce((sum, one) => sum + one.values, 0);
    expect(gone).toBeGreaterThan(100_000);
    expect(gone + standing()).toBe(value);
    // It is a bound, not a cliff: most of the room is used.
    expect(standing()).toBeGreaterThan(50_000);
  });

  it('refuses new values by refuse-new, drops nothing, and takes them again once some were delivered', () => {
    open({ maxBytes: 3_000_000, full: 'refuse-new' });
    expect(() => {
      for (let i = 0; i < 400; i++) second();
    }).toThrow(expect.objectContaining({ code: 'buffer.full', retryable: true }));
    const before = standing();
    expect(dropped).toEqual([]);
    // Values keep coming while it drains: what was delivered is recorded all the same.
    deliverAll(before / 2);
    let refusals = 0;
    for (let i = 0; i < 20; i++) {
      try {
        second(10);
        break;
      } catch {
        refusals++;
        expect(store.facts().dirty).toBe(false);
      }
    }
    expect(refusals).toBeGreaterThan(0);
    expect(refusals).toBeLessThan(5);
  });
});

describe('the bound on age', () => {
  it('drops what is older, by the clock that nobody sets', () => {
    open({ maxAgeMs: 600_000 });
    for (let i = 0; i < 1500; i++) second(20);
    // Whole spans go, which are as long as folding waits.
    expect(store.facts().oldestAgeMs).toBeLessThan(600_000 + 130_000);
    const gone = dropped.filter(({ reason }) => reason === 'age').reduce((sum, one) => sum + one.values, 0);
    expect(gone).toBeGreaterThan(10_000);
    expect(gone + standing()).toBe(value);
    expect(standing()).toBeGreaterThan(5_000);
  });
});

describe('space', () => {
  it('goes back to the file system once values are delivered', () => {
    open({});
    for (let i = 0; i < 200; i++) second();
    commit();
    const full = onDisk();
    expect(full).toBeGreaterThan(3_000_000);
    expect(deliverAll()).toBe(value);
    nowMs += 1000;
    let facts = commit();
    expect(facts.disk.reusableBytes).toBeGreaterThan(2_000_000);
    let steps = 0;
    while (facts.disk.reusableBytes > 100_000 && steps < 200) {
      facts = store.giveSpaceBack();
      steps++;
    }
    // Some hundred pages a step, not one.
    expect(steps).toBeLessThan(30);
    store.close();
    expect(statSync(join(folder, 'buffer.db')).size).toBeLessThan(full / 10);
    open({});
  });
});

describe('what an operator deletes', () => {
  it('counts once it is on disk: a commit that fails leaves it for the next, and says nothing of it', () => {
    open({});
    for (let i = 0; i < 10; i++) second(400);
    const asset = catalogue.ofAsset(2).map((series) => series.id);
    database.pragma('query_only = 1');
    const { values, facts } = store.purge({ series: asset });
    expect(values).toBe(1000);
    expect(facts).toMatchObject({ dropped: [], dirty: true });
    expect(commit).toThrow(expect.objectContaining({ code: 'SQLITE_READONLY' }));
    expect(store.facts()).toMatchObject({ dropped: [], dirty: true });
    database.pragma('query_only = 0');
    expect(commit()).toMatchObject({ dropped: [{ reason: 'purge', values: 1000 }], dirty: false });
    expect(standing()).toBe(3000);
    store.close();
    open({});
    expect(standing()).toBe(3000);
  });

  it('is the same for what a bound drops', () => {
    open({ maxAgeMs: 60_000 });
    for (let i = 0; i < 100; i++) second(20);
    commit();
    dropped = [];
    nowMs += 120_000;
    // The bound is looked at with a commit; what it drops goes with the next.
    second(20);
    expect(dropped).toEqual([]);
    database.pragma('query_only = 1');
    expect(commit).toThrow();
    expect(store.facts().dropped).toEqual([]);
    database.pragma('query_only = 0');
    commit();
    expect(dropped.reduce((sum, one) => sum + one.values, 0)).toBeGreaterThan(0);
  });
});
