import { describe, expect, it } from 'vitest';
import {
  bodyFor,
  boundsFor,
  type Connection,
  isTooSlow,
  largestSlow,
  placeFor,
  rateOf,
  streamFor,
} from '../../src/base/inbound/connections.ts';

const line = (state: Connection['state'], sinceMs: number, bytesRead = 0): Connection => ({
  state,
  sinceMs,
  address: undefined,
  bytesRead,
  bodyBytes: bytesRead,
  marks: [{ atMs: sinceMs, bytes: 0 }],
  unreadSinceMs: undefined,
  requests: 1,
  openedMs: sinceMs,
});

describe('who makes place', () => {
  const slow = line('reading', 0, 100);
  const slower = line('reading', 0, 10);
  const fast = line('reading', 0, 1_000_000);
  const waiting = line('waiting', 0);

  it('for a newcomer is who is quiet longest, then who does not read its answer, then the slowest body, then who asks before it is answered, then the newest', () => {
    const quiet = line('quiet', 9_990);
    const longer = line('quiet', 1_000);
    const unread = { ...line('waiting', 0), unreadSinceMs: 2_000 };
    expect(placeFor([slow, fast, quiet, waiting, longer, unread], 10_000)).toBe(longer);
    expect(placeFor([slow, fast, quiet, waiting, unread], 10_000)).toBe(unread);
    expect(placeFor([slow, slower, fast, quiet, waiting], 10_000)).toBe(slower);
    const greedy = { ...waiting, requests: 20 };
    expect(placeFor([fast, quiet, waiting, greedy], 10_000)).toBe(greedy);
    expect(placeFor([fast, quiet, waiting], 10_000)).toBe(quiet);
    // Of those that are quiet for a moment the oldest connection goes, not the newcomer.
    const again = { ...line('quiet', 9_995), openedMs: 100 };
    expect(placeFor([fast, quiet, again, waiting], 10_000)).toBe(again);
    const young = { ...waiting, unreadSinceMs: 9_900 };
    expect(placeFor([fast, quiet, waiting, young], 10_000)).toBe(young);
    expect(placeFor([fast, waiting, line('streaming', 0), line('reading', 9_500)], 10_000)).toBeUndefined();
    expect(rateOf(slow, 10_000)).toBe(10);
  });

  it('for a body is the slowest, and where all are young the oldest', () => {
    expect(bodyFor([slow, fast, slower, waiting], 10_000)).toBe(slower);
    const [young, younger] = [line('reading', 9_800), line('reading', 9_900)];
    expect(bodyFor([younger, young, waiting], 10_000)).toBe(young);
    expect(bodyFor([waiting], 10_000)).toBeUndefined();
  });

  it('for memory is the largest body of those that come slowly', () => {
    const large = line('reading', 0, 100_000);
    expect(largestSlow([slow, large, fast, line('reading', 9_900, 900_000)], 10_000)).toBe(large);
    expect(largestSlow([fast], 10_000)).toBeUndefined();
  });

  it('for a stream is one that has brought nothing for a minute, and no other', () => {
    const stale = line('streaming', 1_000);
    expect(streamFor([line('streaming', 30_000), stale, line('quiet', 0)], 70_000)).toBe(stale);
    expect(streamFor([line('streaming', 30_000)], 70_000)).toBeUndefined();
  });

  it('is over for a body of less than 250 bytes a second, or one beyond its time, but not for a stream', () => {
    const marks = [
      { atMs: 0, bytes: 0 },
      { atMs: 5_000, bytes: 1_000 },
    ];
    expect(isTooSlow({ ...line('reading', 0, 2_000), marks }, 10_000, 60_000)).toBe(true);
    expect(isTooSlow({ ...line('reading', 0, 3_000), marks }, 10_000, 60_000)).toBe(false);
    expect(isTooSlow(fast, 60_000, 60_000)).toBe(true);
    expect(isTooSlow({ ...line('streaming', 0), marks }, 90_000, 60_000)).toBe(false);
  });

  it('leaves each address a quarter, bodies a half and streams an eighth of the places', () => {
    expect(boundsFor(256)).toEqual({ all: 256, reading: 128, streaming: 32, ofOneAddress: 64 });
    expect(boundsFor(3)).toEqual({ all: 3, reading: 1, streaming: 1, ofOneAddress: 1 });
  });
});
