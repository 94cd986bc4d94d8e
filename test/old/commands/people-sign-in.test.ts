import { chmodSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../../src/sandbox/sandbox.ts';
import { Account, type LoginProcess, signInOnPage } from './person-browser.ts';

let sandbox: Sandbox;
let account: Account;
const logins: LoginProcess[] = [];

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  account = new Account(sandbox);
});
afterEach(async () => {
  for (const { child } of logins.splice(0)) child.kill('SIGKILL');
  account.dispose();
  await sandbox.stop();
});

function login(...args: string[]): LoginProcess {
  const made = account.login(...args);
  logins.push(made);
  return made;
}

const people = () => join(account.folder, 'state/tagferry/people');
const tokenFiles = () => readdirSync(people()).filter((name) => name.endsWith('.json'));
const stored = () => JSON.parse(readFileSync(join(people(), tokenFiles()[0]!), 'utf8')) as Record<string, string>;
const alive = () => sandbox.tokens.list().filter((token) => token.state === 'valid');

describe('tagferry login', () => {
  it('signs a user in with PKCE and no secret, stores the tokens with mode 0600 and never prints them', async () => {
    const waiting = login();
    const address = new URL(await waiting.address());
    expect(address.searchParams.get('code_challenge_method')).toBe('S256');
    expect(address.searchParams.get('code_challenge')).toMatch(/^[A-Za-z0-9_-]{43}$/);
    expect(address.searchParams.get('state')!.length).toBeGreaterThanOrEqual(32);
    const page = await fetch(await signInOnPage(address.href));
    expect(page.status).toBe(200);
    expect(await page.text()).toContain('You are signed in');
    expect(await waiting.ended()).toBe(0);
    const exchange = sandbox.requests.list().find((one) => one.path === '/app/id/oauth/token')!;
    expect(exchange.status).toBe(200);

    expect(tokenFiles()).toHaveLength(1);
    expect(statSync(join(people(), tokenFiles()[0]!)).mode & 0o777).toBe(0o600);
    expect(statSync(people()).mode & 0o777).toBe(0o700);
    expect(stored().flow).toBe('pkce');
    for (const secret of [stored().accessToken!, stored().refreshToken!]) {
      expect(waiting.stdout + waiting.stderr).not.toContain(secret);
    }
    const listed = await account.run('permissions', 'ls', 'Asset/881');
    expect(listed.status, listed.stderr).toBe(0);
  });

  it('uses the web flow if CLIENT_SECRET is configured, and PKCE on request', async () => {
    account.environment.CLIENT_SECRET = SANDBOX_CREDENTIALS.clientSecret;
    const web = login();
    const address = await web.address();
    expect(new URL(address).searchParams.has('code_challenge')).toBe(false);
    await fetch(await signInOnPage(address));
    expect(await web.ended()).toBe(0);
    expect(stored().flow).toBe('web');
    sandbox.tokens.expireAll(false);
    expect((await account.run('permissions', 'ls', 'Asset/881')).status).toBe(0);

    account.environment.PKCE_CHALLENGE = 'base64';
    const literal = login('--pkce');
    const literalAddress = new URL(await literal.address());
    expect(literalAddress.searchParams.get('code_challenge')).toMatch(/^[A-Za-z0-9+/]{43}=$/);
    await fetch(await signInOnPage(literalAddress.href));
    expect(await literal.ended()).toBe(0);
    delete account.environment.PKCE_CHALLENGE;

    const pkce = login('--pkce');
    expect(new URL(await pkce.address()).searchParams.has('code_challenge')).toBe(true);
    delete account.environment.CLIENT_SECRET;
    expect((await account.run('login', '--web-flow')).status).toBe(2);
  });

  it('works over SSH without a listener, using a pasted redirect URL', async () => {
    const waiting = login('--paste', '--redirect', 'http://127.0.0.1:8478/callback');
    const redirect = await signInOnPage(await waiting.address());
    await expect(fetch(redirect)).rejects.toThrow();
    waiting.child.stdin!.end(`${redirect}\n`);
    expect(await waiting.ended()).toBe(0);
    expect((await account.run('permissions', 'ls', 'Asset/881')).status).toBe(0);
  });

  it('accepts a pasted URL while its listener is waiting, and prompts again if the URL is wrong', async () => {
    const { status, screen } = await account.onTerminal(
      async (shown) => {
        const address = /^http\S+\/app\/id\/sign_in\?\S+/m.exec(shown)![0]!;
        return `nonsense\r${await signInOnPage(address)}`;
      },
      ...['login', '--redirect', 'http://127.0.0.1:0/callback'],
    );
    expect(`${status} ${screen}`).toMatch(/^0 [\s\S]*not an address\. Paste the URL again\.[\s\S]*Signed in at/);
    expect((await account.run('permissions', 'ls', 'Asset/881')).status).toBe(0);
  });

  it('rejects a URL from another sign-in, and a URL without a code', async () => {
    const other = login('--paste', '--redirect', 'http://127.0.0.1:8478/callback');
    const foreign = await signInOnPage(await other.address());
    const first = login('--paste', '--redirect', 'http://127.0.0.1:8478/callback');
    await first.address();
    first.child.stdin!.end(`${foreign}\n`);
    expect(await first.ended()).toBe(1);
    expect(first.stderr).toContain('does not contain the state');
    const second = login('--paste');
    expect(await second.ended()).toBe(2);
    const third = login('--paste', '--redirect', 'http://127.0.0.1:8478/callback');
    await third.address();
    third.child.stdin!.end();
    expect(await third.ended()).toBe(2);
    expect(sandbox.tokens.counts().issued).toBe(0);
  });

  it('continues to wait if another client connects to its listener', async () => {
    const waiting = login();
    const address = await waiting.address();
    const callback = new URL(new URL(address).searchParams.get('redirect_uri')!);
    const visit = async (query: string, init: RequestInit = {}, path = '/callback') =>
      (await fetch(`${callback.origin}${path}${query}`, init)).status;
    expect(await visit('?code=x&state=wrong')).toBe(400);
    expect(await visit('?error=access_denied')).toBe(400);
    expect(await visit('', { method: 'POST' })).toBe(405);
    expect(await visit('', {}, '/favicon.ico')).toBe(404);
    expect(sandbox.requests.list().some((one) => one.path === '/app/id/oauth/token')).toBe(false);
    expect((await fetch(await signInOnPage(address))).status).toBe(200);
    expect(await waiting.ended()).toBe(0);
  });

  it('reports a denied sign-in in the browser and in the terminal', async () => {
    const waiting = login();
    const page = await fetch(await signInOnPage(await waiting.address(), undefined, { deny: '1' }));
    expect(page.status).toBe(400);
    expect(await waiting.ended()).toBe(1);
    expect(waiting.stderr).toContain('access_denied');
  });

  it('opens the URL in a browser without a shell, except over SSH', async () => {
    const bin = join(account.folder, 'bin');
    mkdirSync(bin);
    const seen = join(account.folder, 'opened');
    writeFileSync(
      join(bin, 'xdg-open'),
      `#!/bin/sh\nprintf '%s\\n' "$#" "$1" > "${seen}.tmp" && mv "${seen}.tmp" "${seen}"\n`,
    );
    chmodSync(join(bin, 'xdg-open'), 0o755);
    account.environment.PATH = `${bin}:${account.environment.PATH}`;
    account.environment.DISPLAY = ':99';
    const waiting = login();
    const address = await waiting.address();
    await vi.waitFor(() => expect(readFileSync(seen, 'utf8')).toBe(`1\n${address}\n`), { timeout: 20_000 });
    waiting.child.kill('SIGKILL');
    account.environment.SSH_CONNECTION = '192.0.2.1 50000 192.0.2.2 22';
    const remote = login();
    await remote.address();
    expect(remote.stdout).not.toContain('Opening a browser');
  });

  it('stores tokens separately for each client application and user in one system account', async () => {
    await account.signIn(undefined, '--as', 'anna');
    await account.signIn('ben@sandbox.example', '--as', 'ben');
    expect((await account.run('permissions', 'ls', 'Asset/881', '--as', 'anna')).status).toBe(0);
    expect((await account.run('permissions', 'ls', 'Asset/920', '--as', 'ben')).stdout.trim()).toBe('[]');
    expect((await account.run('permissions', 'ls', 'Asset/881')).stderr).toContain('tagferry login');
    account.environment.CLIENT_ID = 'another-client';
    expect((await account.run('permissions', 'ls', 'Asset/881', '--as', 'anna')).stderr).toContain('not signed in');
    expect((await account.run('permissions', 'ls', 'Asset/881', '--as', '../x')).status).toBe(2);
  });

  it('revokes tokens from the previous sign-in', async () => {
    await account.signIn();
    await account.signIn();
    expect(sandbox.tokens.counts()).toMatchObject({ issued: 2, alive: 1 });
  });

  it('exits with 78 if a setting is missing, but requires no technical user settings', async () => {
    delete account.environment.CLIENT_ID;
    const { status, stderr } = await account.run('login');
    expect(status).toBe(78);
    expect(stderr).toContain('CLIENT_ID');
    expect(stderr).not.toContain('TECHNICAL');
  });

  it('prints the result as JSON on standard output, and the URL on standard error', async () => {
    const done = await account.signIn(undefined, '--json', '--as', 'anna');
    expect(JSON.parse(done.stdout)).toEqual({ signed_in: true, as: 'anna', flow: 'pkce', platform: sandbox.url });
  });
});

describe('user sign-in', () => {
  it('is renewed only once for concurrent commands after its token expires', async () => {
    await account.signIn();
    sandbox.tokens.expireAll(false);
    const outcomes = await Promise.all([1, 2, 3, 4].map(() => account.run('permissions', 'ls', 'Asset/881')));
    expect(outcomes.map((one) => `${one.status}${one.stderr}`)).toEqual(['0', '0', '0', '0']);
    expect(sandbox.tokens.list().map((token) => token.grant)).toEqual(['authorization_code', 'refresh_token']);
    expect(alive()).toHaveLength(1);
  });

  it('ends when the refresh token expires, with a hint to sign in again', async () => {
    await account.signIn();
    sandbox.tokens.expireAll(true);
    const { status, stderr } = await account.run('permissions', 'ls', 'Asset/881');
    expect(status).toBe(1);
    expect(stderr).toMatch(/sign-in has expired[\s\S]*tagferry login/);
  });

  it('can be restored by login after the token file is damaged', async () => {
    await account.signIn();
    writeFileSync(join(people(), tokenFiles()[0]!), '{"accessToken":"secret-');
    const { status, stderr } = await account.run('permissions', 'ls', 'Asset/881');
    expect(status).toBe(1);
    expect(stderr).not.toContain('secret-');
    await account.signIn();
    expect((await account.run('permissions', 'ls', 'Asset/881')).status).toBe(0);
  });
});

describe('tagferry logout', () => {
  it('revokes the tokens with bearer authorization and the client ID, and deletes them', async () => {
    await account.signIn();
    expect((await account.run('logout')).stdout).toContain('revoked');
    expect(tokenFiles()).toEqual([]);
    expect(sandbox.tokens.list()).toMatchObject([{ state: 'revoked', refresh: 'ended' }]);
    expect((await account.run('logout')).stdout).toContain('Not signed in');
  });

  it('revokes the refresh token even if the access token has expired', async () => {
    await account.signIn();
    sandbox.tokens.expireAll(false);
    expect((await account.run('logout')).status).toBe(0);
    expect(sandbox.tokens.list().map((token) => token.refresh)).not.toContain('valid');
    expect(sandbox.tokens.counts().alive).toBe(0);
  });

  it('keeps the tokens if the platform is unavailable, unless --forget is specified', async () => {
    await account.signIn();
    await sandbox.goOffline('refuse');
    expect((await account.run('logout')).status).toBe(1);
    expect(tokenFiles()).toHaveLength(1);
    expect((await account.run('logout', '--forget', '--json')).stdout).toContain('forgotten');
    expect(tokenFiles()).toEqual([]);
    await sandbox.goOnline();
  });
});
