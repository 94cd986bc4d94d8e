/** What the store answers to each call, as a whole, and what the rows of its log say. */
import { cpSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Database, openDatabase } from '../../src/base/database.ts';
import { readLogRow } from '../../src/buffer/format/log-row.ts';
import { ValueColumns } from '../../src/buffer/format/value-columns.ts';
import { SeriesCopy } from '../../src/buffer/recovery/series-copy.ts';
import { SeriesCatalogue } from '../../src/buffer/series.ts';
import type { BufferBounds } from '../../src/buffer/space/bounds.ts';
import { segmentId } from '../../src/buffer/span.ts';
import type { CommitRequest, StoreFacts, ValueStoreOptions } from '../../src/buffer/store-facts.ts';
import { originSum, prepareStatements } from '../../src/buffer/tables.ts';
import { type OpenedValueStore, ValueStore } from '../../src/buffer/value-store.ts';
import { memoryFolder } from '../memory-folder.ts';

const BOUNDS: BufferBounds = { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' };
const NEVER = Number.POSITIVE_INFINITY;

let folder: string;
let path: string;
let database: Database;
let opened: OpenedValueStore;
let store: ValueStore;
let catalogue: SeriesCatalogue;

function open(more: Partial<ValueStoreOptions> = {}, monotonicMs = 1_000): void {
  database = openDatabase(path);
  const options = { bounds: { ...BOUNDS }, flushAfterMs: 1_000, flushValues: 1_000, ...more };
  opened = ValueStore.open(database, path, options, { boot: 'one', monotonicMs, wallMs: 0 });
  store = opened.store;
  catalogue = new SeriesCatalogue(opened.series);
}

beforeEach(() => {
  folder = memoryFolder('tagferry-store-calls-');
  path = join(folder, 'buffer.db');
  open();
});
afterEach(() => {
  store.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Values of an asset's series each, by readings. */
function commit(readings: Record<string, number[]> = {}, more: Partial<CommitRequest> = {}): StoreFacts {
  const columns = new ValueColumns();
  for (const [place, values] of Object.entries(readings)) {
    const [asset, key] = place.split('/') as [string, string];
    for (const value of values) columns.add(catalogue.idOf(Number(asset), key, undefined, undefined), value, value, 0);
  }
  const newSeries = catalogue.takeNew();
  const whole = { columns: columns.length > 0 ? columns : undefined, newSeries, monotonicMs: 1_000, wallMs: 7_000 };
  return store.commit({ ...whole, ...more });
}

const take = (lane: 'live' | 'backlog' = 'live', asset = 1) =>
  store.take({ asset, lane, maxValues: 100, maxBytes: 100_000 });
const rows = (table: string) => database.prepare(`SELECT * FROM ${table} ORDER BY 1`).raw().all();

/** Each row of the log: its values by series, and what it says is settled. */
const log = () =>
  (rows('log') as [number, Buffer][]).map(([id, row]) => {
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

/** Without the figures of the disk, which are another's. */
const said = ({ disk, ...facts }: StoreFacts) => {
  expect(disk.bytes).toBeGreaterThan(0);
  return facts;
};
const QUIET = {
  ...{ lanes: [], logValues: 0, segmentValues: 0, notLoaded: 0, quarantined: 0, spans: 0, oldestAgeMs: 0 },
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
const lane = (asset: number, more = {}) => ({
  asset,
  live: 0,
  oldestLiveAtMs: NEVER,
  backlog: 0,
  oldestBacklogAt: NEVER,
  ...more,
});

describe('a store', () => {
  it('that is new has nothing, and writes nothing where there is nothing to write', () => {
    expect([opened.series, said(opened.facts)]).toEqual([[], QUIET]);
    expect(said(commit())).toEqual(QUIET);
    expect([rows('run'), rows('log')]).toEqual([[], []]);
    expect(said(commit({}, { notes: [] }))).toEqual(QUIET);
    expect(rows('run')).toEqual([]);
    expect(said(commit({}, { notes: [{ name: 'a/b', text: 'c' }] }))).toEqual(QUIET);
    expect([rows('run').length, rows('log'), store.notes('a/'), store.notes('b')]).toEqual([
      1,
      [],
      [{ name: 'a/b', text: 'c' }],
      [],
    ]);
    catalogue.idOf(1, 'k', undefined, undefined);
    expect(said(commit())).toEqual(QUIET);
    expect(rows('series').length).toBe(1);
    commit({ '1/k': [1] });
    expect(log().map(({ id }) => id)).toEqual([1]);
  });

  it('tells of each asset what waits once it has changed, of its values where they stand, and how old the oldest is', () => {
    expect(said(commit({ '1/a': [1, 2], '2/a': [3] }))).toEqual({
      ...QUIET,
      lanes: [lane(1, { live: 2, oldestLiveAtMs: 1_000 }), lane(2, { live: 1, oldestLiveAtMs: 1_000 })],
      logValues: 3,
    });
    expect(said(store.facts())).toEqual({ ...QUIET, logValues: 3 });
    expect(said(commit({ '2/a': [4] }, { monotonicMs: 1_400 }))).toEqual({
      ...QUIET,
      lanes: [lane(2, { live: 2, oldestLiveAtMs: 1_000 })],
      logValues: 4,
      oldestAgeMs: 400,
    });
    const taken = take();
    expect(taken.batch).toMatchObject({ id: 1, asset: 1, values: 2, liveValues: 2, backlogValues: 0 });
    expect(said(taken.facts)).toEqual({ ...QUIET, lanes: [lane(1)], logValues: 4, oldestAgeMs: 400 });
    expect(said(take().facts)).toEqual({ ...QUIET, logValues: 4, oldestAgeMs: 400 });
    expect(said(store.release(1)).lanes).toEqual([lane(1, { live: 2, oldestLiveAtMs: 1_000 })]);
    const { batch } = take();
    expect(said(store.settle(batch!.id))).toEqual({
      ...QUIET,
      lanes: [lane(1)],
      logValues: 2,
      oldestAgeMs: 400,
      dirty: true,
    });
    expect(said(commit())).toEqual({ ...QUIET, logValues: 2, oldestAgeMs: 0 });
    expect(said(store.holdSeries([3]))).toEqual({ ...QUIET, logValues: 2 });
    expect(said(store.holdSeries([2]))).toEqual({ ...QUIET, lanes: [lane(2)], logValues: 2 });
    expect(said(store.holdSeries([]))).toEqual({
      ...QUIET,
      lanes: [lane(2, { live: 2, oldestLiveAtMs: 1_000 })],
      logValues: 2,
    });
  });

  it('writes with each commit a row: when, of which run, the values in their order, and what has left since', () => {
    commit({ '1/a': [1, 2], '2/a': [3] }, { monotonicMs: 1_000.6 });
    const { batch } = take();
    store.settle(batch!.id);
    commit();
    commit({ '2/a': [4] }, { monotonicMs: -3 });
    expect(log()).toEqual([
      { id: 1, run: 1, monotonicMs: 1_001, firstSeq: 0, series: [1, 1, 2], values: [1, 2, 3], settled: [] },
      {
        id: 2,
        run: 1,
        monotonicMs: 1_000,
        firstSeq: 3,
        series: [],
        values: [],
        settled: [{ series: 1, firstSeq: 0, lastSeq: 1 }],
      },
      { id: 3, run: 1, monotonicMs: 0, firstSeq: 3, series: [2], values: [4], settled: [] },
    ]);
    expect(rows('run')).toEqual([[1, 'one', 7_000, 1_000.6, 1_000.6]]);
    store.close();
    open({}, 5_000);
    expect(said(opened.facts)).toEqual({
      ...QUIET,
      logValues: 2,
      lanes: [lane(1), lane(2, { live: 2, oldestLiveAtMs: 1_001 })],
    });
    commit({ '1/b': [5] }, { monotonicMs: 5_000 });
    expect(log().at(-1)).toMatchObject({ id: 4, run: 2, firstSeq: 4, values: [5] });
    expect(rows('run')).toHaveLength(2);
  });

  it('knows which of two series with one number is the later, also after a commit that failed and a start', () => {
    const since = () => database.prepare('SELECT id, since FROM series ORDER BY id').raw().all();
    commit({ '1/a': [1] });
    commit({ '1/b': [1], '1/c': [1] });
    const columns = new ValueColumns();
    columns.add(9, 1, 1, 0);
    expect(() => store.commit({ columns, newSeries: [], monotonicMs: 0, wallMs: 0 })).toThrow(
      expect.objectContaining({ code: 'store.no_series' }),
    );
    commit({ '1/a': [2] });
    commit({ '1/d': [1] });
    expect(since()).toEqual([
      [1, 1],
      [2, 2],
      [3, 2],
      [4, 3],
    ]);
    store.close();
    open();
    commit({ '1/e': [1] });
    expect(since().at(-1)).toEqual([5, 4]);
  });

  it('flushes what is old: the log becomes a span, of which batches of the backlog are made', () => {
    commit({ '1/a': [1, 2], '2/a': [3] });
    expect(said(store.maintain({ monotonicMs: 1_500 }))).toMatchObject({
      logValues: 3,
      spans: 0,
      oldestAgeMs: 500,
      maintenanceDue: false,
    });
    const later = 1_000_000;
    const { batch: live } = take('live', 2);
    expect(said(store.maintain({ monotonicMs: later }))).toEqual({
      ...QUIET,
      ...{ segmentValues: 3, spans: 1, oldestAgeMs: later - 1_000, dirty: true, maintenanceDue: true },
      lanes: [lane(1, { backlog: 2, oldestBacklogAt: 1 }), lane(2)],
    });
    expect(said(commit({}, { monotonicMs: later }))).toMatchObject({ dirty: false, lanes: [] });
    expect([log(), rows('segment').length]).toEqual([[], 2]);
    expect(said(store.maintain({ monotonicMs: later }))).toMatchObject({ maintenanceDue: false });
    const { batch } = take('backlog');
    expect(batch).toMatchObject({ values: 2, liveValues: 0, backlogValues: 2 });
    expect(said(store.release(live!.id)).lanes).toEqual([lane(2, { backlog: 1, oldestBacklogAt: 1 })]);
    expect(said(store.quarantine(batch!.id, { status: 400, message: 'no', atMs: 5 }))).toEqual({
      ...QUIET,
      ...{ segmentValues: 1, spans: 1, quarantined: 2, oldestAgeMs: later - 1_000, dirty: true },
      lanes: [lane(1)],
    });
    commit();
    store.close();
    open();
    expect(said(opened.facts)).toMatchObject({ quarantined: 2, segmentValues: 1 });
  });

  it('lets rows fall away that hold nothing any more, whichever way their values left', () => {
    commit({ '1/a': [1] });
    store.settle(take().batch!.id);
    commit();
    expect(log().map(({ id }) => id)).toEqual([]);
    commit({ '1/a': [2] });
    store.quarantine(take().batch!.id, { status: 400, message: 'no', atMs: 5 });
    commit();
    expect([log(), rows('quarantine').length]).toEqual([[], 1]);
  });

  it('does nothing for a batch that it does not know, or that has ended', () => {
    commit({ '1/a': [1, 2] });
    const whole = take().batch!;
    const { batches } = store.divide(whole.id);
    expect(batches.map(({ id, values }) => [id, values])).toEqual([
      [2, 1],
      [3, 1],
    ]);
    expect(store.divide(2).batches).toEqual([]);
    store.settle(2);
    const quiet = { ...QUIET, logValues: 1, dirty: true };
    const refusal = { status: 400, message: 'no', atMs: 5 };
    for (const id of [whole.id, 2, 99]) {
      expect(
        [store.settle(id), store.release(id), store.divide(id).facts, store.quarantine(id, refusal)].map(said),
      ).toEqual([quiet, quiet, quiet, quiet]);
      expect(store.divide(id).batches).toEqual([]);
    }
    expect(said(store.release(3)).lanes).toEqual([lane(1, { live: 1, oldestLiveAtMs: 1_000 })]);
  });

  it('puts what changes its place before what is new', () => {
    commit({ '1/a': [1, 2] });
    store.quarantine(take().batch!.id, { status: 400, message: 'no', atMs: 5 });
    commit();
    const { values, facts } = store.operator.requeue({ after: 0, through: 99 });
    expect([values, said(facts)]).toEqual([2, { ...QUIET, dirty: true }]);
    expect(said(commit({ '1/b': [3] }))).toMatchObject({ logValues: 3, quarantined: 0, dirty: false });
    expect(log().map(({ series, values: found }) => [series, found])).toEqual([
      [
        [1, 1, 2],
        [1, 2, 3],
      ],
    ]);
    // Once.
    expect(said(commit({ '1/b': [4] }))).toMatchObject({ logValues: 4 });
  });

  it('moves values though nothing is new', () => {
    commit({ '1/a': [1, 2] });
    store.quarantine(take().batch!.id, { status: 400, message: 'no', atMs: 5 });
    commit();
    store.operator.requeue({ after: 0, through: 99 });
    commit();
    expect(log().map(({ values: found }) => found)).toEqual([[1, 2]]);
  });

  it('tells once of a segment that does not read, keeps its bytes, and goes on', () => {
    commit({ '1/a': [1, 2], '1/b': [3] });
    store.maintain({ monotonicMs: 1_000_000 });
    commit();
    database.prepare('UPDATE segment SET packed = ? WHERE id = ?').run(Buffer.of(9, 9, 9, 9, 9), segmentId(1, 0));
    const { batch, facts } = take('backlog');
    expect(batch?.values).toBe(1);
    expect(said(facts)).toMatchObject({ segmentValues: 1, dirty: true, damaged: [{ what: 'segment', values: 2 }] });
    expect(store.facts().damaged).toEqual([]);
    commit();
    expect(rows('set_aside')).toEqual([[1, 'segment', segmentId(1, 0), 0, Buffer.of(9, 9, 9, 9, 9)]]);
    expect(rows('segment').length).toBe(1);
  });

  it('takes nothing more than it may, by `refuse-new`, and writes what was pending all the same', () => {
    commit({ '1/a': [1, 2], '1/b': [3] });
    store.settle(take().batch!.id);
    const { bounds } = { bounds: { ...BOUNDS, maxBytes: 1_000, full: 'refuse-new' as const } };
    store.configure({ bounds, flushAfterMs: 1_000, flushValues: 1_000 });
    const notes = [{ name: 'n', text: 't' }];
    expect(() => commit({ '1/a': [4] }, { notes })).toThrow(expect.objectContaining({ code: 'buffer.full' }));
    expect([said(store.facts()).dirty, store.facts().logValues, store.notes('n')]).toEqual([false, 0, []]);
    // Without values nothing is refused.
    commit({}, { notes });
    expect(store.notes('n')).toEqual(notes);
    store.configure({ bounds: { ...BOUNDS }, flushAfterMs: 1_000, flushValues: 1_000 });
    expect(commit({ '1/a': [5] }).logValues).toBe(1);
  });

  it('gives its reserve for what was pending when the disk is full, says so, and takes nothing more in', () => {
    commit({ '1/a': [1, 2], '1/b': [3] });
    store.settle(take().batch!.id);
    expect(statSync(`${path}.reserve`).size).toBeGreaterThan(0);
    const pages = database.pragma('page_count', { simple: true }) as number;
    database.pragma(`max_page_count = ${pages + 4}`);
    const many = Array.from({ length: 5_000 }, (_, i) => Math.sin(i));
    expect(() => commit({ '1/a': many })).toThrow(expect.objectContaining({ code: 'buffer.disk-full' }));
    expect(statSync(`${path}.reserve`, { throwIfNoEntry: false })).toBeUndefined();
    expect(said(store.facts())).toMatchObject({ short: true, dirty: false, logValues: 0, maintenanceDue: true });
    // Until there is room for the reserve the WAL is emptied with each commit.
    commit({}, { notes: [{ name: 'small', text: 't' }] });
    expect([store.notes('small').length, statSync(`${path}-wal`).size]).toEqual([1, 0]);
    expect(log().flatMap(({ values: found }) => found)).not.toContain(many[1]);
    // Without values there is nobody to tell; what goes with values alone is not written either.
    database.pragma(`max_page_count = ${(database.pragma('page_count', { simple: true }) as number) + 1}`);
    expect(said(commit({}, { notes: [{ name: 'n', text: 'x'.repeat(100_000) }] })).short).toBe(true);
    expect(store.notes('n')).toEqual([]);
    database.pragma('max_page_count = 1000000');
    expect(said(store.maintain({ monotonicMs: 1_000_000 }))).toMatchObject({ short: false });
    expect(commit({ '1/a': [5] }, { monotonicMs: 1_000_000 }).logValues).toBe(1);
  });

  it('goes on by other bounds and at another pace from a reload on, and leaves what it was given as it was', () => {
    const bounds = { ...BOUNDS };
    store.close();
    open({ bounds });
    commit({ '1/a': [1, 2] });
    const wanted = { ...BOUNDS, maxAgeMs: 5_000 };
    expect(said(store.configure({ bounds: wanted, flushAfterMs: 500_000, flushValues: 1 }))).toMatchObject({
      maintenanceDue: true,
    });
    expect(bounds).toEqual(BOUNDS);
    expect(store.handOver().options).toEqual({ bounds: wanted, flushAfterMs: 500_000, flushValues: 1 });
    store.maintain({ monotonicMs: 1_000 });
    commit();
    expect(store.facts()).toMatchObject({ segmentValues: 2, logValues: 0 });
    store.maintain({ monotonicMs: 6_001 });
    expect(commit({}, { monotonicMs: 6_001 }).dropped).toEqual([{ reason: 'age', values: 2 }]);
    expect(store.facts().dropped).toEqual([]);
  });

  it('takes the place of another with its series, its holds, its next number, and what was damaged of it', () => {
    commit({ '1/a': [1], '1/b': [2] });
    store.holdSeries([2]);
    take();
    const handover = store.handOver();
    expect(handover).toMatchObject({
      held: [2],
      nextBatch: 2,
      series: [
        { id: 1, key: 'a' },
        { id: 2, key: 'b' },
      ],
    });
    store.close();
    rmSync(path);
    open();
    store.takeOver({ ...handover, damage: [{ what: 'file', values: 2 }] });
    expect(said(store.facts())).toEqual({ ...QUIET, lanes: [lane(1)], damaged: [{ what: 'file', values: 2 }] });
    commit({ '1/a': [3], '1/b': [4] });
    expect(take().batch).toMatchObject({ id: 2, series: [1] });
  });

  it('leaves a part of its reserve when it closes, though it had given it up', () => {
    database.pragma(`max_page_count = ${database.pragma('page_count', { simple: true })}`);
    expect(() => commit({ '1/a': Array.from({ length: 9_000 }, (_, i) => Math.sin(i)) })).toThrow('full');
    expect(statSync(`${path}.reserve`, { throwIfNoEntry: false })).toBeUndefined();
    store.close();
    expect(statSync(`${path}.reserve`).size).toBeGreaterThan(0);
  });

  it('notes how long its run lasts, a minute apart', () => {
    const last = () => database.prepare('SELECT last_ms FROM run').pluck().all();
    const lasts = [1_000, 60_999, 61_000, 61_500, 121_000].map((monotonicMs) => {
      commit({ '1/a': [1] }, { monotonicMs });
      return last();
    });
    expect(lasts).toEqual([[1_000], [1_000], [61_000], [61_000], [121_000]]);
  });

  it('keeps a copy of its series beside it, without those whose name is lost', () => {
    commit({ '1/a': [1], '2/b': [2] });
    const keys = () => [...new SeriesCopy(path).read().values()].map(({ id, key }) => [id, key]);
    expect(keys()).toEqual([
      [1, 'a'],
      [2, 'b'],
    ]);
    database.exec('DELETE FROM series WHERE id = 2');
    store.close();
    rmSync(`${path}.series`);
    open();
    expect(opened.series.map(({ id, asset }) => [id, asset > 0])).toEqual([
      [1, true],
      [2, false],
    ]);
    expect(keys()).toEqual([[1, 'a']]);
    // It has grown far beyond what is known.
    writeFileSync(`${path}.series`, '\n'.repeat(1_200_000), { flag: 'a' });
    commit({ '3/c': [3] });
    expect([keys().length, statSync(`${path}.series`).size < 500]).toEqual([2, true]);
  });

  it('keeps the names of the series in their copy that it left on disk for want of memory', () => {
    for (const key of ['a', 'b', 'c']) commit({ [`1/${key}`]: [1] });
    store.close();
    const [, ...others] = [...new SeriesCopy(path).read().values()];
    rmSync(`${path}.series`);
    new SeriesCopy(path).append(others, () => others);
    open({ maxLoadedSeries: 1 });
    expect(said(opened.facts)).toMatchObject({ logValues: 1, notLoaded: 2 });
    // Made whole for the one that is loaded it would lack these.
    expect([...new SeriesCopy(path).read().values()].map(({ key }) => key)).toEqual(['b', 'c']);
  });

  it('goes on with a flush in whose middle it ended', () => {
    const stepSize = { values: 1, segments: 1 };
    store.close();
    open({ stepSize });
    commit({ '1/a': [1], '1/b': [2], '1/c': [3] });
    expect(said(store.maintain({ monotonicMs: 1e6 }))).toMatchObject({ logValues: 2, segmentValues: 1 });
    commit({}, { monotonicMs: 1e6 });
    store.close();
    open({ stepSize }, 2_000);
    expect(said(opened.facts)).toMatchObject({ logValues: 2, segmentValues: 1, maintenanceDue: true });
    expect(said(store.maintain({ monotonicMs: 2_000 }))).toMatchObject({ logValues: 1, segmentValues: 2 });
  });

  it('keeps its WAL within half of the reserve that its bound allows, from a reload on', () => {
    const pages = () => database.pragma('wal_autocheckpoint', { simple: true });
    const before = pages();
    store.configure({ bounds: { ...BOUNDS, maxBytes: 1_000_000 }, flushAfterMs: 1_000, flushValues: 1_000 });
    // Of an eighth of the bound a half, in pages of a kilobyte.
    expect([before, pages()]).toEqual([1_000, 61]);
  });

  it('carries over what stands in a file that was set aside, and reads it there until then', () => {
    commit({ '1/a': [1, 2], '2/b': [3], '3/c': [4, 5, 6] });
    store.maintain({ monotonicMs: 1e6 });
    commit();
    store.close();
    const old = 'buffer.db.old';
    cpSync(path, join(folder, old));
    for (const [file, lost] of [
      [path, [0, 1, 2]],
      // Of one the old file has nothing either.
      [join(folder, old), [1]],
    ] as const) {
      const each = openDatabase(file);
      for (const entry of lost) each.prepare('DELETE FROM segment WHERE id = ?').run(segmentId(1, entry));
      if (file === path) prepareStatements(each).addOrigin.run(old, 2, originSum(old, 2));
      each.close();
    }
    open({ stepSize: { values: 1_000, segments: 1 } });
    const carrying = { isCarrying: true, segmentValues: 6, damaged: [] };
    expect(said(opened.facts)).toMatchObject({ ...carrying, maintenanceDue: true });
    expect(said(commit({ '4/d': [7] }))).toMatchObject(carrying);
    const { batch } = take('backlog', 3);
    expect(batch?.values).toBe(3);
    store.release(batch!.id);
    // Awaited, not lost.
    const awaited = take('backlog', 2);
    expect([awaited.batch, said(awaited.facts)]).toEqual([undefined, expect.objectContaining(carrying)]);
    const configure = (bytes: number) =>
      store.configure({ bounds: { ...BOUNDS, minFree: { bytes } }, flushAfterMs: 1e9, flushValues: 1e9 });
    configure(1e18);
    expect(said(store.maintain({ monotonicMs: 1_000 }))).toMatchObject({ ...carrying, maintenanceDue: false });
    expect(rows('segment').length).toBe(0);
    expect(said(configure(0))).toMatchObject({ ...carrying, maintenanceDue: true });
    const seen: number[] = [];
    const damaged: StoreFacts['damaged'] = [];
    for (let steps = 0; steps < 20 && store.facts().maintenanceDue; steps++) {
      damaged.push(...store.maintain({ monotonicMs: 1_000 }).damaged);
      seen.push(rows('segment').length);
    }
    expect([...new Set(seen)]).toEqual([1, 2]);
    expect(damaged).toEqual([{ what: 'segment', values: 1 }]);
    expect(said(store.facts())).toMatchObject({ isCarrying: true, dirty: true, segmentValues: 5 });
    expect(said(commit())).toMatchObject({ isCarrying: false, dirty: false });
    expect([rows('origin'), rows('segment').length, take('backlog', 3).batch?.values]).toEqual([[], 2, 3]);
  });

  it('drops of quarantine too what is beyond its bound, and counts it', () => {
    commit({ '1/a': Array.from({ length: 5_000 }, (_, i) => Math.sin(i)) });
    const { batch } = store.take({ asset: 1, lane: 'live', maxValues: 5_000, maxBytes: 1e6 });
    store.quarantine(batch!.id, { status: 400, message: 'no', atMs: 5 });
    expect(said(commit())).toMatchObject({ quarantined: 5_000, logValues: 0 });
    store.configure({ bounds: { ...BOUNDS, maxBytes: 30_000 }, flushAfterMs: 1_000, flushValues: 1_000 });
    const dropped: StoreFacts['dropped'] = [];
    for (let commits = 0; commits < 5; commits++) dropped.push(...commit().dropped);
    expect([dropped, store.facts().quarantined]).toEqual([[{ reason: 'quarantine', values: 5_000 }], 0]);
  });

  it('looks at its disk after so much was written, or so much time', () => {
    const used = (readings: number[], monotonicMs = 1_000) =>
      commit({ '1/a': readings }, { monotonicMs }).disk.usedBytes;
    const many = Array.from({ length: 20_000 }, (_, i) => Math.sin(i));
    const before = used([1]);
    expect(used(many.slice(0, 10_000))).toBe(before);
    const after = used(many);
    expect(after).toBeGreaterThan(before + 200_000);
    expect([used(many.slice(0, 10_000)), used([1], 1_499)]).toEqual([after, after]);
    expect(used([1], 1_500)).toBeGreaterThan(after + 80_000);
  });

  it.each([
    ['waits a little for company where the platform takes values', true, 3_000],
    ['waits long for it where the platform is away', false, 102_000],
  ])('with few values %s', (_, isThere, dueMs) => {
    commit({ '1/a': [1], '2/b': [2] });
    if (isThere) store.settle(take().batch!.id);
    commit();
    const isDue = (monotonicMs: number) => store.maintain({ monotonicMs }).logValues === 0;
    expect([isDue(dueMs - 1), isDue(dueMs)]).toEqual([false, true]);
  });

  it('says that it is larger than it may be, while there are pages to give back', () => {
    commit({ '1/a': Array.from({ length: 9_000 }, (_, i) => Math.sin(i)) });
    const bounds = { ...BOUNDS, maxBytes: 50_000 };
    store.configure({ bounds, flushAfterMs: 1_000, flushValues: 1_000 });
    expect(said(store.facts())).toMatchObject({ oversized: false, spare: false, maintenanceDue: true });
    for (let steps = 0; steps < 50; steps++) {
      store.maintain({ monotonicMs: 1e6 });
      commit({}, { monotonicMs: 1e6 });
    }
    expect(said(store.facts())).toMatchObject({ oversized: true, spare: true });
    for (let steps = 0; steps < 50; steps++) store.giveSpaceBack();
    expect(said(store.facts())).toMatchObject({ oversized: false, spare: false });
  });

  it('says which series have nothing, but not while somebody copies values out', () => {
    commit({ '1/a': [1], '1/b': [2] });
    store.settle(take().batch!.id);
    commit();
    expect(store.idleSeries()).toEqual([1, 2]);
    const id = store.operator.beginExport({});
    expect(store.idleSeries()).toEqual([]);
    store.operator.endExport(id);
    expect(store.idleSeries()).toEqual([1, 2]);
    store.forgetSeries([1]);
    expect(store.idleSeries()).toEqual([2]);
  });

  it('gives space back where there is some, and is closed with all its files', () => {
    commit({ '1/a': Array.from({ length: 900 }, (_, i) => Math.sin(i)) });
    for (let i = 0; i < 9; i++) store.settle(take().batch!.id);
    commit();
    const pages = () => database.pragma('page_count', { simple: true }) as number;
    const before = pages();
    expect(said(store.giveSpaceBack())).toMatchObject({ logValues: 0, spare: false });
    expect(pages()).toBeLessThan(before);
    store.close();
    expect(database.open).toBe(false);
    open();
  });
});
