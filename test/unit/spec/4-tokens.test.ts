import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SANDBOX_CREDENTIALS } from '../../../src/sandbox/sandbox.ts';
import { basic } from '../sandbox/visitor.ts';
import { ANNA, challengeOf, codeOf, Platform, REDIRECT, redirectOf, SIGN_IN } from './platform.ts';

let platform: Platform;

beforeAll(async () => {
  platform = await Platform.start();
});
afterAll(() => platform.stop());

const CLIENT = { client_id: SANDBOX_CREDENTIALS.clientId, client_secret: SANDBOX_CREDENTIALS.clientSecret };
const PASSWORD = {
  grant_type: 'password',
  username: SANDBOX_CREDENTIALS.technicalUsername,
  password: SANDBOX_CREDENTIALS.technicalPassword,
};
/** Client credentials in the header and in the body. */
const BOTH_WAYS = [
  ['in a Basic Authorization header', basic(), {}],
  ['as client_id and client_secret in the body', {}, CLIENT],
] as const;
const form = (path: string, fields: Record<string, string>, headers: Record<string, string> = {}) =>
  platform.stranger().form(path, fields, headers);
const without = (fields: Record<string, string>, name: string) =>
  Object.fromEntries(Object.entries(fields).filter(([one]) => one !== name));
const bearer = (token: string) => ({ authorization: `Bearer ${token}` });
const login = async () => (await platform.stranger().login()).body;

describe('specification', () => {
  it('4.1 the token endpoint accepts application/x-www-form-urlencoded and returns JSON', async () => {
    const response = await fetch(`${platform.sandbox.url}/oauth/token`, {
      method: 'POST',
      headers: { ...basic(), 'content-type': 'application/x-www-form-urlencoded' },
      body: new URLSearchParams(PASSWORD).toString(),
    });
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toMatch(/^application\/json/);
    expect(Object.keys((await response.json()) as object)).toContain('access_token');
  });

  it.each(BOTH_WAYS)('4.1 the password grant accepts client credentials %s', async (_, headers, fields) => {
    const reply = await form('/oauth/token', { ...PASSWORD, ...fields }, headers);
    expect([reply.status, reply.body.token_type]).toEqual([200, 'Bearer']);
  });

  it.each(['grant_type', 'username', 'password'])('4.1 the password grant requires %s', async (name) => {
    const reply = await form('/oauth/token', without(PASSWORD, name), basic());
    expect([reply.status, reply.body.error]).toEqual([400, 'invalid_request']);
  });

  it('4.1 the password grant requires client credentials', async () => {
    const reply = await form('/oauth/token', PASSWORD);
    expect([reply.status, reply.body.error]).toEqual([401, 'invalid_client']);
  });

  it.each(BOTH_WAYS)('4.1 the refresh grant accepts client credentials %s', async (_, headers, fields) => {
    const { refresh_token } = await login();
    const reply = await form('/oauth/token', { grant_type: 'refresh_token', refresh_token, ...fields }, headers);
    expect([reply.status, reply.body.token_type]).toEqual([200, 'Bearer']);
  });

  it('4.1 the refresh grant requires refresh_token and client credentials', async () => {
    const { refresh_token } = await login();
    expect((await form('/oauth/token', { grant_type: 'refresh_token' }, basic())).body.error).toBe('invalid_request');
    const anonymous = await form('/oauth/token', { grant_type: 'refresh_token', refresh_token });
    expect(anonymous.body.error).toBe('invalid_client');
  });

  it('4.1 a refresh rotates the refresh token', async () => {
    const { refresh_token } = await login();
    const again = () => form('/oauth/token', { grant_type: 'refresh_token', refresh_token }, basic());
    expect((await again()).body.refresh_token).not.toBe(refresh_token);
    expect((await again()).body.error).toBe('invalid_grant');
  });
});

describe('specification', () => {
  it.each(BOTH_WAYS)('4.1 the revocation endpoint accepts client credentials %s', async (_, headers, fields) => {
    const { access_token: token } = await login();
    expect((await form('/oauth/revoke', { token, ...fields }, headers)).status).toBe(200);
    expect(await platform.isAlive(token)).toBe(false);
  });

  it('4.1 the revocation endpoint accepts an Authorization header with the token as an alternative', async () => {
    const { access_token: token } = await login();
    expect((await form('/oauth/revoke', { token }, bearer(token))).status).toBe(200);
    expect(await platform.isAlive(token)).toBe(false);
  });

  it('4.1 a revocation is rejected without either of them, or without the token parameter', async () => {
    const { access_token: token } = await login();
    expect((await form('/oauth/revoke', { token })).status).toBe(401);
    expect((await form('/oauth/revoke', {}, basic())).body.error).toBe('invalid_request');
    expect(await platform.isAlive(token)).toBe(true);
  });
});

describe('specification', () => {
  const open = (query: Record<string, string>) =>
    platform.stranger().get(`/app/id/sign_in?${new URLSearchParams(query)}`);
  const PKCE = challengeOf(randomBytes(48).toString('base64url'));

  it('4.1 the sign-in endpoint returns a browser page that continues the request', async () => {
    const page = await open({ ...SIGN_IN, ...PKCE });
    expect([page.status, page.headers.get('content-type')]).toEqual([200, expect.stringMatching(/^text\/html/)]);
    for (const value of [...Object.values(SIGN_IN), ...Object.values(PKCE)]) expect(page.text).toContain(value);
  });

  it.each(['response_type', 'client_id', 'redirect_uri'])(
    '4.1 the sign-in endpoint requires %s, and never redirects without it',
    async (name) => {
      const page = await open(without(SIGN_IN, name));
      expect([page.status, page.headers.get('location')]).toEqual([400, null]);
    },
  );

  it('4.1 response_type is code', async () => {
    expect((await open({ ...SIGN_IN, response_type: 'token' })).status).toBe(400);
  });

  it('4.1 code_challenge_method is S256', async () => {
    expect((await open({ ...SIGN_IN, ...PKCE, code_challenge_method: 'plain' })).status).toBe(400);
    expect((await open({ ...SIGN_IN, code_challenge: PKCE.code_challenge })).status).toBe(400);
  });

  it('4.1 the sign-in endpoint redirects to redirect_uri with the query parameters code and state', async () => {
    const redirect = redirectOf(await platform.signIn());
    expect(redirect.href.split('?')[0]).toBe(REDIRECT);
    expect([...redirect.searchParams.keys()].sort()).toEqual(['code', 'state']);
    expect(redirect.searchParams.get('state')).toBe(SIGN_IN.state);
  });
});

describe('specification', () => {
  const exchange = (fields: Record<string, string>) => form('/app/id/oauth/token', fields);
  const web = async () => ({
    grant_type: 'authorization_code',
    ...CLIENT,
    code: codeOf(await platform.signIn()),
    redirect_uri: REDIRECT,
  });
  const pkce = async () => {
    const code_verifier = randomBytes(48).toString('base64url');
    const code = codeOf(await platform.signIn(challengeOf(code_verifier)));
    const { client_id } = CLIENT;
    return { grant_type: 'authorization_code', client_id, code, code_verifier, redirect_uri: REDIRECT };
  };

  it('4.1 the web flow code grant accepts client_id, client_secret, code and redirect_uri', async () => {
    expect((await exchange(await web())).body.token_type).toBe('Bearer');
  });

  it.each([
    ['grant_type', 'invalid_request'],
    ['client_id', 'invalid_client'],
    ['client_secret', 'invalid_client'],
    ['code', 'invalid_request'],
    ['redirect_uri', 'invalid_grant'],
  ])('4.1 the web flow code grant requires %s', async (name, error) => {
    expect((await exchange(without(await web(), name))).body.error).toBe(error);
  });

  it('4.1 the code grant with PKCE accepts client_id, code, code_verifier and redirect_uri without client_secret', async () => {
    expect((await exchange(await pkce())).body.token_type).toBe('Bearer');
  });

  it.each([
    ['client_id', 'invalid_client'],
    ['code', 'invalid_request'],
    ['code_verifier', 'invalid_grant'],
    ['redirect_uri', 'invalid_grant'],
  ])('4.1 the code grant with PKCE requires %s', async (name, error) => {
    expect((await exchange(without(await pkce(), name))).body.error).toBe(error);
  });

  it('4.1 a code can be used only once', async () => {
    const fields = await web();
    await exchange(fields);
    expect((await exchange(fields)).body.error).toBe('invalid_grant');
  });

  it('4.1 the web flow refresh grant accepts client_id and client_secret', async () => {
    const { refresh_token } = (await exchange(await web())).body;
    const fields = { grant_type: 'refresh_token', refresh_token, client_id: CLIENT.client_id };
    expect((await exchange(fields)).body.error).toBe('invalid_client');
    expect((await exchange({ ...fields, client_secret: CLIENT.client_secret })).body.token_type).toBe('Bearer');
  });

  it('4.1 the refresh grant after PKCE accepts client_id without client_secret', async () => {
    const { refresh_token } = (await exchange(await pkce())).body;
    const fields = { grant_type: 'refresh_token', refresh_token };
    expect((await exchange(fields)).body.error).toBe('invalid_client');
    expect((await exchange({ ...fields, client_id: CLIENT.client_id })).body.token_type).toBe('Bearer');
  });
});

describe('specification', () => {
  const revoke = (fields: Record<string, string>, headers: Record<string, string> = {}) =>
    form('/app/id/oauth/revoke', fields, headers);

  it('4.1 the identity revocation endpoint accepts token with Authorization: Bearer', async () => {
    const { access_token: token } = (await platform.personTokens(ANNA)).body;
    expect((await revoke({ token }, bearer(token))).status).toBe(200);
    expect(await platform.isAlive(token)).toBe(false);
  });

  it('4.1 the identity revocation endpoint also accepts client_id, which must match the token', async () => {
    const { access_token: token } = (await platform.personTokens(ANNA)).body;
    expect((await revoke({ token, client_id: 'another' }, bearer(token))).status).toBe(403);
    expect((await revoke({ token, client_id: CLIENT.client_id }, bearer(token))).status).toBe(200);
    expect(await platform.isAlive(token)).toBe(false);
  });

  it('4.1 an identity revocation is rejected without the Authorization header', async () => {
    const { access_token: token } = (await platform.personTokens(ANNA)).body;
    expect((await revoke({ token, client_id: CLIENT.client_id })).status).toBe(401);
    expect(await platform.isAlive(token)).toBe(true);
  });
});
