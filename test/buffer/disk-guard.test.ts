/** What the store does on a disk of any size, at each boundary: the free space of the file system is what a test says it is. */
import type * as files from 'node:fs';
import { existsSync, mkdirSync, realpathSync, rmdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type Database, openDatabase } from '../../src/base/database.ts';
import { type BufferBounds, DiskGauge } from '../../src/buffer/space/bounds.ts';
import { DiskSpaceGuard, full } from '../../src/buffer/space/disk-space-guard.ts';
import { saysFull } from '../../src/buffer/space/reserve.ts';
import { prepareTables } from '../../src/buffer/tables.ts';
import { memoryFolder } from '../memory-folder.ts';

const KiB = 1024;
const MiB = 1024 * KiB;
/** Twice the reserve of a large disk: with less it is not made. */
const ROOM = 4 * MiB;
const NARROW = 16 * MiB;

const fileSystem = vi.hoisted(() => ({ freeBytes: 0, totalBytes: 0, fails: false, writes: Number.POSITIVE_INFINITY }));
vi.mock('node:fs', async (original) => {
  const real = await original<typeof files>();
  const statfsSync = () => {
    if (fileSystem.fails) throw Object.assign(new Error('EIO: i/o error, statfs'), { code: 'EIO' });
    const bsize = 2;
    return { bavail: fileSystem.freeBytes / bsize, bsize, blocks: fileSystem.totalBytes / bsize };
  };
  const writeSync = (fd: number, piece: Buffer, offset: number, length: number) => {
    if (fileSystem.writes-- <= 0) throw Object.assign(new Error('ENOSPC: no space left, write'), { code: 'ENOSPC' });
    return real.writeSync(fd, piece, offset, length);
  };
  return { ...real, statfsSync, writeSync };
});

let folder: string;
let path: string;
let database: Database;
beforeEach(() => {
  Object.assign(fileSystem, { freeBytes: 1e9, totalBytes: 1e12, fails: false });
  folder = realpathSync(memoryFolder('tagferry-disk-guard-'));
  path = join(folder, 'buffer.db');
  database = openDatabase(path);
  prepareTables(database);
  database.exec('CREATE TABLE t (x)');
});
afterEach(() => {
  database.close();
  rmSync(folder, { recursive: true, force: true });
});

const has = (freeBytes: number, totalBytes = 1e12) => Object.assign(fileSystem, { freeBytes, totalBytes });
const guardOf = (bounds: Partial<BufferBounds> = {}) =>
  new DiskSpaceGuard(database, path, {
    maxBytes: 0,
    maxAgeMs: 0,
    minFree: { bytes: 0 },
    full: 'drop-oldest',
    ...bounds,
  });
/** One whose disk was full, and has so much free since. */
function shortGuard(freeBytes: number, bounds: Partial<BufferBounds> = {}): DiskSpaceGuard {
  const guard = guardOf(bounds);
  guard.makeRoom();
  has(freeBytes);
  guard.lookNow(0);
  return guard;
}

const write = (bytes: number) => database.exec(`INSERT INTO t VALUES (zeroblob(${bytes}))`);
/** Pages that hold nothing, of some bytes. */
function freePages(bytes: number): void {
  write(bytes);
  database.exec('DELETE FROM t');
}
const freeCount = () => database.pragma('freelist_count', { simple: true }) as number;
const walBytes = () => statSync(`${path}-wal`).size;
const hasReserve = () => existsSync(`${path}.reserve`);
const emptyWal = () => database.pragma('wal_checkpoint(TRUNCATE)');

describe('what may be flushed at once', () => {
  it.each([
    ['all of it on a disk with room', NARROW, 1e12, undefined],
    ['what fits where it is narrow', NARROW - 2, 1e12, Math.floor((NARROW - 2 - 128 * KiB) / 24)],
    ['a value where there is so much for one', 128 * KiB + 24, 1e12, 1],
    ['none where there is a byte less', 128 * KiB + 22, 1e12, 0],
    ['none where there is nothing', 0, 1e12, 0],
    ['all of it where nobody knows', 0, 0, undefined],
  ])('is %s', (_, freeBytes, totalBytes, maxValues) => {
    has(freeBytes, totalBytes);
    // Without its reserve, and without a page that holds nothing, it takes no values.
    const atOnce = freeBytes < ROOM;
    expect(guardOf().flushSpace).toEqual(maxValues === undefined ? undefined : { maxValues, atOnce });
  });

  it('is what is left while the reserve is owed, at once where values are refused', () => {
    freePages(2e5);
    const guard = shortGuard(ROOM - 2);
    expect(guard.flushSpace).toEqual({ maxValues: Math.floor((ROOM - 2 - 128 * KiB) / 24), atOnce: false });
    expect(guard.refusal(1e6)).toEqual(full());
    expect(guard.flushSpace).toMatchObject({ atOnce: true });
  });
});

describe('what is carried over from a file that was set aside', () => {
  it.each<[string, number, number, Partial<BufferBounds>, boolean]>([
    ['goes on where there is room', NARROW, 1e12, {}, true],
    ['waits on a narrow disk', NARROW - 2, 1e12, {}, false],
    ['waits where the bound is passed', NARROW, 1e12, { maxBytes: 10_000 }, false],
    ['goes on with as much as is to stay free', NARROW, 1e12, { minFree: { bytes: NARROW } }, true],
    ['waits with a byte less', NARROW, 1e12, { minFree: { bytes: NARROW + 1 } }, false],
    ['waits with less than a share', NARROW, 100 * MiB, { minFree: { share: 0.17 } }, false],
    ['goes on with that share', NARROW, 100 * MiB, { minFree: { share: 0.16 } }, true],
    ['goes on where nobody knows', 0, 0, { minFree: { bytes: 1e9 } }, true],
  ])('%s', (_, freeBytes, totalBytes, bounds, expected) => {
    has(freeBytes, totalBytes);
    expect(guardOf(bounds).hasRoomToCarry).toBe(expected);
  });
});

describe('new values', () => {
  const codeOf = (guard: DiskSpaceGuard, values: number) => guard.refusal(values)?.code;

  it.each<[string, number, Partial<BufferBounds>, string | undefined]>([
    ['come in where there is room', NARROW, {}, undefined],
    ['come in with as much as is to stay free', 1e9, { minFree: { bytes: 1e9 } }, undefined],
    ['are refused with a byte less', 1e9, { minFree: { bytes: 1e9 + 1 } }, 'buffer.low-space'],
    ['are refused with less than a share', 1e9, { minFree: { share: 0.01 } }, 'buffer.low-space'],
    [
      'are refused where the bound is passed, by refuse-new',
      1e9,
      { maxBytes: 10_000, full: 'refuse-new' },
      'buffer.full',
    ],
    ['come in where it is kept, by refuse-new', 1e9, { maxBytes: 10e6, full: 'refuse-new' }, undefined],
    ['come in where it is passed, and the oldest go', 1e9, { maxBytes: 10_000 }, undefined],
  ])('%s', (_, freeBytes, bounds, code) => {
    has(freeBytes);
    const refusal = guardOf(bounds).refusal(1);
    expect([refusal?.code, refusal?.retryable]).toEqual([code, code && true]);
  });

  it('come in on a narrow disk as long as they fit twice, or into pages that hold nothing', () => {
    const freeBytes = 6e6;
    has(freeBytes);
    const guard = guardOf();
    expect([codeOf(guard, 250_000), guard.isFull]).toEqual([undefined, false]);
    expect([codeOf(guard, 250_001), guard.isFull]).toEqual(['buffer.disk-full', true]);
    // Fewer come in again.
    expect([codeOf(guard, 1), guard.isFull]).toEqual([undefined, false]);
    // With some more, so many as these have room for.
    has(ROOM);
    freePages(25e5);
    guard.lookNow(0);
    const fitting = Math.floor((guard.use.reusableBytes - 64_000) / 12);
    expect([codeOf(guard, fitting), codeOf(guard, fitting + 1)]).toEqual([undefined, 'buffer.disk-full']);
    // Of a disk of which nobody knows how large it is none is asked.
    has(0, 0);
    guard.lookNow(0);
    expect([codeOf(guard, 1e9), guard.isFull]).toEqual([undefined, false]);
  });

  it('come in while the reserve is owed into pages that hold nothing alone, until there is room for it', () => {
    freePages(2e5);
    const guard = shortGuard(ROOM - 2);
    const fitting = Math.floor((guard.use.reusableBytes - 64_000) / 12);
    expect(fitting).toBeGreaterThan(100);
    expect(codeOf(guard, fitting)).toBeUndefined();
    expect(guard.refusal(fitting + 1)).toEqual(full());
    expect(full()).toMatchObject({
      code: 'buffer.disk-full',
      retryable: true,
      hint: expect.stringMatching(/STATE_DIR/),
    });
    has(ROOM);
    guard.lookNow(0);
    expect([codeOf(guard, fitting + 1), guard.isFull]).toEqual([undefined, false]);
  });
});

describe('pages that hold nothing', () => {
  it('go back where the file is larger than its bound', () => {
    const before = guardOf().use;
    expect(before.reusableBytes).toBe(0);
    expect(guardOf({ maxBytes: before.bytes - 1 }).isOversized).toBe(false);
    freePages(4e5);
    const { bytes } = guardOf().use;
    // Which is looked at as it is: the WAL would be emptied where it is passed.
    emptyWal();
    const empty = guardOf().use.bytes;
    expect(empty).toBeLessThan(bytes);
    const oversized = (maxBytes: number) => {
      const guard = guardOf({ maxBytes });
      return [guard.isOversized, guard.hasSpare];
    };
    expect([oversized(empty), oversized(empty - 1), oversized(0)]).toEqual([
      [false, false],
      [true, true],
      [false, false],
    ]);
  });

  it('go back where they are many, and many of all', () => {
    freePages(11e5);
    expect(guardOf().hasSpare).toBe(true);
    database.exec('PRAGMA incremental_vacuum(10000)');
    freePages(980_000);
    emptyWal();
    expect([guardOf().use.reusableBytes < 1e6, guardOf().hasSpare]).toEqual([true, false]);
    // A tenth of a large file.
    write(11e6);
    write(11e5);
    database.exec('DELETE FROM t WHERE length(x) = 1100000');
    emptyWal();
    const guard = guardOf();
    expect(guard.use.reusableBytes).toBeGreaterThan(1e6);
    expect(guard.use.bytes / 10).toBeGreaterThan(guard.use.reusableBytes);
    expect(guard.hasSpare).toBe(false);
  });

  it('go back while the reserve is owed where it then has room, and not where it has room without', () => {
    freePages(4e5);
    const { reusableBytes } = guardOf().use;
    const enough = ROOM + 64_000 - reusableBytes;
    const hasSpare = (freeBytes: number) => shortGuard(freeBytes).hasSpare;
    expect([enough - 2, enough, ROOM - 2, ROOM].map(hasSpare)).toEqual([false, true, true, false]);
  });

  it.each([
    ['some hundred at a time', 1e9, 512],
    ['fewer on a full disk', 1e6, 64],
  ])('go back %s', (_, freeBytes, pages) => {
    freePages(8e5);
    const guard = freeBytes === 1e9 ? guardOf() : shortGuard(freeBytes);
    const before = freeCount();
    guard.giveBack(1_000);
    expect(before - freeCount()).toBeGreaterThanOrEqual(pages);
    expect(before - freeCount()).toBeLessThan(pages + 8);
    expect(guard.use.reusableBytes).toBe(freeCount() * KiB);
  });

  it('leave the file with the next checkpoint, at once where the bound asks for it or the disk is full', () => {
    for (const [guard, isAtOnce] of [
      [() => guardOf(), false],
      [() => guardOf({ maxBytes: 3e5 }), true],
      [() => shortGuard(1e6), true],
    ] as const) {
      freePages(6e5);
      emptyWal();
      const before = statSync(path).size;
      const one = guard();
      one.giveBack(1_000);
      expect([statSync(path).size < before, walBytes() === 0]).toEqual([isAtOnce, isAtOnce]);
      // Counted is the file, or what it will be, whichever is more; and the WAL.
      expect(one.use.bytes).toBe(Math.max(statSync(path).size, 0) + walBytes());
      expect(one.use.walBytes).toBe(walBytes());
      one.close();
      rmSync(`${path}.reserve`, { force: true });
    }
  });
});

describe('the reserve', () => {
  it('is made again in a quiet moment, once there is room, and tried again after a while where that fails', () => {
    const guard = shortGuard(ROOM - 2);
    expect([guard.mayRecover(0), guard.isShort]).toEqual([false, true]);
    guard.keepReserve(0);
    expect(hasReserve()).toBe(false);
    has(ROOM);
    guard.lookNow(0);
    expect(guard.mayRecover(0)).toBe(true);
    mkdirSync(`${path}.reserve`);
    guard.keepReserve(1_000);
    expect([guard.isShort, guard.mayRecover(5_999), guard.mayRecover(6_000)]).toEqual([true, false, true]);
    rmdirSync(`${path}.reserve`);
    guard.keepReserve(5_999);
    expect(hasReserve()).toBe(false);
    guard.keepReserve(6_000);
    expect([hasReserve(), guard.isShort, guard.mayRecover(20_000)]).toEqual([true, false, false]);
  });

  it('is not made anew where it stands', () => {
    const guard = guardOf();
    const { mtimeMs, ino } = statSync(`${path}.reserve`);
    guard.keepReserve(10_000);
    const after = statSync(`${path}.reserve`);
    expect([after.mtimeMs, after.ino]).toEqual([mtimeMs, ino]);
  });

  it('leaves as much free as is to stay so, unless the disk was full', () => {
    for (const [freeBytes, isMade] of [
      [ROOM + 1e6 - 2, false],
      [ROOM + 1e6, true],
    ] as const) {
      // It neither stands nor is owed.
      has(0, 0);
      const guard = guardOf({ minFree: { bytes: 1e6 } });
      expect([hasReserve(), guard.isShort, guard.mayRecover(0)]).toEqual([false, false, false]);
      has(freeBytes);
      guard.keepReserve(1_000);
      expect(hasReserve()).toBe(isMade);
    }
    rmSync(`${path}.reserve`);
    const guard = shortGuard(ROOM, { minFree: { bytes: 1e9 } });
    guard.keepReserve(1_000);
    expect(hasReserve()).toBe(true);
  });

  it('is left in part by a store that closes without it, and a disk that says nothing is no error', () => {
    const guard = shortGuard(1e6);
    fileSystem.fails = true;
    guard.close();
    expect(hasReserve()).toBe(false);
    fileSystem.fails = false;
    guard.close();
    expect(statSync(`${path}.reserve`).size).toBe(9e5);
  });

  it('is left where there is room for a part of it that helps the next start', () => {
    for (const [freeBytes, size] of [
      [72_816, undefined],
      [72_818, 64 * KiB],
    ] as const) {
      shortGuard(freeBytes).close();
      expect(statSync(`${path}.reserve`, { throwIfNoEntry: false })?.size).toBe(size);
    }
  });

  it('that does not fit after all leaves nothing of itself', () => {
    const guard = shortGuard(ROOM);
    fileSystem.writes = 3;
    guard.keepReserve(1_000);
    fileSystem.writes = Number.POSITIVE_INFINITY;
    expect([hasReserve(), guard.isShort]).toEqual([false, true]);
    guard.keepReserve(10_000);
    expect([statSync(`${path}.reserve`).size, guard.isShort]).toEqual([2 * MiB, false]);
  });

  it('is not made where pages go back in a quiet moment of a disk that was never full', () => {
    has(0, 0);
    const guard = guardOf();
    has(1e9);
    guard.giveBack(1_000);
    expect(hasReserve()).toBe(false);
  });

  it('is made where pages that go back give its room', () => {
    freePages(4e5);
    const guard = shortGuard(ROOM - 2);
    guard.giveBack(1_000);
    expect(guard.isShort).toBe(true);
    has(ROOM);
    guard.giveBack(10_000);
    expect([guard.isShort, hasReserve()]).toEqual([false, true]);
  });
});

describe('the disk is looked at', () => {
  it('after so many bytes or so much time, with each commit where it is narrow, and at once where it must', () => {
    const guard = guardOf();
    let freeBytes = 1e9;
    /** Whether it was looked at. */
    const looks = (monotonicMs: number, isNow?: boolean) => {
      freeBytes += 2;
      has(freeBytes);
      guard.look(monotonicMs, isNow);
      return guard.use.freeBytes === freeBytes;
    };
    expect([looks(1_000), looks(1_499), looks(1_500), looks(1_501)]).toEqual([true, false, true, false]);
    guard.note(100 * KiB);
    guard.note(28 * KiB - 1);
    expect(looks(1_502)).toBe(false);
    guard.note(1);
    // And counted anew.
    expect([looks(1_503), looks(1_504), looks(2_002), looks(2_003)]).toEqual([true, false, false, true]);
    expect([looks(2_004, true), looks(2_005)]).toEqual([true, false]);
    freeBytes = NARROW - 100;
    expect([looks(2_600), looks(2_601), looks(2_602)]).toEqual([true, true, true]);
  });
});

describe('the WAL', () => {
  it('is emptied by a commit while the reserve is owed, and not before', () => {
    const guard = guardOf();
    write(1e5);
    guard.committed();
    expect(walBytes()).toBeGreaterThan(1e5);
    guard.makeRoom();
    expect([walBytes(), hasReserve()]).toEqual([0, false]);
    write(1e5);
    expect(walBytes()).toBeGreaterThan(1e5);
    guard.committed();
    expect(walBytes()).toBe(0);
  });

  it.each<[string, (bytes: number, wal: number) => number, number, boolean]>([
    ['where the bound is passed by it', (bytes) => bytes - 1, 1e5, true],
    ['not where it is kept', (bytes) => bytes, 1e5, false],
    ['not where there is none', () => 0, 1e5, false],
    ['not where it is small', (bytes) => bytes - 1, 5e4, false],
    ['where it is large for a small bound', (_, wal) => wal * 16, 3_000, true],
    ['not where it is small for it', (_, wal) => wal * 16 + 16, 3_000, false],
  ])('is emptied %s', (_, boundOf, written, isEmptied) => {
    write(2e6);
    emptyWal();
    write(written);
    const { bytes, walBytes: before } = guardOf().use;
    const bounds = { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' } as const;
    const bound: BufferBounds = { ...bounds };
    const guard = new DiskSpaceGuard(database, path, bound);
    bound.maxBytes = boundOf(bytes, before);
    guard.lookNow(1_000);
    expect([walBytes(), guard.use.walBytes]).toEqual(isEmptied ? [0, 0] : [before, before]);
    if (isEmptied) expect(guard.use.bytes).toBe(statSync(path).size);
  });

  it('is emptied at once where a smaller bound asks for it', () => {
    const bounds: BufferBounds = { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' };
    const guard = new DiskSpaceGuard(database, path, bounds);
    const pages = () => database.pragma('wal_autocheckpoint', { simple: true });
    write(3e5);
    expect([walBytes() > 3e5, pages()]).toEqual([true, 1_000]);
    bounds.maxBytes = 2e5;
    guard.boundsChanged(1_000);
    // Never fewer than some; and of the reserve that such a bound has room for.
    expect([walBytes(), guard.use.walBytes, pages()]).toEqual([0, 0, 32]);
    bounds.maxBytes = 2 * MiB;
    guard.boundsChanged(2_000);
    expect(pages()).toBe(128);
    bounds.maxBytes = 0;
    guard.boundsChanged(3_000);
    expect(pages()).toBe(1_000);
  });

  it('stays for who reads it, until then', () => {
    const guard = shortGuard(1e6);
    guard.keepWal(5_000);
    write(1e5);
    guard.look(4_999);
    guard.committed();
    expect(walBytes()).toBeGreaterThan(1e5);
    guard.look(5_000);
    guard.committed();
    expect(walBytes()).toBe(0);
  });

  it('is moved before it outgrows half of the reserve of a small disk, with some pages at the least', () => {
    const pages = () => database.pragma('wal_autocheckpoint', { simple: true });
    for (const [totalBytes, expected] of [
      [1e12, 1_000],
      [16 * MiB, 512],
      [MiB, 128],
    ]) {
      has(1e9, totalBytes);
      database.pragma('wal_autocheckpoint = 1000');
      guardOf();
      expect(pages()).toBe(expected);
    }
  });
});

describe('what the buffer takes', () => {
  it('is its file or what that will be, whichever is more, and its WAL where there is one', () => {
    freePages(2e5);
    emptyWal();
    const gauge = new DiskGauge(database, path);
    const file = statSync(path).size;
    database.exec('PRAGMA incremental_vacuum(1000)');
    // The file has not shrunk yet.
    expect(gauge.read()).toMatchObject({ bytes: file + walBytes(), walBytes: walBytes(), reusableBytes: 0 });
    expect(gauge.read().usedBytes).toBeLessThan(file);
    database.pragma('journal_mode = DELETE');
    expect(gauge.read()).toEqual({
      bytes: statSync(path).size,
      walBytes: 0,
      usedBytes: statSync(path).size,
      reusableBytes: 0,
      freeBytes: 1e9,
      totalBytes: 1e12,
    });
  });
});

describe('an error', () => {
  it('says that the disk is full by its code', () => {
    const codes = ['SQLITE_FULL', 'SQLITE_IOERR_SHMSIZE', 'ENOSPC', 'EDQUOT', 'inbox.disk_full'];
    const error = (code?: string) => Object.assign(new Error('x'), { code });
    expect([...codes, 'EIO', 'SQLITE_IOERR', ''].filter((code) => saysFull(error(code)))).toEqual(codes);
    expect([saysFull(new Error('ENOSPC')), saysFull(undefined), saysFull(error())]).toEqual([false, false, false]);
  });
});
