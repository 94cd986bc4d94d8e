/** Times as data loggers write them. Pure. */
import { parseIsoTime } from '../iso-time.ts';
import { LocalTime, type Resolved } from './local-time.ts';

/** `DD.MM.YYYY HH:mm:ss` and its like; left out, ISO 8601 or the German spelling. */
export interface LoggerTime {
  zone: string;
  format?: string;
}

/** What a format may be made of, and how many digits that has. */
const TOKENS: Readonly<Record<string, string>> = {
  YYYY: '(\\d{4})',
  YY: '(\\d{2})',
  MM: '(\\d{1,2})',
  DD: '(\\d{1,2})',
  HH: '(\\d{1,2})',
  hh: '(\\d{1,2})',
  mm: '(\\d{1,2})',
  ss: '(\\d{1,2})',
  SSS: '(\\d{1,9})',
  A: '([AaPp]\\.?[Mm]\\.?)',
};
const TOKEN = /YYYY|SSS|YY|MM|DD|HH|hh|mm|ss|A/g;
const UNITS: Readonly<Record<string, number>> = { unix: 1_000, unix_ms: 1 };
const GERMAN = ['DD.MM.YYYY HH:mm:ss.SSS', 'DD.MM.YYYY HH:mm:ss', 'DD.MM.YYYY HH:mm', 'DD.MM.YYYY'];
/** Excel counts days from here; 60 is the 29 February 1900 that never was. */
const EXCEL_MS = Date.UTC(1899, 11, 30);
const ENDS_WITH_OFFSET = /(?:[zZ]|[+-]\d{2}(?::?\d{2})?)$/;
const DATE_LENGTH = 10;
/** What a `Date` can say, and the days around it that a zone looks at; a cell may hold any number. */
const MAX_WALL_MS = 8.64e15 - 2 * 86_400_000;

type Format = (text: string) => number;

/** Why a format cannot be one; `undefined` where it can. */
export function formatProblem(format: string): string | undefined {
  if (format in UNITS || format === 'excel') return undefined;
  const found: string[] = format.match(TOKEN) ?? [];
  if (!found.some((token) => token.startsWith('Y')) || !found.includes('MM') || !found.includes('DD'))
    return 'has no year, month and day';
  if (new Set(found).size < found.length) return 'has a part twice';
  return found.includes('hh') === found.includes('A') ? undefined : 'has hh or A without the other';
}

export class TimeReader {
  readonly #local: LocalTime;
  readonly #formats: readonly Format[];
  readonly #format: string | undefined;

  /** Throws `RangeError` where there is no such zone. */
  constructor({ zone, format }: LoggerTime) {
    this.#local = new LocalTime(zone);
    this.#format = format;
    this.#formats = (format === undefined ? GERMAN : [format]).map(compile);
  }

  /** `undefined` where the text is no such time. `afterMs`, `orAt`: as in `LocalTime.resolve`. */
  read(text: string, afterMs?: number, orAt?: boolean): Resolved | undefined {
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
    // Without an offset the reader of ISO 8601 means UTC: that is what the clock on the wall shows.
    const wallMs = isIso ? parseIsoTime(text) : this.#wall(text);
    return Math.abs(wallMs) <= MAX_WALL_MS ? this.#local.resolve(wallMs, afterMs, orAt) : undefined;
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
  const pattern = new RegExp(`^${between.map((text, at) => text + (TOKENS[tokens[at] ?? ''] ?? '')).join('')}$`);
  return (text) => {
    const found = pattern.exec(text.trim());
    if (!found) return Number.NaN;
    const part = new Map(tokens.map((token, at) => [token, found[at + 1]!]));
    const number = (token: string, otherwise: number) => (part.has(token) ? Number(part.get(token)) : otherwise);
    const year = part.has('YY') ? 2000 + number('YY', 0) : number('YYYY', Number.NaN);
    const [month, day] = [number('MM', Number.NaN), number('DD', Number.NaN)];
    const hour = part.has('A') ? (number('hh', 12) % 12) + (/^p/i.test(part.get('A')!) ? 12 : 0) : number('HH', 0);
    const [minute, second] = [number('mm', 0), number('ss', 0)];
    const ms = part.has('SSS') ? Math.floor(Number(`0.${part.get('SSS')}`) * 1_000) : 0;
    if (hour > 24 || minute > 59 || second > 60) return Number.NaN;
    const midnight = Date.UTC(year, month - 1, day);
    // A month or day that is none would be carried over into the next.
    const date = new Date(midnight);
    if (date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return Number.NaN;
    return midnight + ((hour * 60 + minute) * 60 + second) * 1_000 + ms;
  };
}
