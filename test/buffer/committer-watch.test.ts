import { describe, expect, it } from 'vitest';
import { StoreError } from '../../src/base/errors.ts';
import { Committer } from '../../src/buffer/client/committer.ts';
import { ValueColumns } from '../../src/buffer/format/value-columns.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const PATIENCE_MS = 120_000;
const one = () => {
  const columns = new ValueColumns();
  columns.add(1, 0, 1, 0);
  return columns;
};

/** A committer over a store that does what the test says. */
function overStore(commit: () => Promise<never>) {
  const clock = new ManualClock();
  const port = { commit, maintain: commit, giveSpaceBack: commit };
  const catalogue = { takeNew: () => [], returnNew() {} };
  const options = { clock, catalogue, intervalMs: 1_000, values: 1_000, onFacts() {}, onFailure() {} };
  const committer = new Committer(port as never, options as never);
  return { clock, committer, isAlive: () => committer.isAlive(clock.monotonicMs(), PATIENCE_MS) };
}

describe('the watchdog', () => {
  it('hears of values that wait behind a commit that never ends', async () => {
    const { clock, committer, isAlive } = overStore(() => new Promise(() => {}));
    void committer.append(one()).catch(() => {});
    await clock.advance(10_000);
    void committer.append(one()).catch(() => {});
    await clock.advance(PATIENCE_MS - 20_000);
    expect(isAlive()).toBe(true);
    await clock.advance(20_000);
    expect(isAlive()).toBe(false);
  });

  it('is fed while nothing waits, for days, and while commits fail and are tried again', async () => {
    const { clock, committer, isAlive } = overStore(() =>
      Promise.reject(new StoreError('the disk is away', { code: 'store.io', retryable: true })),
    );
    await clock.advance(10 * PATIENCE_MS);
    expect(isAlive()).toBe(true);
    for (let minute = 0; minute < 10; minute++) {
      void committer.append(one()).catch(() => {});
      await clock.advance(60_000);
      expect(isAlive()).toBe(true);
    }
  });
});
