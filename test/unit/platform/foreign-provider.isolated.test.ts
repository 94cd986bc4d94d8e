import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { Redactor } from '../../../src/base/redactor.ts';
import { PlatformClient } from '../../../src/platform/client.ts';
import { createDispatcher } from '../../../src/platform/dispatcher.ts';
import {
  beginSignIn,
  type ClientCredentials,
  codeGrantRequest,
  codeOfRedirect,
  type PersonClient,
  personRefreshRequest,
  personRevokeRequest,
  type SignIn,
  TokenRequests,
} from '../../../src/platform/grants.ts';
import type { HttpRequest } from '../../../src/platform/http-boundary.ts';
import { HttpBoundary } from '../../../src/platform/http-boundary.ts';
import {
  GrantError,
  processRevokeAnswer,
  processTokenAnswer,
  type Tokens,
} from '../../../src/platform/response-meanings.ts';
import { SessionFile } from '../../../src/platform/session/live-tokens.ts';
import { Session } from '../../../src/platform/session/session.ts';
import {
  ForeignProvider,
  type ForeignProviderOptions,
  MACHINE_CLIENT,
  NATIVE_REDIRECT,
  PERSON_KEY,
  signInByBrowser,
  TECHNICAL_USER,
  WEB_CLIENT,
  WEB_REDIRECT,
} from './foreign-provider.ts';
import { until } from './session-bench.ts';
import { untilValid } from './until-valid.ts';

const PERSON: PersonClient = { clientId: PERSON_KEY };

let provider: ForeignProvider;
let boundary: HttpBoundary;
let closing: (() => Promise<unknown> | unknown)[];

async function useProvider(options: ForeignProviderOptions): Promise<void> {
  await provider?.stop();
  provider = new ForeignProvider(options);
  await provider.start();
}

beforeEach(async () => {
  closing = [];
  await useProvider({});
  boundary = new HttpBoundary({
    redactor: new Redactor(),
    sockets: createDispatcher({ connections: 4 }),
    clock: systemClock,
    userAgent: 'tagferry/test',
  });
});
afterEach(async () => {
  for (const close of closing) await close();
  await boundary.close();
  await provider.stop();
});

const send = (asked: HttpRequest) => boundary.send(asked);

async function signIn(client: PersonClient, redirectUri: string): Promise<{ code: string; begun: SignIn }> {
  const begun = beginSignIn(provider.url, client, redirectUri);
  return { code: codeOfRedirect(await signInByBrowser(begun.address), begun), begun };
}

async function exchange(client: PersonClient, begun: SignIn, code: string): Promise<Tokens> {
  const asked = codeGrantRequest(provider.url, client, begun, code);
  return processTokenAnswer(await send(asked), { grant: 'authorization_code', person: true });
}

async function tokensOf(client: PersonClient, redirectUri: string): Promise<Tokens> {
  const { code, begun } = await signIn(client, redirectUri);
  return await exchange(client, begun, code);
}

async function refresh(client: PersonClient, refreshToken: string): Promise<Tokens> {
  const asked = personRefreshRequest(provider.url, client, refreshToken);
  return processTokenAnswer(await send(asked), { grant: 'refresh_token', person: true, refreshToken });
}

async function revoke(client: PersonClient, accessToken: string): Promise<void> {
  const asked = personRevokeRequest(provider.url, client, accessToken);
  processRevokeAnswer(await send(asked), { grant: 'revoke', person: true });
}

async function callWith(accessToken: string): Promise<number> {
  const headers = { authorization: `Bearer ${accessToken}` };
  return (await boundary.send({ method: 'GET', url: new URL(`${provider.baseUrl}/v1/assets`), headers })).status;
}

/** Returns the error from a rejected grant. */
async function rejectionOf(run: Promise<unknown>): Promise<GrantError> {
  const error = await run.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error instanceof GrantError) return error;
  throw error ?? new Error('nothing was refused');
}

const INVALID_GRANT = {
  code: 'platform.sign_in_refused',
  failure: 'refused',
  status: 400,
  oauthError: 'invalid_grant',
  retryable: false,
  hint: expect.stringMatching(/login/),
};

describe('user sign-in with oidc-provider', () => {
  it('exchanges a code for working tokens with PKCE and without a secret', async () => {
    const { code, begun } = await signIn(PERSON, NATIVE_REDIRECT);
    const asked = codeGrantRequest(provider.url, PERSON, begun, code);
    expect(asked.headers).not.toHaveProperty('authorization');
    expect(String(asked.body)).not.toContain('client_secret');
    const answer = await send(asked);
    const fields = Object.keys(JSON.parse(answer.text));
    expect(fields).not.toContain('created_at');
    expect(fields).toEqual(expect.arrayContaining(['id_token', 'scope']));
    const tokens = processTokenAnswer(answer, { grant: 'authorization_code', person: true });
    expect(tokens).toMatchObject({ refreshToken: expect.any(String), expiresInMs: 660_000 });
    expect(await callWith(tokens.accessToken)).toBe(200);
  });

  it('fails with a typed error that contains no sent data for a code with another verifier', async () => {
    const { code, begun } = await signIn(PERSON, NATIVE_REDIRECT);
    const { codeVerifier } = beginSignIn('http://x', PERSON, '/');
    const error = await rejectionOf(exchange(PERSON, { ...begun, codeVerifier }, code));
    expect(error).toMatchObject(INVALID_GRANT);
    expect(error.message).not.toContain(code);
    expect(error.message).not.toContain(codeVerifier);
  });

  it('with a client secret uses the web flow without a code challenge', async () => {
    const tokens = await tokensOf(WEB_CLIENT, WEB_REDIRECT);
    expect(await callWith(tokens.accessToken)).toBe(200);
    const renewed = await refresh(WEB_CLIENT, tokens.refreshToken!);
    expect(await callWith(renewed.accessToken)).toBe(200);
  });

  it.each([
    ['with a wrong secret', { ...WEB_CLIENT, clientSecret: 'wrong' }],
    ['without its secret', { clientId: WEB_CLIENT.clientId }],
  ])('%s is rejected as invalid_client, with the credentials in the hint', async (_what, client) => {
    const { code, begun } = await signIn(WEB_CLIENT, WEB_REDIRECT);
    const error = await rejectionOf(exchange(client, begun, code));
    expect(error).toMatchObject({ failure: 'refused', status: 401, oauthError: 'invalid_client', retryable: false });
    expect(error.hint).toContain('CLIENT_SECRET');
  });

  it('fails with the error from the redirect if the user denies access', async () => {
    const begun = beginSignIn(provider.url, PERSON, NATIVE_REDIRECT);
    const back = await signInByBrowser(begun.address, 'no');
    expect(() => codeOfRedirect(back, begun)).toThrow(
      expect.objectContaining({
        code: 'platform.sign_in_redirect',
        message: 'the sign-in was rejected: access_denied End-User aborted interaction',
      }),
    );
  });

  it('accepts a code only with its own state, and ignores additional redirect parameters', async () => {
    const begun = beginSignIn(provider.url, PERSON, NATIVE_REDIRECT);
    const other = beginSignIn(provider.url, PERSON, NATIVE_REDIRECT);
    const back = await signInByBrowser(begun.address);
    // A parameter of RFC 9207, which the platform does not send.
    expect(back.searchParams.get('iss')).toBe(provider.url);
    expect(() => codeOfRedirect(back, other)).toThrow(expect.objectContaining({ code: 'platform.sign_in_redirect' }));
    expect(codeOfRedirect(back, begun)).toBe(back.searchParams.get('code'));
  });

  it('refreshes tokens repeatedly with refresh token rotation', async () => {
    let tokens = await tokensOf(PERSON, NATIVE_REDIRECT);
    const seen = new Set([tokens.accessToken, tokens.refreshToken]);
    for (let turn = 0; turn < 3; turn++) {
      tokens = await refresh(PERSON, tokens.refreshToken!);
      seen.add(tokens.accessToken).add(tokens.refreshToken);
      expect(await callWith(tokens.accessToken)).toBe(200);
    }
    expect(seen.size).toBe(8);
  });

  it.each([
    ['PKCE', PERSON, NATIVE_REDIRECT],
    ['the web flow', WEB_CLIENT, WEB_REDIRECT],
  ])('with %s is revoked with the bearer form, including the refresh token', async (_what, client, redirectUri) => {
    const tokens = await tokensOf(client, redirectUri);
    await revoke(client, tokens.accessToken);
    expect(provider.answered.at(-1)).toBe('revoke 200');
    expect(await callWith(tokens.accessToken)).toBe(401);
    expect(await rejectionOf(refresh(client, tokens.refreshToken!))).toMatchObject(INVALID_GRANT);
  });

  it('is not treated as revoked if the server rejects the nonstandard bearer form', async () => {
    await useProvider({ bearerForm: false });
    const tokens = await tokensOf(PERSON, NATIVE_REDIRECT);
    const error = await rejectionOf(revoke(PERSON, tokens.accessToken));
    expect(error).toMatchObject({ failure: 'refused', status: 400, oauthError: 'invalid_request' });
    expect(error.message).not.toContain(tokens.accessToken);
    expect(await callWith(tokens.accessToken)).toBe(200);
  });
});

describe('technical user grants with oidc-provider', () => {
  const { clientId, clientSecret } = MACHINE_CLIENT;
  const signal = () => AbortSignal.timeout(10_000);
  const requestsOf = (client: ClientCredentials, user = TECHNICAL_USER) =>
    new TokenRequests(boundary, provider.baseUrl, () => ({ client, user }));

  it.each([
    ['in a Basic header, both form-encoded', 'basic-encoded'],
    ['in the form', 'body'],
  ] as const)('log in, refresh and revoke with the key and secret %s', async (_where, clientAuth) => {
    const requests = requestsOf({ clientId, clientSecret, clientAuth });
    const first = await requests.login(signal());
    expect(await callWith(first.accessToken)).toBe(200);

    const second = await requests.refresh(first.refreshToken!, signal());
    expect(second.refreshToken).not.toBe(first.refreshToken);
    expect(await callWith(second.accessToken)).toBe(200);

    await requests.revoke(second.accessToken, signal());
    expect(await callWith(second.accessToken)).toBe(401);
    // The revocation of an invalid token succeeds (RFC 7009 section 2.2).
    await requests.revoke(second.accessToken, signal());
  });
});

describe('session with oidc-provider', () => {
  const logged: Record<string, unknown>[] = [];

  async function startSession(): Promise<{ session: Session; api: PlatformClient; renewals: string[] }> {
    const folder = mkdtempSync(join(tmpdir(), 'tagferry-foreign-'));
    const renewals: string[] = [];
    logged.length = 0;
    const log = pino({ level: 'trace' }, { write: (line: string) => void logged.push(JSON.parse(line)) });
    const { baseUrl } = provider;
    const session = new Session({
      redactor: new Redactor(),
      boundary,
      baseUrl,
      credentials: () => ({ client: { ...MACHINE_CLIENT, clientAuth: 'basic-encoded' }, user: TECHNICAL_USER }),
      file: new SessionFile(folder),
      clock: systemClock,
      log,
      onRenewal: (grant) => renewals.push(grant),
    });
    closing.push(
      () => session.stop(),
      () => rmSync(folder, { recursive: true, force: true }),
    );
    await session.start(new AbortController().signal);
    await untilValid(session);
    const api = new PlatformClient({ boundary, baseUrl, tokens: session, clock: systemClock, log });
    return { session, api, renewals };
  }

  const revocations = () => provider.answered.filter((answer) => answer === 'revoke 200').length;
  const call = async (api: PlatformClient) =>
    (await api.request({ method: 'GET', path: '/v1/assets', kind: 'other' })).status;
  async function accessTokenOf(session: Session): Promise<string> {
    const lease = await session.lease();
    lease.release();
    return lease.accessToken;
  }

  it('logs in, calls the API, and revokes all tokens at shutdown', async () => {
    const { session, api, renewals } = await startSession();
    expect(await call(api)).toBe(200);
    const accessToken = await accessTokenOf(session);
    await session.stop();
    expect(renewals).toEqual(['password']);
    expect(revocations()).toBe(1);
    expect(await callWith(accessToken)).toBe(401);
  });

  it('keeps using one refresh token without rotation, and revokes all tokens at shutdown', async () => {
    await useProvider({ rotate: false });
    const { session, api, renewals } = await startSession();
    const first = await accessTokenOf(session);
    await session.renewNow();
    await session.renewNow();
    expect(renewals).toEqual(['password', 'refresh_token', 'refresh_token']);
    expect(revocations()).toBe(0);
    expect(await callWith(first)).toBe(200);
    expect(await call(api)).toBe(200);
    const last = await accessTokenOf(session);
    await session.stop();
    expect(await callWith(first)).toBe(401);
    expect(await callWith(last)).toBe(401);
  });

  // This provider revokes a whole grant with any of its access tokens, so revoking the predecessor (platform 5.6) also revokes
  // its successor. The specification revokes only the refresh token of the revoked access token.
  it('recovers with one login after a 401 if the server revokes new tokens together with old ones', async () => {
    const { session, api, renewals } = await startSession();
    expect(await call(api)).toBe(200);
    await session.renewNow();
    await until(() => revocations() === 1);
    expect(await callWith(await accessTokenOf(session))).toBe(401);
    for (let turn = 0; turn < 5; turn++) expect(await call(api)).toBe(200);
    expect(renewals).toEqual(['password', 'refresh_token', 'password']);
    expect(logged.filter((line) => line.event === 'session.refresh_failed')).toHaveLength(1);
    const accessToken = await accessTokenOf(session);
    await session.stop();
    expect(await callWith(accessToken)).toBe(401);
    const secrets = [TECHNICAL_USER.password, MACHINE_CLIENT.clientSecret, accessToken];
    for (const secret of secrets) expect(JSON.stringify(logged)).not.toContain(secret);
  });
});
