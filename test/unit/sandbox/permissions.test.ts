import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
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

describe('platform 4.2: v2 permissions', () => {
  it('reject unknown types, permitables and users', async () => {
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

  it('have one record per type, whose ID is the object ID plus the type offset', async () => {
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
});

describe('platform 2.2: inheritance', () => {
  it('applies permissions on an instrumentation to its assets until the relation ends', () => {
    sandbox.grantPermission({ type: 'Instrumentation', id: 4711 }, { user: BEN, types: ['can_update'] });
    expect([may(BEN, 'can_update', 881), may(BEN, 'can_read', 881)]).toEqual([true, false]);
    sandbox.changes.dissociate(881, 4711);
    expect(may(BEN, 'can_update', 881)).toBe(false);
    sandbox.changes.associate(881, 4711);
    sandbox.changes.destroy('instrumentations', 4711);
    expect(may(BEN, 'can_update', 881)).toBe(false);
  });

  it('does not loop if an asset is its own ancestor', () => {
    sandbox.changes.updateAsset(910, { parent: 911 });
    expect(may(BEN, 'can_read', 912)).toBe(false);
  });
});

describe('platform 4.2 and 4.3: owners and members', () => {
  it('include owners listed by the admin API', async () => {
    const owner = { assignable: { type: 'User', id: 6 }, permitable: { type: 'Node', id: 20 } };
    expect((await anna.call('POST', '/v1/owners', owner)).status).toBe(201);
    const { objects } = (await anna.get('/sandbox/objects/owners')).body;
    expect(objects).toContainEqual({ user: 6, permitable: owner.permitable });
  });
});

describe('platform 9: deprecations', () => {
  it('link a v1 permission to the v2 record for the same user and object', async () => {
    const [first] = (await anna.get('/v1/permissions?permitable_type=Node&permitable_id=20')).body.permissions;
    const reply = await anna.get(`/v1/permissions/${first.id}`);
    const [, successor] = /^<(.+)>; rel="successor-version"$/.exec(reply.headers.get('link') ?? '') ?? [];
    expect((await anna.get(successor!)).body.permitable).toEqual(first.permitable);
    expect((await anna.get('/v1/permissions/7')).headers.get('link')).toBeNull();
    expect((await anna.get('/v1/permissions')).headers.get('link')).toContain('</v2/permissions>');
  });

  it('add Deprecation and Sunset headers to v1 responses, including errors, but not to v2 responses', async () => {
    sandbox.clock.advance(Math.max(0, Date.UTC(2026, 10, 21) - sandbox.clock.wallMs()));
    anna = Visitor.asPerson(sandbox);
    for (const path of ['/v1/permissions', '/v1/permissions/999999']) {
      const { headers } = await anna.get(path);
      expect(headers.get('deprecation')).toBe(`@${Date.UTC(2025, 4, 1) / 1000}`);
      expect(headers.get('sunset')).toBe('Sat, 01 May 2027 00:00:00 GMT');
    }
    expect((await anna.get('/v2/permissions')).headers.get('sunset')).toBeNull();
  });

  it('disable only the v1 endpoints whose sunset date has passed on the sandbox’s clock', async () => {
    sandbox.clock.advance(Date.UTC(2027, 4, 3) - sandbox.clock.wallMs());
    anna = Visitor.asPerson(sandbox);
    expect((await anna.get('/v1/permissions')).status).toBe(410);
    expect((await anna.call('PATCH', '/v1/tenants/50/users', { users: [{ id: 6 }] })).status).toBe(204);
    expect((await anna.get('/v2/permissions')).status).toBe(200);
  });
});
