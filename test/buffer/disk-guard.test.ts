/** What the store takes in, flushes, carries and gives back on a disk of any size, at each boundary: its free space is what a test says. */
import type * as files from 'node:fs';
import { rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { BufferBounds } from '../../src/buffer/space/bounds.ts';
import { type DiskSpaceGuard, full } from '../../src/buffer/space/disk-space-guard.ts';
import { freshFolder } from '../fresh-folder.ts';
import { GuardedBuffer, KiB, MiB, NARROW, ROOM } from './guarded-buffer.ts';
import { has } from './pretended-disk.ts';

vi.mock('node:fs', async (original) => {
  const { pretended } = await import('./pretended-disk.ts');
  return pretended(await original<typeof files>());
});

const folder = freshFolder('tagferry-disk-guard-');
let world: GuardedBuffer;
beforeEach(() => {
  world = new GuardedBuffer(join(folder.path, 'buffer.db'));
});
afterEach(() => world.database.close());

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
    expect(world.guardOf().flushSpace).toEqual(maxValues === undefined ? undefined : { maxValues, atOnce });
  });

  it('is what is left while the reserve is owed, at once where values are refused', () => {
    world.freePages(2e5);
    const guard = world.shortGuard(ROOM - 2);
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
    expect(world.guardOf(bounds).hasRoomToCarry).toBe(expected);
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
    const refusal = world.guardOf(bounds).refusal(1);
    expect([refusal?.code, refusal?.retryable]).toEqual([code, code && true]);
  });

  it('come in on a narrow disk as long as they fit twice, or into pages that hold nothing', () => {
    const freeBytes = 6e6;
    has(freeBytes);
    const guard = world.guardOf();
    expect([codeOf(guard, 250_000), guard.isFull]).toEqual([undefined, false]);
    expect([codeOf(guard, 250_001), guard.isFull]).toEqual(['buffer.disk-full', true]);
    // Fewer come in again.
    expect([codeOf(guard, 1), guard.isFull]).toEqual([undefined, false]);
    // With some more, so many as these have room for.
    has(ROOM);
    world.freePages(25e5);
    guard.lookNow(0);
    const fitting = Math.floor((guard.use.reusableBytes - 64_000) / 12);
    expect([codeOf(guard, fitting), codeOf(guard, fitting + 1)]).toEqual([undefined, 'buffer.disk-full']);
    // Of a disk of which nobody knows how large it is none is asked.
    has(0, 0);
    guard.lookNow(0);
    expect([codeOf(guard, 1e9), guard.isFull]).toEqual([undefined, false]);
  });

  it('come in while the reserve is owed into pages that hold nothing alone, until there is room for it', () => {
    world.freePages(2e5);
    const guard = world.shortGuard(ROOM - 2);
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
    const before = world.guardOf().use;
    expect(before.reusableBytes).toBe(0);
    expect(world.guardOf({ maxBytes: before.bytes - 1 }).isOversized).toBe(false);
    world.freePages(4e5);
    const { bytes } = world.guardOf().use;
    // Which is looked at as it is: the WAL would be emptied where it is passed.
    world.emptyWal();
    const empty = world.guardOf().use.bytes;
    expect(empty).toBeLessThan(bytes);
    const oversized = (maxBytes: number) => {
      const guard = world.guardOf({ maxBytes });
      return [guard.isOversized, guard.hasSpare];
    };
    expect([oversized(empty), oversized(empty - 1), oversized(0)]).toEqual([
      [false, false],
      [true, true],
      [false, false],
    ]);
  });

  it('go back where they are many, and many of all', () => {
    world.freePages(11e5);
    expect(world.guardOf().hasSpare).toBe(true);
    world.database.exec('PRAGMA incremental_vacuum(10000)');
    world.freePages(980_000);
    world.emptyWal();
    expect([world.guardOf().use.reusableBytes < 1e6, world.guardOf().hasSpare]).toEqual([true, false]);
    // A tenth of a large file.
    world.write(11e6);
    world.write(11e5);
    world.database.exec('DELETE FROM t WHERE length(x) = 1100000');
    world.emptyWal();
    const guard = world.guardOf();
    expect(guard.use.reusableBytes).toBeGreaterThan(1e6);
    expect(guard.use.bytes / 10).toBeGreaterThan(guard.use.reusableBytes);
    expect(guard.hasSpare).toBe(false);
  });

  it('go back while the reserve is owed where it then has room, and not where it has room without', () => {
    world.freePages(4e5);
    const { reusableBytes } = world.guardOf().use;
    const enough = ROOM + 64_000 - reusableBytes;
    const hasSpare = (freeBytes: number) => world.shortGuard(freeBytes).hasSpare;
    expect([enough - 2, enough, ROOM - 2, ROOM].map(hasSpare)).toEqual([false, true, true, false]);
  });

  it.each([
    ['some hundred at a time', 1e9, 512],
    ['fewer on a full disk', 1e6, 64],
  ])('go back %s', (_, freeBytes, pages) => {
    world.freePages(8e5);
    const guard = freeBytes === 1e9 ? world.guardOf() : world.shortGuard(freeBytes);
    const before = world.freeCount();
    guard.giveBack(1_000);
    expect(before - world.freeCount()).toBeGreaterThanOrEqual(pages);
    expect(before - world.freeCount()).toBeLessThan(pages + 8);
    expect(guard.use.reusableBytes).toBe(world.freeCount() * KiB);
  });

  it('leave the file with the next checkpoint, at once where the bound asks for it or the disk is full', () => {
    for (const [guard, isAtOnce] of [
      [() => world.guardOf(), false],
      [() => world.guardOf({ maxBytes: 3e5 }), true],
      [() => world.shortGuard(1e6), true],
    ] as const) {
      world.freePages(6e5);
      world.emptyWal();
      const before = statSync(world.path).size;
      const one = guard();
      one.giveBack(1_000);
      expect([statSync(world.path).size < before, world.walBytes() === 0]).toEqual([isAtOnce, isAtOnce]);
      // Counted is the file, or what it will be, whichever is more; and the WAL.
      expect(one.use.bytes).toBe(Math.max(statSync(world.path).size, 0) + world.walBytes());
      expect(one.use.walBytes).toBe(world.walBytes());
      one.close();
      rmSync(`${world.path}.reserve`, { force: true });
    }
  });
});
