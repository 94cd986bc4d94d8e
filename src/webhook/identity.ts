import { createHash } from 'node:crypto';
import { countOutsideStrings, isWithinBounds } from '../contract/events/event-text.ts';

/**
 * Canonical JSON according to RFC 8785 (JSON Canonicalization Scheme): members sorted by UTF-16 code units, numbers as
 * in ECMAScript, no white space. Invalid input (lone surrogates, duplicate members, numbers that exceed a double) has
 * no canonical form, because different events must never have the same canonical form.
 */

/** Maximum nesting depth, greater than the depth of any valid payload. */
const MAX_DEPTH = 100;

/** An integer beyond 2^53, with its digits. */
class ExactNumber {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  toJSON(): unknown {
    return (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON(this.text);
  }
}

/**
 * Returns the canonical form of a JSON text, or `undefined` if the text is not JSON, is invalid according to the RFC,
 * or exceeds the limits for an event.
 */
export function canonicalise(json: string): string | undefined {
  if (!isWithinBounds(json)) return undefined;
  try {
    const value = parseExactly(json);
    const members = { count: 0 };
    const form = write(value, 0, members);
    // JSON.parse silently drops duplicate members.
    return members.count === countOutsideStrings(json, ':') ? form : undefined;
  } catch {
    return undefined;
  }
}

/** Parses JSON and preserves the digits of large integers for `JSON.stringify`. */
export function parseExactly(json: string): unknown {
  // Use the reviver only for long sequences of digits, because it is several times slower than parsing.
  if (!/\d{16}/.test(json)) return JSON.parse(json);
  const revive = (_key: string, value: unknown, context?: { source?: string }) => {
    if (typeof value !== 'number' || Number.isSafeInteger(value)) return value;
    const source = context?.source ?? '';
    return /^-?\d{16,}$/.test(source) ? new ExactNumber(source) : value;
  };
  return JSON.parse(json, revive);
}

function write(value: unknown, depth: number, members: { count: number }): string {
  if (depth > MAX_DEPTH) throw new RangeError('nested too deeply');
  if (value === null || typeof value === 'boolean') return String(value);
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) throw new RangeError('number exceeds the range of a double');
    return JSON.stringify(value);
  }
  if (typeof value === 'string') return writeText(value);
  if (value instanceof ExactNumber) return value.text;
  if (Array.isArray(value)) return `[${value.map((item) => write(item, depth + 1, members)).join(',')}]`;
  const object = value as Record<string, unknown>;
  // JavaScript sorts strings by UTF-16 code units, as the RFC requires.
  const keys = Object.keys(object).sort();
  members.count += keys.length;
  return `{${keys.map((key) => `${writeText(key)}:${write(object[key], depth + 1, members)}`).join(',')}}`;
}

function writeText(text: string): string {
  if (!text.isWellFormed()) throw new RangeError('lone surrogate');
  return JSON.stringify(text);
}

/**
 * Length of an identity. 96 bits are sufficient to prevent accidental and deliberate collisions between the events of a
 * gateway.
 */
export const IDENTITY_BYTES = 12;

/**
 * Returns the identity of an event: the SHA-256 of its canonical JSON, or of its bytes if it has no canonical form. A
 * delivery, a resend and an entry in the deliveries list therefore have the same identity even if the member order
 * differs.
 */
export function identityOf(body: Uint8Array): Uint8Array {
  const text = decode(body);
  const form = text === undefined ? undefined : canonicalise(text);
  return digest(form ?? body);
}

/**
 * Returns the identity of a delivery. `scope` identifies the registration, because a new platform numbers deliveries
 * starting at 1 again.
 */
export function deliveryIdentity(scope: string, deliveryId: number): Uint8Array {
  // JSON cannot start with NUL, so identities of events and deliveries never collide.
  return digest(`\0delivery\0${scope}\0${deliveryId}`);
}

/** Returns the body as text, or `undefined` if the body is not valid UTF-8. */
export function decode(body: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(body);
  } catch {
    return undefined;
  }
}

function digest(of: string | Uint8Array): Uint8Array {
  return new Uint8Array(createHash('sha256').update(of).digest().subarray(0, IDENTITY_BYTES));
}
