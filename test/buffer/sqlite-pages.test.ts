/** Reading a file of SQLite without SQLite, side by side with SQLite's own reading of it. */
import { copyFileSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type Database from 'better-sqlite3';
import { beforeEach, describe, expect, it } from 'vitest';
import { openDatabase } from '../../src/base/database.ts';
import { isPartlyReadable, type RawField, SqlitePages } from '../../src/buffer/recovery/sqlite-pages.ts';
import { freshFolder } from '../fresh-folder.ts';
import { openPaths } from '../open-paths.ts';

const PAGE = 1024;
const FRAME = 24 + PAGE;
const WAL_HEADER = 32;

const folder = freshFolder('tagferry-pages-');
let path: string;
beforeEach(() => {
  path = join(folder.path, 'some.db');
});

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

const hexOf = (length: number, first: number) => Buffer.from(blob(length, 0).subarray(0, first)).toString('hex');

const openFiles = () => openPaths().filter((one) => one.startsWith(folder.path)).length;

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
    for (const length of [WAL_HEADER + 10, 10, 0, wal.length - 1])
      expect(texts(wal.subarray(0, length))).toEqual(['first']);
    expect(texts(Buffer.alloc(WAL_HEADER + 10))).toEqual(['first']);
    const ofPage = (number: number) => {
      const copy = Buffer.from(wal);
      copy.writeUInt32BE(number, WAL_HEADER);
      return texts(copy);
    };
    // The WAL alone may make the file longer by as much as it is.
    const most = readFileSync(`${path}.copy`).length / PAGE + Math.ceil(wal.length / PAGE);
    expect((wal.length - WAL_HEADER) / FRAME).toBe(1);
    expect([ofPage(most), ofPage(most + 1), ofPage(0)]).toEqual([['first', 'first', 'second'], ['first'], ['first']]);
    expect(openFiles()).toBe(0);
  });

  it('takes of a WAL nothing that no commit ends, and what stands behind it of the next', () => {
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
    // The end of a commit that is of no page, or that is none any more, ends nothing.
    for (const at of [0, 4]) expect(ids(changed(commits[1]!, at))).toEqual([1, 2]);
    expect(ids(changed(commits[0]!, 4))).toEqual([1, 2, 3]);
  });

  it('takes of a WAL no part of a commit whose last frame is of no page', () => {
    const database = make((add) => {
      for (let id = 1; id <= 4; id++) add(id, blob(900, id));
    });
    database.pragma('wal_checkpoint(TRUNCATE)');
    const before = readBySqlite(database);
    database.exec("UPDATE t SET value = 'other'");
    copyFileSync(path, `${path}.copy`);
    const wal = readFileSync(`${path}-wal`);
    const after = readBySqlite(database);
    database.close();
    const frames = (wal.length - WAL_HEADER) / FRAME;
    const rows = (page?: number) => {
      const copy = Buffer.from(wal);
      if (page !== undefined) copy.writeUInt32BE(page, WAL_HEADER + (frames - 1) * FRAME);
      writeFileSync(`${path}.copy-wal`, copy);
      return read(`${path}.copy`).rows;
    };
    expect(frames).toBeGreaterThan(1);
    expect([rows(), rows(0), rows(0xffff_ffff)]).toEqual([after, before, before]);
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

  it('gives what SQLite notes of its tables itself', () => {
    make((add) => add(1, 'x')).close();
    const pages = new SqlitePages(path, PAGE);
    const notes = [...pages.rows()].filter(({ fields }) => fields[0] === 'table');
    pages.close();
    expect(notes.map(({ fields }) => fields.slice(0, 3))).toEqual([['table', 't', 't']]);
    expect(openFiles()).toBe(0);
  });

  it('has no number that JavaScript does not hold', () => {
    const database = make((add) => add(Number.MAX_SAFE_INTEGER, 'last'));
    const beyond = database.prepare('INSERT INTO t VALUES (?, ?)');
    for (const id of [2n ** 53n, 2n ** 56n, -1n]) beyond.run(id, 'beyond');
    database.close();
    expect(read()).toEqual({ rows: [[Number.MAX_SAFE_INTEGER, null, 'last']], cut: [], broken: 3, unreadPages: 0 });
  });

  it('gives rows of as many fields as a head of 200 bytes names', () => {
    const database = make(() => {});
    for (const [fields, id] of [
      [197, 1],
      [198, 2],
    ]) {
      const names = Array.from({ length: fields! }, (_, i) => `f${i}`);
      database.exec(
        `CREATE TABLE t${id} (id INTEGER PRIMARY KEY, ${names.join(', ')}); INSERT INTO t${id} (id) VALUES (${id})`,
      );
    }
    database.close();
    const { rows, broken } = read();
    expect([rows.map((row) => row.length), broken]).toEqual([[1 + 198], 1]);
  });

  it('counts cells and pages that cannot be, and takes nothing from them, nor a part', () => {
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
    /** The first cell stands before the end of the page, and has these bytes. */
    const atEnd = (...bytes: number[]) =>
      tried((copy) => {
        copy.writeUInt16BE(PAGE - bytes.length, cells);
        copy.set(bytes, end - bytes.length);
      });
    const without = [[2, 3, 4], [], 1];
    expect(tried(() => {})).toEqual([[1, 2, 3, 4], [], 0]);
    // More cells than a page has room for; bytes of a number that go on behind its end; a cell of a size alone.
    expect(tried((copy) => copy.writeUInt16BE(509, leaf + 3))).toEqual([[], [], 1]);
    for (const bytes of [[0x85], [5], [1, 1, 5], [2, 1, 5, 0]]) expect(atEnd(...bytes)).toEqual(without);
    // More bytes than there can be; as many as a page may hold, and more than are behind it in this one; none.
    expect(tried((copy) => copy.writeUInt32BE(0xffff_ff7f, first))).toEqual(without);
    expect(tried((copy) => copy.writeUInt8(127, first))).toEqual(without);
    expect(tried((copy) => copy.writeUInt8(0, first))).toEqual(without);
    // One that runs over, and the number of the page where it goes on would stand behind the end.
    expect(atEnd(0x8f, 0x7f, 1, 4, 0, 0, 0, 0)).toEqual(without);
    // Forms of field that are none, and heads that are longer than all of it or shorter than their fields.
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

  it.each<[string, string, unknown[], RawField[]]>([
    ['in its first field', 'a', [2_000], [hexOf(2_000, 980)]],
    // Of 1,020 bytes that are missing each stands in what follows.
    ['before the last byte of one', 'a, b', [300, 1_019], [hexOf(300, 299)]],
    ['between two', 'a, b', [300, 1_020], [hexOf(300, 300)]],
    ['behind the first byte of the next', 'a, b', [300, 1_021], [hexOf(300, 300), hexOf(1_021, 1)]],
    ['in a number', 'a, n, b', [300, 2 ** 40, 1_016], [hexOf(300, 300)]],
    ['behind a number', 'a, n, b', [300, 2 ** 40, 1_021], [hexOf(300, 300), 2 ** 40, hexOf(1_021, 1)]],
    ['behind nothing', 'a, z, b', [300, 0, 1_020], [hexOf(300, 300), '']],
  ])('gives of a row that breaks off %s what is there', (_, columns, sizes, fields) => {
    const database = openDatabase(path);
    const names = columns.split(', ');
    database.exec(`CREATE TABLE t (id INTEGER PRIMARY KEY, ${columns})`);
    const values = names.map((name, at) => (name === 'n' ? BigInt(sizes[at] as number) : blob(sizes[at] as number, 0)));
    database.prepare(`INSERT INTO t VALUES (7, ${names.map(() => '?').join(', ')})`).run(...values);
    database.close();
    // The last page is where it goes on.
    truncateSync(path, readFileSync(path).length - PAGE);
    const pages = new SqlitePages(path, PAGE);
    const rows = [...pages.rows()].filter((row) => row.fields[0] !== 'table');
    expect([plain(rows), rows.map(({ isCut }) => isCut), pages.broken]).toEqual([[[7, null, ...fields]], [true], 1]);
    pages.close();
  });

  it('is partly readable where anything of it reads, and not where nothing is there', () => {
    writeFileSync(path, 'x');
    expect(isPartlyReadable(path)).toBe(true);
    expect(isPartlyReadable(`${path}.missing`)).toBe(false);
    writeFileSync(path, '');
    expect(isPartlyReadable(path)).toBe(false);
    expect(openFiles()).toBe(0);
  });
});
