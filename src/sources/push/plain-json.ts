import { STATUS_FLAGS } from '../../buffer/format/value-columns.ts';
import { type Draft, isTimeTaken, ON_ARRIVAL } from '../draft.ts';
import { parseIsoBytes } from '../iso-time.ts';
import type { Slot } from '../slot.ts';

/**
 * The short way for what nearly every pusher sends: values with `tag` and `key`, or `asset`, `key`, `unit` and `group`, with
 * `value`, `timestamp` and `status`, plain strings, plain decimal numbers, nothing wrong. It goes over the bytes once, straight into columns, in less time than
 * `JSON.parse` alone; no object is made and hardly a string. Bytes, because V8 reads them several times faster than letters.
 *
 * It decides nothing: at anything else (an escape, an exponent, another member, a mistake, an unknown tag) it answers
 * false, and the body is read by `JSON.parse` from its beginning, which finds the words for what is wrong. So what it takes must be taken there
 * with the same result; a test of random bodies holds the two together.
 */
export function readPlainBody(bytes: Buffer, draft: Draft): boolean {
  const scan = new PlainScan(bytes, draft);
  return (
    scan.literal(START) &&
    scan.literal(VALUES) &&
    scan.literal(COLON_ALONE) &&
    scan.list() &&
    scan.literal(END) &&
    scan.atEnd()
  );
}

/** The same for NDJSON. */
export function readPlainLines(bytes: Buffer, draft: Draft): boolean {
  return new PlainScan(bytes, draft).lines();
}

/** An address of more bytes is blanks for the most part, and not worth keeping. */
const MAX_WRITTEN_LENGTH = 512;

const QUOTE = 34;
const COMMA = 44;
const MINUS = 45;
const POINT = 46;
const COLON = 58;
const BACKSLASH = 92;
const CLOSE_LIST = 93;
const OPEN = 123;
const CLOSE = 125;

const TAG = 1;
const KEY = 2;
const ASSET = 4;
const UNIT = 8;
const GROUP = 16;
const ADDRESS = TAG | KEY | ASSET | UNIT | GROUP;
const VALUE = 32;
const TIMESTAMP = 64;
const STATUS = 128;

class PlainScan {
  readonly #text: Buffer;
  readonly #draft: Draft;
  #at = 0;
  /** The last value's slot, and the one that is expected to come now. */
  #last: Slot | undefined;
  /** The last timestamp that was a text. */
  #timeFrom = 0;
  #timeLength = 0;
  #timeMs = Number.NaN;

  constructor(text: Buffer, draft: Draft) {
    this.#text = text;
    this.#draft = draft;
  }

  literal(expected: Uint8Array): boolean {
    this.#at = this.#skipBlanks(this.#at);
    if (!isAt(this.#text, this.#at, expected)) return false;
    this.#at += expected.length;
    return true;
  }

  atEnd(): boolean {
    return this.#skipBlanks(this.#at) === this.#text.length;
  }

  list(): boolean {
    if (!this.literal(LIST)) return false;
    this.#at = this.#skipBlanks(this.#at);
    if (this.#text[this.#at] === CLOSE_LIST) {
      this.#at++;
      return true;
    }
    for (;;) {
      if (!this.#item(true)) return false;
      const at = this.#skipBlanks(this.#at);
      const code = this.#text[at];
      this.#at = this.#skipBlanks(at + 1);
      if (code === CLOSE_LIST) return true;
      if (code !== COMMA) return false;
    }
  }

  lines(): boolean {
    const { length } = this.#text;
    for (;;) {
      // Empty lines, and blanks around a value, are blanks.
      this.#at = this.#skipBlanks(this.#at);
      if (this.#at === length) return true;
      if (!this.#item(false)) return false;
      this.#at = this.#skipWithinLine(this.#at);
      if (this.#at < length && this.#text[this.#at] !== 10) return false;
    }
  }

  /**
   * One object. `overLines`: line feeds between its parts are blanks. An address that was written in the same way before
   * is known by its bytes; any other is read member by member.
   */
  #item(overLines: boolean): boolean {
    const text = this.#text;
    const start = this.#at;
    if (text[start] !== OPEN) return false;
    let slot = this.#expected(start);
    let at = slot === undefined ? start : start + slot.written.length;
    /** Where the address ends, as long as nothing else came before it. */
    let addressTo = -1;
    let members = 0;
    let tagFrom = 0;
    let tagTo = 0;
    let keyFrom = 0;
    let keyTo = 0;
    let groupFrom = 0;
    let groupTo = 0;
    let asset = 0;
    let unit = 0;
    let value = 0;
    let timeMs = ON_ARRIVAL;
    let flag = 0;
    for (;;) {
      at++;
      if (text[at]! <= 32) at = this.#skip(at, overLines);
      if (text[at] !== QUOTE) return false;
      const member = memberAt(text, at + 1);
      if (member === 0 || (members & member) !== 0) return false;
      const isAddress = (member & ADDRESS) !== 0;
      if (isAddress && slot !== undefined) {
        // The address goes on: it is another, and the object is read again.
        slot = undefined;
        members = 0;
        at = start;
        continue;
      }
      members |= member;
      at += 1 + NAME_LENGTHS[member]!;
      if (text[at]! <= 32) at = this.#skip(at, overLines);
      if (text[at] !== COLON) return false;
      at++;
      if (text[at]! <= 32) at = this.#skip(at, overLines);
      if ((member & (VALUE | ASSET | UNIT)) !== 0) {
        const end = endOfNumber(text, at);
        if (end < 0) return false;
        const number = numberBetween(text, at, end);
        if (member === VALUE) value = number;
        else if (member === ASSET) asset = number;
        else unit = number;
        at = end;
      } else if (text[at] === QUOTE) {
        const from = at + 1;
        const end = endOfString(text, from);
        if (end < 0) return false;
        if (member === TAG) {
          tagFrom = from;
          tagTo = end;
        } else if (member === KEY) {
          keyFrom = from;
          keyTo = end;
        } else if (member === GROUP) {
          groupFrom = from;
          groupTo = end;
        } else if (member === TIMESTAMP) {
          timeMs = this.#timeBetween(from, end);
          if (!isTimeTaken(timeMs)) return false;
        } else {
          flag = flagAt(text, from);
          if (flag === 0) return false;
        }
        at = end + 1;
      } else if (member === TIMESTAMP) {
        const end = endOfNumber(text, at);
        if (end < 0) return false;
        timeMs = numberBetween(text, at, end);
        if (!this.#draft.takesNumber(timeMs)) return false;
        at = end;
      } else {
        return false;
      }
      if (isAddress) addressTo = (members & ~ADDRESS) === 0 ? at : -1;
      if (text[at]! <= 32) at = this.#skip(at, overLines);
      const code = text[at];
      if (code === CLOSE) break;
      if (code !== COMMA) return false;
    }
    if ((members & VALUE) === 0 || !Number.isFinite(value)) return false;
    if (slot === undefined) {
      const address = members & ADDRESS;
      if ((address & KEY) === 0) return false;
      const key = text.toString('utf8', keyFrom, keyTo);
      if (address === (TAG | KEY)) {
        slot = this.#draft.findSlot(text.toString('utf8', tagFrom, tagTo), key);
      } else if ((address & (TAG | ASSET)) === ASSET) {
        const group = (address & GROUP) === 0 ? undefined : text.toString('utf8', groupFrom, groupTo);
        slot = this.#draft.findDirectSlot({ asset, unit: (address & UNIT) === 0 ? undefined : unit, group, key });
      }
      if (slot === undefined) return false;
      if (addressTo > 0) this.#remember(slot, start, addressTo);
      if (this.#last !== undefined) this.#last.next = slot;
    }
    this.#last = slot;
    this.#draft.add(slot, value, timeMs, flag);
    this.#at = at + 1;
    return true;
  }

  /** The slot that came behind the last one before, where the object begins as it did then. */
  #expected(start: number): Slot | undefined {
    const slot = this.#last?.next;
    if (slot === undefined) return undefined;
    const { written } = slot;
    // Without the comma a longer number would be taken for a shorter one.
    return written.length > 0 && this.#text[start + written.length] === COMMA && isAt(this.#text, start, written)
      ? slot
      : undefined;
  }

  #remember(slot: Slot, from: number, to: number): void {
    const { written } = slot;
    if (to - from > MAX_WRITTEN_LENGTH || (written.length === to - from && isAt(this.#text, from, written))) return;
    const bytes = Uint8Array.from(this.#text.subarray(from, to));
    // A line feed is a blank in a body, and an end in NDJSON.
    if (!bytes.includes(10)) slot.written = bytes;
  }

  /** Values of one moment come together: the same text again is not read again. */
  #timeBetween(from: number, end: number): number {
    const text = this.#text;
    const length = end - from;
    if (length === this.#timeLength) {
      const shift = this.#timeFrom - from;
      // What differs, differs near the end.
      let at = end - 1;
      while (at >= from && text[at] === text[at + shift]) at--;
      if (at < from) return this.#timeMs;
    }
    this.#timeFrom = from;
    this.#timeLength = length;
    this.#timeMs = parseIsoBytes(text, from, end);
    return this.#timeMs;
  }

  #skip(at: number, overLines: boolean): number {
    return overLines ? this.#skipBlanks(at) : this.#skipWithinLine(at);
  }

  #skipBlanks(from: number): number {
    const text = this.#text;
    let at = from;
    for (;;) {
      const code = text[at];
      if (code !== 32 && code !== 10 && code !== 13 && code !== 9) return Math.min(at, text.length);
      at++;
    }
  }

  #skipWithinLine(from: number): number {
    const text = this.#text;
    let at = from;
    for (;;) {
      const code = text[at];
      if (code !== 32 && code !== 13 && code !== 9) return Math.min(at, text.length);
      at++;
    }
  }
}

const START = Buffer.from('{');
const VALUES = Buffer.from('"values"');
const COLON_ALONE = Buffer.from(':');
const LIST = Buffer.from('[');
const END = Buffer.from('}');
const VALUE_NAME = Buffer.from('value"');
const TIMESTAMP_NAME = Buffer.from('timestamp"');
const STATUS_NAME = Buffer.from('status"');
const ASSET_NAME = Buffer.from('asset"');
const UNIT_NAME = Buffer.from('unit"');
const GROUP_NAME = Buffer.from('group"');
/** By member, with the closing quote. */
const NAME_LENGTHS = new Uint8Array(STATUS + 1);
for (const [member, name] of [
  [TAG, 'tag"'],
  [KEY, 'key"'],
  [ASSET, 'asset"'],
  [UNIT, 'unit"'],
  [GROUP, 'group"'],
  [VALUE, 'value"'],
  [TIMESTAMP, 'timestamp"'],
  [STATUS, 'status"'],
] as const) {
  NAME_LENGTHS[member] = name.length;
}
const GOOD = Buffer.from('good"');
const UNCERTAIN = Buffer.from('uncertain"');
const BAD = Buffer.from('bad"');

/** The member whose name begins at `at`, with its closing quote; 0 for any other. Written out: a table costs a fifth more. */
function memberAt(text: Uint8Array, at: number): number {
  const first = text[at];
  if (first === 116) {
    if (text[at + 1] === 97) return text[at + 2] === 103 && text[at + 3] === QUOTE ? TAG : 0;
    return isAt(text, at, TIMESTAMP_NAME) ? TIMESTAMP : 0;
  }
  if (first === 107) return text[at + 1] === 101 && text[at + 2] === 121 && text[at + 3] === QUOTE ? KEY : 0;
  if (first === 118) return isAt(text, at, VALUE_NAME) ? VALUE : 0;
  if (first === 97) return isAt(text, at, ASSET_NAME) ? ASSET : 0;
  if (first === 117) return isAt(text, at, UNIT_NAME) ? UNIT : 0;
  if (first === 103) return isAt(text, at, GROUP_NAME) ? GROUP : 0;
  return first === 115 && isAt(text, at, STATUS_NAME) ? STATUS : 0;
}

function isAt(text: Uint8Array, from: number, expected: Uint8Array): boolean {
  const { length } = expected;
  for (let at = 0; at < length; at++) if (text[from + at] !== expected[at]) return false;
  return true;
}

/** Where a string ends that has no escapes; -1 for any other. */
function endOfString(text: Uint8Array, from: number): number {
  for (let at = from; at < text.length; at++) {
    const code = text[at]!;
    if (code === QUOTE) return at;
    if (code < 32 || code === BACKSLASH) return -1;
  }
  return -1;
}

/** Where a number of JSON ends that has no exponent; -1 for any other. */
function endOfNumber(text: Uint8Array, from: number): number {
  let at = text[from] === MINUS ? from + 1 : from;
  const first = at;
  while (isDigit(text[at])) at++;
  if (at === first || (text[first] === 48 && at > first + 1)) return -1;
  if (text[at] === POINT) {
    const point = at++;
    while (isDigit(text[at])) at++;
    if (at === point + 1) return -1;
  }
  const next = text[at];
  return next === COMMA || next === CLOSE || next === 32 || next === 10 || next === 13 || next === 9 ? at : -1;
}

const POWERS_OF_TEN = Array.from({ length: 16 }, (_, exponent) => 10 ** exponent);

/** A plain decimal number, as `endOfNumber` finds them; exact for the reason that `parseDecimal` gives. */
export function numberBetween(text: Buffer, from: number, to: number): number {
  // Sign, 15 digits and a point.
  if (to - from > 16) return Number(text.toString('latin1', from, to));
  const negative = text[from] === MINUS;
  let mantissa = 0;
  let decimals = -1;
  for (let at = negative ? from + 1 : from; at < to; at++) {
    const code = text[at]!;
    if (code === POINT) decimals = 0;
    else {
      mantissa = mantissa * 10 + (code - 48);
      if (decimals >= 0) decimals++;
    }
  }
  const value = decimals > 0 ? mantissa / POWERS_OF_TEN[decimals]! : mantissa;
  return negative ? -value : value;
}

/** Of the status whose text begins at `from`; 0 for any other. */
function flagAt(text: Uint8Array, from: number): number {
  if (isAt(text, from, GOOD)) return STATUS_FLAGS.good;
  if (isAt(text, from, BAD)) return STATUS_FLAGS.bad;
  return isAt(text, from, UNCERTAIN) ? STATUS_FLAGS.uncertain : 0;
}

function isDigit(code: number | undefined): boolean {
  return code !== undefined && code >= 48 && code <= 57;
}
