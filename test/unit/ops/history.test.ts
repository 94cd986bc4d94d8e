import { describe, expect, it } from 'vitest';
import { History } from '../../../src/ops/live/history.ts';

const sample = (second: number) => ({
  atMs: second * 1_000,
  ingested: 2,
  delivered: 1,
  backlog: second,
  latencyMs: second % 2 === 0 ? 100 : Number.NaN,
  requests: 7,
  rssBytes: 1_000,
  out: second % 100 === 0 ? 1 : 0,
});

function historyOf(seconds: number): History {
  const history = new History();
  for (let second = 1; second <= seconds; second++) history.add(sample(second));
  return history;
}

describe('history', () => {
  it('keeps ten minutes of per-second rows and one day of per-minute rows in constant memory', () => {
    const history = historyOf(100_000);
    const { seconds, minutes } = history.all();
    expect([seconds.length, minutes.length]).toEqual([600, 1_440]);
    expect(seconds.at(-1)!.slice(0, 4)).toEqual([100_000_000, 2, 1, 100_000]);
    expect(history.bytes).toBe(new History().bytes);
    expect(history.bytes).toBeLessThan(2_000_000);
  });

  it('sums the counters per minute and stores the worst state', () => {
    const { minutes } = historyOf(120).all();
    expect(minutes).toEqual([
      [60_000, 120, 60, 60, 100, 7, 1_000, 0],
      [120_000, 120, 60, 120, 100, 7, 1_000, 1],
    ]);
  });

  it('sends reconnecting viewers only the missed rows', () => {
    const history = historyOf(130);
    const missed = history.since(118)!;
    expect(missed.seconds.map(([atMs]) => atMs)).toEqual(Array.from({ length: 12 }, (_, i) => 119_000 + i * 1_000));
    expect(missed.minutes.map(([atMs]) => atMs)).toEqual([120_000]);
    expect(history.since(130)).toEqual({ seconds: [], minutes: [] });
  });

  it('is not resumed after a long absence or a reboot', () => {
    const history = historyOf(1_000);
    expect(history.since(399)).toBeUndefined();
    expect(history.since(400)!.seconds).toHaveLength(600);
    expect(history.since(1_001)).toBeUndefined();
  });

  it('reports no latency without deliveries', () => {
    const [first, second] = historyOf(2).all().seconds;
    expect([first![4], second![4]]).toEqual([null, 100]);
  });
});
