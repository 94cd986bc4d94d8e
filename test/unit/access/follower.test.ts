import { describe, expect, it, vi } from 'vitest';
import { type AccessFeed, AccessFollower } from '../../../src/access/follower.ts';
import { StoreError } from '../../../src/base/errors.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { accessEvent, buildPlant, START_MS } from './plant.ts';

const numbered = (...kinds: [string, number, number][]) =>
  kinds.map(([type, id, at], index) => ({ ...accessEvent(type, id, at), id: index + 1 }));

/** Feed that returns a list in pages, like the inbox. */
function feedOf(events: ReturnType<typeof numbered>, asked: number[] = []): AccessFeed {
  return {
    ofAccess: async (limit, afterId) => {
      asked.push(afterId);
      return events.filter(({ id }) => id > afterId).slice(0, limit);
    },
  };
}

const until = (condition: () => boolean) => vi.waitUntil(condition, { timeout: 20_000, interval: 5 });

describe('access follower', () => {
  it('resumes from its cursor after a restart, and rereads lost events', async () => {
    const { table, restart, database } = await buildPlant();
    const events = numbered(
      ['asset_disappeared', 881, 1],
      ['asset_disappeared', 882, 2],
      ['asset_disappeared', 900, 3],
    );
    const logger = silentLogger();
    const clock = new ManualClock(START_MS);
    const first = await restart();
    const follower = new AccessFollower({ feed: feedOf(events.slice(0, 2)), holds: first, clock, logger });
    follower.start();
    await until(() => first.heldCount() === 2);
    await follower.stop();
    expect(table.load().cursor).toBe(2);

    const asked: number[] = [];
    const second = await restart();
    const next = new AccessFollower({ feed: feedOf(events, asked), holds: second, clock, logger });
    next.start();
    await until(() => second.heldCount() === 3);
    await next.stop();
    expect(asked[0]).toBe(2);

    database.prepare(`UPDATE access_object SET gone = 0 WHERE id = 881`).run();
    const third = await restart();
    expect(third.heldCount()).toBe(2);
    const last = new AccessFollower({ feed: feedOf(events), holds: third, clock, logger });
    last.start();
    await until(() => third.heldCount() === 3);
    await last.stop();
  });

  it('retries an event after a disk error, but skips an event that fails for another reason', async () => {
    const applied: number[] = [];
    let refused = 0;
    let failed = 0;
    const holds = {
      cursor: 0,
      apply: async ({ id }: { id: number }) => {
        if (id === 1 && refused++ < 20) throw new StoreError('disk full', { code: 'inbox.disk_full', retryable: true });
        if (id === 2) throw new Error(`unexpected error ${++failed}`);
        applied.push(id);
      },
    };
    const clock = new ManualClock(START_MS);
    const events = numbered(['asset_disappeared', 1, 1], ['asset_disappeared', 2, 2], ['asset_appeared', 3, 3]);
    const follower = new AccessFollower({ feed: feedOf(events), holds, clock, logger: silentLogger() });
    follower.start();
    await vi.waitUntil(
      async () => {
        await clock.advance(30_000);
        return applied.includes(3);
      },
      { timeout: 20_000, interval: 1 },
    );
    await follower.stop();
    expect(applied).toEqual([1, 3]);
    expect(failed).toBe(8);
  });

  it('retries held assets immediately on request', async () => {
    const { holds, clock } = await buildPlant();
    await holds.refused(882, 403);
    await holds.apply(accessEvent('asset_disappeared', 881, 1));
    expect(holds.dueProbes(clock.monotonicMs())).toEqual([]);
    let heard = 0;
    holds.onChange(() => heard++);
    holds.tryNow();
    expect(
      holds
        .dueProbes(clock.monotonicMs())
        .map(({ asset }) => asset)
        .sort(),
    ).toEqual([881, 882]);
    expect(heard).toBe(1);
  });
});
