/** When the committer asks what of the store, and what it tells whom: a script on a clock that stands still, and all that came of it. */
import { describe, expect, it } from 'vitest';
import { facts, script } from './committer-script.ts';

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
