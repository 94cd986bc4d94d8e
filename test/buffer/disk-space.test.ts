/** What the store does about the space on its disk, each for itself: bounds, the reserve, checkpoints, what would be dropped. */

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Database, openDatabase } from '../../src/base/database.ts';
import { Flush } from '../../src/buffer/compaction/flush.ts';
import { Pending } from '../../src/buffer/pending.ts';
import { ReadLeases } from '../../src/buffer/read-leases.ts';
import type { BufferBounds } from '../../src/buffer/space/bounds.ts';
import { DiskSpaceGuard } from '../../src/buffer/space/disk-space-guard.ts';
import { Dropping, type DroppingParts } from '../../src/buffer/space/dropping.ts';
import { StoreState } from '../../src/buffer/state.ts';
import { prepareStatements, prepareTables } from '../../src/buffer/tables.ts';
import { freshFolder } from '../fresh-folder.ts';
import { openPaths } from '../open-paths.ts';

const MiB = 1024 * 1024;

const folder = freshFolder('tagferry-disk-space-');
let path: string;
let database: Database;
beforeEach(() => {
  path = join(folder.path, 'buffer.db');
  database = openDatabase(path);
  prepareTables(database);
});
afterEach(() => database.close());

const bounded = (bounds: Partial<BufferBounds> = {}): BufferBounds => ({
  maxBytes: 0,
  maxAgeMs: 0,
  minFree: { bytes: 0 },
  full: 'drop-oldest',
  ...bounds,
});
const guardOf = (bounds: Partial<BufferBounds> = {}) =>
  new DiskSpaceGuard(database, path, bounded(bounds), new ReadLeases());

/** Pages of the file that hold nothing. */
function freePages(): void {
  database.exec('CREATE TABLE t (x); INSERT INTO t VALUES (zeroblob(400000)); DELETE FROM t;');
}

describe('the store and its disk', () => {
  it('moves the WAL of a small bound into the database before it outgrows half of the reserve', () => {
    const pages = () => database.pragma('wal_autocheckpoint', { simple: true });
    guardOf();
    expect(pages()).toBe(1_000);
    guardOf({ maxBytes: 2 * MiB });
    expect(pages()).toBe(128);
  });

  it('holds no file open for its reserve', () => {
    guardOf();
    expect(existsSync(`${path}.reserve`)).toBe(true);
    const open = openPaths();
    expect(open).toContain(path);
    expect(open).not.toContain(`${path}.reserve`);
  });

  it('says why values are not taken in where too little is to stay free', () => {
    expect(guardOf({ minFree: { bytes: 1e18 } }).refusal(1)).toMatchObject({
      code: 'buffer.low-space',
      retryable: true,
    });
    expect(guardOf().refusal(1)).toBeUndefined();
  });

  it('gives pages back for its bound where that is passed, and not before', () => {
    freePages();
    expect(guardOf({ maxBytes: 100 * MiB }).isOversized).toBe(false);
    expect(guardOf({ maxBytes: 100_000 }).isOversized).toBe(true);
    expect(guardOf().isOversized).toBe(false);
  });

  it('gives pages back where there are many of them', () => {
    freePages();
    expect(guardOf().hasSpare).toBe(false);
    database.exec('INSERT INTO t VALUES (zeroblob(3000000)); DELETE FROM t;');
    expect(guardOf().hasSpare).toBe(true);
  });

  it('once it was full flushes what fits twice beside what deleting takes, until it has its reserve again', () => {
    const guard = guardOf();
    expect(guard.flushSpace).toBeUndefined();
    guard.makeRoom();
    expect([guard.isShort, existsSync(`${path}.reserve`)]).toEqual([true, false]);
    const maxValues = Math.floor((guard.use.freeBytes - 128 * 1024) / 24);
    expect(guard.flushSpace).toEqual({ maxValues, atOnce: false });
    guard.giveBack(10_000);
    expect([guard.isShort, existsSync(`${path}.reserve`), guard.flushSpace]).toEqual([false, true, undefined]);
  });
});

describe('a bound that is passed', () => {
  it('by what nothing can be dropped of asks for no further step', () => {
    const [state, pending] = [new StoreState(), new Pending()];
    const flush = new Flush(state, pending);
    const bounds = bounded({ maxBytes: 100_000 });
    const statements = prepareStatements(database);
    const dropping = new Dropping({
      isRead: () => false,
      state,
      pending,
      flush,
      bounds,
      statements,
    } as Partial<DroppingParts> as DroppingParts);
    const usedBytes = 200_000;
    const use = { usedBytes, bytes: usedBytes, walBytes: 0, reusableBytes: 0, freeBytes: 1e9, totalBytes: 1e12 };
    expect(dropping.isDue(use)).toBe(true);
    dropping.keep(use, () => 0);
    expect([dropping.committed(), dropping.isDue(use)]).toEqual([false, false]);
  });
});

describe('what would fall under another bound', () => {
  it('is quarantine first, as far as it goes, and then a share of the values', () => {
    const state = new StoreState();
    state.logValues = 400;
    state.segmentValues = 500;
    const statements = prepareStatements(database);
    // A thousand bytes each, with what a row takes beside.
    for (let id = 1; id <= 10; id++) statements.addQuarantine.run(1, 100, new Uint8Array(983), 400, 'x', 0, 0);
    const dropping = new Dropping({ state, statements } as Partial<DroppingParts> as DroppingParts);
    const forecast = (usedBytes: number) => {
      const rest = { bytes: usedBytes, walBytes: 0, reusableBytes: 0, freeBytes: 1e9, totalBytes: 1e12 };
      return dropping.forecast({ usedBytes, ...rest }, { maxBytes: 80_000 });
    };
    // The bound keeps an eighth for the WAL.
    expect(forecast(70_000)).toEqual({ values: 0, quarantined: 0 });
    expect(forecast(75_000)).toEqual({ values: 0, quarantined: 500 });
    expect(forecast(80_000)).toEqual({ values: 0, quarantined: 1_000 });
    expect(forecast(100_000)).toEqual({ values: 200, quarantined: 1_000 });
  });
});
