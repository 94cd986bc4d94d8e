import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SANDBOX_CREDENTIALS, Sandbox } from '../../src/sandbox/sandbox.ts';
import { SANDBOX_MAIN } from '../built-agent.ts';
import { Visitor } from './visitor.ts';

const { clientId, clientSecret, technicalUsername, technicalPassword } = SANDBOX_CREDENTIALS;

let folder: string;
let sandbox: Sandbox;
let visitor: Visitor;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sandbox-recording-'));
  sandbox = new Sandbox({ recordFile: join(folder, 'own.jsonl') });
  await sandbox.start();
  visitor = await Visitor.signedIn(sandbox);
});
afterEach(async () => {
  await sandbox.stop();
  rmSync(folder, { recursive: true });
});

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
      readFileSync(join(folder, 'own.jsonl'), 'utf8'),
    ].map((one) => JSON.stringify(one));
    const secrets = [technicalPassword, clientSecret, access_token, refresh_token, webhook.body.secret, visitor.token];
    expect(shown.length).toBeGreaterThan(10);
    for (const text of shown) for (const secret of secrets) expect(text).not.toContain(secret);
    expect(shown.join('')).not.toContain(Buffer.from(`${clientId}:${clientSecret}`).toString('base64'));
    // Two tokens are two, and one is one: the fingerprint of `GET /sandbox/tokens`.
    expect(shown.join('')).toContain(`***${sandbox.tokens.list()[1]!.fingerprint}`);
    expect(statSync(join(folder, 'own.jsonl')).mode & 0o777).toBe(0o600);
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

describe('a HAR', () => {
  it('is valid HAR 1.2, secrets masked, with the address that the client called', async () => {
    await visitor.post(881, 'flow', [{ value: 1 }]);
    await fetch(`${sandbox.url}/v2/permissions?page=1&per_page=5`);
    sandbox.faults.add({ drop: 'before' });
    await fetch(`${sandbox.url}/v2/permissions`).catch(() => undefined);
    const { text } = await verb('requests', '--har');
    const { log } = JSON.parse(text);
    expect(problemsOfHar(log)).toEqual([]);
    expect(log.entries.map(({ request }: { request: { url: string } }) => request.url)).toEqual([
      `${sandbox.url}/oauth/token`,
      `${sandbox.url}/v1/assets/881/values`,
      `${sandbox.url}/v2/permissions?page=1&per_page=5`,
      `${sandbox.url}/v2/permissions`,
    ]);
    expect(log.entries[2].request.queryString).toEqual([
      { name: 'page', value: '1' },
      { name: 'per_page', value: '5' },
    ]);
    expect(text).not.toContain(visitor.token);
  });
});

describe('a record', () => {
  it('is replayed against a new sandbox: tokens of then stand for those of now, and what is answered otherwise is named', async () => {
    await visitor.post(881, 'flow', [{ timestamp: '2026-11-22T00:00:00Z', value: 7 }]);
    const refused = await login({
      grant_type: 'password',
      username: technicalUsername,
      password: 'not it',
      client_id: clientId,
      client_secret: clientSecret,
    });
    expect(refused.status).toBe(400);
    const renewed = await login({
      grant_type: 'refresh_token',
      refresh_token: (await visitor.login()).body.refresh_token,
      client_id: clientId,
      client_secret: clientSecret,
    });
    visitor.token = (await tokensOf(renewed)).access_token;
    await visitor.post(882, 'flow', [{ timestamp: '2026-11-22T00:00:00Z', value: 8 }]);
    await sandbox.stop();

    sandbox = new Sandbox();
    await sandbox.start();
    const record = join(folder, 'own.jsonl');
    const same = await verb('replay', record);
    expect(same).toEqual({
      code: 0,
      text: '6 requests were sent again; 0 answers differ from what was recorded, 0 not compared.\n',
    });
    expect(sandbox.values.list(882, 'flow')).toMatchObject([{ value: 8 }]);

    sandbox.takePermission({ type: 'Asset', id: 881 });
    const other = await verb('replay', record);
    expect(other.code).toBe(1);
    expect(other.text).toMatch(/POST +\/v1\/assets\/881\/values +204 +404 application\/json/);
  });

  it('is written by a verb from another shell too, and a HAR can be replayed as well', async () => {
    const file = join(folder, 'verb.jsonl');
    const recording = verb('record', file, '--for', '3s');
    const written = () => {
      try {
        return readFileSync(file, 'utf8').split('/v1/assets/881/values').length - 1;
      } catch {
        return 0;
      }
    };
    // Two at least: on a quick machine the first was the only one.
    while (written() < 2) {
      await visitor.post(881, 'flow', [{ value: 1 }]);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    expect((await recording).text).toMatch(/^\d+ requests are in /);
    const har = join(folder, 'client.har');
    writeFileSync(har, (await verb('requests', '--har')).text);
    expect(await verb('replay', har)).toMatchObject({ code: 0 });
    writeFileSync(har, 'no record');
    expect(await verb('replay', har)).toMatchObject({ code: 2 });
  });
});

/** What the HAR 1.2 specification asks for, member by member. Written from it by hand. */
// biome-ignore lint/suspicious/noExplicitAny: a foreign document, looked into member by member
function problemsOfHar(log: any): string[] {
  const problems: string[] = [];
  const must = (isSo: boolean, what: string) => {
    if (!isSo) problems.push(what);
  };
  const isText = (value: unknown) => typeof value === 'string';
  const isNumber = (value: unknown) => typeof value === 'number' && Number.isFinite(value);
  const arePairs = (list: unknown) =>
    Array.isArray(list) && list.every(({ name, value }) => isText(name) && isText(value));
  must(log.version === '1.2', 'version');
  must(isText(log.creator.name) && isText(log.creator.version), 'creator');
  must(Array.isArray(log.entries) && log.entries.length > 0, 'entries');
  for (const [at, { startedDateTime, time, request, response, cache, timings }] of log.entries.entries()) {
    must(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z$/.test(startedDateTime), `${at}.startedDateTime`);
    must(isNumber(time) && time >= 0, `${at}.time`);
    must(isText(request.method) && URL.canParse(request.url) && isText(request.httpVersion), `${at}.request`);
    must(arePairs(request.headers) && arePairs(request.queryString), `${at}.request: names and values`);
    must(Array.isArray(request.cookies) && Array.isArray(response.cookies), `${at}.cookies`);
    must(isNumber(request.headersSize) && isNumber(request.bodySize), `${at}.request: sizes`);
    const { postData } = request;
    must(postData === undefined || (isText(postData.mimeType) && isText(postData.text)), `${at}.postData`);
    must(isNumber(response.status) && isText(response.statusText) && isText(response.httpVersion), `${at}.response`);
    must(arePairs(response.headers) && isText(response.redirectURL), `${at}.response: headers`);
    must(isNumber(response.headersSize) && isNumber(response.bodySize), `${at}.response: sizes`);
    const { content } = response;
    must(isNumber(content.size) && isText(content.mimeType) && content.mimeType !== '', `${at}.content`);
    must(content.text === undefined || isText(content.text), `${at}.content.text`);
    must(typeof cache === 'object', `${at}.cache`);
    must(
      ['send', 'wait', 'receive'].every((name) => isNumber(timings[name]) && timings[name] >= 0),
      `${at}.timings`,
    );
    must(time === timings.send + timings.wait + timings.receive, `${at}.time is the sum of its timings`);
  }
  return problems;
}
