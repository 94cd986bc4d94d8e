/** SQLite files with unreadable sectors, simulated by a replaced `readSync`. */
import type * as files from 'node:fs';
import { rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { openDatabase } from '../../../src/base/database.ts';
import { salvage } from '../../../src/buffer/recovery/salvage.ts';
import { SeriesCopy } from '../../../src/buffer/recovery/series-copy.ts';
import { SqlitePages } from '../../../src/buffer/recovery/sqlite-pages.ts';
import { newFolder } from '../../fresh-folder.ts';
import { HandMadeBuffer } from './hand-made-buffer.ts';

const PAGE = 1024;
const SECTOR = 4096;

/** Unreadable byte ranges [from, to). */
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
  folder = newFolder('tagferry-sectors-');
  path = join(folder, 'some.db');
});
afterEach(() => {
  disk.bad = [];
  rmSync(folder, { recursive: true, force: true });
});

/** One row per page, starting with the third page, without deleted rows. */
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

describe('file with unreadable sectors', () => {
  it('loses only the data in these sectors, and counts their pages', () => {
    make(300);
    const whole = read();
    expect(whole).toEqual({ ids: numbers(1, 300), unreadPages: 0 });
    // One sector in the first chunk, and one in the last chunk, which is partial.
    disk.bad = [
      [4 * SECTOR, 5 * SECTOR],
      [72 * SECTOR, 73 * SECTOR],
    ];
    const { ids, unreadPages } = read();
    expect(unreadPages).toBe(8);
    // Some of the eight pages may belong to SQLite itself.
    expect(ids.length).toBeGreaterThanOrEqual(292);
    expect(ids.length).toBeLessThan(300);
  });

  it('loses no data after the last bad sector in a chunk', () => {
    make(300);
    disk.bad = [[15 * SECTOR, 16 * SECTOR]];
    const { ids, unreadPages } = read();
    expect([ids.length, unreadPages]).toEqual([296, 4]);
  });

  it('loses only one block if the sector’s other blocks are readable', () => {
    make(300);
    disk.bad = [[17 * PAGE, 18 * PAGE]];
    const { ids, unreadPages } = read();
    expect([ids.length, unreadPages]).toEqual([299, 1]);
  });

  it('returns no deleted rows if the pointer map is unreadable', () => {
    make(300, 200);
    expect(read().ids).toEqual(numbers(201, 300));
    disk.bad = [[PAGE, 2 * PAGE]];
    const { ids, unreadPages } = read();
    // The free list replaces the first pointer map.
    expect(ids).toEqual(numbers(201, 300));
    expect(unreadPages).toBe(0);
  });
});

describe('buffer with a bad sector', () => {
  it('is copied without unreadable pages, which are counted', () => {
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
