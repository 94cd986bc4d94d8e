import { copyFileSync, existsSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import type { BufferFlow } from '../../../src/agent/buffer-flow.ts';
import { systemClock } from '../../../src/base/clock.ts';
import { openDatabase } from '../../../src/base/database.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { Inbox } from '../../../src/webhook/inbox.ts';
import { WATERMARK_NOTE } from '../../../src/webhook/watermark.ts';
import { newFolder } from '../../fresh-folder.ts';
import { commitColumns } from '../../unit/doubles/commit-columns.ts';
import { openFlow, telling } from '../../unit/doubles/open-flow.ts';
import { seeded } from '../../unit/sources/sink-double.ts';
import { compileDiskLayer, type Run, takeIn } from './disk-fault.ts';
import { SmallDisk } from './small-disk.ts';

const WAL_HEADER = 32;
const FRAME = 24 + 1024;

type Damage = 'truncated' | 'zeroed' | 'random bytes';
const DAMAGES: readonly Damage[] = ['truncated', 'zeroed', 'random bytes'];

/** Files of a killed agent with WAL and index; created once, damaged many times. */
let origin: string;
let run: Run;
let folder: string;
let flow: BufferFlow | undefined;
let events: { event: string; [field: string]: unknown }[];

beforeAll(async () => {
  origin = newFolder('tagferry-origin-');
  const [taken] = await takeIn(compileDiskLayer(), origin, [
    { folder: origin, orders: '', commits: 108, maintenances: 1 },
  ]);
  run = taken!;
  expect(run.done).toBe(true);
  // Frames of the current round extend past the damaged middle: later frames belong to a previous round, and damage to
  // them is harmless.
  const frames = readFileSync(join(origin, 'buffer.db-shm')).readUInt32LE(16);
  expect(frames * FRAME).toBeGreaterThan(0.4 * readFileSync(join(origin, 'buffer.db-wal')).length);
});
afterAll(() => rmSync(origin, { recursive: true, force: true }));
beforeEach(() => {
  folder = newFolder('tagferry-corrupt-');
  events = [];
  for (const end of ['', '-wal', '-shm'])
    copyFileSync(join(origin, `buffer.db${end}`), join(folder, `buffer.db${end}`));
});
afterEach(async () => {
  await flow?.stop();
  flow = undefined;
  rmSync(folder, { recursive: true, force: true });
});

function damageFile(name: string, damage: Damage, from: number, to: number): void {
  const path = join(folder, name);
  if (damage === 'truncated') truncateSync(path, from);
  else {
    const bytes = readFileSync(path);
    const random = seeded(from + to);
    for (let at = from; at < to; at++) bytes[at] = damage === 'zeroed' ? 0 : Math.floor(random() * 256);
    writeFileSync(path, bytes);
  }
}

async function open(): Promise<BufferFlow> {
  flow = await openFlow(folder, {}, { log: telling((fields: { event: string }) => events.push(fields)) });
  return flow;
}

/** Posts all waiting values and returns them. */
async function postAll(opened: BufferFlow): Promise<number[]> {
  const values: number[] = [];
  for (let quiet = 0; quiet < 3 || opened.facts.isCarrying; quiet++) {
    await opened.committer.flush();
    for (const asset of new Set([...opened.catalogue.all()].map((series) => series.asset))) {
      for (const lane of ['backlog', 'live'] as const) {
        const batch = await opened.outgoing.take({ asset, lane, maxValues: 5000, maxBytes: 480_000 });
        if (!batch) continue;
        const body = JSON.parse(new TextDecoder().decode(batch.whole.body)) as {
          values: { data: { value: number }[] }[];
        };
        values.push(...body.values.flatMap((key) => key.data.map((point) => point.value)));
        await batch.settle(batch.whole);
        quiet = 0;
      }
    }
    opened.committer.update(await opened.values.maintain({ monotonicMs: systemClock.monotonicMs() + 1e9 }));
  }
  return values;
}

async function takeMore(opened: BufferFlow): Promise<void> {
  const columns = new ValueColumns();
  columns.add(opened.catalogue.idOf(1, 'k0', undefined, undefined), 10_000_000, 10_000_000, 0);
  columns.add(opened.catalogue.idOf(99, 'new', undefined, undefined), 10_000_001, 10_000_001, 0);
  await commitColumns(opened.committer, columns);
}

/** Checks the invariants that hold for every kind of damage. Returns the lost values. */
async function checkOpened(opened: BufferFlow): Promise<number[]> {
  await takeMore(opened);
  const found = new Set(await postAll(opened));
  expect(found.has(10_000_000) && found.has(10_000_001)).toBe(true);
  expect([...found].filter((number) => !run.acknowledged.has(number) && number < 10_000_000)).toEqual([]);
  const lost = [...run.acknowledged].filter((number) => !found.has(number) && !run.settled.has(number));
  // Losses are always reported.
  if (lost.length > 0) expect(events.some(({ event }) => event.startsWith('store.'))).toBe(true);
  return lost;
}

const setAside = () => readdirSync(folder).filter((name) => /^buffer\.db\.corrupt-\d{8}T\d+Z$/.test(name));
const standing = () => run.acknowledged.size - run.settled.size;

describe('intact buffer', () => {
  it('yields all values and is not set aside', async () => {
    expect(await checkOpened(await open())).toEqual([]);
    expect(setAside()).toEqual([]);
  });
});

describe('WAL missing from the file system', () => {
  it('delays startup until a file system check has restored it completely', async () => {
    const disk = new SmallDisk(64);
    try {
      for (const end of ['', '-wal', '-shm'])
        copyFileSync(join(origin, `buffer.db${end}`), join(disk.mount, `buffer.db${end}`));
      folder = disk.mount;
      disk.spoilInode('buffer.db-wal', true);
      await expect(open()).rejects.toMatchObject({ code: 'store.unavailable', hint: expect.stringContaining('fsck') });
      expect(setAside()).toEqual([]);
      // The worker thread closes the files opened by the attempt.
      await vi.waitFor(() => disk.spoilInode('buffer.db-wal', false), 20_000);
      expect(await checkOpened(await open())).toEqual([]);
      await flow!.stop();
    } finally {
      disk.dispose();
    }
  });
});

describe.each(DAMAGES)('database that is %s', (damage) => {
  it.each([
    ['at its start', 0, 1024],
    ['in its middle', 0.4, 0.5],
    ['completely', 0, 1],
  ])('(%s) is set aside byte for byte, and the agent continues with its readable rows', async (_where, from, to) => {
    const { length } = readFileSync(join(folder, 'buffer.db'));
    const edge = (at: number) => (at <= 1 ? Math.floor(at * length) : at);
    damageFile('buffer.db', damage, edge(from), edge(to));
    const before = readFileSync(join(folder, 'buffer.db'));
    const wal = readFileSync(join(folder, 'buffer.db-wal'));
    const lost = await checkOpened(await open());
    const corrupt = events.filter(({ event }) => event === 'store.corrupt');
    if (corrupt.length > 0) {
      const [name] = setAside();
      expect(readFileSync(join(folder, name!)).equals(before)).toBe(true);
      expect(readFileSync(join(folder, `${name}-wal`)).equals(wal)).toBe(true);
    } else expect(lost.length).toBeLessThan(standing() / 4);
    // Rows outside the damaged part are restored.
    if (to !== 1 && !(damage === 'truncated' && from === 0))
      expect(lost.length).toBeLessThan(standing() * (damage === 'truncated' ? 1 : 0.5));
  });
});

describe.each(DAMAGES)('WAL that is %s', (damage) => {
  it.each([
    ['at its start', 0, 32],
    ['in its middle', 0.3, 0.4],
    ['completely', 0, 1],
  ])('(%s) is set aside, and its readable rows are restored', async (_where, from, to) => {
    const { length } = readFileSync(join(folder, 'buffer.db-wal'));
    const edge = (at: number) => (at <= 1 ? Math.floor(at * length) : at);
    damageFile('buffer.db-wal', damage, edge(from), edge(to));
    const before = readFileSync(join(folder, 'buffer.db-wal'));
    const lost = await checkOpened(await open());
    expect(events.find(({ event }) => event === 'store.corrupt')).toMatchObject({ values: expect.any(Number) });
    const [name] = setAside();
    expect(readFileSync(join(folder, `${name}-wal`)).equals(before)).toBe(true);
    if (damage !== 'truncated' && to !== 1) expect(lost.length).toBeLessThan(standing() / 4);
  });

  it('is detected without its index if a commit follows the damage', async () => {
    if (damage === 'truncated') return;
    rmSync(join(folder, 'buffer.db-shm'));
    const wal = readFileSync(join(folder, 'buffer.db-wal'));
    // Frames after those of the latest round belong to a previous one and are older than the database.
    let end = WAL_HEADER;
    while (end + FRAME <= wal.length && wal.subarray(end + 8, end + 16).equals(wal.subarray(16, 24))) end += FRAME;
    expect(end).toBeGreaterThan(WAL_HEADER + 8 * FRAME);
    damageFile('buffer.db-wal', damage, WAL_HEADER + FRAME, WAL_HEADER + 3 * FRAME);
    expect((await checkOpened(await open())).length).toBeLessThan(standing() / 4);
    expect(setAside().length).toBe(1);
  });
});

describe.each(DAMAGES)('row that is %s', (damage) => {
  const WITH: Record<Damage, string> = {
    truncated: 'substr(bytes, 1, length(bytes) / 2)',
    zeroed: 'zeroblob(length(bytes))',
    'random bytes': 'randomblob(length(bytes))',
  };

  it.each([
    ['log', 'row'],
    ['segment', 'packed'],
    ['span', 'directory'],
  ])('in %s loses only its own values and is set aside', async (table, column) => {
    const database = new Database(join(folder, 'buffer.db'));
    const changed = database
      .prepare(
        `UPDATE ${table} SET ${column} = ${WITH[damage].replaceAll('bytes', column)} WHERE id = (SELECT max(id) FROM ${table})`,
      )
      .run().changes;
    database.close();
    expect(changed).toBe(1);
    const lost = await checkOpened(await open());
    expect(lost.length).toBeLessThan(standing() / 4);
    expect(events.filter(({ event }) => event === 'store.row_damaged').length).toBeGreaterThan(0);
    await flow!.committer.flush();
    await flow!.stop();
    flow = undefined;
    const after = new Database(join(folder, 'buffer.db'));
    expect(after.prepare('SELECT count(*) FROM set_aside').pluck().get()).toBe(1);
    after.close();
  });
});

describe('corrupt series row', () => {
  it('is restored from the copy without loss', async () => {
    copyFileSync(join(origin, 'buffer.db.series'), join(folder, 'buffer.db.series'));
    let database = new Database(join(folder, 'buffer.db'));
    const before = database.prepare('SELECT * FROM series').all();
    database.prepare('UPDATE series SET asset = 4711 WHERE id = 1').run();
    database.close();
    expect(await checkOpened(await open())).toEqual([]);
    expect(events.some(({ event }) => event === 'store.row_damaged')).toBe(true);
    await flow!.stop();
    flow = undefined;
    database = new Database(join(folder, 'buffer.db'));
    expect(database.prepare('SELECT * FROM series').all()).toEqual(expect.arrayContaining(before));
    database.close();
  });

  it('causes no loss even if the whole page is lost', async () => {
    copyFileSync(join(origin, 'buffer.db.series'), join(folder, 'buffer.db.series'));
    const database = new Database(join(folder, 'buffer.db'));
    // Damages the database file, not the WAL.
    database.pragma('wal_checkpoint(TRUNCATE)');
    const pages = database.prepare("SELECT pageno FROM dbstat WHERE name = 'series'").pluck().all() as number[];
    database.close();
    for (const page of pages) damageFile('buffer.db', 'random bytes', (page - 1) * 1024, page * 1024);
    expect(await checkOpened(await open())).toEqual([]);
    expect(setAside().length).toBe(1);
  });

  it('only in the copy causes no loss and is repaired', async () => {
    const sound = readFileSync(join(origin, 'buffer.db.series'), 'utf8');
    writeFileSync(join(folder, 'buffer.db.series'), `${sound.slice(0, -20)}\u0000\n[1,4711,"k0",null,null,null,5]\n`);
    expect(await checkOpened(await open())).toEqual([]);
    const lines = (text: string) => text.split('\n').filter((line) => line !== '');
    expect(lines(readFileSync(join(folder, 'buffer.db.series'), 'utf8'))).toEqual(expect.arrayContaining(lines(sound)));
  });

  it('without a copy never causes values to be sent to another asset', async () => {
    const database = new Database(join(folder, 'buffer.db'));
    database.prepare('UPDATE series SET asset = 4711 WHERE id = 1').run();
    database.close();
    const opened = await open();
    expect([...opened.catalogue.all()].some((series) => series.asset === 4711)).toBe(false);
    const lost = await checkOpened(opened);
    expect(lost.length).toBeGreaterThan(0);
    expect(lost.length).toBeLessThan(standing() / 2);
    expect(events.some(({ event }) => event === 'store.row_damaged')).toBe(true);
  });
});

describe('inbox whose WAL lost commits', () => {
  it('is detected, its WAL is preserved, and its events are fetched again from the platform', async () => {
    const path = join(folder, 'inbox.db');
    const database = openDatabase(join(folder, 'first.db'));
    const inbox = Inbox.open(database, systemClock, 'boot');
    inbox.setNote(WATERMARK_NOTE, '{"scope":"1","upToMs":5}');
    for (let i = 0; i < 50; i++) inbox.setNote(`n${i}`, 'x'.repeat(500));
    // Files as left by a kill, without the index, as after a power failure.
    for (const end of ['', '-wal']) copyFileSync(join(folder, `first.db${end}`), `${path}${end}`);
    database.close();
    const { length } = readFileSync(`${path}-wal`);
    damageFile('inbox.db-wal', 'random bytes', Math.floor(length * 0.7), Math.floor(length * 0.75));
    const before = readFileSync(`${path}-wal`);
    const opened = await open();
    expect(events.find(({ event }) => event === 'store.corrupt')).toMatchObject({ store: path });
    expect(await opened.inbox.note('n0')).toBe('x'.repeat(500));
    expect(await opened.inbox.note('n49')).toBeUndefined();
    expect(await opened.inbox.note(WATERMARK_NOTE)).toBe('');
    const [kept] = readdirSync(folder).filter((name) => /^inbox\.db\.corrupt-\d{8}T\d+Z-wal$/.test(name));
    expect(readFileSync(join(folder, kept!)).equals(before)).toBe(true);
  });
});

describe('corruption detected while the agent is running', () => {
  it('is repaired after the file is set aside, and values in flight are posted again', async () => {
    let opened = await open();
    const random = seeded(7);
    for (let commit = 0; commit < 40; commit++) {
      const columns = new ValueColumns();
      for (let i = 0; i < 10_000; i++) {
        columns.add(
          opened.catalogue.idOf(5, `k${i % 10}`, undefined, undefined),
          1e6 + commit * 10_000 + i,
          random(),
          0,
        );
      }
      await commitColumns(opened.committer, columns);
      opened.committer.update(await opened.values.maintain({ monotonicMs: systemClock.monotonicMs() + 1e9 }));
    }
    // After a reopen, the store has the directories in memory, but no segment pages.
    await opened.stop();
    opened = await open();
    const asset = 5;
    await takeMore(opened);
    const batch = await opened.outgoing.take({ asset: 99, lane: 'live', maxValues: 5, maxBytes: 10_000 });
    expect(batch?.whole.values).toBe(1);
    // Overwritten without SQLite, as by a failing SD card.
    const reader = new Database(join(folder, 'buffer.db'), { readonly: true });
    const leaves = reader
      .prepare("SELECT pageno FROM dbstat WHERE name = 'segment' AND pagetype = 'leaf' ORDER BY pageno")
      .pluck()
      .all() as number[];
    reader.close();
    expect(leaves.length).toBeGreaterThan(20);
    for (const page of leaves.slice(10, 20)) damageFile('buffer.db', 'random bytes', (page - 1) * 1024, page * 1024);
    for (let i = 0; i < 200 && events.every(({ event }) => event !== 'store.corrupt'); i++) {
      const taken = await opened.outgoing.take({ asset, lane: 'backlog', maxValues: 5000, maxBytes: 480_000 });
      await taken?.settle(taken.whole);
      await takeMore(opened);
    }
    expect(events.find(({ event }) => event === 'store.corrupt')).toMatchObject({ values: expect.any(Number) });
    expect(setAside().length).toBe(1);
    // The platform accepted the post, according to a sender that is unaware of the damage.
    await batch?.settle(batch.whole);
    await takeMore(opened);
    const found = await postAll(opened);
    expect(found).toContain(10_000_000);
    expect(found.filter((value) => value < 1).length).toBeGreaterThan(1000);
    expect(existsSync(join(folder, 'buffer.db'))).toBe(true);
  });
});
