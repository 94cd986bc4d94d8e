import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SANDBOX_CREDENTIALS } from '../../../src/sandbox/sandbox.ts';
import { ANNA, BEN, node, Platform, until } from './platform.ts';

let platform: Platform;

beforeAll(async () => {
  platform = await Platform.start();
});
afterAll(() => platform.stop());

/** Kinds of objects listed in section 1. */
const KINDS = [
  'assets',
  'instrumentations',
  'nodes',
  'documents',
  'edge_devices',
  'events',
  'usergroups',
  'api_keys',
  'client_applications',
  'bills_of_material',
  'purchase_orders',
  'deliveries',
  'quotations',
  'requests_of_quotation',
  'recipes',
  'products',
  'software',
  'units',
  'tenants',
  'userroles',
  'systems',
  'add_ons',
  'subscriptions',
];

describe('specification', () => {
  it('1 API responses and errors are JSON', async () => {
    for (const path of ['/v1/client_applications', '/v1/client_applications/999']) {
      const reply = await platform.gateway.get(path);
      expect(reply.headers.get('content-type')).toMatch(/^application\/json/);
      expect(reply.body).toBeTypeOf('object');
    }
  });

  it.each(KINDS)('1 the site has objects of each kind that the API names: %s', async (kind) => {
    const { objects } = (await platform.gateway.get(`/sandbox/objects/${kind}`)).body;
    expect(objects.length).toBeGreaterThan(0);
  });

  it('1 a human user signs in only through the identity application', async () => {
    expect((await platform.personTokens(ANNA)).body.token_type).toBe('Bearer');
    const password = { grant_type: 'password', username: ANNA.email, password: ANNA.password };
    expect((await platform.stranger().form('/oauth/token', password)).status).toBe(400);
    const code = { grant_type: 'authorization_code', code: 'x' };
    expect((await platform.stranger().form('/oauth/token', code)).body.error).toBe('unsupported_grant_type');
  });

  it('1 a technical user cannot sign in through the identity application', async () => {
    const reply = await platform.signIn(
      {},
      { email: SANDBOX_CREDENTIALS.technicalUsername, password: SANDBOX_CREDENTIALS.technicalPassword },
    );
    expect(reply.status).toBe(401);
    expect(reply.headers.get('location')).toBeNull();
  });

  it('1 a machine authenticates as its technical user', async () => {
    expect((await platform.stranger().login()).status).toBe(200);
  });

  it('1 a third-party application can read the same objects as its user by using the user’s access token', async () => {
    const [anna, ben] = [await platform.person(ANNA), await platform.person(BEN)];
    // Anna can read both nodes and therefore asset 881, Ben nothing.
    expect((await anna.get('/v1/assets/881/values')).status).toBe(200);
    expect((await ben.get('/v1/assets/881/values')).status).toBe(404);
  });

  it('1 notifications are pushed to the customer’s address as JSON in a POST request', async () => {
    const hook = await platform.webhook(['node_appeared']);
    await platform.grant(node(20));
    await until(() => expect(platform.receiver.received).toHaveLength(1));
    const [{ headers, event } = { headers: {}, event: undefined }] = platform.receiver.received;
    expect(headers['content-type']).toMatch(/^application\/json/);
    expect(event).toEqual((await hook.told())[0]);
  });

  it('1 the API has two versions, whose paths start with /v1 and /v2', async () => {
    const anna = await platform.person(ANNA);
    expect((await anna.get('/v1/permissions')).status).toBe(200);
    expect((await anna.get('/v2/permissions')).status).toBe(200);
    for (const path of ['/v3/permissions', '/permissions']) expect((await anna.get(path)).status).toBe(404);
  });
});
