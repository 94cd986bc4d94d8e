/** Compares the reader for single pages of a SQLite file with SQLite. */
import * as files from 'node:fs';
import { copyFileSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type Database from 'better-sqlite3';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { openDatabase } from '../../../src/base/database.ts';
import { isPartlyReadable, type RawField, SqlitePages } from '../../../src/buffer/recovery/sqlite-pages.ts';
import { freshFolder } from '../../fresh-folder.ts';
import type { watchedFiles } from './watched-files.ts';

vi.mock('node:fs', async (original) => (await import('./watched-files.ts')).watchedFiles(await original()));
const { watched } = files as unknown as ReturnType<typeof watchedFiles>;

const PAGE = 1024;
const FRAME = 24 + PAGE;
const WAL_HEADER = 32;

const folder = freshFolder('tagferry-pages-');
let path: string;
beforeEach(() => {
  path = join(folder.path, 'some.db');
});

/** Every field format of a record, at the limits of each width. */
const NUMBERS = [0, 1, 2, 7, 8, 15].flatMap((byte) => [2 ** (8 * byte - 1), 2 ** (8 * byte)]);
const FIELDS: RawField[] = [
  null,
  ...NUMBERS.filter((one) => one >= 1 && one <= 2 ** 52).flatMap((one) => [one - 1, one, -one, -one - 1]),
  2 ** 47,
  -(2 ** 47) - 1,
  Number.MAX_SAFE_INTEGER,
  0.1,
  -1e300,
  '',
  'ä text',
  new Uint8Array(0),
  new Uint8Array([0, 1, 255]),
];
const ROWIDS = [1, 2, 127, 128, 16_383, 16_384, 2 ** 21, 2 ** 28, 2 ** 35, 2 ** 42, 2 ** 49, Number.MAX_SAFE_INTEGER];
/** Lengths just below and above the limits for one and for several overflow pages. */
const LENGTHS = [900, 983, 984, 985, 986, 987, 988, 989, 990, 1_100, 2_000, 2_003, 2_004, 2_005, 3_100, 70_000];

const blob = (length: number, seed: number) => Uint8Array.from({ length }, (_, i) => (i * 7 + seed) % 251);

/** Fields in the order of their numbers, with buffers as plain bytes. */
const plain = (rows: Iterable<{ rowid: number; fields: RawField[] }>) =>
  [...rows]
    .map(({ rowid, fields }) => [
      rowid,
      ...fields.map((field) => (field instanceof Uint8Array ? Buffer.from(field).toString('hex') : field)),
    ])
    .sort((one, other) => Number(one[0]) - Number(other[0]));

/** Rows of tables, without SQLite's schema table. */
function read(file = path): { rows: unknown[][]; cut: number[]; broken: number; unreadPages: number } {
  const pages = new SqlitePages(file, PAGE);
  const rows = [...pages.rows()].filter(({ fields }) => typeof fields[0] !== 'string' || fields[0] !== 'table');
  const { broken, unreadPages } = pages;
  pages.close();
  return {
    rows: plain(rows.filter(({ isCut }) => !isCut)),
    cut: rows.filter(({ isCut }) => isCut).map(({ rowid }) => rowid),
    broken,
    unreadPages,
  };
}

function readBySqlite(database: Database.Database): unknown[][] {
  const rows = database.prepare<[], RawField[]>('SELECT id, null, value FROM t').raw().all();
  return plain(rows.map(([id, ...fields]) => ({ rowid: Number(id), fields })));
}

function make(fill: (add: (id: number, value: RawField) => void) => void): Database.Database {
  const database = openDatabase(path);
  database.exec('CREATE TABLE t (id INTEGER PRIMARY KEY, value)');
  const statement = database.prepare('INSERT INTO t VALUES (?, ?)');
  fill((id, value) => {
    // The driver binds numbers as REAL, but BigInt as INTEGER, which SQLite stores in as few bytes as possible.
    const whole = typeof value === 'number' && Number.isSafeInteger(value);
    statement.run(id, whole ? BigInt(value) : value);
  });
  return database;
}

describe('SQLite file read page by page', () => {
  it('yields the same rows as SQLite', () => {
    const database = make((add) => {
      for (const [at, field] of FIELDS.entries()) add(at + 1_000, field);
      for (const [at, id] of ROWIDS.entries()) add(id, at);
      for (const [at, length] of LENGTHS.entries()) add(at + 5_000, blob(length, at));
    });
    const expected = readBySqlite(database);
    expect(expected).toHaveLength(FIELDS.length + ROWIDS.length + LENGTHS.length);
    // First all pages are in the WAL, then all are in the file.
    expect(read()).toEqual({ rows: expected, cut: [], broken: 0, unreadPages: 0 });
    database.close();
    expect(read()).toEqual({ rows: expected, cut: [], broken: 0, unreadPages: 0 });
  });

  it('omits deleted rows', () => {
    const database = make((add) => {
      for (let id = 1; id <= 400; id++) add(id, blob(900, id));
    });
    database.exec('DELETE FROM t WHERE id > 20 AND id <= 380');
    const expected = readBySqlite(database);
    database.close();
    expect(read().rows).toEqual(expected);
  });

  it('includes committed frames from the current WAL cycle', () => {
    const database = make((add) => add(1, 'first'));
    database.pragma('wal_checkpoint(TRUNCATE)');
    database.exec("INSERT INTO t VALUES (2, 'second')");
    copyFileSync(path, `${path}.copy`);
    const wal = readFileSync(`${path}-wal`);
    database.close();
    const texts = (frames: Buffer) => {
      writeFileSync(`${path}.copy-wal`, frames);
      return read(`${path}.copy`).rows.map((row) => row[2]);
    };
    expect(texts(wal)).toEqual(['first', 'second']);
    // Even if the header is corrupt, the frames contain the salt.
    expect(texts(Buffer.concat([Buffer.alloc(WAL_HEADER), wal.subarray(WAL_HEADER)]))).toEqual(['first', 'second']);
    const uncommitted = Buffer.from(wal);
    for (let at = WAL_HEADER; at + FRAME <= wal.length; at += FRAME) uncommitted.writeUInt32BE(0, at + 4);
    expect(texts(uncommitted)).toEqual(['first']);
    const ofAnotherRound = Buffer.from(wal);
    for (let at = WAL_HEADER; at + FRAME <= wal.length; at += FRAME) ofAnotherRound[at + 8]! ^= 1;
    expect(texts(ofAnotherRound)).toEqual(['first']);
    const ofNoPage = Buffer.from(wal);
    for (let at = WAL_HEADER; at + FRAME <= wal.length; at += FRAME) ofNoPage.writeUInt32BE(4_000_000, at);
    expect(texts(ofNoPage)).toEqual(['first']);
    for (const length of [WAL_HEADER + 10, 10, 0, wal.length - 1])
      expect(texts(wal.subarray(0, length))).toEqual(['first']);
    expect(texts(Buffer.alloc(WAL_HEADER + 10))).toEqual(['first']);
    const ofPage = (number: number) => {
      const copy = Buffer.from(wal);
      copy.writeUInt32BE(number, WAL_HEADER);
      return texts(copy);
    };
    // Page numbers can exceed the file by at most the size of the WAL.
    const most = readFileSync(`${path}.copy`).length / PAGE + Math.ceil(wal.length / PAGE);
    expect((wal.length - WAL_HEADER) / FRAME).toBe(1);
    expect([ofPage(most), ofPage(most + 1), ofPage(0)]).toEqual([['first', 'first', 'second'], ['first'], ['first']]);
    expect(watched.open.size).toBe(0);
  });

  it('excludes uncommitted WAL frames', () => {
    const database = make((add) => add(1, blob(900, 1)));
    database.pragma('wal_checkpoint(TRUNCATE)');
    for (const id of [2, 3]) database.prepare('INSERT INTO t VALUES (?, ?)').run(id, blob(2_900, id));
    copyFileSync(path, `${path}.copy`);
    const wal = readFileSync(`${path}-wal`);
    database.close();
    const ids = (frames: Buffer) => {
      writeFileSync(`${path}.copy-wal`, frames);
      return read(`${path}.copy`).rows.map(([id]) => id);
    };
    const commits = [...Array((wal.length - WAL_HEADER) / FRAME).keys()].filter(
      (frame) => wal.readUInt32BE(WAL_HEADER + frame * FRAME + 4) > 0,
    );
    expect([commits.length, commits[0]! > 0]).toEqual([2, true]);
    expect(ids(wal)).toEqual([1, 2, 3]);
    const changed = (frame: number, at: number) => {
      const copy = Buffer.from(wal);
      copy.writeUInt32BE(0, WAL_HEADER + frame * FRAME + at);
      return copy;
    };
    expect(ids(wal.subarray(0, WAL_HEADER + commits[1]! * FRAME))).toEqual([1, 2]);
    expect(ids(wal.subarray(0, WAL_HEADER + commits[0]! * FRAME))).toEqual([1]);
    // A commit frame without a page or without the commit flag does not complete a commit.
    for (const at of [0, 4]) expect(ids(changed(commits[1]!, at))).toEqual([1, 2]);
    expect(ids(changed(commits[0]!, 4))).toEqual([1, 2, 3]);
  });

  it('yields and counts truncated rows', () => {
    const database = make((add) => {
      add(1, blob(40, 1));
      add(2, blob(5_000, 2));
    });
    database.close();
    const pages = Math.ceil(readFileSync(path).length / PAGE);
    truncateSync(path, (pages - 1) * PAGE);
    const { rows, cut, broken } = read();
    expect(rows.map(([id]) => id)).toEqual([1]);
    expect(cut).toEqual([2]);
    expect(broken).toBe(1);
  });

  it('includes the schema table', () => {
    make((add) => add(1, 'x')).close();
    const pages = new SqlitePages(path, PAGE);
    const notes = [...pages.rows()].filter(({ fields }) => fields[0] === 'table');
    pages.close();
    expect(notes.map(({ fields }) => fields.slice(0, 3))).toEqual([['table', 't', 't']]);
    expect(watched.open.size).toBe(0);
  });

  it('omits integers above 2^53', () => {
    const database = make((add) => add(Number.MAX_SAFE_INTEGER, 'last'));
    const beyond = database.prepare('INSERT INTO t VALUES (?, ?)');
    for (const id of [2n ** 53n, 2n ** 56n, -1n]) beyond.run(id, 'beyond');
    database.close();
    expect(read()).toEqual({ rows: [[Number.MAX_SAFE_INTEGER, null, 'last']], cut: [], broken: 3, unreadPages: 0 });
  });

  it('yields no rows from corrupt cells and pages, which are counted', () => {
    const database = make((add) => {
      for (let id = 1; id <= 4; id++) add(id, blob(100, id));
    });
    database.close();
    const file = readFileSync(path);
    const leaf =
      [...Array(file.length / PAGE).keys()].findLast((page) => page > 0 && file[page * PAGE] === 0x0d)! * PAGE;
    const cells = leaf + 8;
    const first = leaf + file.readUInt16BE(cells);
    const end = leaf + PAGE;
    const tried = (change: (copy: Buffer) => void) => {
      const copy = Buffer.from(file);
      change(copy);
      writeFileSync(`${path}.copy`, copy);
      const { rows, cut, broken } = read(`${path}.copy`);
      return [rows.map(([id]) => id), cut, broken];
    };
    /** Writes these bytes as the first cell, at the end of the page. */
    const atEnd = (...bytes: number[]) =>
      tried((copy) => {
        copy.writeUInt16BE(PAGE - bytes.length, cells);
        copy.set(bytes, end - bytes.length);
      });
    const without = [[2, 3, 4], [], 1];
    expect(tried(() => {})).toEqual([[1, 2, 3, 4], [], 0]);
    // More cells than a page has space for; a varint beyond the page end; a cell with only a size.
    expect(tried((copy) => copy.writeUInt16BE(509, leaf + 3))).toEqual([[], [], 1]);
    for (const bytes of [[0x85], [5], [1, 1, 5], [2, 1, 5, 0]]) expect(atEnd(...bytes)).toEqual(without);
    // An impossible size; a size beyond the end of this page; size 0.
    expect(tried((copy) => copy.writeUInt32BE(0xffff_ff7f, first))).toEqual(without);
    expect(tried((copy) => copy.writeUInt8(127, first))).toEqual(without);
    expect(tried((copy) => copy.writeUInt8(0, first))).toEqual(without);
    // An overflowing cell whose overflow page number would be beyond the page end.
    expect(atEnd(0x8f, 0x7f, 1, 4, 0, 0, 0, 0)).toEqual(without);
    // Invalid field types, and headers longer than the record or shorter than their fields.
    for (const [at, byte] of [
      [5, 10],
      [4, 10],
      [3, 11],
      [3, 10],
      [2, 120],
      [2, 104],
      [2, 3],
      [2, 2],
      [2, 0],
    ])
      expect([at, byte, tried((copy) => copy.writeUInt8(byte!, first + at!))]).toEqual([at, byte, without]);
  });

  it('is partly readable if any part is intact', () => {
    writeFileSync(path, 'x');
    expect(isPartlyReadable(path)).toBe(true);
    expect(isPartlyReadable(`${path}.missing`)).toBe(false);
    writeFileSync(path, '');
    expect(isPartlyReadable(path)).toBe(false);
    expect(watched.open.size).toBe(0);
  });
});
