import { parseDecimal } from '../decimal-text.ts';
import { UnreadableValues } from '../problem-list.ts';

/**
 * InfluxDB line protocol, the whole of it: `measurement,tag=x field=1.5,other=2i 1700000000000000000`.
 * Escapes by backslash, comments, quoted strings over several lines, integers (`i`, `u`), booleans, `\r\n`. The parser
 * knows nothing of tags.yaml: what it reads it tells a receiver, in the order of the text.
 */
export interface LineReceiver {
  /** Before the fields of a line: the place of its measurement and Influx tags in the text (`readHead`). */
  head?(from: number, to: number): void;
  /** A field that is a number; booleans are 1 and 0. `name`: the measurement, or the tag that was asked for, where it is there. */
  number(name: string | undefined, key: string, value: number): void;
  /** A field that cannot be one. */
  wrong(name: string | undefined, key: string, problem: string): void;
  /** After the fields of each line: its time in whole milliseconds (rounded down, in any range), NaN where it has none. */
  endOfLine(timeMs: number): void;
  /** A line is not of the protocol, what came of it before included. `true`: the next is read; else it is thrown. */
  unreadable?(error: UnreadableValues): boolean;
}

/** What `precision` may be, in milliseconds; InfluxDB 1 and 2 spell differently. */
const MS_OF_PRECISION: Readonly<Record<string, number>> = {
  ns: 1e-6,
  n: 1e-6,
  us: 1e-3,
  u: 1e-3,
  µ: 1e-3, // the micro sign
  µs: 1e-3,
  μ: 1e-3, // the Greek letter
  μs: 1e-3,
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
};

export const PRECISIONS: readonly string[] = ['ns', 'us', 'ms', 's', 'm', 'h'];

/** The unit of the timestamps in milliseconds; `undefined` where `precision` is not known. Nanoseconds unless told. */
export function msOfPrecision(precision: string | null): number | undefined {
  return precision === null || precision === '' ? 1e-6 : MS_OF_PRECISION[precision];
}

const BACKSLASH = 92;
const COMMA = 44;
const EQUALS = 61;
const FEED = 10;
const HASH = 35;
const QUOTE = 34;
const RETURN = 13;
const SPACE = 32;
const TAB = 9;

/** Throws `UnreadableValues` with the line's number where a line is not of the protocol; the receiver has then heard what came before. */
export function parseLineProtocol(text: string, msOfUnit: number, receiver: LineReceiver, tagFrom?: string): void {
  new LineParser(text, msOfUnit, receiver, tagFrom).run();
}

class LineParser {
  readonly #text: string;
  readonly #length: number;
  readonly #msOfUnit: number;
  readonly #receiver: LineReceiver;
  readonly #tagFrom: string | undefined;
  #at = 0;
  /** Line feeds before `#countedTo`, for the number of a line that is wrong. */
  #feeds = 0;
  #countedTo = 0;
  /** The measurement, or the value of the tag that was asked for. */
  #name: string | undefined;
  /** The last measurement and key, as written and as meant: neighbours are often of the same, and then nothing is cut out. */
  #rawMeasurement = '';
  #measurement = '';
  #rawKey = '';
  #key = '';

  constructor(text: string, msOfUnit: number, receiver: LineReceiver, tagFrom: string | undefined) {
    this.#tagFrom = tagFrom;
    this.#text = text;
    this.#length = text.length;
    this.#msOfUnit = msOfUnit;
    this.#receiver = receiver;
  }

  run(): void {
    while (this.#at < this.#length) {
      this.#skipBlanks();
      const first = this.#text.charCodeAt(this.#at);
      if (first === HASH) {
        const feed = this.#text.indexOf('\n', this.#at);
        this.#at = feed < 0 ? this.#length : feed + 1;
      } else if (!this.#isLineEnd()) {
        this.#readLine();
      }
      if (this.#text.charCodeAt(this.#at) === RETURN) this.#at++;
      if (this.#text.charCodeAt(this.#at) === FEED) this.#at++;
    }
  }

  #readLine(): void {
    try {
      this.#line();
    } catch (error) {
      if (!(error instanceof UnreadableValues) || !this.#receiver.unreadable?.(error)) throw error;
      const feed = this.#text.indexOf('\n', this.#at);
      this.#at = feed < 0 ? this.#length : feed;
    }
  }

  #line(): void {
    const start = this.#at;
    this.#readMeasurement();
    this.#name = this.#tagFrom === undefined ? this.#measurement : undefined;
    while (this.#text.charCodeAt(this.#at) === COMMA) this.#skipTag();
    this.#receiver.head?.(start, this.#at);
    this.#skipBlanks();
    if (this.#isLineEnd()) throw this.#unreadable('fields are missing');
    for (;;) {
      this.#field();
      if (this.#text.charCodeAt(this.#at) !== COMMA) break;
      this.#at++;
    }
    this.#skipBlanks();
    const timeMs = this.#isLineEnd() ? Number.NaN : this.#time();
    this.#skipBlanks();
    if (!this.#isLineEnd()) throw this.#unreadable('something stands behind the timestamp');
    this.#receiver.endOfLine(timeMs);
  }

  #readMeasurement(): void {
    const text = this.#text;
    const start = this.#at;
    const known = this.#rawMeasurement.length;
    if (known > 0 && text.startsWith(this.#rawMeasurement, start)) {
      const next = text.charCodeAt(start + known);
      if (next === COMMA || next === SPACE) {
        this.#at = start + known;
        return;
      }
    }
    this.#skipName(false);
    if (this.#at === start) throw this.#unreadable('the measurement is missing');
    this.#rawMeasurement = text.slice(start, this.#at);
    this.#measurement = unescaped(this.#rawMeasurement, /\\([, ])/g);
  }

  /** `,key=value` of the measurement's tags: checked, then left alone unless it was asked for. */
  #skipTag(): void {
    this.#at++;
    const key = this.#at;
    this.#skipName(true);
    if (this.#at === key || this.#text.charCodeAt(this.#at) !== EQUALS) throw this.#unreadable('a tag has no value');
    this.#at++;
    const value = this.#at;
    this.#skipName(true);
    if (this.#at === value || this.#text.charCodeAt(this.#at) === EQUALS)
      throw this.#unreadable('a tag is not key=value');
    if (this.#tagFrom === undefined) return;
    const name = unescaped(this.#text.slice(key, value - 1), /\\([,= ])/g);
    if (name === this.#tagFrom) this.#name = unescaped(this.#text.slice(value, this.#at), /\\([,= ])/g);
  }

  #field(): void {
    this.#readKey();
    const text = this.#text;
    const start = ++this.#at;
    if (text.charCodeAt(start) === QUOTE) {
      this.#skipString();
      this.#receiver.wrong(this.#name, this.#key, 'is a string: only numbers can be sent');
    } else {
      while (this.#at < this.#length) {
        const code = text.charCodeAt(this.#at);
        if (code === COMMA || code === SPACE || code === TAB || code === FEED || code === RETURN) break;
        this.#at++;
      }
      if (this.#at === start) throw this.#unreadable('a field has no value');
      this.#value(start, this.#at);
    }
    const next = text.charCodeAt(this.#at);
    if (next !== COMMA && next !== SPACE && next !== TAB && !this.#isLineEnd()) {
      throw this.#unreadable('something stands behind a field');
    }
  }

  #readKey(): void {
    const text = this.#text;
    const start = this.#at;
    const known = this.#rawKey.length;
    if (known > 0 && text.startsWith(this.#rawKey, start) && text.charCodeAt(start + known) === EQUALS) {
      this.#at = start + known;
      return;
    }
    this.#skipName(true);
    if (this.#at === start || text.charCodeAt(this.#at) !== EQUALS) throw this.#unreadable('a field is not key=value');
    this.#rawKey = text.slice(start, this.#at);
    this.#key = unescaped(this.#rawKey, /\\([,= ])/g);
  }

  #value(from: number, to: number): void {
    const text = this.#text;
    const last = text.charCodeAt(to - 1);
    if (last === 105 || last === 117) {
      this.#integer(from, to - 1, last === 117);
      return;
    }
    let value = parseDecimal(text, from, to);
    if (Number.isNaN(value) && to - from <= 5) {
      const word = text.slice(from, to);
      if (/^(t|T|true|True|TRUE)$/.test(word)) value = 1;
      else if (/^(f|F|false|False|FALSE)$/.test(word)) value = 0;
    }
    if (Number.isFinite(value)) this.#receiver.number(this.#name, this.#key, value);
    else this.#receiver.wrong(this.#name, this.#key, 'is not a number');
  }

  #integer(from: number, to: number, unsigned: boolean): void {
    const text = this.#text;
    const sign = text.charCodeAt(from);
    let at = sign === 45 || sign === 43 ? from + 1 : from;
    const hasDigits = at < to;
    while (at < to && isDigit(text.charCodeAt(at))) at++;
    const value = hasDigits && at === to && !(unsigned && sign === 45) ? Number(text.slice(from, to)) : Number.NaN;
    if (Number.isSafeInteger(value)) this.#receiver.number(this.#name, this.#key, value);
    else if (Number.isNaN(value)) this.#receiver.wrong(this.#name, this.#key, 'is not an integer');
    else this.#receiver.wrong(this.#name, this.#key, 'is beyond 2^53, where a number loses its last digits');
  }

  /** Whole milliseconds, rounded down: from the digits themselves, because nanoseconds do not fit a double. */
  #time(): number {
    const text = this.#text;
    const start = this.#at;
    const negative = text.charCodeAt(start) === 45;
    if (negative) this.#at++;
    const first = this.#at;
    while (isDigit(text.charCodeAt(this.#at))) this.#at++;
    if (this.#at === first || this.#at - first > 20) throw this.#unreadable('the timestamp is not an integer');
    const dropped = this.#msOfUnit === 1e-6 ? 6 : this.#msOfUnit === 1e-3 ? 3 : 0;
    if (dropped === 0) return Number(text.slice(start, this.#at)) * this.#msOfUnit;
    const kept = this.#at - dropped;
    if (!negative) return kept > first ? Number(text.slice(first, kept)) : 0;
    // Before 1970: out of every range that is taken, so only the sign must be right.
    return -1 - (kept > first ? Number(text.slice(first, kept)) : 0);
  }

  /** Over a measurement, or a key or value of a tag (`atEquals`: these end at `=` too). A character behind a backslash ends nothing. */
  #skipName(atEquals: boolean): void {
    const text = this.#text;
    let at = this.#at;
    for (; at < this.#length; at++) {
      const code = text.charCodeAt(at);
      if (code === COMMA || code === SPACE || code === FEED || (atEquals && code === EQUALS)) break;
      if (code === RETURN && (text.charCodeAt(at + 1) === FEED || at + 1 === this.#length)) break;
      if (code === BACKSLASH) {
        const next = text.charCodeAt(at + 1);
        if (next === COMMA || next === SPACE || next === EQUALS) at++;
      }
    }
    this.#at = at;
  }

  #skipString(): void {
    const text = this.#text;
    for (this.#at++; this.#at < this.#length; this.#at++) {
      const code = text.charCodeAt(this.#at);
      if (code === BACKSLASH) {
        const next = text.charCodeAt(this.#at + 1);
        if (next === QUOTE || next === BACKSLASH) this.#at++;
      } else if (code === QUOTE) {
        this.#at++;
        return;
      }
    }
    throw this.#unreadable('a string has no end');
  }

  #skipBlanks(): void {
    for (;;) {
      const code = this.#text.charCodeAt(this.#at);
      if (code !== SPACE && code !== TAB) return;
      this.#at++;
    }
  }

  #isLineEnd(): boolean {
    if (this.#at >= this.#length) return true;
    const code = this.#text.charCodeAt(this.#at);
    if (code === FEED) return true;
    const last = this.#at + 1 >= this.#length;
    return code === RETURN && (last || this.#text.charCodeAt(this.#at + 1) === FEED);
  }

  #unreadable(what: string): UnreadableValues {
    // Counted on from the last fault: where every line has one, counting from the beginning is the square of the body.
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

/** The measurement and the Influx tags of a line, from its text up to the fields. */
export interface InfluxHead {
  measurement: string;
  tags: ReadonlyMap<string, string>;
}

/** The head that begins at `from`. */
export function headAt(text: string, from: number): InfluxHead {
  let to = from;
  while (to < text.length && text[to] !== ' ') to += text[to] === '\\' && ',= '.includes(text[to + 1] ?? 'x') ? 2 : 1;
  return readHead(text.slice(from, to));
}

/** Reads a head that `parseLineProtocol` has found sound. */
export function readHead(written: string): InfluxHead {
  const [measurement = '', ...pairs] = written.match(/(?:\\[,= ]|[^,])+/g) ?? [];
  const tags = new Map<string, string>();
  for (const pair of pairs) {
    const [key = '', value = ''] = pair.match(/(?:\\[,= ]|[^=])+/g) ?? [];
    tags.set(unescaped(key, /\\([,= ])/g), unescaped(value, /\\([,= ])/g));
  }
  return { measurement: unescaped(measurement, /\\([, ])/g), tags };
}

/** Most names have no backslash, and looking for one is much cheaper than replacing none. */
function unescaped(raw: string, escapes: RegExp): string {
  return raw.includes('\\') ? raw.replaceAll(escapes, '$1') : raw;
}

function isDigit(code: number): boolean {
  return code >= 48 && code <= 57;
}
