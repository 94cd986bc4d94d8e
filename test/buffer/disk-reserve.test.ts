/** The reserve of the store, its WAL and its looks at the disk, at each boundary: the free space of that is what a test says. */

import type * as files from 'node:fs';
import { mkdirSync, rmdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ReadLeases } from '../../src/buffer/read-leases.ts';
import { type BufferBounds, DiskGauge } from '../../src/buffer/space/bounds.ts';
import { DiskSpaceGuard } from '../../src/buffer/space/disk-space-guard.ts';
import { saysFull } from '../../src/buffer/space/reserve.ts';
import { freshFolder } from '../fresh-folder.ts';
import { GuardedBuffer, KiB, MiB, NARROW, ROOM } from './guarded-buffer.ts';
import { fileSystem, has } from './pretended-disk.ts';

vi.mock('node:fs', async (original) => {
  const { pretended } = await import('./pretended-disk.ts');
  return pretended(await original<typeof files>());
});

const folder = freshFolder('tagferry-disk-reserve-');
let world: GuardedBuffer;
beforeEach(() => {
  world = new GuardedBuffer(join(folder.path, 'buffer.db'));
});
afterEach(() => world.database.close());

describe('the reserve', () => {
  it('is made again in a quiet moment, once there is room, and tried again after a while where that fails', () => {
    const guard = world.shortGuard(ROOM - 2);
    expect([guard.mayRecover(0), guard.isShort]).toEqual([false, true]);
    guard.keepReserve(0);
    expect(world.hasReserve()).toBe(false);
    has(ROOM);
    guard.lookNow(0);
    expect(guard.mayRecover(0)).toBe(true);
    mkdirSync(`${world.path}.reserve`);
    guard.keepReserve(1_000);
    expect([guard.isShort, guard.mayRecover(5_999), guard.mayRecover(6_000)]).toEqual([true, false, true]);
    rmdirSync(`${world.path}.reserve`);
    guard.keepReserve(5_999);
    expect(world.hasReserve()).toBe(false);
    guard.keepReserve(6_000);
    expect([world.hasReserve(), guard.isShort, guard.mayRecover(20_000)]).toEqual([true, false, false]);
  });

  it('is not made anew where it stands', () => {
    const guard = world.guardOf();
    const { mtimeMs, ino } = statSync(`${world.path}.reserve`);
    guard.keepReserve(10_000);
    const after = statSync(`${world.path}.reserve`);
    expect([after.mtimeMs, after.ino]).toEqual([mtimeMs, ino]);
  });

  it('leaves as much free as is to stay so, unless the disk was full', () => {
    for (const [freeBytes, isMade] of [
      [ROOM + 1e6 - 2, false],
      [ROOM + 1e6, true],
    ] as const) {
      // It neither stands nor is owed.
      has(0, 0);
      const guard = world.guardOf({ minFree: { bytes: 1e6 } });
      expect([world.hasReserve(), guard.isShort, guard.mayRecover(0)]).toEqual([false, false, false]);
      has(freeBytes);
      guard.keepReserve(1_000);
      expect(world.hasReserve()).toBe(isMade);
    }
    rmSync(`${world.path}.reserve`);
    const guard = world.shortGuard(ROOM, { minFree: { bytes: 1e9 } });
    guard.keepReserve(1_000);
    expect(world.hasReserve()).toBe(true);
  });

  it('is left in part by a store that closes without it, and a disk that says nothing is no error', () => {
    const guard = world.shortGuard(1e6);
    fileSystem.fails = true;
    guard.close();
    expect(world.hasReserve()).toBe(false);
    fileSystem.fails = false;
    guard.close();
    expect(statSync(`${world.path}.reserve`).size).toBe(9e5);
  });

  it('is left where there is room for a part of it that helps the next start', () => {
    for (const [freeBytes, size] of [
      [72_816, undefined],
      [72_818, 64 * KiB],
    ] as const) {
      world.shortGuard(freeBytes).close();
      expect(statSync(`${world.path}.reserve`, { throwIfNoEntry: false })?.size).toBe(size);
    }
  });

  it('that does not fit after all leaves nothing of itself', () => {
    const guard = world.shortGuard(ROOM);
    fileSystem.writes = 3;
    guard.keepReserve(1_000);
    fileSystem.writes = Number.POSITIVE_INFINITY;
    expect([world.hasReserve(), guard.isShort]).toEqual([false, true]);
    guard.keepReserve(10_000);
    expect([statSync(`${world.path}.reserve`).size, guard.isShort]).toEqual([2 * MiB, false]);
  });

  it('is not made where pages go back in a quiet moment of a disk that was never full', () => {
    has(0, 0);
    const guard = world.guardOf();
    has(1e9);
    guard.giveBack(1_000);
    expect(world.hasReserve()).toBe(false);
  });

  it('is made where pages that go back give its room', () => {
    world.freePages(4e5);
    const guard = world.shortGuard(ROOM - 2);
    guard.giveBack(1_000);
    expect(guard.isShort).toBe(true);
    has(ROOM);
    guard.giveBack(10_000);
    expect([guard.isShort, world.hasReserve()]).toEqual([false, true]);
  });
});

describe('the disk is looked at', () => {
  it('after so many bytes or so much time, with each commit where it is narrow, and at once where it must', () => {
    const guard = world.guardOf();
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
    const guard = world.guardOf();
    world.write(1e5);
    guard.committed();
    expect(world.walBytes()).toBeGreaterThan(1e5);
    guard.makeRoom();
    expect([world.walBytes(), world.hasReserve()]).toEqual([0, false]);
    world.write(1e5);
    expect(world.walBytes()).toBeGreaterThan(1e5);
    guard.committed();
    expect(world.walBytes()).toBe(0);
  });

  it.each<[string, (bytes: number, wal: number) => number, number, boolean]>([
    ['where the bound is passed by it', (bytes) => bytes - 1, 1e5, true],
    ['not where it is kept', (bytes) => bytes, 1e5, false],
    ['not where there is none', () => 0, 1e5, false],
    ['not where it is small', (bytes) => bytes - 1, 5e4, false],
    ['where it is large for a small bound', (_, wal) => wal * 16, 3_000, true],
    ['not where it is small for it', (_, wal) => wal * 16 + 16, 3_000, false],
  ])('is emptied %s', (_, boundOf, written, isEmptied) => {
    world.write(2e6);
    world.emptyWal();
    world.write(written);
    const { bytes, walBytes: before } = world.guardOf().use;
    const bounds = { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' } as const;
    const bound: BufferBounds = { ...bounds };
    const guard = new DiskSpaceGuard(world.database, world.path, bound, new ReadLeases());
    bound.maxBytes = boundOf(bytes, before);
    guard.lookNow(1_000);
    expect([world.walBytes(), guard.use.walBytes]).toEqual(isEmptied ? [0, 0] : [before, before]);
    if (isEmptied) expect(guard.use.bytes).toBe(statSync(world.path).size);
  });

  it('is emptied at once where a smaller bound asks for it', () => {
    const bounds: BufferBounds = { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' };
    const guard = new DiskSpaceGuard(world.database, world.path, bounds, new ReadLeases());
    const pages = () => world.database.pragma('wal_autocheckpoint', { simple: true });
    world.write(3e5);
    expect([world.walBytes() > 3e5, pages()]).toEqual([true, 1_000]);
    bounds.maxBytes = 2e5;
    guard.boundsChanged(1_000);
    // Never fewer than some; and of the reserve that such a bound has room for.
    expect([world.walBytes(), guard.use.walBytes, pages()]).toEqual([0, 0, 32]);
    bounds.maxBytes = 2 * MiB;
    guard.boundsChanged(2_000);
    expect(pages()).toBe(128);
    bounds.maxBytes = 0;
    guard.boundsChanged(3_000);
    expect(pages()).toBe(1_000);
  });

  it('is not emptied while a reader of the files has a lease', () => {
    const guard = world.shortGuard(1e6);
    world.readers.open('files', 0, 5_000);
    world.readers.end(world.readers.open('files', 0, 9_000));
    world.readers.open('export', 0, 9_000);
    world.write(1e5);
    guard.look(4_999);
    guard.committed();
    expect(world.walBytes()).toBeGreaterThan(1e5);
    guard.look(5_000);
    guard.committed();
    expect(world.walBytes()).toBe(0);
  });

  it('is moved before it outgrows half of the reserve of a small disk, with some pages at the least', () => {
    const pages = () => world.database.pragma('wal_autocheckpoint', { simple: true });
    for (const [totalBytes, expected] of [
      [1e12, 1_000],
      [16 * MiB, 512],
      [MiB, 128],
    ]) {
      has(1e9, totalBytes);
      world.database.pragma('wal_autocheckpoint = 1000');
      world.guardOf();
      expect(pages()).toBe(expected);
    }
  });
});

describe('what the buffer takes', () => {
  it('is its file or what that will be, whichever is more, and its WAL where there is one', () => {
    world.freePages(2e5);
    world.emptyWal();
    const gauge = new DiskGauge(world.database, world.path);
    const file = statSync(world.path).size;
    world.database.exec('PRAGMA incremental_vacuum(1000)');
    // The file has not shrunk yet.
    expect(gauge.read()).toMatchObject({
      bytes: file + world.walBytes(),
      walBytes: world.walBytes(),
      reusableBytes: 0,
    });
    expect(gauge.read().usedBytes).toBeLessThan(file);
    world.database.pragma('journal_mode = DELETE');
    expect(gauge.read()).toEqual({
      bytes: statSync(world.path).size,
      walBytes: 0,
      usedBytes: statSync(world.path).size,
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
