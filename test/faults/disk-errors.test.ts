import { copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { compileDiskLayer, drain, pullThePlug, type Run, takeIn } from './disk-fault.ts';

/**
 * Each write and each sync fails once, in a run of its own: some 250 runs of half a second. Those that make the empty file,
 * a third of them, need no long take-in behind them and get a short one; that keeps each test at about a minute.
 */
/** Sixteen small spans make a compaction, and what was compacted is written with the commits after it. */
const LONG = { commits: 20, maintenances: 2 };
const SHORT = { commits: 3, maintenances: 2 };
/** Two processes at a time: that is what the runs cost. */
const LANES = 2;

let library: string;
let folder: string;
beforeAll(() => {
  library = compileDiskLayer();
});
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-disk-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** What the process left when it was killed, and what a pulled plug would have left. */
function checkBoth(place: string, run: Run): void {
  const plug = join(place, 'plug');
  mkdirSync(plug);
  pullThePlug(join(place, 'journal'), plug);
  const images = ['killed', 'plug'].map((name) => {
    const image = join(place, name);
    if (name === 'killed') {
      mkdirSync(image);
      for (const end of ['', '-wal']) {
        if (existsSync(join(place, `buffer.db${end}`)))
          copyFileSync(join(place, `buffer.db${end}`), join(image, `buffer.db${end}`));
      }
    }
    return drain(join(image, 'buffer.db'));
  });
  for (const { values, damaged } of images) {
    const found = new Set(values);
    const lost = [...run.acknowledged].filter((number) => !found.has(number) && !run.settled.has(number));
    expect(lost).toEqual([]);
    expect(damaged).toBe(0);
    expect(found.size).toBe(values.length);
  }
}

async function inLanes(rounds: readonly number[], work: (round: number) => Promise<void>): Promise<void> {
  const left = [...rounds];
  await Promise.all(
    Array.from({ length: LANES }, async () => {
      for (let round = left.shift(); round !== undefined; round = left.shift()) await work(round);
    }),
  );
}

async function fail(orders: string, amounts = LONG): Promise<Run> {
  const place = mkdtempSync(join(folder, 'run-'));
  const run = await takeIn(library, place, { orders, journal: join(place, 'journal'), ...amounts });
  // A buffer that could not even be made holds nothing: the service manager starts the agent anew.
  if (run.acknowledged.size > 0) checkBoth(place, run);
  rmSync(place, { recursive: true });
  return run;
}

/** Fails each in turn of what a whole run does, with a short run for what it does before its first commit. */
async function failEach(what: 'writes' | 'syncs', orderOf: (round: number) => string): Promise<Run[]> {
  const [opening, whole] = [await fail('', { commits: 0, maintenances: 0 }), await fail('')];
  expect(opening[what]).toBeLessThan(whole[what]);
  const rounds = Array.from({ length: whole[what] }, (_, i) => i + 1);
  const outcomes: Run[] = [];
  await inLanes(rounds, async (round) => {
    const amounts = round <= opening[what] ? SHORT : LONG;
    const run = await fail(orderOf(round), amounts);
    outcomes.push(run);
    expect(run.failures, `round ${round}`).toBe(1);
    // Once it was open it went on to the end, and took everything in after the one failure.
    if (run.acknowledged.size === 0) return;
    expect(run.done, `round ${round}`).toBe(true);
    expect(run.acknowledged.size, `round ${round}`).toBe(amounts.commits * 20);
  });
  expect(outcomes).toHaveLength(whole[what]);
  return outcomes;
}

describe('a disk that fails once', () => {
  it('has nothing to fail without a fault, and a killed process or a pulled plug loses nothing', async () => {
    const run = await fail('');
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
