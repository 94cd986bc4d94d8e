import { chmodSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../src/sandbox/sandbox.ts';
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

describe('login', () => {
  it('signs a person in by PKCE without any secret, keeps the tokens at 0600 and never prints them', async () => {
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

  it('takes the web flow where CLIENT_SECRET is configured, and PKCE there when told to', async () => {
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

  it('works over SSH: the address that the browser ended at is pasted, and nothing listens', async () => {
    const waiting = login('--paste', '--redirect', 'http://127.0.0.1:8478/callback');
    const redirect = await signInOnPage(await waiting.address());
    await expect(fetch(redirect)).rejects.toThrow();
    waiting.child.stdin!.end(`${redirect}\n`);
    expect(await waiting.ended()).toBe(0);
    expect((await account.run('permissions', 'ls', 'Asset/881')).status).toBe(0);
  });

  it('takes a pasted address on a terminal also while its listener waits, and asks again where it is another', async () => {
    const { status, screen } = await account.onTerminal(
      async (shown) => {
        const address = /^http\S+\/app\/id\/sign_in\?\S+/m.exec(shown)![0]!;
        return `nonsense\r${await signInOnPage(address)}`;
      },
      ...['login', '--redirect', 'http://127.0.0.1:0/callback'],
    );
    expect(`${status} ${screen}`).toMatch(/^0 [\s\S]*this is no address\. Once more\.[\s\S]*Signed in at/);
    expect((await account.run('permissions', 'ls', 'Asset/881')).status).toBe(0);
  });

  it('refuses a pasted address of another sign-in, and one without a code', async () => {
    const other = login('--paste', '--redirect', 'http://127.0.0.1:8478/callback');
    const foreign = await signInOnPage(await other.address());
    const first = login('--paste', '--redirect', 'http://127.0.0.1:8478/callback');
    await first.address();
    first.child.stdin!.end(`${foreign}\n`);
    expect(await first.ended()).toBe(1);
    expect(first.stderr).toContain('does not carry the state');
    const second = login('--paste');
    expect(await second.ended()).toBe(2);
    const third = login('--paste', '--redirect', 'http://127.0.0.1:8478/callback');
    await third.address();
    third.child.stdin!.end();
    expect(await third.ended()).toBe(2);
    expect(sandbox.tokens.counts().issued).toBe(0);
  });

  it('goes on waiting when something else than its own browser comes to the listener', async () => {
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

  it('says that the person said no, in the browser and on the terminal', async () => {
    const waiting = login();
    const page = await fetch(await signInOnPage(await waiting.address(), undefined, { deny: '1' }));
    expect(page.status).toBe(400);
    expect(await waiting.ended()).toBe(1);
    expect(waiting.stderr).toContain('access_denied');
  });

  it('hands the address to the browser as one argument, without a shell, and not over SSH', async () => {
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
    expect(remote.stdout).not.toContain('A browser opens');
  });

  it('keeps several people of one account apart, and each platform for itself', async () => {
    await account.signIn(undefined, '--as', 'anna');
    await account.signIn('ben@sandbox.example', '--as', 'ben');
    expect((await account.run('permissions', 'ls', 'Asset/881', '--as', 'anna')).status).toBe(0);
    expect((await account.run('permissions', 'ls', 'Asset/920', '--as', 'ben')).stdout.trim()).toBe('[]');
    expect((await account.run('permissions', 'ls', 'Asset/881')).stderr).toContain('tagferry login');
    account.environment.CLIENT_ID = 'another-client';
    expect((await account.run('permissions', 'ls', 'Asset/881', '--as', 'anna')).stderr).toContain(
      'nobody is signed in',
    );
    expect((await account.run('permissions', 'ls', 'Asset/881', '--as', '../x')).status).toBe(2);
  });

  it('revokes the tokens of the sign-in before it', async () => {
    await account.signIn();
    await account.signIn();
    expect(sandbox.tokens.counts()).toMatchObject({ issued: 2, alive: 1 });
  });

  it('says with 78 what is missing, and asks for nothing of the technical user', async () => {
    delete account.environment.CLIENT_ID;
    const { status, stderr } = await account.run('login');
    expect(status).toBe(78);
    expect(stderr).toContain('CLIENT_ID');
    expect(stderr).not.toContain('TECHNICAL');
  });

  it('says with --json on standard output who signed in, and the address elsewhere', async () => {
    const done = await account.signIn(undefined, '--json', '--as', 'anna');
    expect(JSON.parse(done.stdout)).toEqual({ signed_in: true, as: 'anna', flow: 'pkce', platform: sandbox.url });
  });
});

describe('a sign-in that goes on', () => {
  it('is renewed by refresh when its token has ended, over any number of verbs at once, each refresh token used once', async () => {
    await account.signIn();
    sandbox.tokens.expireAll(false);
    const outcomes = await Promise.all([1, 2, 3, 4].map(() => account.run('permissions', 'ls', 'Asset/881')));
    expect(outcomes.map((one) => `${one.status}${one.stderr}`)).toEqual(['0', '0', '0', '0']);
    expect(sandbox.tokens.list().map((token) => token.grant)).toEqual(['authorization_code', 'refresh_token']);
    expect(alive()).toHaveLength(1);
  });

  it('is over when the refresh token has ended too, and says to sign in', async () => {
    await account.signIn();
    sandbox.tokens.expireAll(true);
    const { status, stderr } = await account.run('permissions', 'ls', 'Asset/881');
    expect(status).toBe(1);
    expect(stderr).toMatch(/sign-in has ended[\s\S]*tagferry login/);
  });

  it('survives a file that a crash or a person spoilt: it says so, and login mends it', async () => {
    await account.signIn();
    writeFileSync(join(people(), tokenFiles()[0]!), '{"accessToken":"secret-');
    const { status, stderr } = await account.run('permissions', 'ls', 'Asset/881');
    expect(status).toBe(1);
    expect(stderr).not.toContain('secret-');
    await account.signIn();
    expect((await account.run('permissions', 'ls', 'Asset/881')).status).toBe(0);
  });
});

describe('logout', () => {
  it('revokes in the bearer form with the client id, and removes the tokens', async () => {
    await account.signIn();
    expect((await account.run('logout')).stdout).toContain('revoked');
    expect(tokenFiles()).toEqual([]);
    expect(sandbox.tokens.list()).toMatchObject([{ state: 'revoked', refresh: 'ended' }]);
    expect((await account.run('logout')).stdout).toContain('Nobody was signed in');
  });

  it('ends the refresh token also where the access token has expired and cannot be revoked', async () => {
    await account.signIn();
    sandbox.tokens.expireAll(false);
    expect((await account.run('logout')).status).toBe(0);
    expect(sandbox.tokens.list().map((token) => token.refresh)).not.toContain('valid');
    expect(sandbox.tokens.counts().alive).toBe(0);
  });

  it('keeps the tokens where the platform is away, unless told to forget them', async () => {
    await account.signIn();
    await sandbox.goOffline('refuse');
    expect((await account.run('logout')).status).toBe(1);
    expect(tokenFiles()).toHaveLength(1);
    expect((await account.run('logout', '--forget', '--json')).stdout).toContain('forgotten');
    expect(tokenFiles()).toEqual([]);
    await sandbox.goOnline();
  });
});
