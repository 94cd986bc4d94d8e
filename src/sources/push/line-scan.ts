import type { Draft } from '../draft.ts';
import { type LineField, type LineHead, type LineMemory, MAX_REMEMBERED_BYTES } from '../line-memory.ts';
import type { Slot } from '../slot.ts';
import type { KeyTemplate } from './key-template.ts';
import { readHead } from './line-protocol.ts';
import { numberBetween } from './plain-json.ts';

/**
 * The short way for lines as collectors write them: plain names, plain decimal numbers or integers, a time in digits. As with JSON
 * it goes over the bytes once, knows what lines begin with from the requests before, and decides nothing: at anything else (an
 * escape, a string, an exponent, a mistake) it answers false, and the body is read by the parser, which finds the words.
 */
export interface LineRules {
  /** Milliseconds of one unit of the timestamps. */
  msOfUnit: number;
  /** The Influx tag that names the tag; `undefined`: the measurement does. */
  tagFrom: string | undefined;
  /** `undefined`: the field is the key. */
  keyFrom?: KeyTemplate | undefined;
  /** Whether a time may stand behind a line. */
  takes(timeMs: number): boolean;
}

export function readPlainLineProtocol(bytes: Buffer, rules: LineRules, draft: Draft): boolean {
  return new LineScan(bytes, rules, draft).run();
}

const FEED = 10;
const RETURN = 13;
const SPACE = 32;
const QUOTE = 34;
const HASH = 35;
const COMMA = 44;
const MINUS = 45;
const POINT = 46;
const EQUALS = 61;
const BACKSLASH = 92;
const LETTER_I = 105;

class LineScan {
  readonly #text: Buffer;
  readonly #rules: LineRules;
  readonly #draft: Draft;
  readonly #memory: LineMemory;
  readonly #dropped: number;
  #at = 0;
  /** The first field of the last line. */
  #last: LineField | undefined;
  readonly #slots: Slot[] = [];
  readonly #values: number[] = [];
  #lastTimeFrom = 0;
  #lastTimeLength = 0;
  #lastTimeMs = Number.NaN;

  constructor(text: Buffer, rules: LineRules, draft: Draft) {
    this.#text = text;
    this.#rules = rules;
    this.#draft = draft;
    this.#memory = draft.lines;
    this.#dropped = rules.msOfUnit === 1e-6 ? 6 : rules.msOfUnit === 1e-3 ? 3 : 0;
  }

  run(): boolean {
    const text = this.#text;
    const { tagFrom, keyFrom } = this.#rules;
    this.#memory.begin(`${tagFrom ?? ''} ${keyFrom?.text ?? ''}`);
    const { forgettings } = this.#memory;
    while (this.#at < text.length) {
      if (text[this.#at] === FEED) this.#at++;
      else if (!this.#line()) return false;
    }
    // What was forgotten meanwhile may have been the head of another Influx series with the same keys.
    return this.#memory.forgettings === forgettings;
  }

  #line(): boolean {
    const text = this.#text;
    let field = this.#start();
    let count = 0;
    for (;;) {
      if (field === undefined || field.isShared || !this.#value(field, count++)) return false;
      if (text[this.#at] !== COMMA) break;
      this.#at++;
      field = this.#field(field.head, field);
    }
    let timeMs = Number.NaN;
    if (text[this.#at] === SPACE) {
      this.#at++;
      timeMs = this.#time();
      if (Number.isNaN(timeMs)) return false;
    }
    if (text[this.#at] === RETURN) this.#at++;
    const end = text[this.#at];
    if (end !== FEED && end !== undefined) return false;
    for (let at = 0; at < count; at++) this.#draft.add(this.#slots[at]!, this.#values[at]!, timeMs, 0);
    return true;
  }

  /** The head and the first field of a line, and goes behind them. */
  #start(): LineField | undefined {
    const expected = this.#last?.nextLine;
    if (expected !== undefined && this.#isAt(expected.start)) {
      this.#at += expected.start.length;
      this.#last = expected;
      return expected;
    }
    const head = this.#head();
    const field = head && this.#field(head, undefined);
    if (field === undefined) return undefined;
    if (this.#last !== undefined) this.#last.nextLine = field;
    this.#last = field;
    return field;
  }

  /** The head at this place, and goes behind it; `undefined` for any that is not plain, or names no tag. */
  #head(): LineHead | undefined {
    const text = this.#text;
    const from = this.#at;
    let at = from;
    for (; ; at++) {
      const code = text[at];
      if (code === SPACE) break;
      if (code === undefined || code < SPACE || code === BACKSLASH || code === QUOTE) return undefined;
    }
    if (at === from || at - from > MAX_REMEMBERED_BYTES || text[from] === HASH || text[from] === COMMA)
      return undefined;
    const written = text.toString('latin1', from, at);
    let head = this.#memory.find(written);
    if (head === undefined) {
      const tag = tagOf(text.toString('utf8', from, at), this.#rules.tagFrom);
      if (tag === undefined) return undefined;
      head = this.#memory.rememberHead(written, Uint8Array.from(text.subarray(from, at + 1)), tag);
    }
    this.#at = at + 1;
    return head;
  }

  #field(head: LineHead, before: LineField | undefined): LineField | undefined {
    const expected = before?.next;
    if (expected !== undefined && this.#isAt(expected.bytes)) {
      this.#at += expected.bytes.length;
      return expected;
    }
    const text = this.#text;
    const from = this.#at;
    let at = from;
    for (; ; at++) {
      const code = text[at];
      if (code === EQUALS) break;
      if (code === undefined || code <= SPACE || code === COMMA || code === BACKSLASH || code === QUOTE)
        return undefined;
    }
    if (at === from || at - from > MAX_REMEMBERED_BYTES) return undefined;
    const key = text.toString('utf8', from, at);
    let field = head.byKey.get(key);
    if (field === undefined) {
      const slot = this.#draft.findSlot(head.tag, this.#keyOf(key, head));
      if (slot === undefined) return undefined;
      field = this.#memory.rememberField(head, key, Uint8Array.from(text.subarray(from, at + 1)), slot);
    }
    if (before !== undefined) before.next = field;
    this.#at = at + 1;
    return field;
  }

  #keyOf(field: string, { bytes }: LineHead): string {
    const { keyFrom } = this.#rules;
    if (keyFrom === undefined) return field;
    return keyFrom.keyOf(field, readHead(Buffer.from(bytes).toString('utf8', 0, bytes.length - 1)).tags);
  }

  /** The number behind a field's key: it is value `place` of its line. */
  #value({ slot }: LineField, place: number): boolean {
    const text = this.#text;
    const from = this.#at;
    let at = text[from] === MINUS ? from + 1 : from;
    const first = at;
    while (isDigit(text[at])) at++;
    if (at === first) return false;
    const isWhole = text[at] !== POINT;
    if (!isWhole) {
      const point = at++;
      while (isDigit(text[at])) at++;
      if (at === point + 1) return false;
    }
    const value = numberBetween(text, from, at);
    if (text[at] === LETTER_I) {
      if (!isWhole || !Number.isSafeInteger(value)) return false;
      at++;
    }
    const next = text[at];
    if (next !== COMMA && next !== SPACE && next !== FEED && next !== RETURN && next !== undefined) return false;
    if (!Number.isFinite(value)) return false;
    this.#slots[place] = slot;
    this.#values[place] = value;
    this.#at = at;
    return true;
  }

  /** Whole milliseconds, rounded down; NaN for what is no plain time. Lines of one moment come together. */
  #time(): number {
    const text = this.#text;
    const from = this.#at;
    let at = from;
    while (isDigit(text[at])) at++;
    const length = at - from;
    if (length === 0 || length > 20) return Number.NaN;
    this.#at = at;
    if (length === this.#lastTimeLength) {
      const shift = this.#lastTimeFrom - from;
      let behind = at - 1;
      while (behind >= from && text[behind] === text[behind + shift]) behind--;
      if (behind < from) return this.#lastTimeMs;
    }
    const kept = at - this.#dropped;
    let whole = 0;
    if (kept - from > 15) whole = Number(text.toString('latin1', from, kept));
    else for (let digit = from; digit < kept; digit++) whole = whole * 10 + (text[digit]! - 48);
    this.#lastTimeFrom = from;
    this.#lastTimeLength = length;
    const timeMs = this.#dropped > 0 ? whole : whole * this.#rules.msOfUnit;
    this.#lastTimeMs = this.#rules.takes(timeMs) ? timeMs : Number.NaN;
    return this.#lastTimeMs;
  }

  #isAt(expected: Uint8Array): boolean {
    const text = this.#text;
    const from = this.#at;
    const { length } = expected;
    for (let at = 0; at < length; at++) if (text[from + at] !== expected[at]) return false;
    return true;
  }
}

/** The tag that a plain head means; `undefined` where the head is not sound, or names none. */
function tagOf(head: string, tagFrom: string | undefined): string | undefined {
  const [measurement, ...pairs] = head.split(',');
  if (measurement === '' || head.includes('\ufffd')) return undefined;
  let tag = tagFrom === undefined ? measurement : undefined;
  for (const pair of pairs) {
    const equals = pair.indexOf('=');
    if (equals <= 0 || equals === pair.length - 1 || pair.includes('=', equals + 1)) return undefined;
    if (pair.slice(0, equals) === tagFrom) tag = pair.slice(equals + 1);
  }
  return tag;
}

function isDigit(code: number | undefined): boolean {
  return code !== undefined && code >= 48 && code <= 57;
}
