/** Files of a store: bounds, reserve, series copy, files that were set aside, returned space. */
import { cpSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openDatabase } from '../../../src/base/database.ts';
import { SeriesCopy } from '../../../src/buffer/recovery/series-copy.ts';
import { segmentId } from '../../../src/buffer/span.ts';
import type { StoreFacts } from '../../../src/buffer/store-facts.ts';
import { originSum, prepareStatements } from '../../../src/buffer/tables.ts';
import { newFolder } from '../../fresh-folder.ts';
import { BOUNDS, StoreFolder, withoutDisk } from './store-folder.ts';

let world: StoreFolder;
beforeEach(() => {
  world = new StoreFolder(newFolder('tagferry-store-files-'));
});
afterEach(() => {
  world.store.close();
  rmSync(world.folder, { recursive: true, force: true });
});

describe('value store on disk', () => {
  it('rejects values with refuse-new but writes pending changes', () => {
    world.commit({ '1/a': [1, 2], '1/b': [3] });
    world.store.settle(world.take().batch!.id);
    const { bounds } = { bounds: { ...BOUNDS, maxBytes: 1_000, full: 'refuse-new' as const } };
    world.store.configure({ bounds, flushAfterMs: 1_000, flushValues: 1_000 });
    const notes = [{ name: 'n', text: 't' }];
    expect(() => world.commit({ '1/a': [4] }, { notes })).toThrow(expect.objectContaining({ code: 'buffer.full' }));
    expect([withoutDisk(world.store.facts()).dirty, world.store.facts().logValues, world.store.notes('n')]).toEqual([
      false,
      0,
      [],
    ]);
    // Commits without values are not rejected.
    world.commit({}, { notes });
    expect(world.store.notes('n')).toEqual(notes);
    world.store.configure({ bounds: { ...BOUNDS }, flushAfterMs: 1_000, flushValues: 1_000 });
    expect(world.commit({ '1/a': [5] }).logValues).toBe(1);
  });

  it('writes pending changes to its reserve on a full disk, and rejects values', () => {
    world.commit({ '1/a': [1, 2], '1/b': [3] });
    world.store.settle(world.take().batch!.id);
    expect(statSync(`${world.path}.reserve`).size).toBeGreaterThan(0);
    const pages = world.database.pragma('page_count', { simple: true }) as number;
    world.database.pragma(`max_page_count = ${pages + 4}`);
    const many = Array.from({ length: 5_000 }, (_, i) => Math.sin(i));
    expect(() => world.commit({ '1/a': many })).toThrow(expect.objectContaining({ code: 'buffer.disk-full' }));
    expect(statSync(`${world.path}.reserve`, { throwIfNoEntry: false })).toBeUndefined();
    expect(withoutDisk(world.store.facts())).toMatchObject({
      short: true,
      dirty: false,
      logValues: 0,
      maintenanceDue: true,
    });
    // Without the reserve, each commit empties the WAL.
    world.commit({}, { notes: [{ name: 'small', text: 't' }] });
    expect([world.store.notes('small').length, statSync(`${world.path}-wal`).size]).toEqual([1, 0]);
    expect(world.log().flatMap(({ values: found }) => found)).not.toContain(many[1]);
    // A commit without values reports no error; notes are stored only with values.
    world.database.pragma(`max_page_count = ${(world.database.pragma('page_count', { simple: true }) as number) + 1}`);
    expect(withoutDisk(world.commit({}, { notes: [{ name: 'n', text: 'x'.repeat(100_000) }] })).short).toBe(true);
    expect(world.store.notes('n')).toEqual([]);
    world.database.pragma('max_page_count = 1000000');
    expect(withoutDisk(world.store.maintain({ monotonicMs: 1_000_000 }))).toMatchObject({ short: false });
    expect(world.commit({ '1/a': [5] }, { monotonicMs: 1_000_000 }).logValues).toBe(1);
  });

  it('leaves a partial reserve in place when it closes', () => {
    world.database.pragma(`max_page_count = ${world.database.pragma('page_count', { simple: true })}`);
    expect(() => world.commit({ '1/a': Array.from({ length: 9_000 }, (_, i) => Math.sin(i)) })).toThrow('full');
    expect(statSync(`${world.path}.reserve`, { throwIfNoEntry: false })).toBeUndefined();
    world.store.close();
    expect(statSync(`${world.path}.reserve`).size).toBeGreaterThan(0);
  });

  it('maintains a copy of its series, except series with lost names', () => {
    world.commit({ '1/a': [1], '2/b': [2] });
    const keys = () => [...new SeriesCopy(world.path).read().values()].map(({ id, key }) => [id, key]);
    expect(keys()).toEqual([
      [1, 'a'],
      [2, 'b'],
    ]);
    world.database.exec('DELETE FROM series WHERE id = 2');
    world.store.close();
    rmSync(`${world.path}.series`);
    world.open();
    expect(world.opened.series.map(({ id, asset }) => [id, asset > 0])).toEqual([
      [1, true],
      [2, false],
    ]);
    expect(keys()).toEqual([[1, 'a']]);
    // The file is far larger than the known series require.
    writeFileSync(`${world.path}.series`, '\n'.repeat(1_200_000), { flag: 'a' });
    world.commit({ '3/c': [3] });
    expect([keys().length, statSync(`${world.path}.series`).size < 500]).toEqual([2, true]);
  });

  it('preserves names of unloaded series in the series copy', () => {
    for (const key of ['a', 'b', 'c']) world.commit({ [`1/${key}`]: [1] });
    world.store.close();
    const [, ...others] = [...new SeriesCopy(world.path).read().values()];
    rmSync(`${world.path}.series`);
    new SeriesCopy(world.path).append(others, () => others);
    world.open({ maxLoadedSeries: 1 });
    expect(withoutDisk(world.opened.facts)).toMatchObject({ logValues: 1, notLoaded: 2 });
    // A rewrite with only the loaded series would lose these.
    expect([...new SeriesCopy(world.path).read().values()].map(({ key }) => key)).toEqual(['b', 'c']);
  });

  it('reads segments from a set-aside file until they are copied', () => {
    world.commit({ '1/a': [1, 2], '2/b': [3], '3/c': [4, 5, 6] });
    world.store.maintain({ monotonicMs: 1e6 });
    world.commit();
    world.store.close();
    const old = 'buffer.db.old';
    cpSync(world.path, join(world.folder, old));
    for (const [file, lost] of [
      [world.path, [0, 1, 2]],
      // One segment is also missing in the old file.
      [join(world.folder, old), [1]],
    ] as const) {
      const each = openDatabase(file);
      for (const entry of lost) each.prepare('DELETE FROM segment WHERE id = ?').run(segmentId(1, entry));
      if (file === world.path) prepareStatements(each).addOrigin.run(old, 2, originSum(old, 2));
      each.close();
    }
    world.open({ stepSize: { values: 1_000, segments: 1 } });
    const carrying = { isCarrying: true, segmentValues: 6, damaged: [] };
    expect(withoutDisk(world.opened.facts)).toMatchObject({ ...carrying, maintenanceDue: true });
    expect(withoutDisk(world.commit({ '4/d': [7] }))).toMatchObject(carrying);
    const { batch } = world.take('backlog', 3);
    expect(batch?.values).toBe(3);
    world.store.release(batch!.id);
    // Not lost: the values are still pending.
    const awaited = world.take('backlog', 2);
    expect([awaited.batch, withoutDisk(awaited.facts)]).toEqual([undefined, expect.objectContaining(carrying)]);
    const configure = (bytes: number) =>
      world.store.configure({ bounds: { ...BOUNDS, minFree: { bytes } }, flushAfterMs: 1e9, flushValues: 1e9 });
    configure(1e18);
    expect(withoutDisk(world.store.maintain({ monotonicMs: 1_000 }))).toMatchObject({
      ...carrying,
      maintenanceDue: false,
    });
    expect(world.rows('segment').length).toBe(0);
    expect(withoutDisk(configure(0))).toMatchObject({ ...carrying, maintenanceDue: true });
    const damaged: StoreFacts['damaged'] = [];
    for (let steps = 0; steps < 20 && world.store.facts().maintenanceDue; steps++) {
      damaged.push(...world.store.maintain({ monotonicMs: 1_000 }).damaged);
    }
    expect(world.rows('segment').length).toBe(2);
    expect(damaged).toEqual([{ what: 'segment', values: 1 }]);
    expect(withoutDisk(world.store.facts())).toMatchObject({ isCarrying: true, dirty: true, segmentValues: 5 });
    expect(withoutDisk(world.commit())).toMatchObject({ isCarrying: false, dirty: false });
    expect([world.rows('origin'), world.rows('segment').length, world.take('backlog', 3).batch?.values]).toEqual([
      [],
      2,
      3,
    ]);
  });

  it('drops and counts quarantined values beyond the limit', () => {
    world.commit({ '1/a': Array.from({ length: 5_000 }, (_, i) => Math.sin(i)) });
    const { batch } = world.store.take({ asset: 1, lane: 'live', maxValues: 5_000, maxBytes: 1e6 });
    world.store.quarantine(batch!.id, { status: 400, message: 'no', atMs: 5 });
    expect(withoutDisk(world.commit())).toMatchObject({ quarantined: 5_000, logValues: 0 });
    world.store.configure({ bounds: { ...BOUNDS, maxBytes: 30_000 }, flushAfterMs: 1_000, flushValues: 1_000 });
    const dropped: StoreFacts['dropped'] = [];
    for (let commits = 0; commits < 5; commits++) dropped.push(...world.commit().dropped);
    expect([dropped, world.store.facts().quarantined]).toEqual([[{ reason: 'quarantine', values: 5_000 }], 0]);
  });

  it('reports that it exceeds its size limit while free pages remain', () => {
    world.commit({ '1/a': Array.from({ length: 9_000 }, (_, i) => Math.sin(i)) });
    const bounds = { ...BOUNDS, maxBytes: 50_000 };
    world.store.configure({ bounds, flushAfterMs: 1_000, flushValues: 1_000 });
    expect(withoutDisk(world.store.facts())).toMatchObject({ oversized: false, spare: false, maintenanceDue: true });
    for (let steps = 0; steps < 50; steps++) {
      world.store.maintain({ monotonicMs: 1e6 });
      world.commit({}, { monotonicMs: 1e6 });
    }
    expect(withoutDisk(world.store.facts())).toMatchObject({ oversized: true, spare: true });
    for (let steps = 0; steps < 50; steps++) world.store.vacuum();
    expect(withoutDisk(world.store.facts())).toMatchObject({ oversized: false, spare: false });
  });

  it('returns free space and closes all files', () => {
    world.commit({ '1/a': Array.from({ length: 900 }, (_, i) => Math.sin(i)) });
    for (let i = 0; i < 9; i++) world.store.settle(world.take().batch!.id);
    world.commit();
    const pages = () => world.database.pragma('page_count', { simple: true }) as number;
    const before = pages();
    expect(withoutDisk(world.store.vacuum())).toMatchObject({ logValues: 0, spare: false });
    expect(pages()).toBeLessThan(before);
    world.store.close();
    expect(world.database.open).toBe(false);
    world.open();
  });
});
