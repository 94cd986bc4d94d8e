import { describe, expect, it } from 'vitest';
import { PostSize } from '../../src/uplink/post-size.ts';

const MINUTE = 60_000;
const MAX = 480_000;

/** A gateway with a backlog that fills each post, one a second, and a way that lets `most` bytes through at each time. */
function fill(size: PostSize, seconds: number, most: (atMs: number) => number, fromMs = 0) {
  const refusals: number[] = [];
  for (let second = 0; second < seconds; second++) {
    const atMs = fromMs + second * 1_000;
    // A refused post is divided until its parts are taken.
    for (let bytes = size.maxBytes; ; bytes = Math.floor(bytes / 2)) {
      if (bytes <= most(atMs)) {
        size.taken(bytes, atMs);
        break;
      }
      refusals.push(atMs);
      size.refused(bytes, atMs);
    }
  }
  return refusals;
}

describe('the size of posts', () => {
  it('is back at POST_MAX_BYTES within minutes after five minutes of 413s', () => {
    const size = new PostSize(MAX);
    fill(size, 300, () => 2_000);
    expect(size.maxBytes).toBeLessThanOrEqual(4_000);
    fill(size, 300, () => Number.POSITIVE_INFINITY, 300_000);
    expect(size.maxBytes).toBe(MAX);
  });

  it.each([1_300, 50_000, 130_000, 300_000, 479_999])(
    'comes close to a lasting limit of %d bytes and tries beyond it ever less',
    (limit) => {
      const size = new PostSize(MAX);
      const refusals = fill(size, 6 * 3_600, () => limit);
      expect(size.maxBytes).toBeGreaterThanOrEqual(Math.min(limit, MAX) * 0.5);
      expect(size.maxBytes).toBeLessThanOrEqual(limit * 2);
      const firstHour = refusals.filter((atMs) => atMs < 60 * MINUTE).length;
      const lastHour = refusals.filter((atMs) => atMs >= 5 * 60 * MINUTE).length;
      expect(firstHour).toBeLessThan(30);
      expect(lastHour).toBeLessThanOrEqual(3);
    },
  );

  it('does not grow by posts that do not fill it', () => {
    const size = new PostSize(MAX);
    size.refused(100_000, 0);
    for (let i = 0; i < 1_000; i++) size.taken(20_000, MINUTE + i * 1_000);
    expect(size.maxBytes).toBe(50_000);
  });

  it('doubles once a refusal has rested, and stays where half of the way to it would be all of it', () => {
    const size = new PostSize(MAX);
    size.refused(100_000, 0);
    const grown = (bytes: number, atMs: number) => [0, 1, 2].map(() => size.taken(bytes, atMs));
    expect(grown(50_000, MINUTE)).toEqual([undefined, undefined, 100_000]);
    size.refused(100_000, 2 * MINUTE);
    expect(grown(50_000, 2 * MINUTE)).toEqual([undefined, undefined, 75_000]);
    expect(grown(75_000, 2 * MINUTE)).toEqual([undefined, undefined, undefined]);
    expect(size.maxBytes).toBe(75_000);
  });

  it('doubles where the size that was refused was taken since', () => {
    const size = new PostSize(MAX);
    size.refused(100_000, 0);
    expect([100_000, 50_000, 50_000].map((bytes) => size.taken(bytes, 1_000))).toEqual([undefined, undefined, 100_000]);
  });

  it('is forgotten with an outage, and with a reload', () => {
    const size = new PostSize(MAX);
    for (const end of [() => size.forget(), () => size.setLimit(MAX), () => size.setLimit(300_000)]) {
      fill(size, 10, () => 1_500);
      expect(size.maxBytes).toBeLessThan(4_000);
      end();
    }
    expect(size.maxBytes).toBe(300_000);
    fill(size, 100, () => Number.POSITIVE_INFINITY);
    expect(size.maxBytes).toBe(300_000);
  });

  it('does not learn from one asset’s 413 where as large a post of another was just taken', () => {
    const size = new PostSize(MAX);
    size.taken(200_000, 0);
    expect(size.refused(150_000, 5_000)).toBeUndefined();
    expect(size.refused(250_000, 5_000)).toBe(200_000);
    expect(size.refused(150_000, 60_000)).toBe(75_000);
  });

  it('never falls below what one value needs', () => {
    const size = new PostSize(MAX);
    for (let bytes = MAX; bytes > 100; bytes >>= 1) size.refused(bytes, 0);
    expect(size.maxBytes).toBe(1_000);
  });
});
