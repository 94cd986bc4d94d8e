/** A file of SQLite whose disk does not read some of it: nothing else is lost. The disk is played by another `readSync`. */
import type * as files from 'node:fs';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { openDatabase } from '../../src/base/database.ts';
import { SqlitePages } from '../../src/buffer/recovery/sqlite-pages.ts';
import { memoryFolder } from '../memory-folder.ts';

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
});
