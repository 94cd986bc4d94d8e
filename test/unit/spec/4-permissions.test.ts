import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Visitor } from '../sandbox/visitor.ts';
import { ANNA, asset, BEN, GATEWAY, Platform } from './platform.ts';

let platform: Platform;
let ben: Visitor;

beforeEach(async () => {
  platform = await Platform.start();
  ben = await platform.person(BEN);
});
afterEach(() => platform.stop());

const call = (method: string, path: string, body?: object) => platform.gateway.call(method, path, body);
const V1 = { assignable: { id: BEN.id, type: 'User' }, permitable: asset(881) };
const V2 = { assignable: { email: BEN.email, type: 'User' }, permitable: asset(881) };
const giveV1 = async (...permission_type: string[]) =>
  (await call('POST', '/v1/permissions', { permission_type, ...V1 })).body.permissions;
const giveV2 = async (...permission_types: string[]) =>
  (await call('POST', '/v2/permissions', { permission_types, ...V2 })).body;
const sees = async () => (await ben.get('/v1/assets/881/values')).status === 200;

describe('specification', () => {
  it('4.2 POST /v1/permissions grants the permissions in its body', async () => {
    const reply = await call('POST', '/v1/permissions', { permission_type: ['can_read'], ...V1 });
    expect(reply.status).toBe(201);
    expect(await sees()).toBe(true);
  });

  it('4.2 GET /v1/permissions is filtered by permitable_id and permitable_type', async () => {
    const [mine] = await giveV1('can_read');
    const list = async (query: string) => (await call('GET', `/v1/permissions?per_page=100&${query}`)).body.permissions;
    const found = await list('permitable_id=881&permitable_type=Asset');
    expect(found).toContainEqual({ id: mine.id, permission_type: 'can_read', ...V1 });
    for (const one of found) expect(one.permitable).toEqual(asset(881));
    expect(await list('permitable_id=881&permitable_type=Node')).toEqual([]);
    expect(await list('permitable_id=999')).toEqual([]);
  });

  it('4.2 GET /v1/permissions/{id} returns the record', async () => {
    const [, update] = await giveV1('can_read', 'can_update');
    expect((await call('GET', `/v1/permissions/${update.id}`)).body).toEqual(update);
    expect((await call('GET', `/v1/permissions/${Number(update.id) + 2}`)).status).toBe(404);
  });

  it('4.2 DELETE /v1/permissions/{id} deletes the type whose offset is included in the id', async () => {
    const [read, update] = await giveV1('can_read', 'can_update', 'can_delete');
    expect((await call('DELETE', `/v1/permissions/${update.id}`)).status).toBe(204);
    expect((await call('GET', `/v1/permissions/${update.id}`)).status).toBe(404);
    expect((await giveV2('can_read')).permission_types).toEqual(['can_read', 'can_delete']);
    await call('DELETE', `/v1/permissions/${read.id}`);
    expect(await sees()).toBe(false);
  });

  it('4.2 DELETE with all=true deletes all permission types for the user and object', async () => {
    const [, update, , permit] = await giveV1('can_read', 'can_update', 'can_delete', 'can_permit');
    expect((await call('DELETE', `/v1/permissions/${update.id}?all=true`)).status).toBe(204);
    expect((await call('GET', `/v1/permissions/${permit.id}`)).status).toBe(404);
    expect(await sees()).toBe(false);
  });

  it('4.2 DELETE with all=true deletes no permission types for other users or objects', async () => {
    const [read] = await giveV1('can_read');
    await call('DELETE', `/v1/permissions/${read.id}?all=true`);
    expect((await platform.value(881, 'flow', 1)).status).toBe(204);
  });
});

describe('specification', () => {
  it('4.2 POST /v2/permissions grants the permissions in its body', async () => {
    const reply = await call('POST', '/v2/permissions', { permission_types: ['can_read'], ...V2 });
    expect(reply.status).toBe(201);
    expect(await sees()).toBe(true);
  });

  it('4.2 GET /v2/permissions returns {permissions: [record]}, filtered by permitable_id and permitable_type', async () => {
    const mine = await giveV2('can_read', 'can_update');
    const list = async (query: string) => (await call('GET', `/v2/permissions?per_page=100&${query}`)).body.permissions;
    const found = await list('permitable_id=881&permitable_type=Asset');
    expect(found).toContainEqual({ id: mine.id, permission_types: ['can_read', 'can_update'], ...V2 });
    expect(found.map((one: { assignable: { email: string } }) => one.assignable.email).sort()).toEqual([
      BEN.email,
      GATEWAY.email,
    ]);
    expect(await list('permitable_id=881&permitable_type=Node')).toEqual([]);
  });

  it('4.2 GET /v2/permissions/{id} returns the record', async () => {
    const mine = await giveV2('can_read');
    expect((await call('GET', `/v2/permissions/${mine.id}`)).body).toEqual({
      id: mine.id,
      permission_types: ['can_read'],
      ...V2,
    });
  });

  it('4.2 PATCH /v2/permissions/{id} sets permission_types', async () => {
    const { id } = await giveV2('can_read', 'can_update');
    const reply = await call('PATCH', `/v2/permissions/${id}`, { permission_types: ['can_delete'] });
    expect([reply.status, reply.body.permission_types]).toEqual([200, ['can_delete']]);
    expect(await sees()).toBe(false);
  });

  it('4.2 DELETE /v2/permissions/{id} deletes all permission types for the user and object', async () => {
    const { id } = await giveV2('can_read', 'can_update', 'can_delete', 'can_permit');
    expect((await call('DELETE', `/v2/permissions/${id}`)).status).toBe(204);
    expect((await call('GET', `/v2/permissions/${id}`)).status).toBe(404);
    expect(await sees()).toBe(false);
  });
});

describe('specification', () => {
  it.each([
    ['/v1/owners', V1],
    ['/v2/owners', V2],
  ])('4.2 POST and DELETE %s add and remove an owner', async (path, body) => {
    expect((await call('DELETE', path, body)).status).toBe(404);
    expect((await call('POST', path, body)).status).toBe(201);
    expect((await call('DELETE', path, body)).status).toBe(204);
    expect((await call('DELETE', path, body)).status).toBe(404);
  });

  it('4.2 an owner’s assignable is a User, identified by id in v1 and by e-mail in v2', async () => {
    const group = { assignable: { id: 40, type: 'Usergroup' }, permitable: asset(881) };
    for (const path of ['/v1/owners', '/v2/owners']) expect((await call('POST', path, group)).status).toBe(400);
    expect((await call('POST', '/v1/owners', V2)).status).toBe(400);
    expect((await call('POST', '/v2/owners', V1)).status).toBe(400);
  });
});

describe('specification', () => {
  const byId = (user: { id: number }) => ({ id: user.id });
  const byEmail = (user: { email: string }) => ({ email: user.email });
  type Named = (user: typeof BEN) => object;
  const LISTS: [path: string, body: string, named: Named, kind: string, id: number, member: string][] = [
    ['/v1/tenants/50/admins', 'admins', byId, 'tenants', 50, 'admins'],
    ['/v2/tenants/50/admins', 'users', byEmail, 'tenants', 50, 'admins'],
    ['/v1/tenants/50/users', 'users', byId, 'tenants', 50, 'users'],
    ['/v2/tenants/50/users', 'users', byEmail, 'tenants', 50, 'users'],
    ['/v1/userroles/60/users', 'users', byId, 'userroles', 60, 'users'],
    ['/v2/userroles/60/users', 'users', byEmail, 'userroles', 60, 'users'],
  ];
  const begin = async (kind: string, id: number, member: string, ids: number[]) => {
    await platform.put(kind, id, { [member]: ids });
    return async () => (await platform.object(kind, id))[member];
  };

  it.each(LISTS)('4.3 POST %s adds the users in the member %s', async (path, body, named, kind, id, member) => {
    const members = await begin(kind, id, member, [ANNA.id]);
    expect((await call('POST', path, { [body]: [named(BEN)] })).status).toBeLessThan(300);
    expect(await members()).toEqual([ANNA.id, BEN.id]);
  });

  it.each(LISTS)('4.3 PATCH %s replaces all users', async (path, body, named, kind, id, member) => {
    const members = await begin(kind, id, member, [GATEWAY.id, ANNA.id]);
    expect((await call('PATCH', path, { [body]: [named(BEN)] })).status).toBeLessThan(300);
    expect(await members()).toEqual([BEN.id]);
  });

  it.each(LISTS)('4.3 DELETE %s removes users', async (path, body, named, kind, id, member) => {
    const members = await begin(kind, id, member, [ANNA.id, BEN.id]);
    expect((await call('DELETE', path, { [body]: [named(BEN)] })).status).toBeLessThan(300);
    expect(await members()).toEqual([ANNA.id]);
  });

  it.each(LISTS)('4.3 %s accepts users in %s, but not in the other version’s form', async (path, body, named) => {
    const other: Named = named === byId ? byEmail : byId;
    expect((await call('POST', path, { [body]: [other(BEN)] })).status).toBe(400);
    const elsewhere = body === 'admins' ? 'users' : 'admins';
    expect((await call('POST', path, { [elsewhere]: [named(BEN)] })).status).toBe(400);
  });
});
