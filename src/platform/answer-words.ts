/**
 * The text of a response, from the platform or from anything else in its place: the only reader of error bodies. Every text it
 * returns contains no known secret, is on one line and bounded, and shows invisible characters as escapes, because it is
 * written to logs and terminals.
 */
import { plain } from '../base/foreign-text.ts';
import type { ErrorBody } from '../contract/errors.ts';
import { isReadable } from './answer-body.ts';
import type { PlatformAnswer } from './http-boundary.ts';

/** One of the platform's own complaints. */
export type Problem = ErrorBody['errors'][number];

type Answer = Pick<PlatformAnswer, 'status' | 'header' | 'text' | 'redact'>;

const MAX_PROBLEMS = 20;
const MAX_PROBLEM_WORDS = 200;
const MAX_ANSWER_WORDS = 300;
/** Enough of a page to find its first words between its markup. */
const MAX_READ = 4_000;
/** Searched for secrets, which takes time; what is read of it cannot end within a secret that begins there. */
const MAX_SEARCHED = 64 * 1024;

/** The platform's words in an error body (platform 10.3); none where it has another shape. */
export function problemsOf(answer: Pick<PlatformAnswer, 'text' | 'redact'>): Problem[] {
  // As of every post that is taken: a parser's error is dear.
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

/** The words of an error body, else the beginning of what came, without markup; '' where nothing can be read. */
export function answerWords(answer: Answer): string {
  if (answer.text === '' || !isReadable(answer)) return '';
  const lines = problemsOf(answer).map(({ type, message, attribute }) =>
    [...new Set([type, message, attribute])].filter((word) => word).join(': '),
  );
  return foreignWords(lines.join('; ')) || quoted(answer, answer.text);
}

/** Any text of a response, ready to print. */
export function quoted(answer: Pick<PlatformAnswer, 'redact'>, text: string, maxLength = MAX_ANSWER_WORDS): string {
  return foreignWords(redacted(answer, text), maxLength);
}

/** Before anything is cut off or replaced: part of a secret is not recognised as one. */
function redacted(answer: Pick<PlatformAnswer, 'redact'>, text: string): string {
  return answer.redact(text.slice(0, MAX_SEARCHED));
}

/** Any text from elsewhere, on one line, without markup and control characters. */
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
