import { describe, expect, it } from 'vitest';
import { AcceptedObjects } from '../../../src/access/accepted-objects.ts';
import { type KnownObjects, MAX_OBJECTS, type NamedObject } from '../../../src/access/known-objects.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { accessEvent, buildPlant, START_MS } from './plant.ts';

const DAY_MS = 24 * 3_600_000;

const asset = (id: number, more: Partial<NamedObject> = {}): NamedObject => ({
  kind: 'asset',
  id,
  seenMs: START_MS,
  ...more,
});
const listed = (objects: KnownObjects, text = '', limit = 10) => objects.list({ text, limit });
const ids = (objects: KnownObjects, text?: string) => listed(objects, text).objects.map(({ id }) => id);

describe('known objects', () => {
  it('are evicted above the limit, least recently seen first', async () => {
    const { objects, database } = await buildPlant();
    const many = Array.from({ length: MAX_OBJECTS }, (_, i) => asset(i + 1));
    database.transaction(() => objects.noteNames(many))();
    objects.noteNames([asset(1), asset(MAX_OBJECTS + 1), asset(MAX_OBJECTS + 2)]);
    const { objects: shown, total } = listed(objects, '', 3);
    expect(total).toBe(MAX_OBJECTS);
    expect(shown.map(({ id }) => id)).toEqual([MAX_OBJECTS + 2, MAX_OBJECTS + 1, 1]);
    expect(ids(objects, '2')).not.toContain(2);
    expect(ids(objects, '3')).not.toContain(3);
  });

  it('keep a name that a later event omits, limited to 200 characters', async () => {
    const { objects } = await buildPlant();
    objects.noteNames([asset(1, { serialNumber: 'SN-1', name: 'x'.repeat(10_000) }), asset(1, { tag: '  ' })]);
    expect(listed(objects).objects).toMatchObject([{ serial_number: 'SN-1', tag: null, name: 'x'.repeat(200) }]);
  });

  it('exclude a row with an invalid checksum until the object is reported again', async () => {
    const { objects, database } = await buildPlant();
    objects.noteNames([asset(1, { tag: 'FT-1' }), asset(2)]);
    database.prepare(`UPDATE access_known SET tag = 'FT-2' WHERE id = 1`).run();
    expect(ids(objects)).toEqual([2]);
    objects.noteNames([asset(1)]);
    expect(listed(objects, '1').objects).toMatchObject([{ id: 1, tag: null }]);
  });

  it('change in the same commit as the holds, but not after a repeated event', async () => {
    const plant = await buildPlant();
    const { objects, database } = plant;
    const appeared = accessEvent('asset_appeared', 881, 1);
    await plant.receive(appeared);
    await plant.receive(accessEvent('asset_disappeared', 881, 2));
    expect(listed(objects).objects).toMatchObject([{ id: 881, state: 'lost' }]);
    const changes = objects.changes();
    const rows = () => database.prepare('SELECT total_changes() AS count').get();
    const before = rows();
    await plant.receive(appeared);
    expect([objects.changes(), rows()]).toEqual([changes, before]);
  });
});

describe('asset records for accepted posts', () => {
  /** Creates the table and counts commits with changes. */
  async function plant() {
    const { objects, database } = await buildPlant();
    const clock = new ManualClock(START_MS);
    const changed = () => database.prepare<[], number>('SELECT total_changes()').pluck().get()!;
    let commits = 0;
    const store = {
      accepted: async (...args: Parameters<KnownObjects['accepted']>) => {
        const before = changed();
        objects.accepted(...args);
        if (changed() > before) commits++;
      },
    };
    return { objects, clock, store, accepted: new AcceptedObjects(store, clock), commits: () => commits };
  }

  it('are committed once per day for all assets, regardless of the number of posts and restarts', async () => {
    const { objects, clock, store, accepted, commits } = await plant();
    const post = async (by: AcceptedObjects) => {
      for (let id = 1; id <= 500; id++) by.note(id);
      await clock.advance(60_000);
    };
    for (let minute = 0; minute < 60; minute++) await post(accepted);
    expect([commits(), listed(objects).total]).toEqual([1, 500]);
    await accepted.stop();
    const restarted = new AcceptedObjects(store, clock);
    await post(restarted);
    expect(commits()).toBe(1);
    await clock.advance(DAY_MS);
    await post(restarted);
    expect(commits()).toBe(2);
    expect(Date.parse(listed(objects).objects[0]!.accepted_at!)).toBeGreaterThan(START_MS + DAY_MS);
  });

  it('are written after the next post or at shutdown if a write failed', async () => {
    const { objects, clock, store } = await plant();
    let isFull = true;
    const disk = {
      accepted: async (...args: Parameters<KnownObjects['accepted']>) => {
        if (isFull) throw new Error('disk full');
        await store.accepted(...args);
      },
    };
    const accepted = new AcceptedObjects(disk, clock);
    accepted.note(881, 4711);
    await clock.advance(60_000);
    expect(listed(objects).total).toBe(0);
    isFull = false;
    accepted.note(881, 4711);
    await accepted.stop();
    expect(listed(objects).objects).toMatchObject([
      { kind: 'instrumentation', id: 4711, state: 'posted' },
      { kind: 'asset', id: 881, state: 'posted' },
    ]);
  });
});
