import { gzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { Visitor } from './visitor.ts';

let sandbox: Sandbox;
let visitor: Visitor;
const at = '2026-11-21T00:00:00.000Z';

beforeEach(async () => {
  sandbox = new Sandbox();
  await sandbox.start();
  visitor = await Visitor.signedIn(sandbox);
});
afterEach(() => sandbox.stop());

describe('sandbox values endpoint', () => {
  it('returns 204 without a body, and stores the values with lowercase keys', async () => {
    const reply = await visitor.post(881, 'Flow', [{ timestamp: at, value: 12.5 }], { unit: { id: 12 }, group: 'P' });
    expect([reply.status, reply.text]).toEqual([204, '']);
    expect(sandbox.values.list(881, 'flow')).toEqual([
      {
        timestampMs: Date.parse(at),
        value: 12.5,
        status: undefined,
        group: 'p',
        unit: 'cubic_meter_per_hour',
        times: 1,
      },
    ]);
    expect((await visitor.get('/v1/assets/881/values/flow')).body.data[0]).toMatchObject({
      timestamp: at,
      value: 12.5,
    });
  });

  it('preserves the posted status, simulated and hold members', async () => {
    const sent = [
      { timestamp: at, value: 1, status: 'bad', simulated: true, hold: false },
      { timestamp: '2026-11-21T00:00:01.000Z', value: 2 },
    ];
    await visitor.post(881, 'flow', sent);
    expect((await visitor.get('/v1/assets/881/values/flow')).body.data).toEqual(sent);
    expect((await visitor.get('/v1/assets/881/values')).body.values).toEqual([{ key: 'flow', ...sent[1] }]);
    const wrong = await visitor.post(881, 'flow', [{ value: 1, simulated: 'yes' } as { value: number }]);
    expect([wrong.status, wrong.body.errors[0].attribute]).toEqual([400, 'values[0].data[0].simulated']);
  });

  it('counts a value with the same asset, key and timestamp as a duplicate and replaces it', async () => {
    for (const value of [1, 1, 2]) await visitor.post(881, 'flow', [{ timestamp: at, value }]);
    expect(sandbox.values.list(881, 'flow')).toMatchObject([{ value: 2, times: 3 }]);
    expect(sandbox.values.counts()).toEqual({ stored: 1, received: 3, duplicates: 2, replaced: 1, posts: 3 });
  });

  it('uses the arrival time for values without timestamps, and keeps only the latest of several', async () => {
    await visitor.post(881, 'flow', [{ value: 1 }, { value: 2 }]);
    expect(sandbox.values.list(881, 'flow').map(({ value }) => value)).toEqual([2]);
  });

  it.each([
    ['a body that is not a list', { values: {} }, 'values'],
    ['a key with a space', { values: [{ key: 'a b', data: [] }] }, 'values[0].key'],
    ['a key of 129 characters', { values: [{ key: 'k'.repeat(129), data: [] }] }, 'values[0].key'],
    ['a text value', { values: [{ key: 'a', data: [{ timestamp: at, value: '1' }] }] }, 'values[0].data[0].value'],
    [
      'a local date',
      { values: [{ key: 'a', data: [{ timestamp: '21.11.2026', value: 1 }] }] },
      'values[0].data[0].timestamp',
    ],
    ['an unknown status', { values: [{ key: 'a', data: [{ value: 1, status: 'meh' }] }] }, 'values[0].data[0].status'],
    ['an unknown unit', { values: [{ key: 'a', unit: { id: 999 }, data: [{ value: 1 }] }] }, 'values[0].unit'],
  ])('is 400 and specifies the member: %s', async (_, body, attribute) => {
    const reply = await visitor.call('POST', '/v1/assets/881/values', body);
    expect(reply.status).toBe(400);
    expect(reply.body.errors[0]).toMatchObject({ type: 'invalid', attribute });
    expect(sandbox.values.counts().received).toBe(0);
  });

  it('returns 400 if the body is not JSON', async () => {
    expect((await visitor.call('POST', '/v1/assets/881/values', '{"values":')).status).toBe(400);
  });

  it('returns 413 if the body exceeds 500 kB, whether or not it is compressed', async () => {
    const big = JSON.stringify({ values: [{ key: 'a', data: [] }], filler: 'x'.repeat(500_000) });
    expect((await visitor.call('POST', '/v1/assets/881/values', big)).status).toBe(413);
    const packed = await fetch(`${sandbox.url}/v1/assets/881/values`, {
      method: 'POST',
      headers: { authorization: `Bearer ${visitor.token}`, 'content-encoding': 'gzip' },
      body: gzipSync(big),
    });
    expect(packed.status).toBe(413);
    expect((await visitor.call('GET', '/v1/client_applications/current')).status).toBe(200);
  });

  it('returns 204 for a gzip body', async () => {
    const body = JSON.stringify({ values: [{ key: 'flow', data: [{ timestamp: at, value: 3 }] }] });
    const reply = await fetch(`${sandbox.url}/v1/assets/881/values`, {
      method: 'POST',
      headers: { authorization: `Bearer ${visitor.token}`, 'content-encoding': 'gzip' },
      body: gzipSync(body),
    });
    expect(reply.status).toBe(204);
    expect(sandbox.values.last(881, 'flow')?.value).toBe(3);
  });

  it('returns 404 for an unknown or unreadable asset, and 403 for a read-only asset', async () => {
    expect((await visitor.post(1, 'flow', [{ value: 1 }])).status).toBe(404);
    expect((await visitor.post(920, 'flow', [{ value: 1 }])).status).toBe(404);
    sandbox.revokePermission({ type: 'Asset', id: 881 }, { types: ['can_update'] });
    expect((await visitor.post(881, 'flow', [{ value: 1 }])).status).toBe(403);
  });

  it('maintains a ledger of missing, unexpected and different values', async () => {
    await visitor.post(881, 'flow', [
      { timestamp: '2026-11-21T00:00:01.000Z', value: 1 },
      { timestamp: '2026-11-21T00:00:02.000Z', value: 2 },
    ]);
    const second = Date.parse('2026-11-21T00:00:02.000Z');
    const third = Date.parse('2026-11-21T00:00:03.000Z');
    const sent = [
      { timestampMs: second, value: 22 },
      { timestampMs: third, value: 3 },
    ];
    expect(sandbox.values.compare(881, 'flow', sent)).toEqual({
      missing: [third],
      invented: [second - 1000],
      different: [second],
    });
  });
});

describe('sandbox limits', () => {
  it('reject a user’s 501st request per minute with 429 until the next minute', async () => {
    sandbox.usage.limits.perUser = 5;
    const statuses: number[] = [];
    sandbox.clock.advance(60_000 - (sandbox.clock.wallMs() % 60_000));
    for (let i = 0; i < 7; i++) statuses.push((await visitor.get('/v1/client_applications/current')).status);
    expect(statuses).toEqual([200, 200, 200, 200, 200, 429, 429]);
    sandbox.clock.advance(60_000);
    expect((await visitor.get('/v1/client_applications/current')).status).toBe(200);
  });

  it('report an inactive subscription', async () => {
    const status = async () => (await visitor.get('/v1/api_subscriptions')).body.api_subscriptions[0].status;
    expect(await status()).toBe('active');
    sandbox.site.get('client_applications', 3)!.active = false;
    expect(await status()).toBe('inactive');
  });

  it('reject requests with 402 when the quota is used up', async () => {
    sandbox.site.get('client_applications', 3)!.call_quota = 2;
    const statuses: number[] = [];
    for (let i = 0; i < 3; i++) statuses.push((await visitor.get('/v1/api_subscriptions')).status);
    expect(statuses).toEqual([200, 200, 402]);
  });

  it('paginate lists by page, with per_page from 1 to 100', async () => {
    for (let i = 0; i < 3; i++) {
      const body = { url: `https://client.example/${i}`, event_types: ['asset_appeared'] };
      expect((await visitor.call('POST', '/v1/client_applications/3/webhooks', body)).status).toBe(201);
    }
    const reply = await visitor.get('/v1/client_applications/3/webhooks?page=2&per_page=2');
    expect(reply.body.webhooks).toHaveLength(1);
    expect(reply.body.pagination).toMatchObject({ total_count: 3, page_count: 2, page: 2, per_page: 2, next: null });
    expect((await visitor.get('/v1/client_applications/3/webhooks?per_page=101')).status).toBe(400);
  });
});

describe('sandbox faults', () => {
  it('close the port while offline, then reopen the same port', async () => {
    await sandbox.goOffline();
    await expect(visitor.get('/v1/client_applications/current')).rejects.toMatchObject({
      cause: { code: 'ECONNREFUSED' },
    });
    await sandbox.goOnline();
    expect((await visitor.get('/v1/client_applications/current')).status).toBe(200);
  });

  it('return a given status from every endpoint except the admin API', async () => {
    await sandbox.goOffline({ status: 503, retryAfter: 7 });
    const reply = await visitor.login();
    expect([reply.status, reply.headers.get('retry-after')]).toEqual([503, '7']);
    expect((await visitor.get('/sandbox/status')).body.outage).toEqual({ status: 503, retryAfter: 7 });
  });

  it('can drop a response without losing the value', async () => {
    sandbox.faults.add({ path: '/v1/*', drop: 'after', times: 1 });
    await expect(visitor.post(881, 'flow', [{ timestamp: at, value: 1 }])).rejects.toThrow();
    expect(sandbox.values.counts().received).toBe(1);
    expect((await visitor.post(881, 'flow', [{ timestamp: at, value: 1 }])).status).toBe(204);
  });

  it('are rejected if invalid, and do not crash the sandbox if the response cannot be written', async () => {
    expect((await visitor.call('POST', '/sandbox/faults', { status: 42 })).status).toBe(400);
    sandbox.faults.add({ asset: 881, status: 503, retryAfter: 'a\nb', times: 1 });
    await expect(visitor.post(881, 'p', [{ value: 1 }])).rejects.toThrow();
    expect((await visitor.post(881, 'p', [{ value: 1 }])).status).toBe(204);
  });

  it('affect only the nth request, the named asset, or posts that contain the poisoned value', async () => {
    sandbox.faults.add({ asset: 882, status: 413 });
    sandbox.faults.add({ asset: 881, nth: 2, status: 500 });
    sandbox.faults.poison({ asset: 883, key: 'p', value: 66 });
    const statuses = [];
    for (const asset of [881, 881, 881, 882]) statuses.push((await visitor.post(asset, 'p', [{ value: 66 }])).status);
    expect(statuses).toEqual([204, 500, 204, 413]);
    expect((await visitor.post(883, 'p', [{ value: 66 }])).status).toBe(400);
    expect((await visitor.post(883, 'p', [{ value: 65 }])).status).toBe(204);
  });
});
