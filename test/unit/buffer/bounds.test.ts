import { rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Database, openDatabase } from '../../../src/base/database.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../../src/buffer/series.ts';
import type { BufferBounds } from '../../../src/buffer/space/bounds.ts';
import type { StoreFacts } from '../../../src/buffer/store-facts.ts';
import { ValueStore } from '../../../src/buffer/value-store.ts';
import { newFolder } from '../../fresh-folder.ts';
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
  folder = newFolder('tagferry-bounds-');
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
  const opening = ValueStore.open(
    database,
    path,
    {
      bounds: { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest', ...bounds },
      flushAfterMs: 5_000,
      flushValues: 20_000,
    },
    { monotonicMs: nowMs, wallMs: 0, boot: 'one' },
  );
  store = opening.store;
  catalogue = new SeriesCatalogue(opening.series);
}

function note(facts: StoreFacts): StoreFacts {
  dropped.push(...facts.dropped);
  return facts;
}

/** One second of random readings. */
function second(count = 2000): StoreFacts {
  nowMs += 1000;
  const columns = new ValueColumns();
  for (let i = 0; i < count; i++) {
    columns.add(catalogue.idOf(1 + (i % 4), 'k', undefined, undefined), nowMs, random(), 0);
    value++;
  }
  let facts = note(store.commit({ columns, newSeries: catalogue.takeUnsaved(), monotonicMs: nowMs }));
  while (facts.maintenanceDue) facts = note(store.maintain({ monotonicMs: nowMs }));
  return facts;
}

const commit = () => note(store.commit({ columns: undefined, newSeries: [], monotonicMs: nowMs }));
const onDisk = () =>
  ['buffer.db', 'buffer.db-wal'].reduce(
    (sum, name) => sum + (statSync(join(folder, name), { throwIfNoEntry: false })?.size ?? 0),
    0,
  );
const standing = () => store.facts().logValues + store.facts().segmentValues;

/** Delivers all waiting values. */
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

describe('size limit', () => {
  it('is never exceeded on disk, and the oldest values are dropped and counted', () => {
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
    // Most of the space is used.
    expect(standing()).toBeGreaterThan(50_000);
  });

  it('drops no values with refuse-new, and allows new values after deliveries', () => {
    open({ maxBytes: 3_000_000, full: 'refuse-new' });
    expect(() => {
      for (let i = 0; i < 400; i++) second();
    }).toThrow(expect.objectContaining({ code: 'buffer.full', retryable: true }));
    const before = standing();
    expect(dropped).toEqual([]);
    // Deliveries are recorded although new values are rejected.
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

/** Commits and runs background work until nothing is due. */
function settleDown(): StoreFacts {
  let facts = store.facts();
  for (let quiet = 0; quiet < 3; ) {
    nowMs += 2_000;
    const before = onDisk() + standing();
    facts = commit();
    for (let steps = 0; facts.maintenanceDue && steps < 50; steps++)
      facts = note(store.maintain({ monotonicMs: nowMs }));
    for (let steps = 0; facts.oversized && steps < 5_000; steps++) facts = note(store.vacuum());
    quiet = !facts.dirty && onDisk() + standing() === before ? quiet + 1 : 0;
  }
  return facts;
}

/** Applies bounds, as a reload does. */
const bind = (bounds: Partial<BufferBounds>) =>
  note(
    store.configure({
      bounds: { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest', ...bounds },
      flushAfterMs: 5_000,
      flushValues: 20_000,
    }),
  );
const goneBy = (reason: string) =>
  dropped.filter((one) => one.reason === reason).reduce((sum, { values }) => sum + values, 0);

describe('reduced size limit', () => {
  it.each([
    ['small groups', 20_000],
    ['groups that fill a log', 131_072],
    ['a few large groups', 400_000],
  ])('causes only the oldest values to be dropped, and no more than necessary: %s', (_, flushValues) => {
    open({});
    store.configure({
      bounds: { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' },
      flushAfterMs: 1e9,
      flushValues,
    });
    const count = 20_000;
    for (let i = 0; i < 60; i++) second(count);
    bind({});
    settleDown();
    const before = onDisk();
    expect(before).toBeGreaterThan(10_000_000);
    const perValue = before / value;
    for (const maxBytes of [10_000_000, 8_000_000, 2_000_000]) {
      const forecast = store.operator.forecastDrops({ maxBytes });
      const stood = standing();
      const facts = bind({ maxBytes });
      expect(facts.maintenanceDue).toBe(true);
      settleDown();
      expect(onDisk()).toBeLessThanOrEqual(maxBytes);
      expect(standing() * perValue).toBeGreaterThan(maxBytes * 0.8);
      expect(goneBy('bytes') + standing()).toBe(value);
      expect(stood - standing()).toBeGreaterThan(forecast.values * 0.8);
      expect(stood - standing()).toBeLessThan(forecast.values * 1.3 + 30_000);
    }
    // Only the newest values of each series remain, in order.
    const left = standing();
    const times: number[] = [];
    const overtaken: number[] = [];
    let posts = 0;
    for (let asset = 1; asset <= 4; asset++) {
      let last = 0;
      for (;;) {
        const { batch } = store.take({ asset, lane: 'backlog', maxValues: 5_000, maxBytes: 480_000 });
        if (!batch) break;
        posts++;
        const body = JSON.parse(new TextDecoder().decode(batch.body)) as {
          values: { data: { timestamp: string }[] }[];
        };
        for (const { timestamp } of body.values[0]!.data) {
          const timeMs = Date.parse(timestamp);
          if (timeMs < last) overtaken.push(timeMs);
          if (last === 0) times.push(timeMs);
          last = timeMs;
        }
        note(store.settle(batch.id));
      }
    }
    expect(times).toHaveLength(4);
    expect(overtaken).toEqual([]);
    // Batches are full, except at the end of each asset and group.
    expect(posts).toBeLessThan(left / 5_000 + 4 * 3);
    const expectedFirst = 1000 + (60 - left / count) * 1000;
    for (const timeMs of times) expect(Math.abs(timeMs - expectedFirst)).toBeLessThan(6_000);
  });

  it('leaves most of the smallest recommended size in use while values are continuously dropped', () => {
    open({ maxBytes: 8_000_000 });
    let least = Number.POSITIVE_INFINITY;
    for (let i = 0; i < 500; i++) {
      second(5_000);
      expect(onDisk()).toBeLessThanOrEqual(8_000_000);
      if (i > 250) least = Math.min(least, standing());
    }
    expect(goneBy('bytes') + goneBy('age')).toBeGreaterThan(1_000_000);
    expect(least * 8.7).toBeGreaterThan(8_000_000 * 0.7);
    settleDown();
    expect(goneBy('bytes') + standing()).toBe(value);
  });

  it('preserves the values that fit within the smallest of several limits', () => {
    open({});
    for (let i = 0; i < 100; i++) second(5_000);
    for (let turn = 0; turn < 40; turn++) {
      bind({ maxBytes: [0, 3_000_000, 4_000_000, 0][turn % 4]! });
      if (turn % 3 === 0) second(10);
      else commit();
    }
    bind({ maxBytes: 3_000_000 });
    settleDown();
    expect(onDisk()).toBeLessThanOrEqual(3_000_000);
    expect(standing() * 8.7).toBeGreaterThan(3_000_000 * 0.75);
    expect(goneBy('bytes') + standing()).toBe(value);
  });

  it('drops no values with refuse-new, and rejects values until enough have been delivered', () => {
    open({});
    for (let i = 0; i < 100; i++) second(5_000);
    bind({ maxBytes: 2_000_000, full: 'refuse-new' });
    settleDown();
    expect(dropped).toEqual([]);
    expect(standing()).toBe(value);
    expect(() => second(10)).toThrow(expect.objectContaining({ code: 'buffer.full' }));
    value -= 10;
    expect(deliverAll()).toBe(value);
    settleDown();
    second(10);
    expect(standing()).toBe(10);
  });
});

describe('quarantine', () => {
  /** Makes the platform reject all values of asset 1, and returns their number. */
  function refuseAsset1(): number {
    let values = 0;
    for (;;) {
      const { batch } = store.take({ asset: 1, lane: 'backlog', maxValues: 5_000, maxBytes: 480_000 });
      if (!batch) break;
      values += batch.values;
      note(store.quarantine(batch.id, { status: 422, message: 'no', atMs: nowMs }));
    }
    commit();
    return values;
  }

  it('is dropped before unposted values, oldest first, and no more than necessary', () => {
    open({});
    for (let i = 0; i < 100; i++) second(5_000);
    settleDown();
    const refused = refuseAsset1();
    expect(refused).toBeGreaterThan(100_000);
    const waiting = standing();
    const first = store.operator.showQuarantine({ after: 0, limit: 1 })[0]!.id;
    expect(store.operator.forecastDrops({ maxBytes: 3_700_000 })).toMatchObject({ values: 0 });
    bind({ maxBytes: 3_700_000 });
    const facts = settleDown();
    expect(goneBy('bytes')).toBe(0);
    expect(standing()).toBe(waiting);
    expect(goneBy('quarantine') + facts.quarantined).toBe(refused);
    expect(goneBy('quarantine')).toBeGreaterThan(0);
    expect(facts.quarantined).toBeGreaterThan(0);
    expect(store.operator.showQuarantine({ after: 0, limit: 1 })[0]!.id).toBeGreaterThan(first);
    expect(onDisk()).toBeLessThanOrEqual(3_700_000);
    store.close();
    open({ maxBytes: 3_700_000 });
    expect(store.facts().quarantined).toBe(facts.quarantined);
  });

  it('does not displace unposted values even if it exceeds the limit', () => {
    open({});
    for (let i = 0; i < 100; i++) second(5_000);
    settleDown();
    refuseAsset1();
    expect(deliverAll(300_000)).toBeGreaterThan(0);
    settleDown();
    const waiting = standing();
    bind({ maxBytes: 1_000_000 });
    settleDown();
    expect(goneBy('bytes')).toBe(0);
    expect(standing()).toBe(waiting);
    expect(onDisk()).toBeLessThanOrEqual(1_000_000);
  });
});

describe('age limit', () => {
  it('drops old values based on the monotonic clock', () => {
    open({ maxAgeMs: 600_000 });
    for (let i = 0; i < 1500; i++) second(20);
    // Spans are dropped as a whole, and a span covers the time between two flushes.
    expect(nowMs - store.facts().oldestAcceptedMs!).toBeLessThan(600_000 + 130_000 + 130_000);
    const gone = dropped.filter(({ reason }) => reason === 'age').reduce((sum, one) => sum + one.values, 0);
    expect(gone).toBeGreaterThan(10_000);
    expect(gone + standing()).toBe(value);
    expect(standing()).toBeGreaterThan(5_000);
  });
});

describe('disk space', () => {
  it('is returned to the file system after deliveries', () => {
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
      facts = store.vacuum();
      steps++;
    }
    // Each step returns several hundred pages.
    expect(steps).toBeLessThan(30);
    store.close();
    expect(statSync(join(folder, 'buffer.db')).size).toBeLessThan(full / 10);
    open({});
  });
});

describe('deleted-value count', () => {
  it('is reported only after a purge is committed', () => {
    open({});
    for (let i = 0; i < 10; i++) second(400);
    const asset = catalogue.ofAsset(2).map((series) => series.id);
    database.pragma('query_only = 1');
    const { values, facts } = store.operator.purge({ series: asset });
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

  it('is reported only after a drop caused by a limit is committed', () => {
    open({ maxAgeMs: 60_000 });
    for (let i = 0; i < 100; i++) second(20);
    commit();
    dropped = [];
    nowMs += 120_000;
    // A commit checks the limit, and the next commit stores the drop.
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
