import { describe, expect, it } from 'vitest';
import { formatProblem, TimeReader } from '../../../src/sources/csv/logger-time.ts';

const berlin = (format?: string) => new TimeReader({ zone: 'Europe/Berlin', ...(format ? { format } : {}) });
const iso = (resolved: { timeMs: number } | undefined) =>
  resolved === undefined ? undefined : new Date(resolved.timeMs).toISOString();

describe('the time of a logger', () => {
  it.each([
    ['2026-11-21 13:05:00', undefined, '2026-11-21T12:05:00.000Z'],
    ['2026-07-21T13:05', undefined, '2026-07-21T11:05:00.000Z'],
    ['2026-07-21T13:05:00+00:00', undefined, '2026-07-21T13:05:00.000Z'],
    ['2026-07-21T13:05:00Z', undefined, '2026-07-21T13:05:00.000Z'],
    ['21.11.2026 13:05:07', undefined, '2026-11-21T12:05:07.000Z'],
    ['1.2.2026 3:05', undefined, '2026-02-01T02:05:00.000Z'],
    ['21.11.2026', undefined, '2026-11-20T23:00:00.000Z'],
    ['11/21/2026 01:05:07 PM', 'MM/DD/YYYY hh:mm:ss A', '2026-11-21T12:05:07.000Z'],
    ['11/21/2026 12:05:07 AM', 'MM/DD/YYYY hh:mm:ss A', '2026-11-20T23:05:07.000Z'],
    ['26-11-21 13:05:07.25', 'YY-MM-DD HH:mm:ss.SSS', '2026-11-21T12:05:07.250Z'],
    ['1700000000.5', 'unix', '2023-11-14T22:13:20.500Z'],
    ['1700000000123', 'unix_ms', '2023-11-14T22:13:20.123Z'],
    ['46347,5', 'excel', '2026-11-21T11:00:00.000Z'],
  ])('reads %s as %s', (text, format, expected) => {
    expect(iso(berlin(format).read(text))).toBe(expected);
  });

  it.each([
    ['', undefined],
    ['yesterday', undefined],
    ['31.02.2026 10:00:00', undefined],
    ['2026-13-01 10:00', undefined],
    ['21.11.2026 25:00:00', undefined],
    ['21/11/2026', undefined],
    ['', 'unix'],
    ['12 o clock', 'excel'],
  ])('does not make a time of "%s"', (text, format) => {
    expect(berlin(format).read(text)).toBeUndefined();
  });

  it('reads an hour that comes twice in the order of the file, and one that does not come as if it did', () => {
    const reader = berlin();
    let afterMs: number | undefined;
    const read = [0, 30, 0, 30].map((minute, at) => {
      const resolved = reader.read(`25.10.2026 02:${String(minute).padStart(2, '0')}`, afterMs)!;
      afterMs = resolved.timeMs;
      return [at, resolved.odd, iso(resolved)];
    });
    expect(read).toEqual([
      [0, 'twice', '2026-10-25T00:00:00.000Z'],
      [1, 'twice', '2026-10-25T00:30:00.000Z'],
      [2, 'twice', '2026-10-25T01:00:00.000Z'],
      [3, 'twice', '2026-10-25T01:30:00.000Z'],
    ]);
    expect(reader.read('29.03.2026 02:30')).toEqual({ timeMs: Date.UTC(2026, 2, 29, 1, 30), odd: 'skipped' });
    expect(reader.read('29.03.2026 03:30')).toEqual({ timeMs: Date.UTC(2026, 2, 29, 1, 30) });
  });

  it('keeps several rows of one moment together in the long form', () => {
    const reader = berlin();
    const first = reader.read('25.10.2026 02:00', undefined, true)!;
    expect(reader.read('25.10.2026 02:00', first.timeMs, true)!.timeMs).toBe(first.timeMs);
    expect(reader.read('25.10.2026 02:00', first.timeMs)!.timeMs).toBe(first.timeMs + 3_600_000);
  });

  it('knows odd zones: half hours, and days of 25 hours half a year later', () => {
    expect(iso(new TimeReader({ zone: 'Asia/Kolkata' }).read('2026-01-01 00:00'))).toBe('2025-12-31T18:30:00.000Z');
    const howe = new TimeReader({ zone: 'Australia/Lord_Howe' });
    // It puts its clocks back by half an hour at two.
    expect(howe.read('2026-04-05 01:45')!.odd).toBe('twice');
    expect(howe.read('2026-04-05 01:15')!.odd).toBeUndefined();
  });

  it.each(['HH:mm', 'YYYY-MM', 'YYYY-MM-DD hh:mm', 'YYYY-MM-DD DD'])(
    'says what is wrong with the format %s',
    (format) => {
      expect(formatProblem(format)).toMatch(/^has /);
    },
  );
});
