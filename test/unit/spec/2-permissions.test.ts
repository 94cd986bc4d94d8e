import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Visitor } from '../sandbox/visitor.ts';
import { ANNA, asset, BEN, instrumentation, node, type ObjectRef, Platform } from './platform.ts';

const TYPES = ['can_read', 'can_update', 'can_delete', 'can_permit'];
let platform: Platform;
let ben: Visitor;

beforeEach(async () => {
  platform = await Platform.start();
  ben = await platform.person(BEN);
});
afterEach(() => platform.stop());

const USER_V1 = { id: BEN.id, type: 'User' };
const USER_V2 = { email: BEN.email, type: 'User' };
const GROUP = { id: 40, type: 'Usergroup' };

/** Grants as the technical user, which has all permissions on 881. */
const giveV1 = (permission_type: unknown, permitable: ObjectRef = asset(881), assignable: object = USER_V1) =>
  platform.gateway.call('POST', '/v1/permissions', { permission_type, assignable, permitable });
const giveV2 = (permission_types: unknown, permitable: ObjectRef = asset(881), assignable: object = USER_V2) =>
  platform.gateway.call('POST', '/v2/permissions', { permission_types, assignable, permitable });
const letBen = (types: string[], on: ObjectRef) => platform.grant(on, { user: BEN.id, types });

/** Status of a request that requires the permission; 404 for objects that Ben cannot read. */
const sees = async (id: number) => (await ben.get(`/v1/assets/${id}/values`)).status === 200;
const updates = async (id: number) =>
  (await ben.call('PATCH', `/v2/assets/${id}/display_labels`, { flow: { precision: 1 } })).status;
const permits = async (id: number) => {
  const body = { permission_types: ['can_read'], assignable: { email: ANNA.email, type: 'User' } };
  return (await ben.call('POST', '/v2/permissions', { ...body, permitable: asset(id) })).status;
};

describe('specification', () => {
  it('2.2 permission_type is a list of values', async () => {
    const reply = await giveV1(['can_read', 'can_update']);
    expect(reply.status).toBe(201);
    expect(reply.body.permissions).toHaveLength(2);
  });

  it('2.2 permission_type may be a single comma-separated string of values', async () => {
    const { permissions } = (await giveV1('can_read,can_update')).body;
    expect(permissions.map((one: { permission_type: string }) => one.permission_type)).toEqual(TYPES.slice(0, 2));
  });

  it.each(TYPES)('2.2 %s is an allowed value', async (type) => {
    expect((await giveV1([type])).body.permissions[0].permission_type).toBe(type);
    expect((await giveV2([type])).body.permission_types).toEqual([type]);
  });

  it.each([[['can_write']], ['can_read can_update'], [[]], [undefined]])(
    '2.2 %j is not an allowed value',
    async (types) => {
      const [v1, v2] = [await giveV1(types), await giveV2(types)];
      expect([v1.status, v1.body.errors[0].attribute]).toEqual([400, 'permission_type']);
      expect([v2.status, v2.body.errors[0].attribute]).toEqual([400, 'permission_types']);
    },
  );

  it('2.2 in v1 a permission is granted to a User or Usergroup by id', async () => {
    expect((await giveV1(['can_read'])).body.permissions[0].assignable).toEqual(USER_V1);
    expect((await giveV1(['can_read'], asset(881), GROUP)).body.permissions[0].assignable).toEqual(GROUP);
    expect((await giveV1(['can_read'], asset(881), { id: 50, type: 'Tenant' })).status).toBe(400);
    expect((await giveV1(['can_read'], asset(881), USER_V2)).status).toBe(400);
  });

  it('2.2 in v2 the User is identified by e-mail and the Usergroup by id', async () => {
    expect((await giveV2(['can_read'])).body.assignable).toEqual(USER_V2);
    expect((await giveV2(['can_read'], asset(881), GROUP)).body.assignable).toEqual(GROUP);
    expect((await giveV2(['can_read'], asset(881), USER_V1)).status).toBe(400);
    expect((await giveV2(['can_read'], asset(881), { email: BEN.email, type: 'Usergroup' })).status).toBe(400);
  });

  it('2.2 a usergroup’s permission applies to its members', async () => {
    await giveV2(['can_read'], asset(881), GROUP);
    expect(await sees(881)).toBe(true);
  });

  it.each([
    ['Asset', 881],
    ['Instrumentation', 4711],
    ['Node', 20],
    ['Document', 34],
    ['EDM::EdgeDevice', 30],
    ['Event', 39],
    ['Usergroup', 40],
    ['APIKey', 3],
    ['ClientApplication', 3],
    ['BillOfMaterial', 22],
    ['PurchaseOrder', 23],
    ['Delivery', 24],
    ['Quotation', 25],
    ['RequestOfQuotation', 26],
    ['Recipe', 37],
  ])('2.2 a permission can be granted on %s', async (type, id) => {
    await platform.grant({ type, id });
    expect((await giveV1(['can_read'], { type, id })).body.permissions[0].permitable).toEqual({ type, id });
    expect((await giveV2(['can_update'], { type, id })).body.permitable).toEqual({ type, id });
  });

  it.each(['Product', 'Unit', 'asset', ''])('2.2 a permission cannot be granted on %j', async (type) => {
    for (const give of [giveV1, giveV2]) {
      const reply = await give(['can_read'], { type, id: 1 });
      expect([reply.status, reply.body.errors[0].attribute]).toEqual([400, 'permitable.type']);
    }
  });
});

describe('specification', () => {
  it('2.2 can_read lets the user see the object', async () => {
    expect(await sees(881)).toBe(false);
    await letBen(['can_read'], asset(881));
    expect(await sees(881)).toBe(true);
  });

  it('2.2 can_update lets the user change the object’s attributes', async () => {
    await letBen(['can_read'], asset(881));
    expect(await updates(881)).toBe(403);
    await letBen(['can_update'], asset(881));
    expect(await updates(881)).toBe(200);
  });

  it('2.2 can_permit lets the user grant permissions on the object', async () => {
    await letBen(['can_read', 'can_update', 'can_delete'], asset(881));
    expect(await permits(881)).toBe(403);
    await letBen(['can_permit'], asset(881));
    expect(await permits(881)).toBe(201);
  });

  it('2.2 can_permit lets the user delete permissions on the object', async () => {
    const { id } = (await giveV2(['can_read'], asset(881), { email: ANNA.email, type: 'User' })).body;
    await letBen(['can_read'], asset(881));
    expect((await ben.call('DELETE', `/v2/permissions/${id}`)).status).toBe(403);
    await letBen(['can_permit'], asset(881));
    expect((await ben.call('DELETE', `/v2/permissions/${id}`)).status).toBe(204);
  });

  it.each(TYPES)('2.2 the types are independent: %s does not imply any other type', async (type) => {
    const { id } = (await giveV2([type])).body;
    expect((await platform.gateway.get(`/v2/permissions/${id}`)).body.permission_types).toEqual([type]);
    expect(await sees(881)).toBe(type === 'can_read');
    // Each permission type is sufficient for its purpose. Without read permission the response is 404, otherwise 403.
    const no = type === 'can_read' ? 403 : 404;
    const expected = [type === 'can_update' ? 200 : no, type === 'can_permit' ? 201 : no];
    expect([await updates(881), await permits(881)]).toEqual(expected);
  });

  it('2.2 can_permit alone lets the user list and delete permissions on an object that the user cannot see', async () => {
    const { id } = (await giveV2(['can_read'], asset(881), { email: ANNA.email, type: 'User' })).body;
    await letBen(['can_permit'], asset(881));
    expect(await sees(881)).toBe(false);
    expect((await ben.get(`/v2/permissions/${id}`)).status).toBe(200);
    expect((await ben.call('DELETE', `/v2/permissions/${id}`)).status).toBe(204);
  });

  it('2.2 permission types have no hierarchy: the other three do not imply can_read', async () => {
    await letBen(['can_update', 'can_delete', 'can_permit'], asset(881));
    expect(await sees(881)).toBe(false);
  });
});

describe('specification', () => {
  it('2.2 a v2 record has an integer id and a permission_types list', async () => {
    const { body } = await giveV2(['can_read', 'can_delete']);
    expect(Number.isInteger(body.id)).toBe(true);
    expect(body.permission_types).toEqual(['can_read', 'can_delete']);
  });

  it('2.2 v1 has one record per type, with text ids: the object id plus 1, 2 and 4', async () => {
    const { permissions } = (await giveV1(['can_read', 'can_update', 'can_delete'])).body;
    const pair = (await giveV2(['can_read'])).body.id;
    expect(permissions.map((one: { id: string; permission_type: string }) => [one.permission_type, one.id])).toEqual([
      ['can_read', String(pair + 1)],
      ['can_update', String(pair + 2)],
      ['can_delete', String(pair + 4)],
    ]);
  });

  it('2.2 the v1 id of can_permit, whose offset is not documented, is unique', async () => {
    const { permissions } = (await giveV1(TYPES)).body;
    expect(new Set(permissions.map((one: { id: string }) => one.id)).size).toBe(4);
    for (const { id, permission_type } of permissions) {
      expect((await platform.gateway.get(`/v1/permissions/${id}`)).body).toMatchObject({ id, permission_type });
    }
  });
});

describe('specification', () => {
  it.each([
    ['can_read', sees, false, true],
    ['can_update', updates, 403, 200],
    ['can_permit', permits, 403, 201],
  ] as const)('2.2 %s on an instrumentation applies to every asset assigned to it', async (type, tried, no, yes) => {
    platform.sandbox.changes.associate(901, 4711);
    if (type !== 'can_read') for (const id of [881, 901]) await letBen(['can_read'], asset(id));
    expect([await tried(881), await tried(901)]).toEqual([no, no]);
    await letBen([type], instrumentation(4711));
    expect([await tried(881), await tried(901)]).toEqual([yes, yes]);
  });

  it('2.2 only the same permission type is inherited', async () => {
    await letBen(['can_update'], instrumentation(4711));
    expect(await sees(881)).toBe(false);
  });

  it('2.2 an asset that is assigned later inherits the permission from then on', async () => {
    await letBen(['can_read'], instrumentation(4711));
    expect(await sees(901)).toBe(false);
    platform.sandbox.changes.associate(901, 4711);
    expect(await sees(901)).toBe(true);
  });

  it('2.2 the inherited permission ends when the asset is no longer assigned', async () => {
    await letBen(['can_read'], instrumentation(4711));
    platform.sandbox.changes.dissociate(881, 4711);
    expect(await sees(881)).toBe(false);
  });

  it('2.2 the inherited permission ends when the instrumentation is deleted', async () => {
    await letBen(['can_read'], instrumentation(4711));
    await platform.destroy('instrumentations', 4711);
    expect(await sees(881)).toBe(false);
  });

  it('2.2 a direct permission does not end when the asset is no longer assigned', async () => {
    await letBen(['can_read'], instrumentation(4711));
    await letBen(['can_read'], asset(881));
    platform.sandbox.changes.dissociate(881, 4711);
    expect(await sees(881)).toBe(true);
  });

  it('2.2 a permission on an asset does not apply to its instrumentation', async () => {
    await letBen(['can_read', 'can_update'], asset(881));
    const reply = await ben.call('PATCH', '/v2/instrumentations/4711/display_labels', {});
    expect(reply.status).toBe(404);
  });

  it('2.2 an asset visible through two nodes stays visible after the permission on one node is revoked', async () => {
    for (const id of [20, 21]) await letBen(['can_read'], node(id));
    await platform.take(node(20), { user: BEN.id, direct: true });
    // 882 is under both nodes, 881 only under the first.
    expect([await sees(882), await sees(881)]).toEqual([true, false]);
    await platform.take(node(21), { user: BEN.id, direct: true });
    expect(await sees(882)).toBe(false);
  });

  it('2.2 an asset visible through two nodes stays visible after it leaves one node', async () => {
    for (const id of [20, 21]) await letBen(['can_read'], node(id));
    await platform.put('nodes', 20, { assets: [881] });
    expect(await sees(882)).toBe(true);
    await platform.put('nodes', 21, { assets: [910] });
    expect(await sees(882)).toBe(false);
  });
});
