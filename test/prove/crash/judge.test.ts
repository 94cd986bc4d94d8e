import { describe, expect, it } from 'vitest';
import { type CrashCounts, type Evidence, judge, type PushedValue, wrongCounts } from './judge.ts';

const CRASH_MS = 100_000;

function pushed(timestampMs: number, more: Partial<PushedValue> = {}): PushedValue {
  return { series: '881/a', timestampMs, value: timestampMs / 2, isAcknowledged: true, stores: 1, ...more };
}

const received = (timestampMs: number, atMs = 10, value = timestampMs / 2) => ({
  atMs,
  series: '881/a',
  timestampMs,
  value,
});

const NOTHING: CrashCounts = {
  missing: 0,
  invented: 0,
  different: 0,
  repeated: 0,
  resurrected: 0,
  actionless: 0,
  actionsTwice: 0,
};

function counts(more: Partial<Evidence>): CrashCounts {
  const none = { pushed: [], delivered: [], quarantined: [], crashesMs: [CRASH_MS], actions: [] };
  return judge({ ...none, events: { sent: new Set(), acknowledged: new Set() }, ...more });
}

const sent = (...numbers: number[]) => ({ sent: new Set(numbers), acknowledged: new Set(numbers) });

describe('judge of crash runs', () => {
  it('finds no error if each value and event has exactly one destination', () => {
    const found = counts({
      pushed: [
        pushed(1),
        pushed(2, { purgedAtMs: 50 }),
        pushed(3, { quarantinedAtMs: 50 }),
        pushed(4, { isAcknowledged: false }),
      ],
      delivered: [received(1)],
      quarantined: [received(3)],
      events: sent(7),
      actions: [{ event: 7, atMs: 20 }],
    });
    expect(found).toEqual(NOTHING);
    expect(wrongCounts(found)).toEqual([]);
  });

  it('ignores repetitions of what was in progress at a crash, and of a push without a response', () => {
    const found = counts({
      pushed: [pushed(1), pushed(2, { stores: 2 })],
      delivered: [received(1, CRASH_MS - 100), received(1, CRASH_MS + 900), received(2, 20), received(2, 30)],
      events: sent(7, 8),
      actions: [
        { event: 7, atMs: CRASH_MS - 10 },
        { event: 7, atMs: CRASH_MS + 2_000 },
        // The command survived the crash for a moment.
        { event: 8, atMs: CRASH_MS + 10 },
        { event: 8, atMs: CRASH_MS + 2_000 },
      ],
    });
    expect(found).toEqual(NOTHING);
  });

  it.each<[string, keyof CrashCounts, Partial<Evidence>]>([
    ['an acknowledged value without a destination', 'missing', { pushed: [pushed(1)] }],
    ['a quarantined value that disappears', 'missing', { pushed: [pushed(1, { quarantinedAtMs: 50 })] }],
    ['a value that was never pushed', 'invented', { delivered: [received(1)] }],
    ['an action of an event that was never sent', 'invented', { actions: [{ event: 7, atMs: 20 }] }],
    ['a changed value', 'different', { pushed: [pushed(1)], delivered: [received(1, 10, 9)] }],
    [
      'a value that was delivered long before the crash and again afterwards',
      'repeated',
      { pushed: [pushed(1)], delivered: [received(1, CRASH_MS - 60_000), received(1, CRASH_MS + 10)] },
    ],
    [
      'a repetition without a crash',
      'repeated',
      { pushed: [pushed(1)], delivered: [received(1, 10), received(1, 20)] },
    ],
    [
      'a purged value that is delivered later',
      'resurrected',
      { pushed: [pushed(1, { purgedAtMs: 5 })], delivered: [received(1)] },
    ],
    [
      'a quarantined value that is delivered later',
      'resurrected',
      { pushed: [pushed(1, { quarantinedAtMs: 5 })], delivered: [received(1)] },
    ],
    ['an acknowledged event without its action', 'actionless', { events: sent(7) }],
    [
      'an action that runs again although it ended long before the crash',
      'actionsTwice',
      {
        events: sent(7),
        actions: [
          { event: 7, atMs: CRASH_MS - 60_000 },
          { event: 7, atMs: CRASH_MS + 10 },
        ],
      },
    ],
  ])('finds %s', (_what, count, evidence) => {
    const found = counts(evidence);
    expect(found).toEqual({ ...NOTHING, [count]: 1 });
    expect(wrongCounts(found)).toHaveLength(1);
  });
});
