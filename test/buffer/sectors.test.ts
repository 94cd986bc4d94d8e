/** A file of SQLite whose disk does not read some of it: nothing else is lost. The disk is played by another `readSync`. */
import type * as files from 'node:fs';
import { readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { openDatabase } from '../../src/base/database.ts';
import { salvage } from '../../src/buffer/recovery/salvage.ts';
import { SeriesCopy } from '../../src/buffer/recovery/series-copy.ts';
import { isPartlyReadable, SqlitePages } from '../../src/buffer/recovery/sqlite-pages.ts';
import { memoryFolder } from '../memory-folder.ts';
import { HandMadeBuffer } from './hand-made-buffer.ts';

const PAGE = 1024;
const SECTOR = 4096;

/** Bytes of a file that do not read: [from, to). */
const disk = vi.hoisted(() => ({ bad: [] as [number, number][] }));
vi.mock('node:fs', async (original) => {
  const real = await original<typeof files>();
  const readSync = (fd: number, buffer: Buffer, offset: number, length: number, position: number) => {
    if (disk.bad.some(([from, to]) => position < to && position + length > from)) {
      throw Object.assign(new Error('EIO: i/o error, read'), { code: 'EIO' });
    }
    return real.readSync(fd, buffer, offset, length, position);
  };
  return { ...real, readSync };
});

let folder: string;
let path: string;
beforeEach(() => {
  folder = memoryFolder('tagferry-sectors-');
  path = join(folder, 'some.db');
});
afterEach(() => {
  disk.bad = [];
  rmSync(folder, { recursive: true, force: true });
});

/** A row a page, from the third page on, less those that are deleted. */
function make(rows: number, deleted = 0): void {
  const database = openDatabase(path);
  database.exec('CREATE TABLE t (id INTEGER PRIMARY KEY, value)');
  const add = database.prepare('INSERT INTO t VALUES (?, ?)');
  for (let id = 1; id <= rows; id++) add.run(id, new Uint8Array(950).fill(id));
  database.prepare('DELETE FROM t WHERE id <= ?').run(deleted);
  database.close();
}

function read() {
  const pages = new SqlitePages(path, PAGE);
  const rows = [...pages.rows()].filter(({ fields }) => fields[0] === null);
  const { unreadPages } = pages;
  pages.close();
  expect(rows.every(({ rowid, fields }) => (fields[1] as Uint8Array).every((byte) => byte === rowid % 256))).toBe(true);
  return { ids: rows.map(({ rowid }) => rowid).sort((one, other) => one - other), unreadPages };
}

const numbers = (first: number, last: number) => Array.from({ length: last - first + 1 }, (_, i) => first + i);

describe('a file with sectors that do not read', () => {
  it('loses what stands on them, and counts their pages', () => {
    make(300);
    const whole = read();
    expect(whole).toEqual({ ids: numbers(1, 300), unreadPages: 0 });
    // One at some place in the first piece that is read at once, and one in the last, which is not whole.
    disk.bad = [
      [4 * SECTOR, 5 * SECTOR],
      [72 * SECTOR, 73 * SECTOR],
    ];
    const { ids, unreadPages } = read();
    expect(unreadPages).toBe(8);
    // Of the eight pages some may be SQLite's own.
    expect(ids.length).toBeGreaterThanOrEqual(292);
    expect(ids.length).toBeLessThan(300);
  });

  it('loses nothing of the next piece that is read at once with the last sector of one', () => {
    make(300);
    disk.bad = [[15 * SECTOR, 16 * SECTOR]];
    const { ids, unreadPages } = read();
    expect([ids.length, unreadPages]).toEqual([296, 4]);
  });

  it('loses a block of one where the others of the sector read', () => {
    make(300);
    disk.bad = [[17 * PAGE, 18 * PAGE]];
    const { ids, unreadPages } = read();
    expect([ids.length, unreadPages]).toEqual([299, 1]);
  });

  it('gives nothing that was deleted though the map of its pages does not read', () => {
    make(300, 200);
    expect(read().ids).toEqual(numbers(201, 300));
    disk.bad = [[PAGE, 2 * PAGE]];
    const { ids, unreadPages } = read();
    // Of the pages that the first map tells of the list says which are free.
    expect(ids).toEqual(numbers(201, 300));
    expect(unreadPages).toBe(0);
  });

  it('gives nothing that was deleted though no map of its pages reads, and as much as its list says', () => {
    make(700, 600);
    const file = readFileSync(path);
    const maps = [2, 207, 412, 617].map((page): [number, number] => [(page - 1) * PAGE, page * PAGE]);
    const live = numbers(601, 700);
    const trunk = file.readUInt32BE(32);
    const at = (trunk - 1) * PAGE;
    expect([trunk > 0, file.readUInt32BE(at) > 0]).toEqual([true, true]);
    const tried = (bad: [number, number][], change: (copy: Buffer) => unknown = () => {}) => {
      const copy = Buffer.from(file);
      change(copy);
      writeFileSync(path, copy);
      disk.bad = bad;
      const { ids, unreadPages } = read();
      expect([[...new Set(ids.filter((id) => id > 600))], unreadPages]).toEqual([live, 0]);
      return ids.length - live.length;
    };
    expect([tried([]), tried(maps), tried([maps[1]!])]).toEqual([0, 0, 0]);
    // The list leads nowhere: the maps know it too, and where they do not read a row too many is given.
    const nowhere = (copy: Buffer) => copy.writeUInt32BE(0xffff_ffff, 32);
    expect([tried([], nowhere), tried(maps, nowhere) > 500]).toEqual([0, true]);
    // A page of the list that leads to itself ends it, one that leads behind the end too, as does one that has no next.
    const some = tried(maps, (copy) => copy.writeUInt32BE(0, at));
    expect(some).toBeGreaterThan(200);
    expect(some).toBeLessThan(500);
    expect(tried(maps, (copy) => copy.writeUInt32BE(trunk, at))).toBe(some);
    expect(tried(maps, (copy) => copy.writeUInt32BE(0xffff_ffff, at))).toBe(some);
    // More than a page has room for are as many as it has room for.
    expect(tried(maps, (copy) => copy.writeUInt32BE(0xffff_ffff, at + 4))).toBe(0);
    // What it names no more is looked at.
    const leaves = file.readUInt32BE(at + 4);
    for (const fewer of [1, 2]) expect(tried(maps, (copy) => copy.writeUInt32BE(leaves - fewer, at + 4))).toBe(fewer);
    // Of the list no page reads either.
    const list: [number, number] = [at, at + PAGE];
    expect(tried([...maps, list], () => {}) > 500).toBe(true);
  });

  it('has of its WAL what reads: a frame whose head does not stands for no page', () => {
    const database = openDatabase(path);
    database.exec('CREATE TABLE t (id INTEGER PRIMARY KEY, value); INSERT INTO t VALUES (1, zeroblob(10))');
    database.pragma('wal_checkpoint(TRUNCATE)');
    for (const bytes of [20, 30]) database.exec(`UPDATE t SET value = zeroblob(${bytes})`);
    // A database without it has another WAL of as many bytes.
    const wal = readFileSync(`${path}-wal`);
    const lengths = () => {
      const pages = new SqlitePages(path, PAGE);
      const found = [...pages.rows()].filter(({ fields }) => fields[0] === null);
      pages.close();
      return found.map(({ fields }) => (fields[1] as Uint8Array).length);
    };
    expect([wal.length, lengths()]).toEqual([32 + 2 * (24 + PAGE), [30]]);
    // Of the file the same blocks do not read, and they are behind its end.
    const { size } = statSync(path);
    expect(size).toBeLessThan(8 * PAGE);
    writeFileSync(`${path}-wal`, Buffer.concat([wal, Buffer.alloc(16 * PAGE)]));
    disk.bad = [[size, 32 * PAGE]];
    const rows = lengths();
    disk.bad = [];
    expect(rows.length).toBe(1);
    database.close();
  });

  it('ends where it ends, though a piece of it is read by sectors', () => {
    make(300);
    const { size } = statSync(path);
    truncateSync(path, size - 100);
    const whole = read();
    expect(whole.unreadPages).toBe(1);
    // In the last piece, and before the page that is cut.
    disk.bad = [[size - 3 * PAGE, size - 2 * PAGE]];
    const { ids, unreadPages } = read();
    expect([unreadPages, whole.ids.length - ids.length]).toEqual([2, 1]);
  });
});

describe('a buffer with a sector that does not read', () => {
  it('is carried over without what stands there, and says how many pages', () => {
    const buffer = new HandMadeBuffer(path).series(1);
    for (let id = 1; id <= 60; id++) buffer.row(id, id * 200, Array(200).fill(1));
    buffer.close();
    const carried = (bad: [number, number][]) => {
      const into = openDatabase(join(folder, `new-${bad.length}.db`));
      disk.bad = bad;
      const result = salvage(path, into, {
        aside: 'aside',
        copy: new SeriesCopy(join(folder, 'none')),
        isWalDamaged: true,
      });
      disk.bad = [];
      const rows = into.prepare<[], number>('SELECT count(*) FROM log').pluck().get();
      into.close();
      return [rows, result];
    };
    expect(carried([])).toEqual([60, { values: 0, lostRows: 0, quarantined: 0 }]);
    const { size } = statSync(path);
    const [rows, result] = carried([[size - PAGE, size]]);
    expect([rows, result]).toEqual([59, { values: 0, lostRows: 0, quarantined: 0, unreadPages: 1 }]);
  });
});

describe('a file of which only one sector reads', () => {
  it('is partly readable where one of sixteen places over all of it is that sector', () => {
    const sectors = 160;
    const tail = 1_000;
    writeFileSync(path, Buffer.alloc(sectors * SECTOR + tail));
    const readable = (sector: number) => {
      disk.bad = [
        [0, sector * SECTOR],
        [(sector + 1) * SECTOR, Number.POSITIVE_INFINITY],
      ];
      return isPartlyReadable(path);
    };
    const found = numbers(0, sectors).filter(readable);
    expect(found).toEqual(numbers(0, 15).map((place) => place * 10));
  });
});
