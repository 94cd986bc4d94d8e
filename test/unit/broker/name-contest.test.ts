import { describe, expect, it } from 'vitest';
import { brokerHungUp, connectionEnded } from '../../../src/broker/broker-error.ts';
import { type EndedConnection, NameContest } from '../../../src/broker/name-contest.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const SHORT = { reason: brokerHungUp(false), lastedMs: 600, sessionPresent: true, wasResponsePending: false };
type Ended = Omit<EndedConnection, 'sinceMs'> & { lastedMs: number; pauseMs?: number; failedBefore?: boolean };

/** Returns whether another client is detected, for each connection. */
async function verdicts(connections: readonly Ended[]): Promise<boolean[]> {
  const clock = new ManualClock();
  const contest = new NameContest(clock);
  const found: boolean[] = [];
  for (const { lastedMs, pauseMs = 500, failedBefore = false, ...ended } of connections) {
    await clock.advance(pauseMs);
    if (failedBefore) contest.failed();
    const sinceMs = clock.monotonicMs();
    await clock.advance(lastedMs);
    found.push(contest.ended({ ...ended, sinceMs }));
  }
  return found;
}

describe('duplicate client ID detection', () => {
  it('triggers on the second disconnect with the reason code', async () => {
    const stated = { ...SHORT, reason: connectionEnded(0x8e), lastedMs: 30_000 };
    expect(await verdicts([stated, stated])).toEqual([false, true]);
  });

  it('triggers on the fifth short connection closed without a reason code', async () => {
    expect(await verdicts(Array(6).fill(SHORT))).toEqual([false, false, false, false, true, true]);
  });

  it.each<[string, Partial<Ended>]>([
    ['the broker restarts and refuses connections in the meantime', { failedBefore: true }],
    ['the broker does not keep the session', { sessionPresent: false }],
    ['the broker closes the connection after a request without a response', { wasResponsePending: true }],
    ['a proxy closes idle connections', { lastedMs: 10_000 }],
    ['connections end for another reason', { reason: connectionEnded(0x8b) }],
    ['connections end only once every two minutes', { pauseMs: 120_000 }],
  ])('reports no duplicate if %s', async (_, difference) => {
    expect(await verdicts(Array(8).fill({ ...SHORT, ...difference }))).toEqual(Array(8).fill(false));
  });
});
