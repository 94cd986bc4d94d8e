import { createHmac } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { deprecationOf, sunsetMs } from '../../../src/contract/deprecations.ts';
import { occurredAtMs } from '../../../src/contract/events/occurred-at.ts';
import { PERMISSION_ID_OFFSETS_V1 } from '../../../src/contract/permissions.ts';
import { shown } from '../webhook/parts/inbox-events.ts';
import { Listening } from '../webhook/parts/listening.ts';
import { asset, type Hook, instrumentation, Platform, until, WEBHOOKS } from './platform.ts';

let at: Listening;
let platform: Platform;

beforeEach(async () => {
  platform = await Platform.start();
  at = new Listening();
  await at.start();
});
afterEach(async () => {
  await at.stop();
  await platform.stop();
});

/** Registers a webhook with the address of the client's listener, and passes the secret to the listener. */
const registered = async (...event_types: string[]): Promise<Hook> => {
  const hook = await platform.webhook(event_types, {}, { url: at.url() });
  at.secrets = [hook.secret];
  return hook;
};
const kept = () => shown(at.inbox).map(({ payload }) => JSON.parse(payload));

describe('specification, client event receiver', () => {
  it('6.1 the client confirms a delivery with 2XX', async () => {
    const hook = await registered('asset_disappeared');
    await platform.take(asset(881));
    await platform.tried(1, 204);
    expect(kept()).toEqual(await hook.told());
  });

  it('3.3 the client recognises a resent event', async () => {
    const hook = await registered('asset_disappeared');
    await platform.take(asset(881));
    await platform.tried(1, 204);
    await hook.resend((await hook.deliveries())[0].id);
    await platform.tried(2, 204);
    expect(kept()).toHaveLength(1);
  });

  it('7 the client rejects a request without a matching signature, and accepts it with one', async () => {
    const hook = await registered('asset_disappeared');
    at.secrets = ['another'];
    await platform.take(asset(881));
    await platform.tried(1, 401);
    expect(kept()).toEqual([]);
    at.secrets = [hook.secret];
    await platform.advance(60_000);
    await platform.tried(2, 204);
    expect(kept()).toHaveLength(1);
  });

  it('7 the client rejects a request whose signature header is missing', async () => {
    const hook = await platform.webhook(['asset_disappeared']);
    at.secrets = [hook.secret];
    await platform.take(asset(881));
    await until(() => expect(platform.receiver.received).toHaveLength(1));
    expect((await at.post(platform.receiver.received[0]!.raw, {})).status).toBe(401);
    expect(kept()).toEqual([]);
  });

  it('9 the client rejects a request that has only the deprecated SHA-1 signature', async () => {
    at.secrets = ['known'];
    const body = '{"event_type":"node_appeared"}';
    const sha1 = createHmac('sha1', 'known').update(body).digest('hex');
    expect((await at.post(body, { 'X-Hub-Signature': `sha1=${sha1}` })).status).toBe(401);
  });

  it('6.2 the client reads the time of association events from occured_at', async () => {
    await registered('asset_instrumentation_association_created', 'instrumentation_disappeared');
    platform.sandbox.changes.associate(901, 4711);
    await platform.take(instrumentation(4711));
    await until(() => expect(kept()).toHaveLength(2));
    expect(at.inbox.list().map(({ unrecognised }) => unrecognised)).toEqual([false, false]);
    for (const event of kept()) expect(occurredAtMs(event)).toBe(Date.UTC(2026, 10, 21));
  });

  it.each([
    ['2026-11-21T00:00:00Z', 0],
    ['2026-11-21T00:00:00', 0],
    ['2026-11-21T01:30:00.250+01:30', 250],
    ['2026-11-20T16:00:00-0800', 0],
  ])('6.2 the client accepts occurred_at with or without a UTC offset: %s', (occurred_at, beyond) => {
    expect(occurredAtMs({ occurred_at })).toBe(Date.UTC(2026, 10, 21) + beyond);
  });
});

describe('specification, client and service consistency', () => {
  it('2.2 a pair’s id plus a type offset is a v1 id that the service accepts', async () => {
    const give = (version: 1 | 2, body: object) => platform.gateway.call('POST', `/v${version}/permissions`, body);
    const types = ['can_read', 'can_update', 'can_delete'] as const;
    const on = { permitable: asset(881) };
    const { id } = (await give(2, { permission_types: types, assignable: { id: 40, type: 'Usergroup' }, ...on })).body;
    for (const type of types) {
      const found = await platform.gateway.get(`/v1/permissions/${id + PERMISSION_ID_OFFSETS_V1[type]!}`);
      expect(found.body.permission_type).toBe(type);
    }
  });

  it.each([
    ['PATCH', '/v1/assets/881/display_labels'],
    ['PATCH', '/v1/instrumentations/4711/display_labels'],
    ['GET', '/v1/permissions'],
    ['POST', '/v1/owners'],
    ['POST', '/v1/tenants/50/users'],
    ['POST', '/v1/userroles/60/users'],
  ])('9 the client uses the service’s sunset date: %s %s', async (method, path) => {
    const { headers } = await platform.gateway.call(method, path, method === 'GET' ? undefined : {});
    const deprecation = deprecationOf(path)!;
    expect(Date.parse(headers.get('sunset') ?? '')).toBe(sunsetMs(deprecation));
  });

  it('9 the client reports no deprecation for other endpoints', () => {
    for (const path of [WEBHOOKS, '/v1/assets/881/values', '/v2/permissions', '/v2/owners']) {
      expect(deprecationOf(path)).toBeUndefined();
    }
  });
});
