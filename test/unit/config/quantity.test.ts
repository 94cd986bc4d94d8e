import { describe, expect, it } from 'vitest';
import { readDuration, readSize, readSizeOrShare } from '../../../src/base/quantity.ts';

/** Returns a seeded random number generator, so that failures are reproducible. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

const MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const BYTES = { '': 1, B: 1, kB: 1000, MB: 1e6, GB: 1e9, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3 };

describe('duration', () => {
  it.each([
    ['500ms', 500],
    ['10s', 10_000],
    ['5m', 300_000],
    ['24h', 86_400_000],
    ['7d', 604_800_000],
    ['0.5s', 500],
    ['1.5h', 5_400_000],
    ['0', 0],
    ['0s', 0],
    [' 10s ', 10_000],
  ])('parses %s as %d ms', (text, ms) => expect(readDuration(text)).toEqual({ value: ms }));

  it.each([
    '',
    's',
    '10',
    '-1s',
    '10 s',
    '1h30m',
    '10S',
    '10sec',
    '1e3s',
    '0x10s',
    '٣s',
    '10s\n5',
    'NaN',
    '99999d',
    '0.1ms',
  ])('%j is rejected with a suggestion', (text) =>
    expect(readDuration(text)).toMatchObject({ reason: expect.any(String), instead: expect.stringMatching(/^use /) }),
  );

  it('parses any whole amount with any unit as milliseconds', () => {
    for (let seed = 1; seed <= 500; seed++) {
      const random = seeded(seed);
      const [unit, factor] = Object.entries(MS)[Math.floor(random() * 5)]!;
      const amount = Math.floor(random() * 3000);
      expect(readDuration(`${amount}${unit}`), `seed ${seed}`).toEqual({ value: amount * factor });
    }
  });

  it('suggests both interpretations of a number without a unit', () => {
    expect(readDuration('10')).toEqual({
      reason: 'has no unit',
      instead: 'use 10s for seconds or 10ms for milliseconds',
    });
  });
});

describe('size', () => {
  it.each([
    ['480kB', 480_000],
    ['480KB', 480_000],
    ['1KiB', 1024],
    ['2GiB', 2_147_483_648],
    ['1.5MiB', 1_572_864],
    ['500000', 500_000],
    ['12B', 12],
    ['2 MB', 2_000_000],
    ['0', 0],
  ])('%s is %d bytes', (text, bytes) => expect(readSize(text)).toEqual({ value: bytes }));

  it.each(['', 'kB', '-1', '1e6', '5 %', '2Gib/s', '480kBit', '9999999TiB', '1,000'])('rejects %j', (text) => {
    expect(readSize(text)).toHaveProperty('reason');
  });

  it('parses any whole amount with any unit as bytes', () => {
    for (let seed = 1; seed <= 500; seed++) {
      const random = seeded(seed);
      const [unit, factor] = Object.entries(BYTES)[Math.floor(random() * 8)]!;
      const amount = Math.floor(random() * 100_000);
      expect(readSize(`${amount}${unit}`), `seed ${seed}`).toEqual({ value: amount * factor });
    }
  });

  it('rejects a single letter as an ambiguous unit', () => {
    expect(readSize('2G')).toMatchObject({ instead: 'use 2GB (1,000s) or 2GiB (1,024s)' });
    expect(readSize('64k')).toMatchObject({ instead: 'use 64kB (1,000s) or 64KiB (1,024s)' });
  });
});

describe('size or share', () => {
  it.each([
    ['5%', { share: 0.05 }],
    ['0%', { share: 0 }],
    ['0', { bytes: 0 }],
    ['200MiB', { bytes: 209_715_200 }],
  ])('%s is read as %j', (text, value) => expect(readSizeOrShare(text)).toEqual({ value }));

  it.each(['100%', '150%', '-5%', '%'])('rejects %s', (text) => expect(readSizeOrShare(text)).toHaveProperty('reason'));
});
