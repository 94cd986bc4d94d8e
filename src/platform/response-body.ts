/**
 * Reads the bodies of responses from the platform, or from any host that responds in its place. The status alone does not
 * prove that the platform responded, because any host on the path can send it. Text for logs and terminals contains no
 * known secrets, has one line of limited length, and shows invisible characters as escapes.
 */
import { plain } from '../base/foreign-text.ts';
import { httpDateMs } from '../base/retry.ts';
import type { ErrorBody } from '../contract/errors.ts';
import type { PlatformAnswer } from './http-boundary.ts';

type Answer = Pick<PlatformAnswer, 'status' | 'header' | 'text' | 'truncated'>;

/** Error entry in a platform response. */
export type Problem = ErrorBody['errors'][number];

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
