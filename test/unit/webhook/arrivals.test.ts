import { describe, expect, it, vi } from 'vitest';
import { silentLogger } from '../../../src/base/logger.ts';
import { Arrivals, type ArrivalsParts } from '../../../src/webhook/arrivals.ts';
import type { ArrivedEvent } from '../../../src/webhook/received-event.ts';

const MiB = 1024 * 1024;
const sized = (bytes: number) =>
  ({ identity: new Uint8Array(12), eventType: 'x', payload: new Uint8Array(bytes) }) as ArrivedEvent;

/** Records the size of each commit, the maximum number of concurrent commits, and the new events. */
function start(
  maxWaiting = 1_000,
  insertMany: ArrivalsParts['insertMany'] = async (events) => events.map(() => 'new'),
) {
  const commits: number[] = [];
  const received: string[] = [];
  let open = 0;
  const most = { open: 0 };
  const arrivals = new Arrivals({
    insertMany: async (events) => {
      commits.push(events.length);
      most.open = Math.max(most.open, ++open);
      await new Promise((resolve) => setImmediate(resolve));
      open--;
      return await insertMany(events);
    },
    log: silentLogger(),
    received: (eventType) => received.push(eventType),
    maxWaiting,
  });
  const store = (sizes: readonly number[]) =>
    Promise.allSettled(sizes.map((bytes) => arrivals.store(sized(bytes), 'push')));
  return { arrivals, commits, most, received, store };
}

describe('received event commit', () => {
  it.each([
    ['256 events', Array(600).fill(1), [256, 256, 88]],
    ['4 MiB', [2 * MiB, 2 * MiB, 1, MiB], [2, 2]],
    ['one larger event', [5 * MiB, 1, 4 * MiB, 4 * MiB, 1], [1, 1, 1, 1, 1]],
  ])('contains at most %s, one commit at a time', async (_, sizes, expected) => {
    const { commits, most, store } = start();
    const outcomes = await store(sizes);
    expect(commits).toEqual(expected);
    expect(most.open).toBe(1);
    expect(outcomes.every(({ status }) => status === 'fulfilled')).toBe(true);
  });

  it('counts only new events, and rejects all events if it fails', async () => {
    const { received, store } = start(1_000, async (events) => {
      if (events.length === 3) throw new Error('no disk');
      return events.map(({ payload }) => (payload.length > 1 ? 'seen' : 'new'));
    });
    await store([1, 2]);
    expect(received).toHaveLength(1);
    expect(await store([1, 1, 1])).toMatchObject(Array(3).fill({ reason: { message: 'no disk' } }));
    await store([2]);
    expect(received).toHaveLength(1);
  });

  it('rejects excess events until the next commit begins', async () => {
    const { arrivals, commits, store } = start(2);
    const first = store([1, 1, 1]);
    await vi.waitUntil(() => commits.length === 1);
    const second = store([1, 1, 1]);
    const busy = { reason: { code: 'inbox.busy', retryable: true } };
    for (const outcomes of await Promise.all([first, second])) {
      expect(outcomes).toMatchObject([{ status: 'fulfilled' }, { status: 'fulfilled' }, busy]);
    }
    await arrivals.drained();
    expect(commits).toEqual([2, 2]);
  });
});
