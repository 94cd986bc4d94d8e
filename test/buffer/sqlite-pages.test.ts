/** Reading a file of SQLite without SQLite, side by side with SQLite's own reading of it. */
import { copyFileSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openDatabase } from '../../src/base/database.ts';
import { isPartlyReadable, type RawField, SqlitePages } from '../../src/buffer/recovery/sqlite-pages.ts';
import { walLostCommits } from '../../src/buffer/recovery/wal-check.ts';
import { memoryFolder } from '../memory-folder.ts';

const PAGE = 1024;
const FRAME = 24 + PAGE;
const WAL_HEADER = 32;

let folder: string;
let path: string;
beforeEach(() => {
  folder = memoryFolder('tagferry-pages-');
  path = join(folder, 'some.db');
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** One of each form that a field has in a record, at the edges of each width. */
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
/** Around the length at which a cell runs over into other pages, and at which these are several. */
const LENGTHS = [900, 983, 984, 985, 986, 987, 988, 989, 990, 1_100, 2_000, 2_003, 2_004, 2_005, 3_100, 70_000];

const blob = (length: number, seed: number) => Uint8Array.from({ length }, (_, i) => (i * 7 + seed) % 251);

/** Without the fields' kinds of buffer, in order of their numbers. */
const plain = (rows: Iterable<{ rowid: number; fields: RawField[] }>) =>
  [...rows]
    .map(({ rowid, fields }) => [
      rowid,
      ...fields.map((field) => (field instanceof Uint8Array ? Buffer.from(field).toString('hex') : field)),
    ])
    .sort((one, other) => Number(one[0]) - Number(other[0]));

/** Rows of tables; SQLite's own table, whose first field is a text, is left out. */
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
    // The driver takes every number for a fraction; SQLite keeps a whole one in as few bytes as it needs.
    const whole = typeof value === 'number' && Number.isSafeInteger(value);
    statement.run(id, whole ? BigInt(value) : value);
  });
  return database;
}

describe('a file of SQLite read by its pages', () => {
  it('gives each row as SQLite does: numbers of each width, texts, bytes, what runs over', () => {
    const database = make((add) => {
      for (const [at, field] of FIELDS.entries()) add(at + 1_000, field);
      for (const [at, id] of ROWIDS.entries()) add(id, at);
      for (const [at, length] of LENGTHS.entries()) add(at + 5_000, blob(length, at));
    });
    const expected = readBySqlite(database);
    expect(expected).toHaveLength(FIELDS.length + ROWIDS.length + LENGTHS.length);
    // All of it in the WAL, and then all of it in the file.
    expect(read()).toEqual({ rows: expected, cut: [], broken: 0, unreadPages: 0 });
    database.close();
    expect(read()).toEqual({ rows: expected, cut: [], broken: 0, unreadPages: 0 });
  });

  it('leaves out what was deleted', () => {
    const database = make((add) => {
      for (let id = 1; id <= 400; id++) add(id, blob(900, id));
    });
    database.exec('DELETE FROM t WHERE id > 20 AND id <= 380');
    const expected = readBySqlite(database);
    database.close();
    expect(read().rows).toEqual(expected);
  });

  it('takes of the WAL what is committed, of the round that its header names', () => {
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
    // The header alone is broken: the frames say the same.
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
    expect(texts(wal.subarray(0, WAL_HEADER + 10))).toEqual(['first']);
  });

  it('tells of what breaks off how far it goes, and counts it', () => {
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

  it('counts cells and pages that cannot be, and takes nothing from them', () => {
    const database = make((add) => {
      for (let id = 1; id <= 4; id++) add(id, blob(100, id));
    });
    database.close();
    const file = readFileSync(path);
    const leaf =
      [...Array(file.length / PAGE).keys()].findLast((page) => page > 0 && file[page * PAGE] === 0x0d)! * PAGE;
    const cells = leaf + 8;
    const tried = (change: (copy: Buffer) => void) => {
      const copy = Buffer.from(file);
      change(copy);
      writeFileSync(`${path}.copy`, copy);
      const { rows, broken } = read(`${path}.copy`);
      return [rows.map(([id]) => id), broken];
    };
    expect(tried(() => {})).toEqual([[1, 2, 3, 4], 0]);
    // More cells than a page has room for, one behind its end, one of more bytes than there can be, a form of field that is none.
    expect(tried((copy) => copy.writeUInt16BE(509, leaf + 3))).toEqual([[], 1]);
    expect(tried((copy) => copy.writeUInt16BE(PAGE - 1, cells))).toEqual([[2, 3, 4], 1]);
    const first = leaf + file.readUInt16BE(cells);
    expect(tried((copy) => copy.writeUInt32BE(0xffff_ff7f, first))).toEqual([[2, 3, 4], 1]);
    expect(tried((copy) => copy.writeUInt8(10, first + 5))).toEqual([[2, 3, 4], 1]);
    // One of so many bytes as a page may hold, and more than are behind it in this one.
    expect(tried((copy) => copy.writeUInt8(127, first))).toEqual([[2, 3, 4], 1]);
  });

  it('is partly readable where anything of it reads, and not where nothing is there', () => {
    writeFileSync(path, 'x');
    expect(isPartlyReadable(path)).toBe(true);
    expect(isPartlyReadable(`${path}.missing`)).toBe(false);
    writeFileSync(path, '');
    expect(isPartlyReadable(path)).toBe(false);
  });
});

describe('a WAL', () => {
  /** As a killed process leaves it: eight commits, with its index or without. */
  function killed(withIndex: boolean): Buffer {
    const database = make(() => {});
    database.pragma('wal_checkpoint(TRUNCATE)');
    for (let id = 1; id <= 8; id++) database.exec(`INSERT INTO t VALUES (${id}, 'row')`);
    for (const end of ['', '-wal', ...(withIndex ? ['-shm'] : [])]) copyFileSync(`${path}${end}`, `${path}.copy${end}`);
    database.close();
    return readFileSync(`${path}.copy-wal`);
  }
  const lost = (wal: Buffer) => {
    writeFileSync(`${path}.copy-wal`, wal);
    return walLostCommits(`${path}.copy`, PAGE);
  };
  const flipped = (wal: Buffer, at: number) => {
    const copy = Buffer.from(wal);
    copy[at]! ^= 1;
    return copy;
  };
  const frame = (number: number) => WAL_HEADER + number * FRAME;

  it('has lost commits where its index knows of more than read', () => {
    const wal = killed(true);
    expect(lost(wal)).toBe(false);
    const frames = (wal.length - WAL_HEADER) / FRAME;
    expect(lost(wal.subarray(0, frame(frames - 1)))).toBe(true);
    expect(lost(flipped(wal, frame(frames - 1) + 24 + 5))).toBe(true);
    expect(lost(flipped(wal, 3 * FRAME + 100))).toBe(true);
    expect(lost(Buffer.alloc(0))).toBe(true);
    expect(lost(Buffer.concat([Buffer.alloc(WAL_HEADER), wal.subarray(WAL_HEADER)]))).toBe(true);
    // An index that does not agree with itself, or is of another round, is no witness: the torn end is one commit.
    const index = readFileSync(`${path}.copy-shm`);
    writeFileSync(`${path}.copy-shm`, flipped(index, 20));
    expect(lost(wal.subarray(0, frame(frames - 1)))).toBe(false);
    writeFileSync(`${path}.copy-shm`, flipped(flipped(index, 32), 48 + 32));
    expect(lost(wal.subarray(0, frame(frames - 1)))).toBe(false);
  });

  it('has lost commits without an index where more than the last one does not fit', () => {
    const wal = killed(false);
    const frames = (wal.length - WAL_HEADER) / FRAME;
    expect(lost(wal)).toBe(false);
    expect(lost(flipped(wal, frame(frames - 1) + 24))).toBe(false);
    expect(lost(flipped(wal, frame(frames - 2) + 24))).toBe(true);
    expect(lost(flipped(wal, frame(0) + 24))).toBe(true);
    // A torn end, and nothing behind it.
    expect(lost(wal.subarray(0, frame(frames - 3) + 10))).toBe(false);
    // Behind it stands an earlier round, as SQLite leaves it.
    const old = Buffer.from(wal);
    for (let at = frame(4); at + FRAME <= wal.length; at += FRAME) old[at + 8]! ^= 1;
    expect(lost(old)).toBe(false);
    // Without its header nothing of it counts.
    expect(lost(flipped(wal, 0))).toBe(true);
    expect(lost(flipped(wal, 24))).toBe(true);
    expect(lost(Buffer.alloc(0))).toBe(false);
    expect(lost(Buffer.alloc(wal.length))).toBe(false);
  });

  it('beside a file of no pages is deleted by SQLite, so all of it is lost', () => {
    const wal = killed(false);
    rmSync(`${path}.copy`);
    expect(lost(wal)).toBe(true);
    writeFileSync(`${path}.copy`, Buffer.alloc(PAGE - 1));
    expect(lost(wal)).toBe(true);
    expect(lost(wal.subarray(0, WAL_HEADER))).toBe(false);
  });
});
