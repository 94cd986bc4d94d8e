/**
 * What the platform, or whatever answers in its place, says in words: the one reader of error bodies. Every text that comes out is
 * on one line, bounded, and shows invisible characters as escapes: it goes into logs and onto terminals.
 */
import { plain } from '../base/foreign-text.ts';
import type { ErrorBody } from '../contract/errors.ts';
import { isReadable } from './answer-body.ts';
import type { PlatformAnswer } from './http-boundary.ts';

/** One of the platform's own complaints. */
export type Problem = ErrorBody['errors'][number];

type Answer = Pick<PlatformAnswer, 'status' | 'header' | 'text'>;

const MAX_PROBLEMS = 20;
const MAX_PROBLEM_WORDS = 200;
const MAX_ANSWER_WORDS = 300;
/** Enough of a page to find its first words between its markup. */
const MAX_READ = 4_000;

/** The platform's words in an error body (platform 10.3); none where it has another shape. */
export function problemsOf(answer: Pick<PlatformAnswer, 'text'>): Problem[] {
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
    const problem: Problem = { type: problemWords(type ?? ''), message: problemWords(message ?? type) };
    return typeof attribute === 'string' ? [{ ...problem, attribute: problemWords(attribute) }] : [problem];
  });
}

/** The words of an error body, else the beginning of what came, without markup; '' where nothing can be read. */
export function answerWords(answer: Answer): string {
  if (answer.text === '' || !isReadable(answer)) return '';
  const lines = problemsOf(answer).map(({ type, message, attribute }) =>
    [...new Set([type, message, attribute])].filter((word) => word).join(': '),
  );
  return foreignWords(lines.join('; ')) || foreignWords(answer.text);
}

/** Any text from there: on one line, without markup and control characters. */
export function foreignWords(text: string, maxLength = MAX_ANSWER_WORDS): string {
  const words = text
    .slice(0, MAX_READ)
    .replaceAll(/<[^>]*>/g, ' ')
    .replaceAll(/[\s\p{Cc}]+/gu, ' ');
  return plain(words.slice(0, maxLength + 1)).slice(0, maxLength);
}

function problemWords(text: unknown): string {
  return plain(String(text).slice(0, 2 * MAX_PROBLEM_WORDS)).slice(0, MAX_PROBLEM_WORDS);
}
