/** What the committer makes of a store that fails, refuses, stalls or is slow, and how it closes. */
import { describe, expect, it } from 'vitest';
import { Committer } from '../../src/buffer/client/committer.ts';
import { ValueColumns } from '../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../src/buffer/series.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { facts, failure, script } from './committer-script.ts';

describe('a committer', () => {
  it('waits a second after a commit that failed, tells each who was in it, and brings the new series and what comes then', async () => {
    const { append, until, committer, answers, heard, commits } = script({ intervalMs: 10 });
    answers.push(Object.assign(new Error('disk'), { code: 'EIO' }), failure('store.other'), facts());
    void append(1);
    void append(1);
    expect(await until(0)).toEqual([
      '0 commit 1, new k',
      '0 failed store.unwritable: the disk refuses writes (EIO)',
      '0 1 refused: store.unwritable',
    ]);
    expect(committer.failure).toMatchObject({ code: 'store.unwritable', retryable: true, cause: { code: 'EIO' } });
    expect(await until(999)).toEqual([]);
    expect(await until(1_000)).toEqual([
      '1000 commit 2, new k',
      '1000 failed store.other: no',
      '1000 2 refused: store.other',
    ]);
    expect(committer.failure?.code).toBe('store.other');
    void append(1, undefined, 'later');
    expect(await until(1_999)).toEqual([]);
    expect((await until(2_000))[0]).toBe('2000 commit 3, new k later');
    expect(committer.failure).toBeUndefined();
    expect(commits.map(({ columns }) => columns?.length)).toEqual([1, 1, 1]);
    heard();
    await committer.close();
  });

  it('takes a refusal by a bound for an answer: who comes next is asked for at once, and what was pending is written', async () => {
    const { append, until, committer, answers, heard } = script({ intervalMs: 10 });
    committer.note(facts({ dirty: true }));
    answers.push(failure('buffer.full'), facts());
    heard();
    void append(1);
    expect(await until(9)).toEqual([
      '0 commit 1, new k',
      '0 failed buffer.full: no',
      // How it stands is asked, though values keep coming; what was pending is on disk.
      '0 maintain',
      '0 1 refused: buffer.full',
      '0 facts',
    ]);
    expect(committer.failure).toBeUndefined();
    void append(1);
    expect((await until(10))[0]).toBe('10 commit 2, new k');
    answers.push(failure('buffer.full'));
    await expect(committer.flush()).resolves.toBeUndefined();
    answers.push(failure('store.io'));
    await expect(committer.flush()).rejects.toMatchObject({ code: 'store.io' });
    await expect(committer.flush()).resolves.toBeUndefined();
    heard();
    await committer.close();
  });

  it('waits a second after maintenance that failed, too, and says so', async () => {
    const { until, committer, answers, append } = script();
    answers.push(Object.assign(new Error('no'), { code: 'EIO' }), failure('store.io'), new Error('without a code'));
    committer.note(facts({ maintenanceDue: true, spare: true }));
    expect(await until(0)).toEqual([
      '0 facts due',
      '0 maintain',
      '0 failed store.unwritable: the disk refuses writes (EIO)',
    ]);
    expect(await until(2_999)).toEqual(['2000 maintain', '2000 failed store.io: no']);
    expect(committer.failure).toBeUndefined();
    void append(1);
    // Nothing that failed is asked in a loop, whoever comes.
    expect(await until(3_000)).toEqual([
      '3000 commit 1, new k',
      '3000 failed store.unwritable: the disk refuses writes (unknown)',
      '3000 1 refused: store.unwritable',
    ]);
    await committer.close();
  });

  it('asks one thing at a time: what comes while the store maintains itself waits until it is over', async () => {
    const { until, committer, append, stall } = script();
    stall(true);
    committer.note(facts({ maintenanceDue: true }));
    void append(100);
    const flushed = committer.flush();
    expect(await until(10)).toEqual(['0 facts due', '0 maintain']);
    stall(false);
    await flushed;
    expect((await until(10)).filter((line) => line.includes('commit'))).toEqual([
      expect.stringMatching(/^10 commit 1 2 3 /),
      '10 commit nothing',
    ]);
    await committer.close();
  });

  it('needs nobody who listens', async () => {
    const clock = new ManualClock();
    let isBroken = false;
    const answer = () => (isBroken ? Promise.reject(failure('store.io')) : Promise.resolve(facts()));
    const port = { commit: answer, maintain: answer, giveSpaceBack: answer };
    const catalogue = new SeriesCatalogue();
    const committer = new Committer(port, { clock, catalogue, intervalMs: 1_000, values: 100, onFacts: () => {} });
    const columns = () => {
      const one = new ValueColumns();
      one.add(catalogue.idOf(1, 'k', undefined, undefined), 0, 1, 0);
      return one;
    };
    await committer.flush();
    const early = committer.append(columns());
    committer.hurry();
    await clock.advance(100);
    await early;
    isBroken = true;
    committer.note(facts({ maintenanceDue: true }));
    await clock.advance(0);
    const refused = expect(committer.append(columns())).rejects.toMatchObject({ code: 'store.io' });
    await clock.advance(1_000);
    await refused;
    await committer.close();
  });

  it('takes in as much as may wait, refuses what is beyond, and is the only one that has a commit under way', async () => {
    const { append, until, committer, stall, heard } = script({ maxWaiting: 3, intervalMs: 0 });
    stall(true);
    void append(1);
    void append(9);
    void append(1);
    expect(committer.waitingValues).toBe(9);
    expect(await until(100)).toEqual(['0 commit 1, new k', '0 11 refused: buffer.busy']);
    const flushed = Promise.all([committer.flush(), committer.flush()]);
    stall(false);
    await flushed;
    const told = heard();
    expect(told.filter((line) => line.includes('commit'))).toEqual([
      '100 commit 2 3 4 5 6 7 8 9 10',
      '100 commit nothing',
      '100 commit nothing',
    ]);
    expect(told).toContain('100 2-10 on disk');
    await committer.close();
  });

  it('is alive as long as a commit of what waits was tried within the time', async () => {
    const { append, committer, until, clock, stall } = script({ intervalMs: 10 });
    const isAlive = (patienceMs: number) => committer.isAlive(clock.monotonicMs(), patienceMs);
    expect(isAlive(0)).toBe(true);
    stall(true);
    void append(1);
    await until(40);
    expect(isAlive(1)).toBe(true);
    void append(1);
    await until(50);
    void append(1);
    expect([isAlive(10), isAlive(11)]).toEqual([false, true]);
    stall(false);
    await until(60);
    expect(isAlive(0)).toBe(true);
    await committer.close();
  });

  it('writes what waits and what is pending when it closes, after what is under way, and takes nothing more', async () => {
    const { append, until, committer, stall, heard, clock } = script();
    stall(true);
    void append(1);
    void append(1);
    const closed = committer.close();
    void append(1);
    expect(await until(0)).toEqual(['0 commit 1, new k', '0 3 refused: buffer.closing']);
    stall(false);
    await closed;
    expect(await until(0)).toEqual([
      '0 stored 1',
      '0 facts',
      '0 1 on disk',
      '0 commit 2',
      '0 stored 1',
      '0 facts',
      '0 2 on disk',
    ]);
    committer.hurry();
    committer.note(facts({ maintenanceDue: true, spare: true }));
    expect([heard(), clock.waiting]).toEqual([['0 facts due'], 0]);
  });

  it.each([
    [true, ['0 facts dirty', '0 commit nothing', '0 stored 0', '0 facts']],
    [false, ['0 facts']],
  ])('closes with a commit where something is pending: %s', async (dirty, expected) => {
    const { committer, heard, clock } = script();
    committer.note(facts({ dirty }));
    await committer.close();
    expect(heard()).toEqual(expected);
    expect(clock.waiting).toBe(0);
  });
});
