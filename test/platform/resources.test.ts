import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DEPRECATIONS, deprecationOf, isSunset } from '../../src/contract/deprecations.ts';
import { allEntries } from '../../src/platform/pages.ts';
import { ClientApplications } from '../../src/platform/resources/client-applications.ts';
import { readDeliveries } from '../../src/platform/resources/deliveries.ts';
import { DisplayLabels } from '../../src/platform/resources/display-labels.ts';
import { Members } from '../../src/platform/resources/members.ts';
import { Owners } from '../../src/platform/resources/owners.ts';
import { PermissionsV1 } from '../../src/platform/resources/permissions-v1.ts';
import { PermissionsV2 } from '../../src/platform/resources/permissions-v2.ts';
import { Webhooks } from '../../src/platform/resources/webhooks.ts';
import { SessionBench } from './session-bench.ts';
import { json } from './token-server.ts';

let bench: SessionBench;
/** What the platform answers next: status, body, headers. */
let answers: [number, unknown?, Record<string, string>?][];

beforeEach(async () => {
  bench = await new SessionBench().open();
  await bench.start();
  answers = [];
  bench.server.faults.push((seen, response) => {
    if (seen.path.startsWith('/oauth/')) return false;
    const [status, body, headers] = answers.shift() ?? [204];
    if (body === undefined) response.writeHead(status, headers ?? {}).end();
    else json(response, status, body, headers);
    return true;
  });
});
afterEach(() => bench.close());

/** The calls as they stood on the wire: method, address with query, body. */
const wire = () =>
  bench.server.seen
    .filter((seen) => !seen.path.startsWith('/oauth/'))
    .map((seen) => [seen.method, seen.target, seen.body === '' ? undefined : JSON.parse(seen.body)]);

const ASSET = { id: 881, type: 'Asset' } as const;
const ANNA = { email: 'anna@example.com', type: 'User' } as const;

describe('every row of platform 4.2', () => {
  it('permissions v2', async () => {
    const permissions = new PermissionsV2(bench.client);
    const record = { id: 7, permission_types: ['can_read'] };
    answers = [[201, record], [200, { permissions: [record] }], [200, record], [200, record], [204]];
    const body = { permission_types: ['can_read' as const], assignable: ANNA, permitable: ASSET };
    expect(await permissions.create(body)).toEqual(record);
    expect(await allEntries(permissions.list(ASSET))).toEqual([record]);
    expect(await permissions.read(7)).toEqual(record);
    await permissions.change(7, ['can_read', 'can_permit']);
    await permissions.delete(7);
    expect(wire()).toEqual([
      ['POST', '/v2/permissions', body],
      ['GET', '/v2/permissions?permitable_id=881&permitable_type=Asset&page=1&per_page=100', undefined],
      ['GET', '/v2/permissions/7', undefined],
      ['PATCH', '/v2/permissions/7', { permission_types: ['can_read', 'can_permit'] }],
      ['DELETE', '/v2/permissions/7', undefined],
    ]);
  });

  it('permissions v1, with ids that carry the offset of their type', async () => {
    const permissions = new PermissionsV1(bench.client);
    answers = [[201, {}], [200, { permissions: [] }], [200, {}], [204], [204]];
    const body = {
      permission_type: ['can_read' as const],
      assignable: { id: 6, type: 'User' as const },
      permitable: ASSET,
    };
    await permissions.create(body);
    await allEntries(permissions.list({ id: 1, type: 'EDM::EdgeDevice' }));
    await permissions.read('101');
    await permissions.delete('101');
    await permissions.delete('101', { all: true });
    expect(wire()).toEqual([
      ['POST', '/v1/permissions', body],
      ['GET', '/v1/permissions?permitable_id=1&permitable_type=EDM%3A%3AEdgeDevice&page=1&per_page=100', undefined],
      ['GET', '/v1/permissions/101', undefined],
      ['DELETE', '/v1/permissions/101', undefined],
      ['DELETE', '/v1/permissions/101?all=true', undefined],
    ]);
  });

  it('owners, v2 by e-mail and v1 by id', async () => {
    const owners = new Owners(bench.client);
    const v2 = { assignable: ANNA, permitable: ASSET };
    const v1 = { assignable: { id: 6, type: 'User' as const }, permitable: ASSET };
    await owners.add(v2);
    await owners.remove(v2);
    await owners.addV1(v1);
    await owners.removeV1(v1);
    expect(wire()).toEqual([
      ['POST', '/v2/owners', v2],
      ['DELETE', '/v2/owners', v2],
      ['POST', '/v1/owners', v1],
      ['DELETE', '/v1/owners', v1],
    ]);
  });
});

describe('every row of platform 4.3 and 4.4', () => {
  it('members are added, replaced and removed, by e-mail in v2 and by id in v1', async () => {
    const members = new Members(bench.client);
    await members.change('add', 'tenant-admins', 50, ['a@x.y', 'b@x.y']);
    await members.change('replace', 'tenant-users', 50, []);
    await members.change('remove', 'userrole-users', 60, ['a@x.y']);
    await members.changeV1('add', 'tenant-admins', 50, [6]);
    await members.changeV1('replace', 'tenant-users', 50, [6, 7]);
    await members.changeV1('remove', 'userrole-users', 60, [6]);
    expect(wire()).toEqual([
      ['POST', '/v2/tenants/50/admins', { users: [{ email: 'a@x.y' }, { email: 'b@x.y' }] }],
      ['PATCH', '/v2/tenants/50/users', { users: [] }],
      ['DELETE', '/v2/userroles/60/users', { users: [{ email: 'a@x.y' }] }],
      ['POST', '/v1/tenants/50/admins', { admins: [{ id: 6 }] }],
      ['PATCH', '/v1/tenants/50/users', { users: [{ id: 6 }, { id: 7 }] }],
      ['DELETE', '/v1/userroles/60/users', { users: [{ id: 6 }] }],
    ]);
  });

  it('display labels are objects in v2 and texts in v1', async () => {
    const labels = new DisplayLabels(bench.client);
    const v2 = { flow: { name: 'Flow', precision: 2, is_visible: true } };
    answers = [[200, v2]];
    expect(await labels.change('assets', 881, v2)).toEqual(v2);
    await labels.change('instrumentations', 4711, v2);
    await labels.changeV1('assets', 881, { flow: 'Flow' });
    await labels.changeV1('instrumentations', 4711, { flow: 'Flow' });
    expect(wire()).toEqual([
      ['PATCH', '/v2/assets/881/display_labels', v2],
      ['PATCH', '/v2/instrumentations/4711/display_labels', v2],
      ['PATCH', '/v1/assets/881/display_labels', { flow: 'Flow' }],
      ['PATCH', '/v1/instrumentations/4711/display_labels', { flow: 'Flow' }],
    ]);
  });
});

describe('every row of platform 4.5', () => {
  it('client applications by exact name, or the current one', async () => {
    const applications = new ClientApplications(bench.client);
    answers = [
      [
        200,
        {
          client_applications: [
            { id: 1, name: 'mine too' },
            { id: 2, name: 'mine' },
          ],
        },
      ],
      [200, { id: 3, name: 'x' }],
      [200, { client_applications: [] }],
    ];
    expect((await applications.find('mine')).id).toBe(2);
    expect((await applications.find(undefined)).id).toBe(3);
    await expect(applications.find('none')).rejects.toMatchObject({ code: 'platform.no_client_application' });
    expect(wire().map(([, target]) => target)).toEqual([
      '/v1/client_applications?name=mine&page=1&per_page=100',
      '/v1/client_applications/current',
      '/v1/client_applications?name=none&page=1&per_page=100',
    ]);
  });

  it('webhooks: the id comes from Location or from the body, the secret from creation and reset', async () => {
    const webhooks = new Webhooks(bench.client, 3);
    const body = { url: 'https://gw.example/hook', event_types: ['asset_appeared'] };
    answers = [
      [201, { secret: 's1' }, { location: 'https://api.example/v1/client_applications/3/webhooks/12' }],
      [201, { id: 13, secret: 's2' }],
      [201, { id: 14 }],
      [200, { webhooks: [{ id: 12 }], pagination: { page_count: 1 } }],
      [200, { id: 12 }],
      [204],
      [200, { secret: 's3' }],
      [204],
      [204],
    ];
    expect(await webhooks.create(body)).toEqual({ id: 12, secret: 's1' });
    expect(await webhooks.create(body)).toEqual({ id: 13, secret: 's2' });
    expect(await webhooks.create(body)).toEqual({ id: 14, secret: undefined });
    expect(await allEntries(webhooks.list())).toEqual([{ id: 12 }]);
    expect(await webhooks.read(12)).toEqual({ id: 12 });
    await webhooks.setDisabled(12, true);
    expect(await webhooks.resetSecret(12)).toBe('s3');
    await webhooks.resend(12, [1, 2]);
    await webhooks.delete(12);
    const base = '/v1/client_applications/3/webhooks';
    expect(wire().slice(2)).toEqual([
      ['POST', base, body],
      ['GET', `${base}?page=1&per_page=100`, undefined],
      ['GET', `${base}/12`, undefined],
      ['PATCH', `${base}/12`, { disabled: true }],
      ['POST', `${base}/12/reset_secret`, undefined],
      ['POST', `${base}/12/events`, { webhook_events: [{ id: 1 }, { id: 2 }] }],
      ['DELETE', `${base}/12`, undefined],
    ]);
  });

  it('deliveries under either name, with their filters', async () => {
    answers = [
      [200, { webhook_events: [{ id: 1 }] }],
      [201, { events: [{ id: 2 }] }],
    ];
    const filter = { status: 'failed', occurredFrom: '2026-11-01T00:00:00Z' } as const;
    expect(await allEntries(readDeliveries(bench.client, 3, 12, filter))).toMatchObject([{ records: [{ id: 1 }] }]);
    expect(await allEntries(readDeliveries(bench.client, 3, 12))).toMatchObject([{ records: [{ id: 2 }] }]);
    expect(wire()[0]![1]).toBe(
      '/v1/client_applications/3/webhooks/12/events?status=failed&occurred_at_from=2026-11-01T00%3A00%3A00Z&page=1&per_page=100',
    );
  });
});

describe('the table of deprecations', () => {
  it('names each area of platform 9 with its sunset, and no call of v2 nor of values', () => {
    const sunset = (path: string) => deprecationOf(path)?.sunset;
    expect(sunset('/v1/assets/1/display_labels')).toBe('2027-03-01');
    expect(sunset('/v1/permissions')).toBe('2027-05-01');
    expect(sunset('/v1/permissions/101')).toBe('2027-05-01');
    expect(sunset('/v1/owners')).toBe('2027-05-01');
    expect(sunset('/v1/tenants/1/admins')).toBe('2027-07-01');
    expect(sunset('/v1/userroles/1/users')).toBe('2027-07-01');
    for (const path of ['/v2/permissions', '/v1/assets/1/values', '/v1/client_applications/3/webhooks']) {
      expect(sunset(path)).toBeUndefined();
    }
  });

  it('lets v1 live through the day of its sunset', () => {
    const labels = DEPRECATIONS[0]!;
    expect(isSunset(labels, Date.UTC(2027, 2, 1, 23, 59))).toBe(false);
    expect(isSunset(labels, Date.UTC(2027, 2, 2))).toBe(true);
  });
});
