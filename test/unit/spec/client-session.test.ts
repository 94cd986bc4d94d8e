import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { Redactor } from '../../../src/base/redactor.ts';
import { PlatformClient } from '../../../src/platform/client.ts';
import { createDispatcher } from '../../../src/platform/dispatcher.ts';
import {
  beginSignIn,
  codeGrantRequest,
  codeOfRedirect,
  personRefreshRequest,
  personRevokeRequest,
  TokenRequests,
} from '../../../src/platform/grants.ts';
import { HttpBoundary } from '../../../src/platform/http-boundary.ts';
import { SessionFile } from '../../../src/platform/session/live-tokens.ts';
import { Session } from '../../../src/platform/session/session.ts';
import { SANDBOX_CREDENTIALS } from '../../../src/sandbox/sandbox.ts';
import { untilValid } from '../platform/until-valid.ts';
import { Platform, REDIRECT, redirectOf } from './platform.ts';

const { clientId, clientSecret, technicalUsername, technicalPassword } = SANDBOX_CREDENTIALS;
let platform: Platform;
let boundary: HttpBoundary;
let folder: string;
const sessions: Session[] = [];

beforeEach(async () => {
  platform = await Platform.start();
  boundary = new HttpBoundary({
    redactor: new Redactor(),
    sockets: createDispatcher({ connections: 4 }),
    clock: systemClock,
    userAgent: 'tagferry/test',
  });
  folder = mkdtempSync(join(tmpdir(), 'tagferry-spec-'));
});
afterEach(async () => {
  for (const session of sessions.splice(0)) await session.stop();
  await boundary.close();
  await platform.stop();
  rmSync(folder, { recursive: true, force: true });
});

const signedIn = async (clientAuth: 'basic' | 'body' = 'basic', password: string = technicalPassword) => {
  const session = new Session({
    redactor: new Redactor(),
    boundary,
    baseUrl: platform.sandbox.url,
    credentials: () => ({
      client: { clientId, clientSecret, clientAuth },
      user: { username: technicalUsername, password },
    }),
    file: new SessionFile(folder),
    clock: systemClock,
    log: silentLogger(),
  });
  sessions.push(session);
  await session.start(new AbortController().signal);
  await untilValid(session);
  return session;
};
/** Valid tokens except those of the test. */
const alive = () => platform.sandbox.tokens.list().filter(({ id, state }) => id > 1 && state === 'valid');

describe('specification, client session', () => {
  it.each(['basic', 'body'] as const)(
    '5.2 the client signs in as the technical user with CLIENT_AUTH=%s',
    async (how) => {
      await signedIn(how);
      expect(alive().map(({ grant }) => grant)).toEqual(['password']);
    },
  );

  it('5.2 the client sends the key and secret unencoded, and its error mentions the encoded form for other servers', async () => {
    const strict = await Platform.start({ strict: ['basic-auth'] });
    strict.sandbox.site.get('api_keys', 3)!.client_secret = 'a+b/c=~!';
    const login = (clientAuth: 'basic' | 'basic-encoded') => {
      const client = { clientId, clientSecret: 'a+b/c=~!', clientAuth };
      const user = { username: technicalUsername, password: technicalPassword };
      const requests = new TokenRequests(boundary, strict.sandbox.url, () => ({ client, user }));
      return requests.login(AbortSignal.timeout(20_000));
    };
    try {
      expect((await login('basic')).accessToken).toBeTruthy();
      await expect(login('basic-encoded')).rejects.toMatchObject({
        oauthError: 'invalid_client',
        hint: expect.stringContaining('CLIENT_AUTH=basic.'),
      });
    } finally {
      await strict.stop();
    }
  });

  it('5.5 the client sends its token with every request', async () => {
    const session = await signedIn();
    const client = new PlatformClient({
      boundary,
      baseUrl: platform.sandbox.url,
      tokens: session,
      clock: systemClock,
      log: silentLogger(),
    });
    for (const path of ['/v1/client_applications', '/v2/permissions']) {
      expect((await client.request({ method: 'GET', path, kind: 'other' })).status).toBe(200);
    }
  });

  it('5.6 the client renews with the refresh grant, and revokes replaced tokens', async () => {
    const session = await signedIn();
    await session.renewNow();
    await vi.waitFor(() => expect(alive().map(({ grant }) => grant)).toEqual(['refresh_token']), { timeout: 10_000 });
  });

  it('5.6 the client revokes its tokens at shutdown', async () => {
    const session = await signedIn();
    expect(alive()).toHaveLength(1);
    await session.stop();
    expect(alive()).toEqual([]);
    expect(platform.sandbox.tokens.list().map(({ refresh }) => refresh)).toEqual(['valid', 'ended']);
  });
});

describe('specification, user sign-in by the client', () => {
  const pkce = { clientId };
  const web = { clientId, clientSecret };
  const fieldsOf = (asked: { body?: unknown }) => Object.fromEntries(new URLSearchParams(String(asked.body)));
  /** Signs in as a browser with the client's address. */
  const browse = async (address: URL) => redirectOf(await platform.signIn(Object.fromEntries(address.searchParams)));
  const ask = async (asked: { url: URL; body?: unknown; headers?: object }) => {
    const { authorization } = (asked.headers ?? {}) as { authorization?: string };
    const path = asked.url.pathname;
    return platform.stranger().form(path, fieldsOf(asked), authorization === undefined ? {} : { authorization });
  };

  it.each([
    ['web flow with its secret', web],
    ['PKCE without a secret', pkce],
  ])('5.3 the client exchanges its code with the same redirect_uri: %s', async (_, client) => {
    const signIn = beginSignIn(platform.sandbox.url, client, REDIRECT);
    const code = codeOfRedirect(await browse(signIn.address), signIn);
    const tokens = (await ask(codeGrantRequest(platform.sandbox.url, client, signIn, code))).body;
    const renewed = await ask(personRefreshRequest(platform.sandbox.url, client, tokens.refresh_token));
    expect([tokens.token_type, renewed.status]).toEqual(['Bearer', 200]);
    const token = renewed.body.access_token;
    expect((await ask(personRevokeRequest(platform.sandbox.url, client, token))).status).toBe(200);
    expect(await platform.isAlive(token)).toBe(false);
  });

  it('5.3 the client compares the returned state with the generated state', async () => {
    const [one, other] = [web, web].map((client) => beginSignIn(platform.sandbox.url, client, REDIRECT));
    const redirect = await browse(one!.address);
    expect(redirect.searchParams.get('state')).toBe(one!.state);
    expect(() => codeOfRedirect(redirect, other!)).toThrow(/state/);
    expect(codeOfRedirect(redirect, one!)).not.toBe('');
  });

  it('5.4 the client’s verifier is random and has 43 to 128 allowed characters, and its challenge is S256', () => {
    const verifiers = Array.from({ length: 50 }, () => beginSignIn(platform.sandbox.url, pkce, REDIRECT));
    for (const { codeVerifier, address } of verifiers) {
      expect(codeVerifier).toMatch(/^[A-Za-z0-9._~-]{43,128}$/);
      expect(address.searchParams.get('code_challenge_method')).toBe('S256');
    }
    expect(new Set(verifiers.map(({ codeVerifier }) => codeVerifier)).size).toBe(50);
  });

  it('5.4 the token request with PKCE contains no client secret', () => {
    const signIn = beginSignIn(platform.sandbox.url, pkce, REDIRECT);
    const fields = fieldsOf(codeGrantRequest(platform.sandbox.url, pkce, signIn, 'code'));
    expect(Object.keys(fields).sort()).toEqual(['client_id', 'code', 'code_verifier', 'grant_type', 'redirect_uri']);
  });
});
