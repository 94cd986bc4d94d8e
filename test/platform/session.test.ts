import { readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { RetiredTokens } from '../../src/platform/session/retired-tokens.ts';
import { SessionBench, until } from './session-bench.ts';

let bench: SessionBench;

beforeEach(async () => {
  bench = await new SessionBench().open();
});
afterEach(() => bench.close());

const get = (signal?: AbortSignal) =>
  bench.client.request({ method: 'GET', path: '/v1/assets', kind: 'other', signal });

describe('a session', () => {
  it('logs in by the password grant and is renewed by refresh well before its token ends', async () => {
    await bench.start();
    expect(bench.renewals).toEqual(['password']);
    const { renewsInMs, expiresInMs } = bench.session.snapshot();
    expect(renewsInMs! / expiresInMs!).toBeGreaterThan(0.55);
    expect(renewsInMs! / expiresInMs!).toBeLessThan(0.8);
    await bench.pass(500_000, 10_000);
    expect(bench.renewals).toEqual(['password', 'refresh_token']);
    expect(bench.server.violations).toEqual([]);
  });

  it('starts once, and renews nothing before it starts or once it has stopped', async () => {
    const none = expect.objectContaining({ code: 'platform.no_session' });
    await expect(bench.session.renewNow()).rejects.toEqual(none);
    await bench.start();
    await expect(bench.session.start(new AbortController().signal)).rejects.toThrow('starts once');
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

  it('asks for no token at a call while it waits to try again', async () => {
    bench.server.faults.push((seen, response) => {
      if (seen.path !== '/oauth/token') return false;
      response.writeHead(503).end();
      return true;
    });
    await bench.session.start(new AbortController().signal);
    await bench.quiet();
    expect(bench.session.snapshot().state).toBe('waiting');
    const asked = bench.server.count('/oauth/token');
    for (let call = 0; call < 3; call++)
      await expect(bench.session.lease()).rejects.toMatchObject({ code: 'platform.no_session' });
    await bench.quiet();
    expect(bench.server.count('/oauth/token')).toBe(asked);
  });

  it('counts a refusal against a token that never worked, once, and forgets them with one that does', async () => {
    await bench.start();
    const refused = () =>
      bench.lines.filter(({ event }) => event === 'session.token_refused').map(({ unproven }) => unproven);
    const [first, same] = [await bench.session.lease(), await bench.session.lease()];
    first.refused();
    same.refused();
    expect(refused()).toEqual([1]);
    await bench.quiet();
    const second = await bench.session.lease();
    second.accepted();
    await bench.session.renewNow();
    (await bench.session.lease()).refused();
    expect(refused()).toEqual([1, 1]);
    await bench.pass(10_000, 1_000);
    const worked = await bench.session.lease();
    worked.accepted();
    worked.refused();
    expect(refused()).toEqual([1, 1, 0]);
  });

  it('says how old its token is', async () => {
    await bench.start();
    await bench.clock.advance(7_000);
    expect(bench.session.snapshot().ageMs).toBe(7_000);
  });

  it('lets two hundred calls at the moment of expiry wait for one renewal', async () => {
    await bench.start();
    // The token ends without the renewal's timer having had its turn: a machine that was asleep.
    const before = bench.server.count('/oauth/token');
    Object.assign(bench.clock, { monotonicMs: () => 1_000 + 700_000 });
    const answers = await Promise.all(Array.from({ length: 200 }, () => get()));
    expect(answers.every((answer) => answer.status === 200)).toBe(true);
    expect(bench.server.count('/oauth/token') - before).toBe(1);
    expect(bench.server.mostTokenRequestsAtOnce).toBe(1);
    expect(bench.server.violations).toEqual([]);
  });

  it('meets a 401 in mid-flight with one renewal for all calls, and repeats each once', async () => {
    await bench.start();
    await get();
    bench.server.tokens[0]!.revokedMs = bench.clock.monotonicMs();
    const answers = await Promise.all(Array.from({ length: 50 }, () => get()));
    expect(answers.map((answer) => answer.status)).toEqual(Array(50).fill(200));
    expect(bench.server.tokens).toHaveLength(2);
    expect(bench.server.mostTokenRequestsAtOnce).toBe(1);
  });

  it('invalidates by a late 401 only the token that the call had used', async () => {
    await bench.start();
    const old = await bench.session.lease();
    await bench.session.renewNow();
    const before = bench.server.count('/oauth/token');
    old.refused();
    old.release();
    await bench.quiet();
    expect(bench.server.count('/oauth/token')).toBe(before);
    expect((await get()).status).toBe(200);
  });

  it('does not log in for each call where the platform answers 401 to every token', async () => {
    await bench.start();
    bench.server.faults.push((seen, response) => {
      if (seen.path !== '/v1/assets') return false;
      response.writeHead(401).end();
      return true;
    });
    for (let call = 0; call < 20; call++) await get().catch(() => undefined);
    expect(bench.server.tokens.length).toBeLessThanOrEqual(3);
    expect(bench.session.snapshot().lastError?.code).toBe('platform.fresh_token_refused');
    const refusals = bench.lines.filter(({ event }) => event === 'session.token_refused');
    expect(refusals.map(({ unproven }) => unproven)).toEqual(refusals.map((_, at) => at + 1));
    await expect(get()).rejects.toMatchObject({ code: 'platform.no_session', retryable: true });
    bench.server.faults = [];
    await bench.pass(10_000, 1_000);
    expect((await get()).status).toBe(200);
  });

  it('logs in where the answer to a refresh was lost, without a second refresh', async () => {
    await bench.start();
    bench.server.faults.push((seen, response) => {
      if (seen.form.get('grant_type') !== 'refresh_token') return false;
      // The platform has rotated; its answer never arrives.
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

  it('logs in where a refresh is refused, answered in HTML or without end', async () => {
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

  it('keeps its refresh token where the platform could not be reached at all', async () => {
    await bench.start();
    await bench.server.stop();
    await expect(bench.session.renewNow()).rejects.toMatchObject({ code: 'platform.connection_refused' });
    expect(bench.session.snapshot()).toMatchObject({ state: 'waiting', usable: true });
    await bench.server.start();
    await bench.pass(35_000, 1_000);
    expect(bench.renewals).toEqual(['password', 'refresh_token']);
  });

  it('survives a token endpoint that answers HTML and is tried at least every 60 s', async () => {
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

  it('is not moved by a clock that is set back a day, nor by created_at', async () => {
    await bench.start();
    bench.clock.jumpWall(-86_400_000);
    const before = bench.session.snapshot();
    await bench.pass(400_000, 10_000, get);
    bench.clock.jumpWall(3 * 86_400_000);
    await bench.pass(600_000, 10_000, get);
    expect(before.expiresInMs).toBe(660_000);
    expect(bench.server.violations).toEqual([]);
    expect(bench.server.tokens.length).toBeLessThanOrEqual(4);
  });

  it('writes its tokens to session.json, 0600, before anyone gets them', async () => {
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

  it('forgets a token in session.json once it is revoked', async () => {
    await bench.start();
    await bench.session.renewNow();
    const [replaced, current] = bench.server.tokens.map(({ access }) => access);
    const kept = () => readFileSync(join(bench.folder, 'session.json'), 'utf8');
    await until(() => bench.server.story.includes('revoke:1') && !kept().includes(replaced!));
    expect(kept()).toContain(current);
  });

  it('goes on where the state folder cannot be written', async () => {
    rmSync(bench.folder, { recursive: true });
    await bench.start();
    await bench.session.renewNow();
    expect((await get()).status).toBe(200);
    expect(bench.events().filter((event) => event === 'session.file_failed')).toHaveLength(1);
  });

  it('ends a wait for a token as soon as its signal fires', async () => {
    await bench.server.stop();
    await bench.session.start(new AbortController().signal);
    const abort = new AbortController();
    const waiting = bench.session.lease(abort.signal);
    abort.abort(new Error('enough'));
    await expect(waiting).rejects.toThrow('enough');
  });

  it('touches no file where it is stopped before it was started', async () => {
    const path = join(bench.folder, 'session.json');
    writeFileSync(path, 'of another daemon');
    await bench.session.stop();
    expect(readFileSync(path, 'utf8')).toBe('of another daemon');
  });

  it('asks for a token every 5 s at most, however short its life is said to be', async () => {
    for (const lifeS of [1, 0.001]) {
      bench.server.lifeS = lifeS;
      const before = bench.server.count('/oauth/token');
      if (lifeS === 1) await bench.start();
      else await bench.session.renewNow();
      await bench.pass(30_000, 500, () => get().catch(() => undefined));
      expect(bench.server.count('/oauth/token') - before).toBeLessThanOrEqual(7);
    }
  });

  it('tries a platform again within 60 s that asks for an hour by a 503', async () => {
    bench.server.once('/oauth/token', (response) => response.writeHead(503, { 'retry-after': '3600' }).end());
    await bench.session.start(new AbortController().signal);
    await bench.quiet();
    expect(bench.session.snapshot().retryInMs).toBe(60_000);
    await bench.pass(60_000, 1_000);
    expect(bench.session.snapshot().state).toBe('valid');
  });

  it('gives the token of `session renew` to the next call and revokes the one before', async () => {
    await bench.start();
    const snapshot = await bench.session.renewNow();
    await bench.quiet();
    expect(snapshot).toMatchObject({ state: 'valid', grant: 'refresh_token' });
    expect(bench.server.story).toEqual(['issue:1', 'issue:2', 'revoke:1']);
    await bench.session.revokeNow();
    await until(() => bench.server.story.includes('revoke:2'));
    expect(bench.server.tokens[2]!.grant).toBe('password');
  });
});

describe('a token that waits to be revoked', () => {
  it('is given up, and nobody asked, once it has ended by itself', async () => {
    const gone = Promise.withResolvers<void>();
    const asked: string[] = [];
    const tokens = new RetiredTokens({
      clock: bench.clock,
      log: bench.log,
      revoke: async (text) => void asked.push(text),
      onGone: gone.resolve,
    });
    const expiresAtMs = bench.clock.monotonicMs();
    const issued = { accessToken: 'a', refreshToken: 'r', expiresAtMs, lifeMs: 60_000, inUse: 0 };
    tokens.add({ issued, texts: () => ['a'], expiresWallMs: 0 });
    await gone.promise;
    expect([asked, tokens.list()]).toEqual([[], []]);
    expect(bench.lines.some(({ event }) => event === 'session.revoke_missed')).toBe(true);
  });
});
