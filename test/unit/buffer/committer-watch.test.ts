import { describe, expect, it } from 'vitest';
import { StoreError } from '../../../src/base/errors.ts';
import { Committer } from '../../../src/buffer/client/committer.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { commitColumns } from '../doubles/commit-columns.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const PATIENCE_MS = 120_000;
const one = () => {
  const columns = new ValueColumns();
  columns.add(1, 0, 1, 0);
  return columns;
};

/** Committer with a store double. */
function overStore(commit: () => Promise<never>) {
  const clock = new ManualClock();
  const port = { commit, maintain: commit, vacuum: commit };
  const catalogue = { takeUnsaved: () => [], returnUnsaved() {} };
  const options = { clock, catalogue, intervalMs: 1_000, values: 1_000, onFacts() {}, onFailure() {} };
  const committer = new Committer(port as never, options as never);
  return { clock, committer, isAlive: () => committer.isAlive(clock.monotonicMs(), PATIENCE_MS) };
}

describe('committer watchdog', () => {
  it('detects values that are blocked by a commit that never finishes', async () => {
    const { clock, committer, isAlive } = overStore(() => new Promise(() => {}));
    void commitColumns(committer, one()).catch(() => {});
    await clock.advance(10_000);
    void commitColumns(committer, one()).catch(() => {});
    await clock.advance(PATIENCE_MS - 20_000);
    expect(isAlive()).toBe(true);
    await clock.advance(20_000);
    expect(isAlive()).toBe(false);
  });

  it('ignores idle periods and retried commits', async () => {
    const { clock, committer, isAlive } = overStore(() =>
      Promise.reject(new StoreError('the disk is away', { code: 'store.io', retryable: true })),
    );
    await clock.advance(10 * PATIENCE_MS);
    expect(isAlive()).toBe(true);
    for (let minute = 0; minute < 10; minute++) {
      void commitColumns(committer, one()).catch(() => {});
      await clock.advance(60_000);
      expect(isAlive()).toBe(true);
    }
  });
});
