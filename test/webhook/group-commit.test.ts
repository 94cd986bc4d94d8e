import { describe, expect, it, vi } from 'vitest';
import { GroupCommit, type InsertMany } from '../../src/webhook/group-commit.ts';
import type { ArrivedEvent } from '../../src/webhook/received-event.ts';

const MiB = 1024 * 1024;
const sized = (bytes: number) => ({ payload: new Uint8Array(bytes) }) as ArrivedEvent;

/** Gives beside the commits how many events each has, and how many were under way at most. */
function world(maxWaiting = 1_000, outcome: InsertMany = async (events) => events.map(() => 'new')) {
  const commits: number[] = [];
  let underWay = 0;
  const most = { underWay: 0 };
  const commit = new GroupCommit(async (events) => {
    commits.push(events.length);
    most.underWay = Math.max(most.underWay, ++underWay);
    await new Promise((resolve) => setImmediate(resolve));
    underWay--;
    return await outcome(events);
  }, maxWaiting);
  const insert = (sizes: readonly number[]) => Promise.allSettled(sizes.map((bytes) => commit.insert(sized(bytes))));
  return { commit, commits, most, insert };
}

describe('events that arrive together', () => {
  it.each([
    ['256 events', Array(600).fill(1), [256, 256, 88]],
    ['four megabytes', [2 * MiB, 2 * MiB, 1, MiB], [2, 2]],
    ['one that is larger than that', [5 * MiB, 1, 4 * MiB, 4 * MiB, 1], [1, 1, 1, 1, 1]],
  ])('are committed by at most %s, one commit after the other', async (_, sizes, expected) => {
    const { commits, most, insert } = world();
    const outcomes = await insert(sizes);
    expect(commits).toEqual(expected);
    expect(most.underWay).toBe(1);
    expect(new Set(outcomes.map(({ status }) => status))).toEqual(new Set(['fulfilled']));
  });

  it('are through when the last of them is on disk, and those that came meanwhile', async () => {
    const { commit, commits } = world();
    const first = commit.insert(sized(1));
    const second = first.then(() => commit.insert(sized(1)));
    await commit.drained();
    expect(commits).toEqual([1, 1]);
    expect(await second).toBe('new');
    await commit.drained();
  });

  it('learn each for itself what became of them, and of a commit that fails all', async () => {
    const { commit, insert } = world(1_000, async (events) => {
      if (events.length === 3) throw new Error('no disk');
      return events.map(({ payload }) => (payload.length > 1 ? 'seen' : 'new'));
    });
    expect(await insert([1, 2])).toMatchObject([{ value: 'new' }, { value: 'seen' }]);
    expect(await insert([1, 1, 1])).toMatchObject(Array(3).fill({ reason: { message: 'no disk' } }));
    expect(await insert([2])).toMatchObject([{ value: 'seen' }]);
    await commit.drained();
  });

  it('are refused at once where as many wait as may', async () => {
    const { insert } = world(2);
    const outcomes = await insert([1, 1, 1]);
    expect(outcomes).toMatchObject([
      { value: 'new' },
      { value: 'new' },
      { reason: { code: 'inbox.busy', retryable: true, message: 'too many events wait for the disk' } },
    ]);
  });

  it('may wait again as soon as the next commit has taken those before', async () => {
    const { commit, commits } = world(2);
    const [first, second] = [commit.insert(sized(1)), commit.insert(sized(1))];
    await expect(commit.insert(sized(1))).rejects.toMatchObject({ code: 'inbox.busy' });
    await vi.waitUntil(() => commits.length === 1);
    const later = [commit.insert(sized(1)), commit.insert(sized(1))];
    await expect(commit.insert(sized(1))).rejects.toMatchObject({ code: 'inbox.busy' });
    expect(await Promise.all([first, second, ...later])).toEqual(Array(4).fill('new'));
    expect(commits).toEqual([2, 2]);
  });

  it('are taken for seen where a commit says nothing of them', async () => {
    const { insert } = world(9, async () => ['new']);
    expect(await insert([1, 1])).toMatchObject([{ value: 'new' }, { value: 'seen' }]);
  });
});
