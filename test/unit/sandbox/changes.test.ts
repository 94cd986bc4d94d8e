import { describe, expect, it } from 'vitest';
import { PERMITABLE_TYPES } from '../../../src/contract/permissions.ts';
import { audience } from './audience.ts';
import { Visitor } from './visitor.ts';

const at = audience();

const register = (...event_types: string[]) => at.register(event_types);
const told = () => at.sandbox.deliveries().map(({ payload }) => JSON.parse(payload));

describe('platform 6.3: event attributes', () => {
  it('are sent as references to objects, or as null when removed', async () => {
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

  it('include the status of a health condition on its asset', async () => {
    await register('asset_updated');
    at.sandbox.changes.setHealthConditions(881, 71, []);
    expect(told()[0].content.asset.status.id).toBe(71);
  });
});

describe('platform 6.3: object deletion', () => {
  it('of an asset sends events for its associations and ends its children’s inherited permissions', async () => {
    await register('asset_disappeared', 'asset_instrumentation_association_destroyed');
    at.sandbox.changes.associate(910, 4711);
    at.sandbox.changes.destroy('assets', 910);
    const events = told();
    const gone = events
      .filter((event) => event.event_type === 'asset_disappeared')
      .map((event) => event.content.asset.id);
    // 910 because of the reporting role, its children because they no longer inherit.
    expect(gone.sort()).toEqual([910, 911, 912, 913]);
    expect(events.filter((event) => event.event_type.endsWith('destroyed'))).toHaveLength(1);
    expect(at.sandbox.site.all('permissions').some(({ permitable }) => permitable.id === 910)).toBe(false);
  });

  it('of a node removes the links from add-ons to it', async () => {
    await register('add_on_node_association_destroyed');
    at.sandbox.changes.setAddOnLink(47, 19, true);
    at.sandbox.changes.destroy('nodes', 19);
    expect(told()[0].content).toMatchObject({ add_on: { id: 47 }, node: { id: 19 } });
    expect(at.sandbox.site.get('add_ons', 47)!.nodes).toEqual([]);
  });

  it('of a user removes the user’s permissions, memberships and ownerships', () => {
    at.sandbox.changes.destroy('users', 6);
    expect(at.sandbox.site.get('tenants', 50)).toMatchObject({ admins: [], users: [5, 7] });
    expect(at.sandbox.permissions.owners).toEqual([]);
    expect(at.sandbox.site.all('permissions').some(({ assignable }) => assignable.id === 6)).toBe(false);
  });
});

describe('platform 6.3: event_created', () => {
  it('requires read permission on any of the event’s assets or instrumentations', async () => {
    await register('event_created');
    at.sandbox.changes.createEvent({ name: 'a', type: 76, assets: [920] });
    at.sandbox.changes.createEvent({ name: 'b', type: 76, assets: [920], instrumentations: [4711] });
    expect(told().map((event) => event.content.event.name)).toEqual(['b']);
  });
});

describe('platform 1 and 2.2: objects', () => {
  it('exist for every permitable type, with permissions that can be granted and read', async () => {
    const anna = Visitor.asPerson(at.sandbox);
    const { KIND_OF_PERMITABLE } = await import('../../../src/sandbox/site/records.ts');
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

  it('are created and replaced by the admin API, which rejects invalid records', async () => {
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

describe('platform 5.1: client application', () => {
  it('accepts a second API key', async () => {
    at.sandbox.changes.put('api_keys', { id: 9, client_application: 3, client_id: 'second', client_secret: 'other' });
    const { basic } = await import('./visitor.ts');
    const fields = { grant_type: 'password', username: 'gateway@sandbox.example', password: 'gateway-password' };
    expect((await at.visitor.form('/oauth/token', fields, basic('second', 'other'))).status).toBe(200);
    expect((await at.visitor.form('/oauth/token', fields, basic('second', 'sandbox-secret'))).status).toBe(401);
  });
});
