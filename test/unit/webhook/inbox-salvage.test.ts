import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openDatabase } from '../../../src/base/database.ts';
import { copyReadableRows } from '../../../src/webhook/inbox-salvage.ts';
import { newFolder } from '../../fresh-folder.ts';

const PAGE = 1024;
const ROWS = 2_000;
const NUMBERED = 'CREATE TABLE numbered (id INTEGER PRIMARY KEY, text TEXT NOT NULL)';
const NAMED = 'CREATE TABLE named (name TEXT, epoch INTEGER, text TEXT, PRIMARY KEY (epoch, name)) WITHOUT ROWID';

let folder: string;
let path: string;
let into: Database.Database;
beforeEach(() => {
  folder = newFolder('tagferry-inbox-salvage-');
  path = join(folder, 'old.db');
  into = openDatabase(join(folder, 'new.db'));
});
afterEach(() => {
  into.close();
  rmSync(folder, { recursive: true, force: true });
});

const numbers = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i);

function fill(table: string): void {
  const old = openDatabase(path);
  old.exec(table);
  const name = table === NAMED ? 'named (epoch, name, text) VALUES (?, ?, ?)' : 'numbered VALUES (?, ?)';
  const add = old.prepare(`INSERT INTO ${name}`);
  const text = 'x'.repeat(100);
  old.transaction(() => {
    for (const id of numbers(0, ROWS)) add.run(...(table === NAMED ? [id, `n${ROWS - id}`, text] : [id, text]));
  })();
  old.close();
}

/** Overwrites these leaf pages, and returns the remaining row numbers. */
function breakLeaves(table: string, places: readonly number[]): number[] {
  const old = new Database(path, { readonly: true });
  const leaves = old
    .prepare<[], { pageno: number; ncell: number }>(
      "SELECT pageno, ncell FROM dbstat WHERE name IN ('numbered', 'named') AND pagetype = 'leaf' ORDER BY path",
    )
    .all();
  old.close();
  const bytes = readFileSync(path);
  const left: number[] = [];
  let first = 0;
  for (const [place, { pageno, ncell }] of leaves.entries()) {
    if (places.includes(place) || places.includes(place - leaves.length)) {
      bytes.fill(0, (pageno - 1) * PAGE, pageno * PAGE);
    } else left.push(...numbers(first, first + ncell));
    first += ncell;
    // WITHOUT ROWID tables have a row between two leaf pages, in their parent page.
    if (table === NAMED && place < leaves.length - 1) left.push(first++);
  }
  expect(first).toBe(ROWS);
  writeFileSync(path, bytes);
  return left;
}

const idsIn = (column: string, table: string) =>
  into.prepare<[], number>(`SELECT ${column} FROM ${table} ORDER BY 1`).pluck().all();

describe('damaged inbox salvage', () => {
  it.each([
    ['no damage', []],
    ['the first page', [0]],
    ['single pages and ranges', [3, 50, 51, 52, 120]],
    ['the last page and another one', [3, -1]],
  ])('copies all numbered rows from readable pages: %s', (_, places) => {
    fill(NUMBERED);
    const left = breakLeaves(NUMBERED, places);
    expect(left.length).toBeGreaterThan(ROWS * 0.9);
    into.exec(NUMBERED);
    expect(copyReadableRows(path, into)).toBe(left.length);
    expect(idsIn('id', 'numbered')).toEqual(left);
  });

  it('copies rows without event numbers from before and after damaged pages', () => {
    fill(NAMED);
    const left = breakLeaves(NAMED, [40]);
    expect(left.length).toBeLessThan(ROWS);
    into.exec(NAMED);
    expect(copyReadableRows(path, into)).toBe(left.length);
    expect(idsIn('epoch', 'named')).toEqual(left);
  });

  it('skips rows that violate constraints', () => {
    fill(NUMBERED.replace(' NOT NULL', ''));
    const old = new Database(path);
    old.exec('UPDATE numbered SET text = NULL WHERE id IN (7, 8)');
    old.close();
    into.exec(`${NUMBERED}; ${NAMED}`);
    expect(copyReadableRows(path, into)).toBe(ROWS - 2);
    expect(idsIn('id', 'numbered')).toEqual(numbers(0, ROWS).filter((id) => id !== 7 && id !== 8));
    expect(copyReadableRows(path, into)).toBe(0);
  });

  it('copies nothing from a file that is not a database', () => {
    into.exec(NUMBERED);
    expect(copyReadableRows(join(folder, 'missing.db'), into)).toBe(0);
    writeFileSync(path, 'no database '.repeat(200));
    expect(copyReadableRows(path, into)).toBe(0);
  });

  it('fails if the new database is read-only', () => {
    fill(NUMBERED);
    into.exec(`${NUMBERED}; PRAGMA query_only = ON`);
    expect(() => copyReadableRows(path, into)).toThrow(expect.objectContaining({ code: 'SQLITE_READONLY' }));
  });
});
