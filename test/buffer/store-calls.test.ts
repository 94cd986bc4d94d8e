/** What the store answers to each call, as a whole, and what the rows of its log say. */
import { rmSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ValueColumns } from '../../src/buffer/format/value-columns.ts';
import { segmentId } from '../../src/buffer/span.ts';
import { sumOf } from '../../src/buffer/tables.ts';
import { memoryFolder } from '../memory-folder.ts';
import { BOUNDS, lane, QUIET, StoreFolder, said } from './store-folder.ts';

let world: StoreFolder;
beforeEach(() => {
  world = new StoreFolder(memoryFolder('tagferry-store-calls-'));
});
afterEach(() => {
  world.store.close();
  rmSync(world.folder, { recursive: true, force: true });
});

describe('a store', () => {
  it('that is new has nothing, and writes nothing where there is nothing to write', () => {
    expect([world.opened.series, said(world.opened.facts)]).toEqual([[], QUIET]);
    expect(said(world.commit())).toEqual(QUIET);
    expect([world.rows('run'), world.rows('log')]).toEqual([[], []]);
    expect(said(world.commit({}, { notes: [] }))).toEqual(QUIET);
    expect(world.rows('run')).toEqual([]);
    expect(said(world.commit({}, { notes: [{ name: 'a/b', text: 'c' }] }))).toEqual(QUIET);
    expect([world.rows('run').length, world.rows('log'), world.store.notes('a/'), world.store.notes('b')]).toEqual([
      1,
      [],
      [{ name: 'a/b', text: 'c' }],
      [],
    ]);
    world.catalogue.idOf(1, 'k', undefined, undefined);
    expect(said(world.commit())).toEqual(QUIET);
    expect(world.rows('series').length).toBe(1);
    world.commit({ '1/k': [1] });
    expect(world.log().map(({ id }) => id)).toEqual([1]);
  });

  it('tells of each asset what waits once it has changed, of its values where they stand, and how old the oldest is', () => {
    expect(said(world.commit({ '1/a': [1, 2], '2/a': [3] }))).toEqual({
      ...QUIET,
      lanes: [lane(1, { live: 2, oldestLiveAtMs: 1_000 }), lane(2, { live: 1, oldestLiveAtMs: 1_000 })],
      logValues: 3,
    });
    expect(said(world.store.facts())).toEqual({ ...QUIET, logValues: 3 });
    expect(said(world.commit({ '2/a': [4] }, { monotonicMs: 1_400 }))).toEqual({
      ...QUIET,
      lanes: [lane(2, { live: 2, oldestLiveAtMs: 1_000 })],
      logValues: 4,
    });
    expect(world.store.facts().oldestAcceptedMs).toBe(1_000);
    const taken = world.take();
    expect(taken.batch).toMatchObject({ id: 1, asset: 1, values: 2, liveValues: 2, backlogValues: 0 });
    expect(said(taken.facts)).toEqual({ ...QUIET, lanes: [lane(1)], logValues: 4 });
    expect(said(world.take().facts)).toEqual({ ...QUIET, logValues: 4 });
    expect(said(world.store.release(1)).lanes).toEqual([lane(1, { live: 2, oldestLiveAtMs: 1_000 })]);
    const { batch } = world.take();
    expect(said(world.store.settle(batch!.id))).toEqual({
      ...QUIET,
      lanes: [lane(1)],
      logValues: 2,
      dirty: true,
    });
    expect(said(world.commit())).toEqual({ ...QUIET, logValues: 2 });
    expect(world.store.facts().oldestAcceptedMs).toBe(1_000);
    expect(said(world.store.holdSeries([3]))).toEqual({ ...QUIET, logValues: 2 });
    expect(said(world.store.holdSeries([2]))).toEqual({ ...QUIET, lanes: [lane(2)], logValues: 2 });
    expect(said(world.store.holdSeries([]))).toEqual({
      ...QUIET,
      lanes: [lane(2, { live: 2, oldestLiveAtMs: 1_000 })],
      logValues: 2,
    });
  });

  it('writes with each commit a row: when, of which run, the values in their order, and what has left since', () => {
    world.commit({ '1/a': [1, 2], '2/a': [3] }, { monotonicMs: 1_000.6 });
    const { batch } = world.take();
    world.store.settle(batch!.id);
    world.commit();
    world.commit({ '2/a': [4] }, { monotonicMs: -3 });
    expect(world.log()).toEqual([
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
    expect(world.rows('run')).toEqual([[1, 'one', 0, 1_000, 1_000.6, sumOf(1, 'one', 0, 1_000, 1_000.6)]]);
    world.store.close();
    world.open({}, 5_000);
    expect(said(world.opened.facts)).toEqual({
      ...QUIET,
      logValues: 2,
      lanes: [lane(1), lane(2, { live: 2, oldestLiveAtMs: 5_000 })],
    });
    world.commit({ '1/b': [5] }, { monotonicMs: 5_000 });
    expect(world.log().at(-1)).toMatchObject({ id: 4, run: 2, firstSeq: 4, values: [5] });
    expect(world.rows('run')).toHaveLength(2);
  });

  it('knows which of two series with one number is the later, also after a commit that failed and a start', () => {
    const since = () => world.database.prepare('SELECT id, since FROM series ORDER BY id').raw().all();
    world.commit({ '1/a': [1] });
    world.commit({ '1/b': [1], '1/c': [1] });
    const columns = new ValueColumns();
    columns.add(9, 1, 1, 0);
    expect(() => world.store.commit({ columns, newSeries: [], monotonicMs: 0 })).toThrow(
      expect.objectContaining({ code: 'store.no_series' }),
    );
    world.commit({ '1/a': [2] });
    world.commit({ '1/d': [1] });
    expect(since()).toEqual([
      [1, 1],
      [2, 2],
      [3, 2],
      [4, 3],
    ]);
    world.store.close();
    world.open();
    world.commit({ '1/e': [1] });
    expect(since().at(-1)).toEqual([5, 4]);
  });

  it('flushes what is old: the log becomes a span, of which batches of the backlog are made', () => {
    world.commit({ '1/a': [1, 2], '2/a': [3] });
    expect(said(world.store.maintain({ monotonicMs: 1_500 }))).toMatchObject({
      logValues: 3,
      spans: 0,
      maintenanceDue: false,
    });
    const later = 1_000_000;
    const { batch: live } = world.take('live', 2);
    expect(said(world.store.maintain({ monotonicMs: later }))).toEqual({
      ...QUIET,
      ...{ segmentValues: 3, spans: 1, dirty: true, maintenanceDue: true },
      lanes: [lane(1, { backlog: 2, oldestBacklogAt: 1 }), lane(2)],
    });
    expect(said(world.commit({}, { monotonicMs: later }))).toMatchObject({ dirty: false, lanes: [] });
    expect([world.log(), world.rows('segment').length]).toEqual([[], 2]);
    expect(said(world.store.maintain({ monotonicMs: later }))).toMatchObject({ maintenanceDue: false });
    const { batch } = world.take('backlog');
    expect(batch).toMatchObject({ values: 2, liveValues: 0, backlogValues: 2 });
    expect(said(world.store.release(live!.id)).lanes).toEqual([lane(2, { backlog: 1, oldestBacklogAt: 1 })]);
    expect(said(world.store.quarantine(batch!.id, { status: 400, message: 'no', atMs: 5 }))).toEqual({
      ...QUIET,
      ...{ segmentValues: 1, spans: 1, quarantined: 2, dirty: true },
      lanes: [lane(1)],
    });
    world.commit();
    world.store.close();
    world.open();
    expect(said(world.opened.facts)).toMatchObject({ quarantined: 2, segmentValues: 1 });
  });

  it('lets rows fall away that hold nothing any more, whichever way their values left', () => {
    world.commit({ '1/a': [1] });
    world.store.settle(world.take().batch!.id);
    world.commit();
    expect(world.log().map(({ id }) => id)).toEqual([]);
    world.commit({ '1/a': [2] });
    world.store.quarantine(world.take().batch!.id, { status: 400, message: 'no', atMs: 5 });
    world.commit();
    expect([world.log(), world.rows('quarantine').length]).toEqual([[], 1]);
  });

  it('does nothing for a batch that it does not know, or that has ended', () => {
    world.commit({ '1/a': [1, 2] });
    const whole = world.take().batch!;
    const { batches } = world.store.divide(whole.id);
    expect(batches.map(({ id, values }) => [id, values])).toEqual([
      [2, 1],
      [3, 1],
    ]);
    expect(world.store.divide(2).batches).toEqual([]);
    world.store.settle(2);
    const quiet = { ...QUIET, logValues: 1, dirty: true };
    const refusal = { status: 400, message: 'no', atMs: 5 };
    for (const id of [whole.id, 2, 99]) {
      expect(
        [
          world.store.settle(id),
          world.store.release(id),
          world.store.divide(id).facts,
          world.store.quarantine(id, refusal),
        ].map(said),
      ).toEqual([quiet, quiet, quiet, quiet]);
      expect(world.store.divide(id).batches).toEqual([]);
    }
    expect(said(world.store.release(3)).lanes).toEqual([lane(1, { live: 1, oldestLiveAtMs: 1_000 })]);
  });

  it('puts what changes its place before what is new', () => {
    world.commit({ '1/a': [1, 2] });
    world.store.quarantine(world.take().batch!.id, { status: 400, message: 'no', atMs: 5 });
    world.commit();
    const { values, facts } = world.store.operator.requeue({ after: 0, through: 99 });
    expect([values, said(facts)]).toEqual([2, { ...QUIET, dirty: true }]);
    expect(said(world.commit({ '1/b': [3] }))).toMatchObject({ logValues: 3, quarantined: 0, dirty: false });
    expect(world.log().map(({ series, values: found }) => [series, found])).toEqual([
      [
        [1, 1, 2],
        [1, 2, 3],
      ],
    ]);
    // Once.
    expect(said(world.commit({ '1/b': [4] }))).toMatchObject({ logValues: 4 });
  });

  it('moves values though nothing is new', () => {
    world.commit({ '1/a': [1, 2] });
    world.store.quarantine(world.take().batch!.id, { status: 400, message: 'no', atMs: 5 });
    world.commit();
    world.store.operator.requeue({ after: 0, through: 99 });
    world.commit();
    expect(world.log().map(({ values: found }) => found)).toEqual([[1, 2]]);
  });

  it('tells once of a segment that does not read, keeps its bytes, and goes on', () => {
    world.commit({ '1/a': [1, 2], '1/b': [3] });
    world.store.maintain({ monotonicMs: 1_000_000 });
    world.commit();
    world.database.prepare('UPDATE segment SET packed = ? WHERE id = ?').run(Buffer.of(9, 9, 9, 9, 9), segmentId(1, 0));
    const { batch, facts } = world.take('backlog');
    expect(batch?.values).toBe(1);
    expect(said(facts)).toMatchObject({ segmentValues: 1, dirty: true, damaged: [{ what: 'segment', values: 2 }] });
    expect(world.store.facts().damaged).toEqual([]);
    world.commit();
    expect(world.rows('set_aside')).toEqual([[1, 'segment', segmentId(1, 0), 0, Buffer.of(9, 9, 9, 9, 9)]]);
    expect(world.rows('segment').length).toBe(1);
  });

  it('goes on by other bounds and at another pace from a reload on, and leaves what it was given as it was', () => {
    const bounds = { ...BOUNDS };
    world.store.close();
    world.open({ bounds });
    world.commit({ '1/a': [1, 2] });
    const wanted = { ...BOUNDS, maxAgeMs: 5_000 };
    expect(said(world.store.configure({ bounds: wanted, flushAfterMs: 500_000, flushValues: 1 }))).toMatchObject({
      maintenanceDue: true,
    });
    expect(bounds).toEqual(BOUNDS);
    expect(world.store.handOver().options).toEqual({ bounds: wanted, flushAfterMs: 500_000, flushValues: 1 });
    world.store.maintain({ monotonicMs: 1_000 });
    world.commit();
    expect(world.store.facts()).toMatchObject({ segmentValues: 2, logValues: 0 });
    world.store.maintain({ monotonicMs: 6_001 });
    expect(world.commit({}, { monotonicMs: 6_001 }).dropped).toEqual([{ reason: 'age', values: 2 }]);
    expect(world.store.facts().dropped).toEqual([]);
  });

  it('takes the place of another with its series, its holds, its next number, and what was damaged of it', () => {
    world.commit({ '1/a': [1], '1/b': [2] });
    world.store.holdSeries([2]);
    world.take();
    const handover = world.store.handOver();
    expect(handover).toMatchObject({
      held: [2],
      nextBatch: 2,
      series: [
        { id: 1, key: 'a' },
        { id: 2, key: 'b' },
      ],
    });
    world.store.close();
    rmSync(world.path);
    world.open();
    world.store.takeOver({ ...handover, damage: [{ what: 'file', values: 2 }] });
    expect(said(world.store.facts())).toEqual({ ...QUIET, lanes: [lane(1)], damaged: [{ what: 'file', values: 2 }] });
    world.commit({ '1/a': [3], '1/b': [4] });
    expect(world.take().batch).toMatchObject({ id: 2, series: [1] });
  });

  it('notes how long its run lasts, a minute apart', () => {
    const last = () => world.database.prepare('SELECT last_ms FROM run').pluck().all();
    const lasts = [1_000, 60_999, 61_000, 61_500, 121_000].map((monotonicMs) => {
      world.commit({ '1/a': [1] }, { monotonicMs });
      return last();
    });
    expect(lasts).toEqual([[1_000], [1_000], [61_000], [61_000], [121_000]]);
  });

  it('goes on with a flush in whose middle it ended', () => {
    const stepSize = { values: 1, segments: 1 };
    world.store.close();
    world.open({ stepSize });
    world.commit({ '1/a': [1], '1/b': [2], '1/c': [3] });
    expect(said(world.store.maintain({ monotonicMs: 1e6 }))).toMatchObject({ logValues: 2, segmentValues: 1 });
    world.commit({}, { monotonicMs: 1e6 });
    world.store.close();
    world.open({ stepSize }, 2_000);
    expect(said(world.opened.facts)).toMatchObject({ logValues: 2, segmentValues: 1, maintenanceDue: true });
    expect(said(world.store.maintain({ monotonicMs: 2_000 }))).toMatchObject({ logValues: 1, segmentValues: 2 });
  });

  it.each([
    ['waits a little for company where the platform takes values', true, 3_000],
    ['waits long for it where the platform is away', false, 102_000],
  ])('with few values %s', (_, isThere, dueMs) => {
    world.commit({ '1/a': [1], '2/b': [2] });
    if (isThere) world.store.settle(world.take().batch!.id);
    world.commit();
    const isDue = (monotonicMs: number) => world.store.maintain({ monotonicMs }).logValues === 0;
    expect([isDue(dueMs - 1), isDue(dueMs)]).toEqual([false, true]);
  });

  it('says which series have nothing, but not while somebody copies values out', () => {
    world.commit({ '1/a': [1], '1/b': [2] });
    world.store.settle(world.take().batch!.id);
    world.commit();
    expect(world.store.idleSeries()).toEqual([1, 2]);
    const id = world.store.operator.beginExport({});
    expect(world.store.idleSeries()).toEqual([]);
    world.store.operator.endExport(id);
    expect(world.store.idleSeries()).toEqual([1, 2]);
    world.store.forgetSeries([1]);
    expect(world.store.idleSeries()).toEqual([2]);
  });
});
