/**
 * Extracts text from the responses of the platform, or of any host that responds in its place. Only this module reads
 * error bodies. All returned text is written to logs and terminals, so it contains no known secrets, has one line of
 * limited length, and shows invisible characters as escapes.
 */
import { plain } from '../base/foreign-text.ts';
import type { ErrorBody } from '../contract/errors.ts';
import { isReadable } from './answer-body.ts';
import type { PlatformAnswer } from './http-boundary.ts';

/** Error entry in a platform response. */
export type Problem = ErrorBody['errors'][number];

type Answer = Pick<PlatformAnswer, 'status' | 'header' | 'text' | 'redact'>;

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

/** Returns the errors in an error body (platform 10.3), or an empty list if the body has a different format. */
export function problemsOf(answer: Pick<PlatformAnswer, 'text' | 'redact'>): Problem[] {
  // Accepted posts have an empty body. Skip the parse, because a thrown syntax error is slow.
  if (answer.text === '') return [];
  let body: unknown;
  try {
    body = JSON.parse(answer.text);
  } catch {
    return [];
  }
  const errors = (body as { errors?: unknown } | null)?.errors;
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
 * not readable.
 */
export function answerWords(answer: Answer): string {
  if (answer.text === '' || !isReadable(answer)) return '';
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
