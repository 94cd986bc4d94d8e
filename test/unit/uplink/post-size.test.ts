import { describe, expect, it } from 'vitest';
import { responseLimitMs } from '../../../src/uplink/post.ts';
import { PostSize } from '../../../src/uplink/post-size.ts';

const MAX = 480_000;
const TEN_MINUTES = 600_000;

describe('post size', () => {
  it('is limited to half the size of a body rejected with 413 for ten minutes', () => {
    const size = new PostSize(MAX);
    expect(size.tooLarge(MAX, 0)).toBe(240_000);
    expect(size.tooLarge(240_000, 1_000)).toBe(120_000);
    expect(size.maxBytes(TEN_MINUTES)).toBe(120_000);
    expect(size.maxBytes(TEN_MINUTES + 1_000)).toBe(MAX);
  });

  it('is restored after an outage and after a reload', () => {
    const size = new PostSize(MAX);
    size.tooLarge(MAX, 0);
    size.reset();
    expect(size.maxBytes(1)).toBe(MAX);
    size.tooLarge(MAX, 2);
    size.setLimit(100_000);
    expect(size.maxBytes(3)).toBe(100_000);
  });

  it('is not reduced by a 413 if a body of the same size was recently accepted for another asset', () => {
    const size = new PostSize(MAX);
    size.accepted(200_000, 0);
    size.accepted(1_000, 5_000);
    expect(size.tooLarge(200_000, 10_000)).toBeUndefined();
    expect(size.tooLarge(200_000, 10_001)).toBe(100_000);
  });

  it('is never smaller than a single value', () => {
    const size = new PostSize(MAX);
    expect(size.tooLarge(1_200, 0)).toBe(1_000);
    expect(size.tooLarge(900, 1)).toBeUndefined();
  });
});

describe('response timeout', () => {
  it('is 30 s plus the transmission time at 64 kbit/s, and doubles after each failure up to 90 s', () => {
    expect([responseLimitMs(0, 0), responseLimitMs(80_000, 0), responseLimitMs(0, 1)]).toEqual([
      30_000, 40_000, 60_000,
    ]);
    expect([responseLimitMs(480_000, 0), responseLimitMs(0, 5)]).toEqual([90_000, 90_000]);
  });
});
