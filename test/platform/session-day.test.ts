import { existsSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { SessionFile } from '../../src/platform/session/session-file.ts';
import { SessionBench, until } from './session-bench.ts';

let bench: SessionBench;

beforeEach(async () => {
  bench = await new SessionBench().open();
});
afterEach(() => bench.close());

const HOUR_MS = 3_600_000;
const get = () => bench.client.request({ method: 'GET', path: '/v1/assets', kind: 'other' });

/** Tokens that the platform would still take now. */
const alive = () => bench.server.alive().map((token) => token.access);
const neverRevoked = () => bench.server.tokens.filter((token) => token.revokedMs === undefined);

describe('a day on the virtual clock', () => {
  it('never sends a dead token and revokes every token but the last', async () => {
    await bench.start();
    await bench.pass(25 * HOUR_MS, 20_000, get);
    expect(bench.server.violations).toEqual([]);
    expect(bench.server.mostTokenRequestsAtOnce).toBe(1);
    expect(bench.server.tokens.length).toBeGreaterThan(150);
    expect(neverRevoked()).toEqual([bench.server.tokens.at(-1)]);
    expect(bench.renewals.filter((grant) => grant === 'password')).toHaveLength(2);
    await bench.session.stop();
    expect(neverRevoked()).toEqual([]);
  });

  it('logs in anew before the refresh token ends, where a refresh gives the same one again', async () => {
    bench.server.rotate = false;
    await bench.start();
    await bench.pass(25 * HOUR_MS, 20_000, get);
    expect(bench.server.violations).toEqual([]);
    expect(bench.renewals.filter((grant) => grant === 'password')).toHaveLength(2);
    // No refresh was ever refused: the login came first.
    expect(bench.events()).not.toContain('session.refresh_failed');
    const logins = bench.server.tokens.filter((token) => token.grant === 'password');
    expect(logins[1]!.issuedMs).toBeLessThan(logins[0]!.refreshUntilMs);
  });

  it('never sends a dead token though half of all token requests fail in one way or another', async () => {
    let turn = 0;
    await bench.start();
    bench.server.faults.push((seen, response) => {
      if (!seen.path.startsWith('/oauth/')) return false;
      turn++;
      if (turn % 6 === 1) response.destroy();
      else if (turn % 6 === 3) response.writeHead(503).end();
      else if (turn % 6 === 4) response.writeHead(200, { 'content-type': 'text/html' }).end('<html>');
      else return false;
      return true;
    });
    await bench.pass(12 * HOUR_MS, 20_000, get);
    expect(bench.server.violations).toEqual([]);
    expect(bench.server.mostTokenRequestsAtOnce).toBe(1);
    expect(bench.session.snapshot().usable).toBe(true);
  });
});

describe('revocation', () => {
  it('does not touch a replaced token while a call uses it, and comes when the call is over', async () => {
    await bench.start();
    const lease = await bench.session.lease();
    await bench.session.renewNow();
    await bench.quiet();
    expect(bench.server.story).toEqual(['issue:1', 'issue:2']);
    lease.release();
    await until(() => bench.server.story.includes('revoke:1'));
    expect(alive()).toEqual([bench.server.tokens[1]!.access]);
  });

  it('comes before the token ends even where a call never lets go of it', async () => {
    await bench.start();
    await bench.session.lease();
    await bench.pass(700_000, 5_000);
    expect(bench.server.story).toContain('revoke:1');
    expect(bench.server.violations).toEqual([]);
  });

  it('leaves alone a predecessor with the same refresh token, until its line ends', async () => {
    bench.server.rotate = false;
    await bench.start();
    await bench.session.renewNow();
    await bench.session.renewNow();
    await bench.quiet();
    expect(bench.server.story).toEqual(['issue:1', 'issue:2', 'issue:3']);
    await bench.session.revokeNow();
    await until(() => bench.server.story.filter((step) => step.startsWith('revoke')).length === 3);
    expect(bench.server.story.slice(0, 4)).toEqual(['issue:1', 'issue:2', 'issue:3', 'issue:4']);
    expect(neverRevoked()).toEqual([bench.server.tokens[3]]);
    expect((await get()).status).toBe(200);
  });

  it('is tried again while the platform is away, until the token has ended by itself', async () => {
    await bench.start();
    bench.server.faults.push((seen, response) => {
      if (seen.path !== '/oauth/revoke') return false;
      response.writeHead(503).end();
      return true;
    });
    await bench.session.renewNow();
    await bench.pass(60_000, 1_000);
    expect(bench.server.count('/oauth/revoke')).toBeGreaterThan(3);
    bench.server.faults = [];
    await bench.pass(16_000, 1_000);
    expect(bench.server.story).toContain('revoke:1');
  });

  it('at stop ends every token, the current one last, and removes the file', async () => {
    bench.server.rotate = false;
    await bench.start();
    await bench.session.renewNow();
    await bench.session.stop();
    expect(bench.server.story).toEqual(['issue:1', 'issue:2', 'revoke:1', 'revoke:2']);
    expect(existsSync(`${bench.folder}/session.json`)).toBe(false);
    await expect(get()).rejects.toMatchObject({ code: 'platform.no_session' });
    expect(bench.session.snapshot().state).toBe('revoked');
  });

  it('at stop waits for a renewal under way and revokes its token too', async () => {
    await bench.start();
    let release = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    bench.server.faults.push(async (seen) => {
      if (seen.path === '/oauth/token') await held;
      return false;
    });
    const renewal = bench.session.renewNow().catch(() => undefined);
    await until(() => bench.server.count('/oauth/token') === 2);
    const stopping = bench.session.stop();
    release();
    await stopping;
    await renewal;
    expect(bench.server.tokens).toHaveLength(2);
    expect(neverRevoked()).toEqual([]);
  });

  it('at stop ends every token though the disk hangs that has its file, one that was not written down yet too', async () => {
    await bench.start();
    const writing = vi.spyOn(SessionFile.prototype, 'write').mockReturnValue(new Promise<never>(() => {}));
    try {
      bench.session.renewNow().catch(() => {});
      await until(() => writing.mock.calls.length > 0);
      void bench.session.stop(5_000);
      await bench.clock.advance(2_500);
      await until(() => neverRevoked().length === 0);
      expect(bench.server.tokens).toHaveLength(2);
    } finally {
      writing.mockRestore();
    }
  });

  it('keeps to its budget at stop where the platform never answers, and leaves the rest to the next start', async () => {
    await bench.start();
    const hung: (() => void)[] = [];
    bench.server.faults.push((seen, response) => {
      if (seen.path !== '/oauth/revoke') return false;
      hung.push(() => response.destroy());
      return true;
    });
    const stopping = bench.session.stop(5_000);
    await until(() => hung.length === 1);
    await bench.clock.advance(5_000);
    await stopping;
    expect(bench.events()).toContain('session.not_revoked');
    bench.server.faults = [];
    bench.renewSession();
    await bench.start();
    await until(() => bench.server.story.includes('revoke:1'));
    expect(neverRevoked()).toEqual([bench.server.tokens[1]]);
  });
});

describe('the start after a crash', () => {
  it('logs in anew and revokes what was left behind', async () => {
    await bench.start();
    await bench.session.renewNow();
    await bench.quiet();
    bench.renewSession();
    await bench.start();
    await until(() => bench.server.story.includes('revoke:2'));
    expect(bench.server.tokens[2]!.grant).toBe('password');
    expect(neverRevoked()).toEqual([bench.server.tokens[2]]);
  });

  it('ends a refresh token that outlived its access token', async () => {
    await bench.start();
    const left = bench.server.tokens[0]!;
    await bench.session.stop(0).catch(() => undefined);
    left.revokedMs = undefined;
    const token = { accessToken: 'gone', refreshToken: left.refresh, expiresWallMs: bench.clock.wallMs() - 1 };
    writeFileSync(`${bench.folder}/session.json`, JSON.stringify({ version: 1, tokens: [token] }));
    bench.renewSession();
    await bench.start();
    await until(() => bench.server.seen.some((seen) => seen.form.get('token') === left.refresh));
  });

  it('ends a refresh token even where the platform is away for longer than an access token lives', async () => {
    await bench.start();
    await bench.quiet();
    await bench.server.stop();
    bench.renewSession();
    await bench.session.start(new AbortController().signal);
    await bench.quiet();
    await bench.pass(20 * 60_000, 5_000);
    await bench.server.start();
    const left = bench.server.tokens[0]!;
    // An expired access token cannot be revoked: the strict server writes that down, the refresh token ends all the same.
    await bench.pass(130_000, 1_000);
    expect(bench.server.seen.some((seen) => seen.form.get('token') === left.refresh)).toBe(true);
    expect(bench.session.snapshot().usable).toBe(true);
  });

  it('starts with a session file that is cut off, and never prints it', async () => {
    writeFileSync(`${bench.folder}/session.json`, '{"version":1,"tokens":[{"accessToken":"secret-left-behind');
    await bench.start();
    expect(bench.events()).toContain('session.file_unreadable');
    expect(JSON.stringify(bench.lines)).not.toContain('secret-left-behind');
  });
});
