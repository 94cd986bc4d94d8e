import { describe, expect, it, vi } from 'vitest';
import { PERMITABLE_TYPES } from '../../src/contract/permissions.ts';
import { audience } from './audience.ts';
import { Visitor } from './visitor.ts';

const at = audience();

const register = (...event_types: string[]) => at.register(event_types);
const told = () => at.sandbox.deliveries().map(({ payload }) => JSON.parse(payload));

describe('platform 6.3: a change that changes nothing', () => {
  it.each([
    ['asset_updated', () => at.sandbox.changes.updateAsset(881, { status: 71, description: 'x' })],
    ['edge_device_updated', () => at.sandbox.changes.updateEdgeDevice(30, { status: 86 })],
    ['asset_software_added', () => at.sandbox.changes.addSoftware(881, 95)],
    ['asset_instrumentation_association_created', () => at.sandbox.changes.associate(901, 4711)],
    ['asset_specifications_updated', () => at.sandbox.changes.setSpecifications('assets', 881, { a: { value: 1 } })],
    [
      'asset_health_condition_updated',
      () => at.sandbox.changes.setHealthConditions(881, 71, [{ id: 1, diagnosis_code: 'S441', asset_status: 71 }]),
    ],
    ['product_status_changed', () => at.sandbox.changes.setProductStatus(90, 81)],
    ['event_document_created', () => at.sandbox.changes.addDocument(39, 35)],
  ] as const)('is not told: %s', async (type, change) => {
    await register(type);
    change();
    expect(at.sandbox.deliveries()).toHaveLength(1);
    change();
    expect(at.sandbox.deliveries()).toHaveLength(1);
  });

  it('and of several attributes or keys only those that differ are told', async () => {
    await register('asset_updated', 'asset_specifications_updated');
    at.sandbox.changes.updateAsset(881, { status: 70, description: 'new' });
    at.sandbox.changes.setSpecifications('assets', 881, { a: { value: 1 }, b: { value: 1 } });
    at.sandbox.changes.setSpecifications('assets', 881, { a: { value: 1 }, b: { value: 2 } });
    const [updated, , second] = told();
    expect(Object.keys(updated.content.asset)).toEqual(['id', 'href', 'description']);
    expect(Object.keys(second.content.asset.specifications)).toEqual(['b']);
  });
});

describe('platform 6.3: attributes', () => {
  it('are told as references where they name an object, and as null when taken away', async () => {
    await register('asset_updated');
    at.sandbox.changes.updateAsset(911, { parent: 901, product: 90, tenant: null });
    expect(told()[0].content.asset).toMatchObject({
      parent: { id: 901, href: `${at.sandbox.url}/v1/assets/901` },
      product: { id: 90 },
      tenant: null,
    });
    at.sandbox.changes.updateAsset(911, { parent: null });
    expect(at.sandbox.site.get('assets', 911)).not.toHaveProperty('parent');
  });

  it('a health condition’s status is an attribute of the asset as well', async () => {
    await register('asset_updated');
    at.sandbox.changes.setHealthConditions(881, 71, []);
    expect(told()[0].content.asset.status.id).toBe(71);
  });
});

describe('platform 3.4 and 6.3: an edge device', () => {
  it('goes offline by itself when no sign of life comes, which is told', async () => {
    await register('edge_device_updated');
    const seen = () => at.visitor.call('POST', '/sandbox/changes/edge-device-seen', { edge_device: 30 });
    await seen();
    at.sandbox.clock.advance(4 * 60_000);
    await seen();
    at.sandbox.clock.advance(4 * 60_000);
    expect(at.sandbox.site.get('edge_devices', 30)!.status).toBe(85);
    at.sandbox.clock.advance(61_000);
    expect(at.sandbox.site.get('edge_devices', 30)!.status).toBe(86);
    expect(told().at(-1).content.edge_device).toMatchObject({ id: 30, status: { id: 86 } });
  });

  it('is told only to technical users with read access to it', async () => {
    await register('edge_device_updated');
    at.sandbox.takePermission({ type: 'EDM::EdgeDevice', id: 30 });
    at.sandbox.changes.updateEdgeDevice(30, { status: 86 });
    expect(at.sandbox.deliveries()).toEqual([]);
  });
});

describe('platform 6.3: the end of an object', () => {
  it('of an asset ends its associations, which is told, and what its children inherited from it', async () => {
    await register('asset_disappeared', 'asset_instrumentation_association_destroyed');
    at.sandbox.changes.associate(910, 4711);
    at.sandbox.changes.destroy('assets', 910);
    const events = told();
    const gone = events
      .filter((event) => event.event_type === 'asset_disappeared')
      .map((event) => event.content.asset.id);
    // 910 by the reporting role, its children because they are no longer inherited.
    expect(gone.sort()).toEqual([910, 911, 912, 913]);
    expect(events.filter((event) => event.event_type.endsWith('destroyed'))).toHaveLength(1);
    expect(at.sandbox.permissions.of({ type: 'Asset', id: 910 })).toEqual([]);
  });

  it('of a node ends the links of add-ons to it', async () => {
    await register('add_on_node_association_destroyed');
    at.sandbox.changes.setAddOnLink(47, 19, true);
    at.sandbox.changes.destroy('nodes', 19);
    expect(told()[0].content).toMatchObject({ add_on: { id: 47 }, node: { id: 19 } });
    expect(at.sandbox.site.get('add_ons', 47)!.nodes).toEqual([]);
  });

  it('of a user takes its permissions, memberships and ownerships along', () => {
    at.sandbox.changes.destroy('users', 6);
    expect(at.sandbox.site.get('tenants', 50)).toMatchObject({ admins: [], users: [5, 7] });
    expect(at.sandbox.owners).toEqual([]);
    expect(at.sandbox.site.all('permissions').some(({ assignable }) => assignable.id === 6)).toBe(false);
  });
});

describe('platform 6.3: event_created', () => {
  it('needs read permission on one of the assets or instrumentations that it names', async () => {
    await register('event_created');
    at.sandbox.changes.createEvent({ name: 'a', type: 76, assets: [920] });
    at.sandbox.changes.createEvent({ name: 'b', type: 76, assets: [920], instrumentations: [4711] });
    expect(told().map((event) => event.content.event.name)).toEqual(['b']);
  });

  it('refuses objects that there are not, and an id that there is', async () => {
    const create = (body: object) =>
      at.visitor.call('POST', '/sandbox/changes/create-event', { name: 'x', type: 76, ...body });
    expect((await create({ assets: [1] })).status).toBe(404);
    expect((await create({ assets: 'all' })).status).toBe(400);
    expect((await create({ id: 39 })).status).toBe(409);
    expect((await create({ name: 5 })).status).toBe(400);
  });
});

describe('platform 1 and 2.2: objects', () => {
  it('there is one of every type that a permission can be on, and a permission on each can be given and read', async () => {
    const anna = Visitor.asPerson(at.sandbox);
    const { KIND_OF_PERMITABLE } = await import('../../src/sandbox/site/records.ts');
    for (const type of PERMITABLE_TYPES) {
      const { id } = at.sandbox.site.all(KIND_OF_PERMITABLE[type])[0]!;
      at.sandbox.grantPermission({ type, id }, { user: 6 });
      const body = {
        permission_types: ['can_read'],
        assignable: { id: 40, type: 'Usergroup' },
        permitable: { type, id },
      };
      expect((await anna.call('POST', '/v2/permissions', body)).status, type).toBe(201);
      const list = await anna.get(`/v2/permissions?permitable_id=${id}&permitable_type=${encodeURIComponent(type)}`);
      expect(list.body.permissions.length, type).toBeGreaterThan(0);
      const absent = { ...body, permitable: { type, id: 999_999 } };
      expect((await anna.call('POST', '/v2/permissions', absent)).status, type).toBe(404);
    }
  });

  it('are made and replaced by the admin API, which refuses records that could not be', async () => {
    const made = await at.visitor.call('POST', '/sandbox/objects/quotations', { name: 'Q-2' });
    expect(made.status).toBe(201);
    expect((await at.visitor.get('/sandbox/objects/quotations')).body.objects).toContainEqual(made.body);
    const wrong = [
      ['assets', {}, 'serial_number'],
      ['instrumentations', { tag: 'X', assets: 'all' }, 'assets'],
      [
        'permissions',
        { assignable: { type: 'User', id: 5 }, permitable: { type: 'Asset', id: 881 }, types: ['can_fly'] },
        'types',
      ],
      ['users', { email: 'x@y.example' }, 'password'],
    ] as const;
    for (const [kind, body, member] of wrong) {
      const reply = await at.visitor.call('POST', `/sandbox/objects/${kind}`, body);
      expect([reply.status, reply.body.errors[0].attribute]).toEqual([400, member]);
    }
    expect((await at.visitor.get('/sandbox/objects/pumps')).status).toBe(404);
  });
});

describe('platform 6.1: webhooks want an active subscription with an API key', () => {
  const lost = async () => {
    await register('asset_disappeared');
    at.sandbox.takePermission({ type: 'Asset', id: 881 });
    await vi.waitFor(() => expect(at.sandbox.deliveries()[0]?.status).not.toBe('pending'));
    return at.sandbox.deliveries()[0]!.status;
  };

  it('and are not called without the key', async () => {
    await at.visitor.call('POST', '/sandbox/objects/api_keys', {
      client_application: 3,
      client_id: 'b',
      client_secret: 'c',
    });
    at.sandbox.changes.destroy('api_keys', 3);
    expect(await lost()).toBe('delivered');
    for (const { id } of at.sandbox.site.all('api_keys')) at.sandbox.changes.destroy('api_keys', id);
    at.sandbox.grantPermission({ type: 'Asset', id: 881 });
    at.sandbox.takePermission({ type: 'Asset', id: 881 });
    await vi.waitFor(() => expect(at.sandbox.deliveries()[1]?.status).toBe('cancelled'));
    expect(at.receiver.received).toHaveLength(1);
  });

  it('nor when it is no longer active', async () => {
    at.sandbox.site.get('client_applications', 3)!.active = false;
    expect(await lost()).toBe('cancelled');
  });

  it('and the payload’s bytes count, not its letters', async () => {
    at.sandbox.site.get('client_applications', 3)!.byte_quota = 10_000;
    await register('asset_updated');
    at.sandbox.changes.updateAsset(881, { description: 'ü'.repeat(500) });
    await vi.waitFor(() => expect(at.sandbox.deliveries()[0]?.status).toBe('delivered'));
    expect(at.sandbox.usage.spent(3).bytes).toBe(Buffer.byteLength(at.sandbox.deliveries()[0]!.payload));
  });

  it('a second key of the application signs in like the first', async () => {
    at.sandbox.changes.put('api_keys', { id: 9, client_application: 3, client_id: 'second', client_secret: 'other' });
    const { basic } = await import('./visitor.ts');
    const fields = { grant_type: 'password', username: 'gateway@sandbox.example', password: 'gateway-password' };
    expect((await at.visitor.form('/oauth/token', fields, basic('second', 'other'))).status).toBe(200);
    expect((await at.visitor.form('/oauth/token', fields, basic('second', 'sandbox-secret'))).status).toBe(401);
  });
});
