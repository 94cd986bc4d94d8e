/**
 * Reads InfluxDB line protocol into a draft: `measurement,tag=x field=1.5,other=2i 1700000000000000000`. The tag of a
 * value is the measurement or an Influx tag; the key is the field, or composed of the field and Influx tags. Supports
 * backslash escapes, comments, multi-line quoted strings, integers (`i`, `u`), booleans and `\r\n`.
 *
 * An invalid field rejects only itself. An invalid line, and a line with an invalid time, reject all of their fields.
 * A line is also rejected if an earlier line of another Influx series has the same tag, key and time, because the
 * platform would store only one of the values.
 */
import type { ValueMap } from '../../config/tags.ts';
import { quote, type Slot } from '../intake/address-book.ts';
import { type Draft, explain, ON_ARRIVAL } from '../intake/draft.ts';
import { withoutStackTraces } from '../intake/problem-list.ts';
import { numberOf, problemOfReading, type RawReading, TEXTS_NEED_MAP } from '../intake/shaping.ts';
import { parseDecimal, textOf, unpadded } from '../intake/text-parsers.ts';
import type { TimeUnit } from '../intake/times.ts';

export interface LineOptions {
  /** Timestamp unit, in milliseconds. */
  msOfUnit: number;
  /** Returns the correction for timestamps that are plausible in another unit. Default: the query parameter. */
  unitFix?: (unit: TimeUnit) => string;
  /** Influx tag whose value is the tag name; if `undefined`, the measurement is the tag name. */
  tagFrom: string | undefined;
  /** Composes the key from the field and the Influx tags; if `undefined`, the field is the key. */
  keyOf?: ((field: string, tags: ReadonlyMap<string, string>) => string) | undefined;
  /** Maximum length of a line, in characters. Default: no limit. */
  maxLineLength?: number;
  /** Latest Influx series of each slot, for lines that are read in several blocks. */
  heads?: SeriesHeads;
}

/**
 * Influx series of the latest value of a slot, and of earlier values by time. `head` contains the measurement and Influx
 * tags as written. `timeMs` is NaN for the arrival time. Most requests contain only one time per slot.
 */
interface Written {
  timeMs: number;
  head: string;
  earlier: Map<number, string> | undefined;
}

export interface SeriesHeads {
  get(slot: Slot): Written | undefined;
  set(slot: Slot, written: Written): unknown;
}

/** Maximum number of previous timestamps kept per slot if lines are read in several blocks. */
const MAX_EARLIER = 8;
const SAME_KEY = 'an earlier line has the same tag, key and time';
/** Maximum number of rejected lines that are quoted. */
const MAX_LISTED = 10;

/** Number of lines with rejected fields, and the first ten of them, quoted with their problem. */
export class RejectedLines {
  count = 0;
  readonly listed: string[] = [];
}

const TAB = 9;
const FEED = 10;
const RETURN = 13;
const SPACE = 32;
const QUOTE = 34;
const HASH = 35;
const COMMA = 44;
const MINUS = 45;
const EQUALS = 61;
const BACKSLASH = 92;

/** Adds the valid values to a partial draft, and the lines with rejected fields to `rejected`. */
export function readLineProtocol(
  bytes: Buffer,
  options: LineOptions,
  draft: Draft,
  rejected = new RejectedLines(),
): void {
  let text = textOf(bytes);
  if (text.includes('\0') || text.includes('\ufeff')) text = text.split('\n').map(unpadded).join('\n');
  withoutStackTraces(() => new LineReader(text, options, draft, rejected).read());
}

/** The current line cannot be parsed. */
class InvalidLine extends Error {}

class LineReader {
  readonly #text: string;
  readonly #options: LineOptions;
  readonly #draft: Draft;
  readonly #rejected: RejectedLines;
  readonly #heads: SeriesHeads;
  #at = 0;
  /** Number of line feeds before `#countedTo`. */
  #feeds = 0;
  #countedTo = 0;

  /** Current line: its offset, the end of its measurement and Influx tags, and its first index in the columns. */
  #from = 0;
  #headTo = 0;
  #first = 0;
  /** Influx tags, if the key depends on them. */
  #tags: ReadonlyMap<string, string> | undefined;
  /** Slots of its values, and what `#heads` contains for them. */
  readonly #slots: Slot[] = [];
  readonly #written: (Written | undefined)[] = [];
  /** Problem of the line, or of its first rejected field, and the number of its problems. */
  #problem = '';
  #problems = 0;

  constructor(text: string, options: LineOptions, draft: Draft, rejected: RejectedLines) {
    this.#text = text;
    this.#options = options;
    this.#draft = draft;
    this.#rejected = rejected;
    this.#heads = options.heads ?? new Map();
  }

  read(): void {
    while (this.#at < this.#text.length) {
      this.#skipBlanks();
      if (this.#next() === HASH) this.#skipLine();
      else if (!this.#isLineEnd()) this.#readLine();
      if (this.#next() === RETURN) this.#at++;
      if (this.#next() === FEED) this.#at++;
    }
  }

  #readLine(): void {
    this.#from = this.#at;
    this.#first = this.#draft.accepted;
    this.#tags = undefined;
    this.#slots.length = 0;
    this.#problems = 0;
    try {
      this.#endLine(this.#parseLine());
    } catch (error) {
      if (!(error instanceof InvalidLine)) throw error;
      this.#rejectLine('', error.message);
      // An unterminated string must not hide the lines that follow.
      this.#at = this.#from;
      this.#skipLine();
    }
    if (this.#problems === 0) return;
    const { listed } = this.#rejected;
    this.#rejected.count++;
    if (listed.length >= MAX_LISTED) return;
    const [line = ''] = this.#text.slice(this.#from, this.#from + 256).split(/\r?\n/, 1);
    listed.push(`line ${this.#lineNumber()} ${quote(line)}: ${this.#problem}`);
  }

  /** Adds the fields of a line with the arrival time. Returns the line's own time, or NaN if it has none. */
  #parseLine(): number {
    const { tagFrom, msOfUnit, maxLineLength = Number.POSITIVE_INFINITY } = this.#options;
    const measurement = this.#name(false);
    if (measurement === '') throw new InvalidLine('the measurement is missing');
    let tag = tagFrom === undefined ? measurement : undefined;
    while (this.#next() === COMMA) {
      const [key, value] = this.#influxTag();
      if (key === tagFrom) tag = value;
    }
    this.#headTo = this.#at;
    this.#skipBlanks();
    if (this.#isLineEnd()) throw new InvalidLine('fields are missing');
    for (;;) {
      this.#readField(tag);
      if (this.#next() !== COMMA) break;
      this.#at++;
    }
    this.#skipBlanks();
    const timeMs = this.#isLineEnd() ? Number.NaN : this.#readTime(msOfUnit);
    this.#skipBlanks();
    if (!this.#isLineEnd()) throw new InvalidLine('unexpected text after the timestamp');
    if (this.#at - this.#from > maxLineLength) throw new InvalidLine(`is longer than ${maxLineLength} bytes`);
    return timeMs;
  }

  /** Reads an Influx tag in the form `,key=value`. */
  #influxTag(): [key: string, value: string] {
    this.#at++;
    const key = this.#name(true);
    if (key === '' || this.#next() !== EQUALS) throw new InvalidLine('a tag has no value');
    this.#at++;
    const value = this.#name(true);
    if (value === '' || this.#next() === EQUALS) throw new InvalidLine('a tag is not key=value');
    return [key, value];
  }

  #readField(tag: string | undefined): void {
    const text = this.#text;
    const field = this.#name(true);
    if (field === '' || this.#next() !== EQUALS) throw new InvalidLine('a field is not key=value');
    const start = ++this.#at;
    if (this.#next() === QUOTE) {
      this.#addValue(tag, field, this.#string());
    } else {
      let at = start;
      while (at < text.length && !isFieldEnd(text.charCodeAt(at))) at++;
      if (at === start) throw new InvalidLine('a field has no value');
      this.#at = at;
      const written = text.slice(start, at);
      const value = fieldValue(written);
      if (typeof value === 'string') this.#addValue(tag, field, written, value);
      else this.#addValue(tag, field, value);
    }
    if (this.#at < text.length && !isFieldEnd(this.#next())) throw new InvalidLine('unexpected text after a field');
  }

  /** `problem`: problem of a text without quotes. */
  #addValue(tag: string | undefined, field: string, raw: number | boolean | string, problem?: string): void {
    const draft = this.#draft;
    if (tag === undefined) {
      this.#reject('tag', missingTag, this.#options.tagFrom);
      return;
    }
    const key = this.#keyOf(field);
    const slot = draft.book.find(tag, key);
    if (slot === undefined) {
      this.#reject(draft.book.wrongFieldOf(tag), explain, draft.book, tag, key);
      return;
    }
    if (draft.intercepts(slot) && (typeof raw !== 'number' || slot.map !== undefined)) {
      draft.addIntercepted(slot, raw, ON_ARRIVAL, 0);
      this.#slots.push(slot);
      return;
    }
    if (problem !== undefined || (typeof raw === 'string' && slot.map === undefined)) {
      this.#reject('value', wrongField, tag, field, problem ?? `is a string, not a number; ${TEXTS_NEED_MAP}`);
      return;
    }
    const number = typeof raw === 'number' && slot.map === undefined ? raw : numberOf(raw, slot.map);
    if (number === undefined) {
      this.#reject('value', unmappedField, tag, field, raw, slot.map);
      return;
    }
    // The time is known only at the end of the line.
    draft.add(slot, number, ON_ARRIVAL, 0);
    this.#slots.push(slot);
  }

  #keyOf(field: string): string {
    const { keyOf } = this.#options;
    if (keyOf === undefined) return field;
    this.#tags ??= parsedHead(this.#text.slice(this.#from, this.#headTo)).tags;
    return keyOf(field, this.#tags);
  }

  #endLine(timeMs: number): void {
    const { msOfUnit, unitFix = precisionFix } = this.#options;
    const ownMs = Number.isNaN(timeMs) ? ON_ARRIVAL : this.#draft.plausibleTime(timeMs, msOfUnit, unitFix);
    if (ownMs === undefined) {
      this.#rejectLine('timestamp', this.#draft.problemOfTime(timeMs, msOfUnit, unitFix));
      return;
    }
    const problem = this.#otherSeries(ownMs);
    if (problem !== undefined) this.#rejectLine('key', problem);
    else if (!Number.isNaN(ownMs)) this.#draft.setTimeFrom(this.#first, ownMs);
  }

  /** Returns the problem if another Influx series already set a key of this line at the same time. */
  #otherSeries(timeMs: number): string | undefined {
    const head = this.#text.slice(this.#from, this.#headTo);
    const slots = this.#slots;
    const heads = this.#heads;
    const isKept = this.#options.heads !== undefined;
    for (let at = 0; at < slots.length; at++) {
      const written = heads.get(slots[at]!);
      this.#written[at] = written;
      if (written === undefined) continue;
      const other = Object.is(written.timeMs, timeMs) ? written.head : written.earlier?.get(timeMs);
      const problem = other === undefined || other === head ? undefined : difference(head, other);
      if (problem !== undefined) return problem;
    }
    for (let at = 0; at < slots.length; at++) {
      const written = this.#written[at];
      if (written !== undefined && Object.is(written.timeMs, timeMs)) continue;
      // A copy does not retain the text of the block.
      let kept = head;
      if (written?.head === head) kept = written.head;
      else if (isKept) kept = Buffer.from(head).toString();
      if (written === undefined) {
        heads.set(slots[at]!, { timeMs, head: kept, earlier: undefined });
        continue;
      }
      written.earlier ??= new Map();
      written.earlier.set(written.timeMs, written.head);
      if (isKept && written.earlier.size > MAX_EARLIER) written.earlier.delete(written.earlier.keys().next().value!);
      written.timeMs = timeMs;
      written.head = kept;
    }
    return undefined;
  }

  #reject<Args extends unknown[]>(field: string, describe: (...args: Args) => string, ...args: Args): void {
    this.#draft.reject(field, describe, ...args);
    if (this.#problems++ === 0 && this.#rejected.listed.length < MAX_LISTED) this.#problem = describe(...args);
  }

  /** Removes the values of the current line. */
  #rejectLine(field: string, problem: string): void {
    this.#draft.rejectFrom(this.#first, field, problem);
    this.#problems++;
    this.#problem = problem;
  }

  /** Returns the number of the current line. */
  #lineNumber(): number {
    // Count from the previous call. Counting from the start would be quadratic if every line were invalid.
    for (;;) {
      const feed = this.#text.indexOf('\n', this.#countedTo);
      if (feed < 0 || feed >= this.#from) return this.#feeds + 1;
      this.#feeds++;
      this.#countedTo = feed + 1;
    }
  }

  /** Derives whole milliseconds from the digits, because nanoseconds exceed the precision of a double. */
  #readTime(msOfUnit: number): number {
    const text = this.#text;
    const isNegative = this.#next() === MINUS;
    const start = isNegative ? this.#at + 1 : this.#at;
    let end = start;
    for (let code = text.charCodeAt(end); code >= 48 && code <= 57; code = text.charCodeAt(end)) end++;
    if (end === start || end - start > 20) throw new InvalidLine('the timestamp is not an integer');
    this.#at = end;
    // Times before 1970 are out of range, so their exact value is irrelevant.
    if (isNegative) return -1;
    const last = msOfUnit >= 1 ? end : end - (msOfUnit === 1e-6 ? 6 : 3);
    let time = 0;
    // Inexact only beyond 2^53, which is out of range.
    for (let at = start; at < last; at++) time = time * 10 + text.charCodeAt(at) - 48;
    return time * Math.max(1, msOfUnit);
  }

  /**
   * Reads a measurement, or with `endsAtEquals` a tag key, tag value or field key. Escaped delimiters do not end the
   * name.
   */
  #name(endsAtEquals: boolean): string {
    const text = this.#text;
    const start = this.#at;
    let isEscaped = false;
    let at = start;
    for (; at < text.length; at++) {
      const code = text.charCodeAt(at);
      if (code === COMMA || code === SPACE || code === FEED || (endsAtEquals && code === EQUALS)) break;
      if (code === RETURN && (at + 1 === text.length || text.charCodeAt(at + 1) === FEED)) break;
      if (code !== BACKSLASH) continue;
      const next = text.charCodeAt(at + 1);
      if (next === COMMA || next === SPACE || next === EQUALS) at++;
      isEscaped = true;
    }
    this.#at = at;
    const name = text.slice(start, at);
    if (!isEscaped) return name;
    return endsAtEquals ? unescaped(name) : name.replaceAll(/\\([, ])/g, '$1');
  }

  #string(): string {
    const start = this.#at + 1;
    let isEscaped = false;
    for (this.#at++; this.#at < this.#text.length; this.#at++) {
      if (this.#next() === BACKSLASH) {
        const escaped = this.#text.charCodeAt(this.#at + 1);
        if (escaped !== QUOTE && escaped !== BACKSLASH) continue;
        this.#at++;
        isEscaped = true;
      } else if (this.#next() === QUOTE) {
        const text = this.#text.slice(start, this.#at++);
        return isEscaped ? text.replaceAll(/\\(["\\])/g, '$1') : text;
      }
    }
    throw new InvalidLine('unterminated string');
  }

  #skipBlanks(): void {
    while (this.#next() === SPACE || this.#next() === TAB) this.#at++;
  }

  #skipLine(): void {
    const feed = this.#text.indexOf('\n', this.#at);
    this.#at = feed < 0 ? this.#text.length : feed;
  }

  /** Returns the code of the next character, or NaN at the end of the text. */
  #next(): number {
    return this.#text.charCodeAt(this.#at);
  }

  #isLineEnd(): boolean {
    const last = this.#text.length - 1;
    if (this.#at > last || this.#next() === FEED) return true;
    return this.#next() === RETURN && (this.#at === last || this.#text.charCodeAt(this.#at + 1) === FEED);
  }
}

/** Splits the measurement and Influx tags of a line, as written, at the delimiters that are not escaped. */
function parsedHead(head: string): { measurement: string; tags: ReadonlyMap<string, string> } {
  const [measurement = '', ...tags] = head.split(/(?<!\\),/);
  const pairs = tags.map((tag) => tag.split(/(?<!\\)=/).map(unescaped) as [string, string]);
  return { measurement, tags: new Map(pairs) };
}

function unescaped(name: string): string {
  return name.replaceAll(/\\([,= ])/g, '$1');
}

/** Returns how two Influx series that have the same tag and key differ; `undefined` if they are the same series. */
function difference(head: string, other: string): string | undefined {
  const [mine, others] = [parsedHead(head), parsedHead(other)];
  const names = [...mine.tags.keys(), ...others.tags.keys()];
  const name = names.find((one) => mine.tags.get(one) !== others.tags.get(one));
  if (name !== undefined) {
    const hint = `INGEST_KEY_FROM={field}_{${name}} would make it part of the key`;
    return `${SAME_KEY} and differs in the Influx tag ${quote(name)}: ${hint}`;
  }
  return mine.measurement === others.measurement ? undefined : `${SAME_KEY} and differs in the measurement`;
}

const precisionFix = (unit: TimeUnit) => `use precision=${unit}`;
const missingTag = (tagFrom = '') => `the line has no tag ${quote(tagFrom)}, which INGEST_TAG_FROM specifies`;
const wrongField = (tag: string, field: string, what: string) => `the field ${quote(field)} of ${quote(tag)} ${what}`;
const unmappedField = (tag: string, field: string, raw: RawReading, map: ValueMap | undefined) =>
  wrongField(tag, field, `has a value without a number: ${problemOfReading(raw, map)}`);

function isFieldEnd(code: number): boolean {
  return code === COMMA || code === SPACE || code === TAB || code === FEED || code === RETURN;
}

/** Returns the number or boolean in a field, or the reason why the field contains neither. */
function fieldValue(text: string): number | boolean | string {
  const value = parseDecimal(text);
  if (Number.isFinite(value)) return value;
  if (/^(t|T|true|True|TRUE)$/.test(text)) return true;
  if (/^(f|F|false|False|FALSE)$/.test(text)) return false;
  if (!/[iu]$/.test(text)) return 'is not a number';
  if (!/^([+-]?\d+i|\+?\d+u)$/.test(text)) return 'is not an integer';
  const integer = Number(text.slice(0, -1));
  return Number.isSafeInteger(integer) ? integer : 'exceeds 2^53 and would lose precision';
}
