/**
 * Reads ISO 8601 timestamps several times faster than `Date.parse`, and means the same everywhere: a time without an
 * offset is UTC (docs/interface.md), never the machine's zone.
 *
 * `YYYY-MM-DD`, or with `T` (also `t` or a space) `HH:MM`, `HH:MM:SS`, a fraction after `.` or `,` of which milliseconds
 * are kept, and `Z`, `+HH:MM`, `+HHMM` or `+HH`. 24:00 is midnight of the next day; a leap second (:60) is the second after it, as in
 * Unix time.
 */

/** The times that the agent takes: what a four-digit year from 1970 on can print. */
export const EARLIEST_MS = 0;
export const LATEST_MS = Date.UTC(9999, 11, 31, 23, 59, 59, 999);

const DAYS_BEFORE_MONTH = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
const DAYS_IN_MONTH = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

const MAX_LENGTH = 64;
const scratch = new Uint8Array(MAX_LENGTH);

/** Milliseconds since 1970, NaN where `text` is no timestamp. May lie outside of what the agent takes. */
export function parseIsoTime(text: string): number {
  const { length } = text;
  if (length > MAX_LENGTH) return Number.NaN;
  for (let at = 0; at < length; at++) {
    const code = text.charCodeAt(at);
    if (code > 126) return Number.NaN;
    scratch[at] = code;
  }
  return parseIsoBytes(scratch, 0, length);
}

/** V8 reads bytes several times faster than the letters of a string. */
function parseIsoBytes(text: Uint8Array, from: number, to: number): number {
  const length = to - from;
  if (length < 10 || length > MAX_LENGTH) return Number.NaN;
  const year = twoDigits(text, from) * 100 + twoDigits(text, from + 2);
  const month = twoDigits(text, from + 5);
  const day = twoDigits(text, from + 8);
  // NaN from `twoDigits` fails every comparison below.
  if (!(year >= 0 && month >= 1 && month <= 12 && day >= 1 && day <= daysIn(year, month))) return Number.NaN;
  if (text[from + 4]! !== 45 || text[from + 7]! !== 45) return Number.NaN;
  const midnight = daysSince1970(year, month, day) * 86_400_000;
  if (length === 10) return midnight;
  const separator = text[from + 10]!;
  if (separator !== 84 && separator !== 116 && separator !== 32) return Number.NaN;
  return midnight + parseTimeOfDay(text, from + 11, to);
}

function parseTimeOfDay(text: Uint8Array, from: number, to: number): number {
  if (to - from < 5) return Number.NaN;
  const hour = twoDigits(text, from);
  const minute = twoDigits(text, from + 3);
  if (!(hour <= 24 && minute <= 59) || text[from + 2]! !== 58) return Number.NaN;
  let second = 0;
  let millisecond = 0;
  let at = from + 5;
  if (at < to && text[at]! === 58) {
    if (to - at < 3) return Number.NaN;
    second = twoDigits(text, at + 1);
    if (!(second <= 60)) return Number.NaN;
    at += 3;
    const mark = at < to ? text[at]! : 0;
    if (mark === 46 || mark === 44) {
      let scale = 100;
      const first = ++at;
      for (; at < to; at++) {
        const digit = text[at]! - 48;
        if (!(digit >= 0 && digit <= 9)) break;
        if (scale >= 1) millisecond += digit * scale;
        scale /= 10;
      }
      if (at === first) return Number.NaN;
    }
  }
  if (hour === 24 && (minute > 0 || second > 0 || millisecond > 0)) return Number.NaN;
  const time = ((hour * 60 + minute) * 60 + second) * 1000 + millisecond;
  return at === to ? time : time - parseOffset(text, at, to);
}

/** Milliseconds east of UTC. */
function parseOffset(text: Uint8Array, at: number, to: number): number {
  const sign = text[at]!;
  if (sign === 90 || sign === 122) return at + 1 === to ? 0 : Number.NaN;
  if ((sign !== 43 && sign !== 45) || to - at < 3) return Number.NaN;
  const hours = twoDigits(text, at + 1);
  let minutes = 0;
  if (to === at + 6 && text[at + 3]! === 58) minutes = twoDigits(text, at + 4);
  else if (to === at + 5) minutes = twoDigits(text, at + 3);
  else if (to !== at + 3) return Number.NaN;
  if (!(hours <= 23 && minutes <= 59)) return Number.NaN;
  const east = (hours * 60 + minutes) * 60_000;
  return sign === 43 ? east : -east;
}

/** NaN where one of the two is no digit. What stands behind the end is checked by the callers, by length. */
function twoDigits(text: Uint8Array, at: number): number {
  const high = text[at]! - 48;
  const low = text[at + 1]! - 48;
  return high >= 0 && high <= 9 && low >= 0 && low <= 9 ? high * 10 + low : Number.NaN;
}

function isLeap(year: number): boolean {
  return (year & 3) === 0 && (year % 100 !== 0 || year % 400 === 0);
}

function daysIn(year: number, month: number): number {
  return month === 2 && isLeap(year) ? 29 : DAYS_IN_MONTH[month - 1]!;
}

function daysSince1970(year: number, month: number, day: number): number {
  const before = year - 1;
  const leapDays = Math.floor(before / 4) - Math.floor(before / 100) + Math.floor(before / 400);
  const inYear = DAYS_BEFORE_MONTH[month - 1]! + (month > 2 && isLeap(year) ? 1 : 0) + day - 1;
  // 719,162 days lie between 0001-01-01 and 1970-01-01.
  return before * 365 + leapDays + inYear - 719_162;
}
