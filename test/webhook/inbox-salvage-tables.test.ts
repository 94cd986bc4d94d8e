/** Of each kind of table that the inbox has: what is carried over where all of it reads, and where some of its pages do not. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openDatabase } from '../../src/base/database.ts';
import { copyReadableRows } from '../../src/webhook/inbox-salvage.ts';
import { freshFolder } from '../fresh-folder.ts';
import { openPaths } from '../open-paths.ts';
import { arrived, everyRow, InboxFile, name } from './parts/inbox-rows.ts';

const PAGE = 1024;
const TEXT = 'x'.repeat(100);

const folder = freshFolder('tagferry-salvage-tables-');
let path: string;
let into: Database.Database;
beforeEach(() => {
  path = join(folder.path, 'old.db');
  into = openDatabase(join(folder.path, 'new.db'));
});
afterEach(() => void into.close());

const range = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i);

function fill(table: string, insert: string, rows: readonly unknown[][]): void {
  const old = openDatabase(path);
  old.exec(table);
  const add = old.prepare(insert);
  old.transaction(() => {
    for (const row of rows) add.run(...row);
  })();
  old.close();
  into.exec(table);
}

/** The leaf pages of a table in its order, each with how many rows it has. */
function leavesOf(table: string): { pageno: number; ncell: number }[] {
  const old = new Database(path, { readonly: true });
  const leaves = old
    .prepare<[string], { pageno: number; ncell: number }>(
      `SELECT pageno, ncell FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path`,
    )
    .all(table);
  old.close();
  return leaves;
}

function breakPages(pages: readonly number[]): void {
  const bytes = readFileSync(path);
  for (const page of pages) bytes.fill(0, (page - 1) * PAGE, page * PAGE);
  writeFileSync(path, bytes);
}

describe('every row of every table of an inbox', () => {
  it('comes where all of it reads, once', () => {
    const at = new InboxFile(path).open();
    at.inbox.insertMany(
      range(1, 40).map((n) => arrived(n, { delivery: name(n + 1_000), signatures: { sha256: 'a', sha1: 'b' } })),
    );
    for (const id of range(1, 20)) {
      for (const action of ['b', 'a', 'c'])
        at.inbox.record(id, { reaction: `r${id % 3}`, action, state: 'begun', tries: 1 });
      at.inbox.record(id, undefined, { reaction: 'r', action: 'a', outcome: 'ok', durationMs: 1, atMs: 2 });
      at.inbox.setCooldown(`r${id % 3}`, `o${id}`, 5);
      at.inbox.setNote(`note ${id}`, 'x');
    }
    at.inbox.markAsked(range(1, 20).map(name));
    const rows = everyRow(at.database, true);
    at.database.close();
    const fresh = new InboxFile(join(folder.path, 'fresh.db')).open();
    fresh.database.exec('DELETE FROM inbox_note');
    const count = Object.entries(rows).reduce(
      (sum, [table, { length }]) => sum + (table === 'sqlite_sequence' ? 0 : length),
      0,
    );
    expect(copyReadableRows(path, fresh.database)).toBe(count);
    expect(everyRow(fresh.database, true)).toEqual(rows);
    expect(copyReadableRows(path, fresh.database)).toBe(0);
    expect(everyRow(fresh.database, true)).toEqual(rows);
    fresh.database.close();
  });
});

describe('a table whose key is a name', () => {
  it('gives what stands before its first broken page and behind its last', () => {
    const key = (n: number) => `n${String(n).padStart(4, '0')}`;
    fill(
      'CREATE TABLE noted (name TEXT PRIMARY KEY, text TEXT) WITHOUT ROWID',
      'INSERT INTO noted VALUES (?, ?)',
      range(0, 500).map((n) => [key(n), TEXT]),
    );
    const leaves = leavesOf('noted');
    const places = [10, 20];
    breakPages(places.map((place) => leaves[place]!.pageno));
    // Between two leaves stands a row in the page above.
    const firstOf = (place: number) => leaves.slice(0, place).reduce((sum, { ncell }) => sum + ncell + 1, 0);
    const left = [...range(0, firstOf(10)), ...range(firstOf(20) + leaves[20]!.ncell, 500)];
    expect(copyReadableRows(path, into)).toBe(left.length);
    expect(into.prepare('SELECT name FROM noted ORDER BY 1').pluck().all()).toEqual(left.map(key));
  });
});

describe('a table of several rows for each number', () => {
  it('gives each of them before its first broken page and behind its last, whatever number it has', () => {
    // As progress has it: event, reaction, action.
    const rows = range(0, 900).map((n) => [Math.floor(n / 90), `r${Math.floor(n / 9) % 10}`, `a${n % 9}`, TEXT]);
    fill(
      'CREATE TABLE steps (event INTEGER, reaction TEXT, action TEXT, text TEXT, PRIMARY KEY (event, reaction, action)) WITHOUT ROWID',
      'INSERT INTO steps VALUES (?, ?, ?, ?)',
      rows,
    );
    const leaves = leavesOf('steps');
    const place = 25;
    breakPages([leaves[place]!.pageno]);
    const first = leaves.slice(0, place).reduce((sum, { ncell }) => sum + ncell + 1, 0);
    const left = rows.toSpliced(first, leaves[place]!.ncell);
    expect(left.length).toBeGreaterThan(880);
    expect(copyReadableRows(path, into)).toBe(left.length);
    expect(into.prepare('SELECT * FROM steps ORDER BY 1, 2, 3').raw().all()).toEqual(left);
  });
});

describe('a table of numbers', () => {
  const NUMBERED = 'CREATE TABLE numbered (id INTEGER PRIMARY KEY, text TEXT NOT NULL)';
  const INSERT = 'INSERT INTO numbered VALUES (?, ?)';
  const idsIn = () => into.prepare<[], number>('SELECT id FROM numbered ORDER BY 1').pluck().all();

  it('may have gaps of any size between its numbers, and numbers below 0', () => {
    const ids = [-(2 ** 52), -7, 0, 1, 2, 1_000_000, 2 ** 45, 2 ** 52];
    fill(
      NUMBERED,
      INSERT,
      ids.map((id) => [id, TEXT]),
    );
    expect(copyReadableRows(path, into)).toBe(ids.length);
    expect(idsIn()).toEqual(ids);
  });

  it('gives what stands on each page that reads, however far it is to the next', () => {
    const ids = range(0, 600).map((n) => n ** 3);
    fill(
      NUMBERED,
      INSERT,
      ids.map((id) => [id, TEXT]),
    );
    const leaves = leavesOf('numbered');
    const places = [5, 6, 30, 31, 32, 33, 50];
    breakPages(places.map((place) => leaves[place]!.pageno));
    const left: number[] = [];
    let first = 0;
    for (const [place, { ncell }] of leaves.entries()) {
      if (!places.includes(place)) left.push(...ids.slice(first, first + ncell));
      first += ncell;
    }
    expect(copyReadableRows(path, into)).toBe(left.length);
    expect(idsIn()).toEqual(left);
  });

  it('leaves out a row whose number is none, and leaves the old file closed', () => {
    const old = openDatabase(path);
    old.exec(`CREATE TABLE numbered (id, text); INSERT INTO numbered VALUES (1, 'a'), (1.5, 'b'), (2, NULL), (3, 'c')`);
    old.close();
    into.exec(NUMBERED);
    expect(copyReadableRows(path, into)).toBe(2);
    expect(idsIn()).toEqual([1, 3]);
    expect(openPaths().filter((one) => one.startsWith(path))).toEqual([]);
  });

  it('is read past 200 broken places, and no further: each may cost a disk seconds', () => {
    fill(
      NUMBERED,
      INSERT,
      range(0, 4_500).map((id) => [id, TEXT]),
    );
    const leaves = leavesOf('numbered');
    expect(leaves.length).toBeGreaterThan(440);
    breakPages(leaves.filter((_, place) => place % 2 === 1).map(({ pageno }) => pageno));
    const left: number[] = [];
    let first = 0;
    let upToGap = 0;
    for (const [place, { ncell }] of leaves.entries()) {
      if (place % 2 === 0) left.push(...range(first, first + ncell));
      if (place === 399) upToGap = left.length;
      first += ncell;
    }
    // And of what stands behind the last of them the beginning, which its end was found by.
    const count = copyReadableRows(path, into);
    expect([count >= upToGap, count <= upToGap + leaves[400]!.ncell]).toEqual([true, true]);
    expect(idsIn()).toEqual(left.slice(0, count));
  });
});
