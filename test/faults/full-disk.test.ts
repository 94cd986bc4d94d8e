import { existsSync, readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/logger.ts';
import { ValueColumns } from '../../src/buffer/format/value-columns.ts';
import { Reserve } from '../../src/buffer/space/reserve.ts';
import type { Settings } from '../../src/config/settings.ts';
import { bufferRoutes } from '../../src/control/buffer-routes.ts';
import { type BufferFlow, ClosedBuffer } from '../../src/daemon/buffer-flow.ts';
import { createMetrics, type Metrics } from '../../src/ops/metrics.ts';
import type { Intake } from '../../src/sources/intake.ts';
import { bufferSettings } from '../doubles/open-flow.ts';
import { seeded } from '../sources/sink-double.ts';
import { SmallDisk } from './small-disk.ts';

let disk: SmallDisk;
let flow: BufferFlow | undefined;
let metrics: Metrics;
let number = 0;
const random = seeded(3);

afterEach(async () => {
  await flow?.stop().catch(() => {});
  flow = undefined;
  number = 0;
  disk.dispose();
});

async function open(bufferMinFree: Settings['bufferMinFree'] = { bytes: 0 }): Promise<BufferFlow> {
  const settings = { ...bufferSettings(disk.state), bufferMinFree };
  metrics = createMetrics(() => ({}) as never);
  const closed = new ClosedBuffer({ settings, clock: systemClock, log: silentLogger(), metrics, onDeath: () => {} });
  flow = await closed.open();
  return flow;
}

/** Random doubles of three series: they take what they take. Gives the numbers of the values. */
async function append(opened: BufferFlow, count = 1000): Promise<void> {
  const columns = new ValueColumns();
  for (let i = 0; i < count; i++) {
    columns.add(opened.catalogue.idOf(1, `k${i % 3}`, undefined, undefined), ++number, random(), 0);
  }
  await opened.committer.append(columns);
}

describe('what SQLite maps', () => {
  it('is allocated whole at every open, whatever the blocks of the file system: touching a hole on a full disk is SIGBUS', async () => {
    disk = new SmallDisk(16);
    for (let opening = 0; opening < 2; opening++) {
      const opened = await open();
      await append(opened, 10);
      for (const name of ['buffer.db-shm', 'inbox.db-shm']) {
        const { size, blocks, ino } = statSync(join(disk.state, name));
        expect([name, size]).toEqual([name, 32_768]);
        expect(blocks * 512).toBeGreaterThanOrEqual(size);
        // SQLite's own lock on it stands: without it another process would cut it off when it opens the database.
        expect(readFileSync('/proc/locks', 'utf8')).toMatch(new RegExp(`READ +${process.pid} \\S+:${ino} 128 128`));
      }
      await opened.stop();
    }
    const files = readdirSync('/proc/self/fd').flatMap((name) => {
      // That of the listing itself is closed by now.
      const path = join('/proc/self/fd', name);
      return existsSync(path) ? [readlinkSync(path)] : [];
    });
    expect(files.filter((file) => file.includes('-shm'))).toEqual([]);
  });
});

async function flushAll(opened: BufferFlow): Promise<void> {
  opened.committer.note(await opened.values.maintain({ monotonicMs: systemClock.monotonicMs() + 1e9 }));
  await opened.committer.flush();
}

/** So much in the buffer, and somebody else has the rest of the disk. Gives what is stored. */
async function fillUp(opened: BufferFlow, thousands = 300): Promise<number> {
  for (let i = 0; i < thousands / 5; i++) await append(opened, 5000);
  await flushAll(opened);
  expect(existsSync(reserve())).toBe(true);
  disk.fill();
  // The room of the WAL may bring the reserve back once or twice.
  do {
    expect(await appendUntilRefused(opened)).toBe('buffer.disk-full');
    opened.committer.note(await opened.values.maintain({ monotonicMs: systemClock.monotonicMs() }));
  } while (!opened.facts.full);
  return stored(opened);
}

const reserve = () => join(disk.state, 'buffer.db.reserve');
const stored = (opened: BufferFlow) => opened.facts.logValues + opened.facts.segmentValues;
const dropped = async () => {
  const { values } = metrics.dropped;
  return values.find(({ labels }) => labels.reason === 'purge')?.value ?? 0;
};

/** Appends until the disk is full for the store too. */
async function appendUntilRefused(opened: BufferFlow): Promise<string> {
  for (let i = 0; i < 5000; i++) {
    try {
      await append(opened);
    } catch (error) {
      return (error as { code: string }).code;
    }
  }
  return 'never refused';
}

interface Purged {
  purged: number;
  waiting?: number;
  failure?: { message: string; code: string; hint?: string };
}

async function purge(opened: BufferFlow, params: Record<string, unknown>): Promise<Purged> {
  const routes = bufferRoutes({
    flow: opened,
    tags: () => new Map(),
    intake: undefined as unknown as Intake,
    clock: systemClock,
  });
  return (await routes['buffer/purge']!(params, {
    signal: new AbortController().signal,
    write: async () => {},
  })) as Purged;
}

/** New values are taken, though nothing was freed but what the buffer freed itself. */
async function untilTaken(opened: BufferFlow): Promise<void> {
  await expect.poll(() => append(opened).then(() => 'taken', String), { timeout: 20_000 }).toBe('taken');
}

describe.each([16, 24, 64])('a full disk of %i MB', (megabytes) => {
  it('refuses new values, lets settling and purging make room, and takes values again without a restart', async () => {
    disk = new SmallDisk(megabytes);
    const opened = await open();
    const before = await fillUp(opened);
    await expect.poll(() => opened.problems.join()).toContain('the disk is full');

    // What the platform takes is recorded, and stays so over a crash.
    const batch = await opened.outgoing.take({ asset: 1, lane: 'backlog', maxValues: 5000, maxBytes: 480_000 });
    await opened.outgoing.settle(batch!.id);
    await opened.committer.flush();
    expect(stored(opened)).toBe(before - batch!.values);

    // So is what an operator deletes, by name and by age; what that frees is enough to go on, though the disk was full.
    const byName = await purge(opened, { key: 'k1' });
    expect(byName).toEqual({ purged: expect.any(Number) });
    expect(byName.purged).toBeGreaterThan(50_000);
    const byAge = await purge(opened, { before_ms: 200_000 });
    expect(byAge).toEqual({ purged: expect.any(Number) });
    expect(byAge.purged).toBeGreaterThan(20_000);
    const left = before - batch!.values - byName.purged - byAge.purged;
    expect(stored(opened)).toBe(left);
    expect(await dropped()).toBe(byName.purged + byAge.purged);
    await untilTaken(opened);
    await expect.poll(() => opened.problems).toEqual([]);
    await expect.poll(() => existsSync(reserve()), { timeout: 10_000 }).toBe(true);

    await opened.stop();
    const again = await open();
    expect(stored(again)).toBe(left + 1000);
  });
});

describe('a reserve', () => {
  it('is there on a small file system, takes little of it, and stands again only when there is room', async () => {
    disk = new SmallDisk(16);
    const opened = await open({ share: 0.05 });
    const { size } = statSync(reserve());
    expect(size).toBeGreaterThan(500_000);
    expect(size).toBeLessThan((16 << 20) / 10);
    await opened.stop();
    disk.fill(1_000_000);
    // What stood from before counts, however full the disk is now.
    const again = await open();
    expect(again.facts.short).toBe(false);
    expect(await appendUntilRefused(again)).toBe('buffer.disk-full');
    disk.free();
    await untilTaken(again);
  });

  it('that was given up is owed until there is room for it and for the WAL, not for what it left itself', async () => {
    disk = new SmallDisk(16);
    const { disk: use } = (await open()).facts;
    await flow!.stop();
    const bounds = { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' } as const;
    const held = new Reserve(join(disk.state, 'buffer.db'), bounds);
    held.open(use);
    expect([held.isThere, held.isOwed]).toEqual([true, false]);
    held.giveUp();
    expect([held.isThere, held.isOwed, existsSync(reserve())]).toEqual([false, true, false]);
    expect([held.bytes, held.bytes * 1.6, held.bytes * 2].map((free) => held.hasRoom(free))).toEqual([
      false,
      false,
      true,
    ]);
    disk.fill(held.bytes / 2);
    held.make();
    // It did not fit: nothing of it stays in the way.
    expect([held.isThere, held.isOwed, existsSync(reserve())]).toEqual([false, true, false]);
    held.leave(disk.freeBytes);
    expect(statSync(reserve()).size).toBeLessThan(held.bytes);
    const next = new Reserve(join(disk.state, 'buffer.db'), bounds);
    next.open({ ...use, freeBytes: disk.freeBytes });
    expect(next.isOwed).toBe(true);
    disk.free();
    next.make();
    expect([next.isThere, next.isOwed]).toEqual([true, false]);
    expect(statSync(reserve()).size).toBe(next.bytes);
  });

  it('that a crash left given up is owed at the next start, which opens on a full disk all the same', async () => {
    disk = new SmallDisk(24);
    const opened = await open();
    const before = await fillUp(opened, 100);
    await opened.stop();
    disk.fill();
    const again = await open();
    expect(stored(again)).toBe(before);
    await expect(append(again)).rejects.toMatchObject({ code: 'buffer.disk-full' });
    expect((await purge(again, { key: 'k0' })).failure).toBeUndefined();
  });

  it('is given up where a start finds not even room to open', async () => {
    disk = new SmallDisk(24);
    const opened = await open();
    await append(opened, 50_000);
    await opened.stop();
    flow = undefined;
    disk.fill();
    expect(disk.freeBytes).toBeLessThan(10_000);
    const again = await open();
    expect(stored(again)).toBe(50_000);
    expect(existsSync(reserve())).toBe(false);
    const { purged } = await purge(again, { key: 'k0' });
    expect(purged).toBeGreaterThan(16_000);
    await again.stop();
    expect(stored(await open())).toBe(50_000 - purged);
  });
});

describe('what is to stay free', () => {
  it('refuses new values before the disk is full, drops nothing, and takes them again when there is room', async () => {
    disk = new SmallDisk(24);
    const opened = await open({ bytes: 8_000_000 });
    await append(opened);
    disk.fill(6_000_000);
    expect(await appendUntilRefused(opened)).toBe('buffer.low-space');
    const before = stored(opened);
    expect(before).toBeGreaterThanOrEqual(1000);
    await expect(append(opened)).rejects.toMatchObject({ code: 'buffer.low-space', retryable: true });
    expect(stored(opened)).toBe(before);
    disk.free();
    expect(disk.freeBytes).toBeGreaterThan(8_000_000);
    await untilTaken(opened);
    expect(stored(opened)).toBe(before + 1000);
  });
});
