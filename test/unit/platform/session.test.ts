import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SessionFile } from '../../../src/platform/session/live-tokens.ts';
import { SessionBench, until } from './session-bench.ts';

let bench: SessionBench;

beforeEach(async () => {
  bench = await new SessionBench().open();
});
afterEach(() => bench.close());

const get = (signal?: AbortSignal) =>
  bench.client.request({ method: 'GET', path: '/v1/assets', kind: 'other', signal });

describe('session', () => {
  it('logs in with the password grant and refreshes well before its token expires', async () => {
    await bench.start();
    expect(bench.renewals).toEqual(['password']);
    const { renews_in_seconds, expires_in_seconds } = bench.session.snapshot();
    expect(renews_in_seconds! / expires_in_seconds!).toBeGreaterThan(0.55);
    expect(renews_in_seconds! / expires_in_seconds!).toBeLessThan(0.8);
    await bench.pass(500_000, 10_000);
    expect(bench.renewals).toEqual(['password', 'refresh_token']);
    expect(bench.server.violations).toEqual([]);
  });

  it('renews tokens only between startup and shutdown', async () => {
    const none = expect.objectContaining({ code: 'platform.no_session' });
    await expect(bench.session.renewNow()).rejects.toEqual(none);
    await bench.start();
    let changes = 0;
    const end = bench.session.onChange(() => changes++);
    await Promise.all([bench.session.renewNow(), bench.session.renewNow()]);
    expect([bench.server.tokens.length, changes > 0]).toEqual([2, true]);
    end();
    changes = 0;
    await bench.session.stop();
    await expect(bench.session.renewNow()).rejects.toEqual(none);
    await expect(bench.session.lease()).rejects.toEqual(none);
    expect([bench.server.tokens.length, changes]).toEqual([2, 0]);
  });

  it('renews the token only once for two hundred calls at token expiry', async () => {
    await bench.start();
    // The token expires before the renewal timer runs, as after a suspend.
    const before = bench.server.count('/oauth/token');
    Object.assign(bench.clock, { monotonicMs: () => 1_000 + 700_000 });
    const answers = await Promise.all(Array.from({ length: 200 }, () => get()));
    expect(answers.every((answer) => answer.status === 200)).toBe(true);
    expect(bench.server.count('/oauth/token') - before).toBe(1);
    expect(bench.server.mostTokenRequestsAtOnce).toBe(1);
    expect(bench.server.violations).toEqual([]);
  });

  it('invalidates only the token used by the call after a late 401', async () => {
    await bench.start();
    const old = await bench.session.lease();
    await bench.session.renewNow();
    const before = bench.server.count('/oauth/token');
    old.responded(401);
    old.release();
    await bench.quiet();
    expect(bench.server.count('/oauth/token')).toBe(before);
    expect((await get()).status).toBe(200);
  });

  it('does not log in for each call if the platform rejects every token with 401', async () => {
    await bench.start();
    bench.server.faults.push((seen, response) => {
      if (seen.path !== '/v1/assets') return false;
      response.writeHead(401).end();
      return true;
    });
    const calls = Array.from({ length: 20 }, () => get().catch((error: { code: string }) => error.code));
    await bench.pass(60_000, 1_000);
    expect(await Promise.all(calls)).toContain('platform.no_session');
    expect(bench.server.tokens.length).toBeLessThanOrEqual(4);
    expect(bench.lines.find(({ code }) => code === 'platform.fresh_token_refused')).toMatchObject({
      hint: expect.stringMatching(
        /If the platform has several servers, check that all of them accept a new token within/,
      ),
    });
    const refusals = bench.lines.filter(({ event }) => event === 'session.token_refused');
    expect(refusals.map(({ rejectedNewTokens }) => rejectedNewTokens)).toEqual(refusals.map((_, at) => at + 1));
    bench.server.faults = [];
    await bench.pass(30_000, 1_000);
    expect((await get()).status).toBe(200);
  });

  it('logs in after a lost refresh response, without a second refresh', async () => {
    await bench.start();
    bench.server.faults.push((seen, response) => {
      if (seen.form.get('grant_type') !== 'refresh_token') return false;
      // The platform has rotated the refresh token, but its response is lost.
      bench.server.tokens[0]!.refreshUsed = true;
      response.destroy();
      return true;
    });
    await bench.pass(500_000, 10_000);
    expect(bench.server.count('/oauth/token', 'refresh_token')).toBe(1);
    expect(bench.renewals).toEqual(['password', 'password']);
    expect((await get()).status).toBe(200);
    expect(bench.server.violations).toEqual([]);
  });

  it('logs in again if a refresh is rejected, returns HTML or never finishes', async () => {
    await bench.start();
    const answers = [
      (response: import('node:http').ServerResponse) =>
        response.writeHead(400, { 'content-type': 'application/json' }).end('{"error":"invalid_grant"}'),
      (response: import('node:http').ServerResponse) =>
        response.writeHead(200, { 'content-type': 'text/html' }).end('<html>portal</html>'),
      (response: import('node:http').ServerResponse) =>
        response.writeHead(200).end(`{"access_token":"${'a'.repeat(300_000)}"`),
    ];
    for (const answer of answers) {
      bench.server.once('/oauth/token', answer, 'refresh_token');
      await bench.session.renewNow();
    }
    expect(bench.renewals).toEqual(['password', 'password', 'password', 'password']);
    expect((await get()).status).toBe(200);
  });

  it('retains its refresh token if the platform was unreachable', async () => {
    await bench.start();
    await bench.server.stop();
    await expect(bench.session.renewNow()).rejects.toMatchObject({ code: 'platform.connection_refused' });
    expect(bench.session.snapshot()).toMatchObject({ state: 'waiting', usable: true });
    await bench.server.start();
    await bench.pass(35_000, 1_000);
    expect(bench.renewals).toEqual(['password', 'refresh_token']);
  });

  it('recovers from a token endpoint that returned HTML, retrying at least every 60 s', async () => {
    let asked: number[] = [];
    bench.server.faults.push((seen, response) => {
      if (seen.path !== '/oauth/token') return false;
      asked.push(bench.clock.monotonicMs());
      response.writeHead(502, { 'content-type': 'text/html' }).end('<html>Bad Gateway</html>');
      return true;
    });
    await bench.session.start(new AbortController().signal);
    await bench.quiet();
    await bench.pass(30 * 60_000, 1_000);
    const gaps = asked.slice(1).map((at, index) => at - asked[index]!);
    expect(Math.max(...gaps)).toBeLessThanOrEqual(60_000);
    expect(bench.session.snapshot().state).toBe('waiting');
    expect(bench.events().filter((event) => event === 'session.failed')).toHaveLength(1);
    expect(bench.events().filter((event) => event === 'session.still_failing').length).toBeLessThanOrEqual(9);
    asked = [];
    bench.server.faults = [];
    await bench.pass(31_000, 1_000);
    expect((await get()).status).toBe(200);
  });

  it('ignores created_at and a clock that is set back by one day', async () => {
    await bench.start();
    bench.clock.jumpWall(-86_400_000);
    const before = bench.session.snapshot();
    await bench.pass(400_000, 10_000, get);
    bench.clock.jumpWall(3 * 86_400_000);
    await bench.pass(600_000, 10_000, get);
    expect(before.expires_in_seconds).toBe(660);
    expect(bench.server.violations).toEqual([]);
    expect(bench.server.tokens.length).toBeLessThanOrEqual(4);
  });

  it('writes its tokens to session.json with mode 0600 before their first use', async () => {
    const stored: boolean[] = [];
    bench.session.onChange(() => {
      if (bench.session.snapshot().state !== 'valid') return;
      const text = readFileSync(join(bench.folder, 'session.json'), 'utf8');
      stored.push(text.includes(bench.server.tokens.at(-1)!.access));
    });
    await bench.start();
    await bench.session.renewNow();
    expect(stored.length).toBeGreaterThan(1);
    expect(stored).not.toContain(false);
    expect(statSync(join(bench.folder, 'session.json')).mode & 0o777).toBe(0o600);
  });

  it('removes a token from session.json after its revocation', async () => {
    await bench.start();
    await bench.session.renewNow();
    const [replaced, current] = bench.server.tokens.map(({ access }) => access);
    const kept = () => readFileSync(join(bench.folder, 'session.json'), 'utf8');
    await until(() => bench.server.story.includes('revoke:1') && !kept().includes(replaced!));
    expect(kept()).toContain(current);
  });

  it('continues if the state folder is not writable', async () => {
    rmSync(bench.folder, { recursive: true });
    await bench.start();
    await bench.session.renewNow();
    expect((await get()).status).toBe(200);
    expect(bench.events().filter((event) => event === 'session.file_failed')).toHaveLength(1);
  });

  it('leaves its files unchanged if stopped before startup', async () => {
    const path = join(bench.folder, 'session.json');
    writeFileSync(path, 'content of another agent');
    await bench.session.stop();
    expect(readFileSync(path, 'utf8')).toBe('content of another agent');
  });

  it('requests a token at most every 5 s, no matter how short the token lifetime is', async () => {
    bench.server.lifeS = 1;
    await bench.start();
    await bench.pass(30_000, 500, () => get().catch(() => undefined));
    expect(bench.server.count('/oauth/token')).toBeLessThanOrEqual(7);
  });

  it('retries within 60 s even if a 503 requests a delay of one hour', async () => {
    bench.server.once('/oauth/token', (response) => response.writeHead(503, { 'retry-after': '3600' }).end());
    await bench.session.start(new AbortController().signal);
    await bench.quiet();
    expect(bench.session.snapshot().retry_in_seconds).toBe(60);
    await bench.pass(60_000, 1_000);
    expect(bench.session.snapshot().state).toBe('valid');
  });

  it('uses the token from `session renew` for the next call, and revokes the previous one', async () => {
    await bench.start();
    await bench.session.renewNow();
    await bench.quiet();
    expect(bench.session.snapshot()).toMatchObject({ state: 'valid', grant: 'refresh_token' });
    expect(bench.server.story).toEqual(['issue:1', 'issue:2', 'revoke:1']);
    await bench.session.revokeNow();
    await until(() => bench.server.story.includes('revoke:2'));
    expect(bench.server.tokens[2]!.grant).toBe('password');
  });
});

describe('revocation', () => {
  const html = { 'content-type': 'text/html' };
  const json = { 'content-type': 'application/json' };
  const EVENTS = {
    succeeds: 'session.revoked',
    'is retried': 'session.revoke_failed',
    'is not retried': 'session.revoke_refused',
  };

  it.each([
    ['succeeds', '200 with an empty object', 200, json, '{}'],
    ['succeeds', '200 with unknown members', 200, json, '{"done":true}'],
    ['succeeds', '200 with plain text', 200, { 'content-type': 'text/plain' }, 'OK'],
    ['succeeds', '200 with an empty error', 200, json, '{"error":null}'],
    ['succeeds', '200 without a body', 200, {}, ''],
    ['succeeds', '202', 202, {}, ''],
    ['succeeds', '204', 204, {}, ''],
    ['is retried', '200 with an HTML page', 200, html, '<html>portal</html>'],
    ['is retried', '200 with incomplete JSON', 200, json, '{"access_token":'],
    ['is retried', '200 with an OAuth error', 200, json, '{"error":"server_error"}'],
    ['is retried', '200 with a list of errors', 200, json, '{"errors":[{"message":"no"}]}'],
    ['is retried', '503', 503, {}, ''],
    ['is not retried', '400 with an OAuth error', 400, json, '{"error":"invalid_request"}'],
  ] as const)('%s after a response with %s', async (outcome, _, status, headers, body) => {
    await bench.start();
    bench.server.once('/oauth/revoke', (response) => response.writeHead(status, headers).end(body));
    await bench.session.renewNow();
    const outcomes = () => bench.events().filter((event) => event.startsWith('session.revoke'));
    await until(() => outcomes().length > 0);
    expect(outcomes()).toEqual([EVENTS[outcome]]);
  });
});

describe('new token that the platform does not know yet', () => {
  /** Rejects calls with a token issued less than `forMs` ago. Returns the number of rejected calls. */
  const unknownFor = (forMs: number, path = '/v1/assets') => {
    const rejected: number[] = [];
    bench.server.faults.push((seen, response) => {
      const token = bench.server.tokens.find(({ access }) => seen.headers.authorization?.endsWith(access));
      if (seen.path !== path || !token || bench.clock.monotonicMs() - token.issuedMs >= forMs) return false;
      rejected.push(bench.clock.monotonicMs());
      response.writeHead(401).end();
      return true;
    });
    return rejected;
  };

  it('is tested by one call at a time while the others wait, and is not replaced', async () => {
    await bench.start();
    const rejected = unknownFor(3_000);
    const first = get();
    await until(() => bench.events().includes('session.token_unknown'));
    const others = Array.from({ length: 20 }, () => get());
    await bench.pass(5_000, 500);
    const answers = await Promise.all([first, ...others]);
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
    expect(rejected.length).toBeLessThanOrEqual(5);
    expect(bench.server.tokens).toHaveLength(1);
  });

  it('is sent once more by each of the calls that were already in progress', async () => {
    await bench.start();
    const rejected = unknownFor(3_000);
    const calls = Array.from({ length: 20 }, () => get());
    await until(() => rejected.length === 20);
    await bench.pass(5_000, 500);
    expect((await Promise.all(calls)).map(({ status }) => status)).toEqual(Array(20).fill(200));
    expect(rejected.length).toBeLessThanOrEqual(25);
    expect(bench.server.tokens).toHaveLength(1);
    expect(bench.events().filter((event) => event === 'session.token_unknown')).toHaveLength(1);
  });

  /** Rejects every call with the current token. Returns the times of these calls, in milliseconds from now. */
  const neverKnown = () => {
    const [token] = bench.server.tokens;
    const startMs = bench.clock.monotonicMs();
    const rejectedMs: number[] = [];
    bench.server.faults.push((seen, response) => {
      if (!seen.headers.authorization?.endsWith(token!.access)) return false;
      rejectedMs.push(bench.clock.monotonicMs() - startMs);
      response.writeHead(401).end();
      return true;
    });
    return rejectedMs;
  };

  it.each([
    [44_000, [0, 1_000, 3_000, 7_000, 15_000]],
    [59_000, [0, 1_000]],
    [61_000, [0]],
  ] as const)(
    'is retried only within 60 s of its issue, if its first call is after %d ms',
    async (ageMs, retriesMs) => {
      await bench.start();
      await bench.pass(ageMs, ageMs);
      const rejectedMs = neverKnown();
      const call = get();
      await until(() => rejectedMs.length === 1);
      await bench.pass(16_000, 500);
      expect((await call).status).toBe(200);
      expect(rejectedMs).toEqual(retriesMs);
      expect(bench.server.tokens).toHaveLength(2);
    },
  );

  it('is replaced after four retries, and the waiting calls use the next one', async () => {
    await bench.start();
    const rejectedMs = neverKnown();
    const calls = [get(), get(), get()];
    await until(() => rejectedMs.length === 3);
    await bench.pass(20_000, 1_000);
    expect(rejectedMs).toEqual([0, 0, 0, 1_000, 3_000, 7_000, 15_000]);
    expect((await Promise.all(calls)).map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(bench.server.tokens).toHaveLength(2);
    expect(bench.server.count('/v1/assets')).toBe(3 + 4 + 3);
  });

  it('delays the other calls by one second if a single endpoint rejects every token', async () => {
    await bench.start();
    const rejected = unknownFor(Number.POSITIVE_INFINITY, '/v1/other');
    const other = bench.client.request({ method: 'GET', path: '/v1/other', kind: 'other' });
    await until(() => rejected.length === 1);
    const calls = [get(), get()];
    await bench.pass(1_000, 500);
    expect((await Promise.all(calls)).map(({ status }) => status)).toEqual([200, 200]);
    await bench.pass(60_000, 500);
    expect((await other).status).toBe(401);
  });

  it('is tested by the next call if a call ends without a response', async () => {
    await bench.start();
    const rejected = unknownFor(1_000);
    const calls = Promise.allSettled([get(), get()]);
    await until(() => rejected.length === 2);
    await bench.quiet();
    let dropped = false;
    bench.server.faults.push((seen, response) => {
      if (seen.path !== '/v1/assets' || dropped) return false;
      dropped = true;
      response.destroy();
      return true;
    });
    await bench.pass(3_000, 500);
    const outcomes = (await calls).map((call) => (call.status === 'fulfilled' ? call.value.status : call.reason.code));
    expect(outcomes.sort()).toEqual([200, 'platform.connection_reset']);
  });

  it('delays no call after the agent has begun to stop', async () => {
    await bench.start();
    const rejected = unknownFor(3_000);
    const calls = [get(), get()];
    await until(() => rejected.length === 2);
    bench.client.stopRetries();
    expect((await Promise.all(calls)).map(({ status }) => status)).toEqual([401, 401]);
    expect(rejected).toHaveLength(2);
  });
});

describe('token that the platform has accepted', () => {
  const other = () => bench.client.request({ method: 'GET', path: '/v1/other', kind: 'other' });
  const reject = (path: string, isRejected: (access: string) => boolean) =>
    bench.server.faults.push((seen, response) => {
      if (seen.path !== path || !isRejected(seen.headers.authorization ?? '')) return false;
      response.writeHead(401).end();
      return true;
    });

  it.each([
    [1_000, [0, 1_000, 3_000, 7_000, 15_000]],
    [54_000, [0, 1_000, 3_000, 7_000]],
    [59_000, [0, 1_000]],
    [61_000, [0]],
  ] as const)('is replaced after its retries if another client revokes it after %d ms', async (ageMs, rejectedMs) => {
    await bench.start();
    await bench.pass(ageMs, ageMs);
    await get();
    const revokedMs = bench.clock.monotonicMs();
    const rejected: number[] = [];
    const revoked = bench.server.tokens[0]!.access;
    reject('/v1/assets', (access) => {
      if (access.endsWith(revoked)) rejected.push(bench.clock.monotonicMs() - revokedMs);
      return access.endsWith(revoked);
    });
    const call = get();
    await bench.pass(15_000, 500);
    expect((await call).status).toBe(200);
    expect(rejected).toEqual(rejectedMs);
    expect(bench.server.tokens).toHaveLength(2);
    expect(bench.revokedElsewhere).toBe(1);
  });

  it('is kept while one of several servers does not know it yet', async () => {
    await bench.start();
    await get();
    const knownAtMs = bench.clock.monotonicMs() + 6_000;
    reject('/v1/other', () => bench.clock.monotonicMs() < knownAtMs);
    const call = other();
    const calls = [get()];
    await bench.pass(8_000, 500, async () => void calls.push(get()));
    expect((await call).status).toBe(200);
    expect(new Set((await Promise.all(calls)).map(({ status }) => status))).toEqual(new Set([200]));
    expect(bench.server.tokens).toHaveLength(1);
  });

  it.each([1_000, 120_000])('is not reported as revoked if one endpoint rejects it after %d ms', async (ageMs) => {
    await bench.start();
    await bench.pass(ageMs, ageMs);
    await get();
    reject('/v1/other', () => true);
    const call = other();
    const calls = [get()];
    await bench.pass(40_000, 500, async () => void calls.push(get()));
    expect((await call).status).toBe(401);
    expect(new Set((await Promise.all(calls)).map(({ status }) => status))).toEqual(new Set([200]));
    expect(bench.server.tokens).toHaveLength(2);
    expect(bench.revokedElsewhere).toBe(0);
  });
});

describe('token revoked by another client', () => {
  const REVOCATION_MS = 60_000;

  /** Lets the platform accept the current token, and revokes it when it is no longer new. */
  async function revoke(): Promise<void> {
    expect((await get()).status).toBe(200);
    await bench.pass(REVOCATION_MS, REVOCATION_MS);
    bench.server.tokens.at(-1)!.revokedMs = bench.clock.monotonicMs();
  }

  beforeEach(() => bench.start());

  it('is reported once when the platform accepts the next token', async () => {
    await revoke();
    for (let call = 0; call < 2; call++) expect((await get()).status).toBe(200);
    expect([bench.revokedElsewhere, bench.server.tokens.length]).toEqual([1, 2]);
  });

  it('is not reported if the platform was unavailable before, because it may have lost its tokens', async () => {
    await revoke();
    bench.server.once('/v1/assets', (response) => response.writeHead(503).end());
    for (const status of [503, 200]) expect((await get()).status).toBe(status);
    expect([bench.revokedElsewhere, bench.server.tokens.length]).toEqual([0, 2]);
  });

  it('is not reported if an operator renews or revokes the session', async () => {
    for (const renew of [() => bench.session.renewNow(), () => bench.session.revokeNow()]) {
      expect((await get()).status).toBe(200);
      await renew();
      await bench.quiet();
      expect((await get()).status).toBe(200);
    }
    expect([bench.revokedElsewhere, bench.server.tokens.length]).toEqual([0, 3]);
  });
});

describe('session file', () => {
  it('is absent if there are no tokens', async () => {
    const file = new SessionFile(bench.folder);
    const one = { accessToken: 'a', refreshToken: 'r' };
    await Promise.all([file.write([one, one]), file.write([])]);
    expect(existsSync(join(bench.folder, 'session.json'))).toBe(false);
    expect(await file.read()).toEqual([]);
  });

  it.each(['', '{"version":1,"tokens":[{"accessToken":"secret', '{}', '{"tokens":"secret"}', 'null', '7'])(
    'with invalid content is reported without quoting it: %s',
    async (text) => {
      writeFileSync(join(bench.folder, 'session.json'), text);
      const error = await new SessionFile(bench.folder).read().catch((reason: unknown) => reason);
      expect(error).toMatchObject({ code: 'session.file', retryable: true });
      expect(inspect(error)).not.toContain('secret');
    },
  );
});
