import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { Visitor } from './visitor.ts';

const BASE = '/v1/client_applications/3/webhooks';
let sandbox: Sandbox;
let visitor: Visitor;

beforeEach(async () => {
  sandbox = new Sandbox();
  await sandbox.start();
  visitor = await Visitor.signedIn(sandbox);
});
afterEach(() => sandbox.stop());

describe('the request log', () => {
  it('tells every request that was done in a sentence of its own', async () => {
    const anna = Visitor.asPerson(sandbox);
    const on = { type: 'Asset', id: 881 };
    const ben = { email: 'ben@sandbox.example', type: 'User' };
    const url = 'https://client.example/hook';
    await visitor.post(881, 'flow', [{ value: 1 }]);
    for (const path of [
      '/v1/assets/881/values',
      '/v1/assets/881/values/flow',
      '/v1/client_applications',
      '/v1/client_applications?name=sandbox-application',
      '/v1/client_applications/current',
      '/v1/client_applications/3',
      '/v1/api_subscriptions',
      '/openapi.json',
      BASE,
    ]) {
      expect((await visitor.get(path)).status, path).toBe(200);
    }
    await visitor.call('POST', BASE, { url, event_types: ['asset_updated'] });
    sandbox.changes.updateAsset(881, { status: 71 });
    await visitor.get(`${BASE}/1`);
    await visitor.get(`${BASE}/1/events`);
    await visitor.call('POST', `${BASE}/1/events`, { webhook_events: [{ id: 1 }] });
    await visitor.call('PATCH', `${BASE}/1`, { disabled: true });
    await visitor.call('POST', `${BASE}/1/reset_secret`);
    await visitor.call('DELETE', `${BASE}/1`);
    const { id } = (
      await anna.call('POST', '/v2/permissions', { permission_types: ['can_read'], assignable: ben, permitable: on })
    ).body;
    await anna.get('/v2/permissions?permitable_id=881&permitable_type=Asset');
    await anna.get(`/v2/permissions/${id}`);
    await anna.get(`/v1/permissions/${id + 1}`);
    await anna.get('/v1/permissions');
    await anna.call('PATCH', `/v2/permissions/${id}`, { permission_types: ['can_update'] });
    await anna.call('DELETE', `/v2/permissions/${id}`);
    await anna.call('POST', '/v2/owners', { assignable: ben, permitable: on });
    await anna.call('DELETE', '/v2/owners', { assignable: ben, permitable: on });
    await anna.call('POST', '/v2/tenants/50/users', { users: [{ email: ben.email }] });
    await visitor.call('PATCH', '/v2/assets/881/display_labels', { flow: { name: 'Inlet' } });
    await visitor.form('/oauth/revoke', { token: visitor.token });
    const entries = sandbox.requests.list();
    expect(entries.filter(({ status }) => status >= 300)).toEqual([]);
    expect(entries.filter(({ story }) => story === undefined)).toEqual([]);
    expect(new Set(entries.map(({ story }) => story)).size).toBeGreaterThan(20);
    for (const { story } of entries) expect(story).not.toContain(visitor.token);
  });

  it('says of what was refused why', async () => {
    await visitor.post(1, 'flow', [{ value: 1 }]);
    await visitor.post(881, 'a b', [{ value: 1 }]);
    await visitor.form('/oauth/token', { grant_type: 'password', username: 'x', password: 'y' });
    const refused = sandbox.requests.list().map((entry) => entry.refused);
    expect(refused.slice(-3)).toEqual([
      'Asset 1 was not found',
      'values[0].key has 1 to 128 letters, digits, dots, hyphens or underscores',
      'user name or password is wrong',
    ]);
  });

  it('tells what happens behind the scenes between them', async () => {
    const told: string[] = [];
    sandbox.requests.onHappened(({ text }) => told.push(text));
    sandbox.takePermission({ type: 'Asset', id: 881 }, { types: ['can_read'] });
    sandbox.changes.destroy('assets', 901);
    await visitor.call('POST', '/sandbox/clock', { advanceMs: 60_000 });
    await sandbox.goOffline({ status: 503 });
    await sandbox.goOnline();
    expect(told).toEqual([
      'Gateway loses can_read on Asset 881',
      'asset 901 is destroyed',
      'the clock moves on by 60 s',
      'the platform goes away',
      'the platform is back',
    ]);
  });
});
