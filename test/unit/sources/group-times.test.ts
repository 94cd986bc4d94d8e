import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Stamps, StreamTimes } from '../../../src/sources/intake/stamps.ts';

describe('group arrival timestamps', () => {
  it('differ between group members regardless of their clocks', () => {
    const clocks = fc.array(fc.tuple(fc.nat(2), fc.integer({ min: 0, max: 50 })), { minLength: 1, maxLength: 200 });
    fc.assert(
      fc.property(clocks, (arrivals) => {
        const members = [0, 1, 2].map(() => new Stamps());
        const given = arrivals.map(([index, wallMs]) => members[index]!.next(7, wallMs, { index, of: 3 }));
        expect(new Set(given).size).toBe(given.length);
      }),
    );
  });

  it('differ from the clock at low rates by less than the group size in milliseconds', () => {
    const stamps = new Stamps();
    const given = [100, 110, 120, 130].map((wallMs) => stamps.next(7, wallMs, { index: 3, of: 4 }));
    expect(given).toEqual([103, 111, 123, 131]);
  });
});

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
    expect(messages.map(([seq, storedMs]) => times.of(7, seq, storedMs, undefined))).toEqual([
      1_000, 1_001, 1_002, 1_000, 2_000,
    ]);
    expect(times.of(8, 3, 1_000, undefined)).toBe(1_000);
  });

  it('differ between group members', () => {
    const message = fc.tuple(fc.nat(1), fc.nat(3));
    fc.assert(
      fc.property(fc.array(message, { minLength: 1, maxLength: 200 }), (messages) => {
        const members = [new StreamTimes(), new StreamTimes()];
        let storedMs = 1_000;
        const given = messages.map(([index, passedMs], seq) => {
          storedMs += passedMs;
          return members[index]!.of(7, seq, storedMs, { index, of: 2 });
        });
        expect(new Set(given).size).toBe(given.length);
      }),
    );
  });
});
