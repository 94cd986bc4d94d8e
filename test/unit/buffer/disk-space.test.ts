import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Database, openDatabase } from '../../../src/base/database.ts';
import { ReadLeases } from '../../../src/buffer/read-leases.ts';
import type { BufferBounds } from '../../../src/buffer/space/bounds.ts';
import { DiskSpaceGuard } from '../../../src/buffer/space/disk-space-guard.ts';
import { prepareTables } from '../../../src/buffer/tables.ts';
import { freshFolder } from '../../fresh-folder.ts';

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

/** Creates free pages. */
function freePages(): void {
  database.exec('CREATE TABLE t (x); INSERT INTO t VALUES (zeroblob(400000)); DELETE FROM t;');
}

describe('store on a small disk', () => {
  it('rejects values and reports the reason if free space is low', () => {
    expect(guardOf({ minFree: { bytes: 1e18 } }).refusal(1)).toMatchObject({
      code: 'buffer.low-space',
      retryable: true,
    });
    expect(guardOf().refusal(1)).toBeUndefined();
  });

  it('returns free pages only if its size limit is exceeded', () => {
    freePages();
    expect(guardOf({ maxBytes: 100 * MiB }).isOversized).toBe(false);
    expect(guardOf({ maxBytes: 100_000 }).isOversized).toBe(true);
    expect(guardOf().isOversized).toBe(false);
  });

  it('returns free pages if there are many', () => {
    freePages();
    expect(guardOf().hasSpare).toBe(false);
    database.exec('INSERT INTO t VALUES (zeroblob(3000000)); DELETE FROM t;');
    expect(guardOf().hasSpare).toBe(true);
  });
});
