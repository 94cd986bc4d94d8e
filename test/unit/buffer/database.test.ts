import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { openDatabase } from '../../../src/base/database.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-database-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

it('database syncs each commit after it is opened or reopened', () => {
  const path = join(folder, 'a.db');
  for (let opening = 0; opening < 3; opening++) {
    const database = openDatabase(path);
    expect(database.pragma('synchronous', { simple: true })).toBe(2);
    expect(database.pragma('journal_mode', { simple: true })).toBe('wal');
    expect(database.pragma('auto_vacuum', { simple: true })).toBe(2);
    expect(database.pragma('page_size', { simple: true })).toBe(1024);
    database.exec('CREATE TABLE IF NOT EXISTS t (x)');
    database.close();
  }
  expect(statSync(path).mode & 0o777).toBe(0o600);
  // The default of the driver differs.
  const bare = new Database(path);
  bare.exec('INSERT INTO t VALUES (1)');
  expect(bare.pragma('synchronous', { simple: true })).toBe(1);
  bare.close();
});

it('database with an unsupported pragma is not used', () => {
  const path = join(folder, 'b.db');
  const foreign = new Database(path);
  foreign.pragma('journal_mode = DELETE');
  foreign.exec('CREATE TABLE t (x)');
  foreign.close();
  // SQLite cannot enable auto-vacuum later.
  expect(() => openDatabase(path)).toThrow(/auto_vacuum/);
});
