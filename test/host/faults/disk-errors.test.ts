import { copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { newFolder } from '../../fresh-folder.ts';
import { compileDiskLayer, drain, pullThePlug, type Run, readJournal, takeIn } from './disk-fault.ts';

/**
 * Fails each write and each sync once, in about 650 rounds. A third of the rounds fail while creating the empty file,
 * and accept only a few values. Processes run many rounds each, because starting one is slow.
 */
/** Sixteen small spans cause a compaction, which later commits write. */
const LONG = { commits: 20, maintenances: 2 };
const SHORT = { commits: 3, maintenances: 2 };
/** Number of concurrent processes. */
const LANES = 2;
const ROUNDS_A_PROCESS = 20;

let library: string;
let folder: string;
beforeAll(() => {
  library = compileDiskLayer();
});
beforeEach(() => {
  folder = newFolder('tagferry-disk-');
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** Files after a kill, and after a simulated power cut. */
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

/** Runs several rounds in one process and checks each. */
async function inOneProcess(wanted: readonly Wanted[]): Promise<Run[]> {
  const place = mkdtempSync(join(folder, 'process-'));
  const rounds = wanted.map((one) => ({ ...one, folder: mkdtempSync(join(place, 'round-')) }));
  const runs = await takeIn(library, place, rounds);
  const journal = readJournal(place);
  for (const [index, run] of runs.entries()) {
    const { folder } = rounds[index]!;
    // A buffer that could not be created is empty: the service manager restarts the agent.
    if (run.acknowledged.size > 0) checkBoth(journal.get(folder) ?? [], folder, run);
  }
  rmSync(place, { recursive: true });
  return runs;
}

async function once(orders: string, amounts = LONG): Promise<Run> {
  const [run] = await inOneProcess([{ orders, ...amounts }]);
  return run!;
}

/** Fails every operation of a complete run in turn, with a short run for operations before the first commit. */
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
        // Once opened, the store completed the run and accepted everything after the single failure.
        if (run.acknowledged.size === 0) continue;
        expect(run.done, `round ${some[index]}`).toBe(true);
        expect(run.acknowledged.size, `round ${some[index]}`).toBe(wanted[index]!.commits * 20);
      }
    }
  };
  // Waits for both, even if one fails.
  for (const ended of await Promise.allSettled(Array.from({ length: LANES }, lane))) {
    if (ended.status === 'rejected') throw ended.reason;
  }
  expect(outcomes).toHaveLength(whole[what]);
  return outcomes;
}

describe('single disk error', () => {
  it('does not occur in the control run, which loses nothing despite kills and power cuts', async () => {
    const run = await once('');
    expect(run).toMatchObject({ failed: [], done: true, failures: 0 });
    expect(run.acknowledged.size).toBe(LONG.commits * 20);
    expect(run.settled.size).toBeGreaterThan(0);
    // The failures below include writes of flushes and of a compaction.
    expect(run.flushed).toBeGreaterThan(0);
    expect(run.compacted).toBeGreaterThanOrEqual(16);
    // Proves that the layer observes the store: at least one sync per commit.
    expect(run.syncs).toBeGreaterThan(LONG.commits);
  });

  it.each([
    ['EIO', constants.errno.EIO],
    ['ENOSPC', constants.errno.ENOSPC],
  ])(
    'causes no loss of acknowledged values when any write fails with %s',
    async (_name, errno) => {
      const outcomes = await failEach('writes', (round) => `fail_write ${round} ${errno}`);
      const went = outcomes.filter((run) => run.acknowledged.size > 0);
      expect(went.some((run) => run.failed.length > 0)).toBe(true);
      expect(went.every((run) => run.failed.length <= 2)).toBe(true);
    },
    300_000,
  );

  it('never causes a failed sync to be treated as successful', async () => {
    const outcomes = await failEach('syncs', (round) => `fail_sync ${round} ${constants.errno.EIO}`);
    const went = outcomes.filter((run) => run.acknowledged.size > 0);
    expect(went.filter((run) => run.failed.includes('SQLITE_IOERR_FSYNC')).length).toBeGreaterThan(LONG.commits / 2);
  }, 300_000);
});
