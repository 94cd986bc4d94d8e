import { copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { compileDiskLayer, drain, pullThePlug, type Run, takeIn } from './disk-fault.ts';

const COMMITS = 12;
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

async function fail(orders: string): Promise<Run> {
  const place = mkdtempSync(join(folder, 'run-'));
  const run = await takeIn(library, place, { orders, journal: join(place, 'journal'), commits: COMMITS });
  // A buffer that could not even be made holds nothing: the service manager starts the agent anew.
  if (run.acknowledged.size > 0) checkBoth(place, run);
  rmSync(place, { recursive: true });
  return run;
}

describe('a disk that fails once', () => {
  it('has nothing to fail without a fault, and a killed process or a pulled plug loses nothing', async () => {
    const run = await fail('');
    expect(run).toMatchObject({ failed: [], done: true, failures: 0 });
    expect(run.acknowledged.size).toBe(COMMITS * 20);
    expect(run.settled.size).toBeGreaterThan(0);
    // The layer sees what the store does: a sync a commit at least.
    expect(run.syncs).toBeGreaterThan(COMMITS);
  });

  it.each([
    ['EIO', constants.errno.EIO],
    ['ENOSPC', constants.errno.ENOSPC],
  ])(
    'loses nothing acknowledged, whichever write fails with %s',
    async (_name, errno) => {
      const { writes } = await fail('');
      // Every write of the take-in; of those that make the empty file every third.
      const rounds = Array.from({ length: writes }, (_, i) => i + 1).filter((round) => round > 80 || round % 3 === 0);
      const outcomes: Run[] = [];
      await inLanes(rounds, async (round) => {
        outcomes.push(await fail(`fail_write ${round} ${errno}`));
      });
      expect(outcomes.every((run) => run.failures === 1)).toBe(true);
      // Once it was open it went on to the end, and took everything in after the one failure.
      const went = outcomes.filter((run) => run.acknowledged.size > 0);
      expect(went.every((run) => run.done && run.acknowledged.size === COMMITS * 20)).toBe(true);
      expect(went.some((run) => run.failed.length > 0)).toBe(true);
      expect(went.every((run) => run.failed.length <= 2)).toBe(true);
    },
    300_000,
  );

  it('never counts a sync that failed as done, whichever it is', async () => {
    const { syncs } = await fail('');
    const rounds = Array.from({ length: syncs }, (_, i) => i + 1);
    const outcomes: Run[] = [];
    await inLanes(rounds, async (round) => {
      outcomes.push(await fail(`fail_sync ${round} ${constants.errno.EIO}`));
    });
    expect(outcomes.every((run) => run.failures === 1)).toBe(true);
    const went = outcomes.filter((run) => run.acknowledged.size > 0);
    expect(went.every((run) => run.done && run.acknowledged.size === COMMITS * 20)).toBe(true);
    expect(went.filter((run) => run.failed.includes('SQLITE_IOERR_FSYNC')).length).toBeGreaterThan(COMMITS / 2);
  }, 300_000);
});
