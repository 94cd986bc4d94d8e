import { describe, expect, it } from 'vitest';
import { parseDecimal, parseIsoTime } from '../../../src/sources/intake/text-parsers.ts';
import { seeded } from './sink-double.ts';

/** Parses with `Date.parse`, in UTC if there is no offset. */
function slowly(text: string): number {
  return Date.parse(/[Zz]$|[+-]\d\d:\d\d$/.test(text) ? text : `${text}Z`);
}

describe('ISO 8601 parser', () => {
  it('returns the same results as Date.parse for fifty thousand random timestamps', () => {
    const random = seeded(20261121);
    const below = (bound: number) => Math.floor(random() * bound);
    const digits = (value: number, length: number) => String(value).padStart(length, '0');
    for (let round = 0; round < 50_000; round++) {
      const year = round % 7 === 0 ? below(10_000) : 1970 + below(130);
      const day = `${digits(year, 4)}-${digits(1 + below(12), 2)}-${digits(1 + below(28), 2)}`;
      const seconds = random() < 0.8 ? `:${digits(below(60), 2)}` : '';
      const fraction = seconds !== '' && random() < 0.7 ? `.${digits(below(10 ** 9), 9).slice(0, 1 + below(9))}` : '';
      const offset = `${random() < 0.5 ? '+' : '-'}${digits(below(24), 2)}:${digits(below(60), 2)}`;
      const zone = ['Z', 'Z', '', offset][below(4)]!;
      const text = `${day}T${digits(below(24), 2)}:${digits(below(60), 2)}${seconds}${fraction}${zone}`;
      expect([text, parseIsoTime(text)]).toEqual([text, slowly(text)]);
    }
  });

  it('accepts exactly the valid dates from 1600 to 2400', () => {
    for (let year = 1600; year <= 2400; year += 1) {
      for (let month = 1; month <= 12; month++) {
        for (const day of [0, 1, 28, 29, 30, 31, 32]) {
          const real = new Date(Date.UTC(year, month - 1, day));
          const exists = real.getUTCMonth() === month - 1 && real.getUTCDate() === day;
          const text = `${year}-${String(month).padStart(2, '0')}-${String(day).padStart(2, '0')}`;
          expect([text, parseIsoTime(text)]).toEqual([text, exists ? real.getTime() : Number.NaN]);
        }
      }
    }
  });

  it('returns NaN or the same result as Date.parse for randomly corrupted timestamps', () => {
    const random = seeded(7);
    const letters = '0123456789TZ+-:., tz\0Aé';
    for (let round = 0; round < 50_000; round++) {
      const good = '2026-02-28T23:59:58.123Z';
      const at = Math.floor(random() * good.length);
      const text = good.slice(0, at) + letters[Math.floor(random() * letters.length)] + good.slice(at + 1);
      const read = parseIsoTime(text);
      // Date.parse also accepts other formats. Accepted times must have the ISO 8601 meaning.
      if (!Number.isNaN(read))
        expect([text, read]).toEqual([text, slowly(text.replace(/[ t]/, 'T').replace(',', '.'))]);
    }
  });

  it.each([
    ['2026-11-21T10:00:00+0530', '2026-11-21T04:30:00Z'],
    ['2026-11-21T10:00:00-05', '2026-11-21T15:00:00Z'],
    ['2026-11-21 10:00:00,25z', '2026-11-21T10:00:00.250Z'],
    ['2026-11-21t10:00', '2026-11-21T10:00:00Z'],
    ['2026-11-21T24:00:00Z', '2026-11-22T00:00:00Z'],
    ['2026-12-31T23:59:60Z', '2027-01-01T00:00:00Z'],
    ['2026-11-21T10:00:00.123999999Z', '2026-11-21T10:00:00.123Z'],
    ['9999-12-31T23:59:59.999Z', '9999-12-31T23:59:59.999Z'],
  ])('reads %s', (text, same) => {
    expect(parseIsoTime(text)).toBe(Date.parse(same));
  });

  it.each([
    '',
    '2026',
    '2026-11',
    '2026-1-1',
    '20261121T000000Z',
    '2026-11-21T',
    '2026-11-21T10',
    '2026-11-21T10:0',
    '2026-11-21T25:00Z',
    '2026-11-21T24:00:01Z',
    '2026-11-21T10:60Z',
    '2026-11-21T10:00:61Z',
    '2026-11-21T10:00:00.Z',
    '2026-11-21T10:00:00ZZ',
    '2026-11-21T10:00:00+24:00',
    '2026-11-21T10:00:00+1',
    '2026-11-21T10:00:00+01:0',
    '2026-13-01',
    '2026-02-29',
    '2026-11-21\u000010:00',
    '+002026-11-21T00:00:00Z',
    'Sat, 21 Nov 2026 00:00:00 GMT',
    '2026-11-21T10:00:00 Z',
    ' 2026-11-21',
  ])('rejects %j', (text) => {
    expect(parseIsoTime(text)).toBeNaN();
  });
});

describe('decimal parser', () => {
  it.each([
    ['-0', -0],
    ['+5.', 5],
    ['.5e-3', 0.0005],
    ['0x10', Number.NaN],
    ['1_000', Number.NaN],
    ['', Number.NaN],
    [' 1', Number.NaN],
    ['Infinity', Number.NaN],
  ])('reads %j as %d', (text, value) => {
    expect(parseDecimal(text)).toBe(value);
  });
});
