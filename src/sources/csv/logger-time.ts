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
/** Day 0 of Excel dates. Excel counts the non-existent 29 February 1900 as day 60. */
const EXCEL_MS = Date.UTC(1899, 11, 30);
const ENDS_WITH_OFFSET = /(?:[zZ]|[+-]\d{2}(?::?\d{2})?)$/;
const DATE_LENGTH = 10;
/** Range of `Date`, minus the days used to look up zone offsets. Required because a cell may contain any number. */
const MAX_WALL_MS = 8.64e15 - 2 * 86_400_000;

type Format = (text: string) => number;

/** Returns the reason why a format is invalid, or `undefined` if it is valid. */
export function formatProblem(format: string): string | undefined {
  if (format in UNITS || format === 'excel') return undefined;
  const found: string[] = format.match(TOKEN) ?? [];
  if (!found.some((token) => token.startsWith('Y')) || !found.includes('MM') || !found.includes('DD'))
    return 'has no year, month and day';
  if (new Set(found).size < found.length) return 'contains a token twice';
  return found.includes('hh') === found.includes('A') ? undefined : 'must contain both hh and A, or neither';
}

export class TimeReader {
  readonly #local: LocalTime;
  readonly #formats: readonly Format[];
  readonly #format: string | undefined;

  /** Throws `RangeError` for an unknown zone. */
  constructor({ zone, format }: LoggerTime) {
    this.#local = new LocalTime(zone);
    this.#format = format;
    this.#formats = (format === undefined ? GERMAN : [format]).map(compile);
  }

  /**
   * Parses a time. Returns `undefined` if the text does not match the format. `afterMs` and `orEqual` are passed to
   * `LocalTime.resolve`.
   */
  read(text: string, afterMs?: number, orEqual?: boolean): Resolved | undefined {
    const unit = this.#format === undefined ? undefined : UNITS[this.#format];
    if (unit !== undefined) {
      const timeMs = Math.floor(Number(text.replace(',', '.')) * unit);
      return text !== '' && Number.isFinite(timeMs) ? { timeMs } : undefined;
    }
    const isIso = this.#format === undefined && /^\d{4}-/.test(text);
    if (isIso && text.length > DATE_LENGTH && ENDS_WITH_OFFSET.test(text.slice(DATE_LENGTH))) {
      const timeMs = parseIsoTime(text);
      return Number.isNaN(timeMs) ? undefined : { timeMs };
    }
    // The ISO 8601 parser treats a time without an offset as UTC, so the result is the wall clock reading.
    const wallMs = isIso ? parseIsoTime(text) : this.#wall(text);
    return Math.abs(wallMs) <= MAX_WALL_MS ? this.#local.resolve(wallMs, afterMs, orEqual) : undefined;
  }

  #wall(text: string): number {
    if (this.#format === 'excel') {
      const days = Number(text.replace(',', '.'));
      return text === '' ? Number.NaN : EXCEL_MS + Math.round(days * 86_400_000);
    }
    for (const format of this.#formats) {
      const wallMs = format(text);
      if (Number.isFinite(wallMs)) return wallMs;
    }
    return Number.NaN;
  }
}

function compile(format: string): Format {
  const tokens: string[] = format.match(TOKEN) ?? [];
  const between = format.split(TOKEN).map((text) => text.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  const parts = between.map((text, at) => {
    const token = tokens[at];
    if (token === undefined) return text;
    // Loggers write fractions of a second after a point or a comma.
    const before = token === 'SSS' ? text.replace(/(?:\\\.|,)$/, '[.,]') : text;
    return `${before}(${TOKENS[token]})`;
  });
  const pattern = new RegExp(`^${parts.join('')}$`);
  const groupOf: Readonly<Record<string, number>> = Object.fromEntries(tokens.map((token, at) => [token, at + 1]));
  return (text) => {
    const found = pattern.exec(text.trim());
    if (found === null) return Number.NaN;
    const part = (token: string) => found[groupOf[token] ?? -1] ?? '0';
    const year = 'YY' in groupOf ? 2000 + Number(part('YY')) : Number(part('YYYY'));
    const [month, day, minute, second] = [
      Number(part('MM')),
      Number(part('DD')),
      Number(part('mm')),
      Number(part('ss')),
    ];
    const hour = 'A' in groupOf ? (Number(part('hh')) % 12) + (/^p/i.test(part('A')) ? 12 : 0) : Number(part('HH'));
    const ms = Math.floor(Number(`0.${part('SSS')}`) * 1_000);
    if (hour > 24 || minute > 59 || second > 60) return Number.NaN;
    const midnight = Date.UTC(year, month - 1, day);
    // Rejects an invalid month or day, which `Date.UTC` would carry over into the next one.
    const date = new Date(midnight);
    if (date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return Number.NaN;
    return midnight + ((hour * 60 + minute) * 60 + second) * 1_000 + ms;
  };
}

interface Resolved {
  /** Milliseconds since 1970, UTC. */
  timeMs: number;
  /** `twice`: the local time is ambiguous; `skipped`: it does not exist. */
  shift?: 'twice' | 'skipped';
}

const DAY_MS = 86_400_000;
/** Smallest difference between UTC offsets of a zone. */
const STEP_MS = 900_000;
const MAX_REMEMBERED = 10_000;

/** Converts local times of a zone to UTC. */
class LocalTime {
  readonly #format: Intl.DateTimeFormat;
  readonly #offsets = new Map<number, number>();

  /** Throws `RangeError` for an unknown zone. */
  constructor(zone: string) {
    const date = { year: 'numeric', month: 'numeric', day: 'numeric' } as const;
    const time = { hour: 'numeric', minute: 'numeric', second: 'numeric', hourCycle: 'h23' } as const;
    this.#format = new Intl.DateTimeFormat('en-US', { timeZone: zone, ...date, ...time });
  }

  /**
   * Returns the UTC time at which clocks in the zone show `wallMs`. If two times match, returns the first one after
   * `afterMs`, the time of the previous row (with `orEqual`: at or after `afterMs`). A repeated hour is therefore read
   * in file order. If no time matches, applies the offset before the change.
   */
  resolve(wallMs: number, afterMs = Number.NEGATIVE_INFINITY, orEqual = false): Resolved {
    const offsets = [this.#offset(wallMs - DAY_MS), this.#offset(wallMs + DAY_MS)];
    const moments = [...new Set(offsets)]
      .map((offset) => wallMs - offset)
      .filter((ms) => ms + this.#offset(ms) === wallMs);
    if (moments.length === 0) return { timeMs: wallMs - offsets[0]!, shift: 'skipped' };
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
    for (const { type, value } of this.#format.formatToParts(step)) part[type] = Number(value);
    const { year, month, day, hour, minute, second } = part as Record<string, number>;
    const offset = Date.UTC(year!, month! - 1, day, hour, minute, second) - step;
    if (this.#offsets.size >= MAX_REMEMBERED) this.#offsets.clear();
    this.#offsets.set(step, offset);
    return offset;
  }
}
