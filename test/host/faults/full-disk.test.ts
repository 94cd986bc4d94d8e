import { existsSync, readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { type BufferFlow, ClosedBuffer } from '../../../src/agent/buffer-flow.ts';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { Reserve } from '../../../src/buffer/space/reserve.ts';
import type { Settings } from '../../../src/config/settings.ts';
import { bufferRoutes } from '../../../src/control/buffer-routes.ts';
import { createMetrics, type Metrics } from '../../../src/ops/metrics.ts';
import type { Intake } from '../../../src/sources/intake/intake.ts';
import { commitColumns } from '../../unit/doubles/commit-columns.ts';
import { bufferSettings } from '../../unit/doubles/open-flow.ts';
import { seeded } from '../../unit/sources/sink-double.ts';
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

/** Accepts random doubles in three series, for a realistic size. Returns the value numbers. */
async function append(opened: BufferFlow, count = 1000): Promise<void> {
  const columns = new ValueColumns();
  for (let i = 0; i < count; i++) {
    columns.add(opened.catalogue.idOf(1, `k${i % 3}`, undefined, undefined), ++number, random(), 0);
  }
  await commitColumns(opened.committer, columns);
}

describe('SQLite shared memory', () => {
  it('is fully allocated each time it is opened, so that a full disk does not cause SIGBUS', async () => {
    disk = new SmallDisk(16);
    for (let opening = 0; opening < 2; opening++) {
      const opened = await open();
      await append(opened, 10);
      for (const name of ['buffer.db-shm', 'inbox.db-shm']) {
        const { size, blocks, ino } = statSync(join(disk.state, name));
        expect([name, size]).toEqual([name, 32_768]);
        expect(blocks * 512).toBeGreaterThanOrEqual(size);
        // SQLite keeps its own lock: without it, another process would truncate the file when it opens the database.
        expect(readFileSync('/proc/locks', 'utf8')).toMatch(new RegExp(`READ +${process.pid} \\S+:${ino} 128 128`));
      }
      await opened.stop();
    }
    const files = readdirSync('/proc/self/fd').flatMap((name) => {
      // The descriptor of the listing itself is closed.
      const path = join('/proc/self/fd', name);
      return existsSync(path) ? [readlinkSync(path)] : [];
    });
    expect(files.filter((file) => file.includes('-shm'))).toEqual([]);
  });
});

async function flushAll(opened: BufferFlow): Promise<void> {
  opened.committer.update(await opened.values.maintain({ monotonicMs: systemClock.monotonicMs() + 1e9 }));
  await opened.committer.flush();
}

/** Stores a number of values and fills the disk with another file. Returns the stored values. */
async function fillUp(opened: BufferFlow, thousands = 300): Promise<number> {
  for (let i = 0; i < thousands / 5; i++) await append(opened, 5000);
  await flushAll(opened);
  expect(existsSync(reserve())).toBe(true);
  disk.fill();
  // The WAL space may restore the reserve once or twice.
  do {
    expect(await appendUntilRefused(opened)).toBe('buffer.disk-full');
    opened.committer.update(await opened.values.maintain({ monotonicMs: systemClock.monotonicMs() }));
  } while (!opened.facts.full);
  return stored(opened);
}

const reserve = () => join(disk.state, 'buffer.db.reserve');
const stored = (opened: BufferFlow) => opened.facts.logValues + opened.facts.segmentValues;
const dropped = async () => {
  const { values } = metrics.dropped;
  return values.find(({ labels }) => labels.reason === 'purge')?.value ?? 0;
};

/** Appends until the store reports a full disk. */
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

/** New values are accepted, although only the buffer has freed space. */
async function untilTaken(opened: BufferFlow): Promise<void> {
  await expect.poll(() => append(opened).then(() => 'taken', String), { timeout: 20_000 }).toBe('taken');
}

describe.each([16, 24, 64])('full disk of %i MB', (megabytes) => {
  it('causes new values to be rejected until there is space, but does not prevent settling and purging', async () => {
    disk = new SmallDisk(megabytes);
    const opened = await open();
    const before = await fillUp(opened);
    await expect.poll(() => opened.problems.join()).toContain('the disk is full');

    // Values accepted by the platform remain recorded, even after a crash.
    const batch = await opened.outgoing.take({ asset: 1, lane: 'backlog', maxValues: 5000, maxBytes: 480_000 });
    await batch!.settle(batch!.whole);
    await opened.committer.flush();
    expect(stored(opened)).toBe(before - batch!.whole.values);

    // Deletions by an operator, by name and age, also free enough space to continue on a full disk.
    const byName = await purge(opened, { key: 'k1' });
    expect(byName).toEqual({ purged: expect.any(Number) });
    expect(byName.purged).toBeGreaterThan(50_000);
    const byAge = await purge(opened, { before_ms: 200_000 });
    expect(byAge).toEqual({ purged: expect.any(Number) });
    expect(byAge.purged).toBeGreaterThan(20_000);
    const left = before - batch!.whole.values - byName.purged - byAge.purged;
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

describe('disk reserve', () => {
  it('is created and stays small on a small file system, and is restored only when there is space', async () => {
    disk = new SmallDisk(16);
    const opened = await open({ share: 0.05 });
    const { size } = statSync(reserve());
    expect(size).toBeGreaterThan(500_000);
    expect(size).toBeLessThan((16 << 20) / 10);
    await opened.stop();
    disk.fill(1_000_000);
    // Existing files are read, regardless of how full the disk is.
    const again = await open();
    expect(again.facts.short).toBe(false);
    expect(await appendUntilRefused(again)).toBe('buffer.disk-full');
    disk.free();
    await untilTaken(again);
  });

  it('is restored after use when there is space for both the reserve and the WAL', async () => {
    disk = new SmallDisk(16);
    const { disk: use } = (await open()).facts;
    await flow!.stop();
    const bounds = { maxBytes: 0, maxAgeMs: 0, minFree: { bytes: 0 }, full: 'drop-oldest' } as const;
    const held = new Reserve(join(disk.state, 'buffer.db'), bounds);
    held.open(use);
    expect([held.exists, held.isOwed]).toEqual([true, false]);
    held.delete();
    expect([held.exists, held.isOwed, existsSync(reserve())]).toEqual([false, true, false]);
    expect([held.bytes, held.bytes * 1.6, held.bytes * 2].map((free) => held.hasRoom(free))).toEqual([
      false,
      false,
      true,
    ]);
    disk.fill(held.bytes / 2);
    held.create();
    // The value did not fit and leaves no file behind.
    expect([held.exists, held.isOwed, existsSync(reserve())]).toEqual([false, true, false]);
    held.createPartial(disk.freeBytes);
    expect(statSync(reserve()).size).toBeLessThan(held.bytes);
    const next = new Reserve(join(disk.state, 'buffer.db'), bounds);
    next.open({ ...use, freeBytes: disk.freeBytes });
    expect(next.isOwed).toBe(true);
    disk.free();
    next.create();
    expect([next.exists, next.isOwed]).toEqual([true, false]);
    expect(statSync(reserve()).size).toBe(next.bytes);
  });

  it('is restored after a crash once there is space, and allows the stores to be opened at startup on a full disk', async () => {
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

  it('is used if there is no space to open the stores at startup', async () => {
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

describe('minimum free space', () => {
  it('causes new values to be rejected before the disk is full, and drops nothing', async () => {
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
