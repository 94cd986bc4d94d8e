import { verify as verifySignature } from '@octokit/webhooks-methods';
import * as openid from 'openid-client';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../../src/sandbox/sandbox.ts';
import { Receiver } from './receiver.ts';
import { Visitor } from './visitor.ts';

/** Tests with independent programs, to show that the sandbox follows the standards and not only our client. */
const { clientId, clientSecret, userEmail, userPassword } = SANDBOX_CREDENTIALS;
const REDIRECT = 'http://127.0.0.1:9/callback';

let sandbox: Sandbox;
beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
});
afterEach(() => sandbox.stop());

function configuration(auth: openid.ClientAuth, host: 'people' | 'machines' = 'people'): openid.Configuration {
  const base = host === 'people' ? `${sandbox.url}/app/id` : sandbox.url;
  const server = {
    issuer: sandbox.url,
    authorization_endpoint: `${sandbox.url}/app/id/sign_in`,
    token_endpoint: `${base}/oauth/token`,
    revocation_endpoint: `${base}/oauth/revoke`,
  };
  const made = new openid.Configuration(server, clientId, undefined, auth);
  openid.allowInsecureRequests(made);
  return made;
}

/** Signs in as a browser does. Returns the response with the redirect. */
async function signInByBrowser(address: URL, password: string = userPassword): Promise<Response> {
  const page = await fetch(address);
  expect(page.status).toBe(200);
  const fields = [...(await page.text()).matchAll(/name="(\w+)" value="([^"]*)"/g)]
    .filter(([, name]) => name !== 'deny')
    .map(([, name, value]): [string, string] => [name!, value!.replaceAll('&amp;', '&')]);
  const body = new URLSearchParams([...fields, ['username', userEmail], ['password', password]]);
  return await fetch(`${sandbox.url}/app/id/sign_in`, { method: 'POST', body, redirect: 'manual' });
}

const callWith = (token: string) =>
  fetch(`${sandbox.url}/v2/permissions`, { headers: { authorization: `Bearer ${token}` } });

async function codeWithPkce(config: openid.Configuration) {
  const verifier = openid.randomPKCECodeVerifier();
  const state = openid.randomState();
  const address = openid.buildAuthorizationUrl(config, {
    redirect_uri: REDIRECT,
    state,
    code_challenge: await openid.calculatePKCECodeChallenge(verifier),
    code_challenge_method: 'S256',
  });
  const answer = await signInByBrowser(address);
  expect(answer.status).toBe(302);
  return { redirect: new URL(answer.headers.get('location')!), verifier, state };
}

describe('openid-client', () => {
  it('signs in a user with PKCE and no secret, and uses each refresh token once', async () => {
    const config = configuration(openid.None());
    const { redirect, verifier, state } = await codeWithPkce(config);
    const checks = { pkceCodeVerifier: verifier, expectedState: state };
    const tokens = await openid.authorizationCodeGrant(config, redirect, checks);
    expect(tokens).toMatchObject({ token_type: 'bearer', expires_in: 660 });
    expect((await callWith(tokens.access_token)).status).toBe(200);

    const renewed = await openid.refreshTokenGrant(config, tokens.refresh_token!);
    expect(renewed.access_token).not.toBe(tokens.access_token);
    expect((await callWith(renewed.access_token)).status).toBe(200);
    await expect(openid.refreshTokenGrant(config, tokens.refresh_token!)).rejects.toMatchObject({
      error: 'invalid_grant',
      status: 400,
    });
  });

  it('receives an error for a used code or a wrong code verifier', async () => {
    const config = configuration(openid.None());
    const first = await codeWithPkce(config);
    const checks = { pkceCodeVerifier: first.verifier, expectedState: first.state };
    await openid.authorizationCodeGrant(config, first.redirect, checks);
    await expect(openid.authorizationCodeGrant(config, first.redirect, checks)).rejects.toMatchObject({
      error: 'invalid_grant',
    });
    const second = await codeWithPkce(config);
    const wrong = { pkceCodeVerifier: openid.randomPKCECodeVerifier(), expectedState: second.state };
    await expect(openid.authorizationCodeGrant(config, second.redirect, wrong)).rejects.toMatchObject({
      error: 'invalid_grant',
    });
  });

  it('rejects a redirect with a different state, because the sandbox returns the state unchanged', async () => {
    const config = configuration(openid.None());
    const { redirect, verifier } = await codeWithPkce(config);
    const checks = { pkceCodeVerifier: verifier, expectedState: 'another state' };
    await expect(openid.authorizationCodeGrant(config, redirect, checks)).rejects.toThrow();
  });

  it.each([
    ['in a Basic header', () => openid.ClientSecretBasic(clientSecret)],
    ['in the body', () => openid.ClientSecretPost(clientSecret)],
  ])('signs in a user through the web flow with the secret %s', async (_where, auth) => {
    const config = configuration(auth());
    const state = openid.randomState();
    const answer = await signInByBrowser(openid.buildAuthorizationUrl(config, { redirect_uri: REDIRECT, state }));
    const redirect = new URL(answer.headers.get('location')!);
    const tokens = await openid.authorizationCodeGrant(config, redirect, { expectedState: state });
    expect((await callWith(tokens.access_token)).status).toBe(200);
    expect((await openid.refreshTokenGrant(config, tokens.refresh_token!)).expires_in).toBe(660);
  });

  it('revokes tokens with the bearer form, including the refresh token', async () => {
    const config = configuration(openid.None());
    const { redirect, verifier, state } = await codeWithPkce(config);
    const checks = { pkceCodeVerifier: verifier, expectedState: state };
    const tokens = await openid.authorizationCodeGrant(config, redirect, checks);
    // The platform requires the token itself as proof (platform 4.1), which the library supports with a custom fetch.
    config[openid.customFetch] = (url, options) => {
      const headers = { ...options.headers, authorization: `Bearer ${tokens.access_token}` };
      return fetch(url, { ...options, headers } as RequestInit);
    };
    await openid.tokenRevocation(config, tokens.access_token);
    expect((await callWith(tokens.access_token)).status).toBe(401);
    await expect(openid.refreshTokenGrant(configuration(openid.None()), tokens.refresh_token!)).rejects.toMatchObject({
      error: 'invalid_grant',
    });
  });

  it.each([
    ['in a Basic header', () => openid.ClientSecretBasic(clientSecret)],
    ['in the body', () => openid.ClientSecretPost(clientSecret)],
  ])(
    'completes a technical user’s password grant, refresh and revocation with the credentials %s',
    async (_where, auth) => {
      const config = configuration(auth(), 'machines');
      const { technicalUsername: username, technicalPassword: password } = SANDBOX_CREDENTIALS;
      const tokens = await openid.genericGrantRequest(config, 'password', { username, password });
      const renewed = await openid.refreshTokenGrant(config, tokens.refresh_token!);
      expect((await callWith(renewed.access_token)).status).toBe(200);
      await openid.tokenRevocation(config, renewed.access_token);
      expect((await callWith(renewed.access_token)).status).toBe(401);
      await expect(
        openid.genericGrantRequest(config, 'password', { username, password: 'wrong' }),
      ).rejects.toMatchObject({ error: 'invalid_grant' });
    },
  );

  it('receives 401 with a matching WWW-Authenticate scheme if the secret is wrong (RFC 6749 section 5.2)', async () => {
    const config = configuration(openid.ClientSecretBasic('wrong'), 'machines');
    await expect(openid.refreshTokenGrant(config, 'any')).rejects.toMatchObject({
      status: 401,
      cause: [{ scheme: 'basic' }],
    });
  });
});

describe('@octokit/webhooks-methods', () => {
  it('verifies delivery signatures', async () => {
    const receiver = new Receiver();
    await receiver.start();
    try {
      const visitor = await Visitor.signedIn(sandbox);
      const made = await visitor.call('POST', '/v1/client_applications/3/webhooks', {
        url: receiver.url,
        event_types: ['asset_value_created'],
      });
      await visitor.post(881, 'flow', [{ timestamp: '2026-11-21T00:00:00.000Z', value: 12.5 }]);
      await vi.waitFor(() => expect(receiver.received).toHaveLength(1), { timeout: 20_000, interval: 20 });
      const { headers, raw } = receiver.received[0]!;
      const signature = String(headers['x-hub-signature-sha256']);
      expect(await verifySignature(made.body.secret, raw.toString('utf8'), signature)).toBe(true);
      expect(await verifySignature('another', raw.toString('utf8'), signature)).toBe(false);
    } finally {
      await receiver.stop();
    }
  });
});
