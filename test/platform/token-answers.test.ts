/** What a token endpoint answers: the tokens in it, or what is wrong, whole. */
import { describe, expect, it } from 'vitest';
import { Redactor } from '../../src/base/redactor.ts';
import { GrantError } from '../../src/platform/grants/grant-error.ts';
import { processPersonAnswer, processPersonRevocation } from '../../src/platform/grants/person.ts';
import {
  processPasswordAnswer,
  processRefreshAnswer,
  processRevocation,
} from '../../src/platform/grants/technical-user.ts';

const NOW_MS = Date.UTC(2026, 10, 23);
const redactor = new Redactor();
redactor.configure(['the-password', 'hunter2', '']);
const answerOf = (status: number, body: unknown, headers: Record<string, string> = {}) => ({
  status,
  text: typeof body === 'string' ? body : JSON.stringify(body),
  header: (name: string) => headers[name],
  redact: (text: string) => redactor.redact(text),
});
type Answer = ReturnType<typeof answerOf>;

/** All six ways to ask. */
const WAYS = {
  login: (answer: Answer) => processPasswordAnswer(answer, NOW_MS),
  refresh: (answer: Answer) => processRefreshAnswer(answer, 'r0', NOW_MS),
  revocation: (answer: Answer) => processRevocation(answer, NOW_MS),
  code: (answer: Answer) => processPersonAnswer(answer, NOW_MS),
  'refresh of a person': (answer: Answer) => processPersonAnswer(answer, NOW_MS, 'r0'),
  'revocation of a person': (answer: Answer) => processPersonRevocation(answer, NOW_MS),
};
type Way = keyof typeof WAYS;
const GRANTS: Record<Way, string> = {
  login: 'password',
  refresh: 'refresh_token',
  revocation: 'revoke',
  code: 'authorization_code',
  'refresh of a person': 'refresh_token',
  'revocation of a person': 'revoke',
};

function errorOf(way: Way, answer: Answer) {
  try {
    WAYS[way](answer);
  } catch (error) {
    expect(error).toBeInstanceOf(GrantError);
    const { name, message, code, failure, status, oauthError, retryable, retryAfterMs, hint, cause } =
      error as GrantError;
    expect([name, cause]).toEqual(['GrantError', undefined]);
    return { message, code, failure, status, oauthError, retryable, retryAfterMs, hint };
  }
  return undefined;
}

const PLACE = 'Check that PLATFORM_URL and IDENTITY_URL are the addresses of the platform, and what stands between.';
const ACCOUNT = 'Check CLIENT_ID, CLIENT_SECRET, TECHNICAL_USERNAME and TECHNICAL_PASSWORD.';
const PERSON = 'Check CLIENT_ID, and sign in again: tagferry login';
const CLIENT =
  'Check CLIENT_ID and CLIENT_SECRET, and that the connect subscription is active. Some servers require CLIENT_AUTH=body.';
const PERSON_CLIENT =
  'Check CLIENT_ID, and CLIENT_SECRET where the sign-in uses it; see that the connect subscription is active.';
const mayNot = (grant: string) =>
  `The API key may not use the ${grant} grant: check that it is of type OAuth, or ask support to enable it.`;

const none = { oauthError: undefined, retryAfterMs: undefined, hint: undefined };
const REFUSED = { ...none, code: 'platform.sign_in_refused', failure: 'refused', retryable: false };
const LIMITED = { ...none, code: 'platform.rate_limited', failure: 'rate_limited', retryable: true };
const UNAVAILABLE = { ...none, code: 'platform.sign_in_unavailable', failure: 'unavailable', retryable: true };
const UNREADABLE = { ...none, code: 'platform.sign_in_unreadable', failure: 'unreadable', retryable: true };

describe('a failure at a token endpoint', () => {
  const hints: [Way, string, string][] = [
    [
      'login',
      CLIENT,
      'Check TECHNICAL_USERNAME and TECHNICAL_PASSWORD: the technical user of the connect subscription, not a person.',
    ],
    ['refresh', CLIENT, 'Sign in again.'],
    ['revocation', CLIENT, 'Sign in again.'],
    [
      'code',
      PERSON_CLIENT,
      'Start `tagferry login` again: a code is good once and for minutes, and only for the redirect address that is registered.',
    ],
    ['refresh of a person', PERSON_CLIENT, 'Sign in again: tagferry login'],
    ['revocation of a person', PERSON_CLIENT, 'Sign in again: tagferry login'],
  ];
  it.each(hints)('of a %s is told whole, with what to do about it', (way, ofClient, ofGrant) => {
    const grant = GRANTS[way];
    const person = ['code', 'refresh of a person', 'revocation of a person'].includes(way);
    const otherHint = person ? PERSON : ACCOUNT;
    const said = (status: number, words: string) =>
      `the token endpoint answered ${status}${words && ` (${words})`} to the ${grant} grant`;
    const cases: [Answer, object][] = [
      ...(
        [
          ['invalid_client', 401, ofClient],
          ['invalid_grant', 400, ofGrant],
          ['unauthorized_client', 400, mayNot(grant)],
          ['unsupported_grant_type', 400, mayNot(grant)],
          ['invalid_request', 400, otherHint],
          ['invalid_scope', 403, PLACE],
        ] as const
      ).map(([error, status, hint]): [Answer, object] => [
        answerOf(status, { error }),
        { ...REFUSED, message: said(status, error), status, oauthError: error, hint },
      ]),
      [answerOf(401, ''), { ...REFUSED, message: said(401, ''), status: 401, hint: otherHint }],
      [
        answerOf(400, { errors: [{ type: 'x', message: 'wrong: hunter2' }, { type: 'second' }] }),
        { ...REFUSED, message: said(400, 'wrong: ***; second'), status: 400, hint: otherHint },
      ],
      [
        answerOf(400, {
          error: 'invalid_grant',
          error_description: 'wrong: hunter2',
          errors: [{ message: 'not this' }],
        }),
        {
          ...REFUSED,
          message: said(400, 'invalid_grant: wrong: ***'),
          status: 400,
          oauthError: 'invalid_grant',
          hint: ofGrant,
        },
      ],
      [
        answerOf(400, { error: 7, error_description: 'only words' }),
        { ...REFUSED, message: said(400, 'only words'), status: 400, hint: otherHint },
      ],
      [
        answerOf(429, '', { 'retry-after': '7' }),
        { ...LIMITED, message: said(429, ''), status: 429, retryAfterMs: 7_000 },
      ],
      [
        answerOf(503, '', { 'retry-after': 'Mon, 23 Nov 2026 00:00:09 GMT' }),
        { ...UNAVAILABLE, message: said(503, ''), status: 503, retryAfterMs: 9_000 },
      ],
      [
        answerOf(400, { error: 'temporarily_unavailable' }),
        {
          ...UNAVAILABLE,
          message: said(400, 'temporarily_unavailable'),
          status: 400,
          oauthError: 'temporarily_unavailable',
        },
      ],
      [answerOf(302, ''), { ...UNREADABLE, message: said(302, ''), status: 302, hint: PLACE }],
      [answerOf(400, '<html>'), { ...UNREADABLE, message: said(400, ''), status: 400, hint: otherHint }],
    ];
    for (const [answer, error] of cases) expect(errorOf(way, answer)).toEqual(error);
  });

  /** What is said: a code of OAuth, another JSON object, nothing, a page. */
  it.each([
    [202, 'unreadable', 'unreadable', 'unreadable', 'unreadable'],
    [302, 'unreadable', 'unreadable', 'unreadable', 'unreadable'],
    [399, 'unreadable', 'unreadable', 'unreadable', 'unreadable'],
    [400, 'refused', 'refused', 'unreadable', 'unreadable'],
    [401, 'refused', 'refused', 'refused', 'unreadable'],
    [402, 'refused', 'unreadable', 'unreadable', 'unreadable'],
    [403, 'refused', 'refused', 'unreadable', 'unreadable'],
    [404, 'refused', 'unreadable', 'unreadable', 'unreadable'],
    [407, 'refused', 'unreadable', 'unreadable', 'unreadable'],
    [408, 'unavailable', 'unavailable', 'unavailable', 'unreadable'],
    [428, 'refused', 'unreadable', 'unreadable', 'unreadable'],
    [429, 'rate_limited', 'rate_limited', 'rate_limited', 'rate_limited'],
    [430, 'refused', 'unreadable', 'unreadable', 'unreadable'],
    [499, 'refused', 'unreadable', 'unreadable', 'unreadable'],
    [500, 'unavailable', 'unavailable', 'unavailable', 'unavailable'],
    [511, 'unavailable', 'unavailable', 'unavailable', 'unavailable'],
  ])('of the status %d is, by what is said with it: %s, %s, %s, %s', (status, ...failures) => {
    const texts = ['{"error":"invalid_request"}', '{"any":"thing"}', '', '<html>Sign in</html>'];
    expect(texts.map((text) => errorOf('login', answerOf(status, text))!.failure)).toEqual(failures);
  });

  it('is one of the platform’s moment where an OAuth code says so, whatever the status', () => {
    for (const error of ['temporarily_unavailable', 'server_error']) {
      const failureAt = (status: number) => errorOf('login', answerOf(status, { error }))!.failure;
      expect([302, 400, 403, 404, 429, 401].map(failureAt)).toEqual([
        'unavailable',
        'unavailable',
        'unavailable',
        'unavailable',
        'rate_limited',
        'refused',
      ]);
    }
  });

  it('is that of an answer with tokens that cannot be used, with what it was instead', () => {
    const cases: [unknown, string, Record<string, string>?][] = [
      ['<html>', 'not in JSON (text/html)', { 'content-type': 'text/html; charset=utf-8' }],
      ['', 'not in JSON (no content type)'],
      ['[]', 'not in JSON (a *** type)', { 'content-type': 'a hunter2 type' }],
      [{ access_token: 'a', error: 'none' }, 'with an error (no content type)'],
      [{ access_token: 'a', errors: [] }, 'with an error (no content type)'],
      [{}, 'without a usable access token (no content type)'],
      [{ access_token: 7 }, 'without a usable access token (no content type)'],
      [{ access_token: '' }, 'without a usable access token (no content type)'],
      [{ access_token: 'a b' }, 'without a usable access token (no content type)'],
      [{ access_token: 'ä' }, 'without a usable access token (no content type)'],
      [{ access_token: 'a\n' }, 'without a usable access token (no content type)'],
      [{ access_token: 'a'.repeat(8_193) }, 'without a usable access token (no content type)'],
      [{ access_token: 'a', token_type: 'mac' }, 'with a token that is no bearer token (no content type)'],
      [{ access_token: 'a', token_type: 7 }, 'with a token that is no bearer token (no content type)'],
      [{ access_token: 'a', token_type: null }, 'with a token that is no bearer token (no content type)'],
    ];
    for (const [body, what, headers] of cases) {
      for (const status of [200, 201]) {
        expect(errorOf('login', answerOf(status, body, headers))).toEqual({
          ...UNREADABLE,
          message: `the token endpoint answered ${status}, but ${what}`,
          status,
          hint: PLACE,
        });
      }
    }
    // Cut at its bound, it may be anything.
    const cut = { ...answerOf(200, { access_token: 'a' }), truncated: true };
    expect(errorOf('login', cut)!.message).toContain('not in JSON');
    expect(errorOf('login', answerOf(202, { access_token: 'a' }))!.failure).toBe('unreadable');
  });
});

describe('what a token endpoint answers', () => {
  const outcome = (status: number, body: unknown = {}) => errorOf('login', answerOf(status, body))?.failure ?? 'taken';

  it('is tokens, whole, with the refresh token of before where a refresh brings none', () => {
    const whole = { access_token: '!a~', refresh_token: 'r1', token_type: 'bEARER', expires_in: 60, created_at: 1 };
    const { refresh_token: _, ...without } = whole;
    for (const way of ['login', 'refresh', 'code', 'refresh of a person'] as const) {
      const kept = way.startsWith('refresh') ? 'r0' : undefined;
      expect(WAYS[way](answerOf(200, whole))).toEqual({ accessToken: '!a~', refreshToken: 'r1', expiresInMs: 60_000 });
      for (const body of [without, { ...without, refresh_token: 7 }, { ...without, refresh_token: 'r 1' }]) {
        const tokens = { accessToken: '!a~', refreshToken: kept, expiresInMs: 60_000 };
        expect(WAYS[way](answerOf(201, body))).toEqual(tokens);
      }
    }
  });

  it('is that a token is revoked for every 2xx without an error or a page', () => {
    const length = (bytes: number) => ({ 'content-length': String(bytes) });
    const cases: [Answer, string | undefined][] = [
      [answerOf(200, '', length(0)), undefined],
      [answerOf(204, ''), undefined],
      [answerOf(200, '{}'), undefined],
      [answerOf(204, '{}'), undefined],
      [answerOf(200, ''), undefined],
      [answerOf(200, { revoked: true }), undefined],
      [answerOf(200, 'null'), undefined],
      [answerOf(200, 'ok'), undefined],
      [answerOf(202, '{}'), undefined],
      [answerOf(201, '', length(0)), undefined],
      [answerOf(200, '<html>'), 'unreadable'],
      [answerOf(200, { error: 'x' }), 'unreadable'],
      [answerOf(400, '{}'), 'refused'],
      [answerOf(503, '{}'), 'unavailable'],
    ];
    for (const way of ['revocation', 'revocation of a person'] as const) {
      expect(cases.map(([answer]) => errorOf(way, answer)?.failure)).toEqual(cases.map(([, failure]) => failure));
    }
  });

  it.each([
    ['"user_id":5', 5],
    ['"resource_owner_id":5', 5],
    ['"user":{"id":5}', 5],
    ['"user_id":"5","user":null', undefined],
    ['"user_id":-1,"user":{"id":7}', 7],
  ])('reads the user from %s', (members, userId) => {
    expect(WAYS.login(answerOf(200, `{"access_token":"a",${members}}`)).userId).toBe(userId);
  });

  it('is a token of up to 8,192 characters, and of no more', () => {
    expect(outcome(200, { access_token: 'a'.repeat(8_192) })).toBe('taken');
    expect(outcome(200, { access_token: 'a'.repeat(8_193) })).toBe('unreadable');
    expect(outcome(201, { access_token: 'a' })).toBe('taken');
    expect(outcome(200, { access_token: 'a', error: 'none' })).toBe('unreadable');
    const lives = {
      '"60"': 60,
      '"60 s"': 660,
      '"1234567890"': 660,
      1: 1,
      0.5: 660,
      90000: 86_400,
      '1e999': 660,
      null: 660,
      '""': 660,
    };
    for (const [life, seconds] of Object.entries(lives)) {
      const { expiresInMs } = WAYS.login(answerOf(200, `{"access_token":"a","expires_in":${life}}`));
      expect([life, expiresInMs]).toEqual([life, seconds * 1_000]);
    }
  });
});
