import { describe, expect, it } from 'vitest';
import { Sampler } from '../../src/ops/live/sampler.ts';
import { overallState } from '../../src/ops/status-report.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

describe('the history that is written while nobody looks', () => {
  it('has a row each second, and asks the kernel for the memory six times a minute', async () => {
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

  it('learns the state without putting together what status shows of every asset', () => {
    const session = { isUsable: true, snapshot: () => expect.unreachable() };
    const uplink = { outage: undefined, snapshot: () => expect.unreachable() };
    const budget = { restingUntilMs: undefined, stats: () => expect.unreachable() };
    const parts = { session, uplink, budget, buffer: { problems: [] } };
    expect(overallState(parts as never)).toBe('online');
    expect(overallState({ ...parts, budget: { ...budget, restingUntilMs: 1 } } as never)).toBe('resting');
    expect(overallState({ ...parts, session: { ...session, isUsable: false } } as never)).toBe('signed out');
  });
});
