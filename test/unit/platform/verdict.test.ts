import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { PlatformError } from '../../../src/base/errors.ts';
import { httpDateMs } from '../../../src/base/retry.ts';
import {
  RESPONSES,
  type ValuesAnswer,
  verdictOfAnswer,
  verdictOfError,
} from '../../../src/platform/response-meanings.ts';

const answer = (status: number, text = '', headers: Record<string, string> = {}) => ({
  status,
  text,
  header: (name: string) => headers[name],
  redact: String,
});

const platformWords = (of: ValuesAnswer) => verdictOfAnswer(of, [204]).reason;

describe('verdict table', () => {
  it('matches docs/reference/verdicts.md row by row', () => {
    const text = readFileSync(join(import.meta.dirname, '../../../docs/reference/verdicts.md'), 'utf8');
    const rows = [...text.matchAll(/^\| ([^|]+) \| ([^|]+) \| [^|]+ \|$/gm)].map((row) => row.slice(1));
    expect(rows.slice(1)).toEqual(RESPONSES.map(({ response, meaning }) => [response, meaning]));
  });

  it.each([
    [202, 'not-understood'],
    [304, 'not-understood'],
    [405, 'later'],
    [409, 'later'],
    [599, 'later'],
    [999, 'later'],
  ])('classifies the unlisted status %d as %s', (status, meaning) => {
    expect(verdictOfAnswer(answer(status), [204, 999]).meaning).toBe(meaning);
  });

  it.each([[[204]], [[200, 204]], [[201]]])('treats only %j as delivered', (success) => {
    for (let status = 100; status < 600; status++) {
      const { meaning } = verdictOfAnswer(answer(status, '', { 'content-length': '0' }), success);
      expect(meaning === 'delivered', String(status)).toBe(success.includes(status));
    }
  });

  it.each([
    ['a length of 0', 200, '', { 'content-length': '0' }, true],
    ['chunked encoding', 200, '', { 'transfer-encoding': 'chunked' }, true],
    ['no length and no encoding', 200, '', {}, false],
    ['JSON', 200, '{}', { 'content-length': '2' }, false],
    ['a line feed', 200, '\n', { 'content-length': '1' }, false],
    ['a missing body', 200, '', { 'content-length': '5' }, false],
    ['status 204 and a length', 204, '', { 'content-length': '5' }, true],
    ['status 204 and no length', 204, '', {}, true],
  ])('checks whether a response with %s is empty', (_name, status, text, headers, isTaken) => {
    const { meaning } = verdictOfAnswer(answer(status, text, headers), [200, 204]);
    expect(meaning === 'delivered').toBe(isTaken);
    const cut = { ...answer(status, text, headers), truncated: true };
    expect(verdictOfAnswer(cut, [200, 204]).meaning).toBe('not-understood');
  });

  it.each([400, 402, 403, 404, 422])(
    'ignores status %d if the body is an HTML page, regardless of content type',
    (status) => {
      const page = '<!DOCTYPE html><title>Guests, sign in here</title>';
      const [asHtml, asJson] = [{ 'content-type': 'text/html; charset=utf-8' }, { 'content-type': 'application/json' }];
      const read = (text: string, headers: Record<string, string>) =>
        verdictOfAnswer(answer(status, text, headers), [204]);
      expect(read(page, asHtml)).toMatchObject({ meaning: 'not-understood', reason: 'Guests, sign in here' });
      expect(read(page, asJson).meaning).toBe('not-understood');
      expect(read('{"errors":[]}', asJson).meaning).not.toBe('not-understood');
    },
  );

  it('contains the platform message, truncated and without markup or control characters', () => {
    const body = JSON.stringify({ errors: [{ type: 'invalid', message: 'unit\nunknown', attribute: 'unit' }] });
    expect(platformWords(answer(400, body))).toBe('invalid: unit unknown: unit');
    expect(platformWords(answer(400, '<html><b>Bad\u0007 Request</b></html>'))).toBe('Bad Request');
    expect(platformWords(answer(400, '{"errors":[null,7]}'))).toBe('{"errors":[null,7]}');
    expect(platformWords(answer(400, ''))).toBe('status 400');
    expect(platformWords(answer(400, 'x'.repeat(10_000)))).toHaveLength(300);
    expect(platformWords(answer(200, '<title>Sign in</title>'))).toBe('status 200 with a body: Sign in');
    expect(platformWords(answer(302, '', { location: 'http://portal/login?token=x' }))).toBe(
      'status 302, a redirect to http://portal/login',
    );
    expect(platformWords(answer(503, '\u001f\ufffd\b', { 'content-encoding': 'gzip' }))).toBe('status 503');
  });
});

describe('verdict', () => {
  it('contains the complete platform message and the response', () => {
    const said = answer(400, '{"errors":[{"type":"invalid","message":"no such unit"}]}');
    const facts = { meaning: 'refused', code: '400', status: 400, reason: 'invalid: no such unit' };
    expect(verdictOfAnswer(said, [204])).toEqual({ ...facts, answer: said });
  });

  it.each([
    [new PlatformError('reset', { code: 'platform.connection_reset' }), 'platform.connection_reset', 'later', 'reset'],
    [new PlatformError('gone', { code: 'platform.unreachable' }), 'platform.unreachable', 'unreachable', 'gone'],
    [new PlatformError('no way', { code: 'platform.proxy' }), 'platform.proxy', 'unreachable', 'no way'],
    [new TypeError('no\nthing'), 'unknown', 'later', 'no thing'],
    ['broken', 'unknown', 'later', 'broken'],
  ])('for a call without a response contains the error: %s', (error, code, meaning, reason) => {
    expect(verdictOfError(error)).toEqual({ meaning, code, status: 0, reason });
  });

  it.each([401, 408, 413, 429, 500, 503])('respects status %d even if the body is an HTML page', (status) => {
    const page = answer(status, '<!DOCTYPE html><title>Too much</title>', { 'content-type': 'text/html' });
    expect(verdictOfAnswer(page, [204]).meaning).toBe(verdictOfAnswer(answer(status), [204]).meaning);
  });

  it.each([
    ['https://portal/a?token=x', 'https://portal/a'],
    ['https://portal/a#token=x', 'https://portal/a'],
    ['https://portal/a?b\n#c', 'https://portal/a'],
    ['/a', '/a'],
  ])('for a redirect to %j contains the target without its query and fragment', (location, place) => {
    expect(platformWords(answer(302, '', { location }))).toBe(`status 302, a redirect to ${place}`);
  });
});

describe('HTTP date', () => {
  it.each(['Sun, 06 Nov 2094 08:49:37 GMT', 'Saturday, 06-Nov-94 08:49:37 GMT', 'Sat Nov  6 08:49:37 2094'])(
    'is parsed in each of its three forms (%s)',
    (text) => expect(httpDateMs(text)).toBe(Date.UTC(2094, 10, 6, 8, 49, 37)),
  );

  it.each(['Sun, 06 Xxx 1994 08:49:37 GMT', 'Sun, 06 Nov 1994 25:49:37 GMT', 'Sun, 06 Nov 1994 08:49:37 CET', '-5'])(
    'rejects “%s”',
    (text) => expect(httpDateMs(text)).toBeUndefined(),
  );
});
