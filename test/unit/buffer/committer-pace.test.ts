/** Times of commits, and results for callers if a commit fails. The store is a double, and the clock is manual. */
import { beforeEach, describe, expect, it } from 'vitest';
import { StoreError } from '../../../src/base/errors.ts';
import { Committer } from '../../../src/buffer/client/committer.ts';
import { ValueColumns } from '../../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../../src/buffer/series.ts';
import type { CommitRequest, StoreFacts } from '../../../src/buffer/store-facts.ts';
import { commitColumns } from '../doubles/commit-columns.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const facts = (more: Partial<StoreFacts> = {}) =>
  ({ dirty: false, maintenanceDue: false, short: false, spare: false, oversized: false, ...more }) as StoreFacts;
const refusal = (code: string) => new StoreError('refused', { code, retryable: true });

let clock: ManualClock;
let catalogue: SeriesCatalogue;
let committer: Committer;
let startMs: number;
/** Commits with their times, and results for the next calls. */
let commits: { atMs: number; values: number; request: CommitRequest }[];
let maintenance: number;
let results: (StoreFacts | Error)[];

beforeEach(() => {
  clock = new ManualClock(500_000);
  catalogue = new SeriesCatalogue();
  startMs = clock.monotonicMs();
  commits = [];
  maintenance = 0;
  results = [];
  const result = () => {
    const next = results.shift() ?? facts();
    return next instanceof Error ? Promise.reject(next) : Promise.resolve(next);
  };
  const port = {
    commit: (request: CommitRequest) => {
      commits.push({ atMs: clock.monotonicMs() - startMs, values: request.columns?.length ?? 0, request });
      return result();
    },
    maintain: () => {
      maintenance++;
      return result();
    },
    vacuum: result,
  };
  committer = new Committer(port, {
    clock,
    catalogue,
    intervalMs: 1_000,
    values: 100,
    maxWaiting: 300,
    onFacts: () => {},
  });
});

const append = (count: number, key = 'k') => {
  const columns = new ValueColumns();
  for (let i = 0; i < count; i++) columns.add(catalogue.idOf(1, key, undefined, undefined), i, i, 0);
  return commitColumns(committer, columns).then(
    () => 'stored',
    (error: StoreError) => error.code,
  );
};
const times = () => commits.map(({ atMs, values }) => [atMs, values]);

describe('committer', () => {
  it('commits the first values immediately, and later values together after the interval', async () => {
    const first = append(2);
    await clock.advance(0);
    expect(await first).toBe('stored');
    const later = [append(1), append(3)];
    await clock.advance(999);
    expect(times()).toEqual([[0, 2]]);
    await clock.advance(1);
    expect(await Promise.all(later)).toEqual(['stored', 'stored']);
    expect(times()).toEqual([
      [0, 2],
      [1_000, 4],
    ]);
  });

  it('commits before the interval ends if enough values are pending or a caller is waiting', async () => {
    void append(1);
    await clock.advance(0);
    void append(100);
    await clock.advance(0);
    void append(1);
    committer.commitSoon();
    await clock.advance(99);
    expect(times()).toEqual([
      [0, 1],
      [0, 100],
    ]);
    await clock.advance(1);
    expect(times().at(-1)).toEqual([100, 1]);
  });

  it('commits settled values after two seconds if no new values arrive', async () => {
    committer.update(facts({ dirty: true }));
    await clock.advance(1_999);
    expect(times()).toEqual([]);
    await clock.advance(1);
    expect(times()).toEqual([[2_000, 0]]);
  });

  it('rejects callers after a failed commit, and commits new series again after one second', async () => {
    results.push(Object.assign(new Error('disk'), { code: 'EIO' }));
    const failed = append(1);
    await clock.advance(0);
    expect(await failed).toBe('store.unwritable');
    expect(committer.failure).toMatchObject({ code: 'store.unwritable', retryable: true });
    const retried = append(1, 'other');
    await clock.advance(999);
    expect(commits.length).toBe(1);
    await clock.advance(1);
    expect(await retried).toBe('stored');
    expect(commits[1]!.request.newSeries.map(({ key }) => key)).toEqual(['k', 'other']);
    expect(committer.failure).toBeUndefined();
  });

  it('does not count a rejection due to a limit as a failure', async () => {
    results.push(refusal('buffer.full'));
    expect(await Promise.all([append(1), clock.advance(0)])).toEqual(['buffer.full', undefined]);
    expect(committer.failure).toBeUndefined();
    expect(maintenance).toBeGreaterThan(0);
    results.push(refusal('buffer.full'));
    await expect(committer.flush()).resolves.toBeUndefined();
    results.push(refusal('store.unwritable'));
    await expect(committer.flush()).rejects.toMatchObject({ code: 'store.unwritable' });
  });

  it('runs maintenance in steps while it is due', async () => {
    results.push(facts({ maintenanceDue: true }), facts({ maintenanceDue: true }), facts());
    committer.update(facts({ maintenanceDue: true }));
    await clock.advance(0);
    expect(maintenance).toBe(3);
  });

  it('commits pending values when closed, and rejects later values', async () => {
    void append(1);
    await clock.advance(0);
    const waiting = append(1);
    await committer.close();
    expect(await waiting).toBe('stored');
    expect(await append(1)).toBe('buffer.closing');
  });
});
