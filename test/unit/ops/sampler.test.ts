import { describe, expect, it } from 'vitest';
import { Sampler } from '../../../src/ops/live/history.ts';
import { overallState } from '../../../src/ops/status-report.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

describe('history without viewers', () => {
  it('adds a row every second and reads the memory usage six times per minute', async () => {
    let asked = 0;
    const resident = () => 90_000_000 + asked++;
    const clock = new ManualClock();
    let ingested = 0;
    const standing = () => {
      ingested += 7;
      return { ingested, delivered: 0, backlog: 3, requests: 1, isOut: false };
    };
    const sampler = new Sampler(standing, clock, resident);
    sampler.start();
    await clock.advance(60_000);
    sampler.stop();
    expect(asked).toBe(6);
    const { seconds } = sampler.history.all();
    expect(seconds).toHaveLength(60);
    expect(seconds.map((row) => row[1])).toEqual(seconds.map(() => 7));
    expect(seconds.map((row) => row[6])).toEqual(seconds.map((_, at) => 90_000_000 + Math.floor(at / 10)));
  });

  it('reads the overall state without building a report for each asset', () => {
    const session = { isUsable: true, snapshot: () => expect.unreachable() };
    const uplink = { outage: undefined, snapshot: () => expect.unreachable() };
    const budget = { restingUntilMs: undefined, stats: () => expect.unreachable() };
    const parts = { session, uplink, budget, buffer: { problems: [] } };
    expect(overallState(parts as never)).toBe('online');
    expect(overallState({ ...parts, budget: { ...budget, restingUntilMs: 1 } } as never)).toBe('resting');
    expect(overallState({ ...parts, session: { ...session, isUsable: false } } as never)).toBe('signed out');
  });
});
