/** When the committer asks what of the store, and what it tells whom: a script on a clock that stands still, and all that came of it. */
import { describe, expect, it } from 'vitest';
import { StoreError } from '../../src/base/errors.ts';
import { Committer } from '../../src/buffer/client/committer.ts';
import type { Note } from '../../src/buffer/client/notes.ts';
import { ValueColumns } from '../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../src/buffer/series.ts';
import type { CommitRequest, StoreFacts } from '../../src/buffer/store-facts.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const QUIET = { dirty: false, maintenanceDue: false, short: false, spare: false, oversized: false };
const facts = (more: Partial<StoreFacts> = {}) => ({ ...QUIET, ...more }) as StoreFacts;
const failure = (code: string) => new StoreError('no', { code, retryable: true });

type Answer = StoreFacts | Error;

/** A committer over a store that answers as it is told, at once unless it stalls. What happens is written down, with its time. */
function script(
  more: { intervalMs?: number; values?: number; maxWaiting?: number; notesOf?: (wallMs: number) => Note[] } = {},
) {
  const clock = new ManualClock(500_000);
  const began = clock.monotonicMs();
  const said: string[] = [];
  const answers: Answer[] = [];
  const commits: CommitRequest[] = [];
  const stalled: (() => void)[] = [];
  let stalls = false;
  const say = (what: string) => void said.push(`${clock.monotonicMs() - began} ${what}`);
  const answer = (): Promise<StoreFacts> => {
    const next = answers.shift() ?? facts();
    const give = () => (next instanceof Error ? Promise.reject(next) : Promise.resolve(next));
    if (!stalls) return give();
    return new Promise<void>((resolve) => stalled.push(resolve)).then(give);
  };
  const port = {
    commit: (request: CommitRequest) => {
      commits.push(request);
      const { columns, newSeries, notes, monotonicMs, wallMs } = request;
      const readings = columns ? [...columns.value.subarray(0, columns.length)].join(' ') : 'nothing';
      const series = newSeries.length > 0 ? `, new ${newSeries.map(({ key }) => key).join(' ')}` : '';
      const told = notes ? `, notes ${notes.map(({ name, text }) => `${name}=${text}`).join(' ')}` : '';
      expect([monotonicMs - began, wallMs - 500_000]).toEqual([
        clock.monotonicMs() - began,
        clock.monotonicMs() - began,
      ]);
      say(`commit ${readings}${series}${told}`);
      return answer();
    },
    maintain: ({ monotonicMs }: { monotonicMs: number }) => {
      expect(monotonicMs).toBe(clock.monotonicMs());
      say('maintain');
      return answer();
    },
    giveSpaceBack: () => {
      say('give space back');
      return answer();
    },
  };
  const catalogue = new SeriesCatalogue();
  const committer = new Committer(port, {
    clock,
    catalogue,
    intervalMs: 1_000,
    values: 100,
    onFacts: (given) => say(`facts${given.dirty ? ' dirty' : ''}${given.maintenanceDue ? ' due' : ''}`),
    onFailure: (error) => say(`failed ${error.code}: ${error.message}`),
    onEarly: () => say('early'),
    onCommit: (values) => say(`stored ${values}`),
    ...more,
  });
  let next = 0;
  const append = (count: number, notes?: readonly Note[], key = 'k') => {
    const columns = new ValueColumns();
    const first = next + 1;
    for (let i = 0; i < count; i++) columns.add(catalogue.idOf(1, key, undefined, undefined), 0, ++next, 0);
    const name = count > 0 ? `${first}${count > 1 ? `-${next}` : ''}` : 'notes';
    const answered = committer.append(columns, notes).then(
      () => say(`${name} on disk`),
      (error) => {
        expect(error.retryable).toBe(true);
        say(`${name} refused: ${error.code}`);
      },
    );
    return answered;
  };
  /** What was said since it was asked last. */
  const heard = () => said.splice(0);
  const until = async (ms: number) => {
    await clock.advance(ms - (clock.monotonicMs() - began));
    return heard();
  };
  const stall = (on: boolean) => {
    stalls = on;
    if (!on) for (const over of stalled.splice(0)) over();
  };
  return { clock, committer, catalogue, commits, answers, append, until, heard, say, stall };
}

describe('a committer', () => {
  it('commits at once what comes after a pause, and what comes then when its interval is over, with all that came meanwhile', async () => {
    const { append, until, committer } = script();
    void append(2);
    expect(committer.waitingValues).toBe(0);
    expect(await until(0)).toEqual(['0 commit 1 2, new k', '0 stored 2', '0 facts', '0 1-2 on disk']);
    void append(1);
    expect(await until(400)).toEqual([]);
    void append(1, undefined, 'other');
    expect(committer.waitingValues).toBe(2);
    expect(await until(999)).toEqual([]);
    expect(await until(1_000)).toEqual([
      '1000 commit 3 4, new other',
      '1000 stored 2',
      '1000 facts',
      '1000 3 on disk',
      '1000 4 on disk',
    ]);
    await committer.close();
  });

  it('commits at once as many values as are worth it, whatever its interval', async () => {
    const { append, until, committer } = script({ values: 3 });
    void append(1);
    await until(10);
    void append(2);
    expect(await until(20)).toEqual([]);
    void append(1);
    expect((await until(20))[0]).toBe('20 commit 2 3 4');
    committer.setPace({ intervalMs: 50, values: 2 });
    void append(1);
    expect(await until(69)).toEqual([]);
    expect((await until(70))[0]).toBe('70 commit 5');
    void append(2);
    expect((await until(70))[0]).toBe('70 commit 6 7');
    void append(1);
    await until(71);
    // What waits already is committed by the new pace.
    committer.setPace({ intervalMs: 50, values: 1 });
    expect((await until(71))[0]).toBe('71 commit 8');
    await committer.close();
  });

  it.each([
    [1_000, 100],
    [60, 60],
  ])('whose interval is %i ms comes after %i where somebody waits for it, once', async (intervalMs, earlyMs) => {
    const { append, until, committer, heard } = script({ intervalMs });
    committer.hurry();
    void append(1);
    await until(0);
    committer.hurry();
    void append(1);
    committer.hurry();
    committer.hurry();
    expect(await until(earlyMs - 1)).toEqual([]);
    const told = intervalMs > 100 ? [`${earlyMs} early`] : [];
    expect((await until(earlyMs)).slice(0, 1 + told.length)).toEqual([...told, `${earlyMs} commit 2`]);
    // Nobody waits: the next is not early for it.
    committer.hurry();
    void append(1);
    expect(await until(earlyMs + intervalMs - 1)).toEqual([]);
    expect((await until(earlyMs + intervalMs))[0]).toBe(`${earlyMs + intervalMs} commit 3`);
    heard();
    await committer.close();
  });

  it('writes what is pending without values two seconds after it came up, and not sooner after a commit than its interval', async () => {
    const { committer, until, append, answers, heard } = script({ intervalMs: 3_000 });
    committer.note(facts({ dirty: true }));
    expect(heard()).toEqual(['0 facts dirty']);
    await until(500);
    // Since it came up first.
    committer.note(facts({ dirty: true }));
    expect(await until(1_999)).toEqual(['500 facts dirty']);
    expect(await until(2_000)).toEqual(['2000 commit nothing', '2000 stored 0', '2000 facts']);
    await until(2_100);
    committer.note(facts({ dirty: true }));
    heard();
    expect(await until(4_999)).toEqual([]);
    expect((await until(5_000))[0]).toBe('5000 commit nothing');
    // With values it goes along.
    answers.push(facts({ dirty: true }));
    void append(1);
    expect((await until(8_000)).slice(0, 3)).toEqual(['8000 commit 1, new k', '8000 stored 1', '8000 facts dirty']);
    expect(await until(10_999)).toEqual([]);
    expect((await until(11_000))[0]).toBe('11000 commit nothing');
    committer.note(facts({ dirty: true }));
    committer.note(facts());
    heard();
    await committer.close();
    // Nothing is pending any more.
    expect(heard()).toEqual([]);
  });

  it('maintains a step at a time while there is something to do, and asks every two seconds whether there is', async () => {
    const { committer, until, answers, append } = script();
    answers.push(facts({ maintenanceDue: true }), facts({ maintenanceDue: true }), facts());
    committer.note(facts({ maintenanceDue: true }));
    expect(await until(0)).toEqual([
      '0 facts due',
      '0 maintain',
      '0 facts due',
      '0 maintain',
      '0 facts due',
      '0 maintain',
      '0 facts',
    ]);
    expect(await until(4_500)).toEqual(['2000 maintain', '2000 facts', '4000 maintain', '4000 facts']);
    // A commit that is due goes before it, and it goes on afterwards.
    answers.push(facts({ maintenanceDue: true }));
    void append(1);
    expect(await until(4_500)).toEqual([
      '4500 commit 1, new k',
      '4500 stored 1',
      '4500 facts due',
      '4500 maintain',
      '4500 1 on disk',
      '4500 facts',
    ]);
    // While values wait for their commit nothing else is asked.
    committer.setPace({ intervalMs: 5_000, values: 100 });
    void append(1);
    expect((await until(9_499)).length).toBe(0);
    expect((await until(9_500))[0]).toBe('9500 commit 2');
    await committer.close();
  });

  it.each([
    ['when nothing else is to be done', {}, true],
    ['and not while something is pending', { dirty: true }, false],
    ['also then, where the disk is short', { dirty: true, short: true }, true],
    ['also then, where the file is too large', { dirty: true, oversized: true }, true],
    ['after what is to be maintained', { maintenanceDue: true }, false],
  ])('gives space back %s', async (_, more, isGiven) => {
    const { committer, until, heard } = script();
    committer.note(facts({ spare: true, ...more }));
    const [, second] = [...heard(), ...(await until(0))];
    expect(second === '0 give space back').toBe(isGiven);
    expect(await until(1_999)).toEqual([]);
    await committer.close();
  });

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

  it('has notes go with values, never alone, and asks for more of them with each commit that has some', async () => {
    const { append, until, committer, heard } = script({
      notesOf: (wallMs) => [{ name: 'at', text: `${wallMs - 500_000}` }],
    });
    void append(1, [{ name: 'a', text: '1' }]);
    expect(await until(300)).toEqual(['0 commit 1, new k, notes a=1 at=0', '0 stored 1', '0 facts', '0 1 on disk']);
    void append(0, [{ name: 'b', text: '2' }]);
    void append(0, [{ name: 'c', text: '3' }]);
    void append(0);
    expect(committer.waitingValues).toBe(0);
    expect(await until(1_000)).toEqual([
      '300 notes on disk',
      '1000 commit nothing, notes b=2 c=3 at=1000',
      '1000 stored 0',
      '1000 facts',
      '1000 notes on disk',
      '1000 notes on disk',
    ]);
    await committer.flush();
    expect(heard()[0]).toBe('1000 commit nothing');
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

  it('names the series of what waits and of what comes, until nobody watches', async () => {
    const { append, committer, catalogue, until } = script();
    void append(1, undefined, 'before');
    await until(1);
    void append(2, undefined, 'waits');
    const [first, second] = [committer.watchSeries(), committer.watchSeries()];
    first.end();
    void append(1, undefined, 'comes');
    const keys = ({ named }: typeof first) => [...named].map((id) => catalogue.get(id)!.key);
    expect([keys(first), keys(second)]).toEqual([['waits'], ['waits', 'comes']]);
    await committer.close();
  });
});
