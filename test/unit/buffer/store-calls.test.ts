/** Results of store calls, and log rows. */
import { rmSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { segmentId } from '../../../src/buffer/span.ts';
import { newFolder } from '../../fresh-folder.ts';
import { BOUNDS, IDLE, lane, StoreFolder, withoutDisk } from './store-folder.ts';

let world: StoreFolder;
beforeEach(() => {
  world = new StoreFolder(newFolder('tagferry-store-calls-'));
});
afterEach(() => {
  world.store.close();
  rmSync(world.folder, { recursive: true, force: true });
});

describe('value store', () => {
  it('reports changed lanes and the age of the oldest value', () => {
    expect(withoutDisk(world.commit({ '1/a': [1, 2], '2/a': [3] }))).toEqual({
      ...IDLE,
      lanes: [lane(1, { live: 2, oldestLiveAtMs: 1_000 }), lane(2, { live: 1, oldestLiveAtMs: 1_000 })],
      logValues: 3,
    });
    expect(withoutDisk(world.store.facts())).toEqual({ ...IDLE, logValues: 3 });
    expect(withoutDisk(world.commit({ '2/a': [4] }, { monotonicMs: 1_400 }))).toEqual({
      ...IDLE,
      lanes: [lane(2, { live: 2, oldestLiveAtMs: 1_000 })],
      logValues: 4,
    });
    expect(world.store.facts().oldestAcceptedMs).toBe(1_000);
    const taken = world.take();
    expect(taken.batch).toMatchObject({ id: 1, asset: 1, values: 2, liveValues: 2, backlogValues: 0 });
    expect(withoutDisk(taken.facts)).toEqual({ ...IDLE, lanes: [lane(1)], logValues: 4 });
    expect(withoutDisk(world.take().facts)).toEqual({ ...IDLE, logValues: 4 });
    expect(withoutDisk(world.store.release(1)).lanes).toEqual([lane(1, { live: 2, oldestLiveAtMs: 1_000 })]);
    const { batch } = world.take();
    expect(withoutDisk(world.store.settle(batch!.id))).toEqual({
      ...IDLE,
      lanes: [lane(1)],
      logValues: 2,
      dirty: true,
    });
    expect(withoutDisk(world.commit())).toEqual({ ...IDLE, logValues: 2 });
    expect(world.store.facts().oldestAcceptedMs).toBe(1_000);
    expect(withoutDisk(world.store.holdSeries([3]))).toEqual({ ...IDLE, logValues: 2 });
    expect(withoutDisk(world.store.holdSeries([2]))).toEqual({ ...IDLE, lanes: [lane(2)], logValues: 2 });
    expect(withoutDisk(world.store.holdSeries([]))).toEqual({
      ...IDLE,
      lanes: [lane(2, { live: 2, oldestLiveAtMs: 1_000 })],
      logValues: 2,
    });
  });

  it('keeps the later of two series with the same number, even after a failed commit and a restart', () => {
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

  it('flushes old rows into spans for backlog batches', () => {
    world.commit({ '1/a': [1, 2], '2/a': [3] });
    expect(withoutDisk(world.store.maintain({ monotonicMs: 1_500 }))).toMatchObject({
      logValues: 3,
      spans: 0,
      maintenanceDue: false,
    });
    const later = 1_000_000;
    const { batch: live } = world.take('live', 2);
    expect(withoutDisk(world.store.maintain({ monotonicMs: later }))).toEqual({
      ...IDLE,
      ...{ segmentValues: 3, spans: 1, dirty: true, maintenanceDue: true },
      lanes: [lane(1, { backlog: 2, oldestBacklogAt: 1 }), lane(2)],
    });
    expect(withoutDisk(world.commit({}, { monotonicMs: later }))).toMatchObject({ dirty: false, lanes: [] });
    expect([world.log(), world.rows('segment').length]).toEqual([[], 2]);
    expect(withoutDisk(world.store.maintain({ monotonicMs: later }))).toMatchObject({ maintenanceDue: false });
    const { batch } = world.take('backlog');
    expect(batch).toMatchObject({ values: 2, liveValues: 0, backlogValues: 2 });
    expect(withoutDisk(world.store.release(live!.id)).lanes).toEqual([lane(2, { backlog: 1, oldestBacklogAt: 1 })]);
    expect(withoutDisk(world.store.quarantine(batch!.id, { status: 400, message: 'no', atMs: 5 }))).toEqual({
      ...IDLE,
      ...{ segmentValues: 1, spans: 1, quarantined: 2, dirty: true },
      lanes: [lane(1)],
    });
    world.commit();
    world.store.close();
    world.open();
    expect(withoutDisk(world.opened.facts)).toMatchObject({ quarantined: 2, segmentValues: 1 });
  });

  it('ignores unknown and completed batches', () => {
    world.commit({ '1/a': [1, 2] });
    const whole = world.take().batch!;
    const { batches } = world.store.divide(whole.id);
    expect(batches.map(({ id, values }) => [id, values])).toEqual([
      [2, 1],
      [3, 1],
    ]);
    expect(world.store.divide(2).batches).toEqual([]);
    world.store.settle(2);
    const quiet = { ...IDLE, logValues: 1, dirty: true };
    const refusal = { status: 400, message: 'no', atMs: 5 };
    for (const id of [whole.id, 2, 99]) {
      expect(
        [
          world.store.settle(id),
          world.store.release(id),
          world.store.divide(id).facts,
          world.store.quarantine(id, refusal),
        ].map(withoutDisk),
      ).toEqual([quiet, quiet, quiet, quiet]);
      expect(world.store.divide(id).batches).toEqual([]);
    }
    expect(withoutDisk(world.store.release(3)).lanes).toEqual([lane(1, { live: 1, oldestLiveAtMs: 1_000 })]);
  });

  it('writes moved values before new values', () => {
    world.commit({ '1/a': [1, 2] });
    world.store.quarantine(world.take().batch!.id, { status: 400, message: 'no', atMs: 5 });
    world.commit();
    const { values, facts } = world.store.operator.requeue({ after: 0, through: 99 });
    expect([values, withoutDisk(facts)]).toEqual([2, { ...IDLE, dirty: true }]);
    expect(withoutDisk(world.commit({ '1/b': [3] }))).toMatchObject({ logValues: 3, quarantined: 0, dirty: false });
    expect(world.log().map(({ series, values: found }) => [series, found])).toEqual([
      [
        [1, 1, 2],
        [1, 2, 3],
      ],
    ]);
    // Moved values are written once.
    expect(withoutDisk(world.commit({ '1/b': [4] }))).toMatchObject({ logValues: 4 });
  });

  it('reports an unreadable segment once, and preserves its bytes', () => {
    world.commit({ '1/a': [1, 2], '1/b': [3] });
    world.store.maintain({ monotonicMs: 1_000_000 });
    world.commit();
    world.database.prepare('UPDATE segment SET packed = ? WHERE id = ?').run(Buffer.of(9, 9, 9, 9, 9), segmentId(1, 0));
    const { batch, facts } = world.take('backlog');
    expect(batch?.values).toBe(1);
    expect(withoutDisk(facts)).toMatchObject({
      segmentValues: 1,
      dirty: true,
      damaged: [{ what: 'segment', values: 2 }],
    });
    expect(world.store.facts().damaged).toEqual([]);
    world.commit();
    expect(world.rows('set_aside')).toEqual([[1, 'segment', segmentId(1, 0), 0, Buffer.of(9, 9, 9, 9, 9)]]);
    expect(world.rows('segment').length).toBe(1);
  });

  it('applies new limits and a new commit interval after a reload', () => {
    const bounds = { ...BOUNDS };
    world.store.close();
    world.open({ bounds });
    world.commit({ '1/a': [1, 2] });
    const wanted = { ...BOUNDS, maxAgeMs: 5_000 };
    expect(withoutDisk(world.store.configure({ bounds: wanted, flushAfterMs: 500_000, flushValues: 1 }))).toMatchObject(
      {
        maintenanceDue: true,
      },
    );
    expect(bounds).toEqual(BOUNDS);
    expect(world.store.handOver().options).toEqual({ bounds: wanted, flushAfterMs: 500_000, flushValues: 1 });
    world.store.maintain({ monotonicMs: 1_000 });
    world.commit();
    expect(world.store.facts()).toMatchObject({ segmentValues: 2, logValues: 0 });
    world.store.maintain({ monotonicMs: 6_001 });
    expect(world.commit({}, { monotonicMs: 6_001 }).dropped).toEqual([{ reason: 'age', values: 2 }]);
    expect(world.store.facts().dropped).toEqual([]);
  });

  it('inherits series, holds, batch numbers and damage counts from a replaced store', () => {
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
    world.store.takeOver(handover, [{ what: 'file', values: 2 }]);
    expect(withoutDisk(world.store.facts())).toEqual({
      ...IDLE,
      lanes: [lane(1)],
      damaged: [{ what: 'file', values: 2 }],
    });
    world.commit({ '1/a': [3], '1/b': [4] });
    expect(world.take().batch).toMatchObject({ id: 2, series: [1] });
  });

  it('resumes an interrupted flush', () => {
    const stepSize = { values: 1, segments: 1 };
    world.store.close();
    world.open({ stepSize });
    world.commit({ '1/a': [1], '1/b': [2], '1/c': [3] });
    expect(withoutDisk(world.store.maintain({ monotonicMs: 1e6 }))).toMatchObject({ logValues: 2, segmentValues: 1 });
    world.commit({}, { monotonicMs: 1e6 });
    world.store.close();
    world.open({ stepSize }, 2_000);
    expect(withoutDisk(world.opened.facts)).toMatchObject({ logValues: 2, segmentValues: 1, maintenanceDue: true });
    expect(withoutDisk(world.store.maintain({ monotonicMs: 2_000 }))).toMatchObject({ logValues: 1, segmentValues: 2 });
  });
});
