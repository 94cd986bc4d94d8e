import { describe, expect, it } from 'vitest';
import { Redactor } from '../../../src/base/redactor.ts';
import { problemsOf } from '../../../src/platform/response-body.ts';
import { CallRefusal, processTokenAnswer, verdictOfAnswer } from '../../../src/platform/response-meanings.ts';

const answer = (status: number, text: string, headers: Record<string, string> = {}) => ({
  status,
  text,
  header: (name: string) => headers[name],
  redact: (words: string) => redactor.redact(words),
});
const redactor = new Redactor();
redactor.configure(['hunter2']);

/** Bell, line feed, escape sequence, mark that reverses the reading direction, invisible space. */
const HOSTILE = 'a\u0007b\nc\u001b[31md\u202ee\u200bf';
const INVISIBLE = /\p{Cc}|\p{Cf}/u;

/** All ways in which platform text is shown to users. */
const ways: [string, (text: string) => string][] = [
  ['an API error body', (text) => new CallRefusal(answer(400, api(text)), 'GET /v1/x').message],
  ['an API error body in a post verdict', (text) => verdictOfAnswer(answer(400, api(text)), [204]).reason],
  ['a body without an error in a post verdict', (text) => verdictOfAnswer(answer(502, text), [204]).reason],
  ['an OAuth error', (text) => failureOf({ error: 'invalid_grant', error_description: text })],
  ['an OAuth error code', (text) => failureOf({ error: text })],
  ['an API error body from the token endpoint', (text) => failureOf(JSON.parse(api(text)))],
];

function api(message: string): string {
  return JSON.stringify({ errors: [{ type: 'invalid', message, attribute: 'unit' }] });
}

function failureOf(body: object): string {
  try {
    processTokenAnswer(answer(400, JSON.stringify(body)), { grant: 'password' });
  } catch (error) {
    return (error as Error).message;
  }
  throw new Error('it was taken');
}

describe('quoted platform message', () => {
  it.each(ways)('from %s is printed on one line without invisible characters', (_name, wordsOf) => {
    const words = wordsOf(HOSTILE);
    expect(words).not.toMatch(INVISIBLE);
    expect(words).toContain('\\u202ee\\u200bf');
  });

  it.each(ways)('from %s is limited in length', (_name, wordsOf) => {
    expect(wordsOf('x'.repeat(100_000)).length).toBeLessThan(400);
    expect(wordsOf('\u202e'.repeat(100_000)).length).toBeLessThan(400);
    expect(wordsOf('<'.repeat(100_000)).length).toBeLessThan(400);
  });

  it('omits secrets contained in the request', () => {
    expect(failureOf({ error: 'x', error_description: 'wrong: hunter2' })).toContain('wrong: ***');
    expect(failureOf({ errors: [{ type: 'x', message: 'wrong: hunter2' }] })).toContain('wrong: ***');
  });

  it.each(['{}', '[]', 'null', '{"errors":{}}', '{"errors":[null,7,{}]}', '{"errors":', ''])(
    'contains no error message for %s',
    (text) => {
      expect(problemsOf({ text, redact: String })).toEqual([]);
    },
  );
});
