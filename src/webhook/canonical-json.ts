import { countOutsideStrings, isWithinBounds } from '../contract/events/event-text.ts';

/**
 * RFC 8785 (JSON Canonicalization Scheme): members sorted by UTF-16 code units, numbers as ECMAScript prints them, no
 * white space. Where the RFC refuses an input (lone surrogates, duplicate members, numbers that no double holds), so does
 * this: two different events must never have one form.
 */

/** Deeper than any payload; recursion stays far from the end of the stack. */
const MAX_DEPTH = 100;

/** What a number becomes that no double holds: its digits as they stood, so that ids beyond 2^53 stay apart. */
class ExactNumber {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  /** Its digits again where it is written as JSON. */
  toJSON(): unknown {
    return (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON(this.text);
  }
}

/** The canonical form of JSON text; `undefined` if it is not JSON, is rejected by the RFC, or exceeds the bounds of an event. */
export function canonicalise(json: string): string | undefined {
  if (!isWithinBounds(json)) return undefined;
  try {
    const value = parseExactly(json);
    const members = { count: 0 };
    const form = write(value, 0, members);
    // JSON.parse keeps the last of two members with one name, and with it the difference between two events.
    return members.count === countOutsideStrings(json, ':') ? form : undefined;
  } catch {
    return undefined;
  }
}

/** `JSON.parse`, but what `JSON.stringify` makes of it has every digit that the text had in its integers. */
export function parseExactly(json: string): unknown {
  // The reviver costs several times the parse: only a text with so many digits can hold what a double cannot.
  if (!/\d{16}/.test(json)) return JSON.parse(json);
  const revive = (_key: string, value: unknown, context?: { source?: string }) => {
    if (typeof value !== 'number' || Number.isSafeInteger(value)) return value;
    const source = context?.source ?? '';
    return /^-?\d{16,}$/.test(source) ? new ExactNumber(source) : value;
  };
  return JSON.parse(json, revive);
}

function write(value: unknown, depth: number, members: { count: number }): string {
  if (depth > MAX_DEPTH) throw new RangeError('too deep');
  if (value === null || typeof value === 'boolean') return String(value);
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) throw new RangeError('no double holds this number');
    return JSON.stringify(value);
  }
  if (typeof value === 'string') return writeText(value);
  if (value instanceof ExactNumber) return value.text;
  if (Array.isArray(value)) return `[${value.map((item) => write(item, depth + 1, members)).join(',')}]`;
  const object = value as Record<string, unknown>;
  // The default order of strings is that of their UTF-16 code units, which is what the RFC asks for.
  const keys = Object.keys(object).sort();
  members.count += keys.length;
  return `{${keys.map((key) => `${writeText(key)}:${write(object[key], depth + 1, members)}`).join(',')}}`;
}

function writeText(text: string): string {
  if (!text.isWellFormed()) throw new RangeError('lone surrogate');
  return JSON.stringify(text);
}
