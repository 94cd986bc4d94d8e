import { describe, expect, it } from 'vitest';
import { PostLag } from '../../src/uplink/post-lag.ts';

describe('the interval that an asset really gets, minute by minute', () => {
  /** What it is at each of these times. */
  const at = (lag: PostLag, ...times: number[]) => times.map((nowMs) => lag.intervalMs(nowMs));

  it('counts the lateness of a minute to the end of the next, and no longer', () => {
    const lag = new PostLag(10_000);
    lag.note(3_000, 1_000);
    lag.note(1_000, 60_999);
    expect(at(lag, 60_999)).toEqual([13_000]);
    // The next minute begins with a post.
    lag.note(2_000, 61_000);
    expect(at(lag, 61_000, 120_999, 121_000, 180_999, 181_000)).toEqual([13_000, 13_000, 12_000, 12_000, 10_000]);
  });

  it('counts what is noted after a silence, and not what was before it', () => {
    for (const [silentMs, first] of [
      [119_999, 13_000],
      [120_000, 12_000],
    ] as const) {
      const lag = new PostLag(10_000);
      lag.note(3_000, 1_000);
      lag.note(2_000, 1_000 + silentMs);
      expect(at(lag, 1_000 + silentMs, 61_000 + silentMs, 121_000 + silentMs)).toEqual([first, 12_000, 10_000]);
    }
  });

  it('is a whole number of milliseconds, of the interval as it is set', () => {
    const lag = new PostLag(10_000);
    lag.note(0.6, 0);
    expect(at(lag, 0)).toEqual([10_001]);
    lag.setInterval(20_000);
    expect(at(lag, 0)).toEqual([20_001]);
  });
});
