import { createHash, createHmac } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SANDBOX_CREDENTIALS } from '../../../src/sandbox/sandbox.ts';
import { basic, Visitor } from '../sandbox/visitor.ts';
import {
  ANNA,
  asset,
  challengeOf,
  codeOf,
  GATEWAY,
  Platform,
  REDIRECT,
  redirectOf,
  SIGN_IN,
  until,
} from './platform.ts';

let platform: Platform;

beforeEach(async () => {
  platform = await Platform.start();
});
afterEach(() => platform.stop());

const CLIENT = { client_id: SANDBOX_CREDENTIALS.clientId, client_secret: SANDBOX_CREDENTIALS.clientSecret };
const PASSWORD = {
  grant_type: 'password',
  username: SANDBOX_CREDENTIALS.technicalUsername,
  password: SANDBOX_CREDENTIALS.technicalPassword,
};
const form = (path: string, fields: Record<string, string>, headers: Record<string, string> = {}) =>
  platform.stranger().form(path, fields, headers);
const login = async () => (await platform.stranger().login()).body;

describe('specification', () => {
  it('5.1 the client ID is the API key of a connect subscription, and requires its secret', async () => {
    for (const [id, secret] of [
      [CLIENT.client_id, 'wrong'],
      ['unknown', CLIENT.client_secret],
      [CLIENT.client_secret, CLIENT.client_id],
    ] as const) {
      const reply = await form('/oauth/token', PASSWORD, basic(id, secret));
      expect([reply.status, reply.body.error]).toEqual([401, 'invalid_client']);
    }
    expect((await form('/oauth/token', PASSWORD, basic())).status).toBe(200);
  });

  it('5.1 the subscription has a technical user', async () => {
    const user = (await platform.object('client_applications', 3)).technical_user;
    expect(await platform.object('users', user)).toMatchObject({ id: GATEWAY.id, technical: true });
  });

  it('5.2 the password grant is not for human users', async () => {
    const person = { grant_type: 'password', username: ANNA.email, password: ANNA.password };
    const reply = await form('/oauth/token', person, basic());
    expect([reply.status, reply.body.error]).toEqual([400, 'invalid_grant']);
  });

  it.each([
    ['a wrong password', { password: 'wrong' }],
    ['an unknown user', { username: 'nobody@sandbox.example' }],
  ])('5.2 the password grant accepts the technical user’s name and password: %s is rejected', async (_, wrong) => {
    const reply = await form('/oauth/token', { ...PASSWORD, ...wrong }, basic());
    expect([reply.status, reply.body.error]).toEqual([400, 'invalid_grant']);
  });

  it('5.2 key and secret are sent in a Basic header as base64 of key, colon and secret', async () => {
    const authorization = `Basic ${btoa(`${CLIENT.client_id}:${CLIENT.client_secret}`)}`;
    expect((await form('/oauth/token', PASSWORD, { authorization })).status).toBe(200);
  });

  it('5.2 key and secret may be sent as client_id and client_secret in the body', async () => {
    expect((await form('/oauth/token', { ...PASSWORD, ...CLIENT })).status).toBe(200);
    const wrong = await form('/oauth/token', { ...PASSWORD, ...CLIENT, client_secret: 'wrong' });
    expect([wrong.status, wrong.body.error]).toEqual([401, 'invalid_client']);
  });
});

describe('specification', () => {
  const exchange = (fields: Record<string, string>) => platform.exchange({ ...fields });

  it('5.3 the application must be approved and enabled', async () => {
    await platform.put('client_applications', 3, { code_flow: false });
    const page = await platform.stranger().get(`/app/id/sign_in?${new URLSearchParams(SIGN_IN)}`);
    expect([page.status, (await platform.signIn()).status]).toEqual([400, 400]);
  });

  it.each([
    'https://evil.example/callback',
    'http://127.0.0.1:53211/other',
    'https://client.example/callback/more',
    'https://client.example/callback?a=1',
  ])('5.3 redirect_uri must match a registered URI, unlike %s', async (redirect_uri) => {
    const page = await platform.stranger().get(`/app/id/sign_in?${new URLSearchParams({ ...SIGN_IN, redirect_uri })}`);
    expect([page.status, page.headers.get('location')]).toEqual([400, null]);
    expect((await platform.signIn({ redirect_uri })).status).toBe(400);
  });

  it('5.3 redirect URIs are registered with the application', async () => {
    const redirect_uri = 'https://new.example/back';
    expect((await platform.signIn({ redirect_uri })).status).toBe(400);
    await platform.put('client_applications', 3, { redirect_uris: [redirect_uri] });
    expect(redirectOf(await platform.signIn({ redirect_uri })).origin).toBe('https://new.example');
  });

  it.each(['x', 'a b&c=d', 'st<&>"\'ate', 'ünï'])('5.3 state is returned unchanged: %s', async (state) => {
    expect(redirectOf(await platform.signIn({ state })).searchParams.get('state')).toBe(state);
  });

  it('5.3 a sign-in without the password returns neither a redirect nor a code', async () => {
    const reply = await platform.signIn({}, { email: ANNA.email, password: 'wrong' });
    expect([reply.status, reply.headers.get('location')]).toEqual([401, null]);
  });

  it('5.3 the code is exchanged with client_id, client_secret and the same redirect_uri', async () => {
    const secret = { client_secret: CLIENT.client_secret };
    const elsewhere = { code: codeOf(await platform.signIn()), redirect_uri: 'http://127.0.0.1/callback', ...secret };
    expect((await exchange(elsewhere)).body.error).toBe('invalid_grant');
    const wrong = { code: codeOf(await platform.signIn()), client_secret: 'wrong' };
    expect((await exchange(wrong)).body.error).toBe('invalid_client');
    expect((await exchange({ code: codeOf(await platform.signIn()), ...secret })).status).toBe(200);
  });

  it('5.3 the tokens belong to the user who signed in', async () => {
    const anna = await platform.person(ANNA);
    const { permissions } = (await anna.get('/v2/permissions?permitable_type=Node')).body;
    expect(permissions.map((one: { assignable: { email: string } }) => one.assignable.email)).toContain(ANNA.email);
  });
});

describe('specification', () => {
  const ALLOWED = 'ABCXYZabcxyz0189-._~';
  const verifierOf = (length: number) => ALLOWED.repeat(7).slice(0, length);
  const tryVerifier = async (sent: string, challenged = sent) =>
    platform.exchange({ code: codeOf(await platform.signIn(challengeOf(challenged))), code_verifier: sent });

  it('5.4 the application must be approved', async () => {
    await platform.put('client_applications', 3, { code_flow: false });
    expect((await platform.signIn(challengeOf(verifierOf(64)))).status).toBe(400);
  });

  it.each([43, 64, 128])('5.4 a verifier of %i characters is accepted', async (length) => {
    expect((await tryVerifier(verifierOf(length))).status).toBe(200);
  });

  it.each([42, 129])('5.4 a verifier of %i characters is rejected', async (length) => {
    const reply = await tryVerifier(verifierOf(length));
    expect([reply.status, reply.body.error]).toEqual([400, 'invalid_request']);
  });

  it.each(['+', '/', '=', ' ', 'ä', '%'])('5.4 a verifier with %j is rejected', async (character) => {
    expect((await tryVerifier(verifierOf(63) + character)).body.error).toBe('invalid_request');
  });

  it('5.4 the challenge is the SHA-256 hash of the verifier, and a different verifier is rejected', async () => {
    expect((await tryVerifier(verifierOf(64), verifierOf(65))).body.error).toBe('invalid_grant');
  });

  it('5.4 the challenge is base64-encoded with or without padding, in either alphabet', async () => {
    const verifier = verifierOf(50);
    for (const encoding of ['base64', 'base64url'] as const) {
      const code_challenge = createHash('sha256').update(verifier).digest(encoding);
      const code = codeOf(await platform.signIn({ code_challenge, code_challenge_method: 'S256' }));
      expect((await platform.exchange({ code, code_verifier: verifier })).status).toBe(200);
    }
  });

  it('5.4 redirect_uri must be unchanged', async () => {
    const code_verifier = verifierOf(64);
    const code = codeOf(await platform.signIn(challengeOf(code_verifier)));
    const reply = await platform.exchange({ code, code_verifier, redirect_uri: REDIRECT.replace('53211', '53212') });
    expect(reply.body.error).toBe('invalid_grant');
  });

  it('5.4 a client secret does not replace the verifier', async () => {
    const code = codeOf(await platform.signIn(challengeOf(verifierOf(64))));
    expect((await platform.exchange({ code, client_secret: CLIENT.client_secret })).body.error).toBe('invalid_grant');
  });
});

describe('specification', () => {
  it.each([
    ['GET', '/v1/client_applications'],
    ['GET', '/v1/client_applications/3/webhooks'],
    ['POST', '/v1/client_applications/3/webhooks'],
    ['GET', '/v1/permissions'],
    ['POST', '/v1/permissions'],
    ['DELETE', '/v1/permissions/9'],
    ['GET', '/v2/permissions'],
    ['PATCH', '/v2/permissions/8'],
    ['POST', '/v1/owners'],
    ['DELETE', '/v2/owners'],
    ['PATCH', '/v1/tenants/50/admins'],
    ['POST', '/v2/tenants/50/users'],
    ['DELETE', '/v2/userroles/60/users'],
    ['PATCH', '/v1/assets/881/display_labels'],
    ['PATCH', '/v2/instrumentations/4711/display_labels'],
    ['POST', '/v1/assets/881/values'],
  ])('5.5 %s %s requires Authorization: Bearer', async (method, path) => {
    const body = method === 'GET' ? undefined : {};
    const { access_token, refresh_token } = await login();
    const ask = async (headers: Record<string, string>, query = '') =>
      (await new Visitor(platform.sandbox).call(method, path + query, body, headers)).status;
    expect(await ask({ authorization: '' })).toBe(401);
    expect(await ask({ authorization: 'Bearer unknown' })).toBe(401);
    expect(await ask({ authorization: `Bearer ${refresh_token}` })).toBe(401);
    expect(await ask(basic())).toBe(401);
    expect(await ask({ authorization: '' }, `?access_token=${access_token}`)).toBe(401);
    expect(await ask({ authorization: `Bearer ${access_token}` })).not.toBe(401);
  });

  it('5.6 a token response contains a lifetime of 660 seconds, regardless of previous tokens', async () => {
    const first = await login();
    await platform.behind('POST', 'clock', { advanceMs: 500_000 });
    const fields = { grant_type: 'refresh_token', refresh_token: first.refresh_token };
    expect([first.expires_in, (await form('/oauth/token', fields, basic())).body.expires_in]).toEqual([660, 660]);
  });

  it('5.6 a revocation invalidates a refresh token before its 24 hours have passed', async () => {
    const { access_token, refresh_token } = await login();
    await form('/oauth/revoke', { token: access_token }, basic());
    const fields = { grant_type: 'refresh_token', refresh_token };
    expect((await form('/oauth/token', fields, basic())).body.error).toBe('invalid_grant');
  });

  it('5.6 the required token parameter selects the token to revoke', async () => {
    const { access_token } = await login();
    expect((await form('/oauth/revoke', { access_token }, basic())).status).toBe(400);
    expect(await platform.isAlive(access_token)).toBe(true);
    expect((await form('/oauth/revoke', { token: access_token }, basic())).status).toBe(200);
    expect(await platform.isAlive(access_token)).toBe(false);
  });

  it.each([
    [['can_read'], 204],
    [['can_update'], 403],
    [['can_read', 'can_update'], 404],
  ])(
    '5.7 permissions control a technical user’s actions: without %j the response to a posted value is %i',
    async (types, status) => {
      expect((await platform.value(881, 'flow', 1)).status).toBe(204);
      await platform.take(asset(881), { types });
      expect((await platform.value(881, 'flow', 2)).status).toBe(status);
    },
  );

  it('5.7 without can_permit a technical user cannot grant permissions', async () => {
    const body = { permission_types: ['can_read'], assignable: { email: ANNA.email, type: 'User' } };
    const give = () => platform.gateway.call('POST', '/v2/permissions', { ...body, permitable: asset(881) });
    expect((await give()).status).toBe(201);
    await platform.take(asset(881), { types: ['can_permit'] });
    expect((await give()).status).toBe(403);
  });

  it('5.8 the signature verifies the source of a webhook, because it requires the secret', async () => {
    const hook = await platform.webhook(['asset_disappeared']);
    await platform.take(asset(881));
    await until(() => expect(platform.receiver.received).toHaveLength(1));
    const { headers, raw } = platform.receiver.received[0]!;
    const signed = (secret: string) => `sha256=${createHmac('sha256', secret).update(raw).digest('hex')}`;
    expect(headers['x-hub-signature-sha256']).toBe(signed(hook.secret));
    expect(headers['x-hub-signature-sha256']).not.toBe(signed(CLIENT.client_secret));
  });
});
