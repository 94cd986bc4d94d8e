import { isAscii, isUtf8 } from 'node:buffer';
import { UnreadableValues } from './problem-list.ts';

/** Maximum size of one line with values, in bytes. */
export const MAX_LINE_BYTES = 64 * 1024;

/** Throws `UnreadableValues` if a body is not valid UTF-8. */
export function requireUtf8(bytes: Buffer): void {
  if (!isUtf8(bytes)) throw new UnreadableValues('the body is not UTF-8');
}

/** Returns whether a body begins with a byte order mark. */
export function hasMark(bytes: Buffer): boolean {
  return bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf;
}

/** Returns the text of a body without its byte order mark. Bytes that are not UTF-8 are replaced. */
export function textOf(bytes: Buffer): string {
  // Decoding one byte per character is four times as fast and produces smaller strings.
  if (isAscii(bytes)) return bytes.toString('latin1');
  return bytes.toString('utf8', hasMark(bytes) ? 3 : 0);
}

/**
 * Removes leading and trailing white space, null characters and byte order marks, because devices pad their buffers.
 */
export function unpadded(text: string): string {
  const trimmed = text.trim();
  if (!isPadded(trimmed)) return trimmed;
  let [from, to] = [0, trimmed.length];
  while (from < to && isPadding(trimmed.charCodeAt(from))) from++;
  while (to > from && isPadding(trimmed.charCodeAt(to - 1))) to--;
  return trimmed.slice(from, to).trim();
}

function isPadded(text: string): boolean {
  return text.charCodeAt(0) === 0 || text.charCodeAt(text.length - 1) === 0;
}

/** Returns whether a character is a control character, a space or a byte order mark. */
function isPadding(code: number): boolean {
  return code <= SPACE || code === BYTE_ORDER_MARK;
}

/** Returns `undefined` if the text is not JSON. The parser's message would quote text that must not be logged. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Returns the quality that a text represents: a word, or a code of OPC Classic. Returns `undefined` for other text, and
 * for 1, which means good in some archives and bad in OPC Classic.
 */
export function parseQuality(text: string): 'good' | 'uncertain' | 'bad' | undefined {
  // Examples: `Good`, `Bad [Not Connected]`, `UncertainLastUsableValue`.
  const [word] = /^(?:good|uncertain|bad)/.exec(text.toLowerCase()) ?? [];
  if (word !== undefined) return word as 'good' | 'uncertain' | 'bad';
  const [, digits] = /^(\d{1,3})(?:[.,]0+)?$/.exec(text) ?? [];
  const code = Number(digits ?? Number.NaN);
  if (code >= 192 && code <= 255) return 'good';
  if (code >= 64 && code <= 127) return 'uncertain';
  return code >= 0 && code < 64 && code !== 1 ? 'bad' : undefined;
}

const SPACE = 32;
const BYTE_ORDER_MARK = 0xfeff;
const PLUS = 43;
const DOT = 46;
const ZERO = 48;
const NINE = 57;

/**
 * Parses a decimal number. Returns NaN for other text (`Infinity`, `0x10`, blanks, an empty string). The result may be
 * infinite if the exponent is too large.
 */
export function parseDecimal(text: string): number {
  const [start, end] = [text.charCodeAt(0), text.charCodeAt(text.length - 1)];
  // Number also accepts surrounding blanks, Infinity, 0x10, 0b1 and 0o7.
  if (!(start >= PLUS && start <= NINE && (end === DOT || (end >= ZERO && end <= NINE)))) return Number.NaN;
  return start === ZERO && /^.[xbo]/i.test(text) ? Number.NaN : Number(text);
}

const LATEST_MS = Date.UTC(9999, 11, 31, 23, 59, 59, 999);

/** Returns whether a timestamp is a whole number of milliseconds in the years 1970 to 9999. */
export function isValidTime(timeMs: number): boolean {
  return Number.isInteger(timeMs) && timeMs >= 0 && timeMs <= LATEST_MS;
}

const MAX_TIME_LENGTH = 64;
/**
 * The most common format. `Date.parse` is twice as fast for this format, but only reliable if the day exists in every
 * month.
 */
const COMMON_TIME = /^\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{3})?Z$/;
const TIME_OF_DAY = String.raw`(\d\d):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?`;
const OFFSET = String.raw`[Zz]|([+-])(\d\d)(?::?(\d\d))?`;
const ISO_TIME = new RegExp(String.raw`^(\d{4})-(\d\d)-(\d\d)(?:[Tt ]${TIME_OF_DAY}(?:${OFFSET})?)?$`);
const date = new Date(0);

/**
 * Parses an ISO 8601 timestamp. A time without an offset is UTC, regardless of the gateway's time zone
 * (docs/interface.md). Returns milliseconds since 1970, or NaN if the text is not a timestamp. The result may be
 * outside the accepted range.
 *
 * Accepts `YYYY-MM-DD`, optionally followed by `T` (also `t` or a space) and `HH:MM` or `HH:MM:SS`, a fraction after
 * `.` or `,` (truncated to milliseconds), and `Z`, `+HH:MM`, `+HHMM` or `+HH`. 24:00 is midnight of the next day. A
 * leap second (:60) is interpreted as the following second, as in Unix time.
 */
export function parseIsoTime(text: string): number {
  if (COMMON_TIME.test(text)) return Date.parse(text);
  const found = text.length > MAX_TIME_LENGTH ? null : ISO_TIME.exec(text);
  if (found === null) return Number.NaN;
  const number = (group: number) => Number(found[group] ?? 0);
  const [month, day, hour, minute, second] = [number(2), number(3), number(4), number(5), number(6)];
  const millisecond = found[7] === undefined ? 0 : Math.trunc(Number(`.${found[7].slice(0, 3)}`) * 1000 + 1e-6);
  date.setTime(0);
  const midnight = date.setUTCFullYear(number(1), month - 1, day);
  if (date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return Number.NaN;
  if (hour > 24 || minute > 59 || second > 60 || (hour === 24 && minute + second + millisecond > 0)) return Number.NaN;
  if (number(9) > 23 || number(10) > 59) return Number.NaN;
  const offset = (number(9) * 60 + number(10)) * (found[8] === '-' ? -60_000 : 60_000);
  return midnight + ((hour * 60 + minute) * 60 + second) * 1000 + millisecond - offset;
}
