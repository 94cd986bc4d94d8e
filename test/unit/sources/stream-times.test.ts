import { describe, expect, it } from 'vitest';
import { StreamTimes } from '../../../src/sources/intake/stamps.ts';

describe('stream timestamps', () => {
  it('equal the storage timestamps, increase within a millisecond, and stay the same on redelivery', () => {
    const times = new StreamTimes();
    const messages: [seq: number, storedMs: number][] = [
      [1, 1_000],
      [2, 1_000],
      [4, 1_001],
      [1, 1_000],
      [9, 2_000],
    ];
    expect(messages.map(([seq, storedMs]) => times.of(7, seq, storedMs))).toEqual([1_000, 1_001, 1_002, 1_000, 2_000]);
    expect(times.of(8, 3, 1_000)).toBe(1_000);
  });
});
