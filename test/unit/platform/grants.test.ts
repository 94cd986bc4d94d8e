import { describe, expect, it } from 'vitest';
import { Redactor } from '../../../src/base/redactor.ts';
import { type ClientCredentials, TokenRequests } from '../../../src/platform/grants.ts';
import type { HttpRequest, PlatformAnswer } from '../../../src/platform/http-boundary.ts';
import { GrantError, processTokenAnswer } from '../../../src/platform/response-meanings.ts';

const BASE = 'https://api.example.com/base/';
const client = { clientId: 'key', clientSecret: 'secret', clientAuth: 'basic' as const };
const user = { username: 'gateway@example.com', password: 'p&ss=wörd +' };

const formOf = (body: unknown) => new URLSearchParams(String(body));
const answerOf = (status: number, text: string, headers: Record<string, string> = {}): PlatformAnswer => ({
  status,
  text,
  header: (name) => headers[name.toLowerCase()],
  redact: (text) => redactor.redact(text),
});
const redactor = new Redactor();
redactor.configure([client.clientSecret, user.password, 'pass']);
const TOKENS = { access_token: 'a1', token_type: 'Bearer', expires_in: 660, refresh_token: 'r1', created_at: 1 };

const read = (answer: PlatformAnswer) => processTokenAnswer(answer, { grant: 'password' });

/** Requests of the technical user, with the given credentials and a fixed response. */
function requestsOf(credentials: Partial<ClientCredentials> = {}, response = answerOf(200, JSON.stringify(TOKENS))) {
  const sent: HttpRequest[] = [];
  const send = async (request: HttpRequest) => {
    sent.push(request);
    return response;
  };
  const requests = new TokenRequests({ send }, BASE, () => ({ client: { ...client, ...credentials }, user }));
  return { requests, sent };
}
const signal = new AbortController().signal;

function failureOf(run: () => unknown): GrantError {
  try {
    run();
  } catch (error) {
    if (error instanceof GrantError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}

describe('client credentials', () => {
  it.each([
    ['basic', 'a+b/c=~!', 'key:a+b/c=~!'],
    ['basic', 'ü%+&/', 'key:ü%+&/'],
    ['basic-encoded', 'ü%+&/', 'key:%C3%BC%25%2B%26%2F'],
    ['basic-encoded', 'Zm9v-1_2.3', 'key:Zm9v-1_2.3'],
  ] as const)('in a %s header contain the secret %s as %s', async (clientAuth, clientSecret, text) => {
    const { requests, sent } = requestsOf({ clientSecret, clientAuth });
    await requests.login(signal);
    expect(Buffer.from(sent[0]!.headers!.authorization!.slice(6), 'base64').toString()).toBe(text);
  });

  it.each([
    ['basic', 'a+b', 'CLIENT_AUTH=basic-encoded'],
    ['basic-encoded', 'a+b', 'CLIENT_AUTH=basic.'],
    ['basic', 'plain-1', 'CLIENT_AUTH=body'],
  ] as const)('rejected as %s with the secret %s cause a hint with %s', async (clientAuth, clientSecret, hint) => {
    const { requests } = requestsOf({ clientSecret, clientAuth }, answerOf(401, '{"error":"invalid_client"}'));
    await expect(requests.login(signal)).rejects.toMatchObject({ hint: expect.stringContaining(hint) });
  });
});

describe('technical user grants', () => {
  it('are sent with the key and secret as form fields instead of a header if CLIENT_AUTH is body', async () => {
    const { requests, sent } = requestsOf({ clientAuth: 'body' });
    await requests.refresh('r1', signal);
    expect(sent[0]!.headers).not.toHaveProperty('authorization');
    const credentials = { client_id: 'key', client_secret: 'secret' };
    const form = { grant_type: 'refresh_token', refresh_token: 'r1', ...credentials };
    expect(Object.fromEntries(formOf(sent[0]!.body))).toEqual(form);
  });

  it('accept expires_in as a number or string, and use the documented lifetime if it is invalid', () => {
    const life = (expires: unknown) =>
      read(answerOf(200, JSON.stringify({ ...TOKENS, expires_in: expires }))).expiresInMs;
    expect(life(300)).toBe(300_000);
    expect(life('120')).toBe(120_000);
    for (const bad of [undefined, null, 'soon', 0, -5, {}]) expect(life(bad)).toBe(660_000);
    expect(life(1e12)).toBe(86_400_000);
  });

  it.each([12, '', 'r\n1', null, ['r1'], 'r'.repeat(8_193)])('ignore the invalid refresh token %j', (refresh) => {
    const answer = answerOf(200, JSON.stringify({ ...TOKENS, refresh_token: refresh }));
    expect(read(answer).refreshToken).toBeUndefined();
  });

  it('retain the previous refresh token if the response contains none', async () => {
    const { refresh_token: _, ...without } = TOKENS;
    const first = requestsOf({}, answerOf(200, JSON.stringify(without)));
    expect((await first.requests.refresh('r0', signal)).refreshToken).toBe('r0');
    expect((await requestsOf().requests.refresh('r0', signal)).refreshToken).toBe('r1');
  });

  it.each(['Bearer', 'bearer', 'BEARER', 'BearerToken', undefined])('accept the token type %s', (type) => {
    expect(read(answerOf(200, JSON.stringify({ ...TOKENS, token_type: type }))).accessToken).toBe('a1');
  });

  it.each([
    { error: null, errors: null },
    { error: '', error_description: '' },
  ])('accept tokens with the empty error members %j', (members) => {
    expect(read(answerOf(200, JSON.stringify({ ...TOKENS, ...members }))).accessToken).toBe('a1');
  });

  it('measure a Retry-After date with the Date of the response', () => {
    const headers = { date: 'Sat, 21 Nov 2037 10:00:00 GMT', 'retry-after': 'Sat, 21 Nov 2037 10:00:40 GMT' };
    expect(failureOf(() => read(answerOf(503, '', headers))).retryAfterMs).toBe(40_000);
  });

  it.each([
    [403, '<title>Hotel Lobby</title>', /Hotel Lobby/, /captive portal/],
    [200, '<title>Hotel Lobby</title>', /text\/html/, /captive portal/],
    [511, '', /511/, /captive portal/],
    [302, '', /302/, /Redirects are not followed/],
    [502, '<title>Bad Gateway</title>', /Bad Gateway/, undefined],
  ] as const)('name the cause of a page with status %i', (status, page, message, hint) => {
    const error = failureOf(() => read(answerOf(status, page, { 'content-type': 'text/html' })));
    expect(error.message).toMatch(message);
    if (hint === undefined) expect(error.hint).toBeUndefined();
    else expect(error.hint).toMatch(hint);
  });

  const cases: [string, PlatformAnswer, string, boolean][] = [
    ['invalid_grant', answerOf(400, '{"error":"invalid_grant"}'), 'refused', false],
    ['invalid_client', answerOf(401, '{"error":"invalid_client"}'), 'refused', false],
    ['401 without a body', answerOf(401, ''), 'refused', false],
    ['an API error body', answerOf(400, '{"errors":[{"type":"x","message":"wrong password"}]}'), 'refused', false],
    ['429', answerOf(429, '', { 'retry-after': '7' }), 'rate_limited', true],
    ['503', answerOf(503, '<html>'), 'unavailable', true],
    ['403 with HTML', answerOf(403, '<html>'), 'unreadable', true],
    ['404', answerOf(404, '<html>'), 'unreadable', true],
    ['a redirect', answerOf(302, ''), 'unreadable', true],
    ['HTML with 200', answerOf(200, '<html>', { 'content-type': 'text/html' }), 'unreadable', true],
    ['an empty response', answerOf(200, ''), 'unreadable', true],
    ['a list', answerOf(200, '[]'), 'unreadable', true],
    ['a token with a line break', answerOf(200, '{"access_token":"a\\nb"}'), 'unreadable', true],
    ['another token type', answerOf(200, '{"access_token":"a","token_type":"mac"}'), 'unreadable', true],
  ];
  for (const [what, answer, failure, retryable] of cases) {
    it(`classify ${what} as ${failure}`, () => {
      const error = failureOf(() => read(answer));
      expect(error).toMatchObject({ failure, retryable });
      if (failure === 'refused' || failure === 'unreadable') expect(error.hint).toBeTruthy();
    });
  }

  it('quote the platform message on one line, truncated and without request data', () => {
    const words = `no\n${user.password} and secret ${'x'.repeat(1_000)}`;
    const body = JSON.stringify({ error: 'invalid_grant', error_description: words });
    const error = failureOf(() => read(answerOf(400, body)));
    expect(error.message).toContain('invalid_grant: no *** and ***');
    expect(error.message).not.toContain(user.password);
    expect(error.message.length).toBeLessThan(400);
    expect(error.retryAfterMs).toBeUndefined();
  });

  it('recognize an OAuth error code even if it contains a short password', () => {
    const said = (error: string) => failureOf(() => read(answerOf(400, JSON.stringify({ error }))));
    expect(said('temporarily_unavailable')).toMatchObject({ failure: 'unavailable', retryable: true });
    expect(said('unsupported_grant_type').hint).toContain('does not allow the password grant');
    expect(said('no_pass')).toMatchObject({ failure: 'refused', oauthError: 'no_***' });
  });
});

describe('access token', () => {
  it.each([
    [8_192, true],
    [8_193, false],
  ])('with %i characters is accepted: %s', (length, accepted) => {
    const answer = answerOf(200, JSON.stringify({ ...TOKENS, access_token: 'a'.repeat(length) }));
    if (accepted) expect(read(answer)).toMatchObject({ accessToken: 'a'.repeat(length) });
    else expect(failureOf(() => read(answer)).failure).toBe('unreadable');
  });
});
