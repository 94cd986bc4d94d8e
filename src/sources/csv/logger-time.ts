/** Parses data logger time formats. Pure. */
import { parseIsoTime } from '../intake/text-parsers.ts';

export interface LoggerTime {
  zone: string;
  /** Format such as `DD.MM.YYYY HH:mm:ss`. Default: ISO 8601 or the German format. */
  format?: string;
}

/** Format tokens and the patterns that they match. */
const TOKENS: Readonly<Record<string, string>> = {
  YYYY: '\\d{4}',
  YY: '\\d{2}',
  MM: '\\d{1,2}',
  DD: '\\d{1,2}',
  HH: '\\d{1,2}',
  hh: '\\d{1,2}',
  mm: '\\d{1,2}',
  ss: '\\d{1,2}',
  SSS: '\\d{1,9}',
  A: '[AaPp]\\.?[Mm]\\.?',
};
const TOKEN = /YYYY|SSS|YY|MM|DD|HH|hh|mm|ss|A/g;
const UNITS: Readonly<Record<string, number>> = { unix: 1_000, unix_ms: 1 };
const GERMAN = ['DD.MM.YYYY HH:mm:ss.SSS', 'DD.MM.YYYY HH:mm:ss', 'DD.MM.YYYY HH:mm', 'DD.MM.YYYY'];
const DAY_MS = 86_400_000;
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

/** Returns the reason why a format is invalid, or `undefined` if it is valid. */
export function formatProblem(format: string): string | undefined {
  if (format in UNITS || format === 'excel') return undefined;
  const found: string[] = format.match(TOKEN) ?? [];
  if (!found.some((token) => token.startsWith('Y')) || !found.includes('MM') || !found.includes('DD'))
    return 'has no year, month and day';
  if (new Set(found).size < found.length) return 'contains a token twice';
  return found.includes('hh') === found.includes('A') ? undefined : 'must contain both hh and A, or neither';
}

/** Reads the times of one file format in one time zone. */
export class TimeReader {
  readonly #format: string | undefined;
  readonly #formats: readonly ((text: string) => number)[];
  readonly #zone: Intl.DateTimeFormat;
  /** UTC offsets of the zone by time. */
  readonly #offsets = new Map<number, number>();

  /** Throws `RangeError` for an unknown zone. */
  constructor({ zone, format }: LoggerTime) {
    this.#format = format;
    this.#formats = (format === undefined ? GERMAN : [format]).map(compile);
    const date = { year: 'numeric', month: 'numeric', day: 'numeric' } as const;
    const time = { hour: 'numeric', minute: 'numeric', second: 'numeric', hourCycle: 'h23' } as const;
    this.#zone = new Intl.DateTimeFormat('en-US', { timeZone: zone, ...date, ...time });
  }

  /**
   * Parses a time. Returns `undefined` if the text does not match the format. If a local time occurs twice, returns the
   * first one after `afterMs`, the time of the previous row (with `orEqual`: at or after `afterMs`).
   */
  read(text: string, afterMs?: number, orEqual?: boolean): Resolved | undefined {
    const format = this.#format;
    const unit = format === undefined ? undefined : UNITS[format];
    if (unit !== undefined) {
      const timeMs = Math.floor(Number(text.replace(',', '.')) * unit);
      return text !== '' && Number.isFinite(timeMs) ? { timeMs } : undefined;
    }
    const isIso = format === undefined && /^\d{4}-/.test(text);
    // The ISO 8601 parser treats a time without an offset as UTC, so the result is the wall clock reading.
    const wallMs = isIso ? parseIsoTime(text) : this.#wall(text);
    if (!(Math.abs(wallMs) <= MAX_WALL_MS)) return undefined;
    return isIso && HAS_OFFSET.test(text) ? { timeMs: wallMs } : this.#resolve(wallMs, afterMs, orEqual);
  }

  #wall(text: string): number {
    if (this.#format === 'excel') {
      return text === '' ? Number.NaN : EXCEL_MS + Math.round(Number(text.replace(',', '.')) * DAY_MS);
    }
    for (const format of this.#formats) {
      const wallMs = format(text);
      if (Number.isFinite(wallMs)) return wallMs;
    }
    return Number.NaN;
  }

  /** Returns the time at which clocks in the zone show `wallMs`. A skipped time has the offset before the change. */
  #resolve(wallMs: number, afterMs = Number.NEGATIVE_INFINITY, orEqual = false): Resolved {
    const before = this.#offset(wallMs - DAY_MS);
    const after = this.#offset(wallMs + DAY_MS);
    if (before === after) return { timeMs: wallMs - before };
    const moments = [wallMs - before, wallMs - after].filter((ms) => ms + this.#offset(ms) === wallMs);
    if (moments.length === 0) return { timeMs: wallMs - before, shift: 'skipped' };
    if (moments.length === 1) return { timeMs: moments[0]! };
    moments.sort((one, other) => one - other);
    const fits = moments.find((ms) => ms > afterMs || (orEqual && ms === afterMs));
    return { timeMs: fits ?? moments[0]!, shift: 'twice' };
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

/** Returns a function that reads wall clock times of a format, or NaN for other text. */
function compile(format: string): (text: string) => number {
  const tokens: string[] = format.match(TOKEN) ?? [];
  const parts = format.split(TOKEN).map((literal, at) => {
    const token = tokens[at];
    const text = literal.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&');
    // Loggers write fractions of a second after a point or a comma.
    const before = token === 'SSS' ? text.replace(/(?:\\\.|,)$/, '[.,]') : text;
    return token === undefined ? text : `${before}(?<${token}>${TOKENS[token]})`;
  });
  const pattern = new RegExp(`^${parts.join('')}$`);
  return (text) => {
    const found = pattern.exec(text)?.groups;
    if (found === undefined) return Number.NaN;
    const { YY, YYYY, MM, DD, HH = '0', hh, mm = '0', ss = '0', SSS = '0', A = '' } = found;
    const year = YY === undefined ? Number(YYYY) : 2000 + Number(YY);
    const hour = hh === undefined ? Number(HH) : (Number(hh) % 12) + (/^p/i.test(A) ? 12 : 0);
    const midnight = new Date(Date.UTC(year, Number(MM) - 1, Number(DD)));
    // `Date.UTC` would carry an invalid month or day over into the next one.
    const isDate = midnight.getUTCMonth() === Number(MM) - 1 && midnight.getUTCDate() === Number(DD);
    if (!isDate || hour > 24 || Number(mm) > 59 || Number(ss) > 60) return Number.NaN;
    const seconds = (hour * 60 + Number(mm)) * 60 + Number(ss);
    return midnight.getTime() + seconds * 1_000 + Math.floor(Number(`0.${SSS}`) * 1_000);
  };
}
