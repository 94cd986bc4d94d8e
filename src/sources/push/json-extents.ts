/**
 * Where the values of a JSON body begin and end, found by their brackets and quotes alone. What is between is parsed value by value,
 * and only where it is no larger than a value can be: depth and members are bounded before they are objects, so a body
 * never costs more than its bytes and the columns of its values.
 */
import type { UnreadableValues } from '../problem-list.ts';

/** A value is an object of eight members, of which one may be an object of one. */
const MAX_DEPTH = 8;
const MAX_MEMBERS = 64;

const TAB = 9;
const FEED = 10;
const RETURN = 13;
const SPACE = 32;
const QUOTE = 34;
const COMMA = 44;
const COLON = 58;
const OPEN_LIST = 91;
const BACKSLASH = 92;
const CLOSE_LIST = 93;
const OPEN = 123;
const CLOSE = 125;

/** One value's text. `isSmall`: no deeper and no wider than a value can be. */
export interface Extent {
  from: number;
  to: number;
  isSmall: boolean;
}

/** `each` is told of every element of the member `values`, in order. Throws what `wrong` makes where the brackets do not fit. */
export function walkValues(
  bytes: Uint8Array,
  each: (extent: Extent) => void,
  wrong: (message: string) => UnreadableValues,
): void {
  new Walk(bytes, each, wrong).body();
}

/** The first JSON text between `from` and `to`, without the blanks around it. */
export function extentOf(bytes: Uint8Array, from: number, to: number): Extent {
  return skipValue(bytes, skipBlanks(bytes, from, to), to);
}

class Walk {
  readonly #bytes: Uint8Array;
  readonly #each: (extent: Extent) => void;
  readonly #wrong: (message: string) => UnreadableValues;
  #at = 0;

  constructor(bytes: Uint8Array, each: (extent: Extent) => void, wrong: (message: string) => UnreadableValues) {
    this.#bytes = bytes;
    this.#each = each;
    this.#wrong = wrong;
    if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) this.#at = 3;
  }

  body(): void {
    if (this.#blanks() !== OPEN) throw this.#notObject();
    let lists = 0;
    this.#at++;
    if (this.#blanks() === CLOSE) this.#at++;
    else {
      do {
        const name = this.#name();
        if (name !== 'values') throw this.#wrong(`the body has an unknown member ${JSON.stringify(name.slice(0, 64))}`);
        if (++lists > 1) throw this.#wrong('the body has two arrays "values"');
        this.#list();
      } while (this.#goesOn(CLOSE));
    }
    if (this.#blanks() !== undefined) throw this.#notJson();
    if (lists === 0) throw this.#wrong('the body has no array "values"');
  }

  #list(): void {
    if (this.#blanks() !== OPEN_LIST) {
      // Whatever else stands there, words about it are of use only where it is JSON.
      this.#parse(skipValue(this.#bytes, this.#at, this.#bytes.length));
      throw this.#wrong('the body has no array "values"');
    }
    this.#at++;
    if (this.#blanks() === CLOSE_LIST) {
      this.#at++;
      return;
    }
    do {
      this.#blanks();
      const extent = skipValue(this.#bytes, this.#at, this.#bytes.length);
      if (extent.to <= extent.from) throw this.#notJson();
      this.#each(extent);
      this.#at = extent.to;
    } while (this.#goesOn(CLOSE_LIST));
  }

  #name(): string {
    if (this.#blanks() !== QUOTE) throw this.#notJson();
    const extent = skipValue(this.#bytes, this.#at, this.#bytes.length);
    const name = this.#parse(extent);
    this.#at = extent.to;
    if (typeof name !== 'string' || this.#blanks() !== COLON) throw this.#notJson();
    this.#at++;
    return name;
  }

  #parse({ from, to, isSmall }: Extent): unknown {
    if (!isSmall) return undefined;
    try {
      return JSON.parse(Buffer.from(this.#bytes.buffer, this.#bytes.byteOffset + from, to - from).toString('utf8'));
    } catch {
      throw this.#notJson();
    }
  }

  #goesOn(close: number): boolean {
    const code = this.#blanks();
    if (code !== COMMA && code !== close) throw this.#notJson();
    this.#at++;
    return code === COMMA;
  }

  #blanks(): number | undefined {
    this.#at = skipBlanks(this.#bytes, this.#at, this.#bytes.length);
    return this.#bytes[this.#at];
  }

  #notJson(): UnreadableValues {
    return this.#wrong('the body is not JSON');
  }

  /** A list or a number is JSON, but no body. */
  #notObject(): UnreadableValues {
    const { from, to, isSmall } = extentOf(this.#bytes, this.#at, this.#bytes.length);
    if (to <= from || skipBlanks(this.#bytes, to, this.#bytes.length) < this.#bytes.length) return this.#notJson();
    if (isSmall) this.#parse({ from, to, isSmall });
    return this.#wrong('the body has no array "values"');
  }
}

/** Over one JSON value, by brackets and quotes; `to` is `from` where nothing stands there, or where it does not end. */
function skipValue(bytes: Uint8Array, from: number, end: number): Extent {
  const first = bytes[from];
  if (from >= end) return { from, to: from, isSmall: true };
  if (first === QUOTE) return { from, to: endOfString(bytes, from, end), isSmall: true };
  if (first !== OPEN && first !== OPEN_LIST) return { from, to: endOfScalar(bytes, from, end), isSmall: true };
  let depth = 0;
  let deepest = 0;
  let members = 0;
  for (let at = from; at < end; at++) {
    const code = bytes[at]!;
    if (code === QUOTE) {
      at = endOfString(bytes, at, end) - 1;
      if (at < from) return { from, to: from, isSmall: true };
    } else if (code === OPEN || code === OPEN_LIST) {
      depth++;
      if (depth > deepest) deepest = depth;
    } else if (code === COMMA) {
      members++;
    } else if (code === CLOSE || code === CLOSE_LIST) {
      if (--depth === 0) return { from, to: at + 1, isSmall: deepest <= MAX_DEPTH && members < MAX_MEMBERS };
    }
  }
  return { from, to: from, isSmall: true };
}

/** Behind the closing quote; 0 where there is none. */
function endOfString(bytes: Uint8Array, from: number, end: number): number {
  for (let at = from + 1; at < end; at++) {
    const code = bytes[at];
    if (code === BACKSLASH) at++;
    else if (code === QUOTE) return at + 1;
  }
  return 0;
}

function endOfScalar(bytes: Uint8Array, from: number, end: number): number {
  let at = from;
  for (; at < end; at++) {
    const code = bytes[at]!;
    if (code === COMMA || code === CLOSE || code === CLOSE_LIST || code === COLON || code <= SPACE) break;
  }
  return at;
}

function skipBlanks(bytes: Uint8Array, from: number, end: number): number {
  let at = from;
  for (; at < end; at++) {
    const code = bytes[at];
    if (code !== SPACE && code !== FEED && code !== RETURN && code !== TAB) break;
  }
  return at;
}
