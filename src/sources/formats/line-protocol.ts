import { UnreadableValues } from '../intake/problem-list.ts';
import { parseDecimal } from '../intake/text-parsers.ts';

/**
 * Complete parser for InfluxDB line protocol: `measurement,tag=x field=1.5,other=2i 1700000000000000000`. Supports
 * backslash escapes, comments, multi-line quoted strings, integers (`i`, `u`), booleans and `\r\n`. Does not depend on
 * tags.yaml. Reports parsed items to a receiver in input order.
 */
export interface LineReceiver {
  /** Called before the fields of a line, with the offsets of its measurement and Influx tags (`headAt`). */
  head?(from: number, to: number): void;
  /**
   * Called for a number or a boolean. `name` is the measurement, or the value of the requested Influx tag if present.
   */
  value(name: string | undefined, key: string, value: number | boolean): void;
  /** Called for a string. */
  text(name: string | undefined, key: string, text: string): void;
  /** Called for a field that is not a number. */
  wrong(name: string | undefined, key: string, problem: string): void;
  /**
   * Called after the fields of each line, with the line's time in whole milliseconds (rounded down, not range-checked),
   * or NaN if the line contains no time.
   */
  endOfLine(timeMs: number): void;
  /**
   * Called for an invalid line, including a line whose first fields were already reported. If it returns `true`,
   * parsing continues; otherwise, the error is thrown.
   */
  unreadable?(error: UnreadableValues): boolean;
}

/** Milliseconds per `precision` unit, in the spellings of InfluxDB 1 and 2. */
const MS_OF_PRECISION: Readonly<Record<string, number>> = {
  ns: 1e-6,
  n: 1e-6,
  us: 1e-3,
  u: 1e-3,
  µ: 1e-3, // micro sign
  µs: 1e-3,
  μ: 1e-3, // Greek letter mu
  μs: 1e-3,
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
};

export const PRECISIONS: readonly string[] = ['ns', 'us', 'ms', 's', 'm', 'h'];

/** Returns the timestamp unit in milliseconds, or `undefined` for an unknown `precision`. Default: nanoseconds. */
export function msOfPrecision(precision: string | null): number | undefined {
  return precision === null || precision === '' ? 1e-6 : MS_OF_PRECISION[precision];
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

/**
 * Parses a text. Throws `UnreadableValues` with the number of the first invalid line, unless the receiver handles the
 * error. Earlier lines have already been reported to the receiver.
 */
export function parseLineProtocol(text: string, msOfUnit: number, receiver: LineReceiver, tagFrom?: string): void {
  new LineParser(text).parse(msOfUnit, receiver, tagFrom);
}

/** Measurement and Influx tags of a line. */
export interface InfluxHead {
  measurement: string;
  tags: ReadonlyMap<string, string>;
}

/** Returns the head of the valid line that begins at `from`. */
export function headAt(text: string, from: number): InfluxHead {
  return new LineParser(text, from).head();
}

class LineParser {
  readonly #text: string;
  #at: number;
  /** Number of line feeds before `#countedTo`, used to determine the line number of an error. */
  #feeds = 0;
  #countedTo = 0;

  constructor(text: string, at = 0) {
    this.#text = text;
    this.#at = at;
  }

  parse(msOfUnit: number, receiver: LineReceiver, tagFrom: string | undefined): void {
    while (this.#at < this.#text.length) {
      this.#skipBlanks();
      if (this.#next() === HASH) this.#skipLine();
      else if (!this.#isLineEnd()) {
        try {
          this.#line(msOfUnit, receiver, tagFrom);
        } catch (error) {
          if (!(error instanceof UnreadableValues) || !receiver.unreadable?.(error)) throw error;
          this.#skipLine();
        }
      }
      if (this.#next() === RETURN) this.#at++;
      if (this.#next() === FEED) this.#at++;
    }
  }

  head(): InfluxHead {
    const measurement = this.#measurement();
    const tags = new Map<string, string>();
    while (this.#next() === COMMA) tags.set(...this.#tag());
    return { measurement, tags };
  }

  #line(msOfUnit: number, receiver: LineReceiver, tagFrom: string | undefined): void {
    const start = this.#at;
    const measurement = this.#measurement();
    let name = tagFrom === undefined ? measurement : undefined;
    while (this.#next() === COMMA) {
      const [key, value] = this.#tag();
      if (key === tagFrom) name = value;
    }
    receiver.head?.(start, this.#at);
    this.#skipBlanks();
    if (this.#isLineEnd()) throw this.#unreadable('fields are missing');
    for (;;) {
      this.#field(name, receiver);
      if (this.#next() !== COMMA) break;
      this.#at++;
    }
    this.#skipBlanks();
    const timeMs = this.#isLineEnd() ? Number.NaN : this.#time(msOfUnit);
    this.#skipBlanks();
    if (!this.#isLineEnd()) throw this.#unreadable('unexpected text after the timestamp');
    receiver.endOfLine(timeMs);
  }

  #measurement(): string {
    const measurement = this.#name(false);
    if (measurement === '') throw this.#unreadable('the measurement is missing');
    return measurement;
  }

  /** Reads an Influx tag in the form `,key=value`. */
  #tag(): [key: string, value: string] {
    this.#at++;
    const key = this.#name(true);
    if (key === '' || this.#next() !== EQUALS) throw this.#unreadable('a tag has no value');
    this.#at++;
    const value = this.#name(true);
    if (value === '' || this.#next() === EQUALS) throw this.#unreadable('a tag is not key=value');
    return [key, value];
  }

  #field(name: string | undefined, receiver: LineReceiver): void {
    const key = this.#name(true);
    if (key === '' || this.#next() !== EQUALS) throw this.#unreadable('a field is not key=value');
    const start = ++this.#at;
    if (this.#next() === QUOTE) {
      receiver.text(name, key, this.#string());
    } else {
      let at = start;
      while (at < this.#text.length && !isFieldEnd(this.#text.charCodeAt(at))) at++;
      if (at === start) throw this.#unreadable('a field has no value');
      this.#at = at;
      const value = fieldValue(this.#text.slice(start, at));
      if (typeof value === 'string') receiver.wrong(name, key, value);
      else receiver.value(name, key, value);
    }
    if (this.#at < this.#text.length && !isFieldEnd(this.#next())) {
      throw this.#unreadable('unexpected text after a field');
    }
  }

  /** Derives whole milliseconds from the digits, because nanoseconds exceed the precision of a double. */
  #time(msOfUnit: number): number {
    const text = this.#text;
    const isNegative = this.#next() === MINUS;
    const start = isNegative ? this.#at + 1 : this.#at;
    let end = start;
    for (let code = text.charCodeAt(end); code >= 48 && code <= 57; code = text.charCodeAt(end)) end++;
    if (end === start || end - start > 20) throw this.#unreadable('the timestamp is not an integer');
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
    return isEscaped ? name.replaceAll(endsAtEquals ? /\\([,= ])/g : /\\([, ])/g, '$1') : name;
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
    throw this.#unreadable('unterminated string');
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

  #unreadable(what: string): UnreadableValues {
    // Count from the previous error. Counting from the start would be quadratic if every line were invalid.
    for (;;) {
      const feed = this.#text.indexOf('\n', this.#countedTo);
      if (feed < 0 || feed >= this.#at) break;
      this.#feeds++;
      this.#countedTo = feed + 1;
    }
    return new UnreadableValues(
      `line ${this.#feeds + 1}: ${what}`,
      'Send lines of the InfluxDB line protocol: measurement field=1.5 1700000000000000000.',
    );
  }
}

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
