import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { findClientApplication, listApiSubscriptions } from '../../../src/platform/resources/connect-subscription.ts';
import {
  changeMembers,
  changeOwner,
  changePermission,
  createPermission,
  deletePermission,
  listPermissions,
  readPermission,
} from '../../../src/platform/resources/permissions.ts';
import { readDeliveries, Webhooks } from '../../../src/platform/resources/webhooks.ts';
import { SessionBench } from './session-bench.ts';
import { json } from './token-server.ts';

let bench: SessionBench;
/** Next responses of the platform: status, body, headers. */
let answers: [number, unknown?, Record<string, string>?][];

beforeEach(async () => {
  bench = await new SessionBench().open();
  await bench.start();
  answers = [];
  bench.server.faults.push((seen, response) => {
    if (seen.path.startsWith('/oauth/')) return false;
    const [status, body, headers] = answers.shift() ?? [204];
    if (body === undefined || typeof body === 'string') response.writeHead(status, headers ?? {}).end(body);
    else json(response, status, body, headers);
    return true;
  });
});
afterEach(() => bench.close());

/** Returns the calls as they were sent: method, path with query, body. */
const wire = () =>
  bench.server.seen
    .filter((seen) => !seen.path.startsWith('/oauth/'))
    .map((seen) => [seen.method, seen.target, seen.body === '' ? undefined : JSON.parse(seen.body)]);

const ASSET = { id: 881, type: 'Asset' } as const;
const ANNA = { email: 'anna@example.com', type: 'User' } as const;

describe('client for platform 4.2 resources', () => {
  it('supports v2 permissions', async () => {
    const record = { id: 7, permission_types: ['can_read'] };
    answers = [[201, record], [200, { permissions: [record] }], [200, { permission: record }], [200, record], [204]];
    const body = { permission_types: ['can_read' as const], assignable: ANNA, permitable: ASSET };
    expect(await createPermission(bench.client, 2, body)).toEqual(record);
    expect(await Array.fromAsync(listPermissions(bench.client, 2, ASSET))).toEqual([record]);
    expect(await readPermission(bench.client, 2, 7)).toEqual(record);
    await changePermission(bench.client, 7, ['can_read', 'can_permit']);
    await deletePermission(bench.client, 2, 7);
    expect(wire()).toEqual([
      ['POST', '/v2/permissions', body],
      ['GET', '/v2/permissions?permitable_id=881&permitable_type=Asset&page=1&per_page=100', undefined],
      ['GET', '/v2/permissions/7', undefined],
      ['PATCH', '/v2/permissions/7', { permission_types: ['can_read', 'can_permit'] }],
      ['DELETE', '/v2/permissions/7', undefined],
    ]);
  });

  it('supports v1 permissions, whose IDs include the type offset', async () => {
    answers = [[201, {}], [200, { permissions: [] }], [200, { id: '101', permission_type: 'can_read' }], [204], [204]];
    const body = {
      permission_type: ['can_read' as const],
      assignable: { id: 6, type: 'User' as const },
      permitable: ASSET,
    };
    await createPermission(bench.client, 1, body);
    await Array.fromAsync(listPermissions(bench.client, 1, { id: 1, type: 'EDM::EdgeDevice' }));
    await readPermission(bench.client, 1, '101');
    await deletePermission(bench.client, 1, '101');
    await deletePermission(bench.client, 1, '101', true);
    expect(wire()).toEqual([
      ['POST', '/v1/permissions', body],
      ['GET', '/v1/permissions?permitable_id=1&permitable_type=EDM%3A%3AEdgeDevice&page=1&per_page=100', undefined],
      ['GET', '/v1/permissions/101', undefined],
      ['DELETE', '/v1/permissions/101', undefined],
      ['DELETE', '/v1/permissions/101?all=true', undefined],
    ]);
  });
});

describe('client for platform 4.5 resources', () => {
  it('finds a client application by its exact name, or the current client application', async () => {
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
    expect((await findClientApplication(bench.client, 'mine')).id).toBe(2);
    expect((await findClientApplication(bench.client, undefined)).id).toBe(3);
    await expect(findClientApplication(bench.client, 'none')).rejects.toMatchObject({
      code: 'platform.no_client_application',
    });
    expect(wire().map(([, target]) => target)).toEqual([
      '/v1/client_applications?name=mine&page=1&per_page=100',
      '/v1/client_applications/current',
      '/v1/client_applications?name=none&page=1&per_page=100',
    ]);
  });

  it.each([404, 405])('finds the only client application if /current returns %i', async (status) => {
    answers = [[status], [200, { client_applications: [{ id: 4, name: 'line 1' }] }]];
    expect((await findClientApplication(bench.client, undefined)).id).toBe(4);
    expect(wire().map(([, target]) => target.split('?')[0])).toEqual([
      '/v1/client_applications/current',
      '/v1/client_applications',
    ]);
  });

  it('returns an error listing the client applications if there are several and /current returns 404', async () => {
    const listed = ['line 1', 'line 2'].map((name, i) => ({ id: i, name }));
    answers = [[404], [200, { client_applications: listed }]];
    await expect(findClientApplication(bench.client, '')).rejects.toMatchObject({
      code: 'platform.no_client_application',
      message: expect.stringMatching(/"line 1", "line 2"/),
      hint: expect.stringContaining('CLIENT_APPLICATION'),
    });
    answers = [[404], [200, { client_applications: [] }]];
    await expect(findClientApplication(bench.client, '')).rejects.toMatchObject({
      code: 'platform.no_client_application',
    });
    answers = [[503]];
    await expect(findClientApplication(bench.client, '')).rejects.toMatchObject({ status: 503 });
  });

  it('reads the webhook ID from Location or the body, and the secret from creation and reset', async () => {
    const webhooks = new Webhooks(bench.client, 3);
    const body = { url: 'https://gw.example/hook', event_types: ['asset_appeared'] };
    const listed = { ...body, id: 12, disabled: false };
    answers = [
      [201, { secret: 's1' }, { location: 'https://api.example/v1/client_applications/3/webhooks/12' }],
      [201, { id: 13, secret: 's2' }],
      [201, { webhook: { id: 14 } }],
      [200, { webhooks: [listed], pagination: { page_count: 1 } }],
      [200, { webhook: listed }],
      [204],
      [200, { secret: 's3' }],
      [204],
      [204],
    ];
    expect(await webhooks.create(body)).toEqual({ id: 12, secret: 's1' });
    expect(await webhooks.create(body)).toEqual({ id: 13, secret: 's2' });
    expect(await webhooks.create(body)).toEqual({ id: 14, secret: undefined });
    expect(await Array.fromAsync(webhooks.list())).toEqual([listed]);
    expect(await webhooks.read(12)).toEqual(listed);
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

  it('lists deliveries under either member name, with filters', async () => {
    answers = [
      [200, { webhook_events: [{ id: 1 }] }],
      [201, { events: [{ id: 2 }] }],
    ];
    const filter = { status: 'failed', occurredFrom: '2026-11-01T00:00:00Z' } as const;
    expect(await Array.fromAsync(readDeliveries(bench.client, 3, 12, filter))).toMatchObject([
      { records: [{ id: 1 }] },
    ]);
    expect(await Array.fromAsync(readDeliveries(bench.client, 3, 12))).toMatchObject([{ records: [{ id: 2 }] }]);
    expect(wire()[0]![1]).toBe(
      '/v1/client_applications/3/webhooks/12/events?status=failed&occurred_at_from=2026-11-01T00%3A00%3A00Z&page=1&per_page=100',
    );
  });
});

describe('API subscriptions', () => {
  it('contain the calls, and the payload under either pair of member names', async () => {
    const calls = { api_call_quota: 100, api_calls_used: 7, start_date: '2026-11-01' };
    const report = { calls: { quota: 100, used: 7 }, since: '2026-11-01' };
    const payload = { quota: 5000, used: 60 };
    for (const [members, expected] of [
      [{}, undefined],
      [{ payload_quota: 5000, payload_used: 60 }, payload],
      [{ byte_quota: 5000, bytes_used: 60 }, payload],
      [{ payload_quota: 5000 }, undefined],
    ] as const) {
      answers = [[200, { api_subscriptions: [{ ...calls, ...members }] }]];
      expect(await Array.fromAsync(listApiSubscriptions(bench.client))).toEqual([{ ...report, payload: expected }]);
    }
  });
});

describe('undocumented responses', () => {
  const webhooks = () => new Webhooks(bench.client, 3);
  const page: [number, unknown, Record<string, string>] = [
    200,
    '<html>Sign in</html>',
    { 'content-type': 'text/html' },
  ];

  it.each([
    ['webhook PATCH', () => webhooks().change(7, { disabled: true })],
    ['webhook DELETE', () => webhooks().delete(7)],
    ['resend', () => webhooks().resend(7, [1])],
    ['permission DELETE', () => deletePermission(bench.client, 2, 7)],
    ['permission PATCH', () => changePermission(bench.client, 7, ['can_read'])],
    ['member change', () => changeMembers(bench.client, 2, 'add', 'tenant-admins', 50, ['a@x.y'])],
    ['owner change', () => changeOwner(bench.client, 'add', { assignable: ANNA, permitable: ASSET })],
    ['v1 permission DELETE', () => deletePermission(bench.client, 1, '101')],
  ])('to %s count as success if 2xx with JSON or no body, but not with an HTML page', async (_call, act) => {
    answers = [[200, { id: 7 }], [200, []], [202, {}], [204]];
    for (let left = answers.length; left > 0; left--) await act();
    answers = [page];
    await expect(act()).rejects.toMatchObject({ code: 'platform.unreadable' });
  });

  const lists: [string, () => Promise<unknown>][] = [
    ['v2 permissions', () => Array.fromAsync(listPermissions(bench.client, 2, ASSET))],
    ['v1 permissions', () => Array.fromAsync(listPermissions(bench.client, 1, ASSET))],
    ['client applications', () => findClientApplication(bench.client, 'mine')],
    ['API subscriptions', () => Array.fromAsync(listApiSubscriptions(bench.client))],
    ['webhooks', () => Array.fromAsync(webhooks().list())],
    ['deliveries', () => Array.fromAsync(readDeliveries(bench.client, 3, 7))],
    ['the deliveries of a webhook that may not exist', () => webhooks().exists(7)],
  ];
  it.each(lists.flatMap(([what, act]) => [400, 422].map((status) => [what, status, act] as const)))(
    'to a list of %s with status %d are retried once without paging parameters',
    async (_, status, act) => {
      const empty = { permissions: [], api_subscriptions: [], webhooks: [], events: [] };
      const rejection = { errors: [{ type: 'x', message: 'unknown parameter per_page' }] };
      answers = [
        [status, rejection],
        [200, { ...empty, client_applications: [{ id: 1, name: 'mine' }] }],
      ];
      await act();
      expect(wire().map(([, target]) => /\bper_page=/.test(target))).toEqual([true, false]);
      answers = [
        [status, rejection],
        [status, rejection],
        [200, empty],
      ];
      await expect(act()).rejects.toMatchObject({ code: 'platform.invalid' });
      expect(wire()).toHaveLength(4);
    },
  );

  it('are read as a complete list if pagination is rejected, or as a bare array of deliveries', async () => {
    answers = [
      [400, { errors: [{ type: 'x', message: 'unknown parameter page' }] }],
      [200, { webhooks: [{ id: 1 }] }],
    ];
    expect(await Array.fromAsync(webhooks().list())).toMatchObject([{ id: 1 }]);
    answers = [[200, [{ id: 1, status: 'failed' }]]];
    const pages = await Array.fromAsync(readDeliveries(bench.client, 3, 7));
    expect(pages.flatMap(({ records }) => records)).toEqual([{ id: 1, status: 'failed' }]);
    expect(wire().slice(0, 2)).toEqual([
      ['GET', '/v1/client_applications/3/webhooks?page=1&per_page=100', undefined],
      ['GET', '/v1/client_applications/3/webhooks', undefined],
    ]);
  });
});
