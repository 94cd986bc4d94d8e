// Requires: oauthlib
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import * as oauth from 'oauth4webapi';
import { AuthorizationCode, ResourceOwnerPassword } from 'simple-oauth2';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../../src/sandbox/sandbox.ts';

/**
 * Flows of section 5 with independent OAuth clients. For openid-client and octokit, see test/unit/sandbox/foreign.test.ts.
 */
const { clientId, clientSecret, technicalUsername, technicalPassword, userEmail, userPassword } = SANDBOX_CREDENTIALS;
const REDIRECT = 'http://127.0.0.1:9/callback';

let sandbox: Sandbox;
beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
});
afterEach(() => sandbox.stop());

const callWith = async (token: string) =>
  (await fetch(`${sandbox.url}/v2/permissions`, { headers: { authorization: `Bearer ${token}` } })).status;

/** Signs in like a user in a browser, and returns the redirect address. */
async function signIn(address: string | URL): Promise<URL> {
  const page = await (await fetch(address)).text();
  const fields = [...page.matchAll(/name="(\w+)" value="([^"]*)"/g)]
    .filter(([, name]) => name !== 'deny')
    .map(([, name, value]): [string, string] => [name!, value!.replaceAll('&amp;', '&')]);
  const body = new URLSearchParams([...fields, ['username', userEmail], ['password', userPassword]]);
  const answer = await fetch(`${sandbox.url}/app/id/sign_in`, { method: 'POST', body, redirect: 'manual' });
  expect(answer.status).toBe(302);
  return new URL(answer.headers.get('location')!);
}

describe('oauth4webapi', () => {
  const client: oauth.Client = { client_id: clientId };
  const insecure = { [oauth.allowInsecureRequests]: true };

  function server(host: 'people' | 'machines'): oauth.AuthorizationServer {
    const base = host === 'people' ? `${sandbox.url}/app/id` : sandbox.url;
    return {
      issuer: sandbox.url,
      authorization_endpoint: `${sandbox.url}/app/id/sign_in`,
      token_endpoint: `${base}/oauth/token`,
      revocation_endpoint: `${base}/oauth/revoke`,
    };
  }

  it.each([
    ['a Basic header', () => oauth.ClientSecretBasic(clientSecret)],
    ['the body', () => oauth.ClientSecretPost(clientSecret)],
  ])(
    'completes the password grant of 5.2 with credentials in %s, a refresh (5.6) and a revocation',
    async (_where, auth) => {
      const machines = server('machines');
      const grant = new URLSearchParams({ username: technicalUsername, password: technicalPassword });
      const answer = await oauth.genericTokenEndpointRequest(machines, client, auth(), 'password', grant, insecure);
      const tokens = await oauth.processGenericTokenEndpointResponse(machines, client, answer);
      expect(tokens).toMatchObject({ token_type: 'bearer', expires_in: 660 });
      expect(await callWith(tokens.access_token)).toBe(200);

      const renewing = await oauth.refreshTokenGrantRequest(machines, client, auth(), tokens.refresh_token!, insecure);
      const renewed = await oauth.processRefreshTokenResponse(machines, client, renewing);
      expect(renewed.refresh_token).not.toBe(tokens.refresh_token);
      for (const token of [tokens.access_token, renewed.access_token]) {
        const revoking = await oauth.revocationRequest(machines, client, auth(), token, insecure);
        await oauth.processRevocationResponse(revoking);
        expect(await callWith(token)).toBe(401);
      }
      const again = await oauth.refreshTokenGrantRequest(machines, client, auth(), renewed.refresh_token!, insecure);
      await expect(oauth.processRefreshTokenResponse(machines, client, again)).rejects.toMatchObject({
        error: 'invalid_grant',
      });
    },
  );

  it.each([
    ['of 5.3 with a secret', () => oauth.ClientSecretPost(clientSecret)],
    ['of 5.4 with PKCE alone', () => oauth.None()],
  ])('completes the code flow %s, with an unchanged state', async (_which, auth) => {
    const people = server('people');
    const verifier = oauth.generateRandomCodeVerifier();
    const state = oauth.generateRandomState();
    const address = new URL(people.authorization_endpoint!);
    address.search = new URLSearchParams({
      response_type: 'code',
      client_id: clientId,
      redirect_uri: REDIRECT,
      state,
      code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
      code_challenge_method: 'S256',
    }).toString();
    const back = await signIn(address);
    expect(() => oauth.validateAuthResponse(people, client, back, 'another state')).toThrow(/state/);
    const checked = oauth.validateAuthResponse(people, client, back, state);
    const answer = await oauth.authorizationCodeGrantRequest(
      people,
      client,
      auth(),
      checked,
      REDIRECT,
      verifier,
      insecure,
    );
    const tokens = await oauth.processAuthorizationCodeResponse(people, client, answer);
    expect(await callWith(tokens.access_token)).toBe(200);
  });
});

describe('simple-oauth2', () => {
  const config = (authorizationMethod: 'header' | 'body', host: string) => ({
    client: { id: clientId, secret: clientSecret },
    auth: {
      tokenHost: sandbox.url,
      tokenPath: `${host}/oauth/token`,
      revokePath: `${host}/oauth/revoke`,
      ...(host === '' ? {} : { authorizePath: '/app/id/sign_in' }),
    },
    options: { authorizationMethod },
  });

  it.each(['header', 'body'] as const)(
    'completes the password grant of 5.2 by %s, a refresh and a revocation',
    async (method) => {
      const client = new ResourceOwnerPassword(config(method, ''));
      const token = await client.getToken({ username: technicalUsername, password: technicalPassword });
      expect(token.token).toMatchObject({ token_type: 'Bearer', expires_in: 660 });
      expect(token.expired()).toBe(false);
      const renewed = await token.refresh();
      expect(await callWith(String(renewed.token.access_token))).toBe(200);
      await renewed.revoke('access_token');
      expect(await callWith(String(renewed.token.access_token))).toBe(401);
      await expect(renewed.refresh()).rejects.toMatchObject({ output: { statusCode: 400 } });
    },
  );

  it('completes the code flow of 5.3 with a secret', async () => {
    const client = new AuthorizationCode(config('body', '/app/id'));
    const state = 'kept-by-the-client';
    const back = await signIn(client.authorizeURL({ redirect_uri: REDIRECT, state }));
    expect(back.searchParams.get('state')).toBe(state);
    const token = await client.getToken({ code: back.searchParams.get('code')!, redirect_uri: REDIRECT });
    expect(await callWith(String(token.token.access_token))).toBe(200);
    const renewed = await token.refresh();
    expect(await callWith(String(renewed.token.access_token))).toBe(200);
  });

  it('receives RFC 6749 errors for a wrong secret', async () => {
    const wrong = config('header', '');
    const client = new ResourceOwnerPassword({ ...wrong, client: { id: clientId, secret: 'wrong' } });
    await expect(client.getToken({ username: technicalUsername, password: technicalPassword })).rejects.toMatchObject({
      output: { statusCode: 401 },
      data: { payload: { error: 'invalid_client' } },
    });
  });
});

describe('Debian’s Python client', () => {
  /** Uses Debian's interpreter, because these are Debian packages. */
  const walk = async (script: string) => {
    const options = { env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1' } };
    const ran = promisify(execFile)('/usr/bin/python3', [join(import.meta.dirname, script), sandbox.url], options);
    return JSON.parse((await ran).stdout) as Record<string, unknown>;
  };
  const answer = { token_type: 'Bearer', expires_in: 660 };
  const machines = {
    password: answer,
    password_in_body: answer,
    used: 200,
    renewed: true,
    refreshed_twice: 'invalid_grant',
    revoked: 200,
    used_after_revocation: 401,
    wrong_secret: 'invalid_client',
  };

  it('requests-oauthlib completes the password grant of 5.2, the code flow of 5.3, refresh and revocation', async () => {
    expect(await walk('requests_oauthlib_flows.py')).toEqual({ ...machines, code: answer, code_used: 200 });
  });

  it('authlib completes the same flows as requests-oauthlib, and the code flow of 5.4 with PKCE', async () => {
    const people = { code: answer, code_used: 200, pkce: answer, pkce_used: 200 };
    expect(await walk('authlib_flows.py')).toEqual({ ...machines, ...people });
  });
});
