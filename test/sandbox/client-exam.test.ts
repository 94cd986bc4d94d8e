import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../src/sandbox/sandbox.ts';
import { SANDBOX_MAIN } from '../built-agent.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { Visitor } from './visitor.ts';

const { clientId: client_id, clientSecret: client_secret, technicalUsername: username } = SANDBOX_CREDENTIALS;
const { technicalPassword: password } = SANDBOX_CREDENTIALS;

let clock: ManualClock;
let sandbox: Sandbox;
let client: Visitor;

beforeEach(async () => {
  clock = new ManualClock(Date.UTC(2026, 10, 22));
  sandbox = new Sandbox({ clock, limits: { perUser: 20, perApiKey: 0, perAddress: 0, retryAfter: true } });
  await sandbox.start();
  sandbox.clientExam.begin();
  client = await Visitor.signedIn(sandbox);
});
afterEach(() => sandbox.stop());

const form = (path: string, fields: Record<string, string>) =>
  fetch(`${sandbox.url}${path}`, { method: 'POST', body: new URLSearchParams(fields) });
const login = (fields: Record<string, string> = {}) =>
  form('/oauth/token', { grant_type: 'password', username, password, client_id, client_secret, ...fields });
const revoke = () => form('/oauth/revoke', { token: client.token, client_id, client_secret });
const read = () => client.get('/v2/permissions');
const at = '2026-11-22T00:00:00.000Z';
const post = () => client.post(881, 'flow', [{ timestamp: at, value: 1 }]);
const REDIRECT = 'http://127.0.0.1/callback';
const verifier = 'v'.repeat(43);
const code_challenge = createHash('sha256').update(verifier).digest('base64url');

/** What comes back with the browser after a person signed in. */
async function signedIn(fields: Record<string, string>): Promise<URLSearchParams> {
  const answer = await fetch(`${sandbox.url}/app/id/sign_in`, {
    method: 'POST',
    redirect: 'manual',
    body: new URLSearchParams({
      ...{ response_type: 'code', client_id, redirect_uri: REDIRECT, state: `state-${stateNumber++}` },
      ...{ username: SANDBOX_CREDENTIALS.userEmail, password: 'anna-password' },
      ...fields,
    }),
  });
  return new URL(answer.headers.get('location')!).searchParams;
}
let stateNumber = 1;
const exchange = (back: URLSearchParams, fields: Record<string, string>) =>
  form('/app/id/oauth/token', {
    ...{ grant_type: 'authorization_code', client_id, code: back.get('code')!, redirect_uri: REDIRECT },
    ...fields,
  });
const WITH_CHALLENGE = { code_challenge, code_challenge_method: 'S256' };
const brokenMarks = () => sandbox.clientExam.marks().filter(({ state }) => state === 'broken');

/** What a client does wrong, and the mark that it costs: that one and no other. */
const OFFENCES: Record<string, () => Promise<unknown>> = {
  bearer: () => fetch(`${sandbox.url}/v2/permissions`),
  'expired-token': async () => {
    await clock.advance(700_000);
    await read();
  },
  'dead-token': async () => {
    sandbox.tokens.expireAll(false);
    await read();
    await clock.advance(1_000);
    await read();
  },
  'revoked-token': async () => {
    await revoke();
    await clock.advance(1_000);
    await read();
  },
  'replaced-token': async () => {
    await clock.advance(400_000);
    await login();
    await clock.advance(11_000);
  },
  'refresh-once': async () => {
    const { refresh_token } = (await client.login()).body;
    for (let i = 0; i < 2; i++) {
      await form('/oauth/token', { grant_type: 'refresh_token', refresh_token, client_id, client_secret });
    }
  },
  'new-tokens': async () => {
    for (let i = 0; i < 8; i++) {
      await revoke();
      client.token = (await client.login()).body.access_token;
    }
  },
  'wrong-credentials': async () => {
    for (let i = 0; i < 6; i++) await login({ password: 'not it' });
  },
  address: () => client.get(`/v2/permissions?access_token=${client.token}`),
  state: () => fetch(`${sandbox.url}/app/id/sign_in?response_type=code&client_id=${client_id}`),
  pkce: () =>
    form('/app/id/oauth/token', { grant_type: 'authorization_code', client_id, code: 'x', code_verifier: 'short' }),
  'foreign-state': async () => {
    sandbox.faults.add({ method: 'POST', path: '/app/id/sign_in', state: 'foreign', times: 1 });
    await exchange(await signedIn({}), { client_secret });
  },
  'retry-after': async () => {
    sandbox.faults.add({ path: '/v2/permissions', status: 503, retryAfter: 5, times: 1 });
    await read();
    await clock.advance(3_000);
    await read();
  },
  minute: async () => {
    sandbox.faults.add({ path: '/v2/permissions', status: 429, times: 1 });
    await read();
    // The minute begins with the test's clock.
    await clock.advance(50_000);
    await read();
  },
  pause: async () => {
    sandbox.faults.add({ path: '/v2/permissions', status: 500, times: 1 });
    await read();
    await clock.advance(10);
    await read();
  },
  deprecated: () => client.get('/v1/permissions'),
  endpoints: () => client.get('/v1/asset/881'),
  'content-type': () =>
    fetch(`${sandbox.url}/v1/assets/881/values`, {
      method: 'POST',
      headers: { authorization: `Bearer ${client.token}`, 'content-type': 'text/plain' },
      body: JSON.stringify({ values: [{ key: 'flow', data: [{ timestamp: at, value: 1 }] }] }),
    }),
  size: () => client.post(881, 'flow', [{ timestamp: at, value: 1, pad: 'x'.repeat(600_000) }] as never),
  'valid-values': () => client.post(881, 'flow', [{ timestamp: at, value: 'high' }] as never),
  timestamps: () => client.post(881, 'flow', [{ value: 1 }]),
  'nothing-lost': async () => {
    sandbox.faults.add({ status: 503, times: 1 });
    await post();
  },
  'refused-again': async () => {
    for (let i = 0; i < 2; i++) {
      await client.post(77, 'flow', [{ timestamp: at, value: 1 }]);
      await clock.advance(1_000);
    }
  },
};

describe('the exam of a client', () => {
  it.each(Object.entries(OFFENCES))('takes the mark %s from one that does so, and no other', async (id, offend) => {
    expect(brokenMarks()).toEqual([]);
    await offend();
    expect(brokenMarks().map((mark) => mark.id)).toEqual([id]);
    for (const { seen } of brokenMarks()) expect(seen).not.toContain(client.token);
  });

  it('takes the marks of the rate from one that goes on after a 429, whatever it calls', async () => {
    for (let i = 0; i < 21; i++) await read();
    await clock.advance(10_000);
    await client.get('/v1/client_applications');
    expect(brokenMarks().map(({ id }) => id)).toEqual(['retry-after', 'budget', 'minute']);
  });

  it('knows every rule from an offence of its own', () => {
    const known = [...Object.keys(OFFENCES), 'budget'];
    expect(
      sandbox.clientExam
        .marks()
        .map(({ id }) => id)
        .sort(),
    ).toEqual(known.sort());
  });

  it.each<[string, Record<string, string>, Record<string, string>, RegExp]>([
    ['has neither a secret nor a verifier', {}, {}, /neither a secret nor a verifier/],
    ['asks with a challenge, and leaves the verifier out', WITH_CHALLENGE, {}, /without its verifier/],
    ['makes up another verifier', WITH_CHALLENGE, { code_verifier: 'w'.repeat(43) }, /was not made from/],
    ['sends a verifier and had no challenge', {}, { code_verifier: verifier }, /was not made from/],
  ])('takes the mark pkce from one that %s', async (_what, atSignIn, atExchange, seen) => {
    expect((await exchange(await signedIn(atSignIn), atExchange)).status).not.toBe(200);
    expect(brokenMarks()).toMatchObject([{ id: 'pkce', seen: expect.stringMatching(seen) }]);
  });

  it('gives the marks of a sign-in to a client that compares the state, by PKCE and by its secret', async () => {
    const drill = sandbox.provokeClient({ field: false, signIn: true });
    const foreign = await signedIn({ state: 'mine', ...WITH_CHALLENGE });
    expect(foreign.get('state')).not.toBe('mine');
    const own = await signedIn({ state: 'mine', ...WITH_CHALLENGE });
    expect(own.get('state')).toBe('mine');
    expect((await exchange(own, { code_verifier: verifier })).status).toBe(200);
    expect(await drill).toEqual([]);
    expect((await exchange(await signedIn({}), { client_secret })).status).toBe(200);
    const held = sandbox.clientExam.marks().filter(({ state }) => state === 'held');
    expect(held.map(({ id }) => id)).toEqual(expect.arrayContaining(['state', 'foreign-state', 'pkce']));
    expect(brokenMarks()).toEqual([]);
  });

  it('takes the mark foreign-state from a client that exchanges whatever code the browser of the drill brings', async () => {
    const drill = sandbox.provokeClient({ field: false, signIn: true });
    const back = await signedIn({ state: 'mine', ...WITH_CHALLENGE });
    expect((await exchange(back, { code_verifier: verifier })).status).toBe(200);
    expect(await drill).toEqual([]);
    expect(brokenMarks().map(({ id }) => id)).toEqual(['foreign-state']);
  });

  it('takes the mark minute from a client that the drill tells of too many requests, and that comes again in the same minute', async () => {
    const steps: string[] = [];
    const drill = sandbox.provokeClient({}, (what) => steps.push(what));
    // This client waits for seven seconds, whatever it was told; the minute begins with the test's clock.
    for (const expected of [204, 503, 204, 429, 204, 429, 204]) {
      expect((await post()).status).toBe(expected);
      await clock.advance(7_000);
    }
    expect(steps).toContain('there were too many requests for this minute');
    expect(brokenMarks().map(({ id }) => id)).toEqual(['minute']);
    await sandbox.stop();
    // What it had not met yet.
    expect((await drill).length).toBeGreaterThan(0);
  });

  it('forgives what was under way, what came late and what came again', async () => {
    sandbox.faults.add({ path: '/v1/*', status: 503, retryAfter: 5, times: 1 });
    expect((await post()).status).toBe(503);
    await clock.advance(5_001);
    expect((await post()).status).toBe(204);
    await revoke();
    client.token = (await client.login()).body.access_token;
    await read();
    const held = sandbox.clientExam.marks().filter(({ state }) => state === 'held');
    expect(brokenMarks()).toEqual([]);
    expect(held.map(({ id }) => id)).toEqual(expect.arrayContaining(['retry-after', 'nothing-lost', 'revoked-token']));
  });

  it('is a verb that watches a running sandbox: a table, and exit 1 where a mark was lost', async () => {
    const args = [SANDBOX_MAIN, 'exam', '--client', '--for', '4s', '--url', sandbox.url];
    const ran = promisify(execFile)(process.execPath, args).catch((error) => error);
    const begun = sandbox.clientExam.marks();
    // It begins anew, and ends with the time that it was given.
    sandbox.clientExam.end();
    while (!sandbox.clientExam.isRunning) await new Promise((resolve) => setTimeout(resolve, 5));
    await client.get('/v1/owners');
    const { code, stdout } = await ran;
    expect(begun.length).toBeGreaterThan(20);
    expect(stdout).toMatch(
      /^NO +deprecated +9 +no deprecated endpoint is called +GET \/v1\/owners, which ends on 2027-05-01$/m,
    );
    expect(stdout).toMatch(/\d+ of \d+ requirements are met, \d+ not seen\.\n$/);
    expect(code).toBe(1);
    expect(sandbox.clientExam.isRunning).toBe(false);
  });
});
