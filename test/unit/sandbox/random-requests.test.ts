import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { EVENT_TYPES } from '../../../src/contract/events.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { KINDS, type Kind } from '../../../src/sandbox/site/records.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { Visitor } from './visitor.ts';

const STRANGE = [
  0,
  1,
  -1,
  1.5,
  3,
  30,
  47,
  76,
  881,
  4711,
  '',
  'a',
  'high',
  'failure',
  null,
  true,
  [],
  {},
  'User',
  'Asset',
  'Foo',
  'sandbox-client',
  { type: 'User', id: 5 },
  { type: 'Asset', id: 881 },
  { type: 'Foo', id: 1 },
  ['can_read'],
  ['http://127.0.0.1/callback'],
  [null],
  [881],
  [1],
  '𝒳',
];
const MEMBERS = [
  'asset', 'object', 'to', 'instrumentation', 'node', 'edge_device', 'event', 'document', 'software', 'product',
  'status', 'type', 'name', 'key', 'value', 'unit', 'changes', 'specifications', 'conditions', 'assets', 'members',
  'instrumentations', 'on', 'types', 'user', 'id', 'serial_number', 'tag', 'email', 'password', 'parent', 'tenant',
  'thresholdable_id', 'thresholdable_type', 'technical_user', 'assignable', 'permitable', 'redirect_uris', 'code_flow',
  'health_conditions', 'client_application', 'client_secret', 'call_quota', 'tolerance', 'assets', 'description', 'client_id', 'ids', 'sent', 'path', 'latencyMs', 'perUser', '__proto__',
]; // biome-ignore format: a list of words
/** Requests that read the site's records. */
const READ = [
  '/v1/permissions',
  '/v2/permissions',
  '/v1/client_applications/3/webhooks',
  '/v1/client_applications/3/webhooks/1/events',
  '/app/id/sign_in?response_type=code&client_id=sandbox-client&redirect_uri=http://127.0.0.1:1/callback',
];

let sandbox: Sandbox;
beforeEach(async () => {
  sandbox = new Sandbox();
  await sandbox.start();
});
afterEach(() => sandbox.stop());

describe('random requests', () => {
  // Includes seeds that once failed.
  it.each([1, 2, 3, 4, 5, 6])('never cause a 500, and the service continues to respond (seed %i)', async (seed) => {
    const random = new ManualClock(0, seed);
    const pick = <T>(list: readonly T[]): T => list[Math.floor(random.random() * list.length)]!;
    const thing = (depth: number): unknown => {
      if (depth > 2 || random.random() < 0.5) return pick(STRANGE);
      return Object.fromEntries([1, 2, 3].map(() => [pick(MEMBERS), thing(depth + 1)]));
    };
    const body = () => Object.fromEntries([1, 2, 3, 4].map(() => [pick(MEMBERS), thing(1)]));
    const visitor = await Visitor.signedIn(sandbox);
    await visitor.call('POST', '/v1/client_applications/3/webhooks', {
      url: 'https://127.0.0.1:9/',
      event_types: EVENT_TYPES,
    });
    const platform = sandbox.routes
      .map(({ method, pattern }) => [method, pattern.split('/').slice(1)] as const)
      .filter(([, [first]]) => first !== 'sandbox')
      .map(([method, segments]) => {
        const filled = segments.map((one) => (one.startsWith(':') ? pick([1, 3, 12, 19, 881, 'flow', '%E0%A4']) : one));
        return [method, `/${filled.join('/')}`] as const;
      });
    for (let i = 0; i < 300; i++) {
      const [method, path] = pick([
        ...platform,
        ['POST', `/sandbox/causes/${pick(EVENT_TYPES)}`],
        ['POST', `/sandbox/objects/${pick(KINDS)}`],
        ['PUT', `/sandbox/objects/${pick(KINDS)}/${pick([1, 3, 5, 30, 881, 4711, 999])}`],
        ['DELETE', `/sandbox/objects/${pick(KINDS)}/${pick([900, 901, 4720, 999])}`],
        ['POST', '/sandbox/permissions'],
        ['DELETE', '/sandbox/permissions'],
        ['POST', '/sandbox/thresholds'],
        ['POST', '/sandbox/faults'],
        ['POST', '/sandbox/poison'],
        ['PATCH', '/sandbox/limits'],
        ['POST', '/sandbox/deliveries/resend'],
        ['POST', '/sandbox/tokens/expire'],
      ] as const);
      const sent = body();
      const reply = await visitor.call(method, path, method === 'GET' ? undefined : sent);
      expect(reply.status, `${method} ${path} ${JSON.stringify(sent)} ${reply.text}`).toBeLessThan(500);
      if (path.startsWith('/sandbox/faults') || path.endsWith('poison') || path.endsWith('limits')) {
        sandbox.faults.clear();
        Object.assign(sandbox.usage.limits, { perUser: 0, perApiKey: 0, perAddress: 0 });
      }
      // Requests of the platform read the stored records.
      const token = sandbox.tokens.issue(5, 3, 'password').access_token;
      const later = await fetch(`${sandbox.url}/v1/assets/881/values`, {
        method: 'POST',
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
        body: JSON.stringify({ values: [{ key: 'flow', data: [{ value: i }] }] }),
      });
      expect(later.status, `after ${method} ${path} ${JSON.stringify(sent)}`).toBeLessThan(500);
      for (const address of READ) {
        const read = await fetch(`${sandbox.url}${address}`, { headers: { authorization: `Bearer ${token}` } });
        expect(read.status, `${address} after ${method} ${path} ${JSON.stringify(sent)}`).toBeLessThan(500);
        await read.arrayBuffer();
      }
    }
  });
});

describe('admin API records', () => {
  const permission = {
    assignable: { type: 'User', id: 5 },
    permitable: { type: 'Asset', id: 900 },
    types: ['can_read'],
  };
  const threshold = { type: 'high', value: 5, thresholdable_type: 'Instrumentation', thresholdable_id: 4711 };
  it.each([
    ['permissions/100800', { ...permission, permitable: { type: 'Foo', id: 1 } }, 'permitable'],
    ['permissions/100800', { ...permission, permitable: { type: 'Asset', id: 99_999 } }, 'permitable'],
    ['permissions/100800', { ...permission, assignable: {} }, 'assignable'],
    ['permissions/100800', { ...permission, assignable: { type: 'User', id: 99_999 } }, 'assignable'],
    ['permissions/100800', { ...permission, types: [] }, 'types'],
    ['permissions/9', permission, 'id'],
    ['client_applications/3', { redirect_uris: 5 }, 'redirect_uris'],
    ['client_applications/3', { technical_user: 'zzz' }, 'technical_user'],
    ['client_applications/3', { technical_user: 99_999 }, 'technical_user'],
    [
      'client_applications/4',
      { name: 'b', technical_user: 5, client_id: 'sandbox-client', client_secret: 'x' },
      'client_id',
    ],
    ['users/6', { email: 'Gateway@sandbox.example' }, 'email'],
    ['thresholds/70000', { ...threshold, type: 'foo' }, 'type'],
    ['thresholds/70000', { ...threshold, thresholdable_type: 'Bar' }, 'thresholdable_type'],
    ['thresholds/70000', { ...threshold, thresholdable_id: 99_999 }, 'thresholdable_id'],
    ['thresholds/70000', { ...threshold, unit: 'parsec' }, 'unit'],
    ['assets/881', { health_conditions: [5] }, 'health_conditions'],
  ])('reject invalid members: %s %j', async (place, body, member) => {
    const visitor = await Visitor.signedIn(sandbox);
    // Changes an existing record, or creates one.
    const [kind, id] = place.split('/') as [Kind, string];
    const method = sandbox.site.get(kind, Number(id)) ? 'PATCH' : 'PUT';
    const reply = await visitor.call(method, `/sandbox/objects/${place}`, body);
    expect([reply.status, reply.body.errors?.[0].attribute]).toEqual([400, member]);
  });

  it.each([
    [{ type: 'foo', value: 1, instrumentation: 4711 }, 'type'],
    [{ type: 'high', value: 1, instrumentation: 99_999 }, 'thresholdable_id'],
    [{ type: 'high', value: 1 }, 'thresholdable_id'],
    [{ type: 'high', value: 1, instrumentation: 4711, thresholdable_type: 'Bar' }, 'thresholdable_type'],
    [{ type: 'high', value: 1, instrumentation: 4711, assets: 5 }, 'assets'],
  ])('reject an invalid threshold: %j', async (body, member) => {
    const visitor = await Visitor.signedIn(sandbox);
    const reply = await visitor.call('POST', '/sandbox/thresholds', body);
    expect([reply.status, reply.body.errors?.[0].attribute]).toEqual([400, member]);
  });
});
