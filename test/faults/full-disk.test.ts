import { execFileSync } from 'node:child_process';
import { closeSync, existsSync, mkdirSync, mkdtempSync, openSync, rmSync, statfsSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { BufferFlow } from '../../src/agent/buffer-flow.ts';
import { bufferRoutes } from '../../src/agent/buffer-routes.ts';
import { createMetrics } from '../../src/agent/metrics.ts';
import { ValueColumns } from '../../src/buffer/value-columns.ts';
import { systemClock } from '../../src/clock.ts';
import type { Settings } from '../../src/config/settings.ts';
import { silentLogger } from '../../src/logger.ts';
import type { Intake } from '../../src/sources/intake.ts';
import { seeded } from '../sources/sink-double.ts';

/** A file system of 24 MB in a file: only root may mount it. */
let folder: string;
let mount: string;
let flow: BufferFlow | undefined;
let number = 0;
const random = seeded(3);

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-full-'));
  mount = join(folder, 'disk');
  mkdirSync(mount);
  const image = join(folder, 'disk.img');
  try {
    execFileSync('truncate', ['-s', '24M', image]);
    execFileSync('mkfs.ext4', ['-q', '-m', '0', image], { env: { PATH: `${process.env.PATH}:/usr/sbin:/sbin` } });
    execFileSync('mount', ['-o', 'loop', image, mount], { stdio: 'pipe' });
  } catch (error) {
    throw new Error(
      `the test of a full disk mounts a small one: it needs root, e2fsprogs and loop devices (${String(error)})`,
    );
  }
});
afterEach(async () => {
  await flow?.stop().catch(() => {});
  flow = undefined;
  execFileSync('umount', ['-l', mount]);
  rmSync(folder, { recursive: true, force: true });
});

async function open(bufferMinFree: Settings['bufferMinFree']): Promise<BufferFlow> {
  const settings = {
    stateDir: join(mount, 'state'),
    bufferMaxBytes: 0,
    bufferMaxAgeMs: 0,
    bufferMinFree,
    bufferFull: 'drop-oldest',
    postIntervalMs: 10_000,
    commitIntervalMs: 1,
    commitValues: 1,
  } as Settings;
  const metrics = createMetrics(() => ({}) as never);
  flow = new BufferFlow({ settings, clock: systemClock, log: silentLogger(), metrics, onDeath: () => {} });
  await flow.start();
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

async function foldAll(opened: BufferFlow): Promise<void> {
  opened.committer.note(await opened.values.tidy({ monotonicMs: systemClock.monotonicMs() + 1e9 }));
  await opened.committer.flush();
}

/** Somebody else's file takes all that is left, but for so much. */
function fillDisk(leave = 0): void {
  const file = openSync(join(mount, 'ballast'), 'w');
  for (const size of [1 << 20, 1 << 16, 1 << 12]) {
    const piece = Buffer.alloc(size, 1);
    try {
      while (leave === 0 || free() > leave) writeSync(file, piece);
    } catch (error) {
      expect((error as NodeJS.ErrnoException).code).toBe('ENOSPC');
    }
  }
  closeSync(file);
}

const free = () => statfsSync(mount).bavail * statfsSync(mount).bsize;
const stored = (opened: BufferFlow) => opened.facts.logValues + opened.facts.segmentValues;

/** Appends until the disk is full for the store too. */
async function appendUntilRefused(opened: BufferFlow): Promise<string> {
  for (let i = 0; i < 2000; i++) {
    try {
      await append(opened);
    } catch (error) {
      return (error as { code: string }).code;
    }
  }
  return 'never refused';
}

describe('a full disk', () => {
  it('refuses new values, lets settling and purging make room, and takes values again without a restart', async () => {
    const opened = await open({ bytes: 0 });
    for (let i = 0; i < 60; i++) await append(opened, 5000);
    await foldAll(opened);
    expect(existsSync(join(mount, 'state', 'buffer.db.reserve'))).toBe(true);
    fillDisk();
    expect(await appendUntilRefused(opened)).toBe('store.unwritable');
    expect(opened.problems.join()).toContain('not taken in');
    const before = stored(opened);

    // What the platform takes is recorded, and stays so over a crash.
    const batch = await opened.outgoing.take({ asset: 1, lane: 'backlog', maxValues: 5000, maxBytes: 480_000 });
    await opened.outgoing.settle(batch!.id);
    await opened.committer.flush();
    expect(stored(opened)).toBe(before - batch!.values);
    expect(opened.facts.dirty).toBe(false);

    // So is what an operator deletes; then there are pages for new values, though the disk is full.
    const routes = bufferRoutes({
      flow: opened,
      tags: () => new Map(),
      intake: undefined as unknown as Intake,
      clock: systemClock,
    });
    const call = { signal: new AbortController().signal, write: async () => {} };
    const purged = await routes['buffer/purge']!({ key: 'k1' }, call);
    expect((purged as { purged: number }).purged).toBeGreaterThan(50_000);
    await append(opened);
    expect(opened.problems).toEqual([]);
    const left = stored(opened);

    rmSync(join(mount, 'ballast'));
    await append(opened);
    await opened.values.tidy({ monotonicMs: systemClock.monotonicMs() });
    await opened.stop();
    const again = await open({ bytes: 0 });
    expect(stored(again)).toBe(left + 1000);
    expect(existsSync(join(mount, 'state', 'buffer.db.reserve'))).toBe(true);
  });

  it('refuses new values before it is full where so much is to stay free, drops nothing, and goes on when there is room', async () => {
    const opened = await open({ bytes: 8_000_000 });
    await append(opened);
    fillDisk(6_000_000);
    expect(await appendUntilRefused(opened)).toBe('buffer.low-space');
    const before = stored(opened);
    expect(before).toBeGreaterThanOrEqual(1000);
    await expect(append(opened)).rejects.toMatchObject({ code: 'buffer.low-space', retryable: true });
    expect(stored(opened)).toBe(before);
    rmSync(join(mount, 'ballast'));
    expect(free()).toBeGreaterThan(8_000_000);
    await expect
      .poll(async () => {
        await append(opened).catch(() => {});
        return stored(opened);
      })
      .toBeGreaterThan(before);
  });
});
