/** Parses local times and data logger time formats. Pure. */
import { printable } from '../../config/problem.ts';
import type { MemberReport, Members } from '../../config/source-kinds.ts';
import { parseDecimal, parseIsoTime } from './text-parsers.ts';
import { MS_OF_UNIT, type TimeUnit } from './times.ts';

export interface LoggerTime {
  /** Time zone of times without an offset. Default: UTC. */
  zone?: string | undefined;
  /** Format such as `DD.MM.YYYY HH:mm:ss`. Default: ISO 8601 or the German format. */
  format?: string;
}

/** Format tokens and the patterns that they match. */
const TOKENS: Readonly<Record<string, string>> = {
  YYYY: '\\d{4}',
  YY: '\\d{2}',
  MMM: '[^\\d\\s.,:;/-]{3,12}\\.?',
  MM: '\\d{1,2}',
  DD: '\\d{1,2}',
  HH: '\\d{1,2}',
  hh: '\\d{1,2}',
  mm: '\\d{1,2}',
  ss: '\\d{1,2}',
  SSS: '\\d{1,9}',
  A: '[AaPp]\\.?[Mm]\\.?',
};
const TOKEN = /YYYY|SSS|YY|MMM|MM|DD|HH|hh|mm|ss|A/g;
const HOUR_TOKENS = ['HH', 'hh'];
/** Languages of month names. */
const LANGUAGES = ['en', 'de', 'fr', 'it', 'es', 'nl'];
/** Milliseconds per unit of numeric formats. */
export const UNITS: Readonly<Record<string, number>> = { unix: 1_000, unix_ms: 1 };
const GERMAN = ['DD.MM.YYYY HH:mm:ss.SSS', 'DD.MM.YYYY HH:mm:ss', 'DD.MM.YYYY HH:mm', 'DD.MM.YYYY'];
const DAY_MS = 86_400_000;
/** Days since `EXCEL_MS` per unit of numeric local times. WinCC archives contain millionths of a day. */
const DAYS_OF_UNIT: Readonly<Record<string, number>> = { excel: 1, wincc: 1e-6 };
/** Day 0 of Excel dates. Excel counts the non-existent 29 February 1900 as day 60. */
const EXCEL_MS = Date.UTC(1899, 11, 30);
const HAS_OFFSET = /^.{10}.*(?:[zZ]|[+-]\d{2}(?::?\d{2})?)$/;
/** Range of `Date`, minus the days used to look up zone offsets. Required because a cell may contain any number. */
const MAX_WALL_MS = 8.64e15 - 2 * DAY_MS;
/** Smallest difference between UTC offsets of a zone. */
const STEP_MS = 900_000;
const MAX_OFFSETS = 10_000;

interface Resolved {
  /** Milliseconds since 1970, UTC. */
  timeMs: number;
  /** `twice`: the local time is ambiguous; `skipped`: it does not exist. */
  shift?: 'twice' | 'skipped';
}

/** Returns the hint for a numeric timestamp in another unit. */
export function formatFor(unit: TimeUnit): string {
  const format = Object.keys(UNITS).find((one) => UNITS[one] === MS_OF_UNIT[unit]);
  return format === undefined ? `the number appears to be in ${unit}` : `set time_format: ${format}`;
}

/** Returns the reason why a format is invalid, or `undefined` if it is valid. */
export function formatProblem(format: string): string | undefined {
  if (format in UNITS || format in DAYS_OF_UNIT) return undefined;
  const found: string[] = format.match(TOKEN) ?? [];
  const hasMonth = found.includes('MM') || found.includes('MMM');
  if (!found.some((token) => token.startsWith('Y')) || !hasMonth || !found.includes('DD')) {
    return 'has no year, month and day';
  }
  if (new Set(found).size < found.length) return 'contains a token twice';
  if (found.includes('hh') !== found.includes('A')) return 'must contain both hh and A, or neither';
  const hasHour = found.some((token) => HOUR_TOKENS.includes(token));
  for (const [token, isRead, other] of [
    ['mm', hasHour, 'HH'],
    ['ss', found.includes('mm'), 'mm'],
    ['SSS', found.includes('ss'), 'ss'],
  ] as const) {
    if (found.includes(token) && !isRead) return `contains ${token} without ${other}`;
  }
  // T and Z are the only letters that occur in times.
  const [unknown] = /[^\W\d_TZ]+|['"%]/.exec(format.replaceAll(TOKEN, ' ')) ?? [];
  return unknown === undefined ? undefined : `contains "${unknown}", which is not a token`;
}

/** Reads the times of one file format in one time zone. */
export class TimeReader {
  readonly #format: string | undefined;
  readonly #formats: readonly ((text: string) => number)[];
  readonly #zone: Intl.DateTimeFormat;
  /** UTC offsets of the zone by time. */
  readonly #offsets = new Map<number, number>();

  /** Throws `RangeError` for an unknown zone. */
  constructor({ zone = 'UTC', format }: LoggerTime) {
    this.#format = format;
    this.#formats = (format === undefined ? GERMAN : [format]).map(compile);
    const date = { year: 'numeric', month: 'numeric', day: 'numeric' } as const;
    const time = { hour: 'numeric', minute: 'numeric', second: 'numeric', hourCycle: 'h23' } as const;
    this.#zone = new Intl.DateTimeFormat('en-US', { timeZone: zone, ...date, ...time });
  }

  /**
   * Parses a time. Returns `undefined` if the text does not match the format. If a local time occurs twice, returns the
   * first one after `afterMs`, the time of the previous row (with `orEqual`: at or after `afterMs`). For a live value,
   * returns the one nearest to `nearMs` instead.
   */
  read(text: string, afterMs?: number, orEqual?: boolean, nearMs?: number): Resolved | undefined {
    const format = this.#format;
    const unit = format === undefined ? undefined : UNITS[format];
    if (unit !== undefined) {
      const timeMs = Math.floor(parseDecimal(text.replace(',', '.')) * unit);
      return Number.isFinite(timeMs) ? { timeMs } : undefined;
    }
    const isIso = format === undefined && /^\d{4}-/.test(text);
    // The ISO 8601 parser treats a time without an offset as UTC, so the result is the wall clock reading.
    const wallMs = isIso ? parseIsoTime(text) : this.#wall(text);
    if (!(Math.abs(wallMs) <= MAX_WALL_MS)) return undefined;
    return isIso && HAS_OFFSET.test(text) ? { timeMs: wallMs } : this.#resolve(wallMs, afterMs, orEqual, nearMs);
  }

  /** Returns whether a time that `read` parses has no UTC offset. */
  isLocal(text: string): boolean {
    if (this.#format !== undefined) return !(this.#format in UNITS);
    return !(/^\d{4}-/.test(text) && HAS_OFFSET.test(text));
  }

  #wall(text: string): number {
    const days = DAYS_OF_UNIT[this.#format ?? ''];
    if (days !== undefined) {
      return EXCEL_MS + Math.round(parseDecimal(text.replace(',', '.')) * days * DAY_MS);
    }
    for (const format of this.#formats) {
      const wallMs = format(text);
      if (Number.isFinite(wallMs)) return wallMs;
    }
    return Number.NaN;
  }

  /** Returns the time at which clocks in the zone show `wallMs`. A skipped time has the offset before the change. */
  #resolve(wallMs: number, afterMs = Number.NEGATIVE_INFINITY, orEqual = false, nearMs?: number): Resolved {
    const before = this.#offset(wallMs - DAY_MS);
    const after = this.#offset(wallMs + DAY_MS);
    if (before === after) return { timeMs: wallMs - before };
    const moments = [wallMs - before, wallMs - after].filter((ms) => ms + this.#offset(ms) === wallMs);
    if (moments.length === 0) return { timeMs: wallMs - before, shift: 'skipped' };
    if (moments.length === 1) return { timeMs: moments[0]! };
    moments.sort((one, other) => one - other);
    if (nearMs !== undefined) {
      const [first, second] = moments as [number, number];
      return { timeMs: nearMs - first < second - nearMs ? first : second, shift: 'twice' };
    }
    const fits = moments.find((ms) => ms > afterMs || (orEqual && ms === afterMs));
    return { timeMs: fits ?? moments[0]!, shift: 'twice' };
  }

  /** Returns the UTC offset before the clock change that precedes a non-existent local time, such as `+01:00`. */
  offsetText(timeMs: number): string {
    const minutes = this.#offset(timeMs - DAY_MS) / 60_000;
    const parts = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
    return `${minutes < 0 ? '-' : '+'}${parts.map((part) => String(part).padStart(2, '0')).join(':')}`;
  }

  /** Returns the zone's UTC offset at a given time, in milliseconds. */
  #offset(timeMs: number): number {
    const step = Math.floor(timeMs / STEP_MS) * STEP_MS;
    const known = this.#offsets.get(step);
    if (known !== undefined) return known;
    const part: Record<string, number> = {};
    for (const { type, value } of this.#zone.formatToParts(step)) part[type] = Number(value);
    const { year, month, day, hour, minute, second } = part as Record<string, number>;
    const offset = Date.UTC(year!, month! - 1, day, hour, minute, second) - step;
    if (this.#offsets.size >= MAX_OFFSETS) this.#offsets.clear();
    this.#offsets.set(step, offset);
    return offset;
  }
}

/** ISO 8601 readers by time zone. The number of zones is limited, because they are configured in tags.yaml. */
const READERS = new Map<string, TimeReader>();
const HOUR_MS = 3_600_000;
/** Maximum age of the first sample in a message that was sent in the repeated hour, unless its clock is behind. */
const MAX_SAMPLE_AGE_MS = HOUR_MS - 300_000;

/**
 * Parses an ISO 8601 timestamp. Without a UTC offset, it is local time in `zone`. If the local time of a live value is
 * ambiguous, returns the time nearest to the arrival. `sample`: the value is part of a list, which was measured before
 * the arrival; returns the first time after the previous sample, whose time is `afterMs`. Returns NaN for other text.
 */
export function parseZonedTime(
  text: string,
  zone: string,
  arrivalMs: number,
  sample?: { afterMs: number | undefined },
): number {
  if (!LOCAL_ISO.test(text) && !LOCAL_DATE.test(text)) return parseIsoTime(text);
  let reader = READERS.get(zone);
  if (reader === undefined) {
    reader = new TimeReader({ zone });
    READERS.set(zone, reader);
  }
  const found =
    sample === undefined
      ? reader.read(text, undefined, false, arrivalMs)
      : reader.read(text, sample.afterMs ?? arrivalMs - MAX_SAMPLE_AGE_MS);
  return found?.timeMs ?? Number.NaN;
}

const LOCAL_DATE = /^\d{4}-\d\d-\d\d$/;
/** ISO 8601 date and time without a UTC offset. */
const LOCAL_ISO = /^\d{4}-\d\d-\d\d[Tt ][\d:.,]+$/;
const HALF_HOUR_MS = HOUR_MS / 2;
/** Largest UTC offset. */
const MAX_OFFSET_MS = 14 * HOUR_MS;
/** Assumed delay of a live value, and the maximum deviation from this delay. */
const DELAY_MS = 14_000;
const DEVIATION_MS = 16_000;

const SET_ZONE = 'set zone, for example zone: Europe/Berlin, or zone: UTC if the time is correct';

/** Returns the UTC offset by which a time is ahead, a multiple of 30 minutes, if there is one. */
function offsetIn(aheadMs: number): number | undefined {
  const offsetMs = Math.round(aheadMs / HALF_HOUR_MS) * HALF_HOUR_MS;
  const isOffset =
    offsetMs !== 0 && Math.abs(offsetMs) <= MAX_OFFSET_MS && Math.abs(aheadMs - offsetMs) <= DEVIATION_MS;
  return isOffset ? offsetMs : undefined;
}

/**
 * Returns the problem of a timestamp without a UTC offset, if it differs from the arrival time by a multiple of 30
 * minutes and is therefore probably local time. `fix`: correction.
 */
export function missingZone(text: string, timeMs: number, arrivalMs: number, fix = SET_ZONE): string | undefined {
  const offsetMs = offsetIn(timeMs - arrivalMs + DELAY_MS);
  if (offsetMs === undefined || !LOCAL_ISO.test(text)) return undefined;
  return missingOffset(text, `is ${differenceText(offsetMs)} the arrival time`, fix);
}

/**
 * Like `missingZone`, for the latest row of a file. `writtenMs`: time at which the file was written. The row may be old
 * when it is written, so any time that is at least 30 minutes ahead is a problem. A row on the half hour that is behind
 * is usually a mean value, or was written by a scheduled transfer.
 */
export function missingZoneOfRow(text: string, timeMs: number, writtenMs: number): string | undefined {
  const aheadMs = timeMs - writtenMs + DELAY_MS;
  const isAhead = aheadMs > HALF_HOUR_MS && aheadMs <= MAX_OFFSET_MS + DEVIATION_MS;
  const offsetMs = offsetIn(aheadMs) ?? (isAhead ? aheadMs : undefined);
  if (offsetMs === undefined || (offsetMs < 0 && timeMs % HALF_HOUR_MS === 0)) return undefined;
  return missingOffset(text, `is ${differenceText(offsetMs)} the time of the file`);
}

/** Example: `1.5 h ahead of`. */
export function differenceText(offsetMs: number): string {
  return `${Math.round(Math.abs(offsetMs / HOUR_MS) * 10) / 10} h ${offsetMs > 0 ? 'ahead of' : 'behind'}`;
}

/** Returns the problem of a timestamp without a UTC offset in a source without a time zone. */
export function missingOffset(text: string, problem: string, fix = SET_ZONE): string {
  return `timestamp ${JSON.stringify(text)} has no UTC offset and ${problem}: ${fix}`;
}

export const ZONE_MEMBER = {
  type: 'string',
  minLength: 1,
  maxLength: 64,
  title: 'a time zone',
  description: 'Time zone of timestamps without a UTC offset. Default: UTC.',
  examples: ['Europe/Berlin'],
};

/** Returns the member `zone`, if it is set and valid. Reports an unknown time zone. */
export function readZone(raw: Members, report: MemberReport): { zone?: string } {
  if (raw.zone === undefined) return {};
  const zone = String(raw.zone);
  try {
    new Intl.DateTimeFormat('en-US', { timeZone: zone });
    return { zone };
  } catch {
    report.problem('zone', `unknown time zone "${printable(zone)}"`, 'use a value such as Europe/Berlin or UTC');
    return {};
  }
}

/** Returns a function that reads wall clock times of a format, or NaN for other text. */
function compile(format: string): (text: string) => number {
  const tokens: string[] = format.match(TOKEN) ?? [];
  const parts = format.split(TOKEN).map((literal, at) => {
    const token = tokens[at];
    const text = literal.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&');
    // Loggers write fractions of a second after a point or a comma, and numbers of milliseconds after other characters.
    const before = token === 'SSS' ? text.replace(/(?:\\\.|,)$/, '[.,]') : text;
    return token === undefined ? text : `${before}(?<${token}>${TOKENS[token]})`;
  });
  const pattern = new RegExp(`^${parts.join('')}$`);
  const isFraction = /(?:[.,]|ss)SSS/.test(format);
  return (text) => {
    const found = pattern.exec(text)?.groups;
    if (found === undefined) return Number.NaN;
    const { YY, YYYY, MMM, MM = MMM && monthOf(MMM), DD, HH = '0', hh, mm = '0', ss = '0', SSS = '0', A = '' } = found;
    const year = YY === undefined ? Number(YYYY) : 2000 + Number(YY);
    const hour = hh === undefined ? Number(HH) : (Number(hh) % 12) + (/^p/i.test(A) ? 12 : 0);
    const midnight = new Date(Date.UTC(year, Number(MM) - 1, Number(DD)));
    // `Date.UTC` would carry an invalid month or day over into the next one.
    const isDate = midnight.getUTCMonth() === Number(MM) - 1 && midnight.getUTCDate() === Number(DD);
    const isAfterMidnight = hour === 24 && Number(mm) + Number(ss) + Number(SSS) > 0;
    if (!isDate || hour > 24 || isAfterMidnight || Number(mm) > 59 || Number(ss) > 60) return Number.NaN;
    if (Number(hh ?? 0) > 12) return Number.NaN;
    const seconds = (hour * 60 + Number(mm)) * 60 + Number(ss);
    return (
      midnight.getTime() + seconds * 1_000 + Math.floor(Number(`0.${isFraction ? SSS : SSS.padStart(3, '0')}`) * 1_000)
    );
  };
}

let months: ReadonlyMap<string, number | undefined> | undefined;

/** Returns the number of a month by its name or at least its first three letters, or NaN if the name is unknown. */
function monthOf(name: string): number {
  months ??= monthsByName();
  return months.get(plainName(name)) ?? Number.NaN;
}

/** Returns months by name prefix, from three letters and without accents. Ambiguous prefixes have no number. */
function monthsByName(): Map<string, number | undefined> {
  const found = new Map<string, number | undefined>([
    ['mrz', 3],
    ['mrt', 3],
  ]);
  for (const language of LANGUAGES) {
    const format = new Intl.DateTimeFormat(language, { month: 'long', timeZone: 'UTC' });
    for (let month = 1; month <= 12; month++) {
      const name = plainName(format.format(Date.UTC(2026, month - 1)));
      for (let length = 3; length <= name.length; length++) {
        const start = name.slice(0, length);
        found.set(start, found.has(start) && found.get(start) !== month ? undefined : month);
      }
    }
  }
  return found;
}

function plainName(name: string): string {
  return name
    .toLowerCase()
    .normalize('NFD')
    .replaceAll(/[^a-z]/g, '');
}
