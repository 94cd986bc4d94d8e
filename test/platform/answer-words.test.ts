import { describe, expect, it } from 'vitest';
import { Redactor } from '../../src/base/redactor.ts';
import { answerWords, foreignWords, problemsOf } from '../../src/platform/answer-words.ts';
import { problemOf } from '../../src/platform/call-refusal.ts';
import { processPasswordAnswer } from '../../src/platform/grants/technical-user.ts';
import { verdictOfAnswer } from '../../src/uplink/verdict.ts';

const answer = (status: number, text: string, headers: Record<string, string> = {}) => ({
  status,
  text,
  header: (name: string) => headers[name],
  redact: (words: string) => redactor.redact(words),
});
const redactor = new Redactor();
redactor.configure(['hunter2']);

/** A bell, a line feed, an escape sequence, a mark that turns the reading direction, an invisible space. */
const HOSTILE = 'a\u0007b\nc\u001b[31md\u202ee\u200bf';
const INVISIBLE = /\p{Cc}|\p{Cf}/u;

/** Every way by which words of the platform come to a person. */
const ways: [string, (text: string) => string][] = [
  ['an error body of the API', (text) => problemOf(answer(400, api(text)), 'GET /v1/x').message],
  ['the same, as the verdict of a post', (text) => verdictOfAnswer(answer(400, api(text)), [204]).words],
  ['no error body, as the verdict of a post', (text) => verdictOfAnswer(answer(502, text), [204]).words],
  ['an OAuth error', (text) => failureOf({ error: 'invalid_grant', error_description: text })],
  ['an OAuth error code', (text) => failureOf({ error: text })],
  ['an error body of the API at the token endpoint', (text) => failureOf(JSON.parse(api(text)))],
];

function api(message: string): string {
  return JSON.stringify({ errors: [{ type: 'invalid', message, attribute: 'unit' }] });
}

function failureOf(body: object): string {
  try {
    processPasswordAnswer(answer(400, JSON.stringify(body)), 0);
  } catch (error) {
    return (error as Error).message;
  }
  throw new Error('it was taken');
}

describe('what the platform says', () => {
  it.each(ways)('is shown on one line without invisible characters, from %s', (_name, wordsOf) => {
    const words = wordsOf(HOSTILE);
    expect(words).not.toMatch(INVISIBLE);
    expect(words).toContain('\\u202ee\\u200bf');
  });

  it.each(ways)('is bounded, from %s', (_name, wordsOf) => {
    expect(wordsOf('x'.repeat(100_000)).length).toBeLessThan(400);
    expect(wordsOf('\u202e'.repeat(100_000)).length).toBeLessThan(400);
    expect(wordsOf('<'.repeat(100_000)).length).toBeLessThan(400);
  });

  it('never repeats a secret that was sent', () => {
    expect(failureOf({ error: 'x', error_description: 'wrong: hunter2' })).toContain('wrong: ***');
    expect(failureOf({ errors: [{ type: 'x', message: 'wrong: hunter2' }] })).toContain('wrong: ***');
  });

  it('is read from an error body, else from the beginning of what came', () => {
    expect(answerWords(answer(400, api('no such unit')))).toBe('invalid: no such unit: unit');
    expect(answerWords(answer(502, '<html><title>Bad gateway</title>'))).toBe('Bad gateway');
    expect(answerWords(answer(502, '\u001f\u008b', { 'content-encoding': 'gzip' }))).toBe('');
    expect(foreignWords('a <b>c</b>', 3)).toBe('a c');
  });

  it.each(['{}', '[]', 'null', '{"errors":{}}', '{"errors":[null,7,{}]}', '{"errors":', ''])(
    'holds no problem in %s',
    (text) => {
      expect(problemsOf({ text, redact: String })).toEqual([]);
    },
  );
});
