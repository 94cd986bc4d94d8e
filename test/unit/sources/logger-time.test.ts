import { describe, expect, it } from 'vitest';
import { formatProblem, missingZone, parseZonedTime, TimeReader } from '../../../src/sources/intake/logger-time.ts';
import { parseIsoTime } from '../../../src/sources/intake/text-parsers.ts';

const berlin = (format?: string) => new TimeReader({ zone: 'Europe/Berlin', ...(format ? { format } : {}) });
const iso = (resolved: { timeMs: number } | undefined) =>
  resolved === undefined ? undefined : new Date(resolved.timeMs).toISOString();

describe('data logger timestamp', () => {
  it.each([
    ['2026-11-21 13:05:00', '2026-11-21T12:05:00.000Z'],
    ['2026-07-21T13:05', '2026-07-21T11:05:00.000Z'],
    ['2026-07-21T13:05:00+00:00', '2026-07-21T13:05:00.000Z'],
    ['2026-07-21T13:05:00Z', '2026-07-21T13:05:00.000Z'],
    ['21.11.2026 13:05:07', '2026-11-21T12:05:07.000Z'],
    ['1.2.2026 3:05', '2026-02-01T02:05:00.000Z'],
    ['21.11.2026', '2026-11-20T23:00:00.000Z'],
    ['11/21/2026 01:05:07 PM', '2026-11-21T12:05:07.000Z', 'MM/DD/YYYY hh:mm:ss A'],
    ['11/21/2026 12:05:07 AM', '2026-11-20T23:05:07.000Z', 'MM/DD/YYYY hh:mm:ss A'],
    ['26-11-21 13:05:07.25', '2026-11-21T12:05:07.250Z', 'YY-MM-DD HH:mm:ss.SSS'],
    ['21.11.2026 13:05:07,25', '2026-11-21T12:05:07.250Z'],
    ['2026-11-21 13:05:07,125', '2026-11-21T12:05:07.125Z'],
    ['11/21/2026 13:05:07,5', '2026-11-21T12:05:07.500Z', 'MM/DD/YYYY HH:mm:ss.SSS'],
    ['11/21/2026 13:05:07.5', '2026-11-21T12:05:07.500Z', 'MM/DD/YYYY HH:mm:ss,SSS'],
    ['05-Mär-2026 12:00:00', '2026-03-05T11:00:00.000Z', 'DD-MMM-YYYY HH:mm:ss'],
    ['5. März 2026 12:00', '2026-03-05T11:00:00.000Z', 'DD. MMM YYYY HH:mm'],
    ['05 Mrz 26 12:00', '2026-03-05T11:00:00.000Z', 'DD MMM YY HH:mm'],
    ['05-mrt-2026 12:00', '2026-03-05T11:00:00.000Z', 'DD-MMM-YYYY HH:mm'],
    ['DEC 5, 2026 01:00:00 PM', '2026-12-05T12:00:00.000Z', 'MMM DD, YYYY hh:mm:ss A'],
    ['21-Okt.-2026 12:00', '2026-10-21T10:00:00.000Z', 'DD-MMM-YYYY HH:mm'],
    ['21 août 2026 12:00', '2026-08-21T10:00:00.000Z', 'DD MMM YYYY HH:mm'],
    ['1700000000.5', '2023-11-14T22:13:20.500Z', 'unix'],
    ['1700000000123', '2023-11-14T22:13:20.123Z', 'unix_ms'],
    ['46347,5', '2026-11-21T11:00:00.000Z', 'excel'],
    ['46352630475.694446', '2026-11-26T14:07:53.100Z', 'wincc'],
    ['2026/11/21 13:05:07 5', '2026-11-21T12:05:07.005Z', 'YYYY/MM/DD HH:mm:ss SSS'],
    ['2026/11/21 13:05:07:250', '2026-11-21T12:05:07.250Z', 'YYYY/MM/DD HH:mm:ss:SSS'],
    ['20261121130507250', '2026-11-21T12:05:07.250Z', 'YYYYMMDDHHmmssSSS'],
  ])('of %s in Berlin is %s', (text, expected, format?: string) => {
    expect(iso(berlin(format).read(text))).toBe(expected);
  });

  it.each([
    ['an empty string', ''],
    ['a word', 'yesterday'],
    ['a day that does not exist', '31.02.2026 10:00:00'],
    ['a month that does not exist', '2026-13-01 10:00'],
    ['an hour that does not exist', '21.11.2026 25:00:00'],
    ['an unknown format', '21/11/2026'],
    ['an ambiguous month', '01 jui 2026', 'DD MMM YYYY'],
    ['a word as a month', '01 foo 2026', 'DD MMM YYYY'],
    ['an empty Unix time', '', 'unix'],
    ['a word as an Excel time', '12 o clock', 'excel'],
    ['a hexadecimal Unix time', '0x6905F880', 'unix'],
    ['a hexadecimal Excel time', '0xB50B', 'excel'],
    ['a time after 24:00', '21.11.2026 24:30', 'DD.MM.YYYY HH:mm'],
    ['an hour after 12 with AM', '11/21/2026 13:05:00 AM', 'MM/DD/YYYY hh:mm:ss A'],
  ])('rejects %s', (_what, text, format?: string) => {
    expect(berlin(format).read(text)).toBeUndefined();
  });

  it('in a repeated hour is resolved by file order, and in a skipped hour by the previous offset', () => {
    const reader = berlin();
    let afterMs: number | undefined;
    const read = [0, 30, 0, 30].map((minute, at) => {
      const resolved = reader.read(`25.10.2026 02:${String(minute).padStart(2, '0')}`, afterMs)!;
      afterMs = resolved.timeMs;
      return [at, resolved.shift, iso(resolved)];
    });
    expect(read).toEqual([
      [0, 'twice', '2026-10-25T00:00:00.000Z'],
      [1, 'twice', '2026-10-25T00:30:00.000Z'],
      [2, 'twice', '2026-10-25T01:00:00.000Z'],
      [3, 'twice', '2026-10-25T01:30:00.000Z'],
    ]);
    expect(reader.read('29.03.2026 02:30')).toEqual({ timeMs: Date.UTC(2026, 2, 29, 1, 30), shift: 'skipped' });
    expect(reader.read('29.03.2026 03:30')).toEqual({ timeMs: Date.UTC(2026, 2, 29, 1, 30) });
  });

  it('resolves to the same instant as an equal timestamp in the long format', () => {
    const reader = berlin();
    const first = reader.read('25.10.2026 02:00', undefined, true)!;
    expect(reader.read('25.10.2026 02:00', first.timeMs, true)!.timeMs).toBe(first.timeMs);
    expect(reader.read('25.10.2026 02:00', first.timeMs)!.timeMs).toBe(first.timeMs + 3_600_000);
  });

  it('supports half-hour time zones and 25-hour days', () => {
    expect(iso(new TimeReader({ zone: 'Asia/Kolkata' }).read('2026-01-01 00:00'))).toBe('2025-12-31T18:30:00.000Z');
    const howe = new TimeReader({ zone: 'Australia/Lord_Howe' });
    // Clocks are set back by half an hour at 02:00.
    expect(howe.read('2026-04-05 01:45')!.shift).toBe('twice');
    expect(howe.read('2026-04-05 01:15')!.shift).toBeUndefined();
  });

  it.each([
    'HH:mm',
    'YYYY-MM',
    'YYYY-MM-DD hh:mm',
    'YYYY-MM-DD DD',
    'DD.MM.YYYY HH:MM:ss',
    'DD.MM.YYYY HH:mm:SS',
    'dd.mm.yyyy',
    '%d.%m.%Y %H:%M:%S',
    "YYYY-MM-DD'T'HH:mm",
    'DD.MM.YYYY mm:ss',
    'DD.MM.YYYY HH:ss',
    'DD.MM.YYYY HH:mm.SSS',
  ])('cannot be configured with the format %s', (format) => {
    expect(formatProblem(format)).toMatch(/^(has|must|contains) /);
  });
});

describe('live timestamp without a UTC offset', () => {
  it('is interpreted as local time in the zone, even in the repeated hour', () => {
    const hour = 3_600_000;
    const firstMs = Date.UTC(2026, 9, 25, 0, 30);
    const read = (text: string, arrivalMs: number) => parseZonedTime(text, 'Europe/Berlin', arrivalMs);
    expect(read('2026-07-01T12:00:00', Date.UTC(2026, 6, 1, 10))).toBe(Date.UTC(2026, 6, 1, 10));
    expect(read('2026-10-25T02:30:00', firstMs + 5_000)).toBe(firstMs);
    expect(read('2026-10-25T02:30:00', firstMs + hour + 5_000)).toBe(firstMs + hour);
    expect(read('2026-07-01T12:00:00+05:00', firstMs)).toBe(Date.UTC(2026, 6, 1, 7));
    expect(read('2026-07-01', firstMs)).toBe(Date.UTC(2026, 5, 30, 22));
    expect(read('yesterday', firstMs)).toBeNaN();
  });

  it.each([-2_000, -500, 500, 2_000, 300_000])(
    'is interpreted as the time nearest to the arrival in the repeated hour if the message arrives %d ms later',
    (delayMs) => {
      for (const timeMs of [Date.UTC(2026, 9, 25, 0, 30), Date.UTC(2026, 9, 25, 1, 30)]) {
        const read = (sample?: { afterMs: undefined }) =>
          parseZonedTime('2026-10-25T02:30:00', 'Europe/Berlin', timeMs + delayMs, sample);
        expect([read(), read({ afterMs: undefined })]).toEqual([timeMs, timeMs]);
      }
    },
  );

  it('is suspicious if it differs from the arrival time by a multiple of 30 minutes', () => {
    const arrivalMs = Date.UTC(2026, 10, 21, 12, 0, 5);
    const of = (text: string) => missingZone(text, parseIsoTime(text), arrivalMs);
    expect(of('2026-11-21T13:00:00')).toContain('is 1 h ahead of the arrival time: set zone');
    expect(of('2026-11-21 07:00:00')).toContain('is 5 h behind the arrival time');
    expect(of('2026-11-21T17:30:04.5')).toContain('5.5 h ahead');
    for (const text of [
      '2026-11-21T12:00:00',
      '2026-11-21T13:00:00Z',
      '2026-11-21T13:10:00',
      '2026-11-19T13:00:00',
      '2026-11-21',
    ])
      expect([text, of(text)]).toEqual([text, undefined]);
  });
});
