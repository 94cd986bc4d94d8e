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

describe('the size of posts, at each boundary', () => {
  const NOW = 100 * MINUTE;
  /** After a 413 for so many bytes, ten minutes ago unless told. */
  const sizeAfter = (bytes: number, atMs = NOW - 10 * MINUTE) => {
    const size = new PostSize(MAX);
    size.refused(bytes, atMs);
    return size;
  };
  const takeThrice = (size: PostSize, bytes: number, atMs = NOW) => [0, 1, 2].map(() => size.taken(bytes, atMs));

  it.each([
    ['as large, 10 s ago', 20_000, 10_000, undefined],
    ['as large, longer ago', 20_000, 10_001, 10_000],
    ['a little smaller, just now', 19_999, 0, 19_999],
  ])('a 413 where one was taken that was %s', (_name, taken, agoMs, limit) => {
    const size = new PostSize(MAX);
    size.taken(taken, NOW - agoMs);
    expect([size.refused(20_000, NOW), size.maxBytes]).toEqual([limit, limit ?? MAX]);
  });

  it.each([
    ['a smaller one later does not take its place', [20_000, 0], [5_000, 9_999], 10_000, undefined],
    ['a smaller one after 10 s neither', [20_000, 0], [5_000, 10_000], 10_000, undefined],
    ['a smaller one after that does', [20_000, 0], [5_000, 10_001], 10_001, 10_000],
    ['one as large does at once', [20_000, 0], [20_000, 5_000], 15_000, undefined],
    ['a larger one does at once', [20_000, 0], [20_001, 5_000], 15_000, undefined],
  ] as const)('what was taken lately: %s', (_name, first, second, atMs, learned) => {
    const size = new PostSize(MAX);
    for (const [bytes, takenMs] of [first, second]) size.taken(bytes, NOW + takenMs);
    expect(size.refused(20_000, NOW + atMs)).toBe(learned);
  });

  it('does not learn from what is as large as what was taken last, once the larger one before it is forgotten', () => {
    const size = new PostSize(MAX);
    size.taken(20_000, NOW);
    size.taken(5_000, NOW + 10_001);
    expect([size.refused(5_000, NOW + 10_001), size.refused(5_001, NOW + 10_001)]).toEqual([undefined, 2_500]);
  });

  it('becomes half of what was too large, or what was taken since where that is more', () => {
    expect(sizeAfter(100_001).maxBytes).toBe(50_000);
    const size = sizeAfter(100_000);
    size.taken(45_000, NOW - MINUTE);
    // Refused with less than was proven, nothing is proven any more.
    expect([size.refused(80_000, NOW), size.refused(45_001, NOW)]).toEqual([45_000, undefined]);
    expect([size.refused(45_000, NOW), size.refused(30_000, NOW)]).toEqual([22_500, 15_000]);
    expect([size.refused(40_000, NOW), size.refused(2_001, NOW), size.refused(1_500, NOW)]).toEqual([
      undefined,
      1_000,
      undefined,
    ]);
  });

  it('grows by three posts that are at least half as large as it, and by no others', () => {
    const size = sizeAfter(100_000);
    expect(takeThrice(size, 24_999)).toEqual([undefined, undefined, undefined]);
    expect(takeThrice(size, 25_000)).toEqual([undefined, undefined, 100_000]);
    // From the beginning again after it grew, and after a 413.
    expect(takeThrice(size, 60_000)).toEqual([undefined, undefined, 200_000]);
    const other = sizeAfter(100_000);
    other.taken(40_000, NOW);
    other.taken(40_000, NOW);
    other.refused(70_000, NOW + MINUTE);
    expect(takeThrice(other, 35_000, NOW + 2 * MINUTE)).toEqual([undefined, undefined, 55_000]);
  });

  it('grows to what is configured, and then no more', () => {
    const size = sizeAfter(600_000);
    expect(size.maxBytes).toBe(300_000);
    expect(takeThrice(size, 300_000)).toEqual([undefined, undefined, MAX]);
    expect([takeThrice(size, MAX), size.maxBytes]).toEqual([[undefined, undefined, undefined], MAX]);
  });

  it.each([
    ['the double of what is taken is too large, and has not rested', 59_999, 75_000],
    ['it has rested', 60_000, 100_000],
  ])('grows half of the way where %s', (_name, agoMs, limit) => {
    const size = sizeAfter(100_000, NOW - agoMs);
    expect(takeThrice(size, 50_000)).toEqual([undefined, undefined, limit]);
  });

  it('grows to the double where that is a little less than what was too large', () => {
    for (const [tooLarge, grown] of [
      [100_001, 100_000],
      [100_000, 75_000],
    ] as const) {
      expect(takeThrice(sizeAfter(tooLarge, NOW), 50_000)).toEqual([undefined, undefined, grown]);
    }
  });

  it('comes as close to what is too large as three quarters, and tries no nearer', () => {
    for (const [taken, grown] of [
      [74_999, 87_499],
      [75_000, undefined],
    ] as const) {
      const size = sizeAfter(150_000, NOW);
      size.setLimit(MAX);
      size.taken(taken, NOW);
      expect(size.refused(100_000, NOW)).toBe(taken);
      expect(takeThrice(size, taken)).toEqual([undefined, undefined, grown]);
    }
  });

  const RESTS = [1, 2, 4, 8, 16, 32, 60, 60].map((minutes) => minutes * MINUTE);

  it('waits for twice as long with each 413 after the rest before it, an hour at most', () => {
    for (const [turn, restMs] of RESTS.entries()) {
      const sinceMs = RESTS.slice(0, turn).reduce((sum, ms) => sum + ms, NOW);
      for (const [waitedMs, grown] of [
        [restMs - 1, 75_000],
        [restMs, 100_000],
      ] as const) {
        const size = new PostSize(MAX);
        for (let atMs = NOW, rest = 0; atMs <= sinceMs; atMs += RESTS[rest++]!) {
          size.refused(100_000, atMs);
          // Within the rest, the same happening.
          size.refused(100_000, atMs + 30_000);
        }
        expect(takeThrice(size, 50_000, sinceMs + waitedMs)).toEqual([undefined, undefined, grown]);
      }
    }
  });

  it.each([
    [100_000, MINUTE],
    [99_999, 2 * MINUTE],
  ])('waits as at first once what was too large was taken: %d bytes', (bytes, restMs) => {
    for (const [waitedMs, grown] of [
      [restMs - 1, 75_000],
      [restMs, 100_000],
    ] as const) {
      const size = sizeAfter(100_000, NOW);
      size.taken(bytes, NOW + MINUTE);
      size.refused(100_000, NOW + 2 * MINUTE);
      size.refused(100_000, NOW + 2 * MINUTE + 1);
      expect(size.maxBytes).toBe(50_000);
      expect(takeThrice(size, 50_000, NOW + 2 * MINUTE + waitedMs)).toEqual([undefined, undefined, grown]);
    }
  });

  it.each([
    ['an outage', (size: PostSize) => size.forget()],
    ['a reload', (size: PostSize) => size.setLimit(MAX)],
  ])('knows of no 413 after %s', (_name, end) => {
    const size = sizeAfter(100_000, NOW);
    size.refused(90_000, NOW + MINUTE);
    for (let post = 0; post < 2; post++) size.taken(45_000, NOW + MINUTE);
    end(size);
    expect(size.maxBytes).toBe(MAX);
    // As of a first one: a rest of a minute, half of it, and three posts to come closer.
    expect(size.refused(80_000, NOW + 2 * MINUTE)).toBe(40_000);
    expect(size.taken(40_000, NOW + 2 * MINUTE)).toBeUndefined();
    expect(size.taken(40_000, NOW + 2 * MINUTE)).toBeUndefined();
    expect(size.taken(40_000, NOW + 3 * MINUTE)).toBe(80_000);
  });
});
