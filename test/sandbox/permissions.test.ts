import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { Visitor } from './visitor.ts';

const BEN = 'ben@sandbox.example';
const asset = (id: number) => ({ type: 'Asset' as const, id });
let sandbox: Sandbox;
let anna: Visitor;

beforeEach(async () => {
  sandbox = new Sandbox();
  await sandbox.start();
  anna = Visitor.asPerson(sandbox);
});
afterEach(() => sandbox.stop());

const may = (email: string, type: 'can_read' | 'can_update', id: number) =>
  sandbox.permissions.may(sandbox.user(email).id, type, asset(id));
const grantV2 = (types: string[], permitable: object = asset(881), assignable: object = { email: BEN, type: 'User' }) =>
  anna.call('POST', '/v2/permissions', { permission_types: types, assignable, permitable });

describe('platform 2.2: permission types', () => {
  it('are disjoint: none implies another', async () => {
    await grantV2(['can_update']);
    expect(may(BEN, 'can_update', 881)).toBe(true);
    expect(may(BEN, 'can_read', 881)).toBe(false);
  });

  it('are given only by who has can_permit, on objects that are seen', async () => {
    const ben = Visitor.asPerson(sandbox, BEN);
    const body = {
      permission_types: ['can_read'],
      assignable: { email: BEN, type: 'User' },
      permitable: asset(881),
    };
    expect((await ben.call('POST', '/v2/permissions', body)).status).toBe(404);
    sandbox.grantPermission(asset(881), { user: BEN, types: ['can_read'] });
    expect((await ben.call('POST', '/v2/permissions', body)).status).toBe(403);
  });
});

describe('platform 4.2: v2 permissions', () => {
  it('are one record for a pair, with users by e-mail, and can be read, changed and deleted', async () => {
    const created = await grantV2(['can_read', 'can_update']);
    expect(created.status).toBe(201);
    const { id } = created.body;
    await grantV2(['can_delete']);
    expect((await anna.get(`/v2/permissions/${id}`)).body).toEqual({
      id,
      permission_types: ['can_read', 'can_update', 'can_delete'],
      assignable: { email: BEN, type: 'User' },
      permitable: asset(881),
    });
    const changed = await anna.call('PATCH', `/v2/permissions/${id}`, { permission_types: ['can_permit'] });
    expect(changed.body.permission_types).toEqual(['can_permit']);
    expect((await anna.call('DELETE', `/v2/permissions/${id}`)).status).toBe(204);
    expect((await anna.get(`/v2/permissions/${id}`)).status).toBe(404);
  });

  it('are listed by permitable_id and permitable_type', async () => {
    await grantV2(['can_read']);
    const list = await anna.get('/v2/permissions?permitable_id=881&permitable_type=Asset');
    expect(list.body.permissions.map((one: { assignable: { email: string } }) => one.assignable.email).sort()).toEqual([
      BEN,
      'gateway@sandbox.example',
    ]);
  });

  it('take usergroups by id, and their members have what the group has', async () => {
    expect((await grantV2(['can_read'], asset(881), { id: 40, type: 'Usergroup' })).status).toBe(201);
    expect(may(BEN, 'can_read', 881)).toBe(true);
  });

  it('refuse types, permitables and users that are none', async () => {
    expect((await grantV2(['can_fly'])).body.errors[0].attribute).toBe('permission_types');
    expect((await grantV2(['can_read'], { type: 'Pump', id: 1 })).body.errors[0].attribute).toBe('permitable.type');
    expect((await grantV2(['can_read'], asset(881), { email: 'no@one.example', type: 'User' })).status).toBe(404);
    expect((await grantV2(['can_read'], asset(881), { id: 7, type: 'User' })).status).toBe(400);
  });
});

describe('platform 2.2 and 4.2: v1 permissions', () => {
  const grantV1 = (permission_type: string[] | string) =>
    anna.call('POST', '/v1/permissions', {
      permission_type,
      assignable: { id: 7, type: 'User' },
      permitable: asset(881),
    });

  it('are one record a type, with an id of the object’s plus the type’s offset', async () => {
    const { permissions } = (await grantV1(['can_read', 'can_update', 'can_delete'])).body;
    const v2 = (await anna.get('/v2/permissions?permitable_id=881')).body.permissions;
    const pair = v2.find((one: { assignable: { email: string } }) => one.assignable.email === BEN).id;
    expect(permissions.map((one: { id: string; permission_type: string }) => [one.id, one.permission_type])).toEqual([
      [String(pair + 1), 'can_read'],
      [String(pair + 2), 'can_update'],
      [String(pair + 4), 'can_delete'],
    ]);
    expect((await anna.get(`/v1/permissions/${pair + 2}`)).body.permission_type).toBe('can_update');
  });

  it('take one comma-separated string as well', async () => {
    expect((await grantV1('can_read, can_update')).status).toBe(201);
    expect(may(BEN, 'can_update', 881)).toBe(true);
  });

  it('are deleted one type at a time, or with all=true all types of the pair', async () => {
    const [read, update] = (await grantV1(['can_read', 'can_update', 'can_delete'])).body.permissions;
    expect((await anna.call('DELETE', `/v1/permissions/${read.id}`)).status).toBe(204);
    expect([may(BEN, 'can_read', 881), may(BEN, 'can_update', 881)]).toEqual([false, true]);
    await anna.call('DELETE', `/v1/permissions/${update.id}?all=true`);
    expect(may(BEN, 'can_update', 881)).toBe(false);
  });
});

describe('platform 2.2: inheritance', () => {
  it('gives what is on an instrumentation for its assets, until the relation ends', () => {
    sandbox.grantPermission({ type: 'Instrumentation', id: 4711 }, { user: BEN, types: ['can_update'] });
    expect([may(BEN, 'can_update', 881), may(BEN, 'can_read', 881)]).toEqual([true, false]);
    sandbox.changes.dissociate(881, 4711);
    expect(may(BEN, 'can_update', 881)).toBe(false);
    sandbox.changes.associate(881, 4711);
    sandbox.changes.destroy('instrumentations', 4711);
    expect(may(BEN, 'can_update', 881)).toBe(false);
  });

  it('over two paths survives the loss of one', () => {
    for (const id of [20, 21]) sandbox.grantPermission({ type: 'Node', id }, { user: BEN, types: ['can_read'] });
    sandbox.takePermission({ type: 'Node', id: 20 }, { user: BEN, direct: true });
    expect(may(BEN, 'can_read', 882)).toBe(true);
    expect(may(BEN, 'can_read', 881)).toBe(false);
    sandbox.takePermission({ type: 'Node', id: 21 }, { user: BEN, direct: true });
    expect(may(BEN, 'can_read', 882)).toBe(false);
  });

  it('ends even where assets are their own parents', () => {
    sandbox.changes.updateAsset(910, { parent: 911 });
    expect(may(BEN, 'can_read', 912)).toBe(false);
  });
});

describe('platform 4.2 and 4.3: owners and members', () => {
  it('owners are listed behind the scenes', async () => {
    const owner = { assignable: { type: 'User', id: 6 }, permitable: { type: 'Node', id: 20 } };
    expect((await anna.call('POST', '/v1/owners', owner)).status).toBe(201);
    const { objects } = (await anna.get('/sandbox/objects/owners')).body;
    expect(objects).toContainEqual({ user: 6, permitable: owner.permitable });
    const { kinds } = (await anna.get('/sandbox/objects')).body;
    expect(kinds).toContainEqual({ kind: 'owners', count: objects.length });
  });

  it('owners are added and removed, v1 by id and v2 by e-mail', async () => {
    const v2 = { assignable: { email: BEN, type: 'User' }, permitable: asset(881) };
    expect((await anna.call('POST', '/v2/owners', v2)).status).toBe(201);
    expect(sandbox.owners).toContainEqual({ user: 7, permitable: asset(881) });
    const v1 = { assignable: { id: 7, type: 'User' }, permitable: asset(881) };
    expect((await anna.call('DELETE', '/v1/owners', v1)).status).toBe(204);
    expect((await anna.call('DELETE', '/v1/owners', v1)).status).toBe(404);
  });

  it.each([
    ['/v1/tenants/50/admins', { admins: [{ id: 7 }] }, () => sandbox.site.get('tenants', 50)!.admins, [6]],
    ['/v2/tenants/50/admins', { users: [{ email: BEN }] }, () => sandbox.site.get('tenants', 50)!.admins, [6]],
    ['/v1/userroles/60/users', { users: [{ id: 7 }] }, () => sandbox.site.get('userroles', 60)!.users, [6]],
    ['/v2/userroles/60/users', { users: [{ email: BEN }] }, () => sandbox.site.get('userroles', 60)!.users, [6]],
  ])('%s: POST adds, DELETE removes, PATCH replaces', async (path, body, members, before) => {
    expect((await anna.call('POST', path, body)).status).toBe(204);
    expect(members()).toEqual([...before, 7]);
    await anna.call('DELETE', path, body);
    expect(members()).toEqual(before);
    await anna.call('PATCH', path, body);
    expect(members()).toEqual([7]);
  });
});

describe('platform 4.4: display labels', () => {
  it('v1 sets names, v2 every member, over the same labels', async () => {
    expect((await anna.call('PATCH', '/v1/assets/881/display_labels', { Flow: 'Inlet' })).body).toEqual({
      flow: 'Inlet',
    });
    const reply = await anna.call('PATCH', '/v2/assets/881/display_labels', {
      flow: { precision: 2, is_primary: true },
    });
    expect(reply.body).toEqual({ flow: { name: 'Inlet', precision: 2, is_primary: true } });
    const wrong = await anna.call('PATCH', '/v2/assets/881/display_labels', { flow: { precision: 'two' } });
    expect([wrong.status, wrong.body.errors[0].attribute]).toEqual([400, 'flow.precision']);
  });
});

describe('platform 9: deprecations', () => {
  it('a v1 permission leads to the v2 record of its pair, and to nothing where it is not found', async () => {
    const [first] = (await anna.get('/v1/permissions?permitable_type=Node&permitable_id=20')).body.permissions;
    const reply = await anna.get(`/v1/permissions/${first.id}`);
    const [, successor] = /^<(.+)>; rel="successor-version"$/.exec(reply.headers.get('link') ?? '') ?? [];
    expect((await anna.get(successor!)).body.permitable).toEqual(first.permitable);
    expect((await anna.get('/v1/permissions/7')).headers.get('link')).toBeNull();
    expect((await anna.get('/v1/permissions')).headers.get('link')).toContain('</v2/permissions>');
  });

  it('v1 answers carry Deprecation and Sunset, refusals too, and v2 answers do not', async () => {
    sandbox.clock.advance(Math.max(0, Date.UTC(2026, 10, 21) - sandbox.clock.wallMs()));
    anna = Visitor.asPerson(sandbox);
    for (const path of ['/v1/permissions', '/v1/permissions/999999']) {
      const { headers } = await anna.get(path);
      expect(headers.get('deprecation')).toBe(`@${Date.UTC(2025, 4, 1) / 1000}`);
      expect(headers.get('sunset')).toBe('Sat, 01 May 2027 00:00:00 GMT');
    }
    expect((await anna.get('/v2/permissions')).headers.get('sunset')).toBeNull();
  });

  it('past its sunset on the sandbox’s clock a v1 endpoint is gone, and the others stay', async () => {
    sandbox.clock.advance(Date.UTC(2027, 4, 3) - sandbox.clock.wallMs());
    anna = Visitor.asPerson(sandbox);
    expect((await anna.get('/v1/permissions')).status).toBe(410);
    expect((await anna.call('PATCH', '/v1/tenants/50/users', { users: [{ id: 6 }] })).status).toBe(204);
    expect((await anna.get('/v2/permissions')).status).toBe(200);
  });
});
