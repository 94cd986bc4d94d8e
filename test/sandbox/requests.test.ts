import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../src/sandbox/sandbox.ts';
import { SANDBOX_MAIN } from '../built-agent.ts';
import { Visitor } from './visitor.ts';

const { clientId, clientSecret, technicalUsername, technicalPassword } = SANDBOX_CREDENTIALS;

let sandbox: Sandbox;
let visitor: Visitor;

beforeEach(async () => {
  sandbox = new Sandbox();
  await sandbox.start();
  visitor = await Visitor.signedIn(sandbox);
});
afterEach(() => sandbox.stop());

/** The verb, as a shell has it. */
async function verb(...args: string[]): Promise<{ code: number; text: string }> {
  const command = [SANDBOX_MAIN, ...args, '--url', sandbox.url];
  const ran = await promisify(execFile)(process.execPath, command).catch((error) => error);
  return { code: ran.code ?? 0, text: `${ran.stdout}${ran.stderr}` };
}

const login = (fields: Record<string, string>, headers: Record<string, string> = {}) =>
  fetch(`${sandbox.url}/oauth/token`, { method: 'POST', body: new URLSearchParams(fields), headers });

const tokensOf = async (reply: Response) => (await reply.json()) as { access_token: string; refresh_token: string };

describe('what a client sent', () => {
  it('is there whole, with headers and bodies, under the id that the answer bore', async () => {
    const reply = await fetch(`${sandbox.url}/v1/assets/881/values`, {
      method: 'POST',
      headers: { authorization: `Bearer ${visitor.token}`, 'content-type': 'application/json', 'x-own': 'Yes' },
      body: '{ "values": [{ "key": "flow", "data": [{ "value": 1.50 }] }] }',
    });
    expect(reply.status).toBe(204);
    const { body } = await visitor.get(`/sandbox/requests/${reply.headers.get('x-request-id')}`);
    expect(body).toMatchObject({
      method: 'POST',
      target: '/v1/assets/881/values',
      status: 204,
      user: 'Gateway',
      request: { headers: { 'x-own': 'Yes' }, body: { values: [{ key: 'flow', data: [{ value: 1.5 }] }] } },
      answer: { body: null },
    });
    expect(body.request.headers.authorization).toMatch(/^Bearer \*\*\*[0-9a-f]{12}$/);
  });

  it('never shows a password, secret, token or code, wherever it stood', async () => {
    const basic = `Basic ${Buffer.from(`${clientId}:${clientSecret}`).toString('base64')}`;
    const given = { grant_type: 'password', username: technicalUsername, password: technicalPassword };
    const { access_token, refresh_token } = await tokensOf(await login(given, { authorization: basic }));
    await login({ ...given, client_id: clientId, client_secret: clientSecret });
    await login({ grant_type: 'refresh_token', refresh_token }, { authorization: basic });
    // At wrong places, in wrong forms.
    await fetch(`${sandbox.url}/oauth/token`, { method: 'POST', body: JSON.stringify(given) });
    await fetch(`${sandbox.url}/oauth/token`, { method: 'POST', body: `{"\\u0070assword":"${technicalPassword}"}` });
    await fetch(`${sandbox.url}/oauth/token`, { method: 'POST', body: `{"password":"${technicalPassword}",` });
    await fetch(`${sandbox.url}/oauth/token`, { method: 'POST', body: `pass%77ord=${technicalPassword}` });
    await fetch(`${sandbox.url}/v2/permissions?access_token=${access_token}&password=${technicalPassword}`);
    const webhook = await visitor.call('POST', '/v1/client_applications/3/webhooks', {
      url: 'https://client.example/hook',
      event_types: ['asset_updated'],
    });
    expect(webhook.status).toBe(201);
    await fetch(`${sandbox.url}/v2/permissions`, { headers: { cookie: `a=${access_token}` } });
    await sandbox.stop();
    const shown = [
      ...(await Promise.all(sandbox.requests.list().map(({ id }) => sandbox.expectRequests({ after: id - 1 })))),
    ].map((one) => JSON.stringify(one));
    const secrets = [technicalPassword, clientSecret, access_token, refresh_token, webhook.body.secret, visitor.token];
    expect(shown.length).toBeGreaterThan(10);
    for (const text of shown) for (const secret of secrets) expect(text).not.toContain(secret);
    expect(shown.join('')).not.toContain(Buffer.from(`${clientId}:${clientSecret}`).toString('base64'));
    // Two tokens are two, and one is one: the fingerprint of `GET /sandbox/tokens`.
    expect(shown.join('')).toContain(`***${sandbox.tokens.list()[1]!.fingerprint}`);
  });

  it('falls away in the order of its age where the bodies fill the memory that is kept for them', async () => {
    const body = JSON.stringify({ values: [], pad: 'x'.repeat(400_000) });
    for (let i = 0; i < 90; i++) await visitor.call('POST', '/v1/assets/881/values', JSON.parse(body));
    const { requests } = (await visitor.get('/sandbox/requests?whole=true')).body;
    expect(requests.length).toBeGreaterThan(70);
    expect(requests.length).toBeLessThan(85);
    expect((await visitor.get('/sandbox/requests/2')).status).toBe(404);
    expect((await visitor.get('/sandbox/requests')).body.requests).toHaveLength(91);
  });
});

describe('an expectation', () => {
  it('waits for what is to come, and gives it', async () => {
    const expected = sandbox.expectRequest({ method: 'POST', asset: 881, body: { values: [{ key: 'flow' }] } });
    await visitor.post(882, 'flow', [{ value: 1 }]);
    await visitor.post(881, 'temperature', [{ value: 2 }]);
    await visitor.post(881, 'flow', [{ value: 3 }]);
    expect(await expected).toMatchObject({
      path: '/v1/assets/881/values',
      request: { body: { values: [{ key: 'flow', data: [{ value: 3 }] }] } },
    });
  });

  it('is met at once by what came already, unless only what comes after counts', async () => {
    await visitor.post(881, 'flow', [{ value: 1 }]);
    const { id } = await sandbox.expectRequest({ asset: 881, withinMs: 0 });
    await expect(sandbox.expectRequest({ asset: 881, after: id, withinMs: 0 })).rejects.toThrow(
      'of asset 881 did not come within 0 s',
    );
  });

  it('says what came instead when its time is over', async () => {
    await visitor.post(882, 'flow', [{ value: 1 }]);
    const reply = await visitor.call('POST', '/sandbox/expectations', { method: 'POST', asset: 881, withinMs: 1 });
    expect(reply.status).toBe(409);
    expect(reply.body.errors[0].message).toMatch(
      /POST of asset 881 did not come within 0 s\. What came last: .*POST \/v1\/assets\/882\/values: 204/,
    );
  });

  it('of never fails at the first that comes, and of several counts them', async () => {
    const never = expect(sandbox.expectRequests({ asset: 881, never: true })).rejects.toThrow(
      'of asset 881 was never to come, and did: POST /v1/assets/881/values: 204',
    );
    const twice = sandbox.expectRequests({ asset: 881, times: 2 });
    await visitor.post(881, 'flow', [{ value: 1 }]);
    await never;
    await visitor.post(881, 'flow', [{ value: 1 }]);
    expect(await twice).toHaveLength(2);
    expect(await sandbox.expectRequests({ asset: 885, never: true, withinMs: 1 })).toEqual([]);
  });

  it('is a verb that exits with 0 or 1, and refuses what has no end', async () => {
    await visitor.post(881, 'flow', [{ value: 1 }]);
    expect(await verb('expect', '--method', 'post', '--asset', '881', '--key', 'flow')).toMatchObject({ code: 0 });
    const missed = await verb('expect', '--asset', '885', '--within', '10ms');
    expect(missed.code).toBe(1);
    expect(missed.text).toContain('tagferry-sandbox: a request of asset 885 did not come');
    const endless = await visitor.call('POST', '/sandbox/expectations', { withinMs: 3_600_000 });
    expect([endless.status, endless.body.errors[0].attribute]).toEqual([400, 'withinMs']);
  });
});
