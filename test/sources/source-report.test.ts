import { describe, expect, it } from 'vitest';
import type { SourceFacts } from '../../src/sources/source-facts.ts';
import { sourceNotes, sourceReports } from '../../src/sources/source-report.ts';

const MINUTE_MS = 60_000;
const FACTS: SourceFacts = {
  name: 'plc1',
  kind: 'modbus',
  connected: false,
  sinceMs: 0,
  openedMs: 0,
  values: 4,
  everyMs: 1_000,
  stored: 0,
  lastStoredMs: undefined,
  lastTakenMs: undefined,
  waiting: 0,
  errors: 3,
  pollsLate: 0,
  missing: { count: 0, first: [] },
};

function silentAt(nowMs: number, more: Partial<SourceFacts> = {}): boolean {
  return sourceReports([{ ...FACTS, ...more }], nowMs)[0]!.silent;
}

describe('a source', () => {
  it('that is polled is silent from a minute after its start until it speaks, and again a minute after', () => {
    expect([MINUTE_MS, MINUTE_MS + 1, 1_000 * MINUTE_MS].map((ms) => silentAt(ms))).toEqual([false, true, true]);
    const spoke = { lastTakenMs: 10 * MINUTE_MS, connected: true };
    expect([10, 11, 12].map((minutes) => silentAt(minutes * MINUTE_MS, spoke))).toEqual([false, false, true]);
  });

  it('that is polled once an hour has three hours', () => {
    const hourly = { everyMs: 60 * MINUTE_MS };
    expect([179, 181].map((minutes) => silentAt(minutes * MINUTE_MS, hourly))).toEqual([false, true]);
  });

  it('whose dead band leaves everything out is not silent', () => {
    expect(silentAt(100 * MINUTE_MS, { lastStoredMs: 1, lastTakenMs: 100 * MINUTE_MS - 900 })).toBe(false);
  });

  it('that speaks when it likes is silent while it is away, for 15 minutes after the start, for a day after a word', () => {
    const broker = { kind: 'mqtt', everyMs: 0 };
    expect([1, 2].map((minutes) => silentAt(minutes * MINUTE_MS, broker))).toEqual([false, true]);
    const connected = { ...broker, connected: true };
    expect([15, 16].map((minutes) => silentAt(minutes * MINUTE_MS, connected))).toEqual([false, true]);
    const spoke = { ...connected, lastTakenMs: 0 };
    expect([1_440, 1_441].map((minutes) => silentAt(minutes * MINUTE_MS, spoke))).toEqual([false, true]);
    const publishes = { ...connected, values: 0 };
    expect(silentAt(10_000 * MINUTE_MS, publishes)).toBe(false);
    expect(silentAt(2 * MINUTE_MS, { ...publishes, connected: false })).toBe(true);
  });

  it('that is silent is a note of the health, with what is wrong', () => {
    const reports = sourceReports(
      [
        { ...FACTS, problem: 'no answer within 3000 ms' },
        { ...FACTS, name: 'well', lastTakenMs: 119_000 },
      ],
      120_000,
    );
    expect(sourceNotes(reports)).toEqual([
      'the modbus source plc1 is silent: no value yet, for 120 s (no answer within 3000 ms)',
    ]);
  });
});
