import { afterEach, describe, expect, it } from 'vitest';
import { Sandbox, type SandboxOptions } from '../../../src/sandbox/sandbox.ts';
import { basic, Visitor } from './visitor.ts';

const PERSON = { username: 'anna@sandbox.example', password: 'anna-password' };
const REDIRECT = 'https://client.example/callback';

let sandbox: Sandbox;
afterEach(() => sandbox.stop());

async function started(options: SandboxOptions = {}): Promise<Visitor> {
  sandbox = new Sandbox(options);
  await sandbox.start();
  return Visitor.signedIn(sandbox);
}

const identityVisitor = () => new Visitor({ url: sandbox.identityUrl } as Sandbox);

async function code(visitor: Visitor, clientId = 'sandbox-client', person = PERSON): Promise<string> {
  const query = { response_type: 'code', client_id: clientId, redirect_uri: REDIRECT, state: 's' };
  const reply = await visitor.form('/app/id/sign_in', { ...query, ...person }, {});
  expect(reply.status).toBe(302);
  return new URL(reply.headers.get('location')!).searchParams.get('code')!;
}

describe('sandbox {base_url} and {web_url}', () => {
  it('share an address unless the identity application has a separate port', async () => {
    await started();
    expect(sandbox.identityUrl).toBe(sandbox.url);
  });

  it('at separate addresses reject clients that use the wrong address', async () => {
    const platform = await started({ identityPort: 0 });
    const identity = identityVisitor();
    expect(sandbox.identityUrl).not.toBe(sandbox.url);
    const fields = { grant_type: 'refresh_token', refresh_token: 'x' };
    for (const [path, right, wrong] of [
      ['/oauth/token', platform, identity],
      ['/app/id/oauth/token', identity, platform],
    ] as const) {
      expect((await right.form(path, fields)).body.error).toBe('invalid_grant');
      const mixedUp = await wrong.form(path, fields);
      expect(mixedUp.status).toBe(404);
      expect(mixedUp.body.errors[0].message).toContain(path === '/oauth/token' ? '{base_url}' : '{web_url}');
    }
    expect((await platform.get('/v1/assets/881')).status).toBe(200);
    expect((await identity.get('/v1/assets/881')).status).toBe(404);
  });

  it('go offline and online together', async () => {
    await started({ identityPort: 0 });
    const identity = identityVisitor();
    await sandbox.goOffline();
    await expect(identity.get('/app/id/sign_up')).rejects.toThrow('fetch failed');
    await sandbox.goOnline();
    expect((await identity.get('/app/id/sign_up')).status).toBe(200);
  });
});

describe('platform 6.2: href of a reference', () => {
  it.each([
    ['assets', 881, { serial_number: 'SN-000881' }],
    ['instrumentations', 4711, { tag: 'FT-101' }],
    ['nodes', 19, {}],
    ['units', 12, { code: 'cubic_meter_per_hour', symbol: 'm³/h' }],
  ] as const)('returns the members listed in platform 6.3 for %s', async (kind, id, members) => {
    const visitor = await started();
    const { href } = sandbox.site.reference(kind, id);
    const reply = await visitor.get(new URL(href).pathname);
    expect(reply.status).toBe(200);
    expect(reply.body).toMatchObject({ id, href, ...members });
  });

  it('is 404 without read permission, and 401 without a token', async () => {
    const visitor = await started();
    expect((await visitor.get('/v1/assets/920')).status).toBe(404);
    sandbox.revokePermission({ type: 'Instrumentation', id: 4711 }, { types: ['can_read'] });
    expect((await visitor.get('/v1/instrumentations/4711')).status).toBe(404);
    expect((await new Visitor(sandbox).get('/v1/units/12')).status).toBe(401);
  });
});

describe('sandbox clock', () => {
  it('starts at a given time, which disables v1 permissions after their sunset date (platform 9)', async () => {
    const visitor = await started({ nowMs: Date.UTC(2027, 4, 2) });
    expect((await visitor.get('/v1/permissions')).status).toBe(410);
    expect((await visitor.get('/v2/permissions')).status).toBe(200);
  });

  it('advances to a given time, and rejects an earlier one', async () => {
    const visitor = await started({ nowMs: Date.UTC(2027, 0, 1) });
    const to = '2027-05-02T00:00:00Z';
    const reply = await visitor.call('POST', '/sandbox/clock', { to });
    expect(Date.parse(reply.body.time)).toBeGreaterThanOrEqual(Date.parse(to));
    expect((await visitor.call('POST', '/sandbox/clock', { to: '2026-01-01T00:00:00Z' })).status).toBe(400);
    expect((await visitor.call('POST', '/sandbox/clock', { to: 'tomorrow' })).status).toBe(400);
  });
});

describe('API-Key header', () => {
  it('must match the client ID for the token', async () => {
    const visitor = await started({ apiKeyHeader: 'API-Key' });
    const statusWith = async (headers: Record<string, string>) =>
      (await visitor.call('GET', '/v1/client_applications/current', undefined, headers)).status;
    expect(await statusWith({})).toBe(401);
    expect(await statusWith({ 'api-key': 'wrong' })).toBe(401);
    expect(await statusWith({ 'api-key': 'sandbox-client' })).toBe(200);
  });
});

describe('sandbox quota', () => {
  it('is reset by the admin API', async () => {
    const visitor = await started();
    sandbox.site.get('client_applications', 3)!.call_quota = 1;
    await visitor.get('/v1/units/12');
    expect((await visitor.get('/v1/units/12')).status).toBe(402);
    expect((await visitor.call('POST', '/sandbox/quota/reset', { application: 4711 })).status).toBe(404);
    expect((await visitor.call('POST', '/sandbox/quota/reset')).status).toBe(204);
    expect((await visitor.get('/v1/units/12')).status).toBe(200);
  });
});

describe('authorization code', () => {
  it.each([
    ['a wrong secret', { client_id: 'sandbox-client', client_secret: 'wrong' }],
    ['no secret', { client_id: 'sandbox-client' }],
    ['no client', {}],
    ['another client', { client_id: 'nobody' }],
  ])('is consumed by a request with %s', async (_, credentials) => {
    const visitor = await started();
    const grant = { grant_type: 'authorization_code', code: await code(visitor), redirect_uri: REDIRECT };
    expect((await visitor.form('/app/id/oauth/token', { ...grant, ...credentials }, {})).status).toBe(401);
    const right = await visitor.form('/app/id/oauth/token', grant, basic());
    expect([right.status, right.body.error]).toEqual([400, 'invalid_grant']);
  });
});

describe('platform 1: account setup', () => {
  it('creates and confirms an account, then a connect subscription with a working key and user', async () => {
    await started({ identityPort: 0 });
    const identity = identityVisitor();
    const person = { username: 'carla@plant.example', password: 'correct horse' };
    const signUp = { name: 'Carla <b>', email: person.username, password: person.password };
    expect((await identity.form('/app/id/sign_up', signUp, {})).status).toBe(200);
    const subscription = { ...person, name: 'Line 4', redirect_uris: REDIRECT };
    const subscribe = () => identity.form('/app/id/subscriptions/new', subscription, {});
    expect((await subscribe()).status).toBe(403);

    const sent = await new Visitor(sandbox).get(`/sandbox/notices?contact=${person.username}`);
    const link = new URL(sent.body.notices[0].link);
    expect(link.origin).toBe(sandbox.identityUrl);
    expect((await identity.get(`${link.pathname}${link.search}`)).status).toBe(200);
    expect((await identity.get(`${link.pathname}${link.search}`)).status).toBe(400);

    const made = await subscribe();
    expect(made.status).toBe(201);
    const shown = (id: string) => new RegExp(`id="${id}">([^<]+)<`).exec(made.text)![1]!;
    const reply = await new Visitor(sandbox).form(
      '/oauth/token',
      { grant_type: 'password', username: shown('technical_username'), password: shown('technical_password') },
      basic(shown('client_id'), shown('client_secret')),
    );
    expect(reply.status).toBe(200);
    expect(await code(identity, shown('client_id'), person)).not.toBe('');
  });

  it.each([
    [{ email: 'nobody', password: 'long enough' }],
    [{ email: 'anna@sandbox.example', password: 'long enough' }],
    [{ email: 'new@plant.example', password: 'short' }],
    [{}],
  ])('rejects %j', async (form) => {
    const visitor = await started();
    expect((await visitor.form('/app/id/sign_up', form as Record<string, string>, {})).status).toBe(400);
  });
});
