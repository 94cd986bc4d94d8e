import { createHash, randomBytes } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../../src/sandbox/sandbox.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { basic, Visitor } from './visitor.ts';

let sandbox: Sandbox;
let visitor: Visitor;

beforeEach(async () => {
  sandbox = new Sandbox();
  await sandbox.start();
  visitor = new Visitor(sandbox);
});
afterEach(() => sandbox.stop());

const alive = async (token: string) => {
  visitor.token = token;
  return (await visitor.get('/v1/client_applications/current')).status === 200;
};

describe('platform 2.1 and 3.1: access tokens', () => {
  it('are issued by the password grant with every field of the token response', async () => {
    const second = () => Math.floor(sandbox.clock.wallMs() / 1000);
    const earliest = second();
    const { status, body, headers } = await visitor.login();
    expect(status).toBe(200);
    expect(body).toEqual({
      access_token: expect.any(String),
      token_type: 'Bearer',
      expires_in: 660,
      refresh_token: expect.any(String),
      created_at: expect.any(Number),
    });
    expect(body.created_at).toBeGreaterThanOrEqual(earliest);
    expect(body.created_at).toBeLessThanOrEqual(second());
    expect(headers.get('cache-control')).toBe('no-store');
  });

  it('are rejected with 401 and WWW-Authenticate if missing, unknown or expired', async () => {
    const reply = await visitor.get('/v1/client_applications/current');
    expect(reply.status).toBe(401);
    expect(reply.headers.get('www-authenticate')).toMatch(/^Bearer/);
    expect(reply.body.errors[0]).toMatchObject({ type: 'unauthorized', message: expect.any(String) });
  });

  it('have a lifetime in real seconds even if the sandbox clock runs faster', async () => {
    const fast = new Sandbox({ speed: 10 });
    await fast.start();
    expect((await new Visitor(fast).login()).body.expires_in).toBe(66);
    await fast.stop();
  });

  it.each([661, 1_000, 100_000])(
    'stay valid for five real seconds at a speed of %i, and can be refreshed',
    async (speed) => {
      const clock = new ManualClock();
      const fast = new Sandbox({ clock, speed, limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
      await fast.start();
      const caller = new Visitor(fast);
      const { body } = await caller.login();
      caller.token = body.access_token;
      expect(body.expires_in).toBe(5);
      await clock.advance(4_500);
      expect((await caller.get('/v1/client_applications/current')).status).toBe(200);
      await clock.advance(1_000);
      expect((await caller.get('/v1/client_applications/current')).status).toBe(401);
      const renewed = await caller.form('/oauth/token', {
        grant_type: 'refresh_token',
        refresh_token: body.refresh_token,
      });
      caller.token = renewed.body.access_token;
      expect((await caller.get('/v1/client_applications/current')).status).toBe(200);
      const grant = { user: 6, application: 3, redirectUri: 'x', challenge: undefined };
      const code = fast.codes.issue(grant);
      await clock.advance(9_000);
      expect(fast.codes.redeem(code)).toMatchObject(grant);
      await fast.stop();
    },
  );

  it('can be configured with a very short lifetime', async () => {
    const clock = new ManualClock();
    const short = new Sandbox({ clock, accessTokenLifeS: 2 });
    await short.start();
    expect((await new Visitor(short).login()).body.expires_in).toBe(2);
    await short.stop();
  });
});

describe('platform 4.1: client authentication', () => {
  it.each([
    ['unencoded (platform 5.2)', 'a+b/c%41:d', 'a+b/c%41:d'],
    ['unencoded if it is an invalid encoding', '100%', '100%'],
    ['form-encoded (RFC 6749 section 2.3.1)', 'a b:c%d+e', 'a+b%3Ac%25d%2Be'],
    ['form-encoded if it contains an encoding', 'c%41', 'c%2541'],
  ])('accepts a Basic secret %s', async (_, secret, sent) => {
    sandbox.site.get('api_keys', 3)!.client_secret = secret;
    const reply = await visitor.form(
      '/oauth/token',
      {
        grant_type: 'password',
        username: SANDBOX_CREDENTIALS.technicalUsername,
        password: SANDBOX_CREDENTIALS.technicalPassword,
      },
      basic(SANDBOX_CREDENTIALS.clientId, sent),
    );
    expect(reply.status).toBe(200);
  });

  it('rejects an encoded Basic secret if the rule basic-auth is active', async () => {
    const strict = new Sandbox({ strict: ['basic-auth'] });
    await strict.start();
    try {
      strict.site.get('api_keys', 3)!.client_secret = 'a+b/c=~!';
      const { clientId, technicalUsername: username, technicalPassword: password } = SANDBOX_CREDENTIALS;
      const login = (sent: string) =>
        new Visitor(strict).form('/oauth/token', { grant_type: 'password', username, password }, basic(clientId, sent));
      expect((await login('a%2Bb%2Fc%3D%7E%21')).status).toBe(401);
      expect((await login('a+b/c=~!')).status).toBe(200);
    } finally {
      await strict.stop();
    }
  });

  it('reports errors in the format of RFC 6749 section 5.2', async () => {
    const password = { grant_type: 'password', username: 'x', password: 'y' };
    const wrongClient = await visitor.form('/oauth/token', password, basic('nobody', 'x'));
    expect([wrongClient.status, wrongClient.body.error]).toEqual([401, 'invalid_client']);
    const wrongUser = await visitor.form('/oauth/token', password);
    expect([wrongUser.status, wrongUser.body.error]).toEqual([400, 'invalid_grant']);
    const wrongGrant = await visitor.form('/oauth/token', { grant_type: 'magic' });
    expect([wrongGrant.status, wrongGrant.body.error]).toEqual([400, 'unsupported_grant_type']);
    const nothing = await visitor.form('/oauth/token', {});
    expect([nothing.status, nothing.body.error]).toEqual([400, 'invalid_request']);
  });
});

describe('platform 3.1: refresh and revocation', () => {
  const refresh = (token: string) =>
    visitor.form('/oauth/token', { grant_type: 'refresh_token', refresh_token: token });

  it('cannot revoke an expired access token, so its refresh token stays valid', async () => {
    const pair = (await visitor.login()).body;
    sandbox.clock.advance(661_000);
    await visitor.form('/oauth/revoke', { token: pair.access_token });
    expect((await refresh(pair.refresh_token)).status).toBe(200);
  });

  it('also revokes the shared refresh token of a previous access token without rotation', async () => {
    sandbox.tokens.configure({ rotateRefreshTokens: false });
    const first = (await visitor.login()).body;
    const second = (await refresh(first.refresh_token)).body;
    expect(second.refresh_token).toBe(first.refresh_token);
    await visitor.form('/oauth/revoke', { token: first.access_token });
    expect((await refresh(second.refresh_token)).status).toBe(400);
  });
});

describe('platform 5.3 and 5.4: user sign-in', () => {
  const redirectUri = 'http://127.0.0.1:53211/callback';
  const verifier = randomBytes(48).toString('base64url');
  const challenge = createHash('sha256').update(verifier).digest('base64url');
  const request = {
    response_type: 'code',
    client_id: SANDBOX_CREDENTIALS.clientId,
    redirect_uri: redirectUri,
    state: 'st<&>"ate',
  };
  const person = { username: SANDBOX_CREDENTIALS.userEmail, password: SANDBOX_CREDENTIALS.userPassword };

  const codeFor = async (more: Record<string, string>) => {
    const reply = await visitor.form('/app/id/sign_in', { ...request, ...person, ...more }, {});
    expect(reply.status).toBe(302);
    const location = new URL(reply.headers.get('location')!);
    expect(location.href.startsWith(redirectUri)).toBe(true);
    expect(location.searchParams.get('state')).toBe(request.state);
    return location.searchParams.get('code')!;
  };
  const exchange = (fields: Record<string, string>) =>
    visitor.form(
      '/app/id/oauth/token',
      {
        grant_type: 'authorization_code',
        client_id: SANDBOX_CREDENTIALS.clientId,
        redirect_uri: redirectUri,
        ...fields,
      },
      {},
    );

  it('shows a page that contains the escaped request', async () => {
    const reply = await visitor.get(`/app/id/sign_in?${new URLSearchParams(request)}`);
    expect(reply.status).toBe(200);
    expect(reply.text).toContain('value="st&lt;&amp;&gt;&quot;ate"');
  });

  it('never redirects to an unregistered address', async () => {
    for (const redirect_uri of ['http://127.0.0.1:53211/other', 'https://evil.example/callback', 'nonsense']) {
      const query = new URLSearchParams({ ...request, redirect_uri });
      expect((await visitor.get(`/app/id/sign_in?${query}`)).status).toBe(400);
      expect((await visitor.form('/app/id/sign_in', { ...request, ...person, redirect_uri }, {})).status).toBe(400);
    }
  });

  it('revokes the tokens issued for a reused code, and their replacements', async () => {
    const code = await codeFor({ code_challenge: challenge, code_challenge_method: 'S256' });
    const first = (await exchange({ code, code_verifier: verifier })).body;
    const client = { client_id: SANDBOX_CREDENTIALS.clientId };
    const fields = { grant_type: 'refresh_token', refresh_token: first.refresh_token, ...client };
    const second = (await visitor.form('/app/id/oauth/token', fields, {})).body;
    const other = (await visitor.login()).body.access_token;
    expect((await exchange({ code, code_verifier: verifier })).status).toBe(400);
    expect([await alive(first.access_token), await alive(second.access_token), await alive(other)]).toEqual([
      false,
      false,
      true,
    ]);
    const again = { ...fields, refresh_token: second.refresh_token };
    expect((await visitor.form('/app/id/oauth/token', again, {})).body.error).toBe('invalid_grant');
  });

  it('rejects a code challenge that cannot be a SHA-256 hash', async () => {
    const short = { code_challenge: challenge.slice(1), code_challenge_method: 'S256' };
    expect((await visitor.form('/app/id/sign_in', { ...request, ...person, ...short }, {})).status).toBe(400);
  });
});

describe('token endpoints', () => {
  const FORM = 'application/x-www-form-urlencoded';
  const fields = new URLSearchParams({
    grant_type: 'password',
    username: SANDBOX_CREDENTIALS.technicalUsername,
    password: SANDBOX_CREDENTIALS.technicalPassword,
  });
  it.each([
    ['JSON', 'application/json', JSON.stringify(Object.fromEntries(fields)), 400],
    ['text', 'text/plain', fields.toString(), 400],
    ['a repeated parameter', FORM, `${fields}&grant_type=password`, 400],
    ['a form', FORM, fields.toString(), 200],
    ['a form with a charset', `${FORM}; charset=UTF-8`, fields.toString(), 200],
  ])('accept only forms, and reject repeated parameters (RFC 6749 section 3.2): %s', async (_, type, body, status) => {
    const reply = await visitor.call('POST', '/oauth/token', body, { ...basic(), 'content-type': type });
    expect(reply.status).toBe(status);
    if (status === 400) expect(reply.body.error).toBe('invalid_request');
  });

  it('reject tokens for a deleted user', async () => {
    const { access_token, refresh_token } = (await visitor.login()).body;
    sandbox.changes.destroy('users', 5);
    expect(await alive(access_token)).toBe(false);
    const renewed = await visitor.form('/oauth/token', { grant_type: 'refresh_token', refresh_token });
    expect([renewed.status, renewed.body.error]).toEqual([400, 'invalid_grant']);
  });
});
