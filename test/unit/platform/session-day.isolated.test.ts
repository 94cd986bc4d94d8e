import { writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { SessionFile } from '../../../src/platform/session/live-tokens.ts';
import { SessionBench, until } from './session-bench.ts';

let bench: SessionBench;

beforeEach(async () => {
  bench = await new SessionBench().open();
});
afterEach(() => bench.close());

const HOUR_MS = 3_600_000;
const get = () => bench.client.request({ method: 'GET', path: '/v1/assets', kind: 'other' });

const alive = () => bench.server.alive().map((token) => token.access);
const neverRevoked = () => bench.server.tokens.filter((token) => token.revokedMs === undefined);

describe('day-long session', () => {
  it('never sends an expired token, and revokes all tokens except the current one', async () => {
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

  it('logs in again before a refresh token without rotation expires', async () => {
    bench.server.rotate = false;
    await bench.start();
    await bench.pass(25 * HOUR_MS, 20_000, get);
    expect(bench.server.violations).toEqual([]);
    expect(bench.renewals.filter((grant) => grant === 'password')).toHaveLength(2);
    expect(bench.events()).not.toContain('session.refresh_failed');
    const logins = bench.server.tokens.filter((token) => token.grant === 'password');
    expect(logins[1]!.issuedMs).toBeLessThan(logins[0]!.refreshUntilMs);
  });

  it('never sends an expired token even if half of the token requests fail', async () => {
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

describe('token revocation', () => {
  it('waits until no call is using the replaced token', async () => {
    await bench.start();
    const lease = await bench.session.lease();
    await bench.session.renewNow();
    await bench.quiet();
    expect(bench.server.story).toEqual(['issue:1', 'issue:2']);
    lease.release();
    await until(() => bench.server.story.includes('revoke:1'));
    expect(alive()).toEqual([bench.server.tokens[1]!.access]);
  });

  it('waits until all tokens with the same refresh token are replaced', async () => {
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

  it('is retried until the token expires while the platform is unavailable', async () => {
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

  it('at shutdown waits for a token request for at most half its time limit, then revokes the current token', async () => {
    await bench.start();
    bench.server.faults.push((seen) => seen.path === '/oauth/token');
    const renewal = bench.session.renewNow().catch(() => undefined);
    await until(() => bench.server.count('/oauth/token') === 2);
    const stopping = bench.session.stop(5_000);
    await bench.clock.advance(2_499);
    expect(bench.server.count('/oauth/revoke')).toBe(0);
    await bench.clock.advance(1);
    await Promise.all([stopping, renewal]);
    expect(neverRevoked()).toEqual([]);
  });

  it('at shutdown does not log in if a refresh in progress fails', async () => {
    await bench.start();
    const held = Promise.withResolvers<void>();
    bench.server.faults.push(async (seen, response) => {
      if (seen.path !== '/oauth/token') return false;
      await held.promise;
      response.writeHead(400, { 'content-type': 'application/json' }).end('{"error":"invalid_grant"}');
      return true;
    });
    const renewal = bench.session.renewNow().catch(() => undefined);
    await until(() => bench.server.count('/oauth/token', 'refresh_token') === 1);
    const stopping = bench.session.stop();
    held.resolve();
    await Promise.all([stopping, renewal]);
    expect(bench.server.count('/oauth/token', 'password')).toBe(1);
    expect(neverRevoked()).toEqual([]);
  });

  it('at shutdown does not wait for a scheduled retry', async () => {
    bench.server.faults.push((seen, response) => {
      if (seen.path !== '/oauth/token') return false;
      response.writeHead(503).end();
      return true;
    });
    await bench.session.start(new AbortController().signal);
    await bench.quiet();
    await bench.session.stop();
    bench.session.retryNow();
    await bench.pass(3_600_000, 60_000);
    expect(bench.server.count('/oauth/token')).toBe(1);
    expect(bench.clock.waiting).toBe(0);
  });

  it('at shutdown revokes every token even if the disk hangs, including a token that is not yet stored', async () => {
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

  it('at shutdown stays within its time limit if the platform never responds, and continues at the next startup', async () => {
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

describe('startup after a crash', () => {
  it('tolerates a truncated session file, and never logs its content', async () => {
    writeFileSync(`${bench.folder}/session.json`, '{"version":1,"tokens":[{"accessToken":"secret-left-behind');
    await bench.start();
    expect(bench.events()).toContain('session.file_unreadable');
    expect(JSON.stringify(bench.lines)).not.toContain('secret-left-behind');
  });
});
