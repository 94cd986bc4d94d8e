import { copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { memoryFolder } from '../memory-folder.ts';
import { compileDiskLayer, drain, pullThePlug, type Run, readJournal, takeIn } from './disk-fault.ts';

/**
 * Each write and each sync fails once, in a round of its own, some 650 rounds. Those that make the empty file, a third of them,
 * need no long take-in behind them and get a short one. Most of what a process costs is its start, so each has many rounds.
 */
/** Sixteen small spans make a compaction, and what was compacted is written with the commits after it. */
const LONG = { commits: 20, maintenances: 2 };
const SHORT = { commits: 3, maintenances: 2 };
/** Two processes at a time. */
const LANES = 2;
const ROUNDS_A_PROCESS = 20;

let library: string;
let folder: string;
beforeAll(() => {
  library = compileDiskLayer();
});
beforeEach(() => {
  folder = memoryFolder('tagferry-disk-');
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** What a round left when its process was killed, and what a pulled plug would have left. */
function checkBoth(changes: Parameters<typeof pullThePlug>[0], round: string, run: Run): void {
  const plug = join(round, 'plug');
  mkdirSync(plug);
  pullThePlug(changes, plug);
  const killed = join(round, 'killed');
  mkdirSync(killed);
  for (const end of ['', '-wal']) {
    if (existsSync(join(round, `buffer.db${end}`)))
      copyFileSync(join(round, `buffer.db${end}`), join(killed, `buffer.db${end}`));
  }
  for (const { values, damaged } of [killed, plug].map((image) => drain(join(image, 'buffer.db')))) {
    const found = new Set(values);
    const lost = [...run.acknowledged].filter((number) => !found.has(number) && !run.settled.has(number));
    expect(lost).toEqual([]);
    expect(damaged).toBe(0);
    expect(found.size).toBe(values.length);
  }
}

interface Wanted {
  orders: string;
  commits: number;
  maintenances: number;
}

/** Several rounds by one process, each looked at once that is gone. */
async function inOneProcess(wanted: readonly Wanted[]): Promise<Run[]> {
  const place = mkdtempSync(join(folder, 'process-'));
  const rounds = wanted.map((one) => ({ ...one, folder: mkdtempSync(join(place, 'round-')) }));
  const runs = await takeIn(library, place, rounds);
  const journal = readJournal(place);
  for (const [index, run] of runs.entries()) {
    const { folder } = rounds[index]!;
    // A buffer that could not even be made holds nothing: the service manager starts the agent anew.
    if (run.acknowledged.size > 0) checkBoth(journal.get(folder) ?? [], folder, run);
  }
  rmSync(place, { recursive: true });
  return runs;
}

async function once(orders: string, amounts = LONG): Promise<Run> {
  const [run] = await inOneProcess([{ orders, ...amounts }]);
  return run!;
}

/** Fails each in turn of what a whole run does, with a short run for what it does before its first commit. */
async function failEach(what: 'writes' | 'syncs', orderOf: (round: number) => string): Promise<Run[]> {
  const [opening, whole] = [await once('', { commits: 0, maintenances: 0 }), await once('')];
  expect(opening[what]).toBeLessThan(whole[what]);
  const left = Array.from({ length: whole[what] }, (_, index) => index + 1);
  const outcomes: Run[] = [];
  const lane = async () => {
    for (let some = left.splice(0, ROUNDS_A_PROCESS); some.length > 0; some = left.splice(0, ROUNDS_A_PROCESS)) {
      const wanted = some.map((round) => ({ orders: orderOf(round), ...(round <= opening[what] ? SHORT : LONG) }));
      for (const [index, run] of (await inOneProcess(wanted)).entries()) {
        outcomes.push(run);
        expect(run.failures, `round ${some[index]}`).toBe(1);
        // Once it was open it went on to the end, and took everything in after the one failure.
        if (run.acknowledged.size === 0) continue;
        expect(run.done, `round ${some[index]}`).toBe(true);
        expect(run.acknowledged.size, `round ${some[index]}`).toBe(wanted[index]!.commits * 20);
      }
    }
  };
  // Both are waited for, also where one of them fails.
  for (const ended of await Promise.allSettled(Array.from({ length: LANES }, lane))) {
    if (ended.status === 'rejected') throw ended.reason;
  }
  expect(outcomes).toHaveLength(whole[what]);
  return outcomes;
}

describe('a disk that fails once', () => {
  it('has nothing to fail without a fault, and a killed process or a pulled plug loses nothing', async () => {
    const run = await once('');
    expect(run).toMatchObject({ failed: [], done: true, failures: 0 });
    expect(run.acknowledged.size).toBe(LONG.commits * 20);
    expect(run.settled.size).toBeGreaterThan(0);
    // Among what fails below are the writes of flushes and of a compaction.
    expect(run.flushed).toBeGreaterThan(0);
    expect(run.compacted).toBeGreaterThanOrEqual(16);
    // The layer sees what the store does: a sync a commit at least.
    expect(run.syncs).toBeGreaterThan(LONG.commits);
  });

  it.each([
    ['EIO', constants.errno.EIO],
    ['ENOSPC', constants.errno.ENOSPC],
  ])(
    'loses nothing acknowledged, whichever write fails with %s',
    async (_name, errno) => {
      const outcomes = await failEach('writes', (round) => `fail_write ${round} ${errno}`);
      const went = outcomes.filter((run) => run.acknowledged.size > 0);
      expect(went.some((run) => run.failed.length > 0)).toBe(true);
      expect(went.every((run) => run.failed.length <= 2)).toBe(true);
    },
    300_000,
  );

  it('never counts a sync that failed as done, whichever it is', async () => {
    const outcomes = await failEach('syncs', (round) => `fail_sync ${round} ${constants.errno.EIO}`);
    const went = outcomes.filter((run) => run.acknowledged.size > 0);
    expect(went.filter((run) => run.failed.includes('SQLITE_IOERR_FSYNC')).length).toBeGreaterThan(LONG.commits / 2);
  }, 300_000);
});
