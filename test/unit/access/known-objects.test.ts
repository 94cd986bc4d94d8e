import { describe, expect, it } from 'vitest';
import { AcceptedObjects } from '../../../src/access/accepted-objects.ts';
import type { ObjectNames } from '../../../src/access/access-event.ts';
import { type AccessTable, MAX_OBJECTS } from '../../../src/access/access-table.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { accessEvent, buildPlant, START_MS } from './plant.ts';

const DAY_MS = 24 * 3_600_000;

/** Stores an event in which asset 1 appears, `atSeconds` after the start. */
function appeared(table: AccessTable, atSeconds: number, names: ObjectNames): void {
  const occurredAtMs = START_MS + atSeconds * 1_000;
  const where = { cursor: atSeconds, wallMs: occurredAtMs, related: [], isDoubtful: false };
  table.apply({ object: 'asset', id: 1, gone: false, occurredAtMs, names, ...where });
}
const assets = (...ids: number[]) => ids.map((id) => ({ kind: 'asset' as const, id }));
const listed = (table: AccessTable, text = '', limit = 10) => table.list({ text, limit });
const ids = (table: AccessTable, text?: string) => listed(table, text).objects.map(({ id }) => id);

describe('known objects', () => {
  it('are evicted above the limit, least recently seen first, unless they are held', async () => {
    const { table } = await buildPlant();
    table.hold({ kind: 'asset', id: 4, cause: 'answered_403', sinceMs: START_MS });
    table.accepted(assets(...Array.from({ length: MAX_OBJECTS }, (_, i) => i + 1)), START_MS);
    table.accepted(assets(1, MAX_OBJECTS + 1, MAX_OBJECTS + 2, MAX_OBJECTS + 3), START_MS + DAY_MS);
    const { objects: shown, total } = listed(table, '', 4);
    expect(total).toBe(MAX_OBJECTS + 1);
    expect(shown.map(({ id }) => id)).toEqual([MAX_OBJECTS + 3, MAX_OBJECTS + 2, MAX_OBJECTS + 1, 1]);
    const kept = listed(table, '', MAX_OBJECTS + 3).objects.map(({ id }) => id);
    expect([2, 3, 4].map((id) => kept.includes(id))).toEqual([false, false, true]);
    expect(table.load().holds).toMatchObject([{ id: 4 }]);
  });

  it('keep a name that a later event omits, limited to 200 characters', async () => {
    const { table } = await buildPlant();
    appeared(table, 1, { serialNumber: 'SN-1', name: 'x'.repeat(10_000) });
    appeared(table, 2, { tag: '  ' });
    expect(listed(table).objects).toMatchObject([{ serial_number: 'SN-1', tag: null, name: 'x'.repeat(200) }]);
  });

  it('exclude a row with an invalid checksum until the object is reported again', async () => {
    const { table, database } = await buildPlant();
    appeared(table, 1, { tag: 'FT-1' });
    table.accepted(assets(2), START_MS);
    database.prepare(`UPDATE access_object SET tag = 'FT-2' WHERE id = 1`).run();
    expect(ids(table)).toEqual([2]);
    table.accepted(assets(1), START_MS);
    expect(listed(table, '1').objects).toMatchObject([{ id: 1, tag: null }]);
  });

  it('exclude an object for which only a rejected post is known', async () => {
    const { table } = await buildPlant();
    table.hold({ kind: 'asset', id: 1, cause: 'answered_403', sinceMs: START_MS });
    expect(ids(table)).toEqual([]);
  });

  it('change in the same commit as the holds, but not after a repeated event', async () => {
    const plant = await buildPlant();
    const { table, database } = plant;
    const event = accessEvent('asset_appeared', 881, 1);
    await plant.receive(event);
    await plant.receive(accessEvent('asset_disappeared', 881, 2));
    expect(listed(table).objects).toMatchObject([{ id: 881, state: 'lost' }]);
    const changes = table.changes();
    const rows = () => database.prepare('SELECT total_changes() AS count').get();
    const before = rows();
    await plant.receive(event);
    expect([table.changes(), rows()]).toEqual([changes, before]);
  });
});

describe('asset records for accepted posts', () => {
  /** Creates the table and counts commits with changes. */
  async function plant() {
    const { table, database } = await buildPlant();
    const clock = new ManualClock(START_MS);
    const changed = () => database.prepare<[], number>('SELECT total_changes()').pluck().get()!;
    let commits = 0;
    const store = {
      accepted: async (...args: Parameters<AccessTable['accepted']>) => {
        const before = changed();
        table.accepted(...args);
        if (changed() > before) commits++;
      },
    };
    return { table, clock, store, accepted: new AcceptedObjects(store, clock), commits: () => commits };
  }

  it('are committed once per day for all assets, regardless of the number of posts and restarts', async () => {
    const { table, clock, store, accepted, commits } = await plant();
    const post = async (by: AcceptedObjects) => {
      for (let id = 1; id <= 500; id++) by.note(id);
      await clock.advance(60_000);
    };
    for (let minute = 0; minute < 60; minute++) await post(accepted);
    expect([commits(), listed(table).total]).toEqual([1, 500]);
    await accepted.stop();
    const restarted = new AcceptedObjects(store, clock);
    await post(restarted);
    expect(commits()).toBe(1);
    await clock.advance(DAY_MS);
    await post(restarted);
    expect(commits()).toBe(2);
    expect(Date.parse(listed(table).objects[0]!.accepted_at!)).toBeGreaterThan(START_MS + DAY_MS);
  });

  it('are written after the next post or at shutdown if a write failed', async () => {
    const { table, clock, store } = await plant();
    let isFull = true;
    const disk = {
      accepted: async (...args: Parameters<AccessTable['accepted']>) => {
        if (isFull) throw new Error('disk full');
        await store.accepted(...args);
      },
    };
    const accepted = new AcceptedObjects(disk, clock);
    accepted.note(881, 4711);
    await clock.advance(60_000);
    expect(listed(table).total).toBe(0);
    isFull = false;
    accepted.note(881, 4711);
    await accepted.stop();
    expect(listed(table).objects).toMatchObject([
      { kind: 'instrumentation', id: 4711, state: 'posted' },
      { kind: 'asset', id: 881, state: 'posted' },
    ]);
  });
});
