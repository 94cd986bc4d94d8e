/**
 * Reads the bodies of responses from the platform, or from any host that responds in its place. The status alone does not
 * prove that the platform responded, because any host on the path can send it. Text for logs and terminals contains no
 * known secrets, has one line of limited length, and shows invisible characters as escapes.
 */
import { PlatformError } from '../base/errors.ts';
import { plain } from '../base/foreign-text.ts';
import { httpDateMs } from '../base/retry.ts';
import type { ErrorBody } from '../contract/errors.ts';
import type { PlatformAnswer } from './http-boundary.ts';

type Answer = Pick<PlatformAnswer, 'status' | 'header' | 'text' | 'truncated'>;

/** Error entry in a platform response. */
type Problem = ErrorBody['errors'][number];

const MAX_PROBLEMS = 20;
const MAX_PROBLEM_WORDS = 200;
const MAX_ANSWER_WORDS = 300;
/** Maximum number of characters read from a page, enough to find the first words between the markup. */
const MAX_READ = 4_000;
/**
 * Maximum number of characters searched for secrets, because the search takes time. Large enough for a secret that
 * starts within the first MAX_READ characters.
 */
const MAX_SEARCHED = 64 * 1024;

export function isSuccess(status: number): boolean {
  return status >= 200 && status < 300;
}

/**
 * Returns whether the response is complete and has no body, as a 204 always has. If a closed connection marks the end of
 * the body, all of it may have been lost. Another response therefore counts as empty only if its length is 0 or it is
 * chunked (RFC 9112 section 6.3).
 */
export function hasNoBody(answer: Answer): boolean {
  if (answer.truncated || answer.text !== '') return false;
  if (answer.status === 204) return true;
  const length = answer.header('content-length');
  return length === undefined ? answer.header('transfer-encoding') !== undefined : /^0+$/.test(length.trim());
}

/**
 * Returns whether a response without a documented body reports success: a complete 2xx response with an empty body or
 * with JSON that contains no errors.
 */
export function reportsDone(answer: Answer): boolean {
  if (!isSuccess(answer.status)) return false;
  if (hasNoBody(answer)) return true;
  return !answer.truncated && jsonOf(answer.text) !== undefined && jsonObjectOf(answer)?.errors === undefined;
}

/** Returns the JSON object of a complete response, or `undefined` for anything else, including an array. */
export function jsonObjectOf(answer: Answer): Record<string, unknown> | undefined {
  const body = answer.truncated ? undefined : jsonOf(answer.text);
  const isObject = typeof body === 'object' && body !== null && !Array.isArray(body);
  return isObject ? (body as Record<string, unknown>) : undefined;
}

/** Returns whether the response is an HTML page. The platform responds in JSON (platform 10.3). */
export function isPage(answer: Answer): boolean {
  const type = answer.header('content-type') ?? '';
  return answer.text !== '' && (/^\s*(text\/html|application\/xhtml)/i.test(type) || /^\s*</.test(answer.text));
}

/** Returns the `Date` of a response in milliseconds since 1970, according to the server that sent it. */
export function dateOf(answer: Pick<PlatformAnswer, 'header'>): number | undefined {
  return httpDateMs(answer.header('date') ?? '');
}

/** Returns the errors in an error body (platform 10.3), or an empty list if the body has a different format. */
export function problemsOf(answer: Pick<PlatformAnswer, 'text' | 'redact'>): Problem[] {
  const { errors } = (jsonOf(answer.text) ?? {}) as { errors?: unknown };
  if (!Array.isArray(errors)) return [];
  return errors.slice(0, MAX_PROBLEMS).flatMap((error: unknown) => {
    const { type, message, attribute } = (error ?? {}) as Record<string, unknown>;
    if (typeof message !== 'string' && typeof type !== 'string') return [];
    const words = (text: unknown) => problemWords(redacted(answer, String(text)));
    const problem: Problem = { type: words(type ?? ''), message: words(message ?? type) };
    return typeof attribute === 'string' ? [{ ...problem, attribute: words(attribute) }] : [problem];
  });
}

/**
 * Returns the error texts. If there are none, returns the beginning of the body without markup, or '' if the body is
 * compressed in an unknown format.
 */
export function answerWords(answer: Answer & Pick<PlatformAnswer, 'redact'>): string {
  if (answer.text === '' || answer.header('content-encoding') !== undefined) return '';
  const lines = problemsOf(answer).map(({ type, message, attribute }) =>
    [...new Set([type, message, attribute])].filter((word) => word).join(': '),
  );
  return foreignWords(lines.join('; ')) || quoted(answer, answer.text);
}

/** Returns text from a response in printable form. */
export function quoted(answer: Pick<PlatformAnswer, 'redact'>, text: string, maxLength = MAX_ANSWER_WORDS): string {
  return foreignWords(redacted(answer, text), maxLength);
}

/** Removes secrets before the text is truncated or replaced, because part of a secret would not be recognized. */
function redacted(answer: Pick<PlatformAnswer, 'redact'>, text: string): string {
  return answer.redact(text.slice(0, MAX_SEARCHED));
}

/** Returns text from an external source on one line, without markup and control characters. */
export function foreignWords(text: string, maxLength = MAX_ANSWER_WORDS): string {
  const words = text
    .slice(0, MAX_READ)
    .replaceAll(/<[^>]*>/g, ' ')
    .replaceAll(/[\s\p{Cc}]+/gu, ' ');
  return plain(words.slice(0, maxLength + 1)).slice(0, maxLength);
}

function problemWords(text: string): string {
  return plain(text.slice(0, 2 * MAX_PROBLEM_WORDS)).slice(0, MAX_PROBLEM_WORDS);
}

/** Parses JSON. Accepted posts have an empty body, and a thrown syntax error is slow. */
function jsonOf(text: string): unknown {
  if (text === '') return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export interface CallName {
  method: string;
  path: string;
}

/**
 * Validating accessor for a JSON object in a response. Each method checks one member and throws `platform.unreadable`
 * with the call and the member path if the member is invalid. IDs may be numbers or decimal strings.
 */
export class ResponseRecord {
  readonly #call: CallName;
  readonly #place: string;
  readonly #members: Record<string, unknown>;

  /** `place`: path of the value, used in errors; empty for the body itself. */
  constructor(call: CallName, value: unknown, place = '') {
    this.#call = call;
    this.#place = place;
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw this.#unexpected(place === '' ? 'the body' : place, 'an object');
    }
    this.#members = value as Record<string, unknown>;
  }

  /**
   * Returns a single record from the body or its member `wrapper`, because the specification does not show which one
   * contains it.
   */
  static single(call: CallName, body: unknown, wrapper: string): ResponseRecord {
    const record = new ResponseRecord(call, body);
    return record.has(wrapper) ? record.record(wrapper) : record;
  }

  /** Returns whether the member is present and not null. */
  has(member: string): boolean {
    return Object.hasOwn(this.#members, member) && (this.#members[member] ?? null) !== null;
  }

  integer(member: string): number {
    const value = this.#members[member];
    if (typeof value === 'number' && Number.isSafeInteger(value)) return value;
    if (typeof value === 'string' && /^\d{1,15}$/.test(value)) return Number(value);
    throw this.#unexpected(this.#at(member), 'an integer');
  }

  string(member: string): string {
    const value = this.#members[member];
    if (typeof value !== 'string') throw this.#unexpected(this.#at(member), 'a string');
    return value;
  }

  /** Returns false if the member is absent. */
  boolean(member: string): boolean {
    if (!this.has(member)) return false;
    const value = this.#members[member];
    if (typeof value !== 'boolean') throw this.#unexpected(this.#at(member), 'a boolean');
    return value;
  }

  strings(member: string): string[] {
    const value = this.#members[member];
    if (!Array.isArray(value) || !value.every((one) => typeof one === 'string')) {
      throw this.#unexpected(this.#at(member), 'an array of strings');
    }
    return value;
  }

  record(member: string): ResponseRecord {
    return new ResponseRecord(this.#call, this.#members[member], this.#at(member));
  }

  /** Returns the result of `read` if the member is present. */
  optional<Value>(member: string, read: (member: string) => Value): Value | undefined {
    return this.has(member) ? read.call(this, member) : undefined;
  }

  get names(): string[] {
    return Object.keys(this.#members);
  }

  #at(member: string): string {
    return this.#place === '' ? member : `${this.#place}.${member}`;
  }

  #unexpected(place: string, expected: string): PlatformError {
    const { method, path } = this.#call;
    return new PlatformError(`unexpected response to ${method} ${path}: ${foreignWords(place)} must be ${expected}`, {
      code: 'platform.unreadable',
      retryable: true,
      hint: 'Check that PLATFORM_URL is the address of the API. If it is, report the call and the member.',
    });
  }
}
