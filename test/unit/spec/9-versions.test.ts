import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ANNA, asset, BEN, Platform } from './platform.ts';

let platform: Platform;

beforeEach(async () => {
  platform = await Platform.start();
});
afterEach(() => platform.stop());

const USER_V1 = { id: BEN.id, type: 'User' };
const USER_V2 = { email: BEN.email, type: 'User' };

/** The table in section 9: a v1 request for each area, the same request in v2, and its sunset date. */
const AREAS: [method: string, path: string, v1: object, v2: object, since: string, sunset: string][] = [
  ['PATCH', 'assets/881/display_labels', { flow: 'In' }, { flow: { name: 'In' } }, '2025-02-01', '2027-03-01'],
  ['PATCH', 'instrumentations/4711/display_labels', { a: 'b' }, { a: { name: 'b' } }, '2025-02-01', '2027-03-01'],
  [
    'POST',
    'permissions',
    { permission_type: ['can_read'], assignable: USER_V1, permitable: asset(881) },
    { permission_types: ['can_read'], assignable: USER_V2, permitable: asset(881) },
    '2025-05-01',
    '2027-05-01',
  ],
  [
    'POST',
    'owners',
    { assignable: USER_V1, permitable: asset(881) },
    { assignable: USER_V2, permitable: asset(881) },
    '2025-05-01',
    '2027-05-01',
  ],
  ...['tenants/50/admins', 'tenants/50/users', 'userroles/60/users'].map((path): (typeof AREAS)[number] => [
    'PATCH',
    path,
    { [path.endsWith('admins') ? 'admins' : 'users']: [{ id: BEN.id }] },
    { users: [{ email: BEN.email }] },
    '2025-07-01',
    '2027-07-01',
  ]),
];

const jump = (date: string) => platform.advance(Date.parse(date) - Date.UTC(2026, 10, 21));
const call = (method: string, path: string, body?: object) => platform.gateway.call(method, path, body);

describe('specification', () => {
  it.each(AREAS)(
    '9 %s /v1/%s returns its deprecation and sunset dates',
    async (...[method, path, v1, , since, sunset]) => {
      const { status, headers } = await call(method, `/v1/${path}`, v1);
      expect(status).toBeLessThan(300);
      expect(headers.get('deprecation')).toBe(`@${Date.parse(since) / 1000}`);
      expect(new Date(headers.get('sunset') ?? '').toISOString().slice(0, 10)).toBe(sunset);
    },
  );

  it.each(AREAS)('9 %s /v2/%s replaces it and is not deprecated', async (method, path, _, v2) => {
    const { status, headers } = await call(method, `/v2/${path}`, v2);
    expect(status).toBeLessThan(300);
    expect([headers.get('deprecation'), headers.get('sunset')]).toEqual([null, null]);
  });

  it.each(AREAS)(
    '9 %s /v1/%s is removed on its sunset date, and the v2 endpoint remains',
    async (method, path, v1, v2, _, sunset) => {
      await jump(new Date(Date.parse(sunset) - 1000).toISOString());
      expect((await call(method, `/v1/${path}`, v1)).status).toBeLessThan(300);
      await platform.advance(1000);
      expect((await call(method, `/v1/${path}`, v1)).status).toBe(410);
      expect((await call(method, `/v2/${path}`, v2)).status).toBeLessThan(300);
    },
  );

  it('9 v1 endpoints that are not in the table are not deprecated', async () => {
    for (const path of ['/v1/client_applications', '/v1/client_applications/3/webhooks']) {
      expect((await call('GET', path)).headers.get('sunset')).toBeNull();
    }
    await jump('2030-01-01');
    expect((await call('GET', '/v1/client_applications')).status).toBe(200);
  });
});

describe('specification', () => {
  it('9 v2 rejects the flat labels body from v1, and vice versa', async () => {
    const [flat, nested] = [{ flow: 'In' }, { flow: { name: 'In' } }];
    expect((await call('PATCH', '/v2/assets/881/display_labels', flat)).status).toBe(400);
    expect((await call('PATCH', '/v1/assets/881/display_labels', nested)).status).toBe(400);
  });

  it('9 v2 grants several permission types at once in one record per user and object', async () => {
    const give = async (...permission_types: string[]) =>
      (await call('POST', '/v2/permissions', { permission_types, assignable: USER_V2, permitable: asset(881) })).body;
    const first = await give('can_read', 'can_update');
    const second = await give('can_delete');
    expect(second).toMatchObject({ id: first.id, permission_types: ['can_read', 'can_update', 'can_delete'] });
  });

  it('9 v2 identifies users by e-mail, not by id', async () => {
    const { permissions } = (await call('GET', '/v2/permissions?permitable_id=881')).body;
    for (const { assignable } of permissions) expect(Object.keys(assignable).sort()).toEqual(['email', 'type']);
  });

  it('9 a Usergroup is still identified by its id', async () => {
    const assignable = { id: 40, type: 'Usergroup' };
    const body = { permission_types: ['can_read'], assignable, permitable: asset(881) };
    expect((await call('POST', '/v2/permissions', body)).body.assignable).toEqual(assignable);
  });

  it('9 PATCH /v2/permissions/{id} was added and does not exist in v1', async () => {
    const body = { permission_types: ['can_read'], assignable: USER_V2, permitable: asset(881) };
    const { id } = (await call('POST', '/v2/permissions', body)).body;
    expect((await call('PATCH', `/v2/permissions/${id}`, { permission_types: ['can_update'] })).status).toBe(200);
    const v1 = await call('PATCH', `/v1/permissions/${id + 1}`, { permission_type: ['can_update'] });
    expect([v1.status, v1.headers.get('allow')]).toEqual([405, expect.stringContaining('DELETE')]);
  });

  it('9 v2 IDs are numbers without a type, and each covers all permission types', async () => {
    const permission_types = ['can_read', 'can_update'];
    const body = { permission_types, assignable: USER_V2, permitable: asset(881) };
    const { id } = (await call('POST', '/v2/permissions', body)).body;
    expect((await call('GET', `/v2/permissions/${id + 1}`)).status).toBe(404);
    await call('DELETE', `/v2/permissions/${id}`);
    expect((await call('GET', `/v1/permissions/${id + 1}`)).status).toBe(404);
    expect((await call('GET', `/v1/permissions/${id + 2}`)).status).toBe(404);
  });

  it.each(['tenants/50/admins', 'tenants/50/users', 'userroles/60/users'])(
    '9 /v2/%s accepts {users: [{email}]}',
    async (path) => {
      expect((await call('POST', `/v2/${path}`, { users: [{ email: ANNA.email }] })).status).toBeLessThan(300);
      expect((await call('POST', `/v2/${path}`, { users: [{ id: ANNA.id }] })).status).toBe(400);
    },
  );

  it('9 the deprecated SHA-1 signature is still sent with the SHA-256 signature', async () => {
    await platform.webhook(['asset_disappeared']);
    await platform.take(asset(881));
    await platform.tried(1, 204);
    const names = Object.keys(platform.receiver.received[0]!.headers).filter((name) => name.startsWith('x-hub'));
    expect(names.sort()).toEqual(['x-hub-signature', 'x-hub-signature-sha256']);
  });
});
