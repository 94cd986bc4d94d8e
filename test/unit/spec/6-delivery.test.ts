import { createHmac } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { asset, DAY_MS, type Hook, Platform, reference, until } from './platform.ts';

let platform: Platform;

beforeEach(async () => {
  platform = await Platform.start();
});
afterEach(() => platform.stop());

const lose = (id = 881) => platform.take(asset(id));
const listening = (): Promise<Hook> => platform.webhook(['asset_disappeared']);
const received = () => platform.receiver.received;

describe('specification', () => {
  it('6.1 webhooks require an active connect subscription', async () => {
    const hook = await listening();
    await platform.put('client_applications', 3, { active: false });
    await lose();
    await platform.put('client_applications', 3, { active: true });
    await lose(882);
    await until(() => expect(received()).toHaveLength(1));
    expect(received()[0]?.event.content.asset.id).toBe(882);
    expect((await hook.deliveries('status=delivered')).length).toBe(1);
  });

  it('6.1 webhooks require at least one API key', async () => {
    await listening();
    const key = await platform.object('api_keys', 3);
    await platform.destroy('api_keys', 3);
    await lose();
    await platform.put('api_keys', 3, key);
    await lose(882);
    await until(() => expect(received()).toHaveLength(1));
    expect(received()[0]?.event.content.asset.id).toBe(882);
  });

  const used = async () =>
    (await platform.gateway.get('/v1/api_subscriptions')).body.api_subscriptions[0].api_calls_used;

  it('6.1 calls count towards the subscription’s quota', async () => {
    await listening();
    const before = await used();
    await lose();
    await platform.tried(1, 204);
    // The delivery and this request.
    expect(await used()).toBe(before + 2);
  });

  it('6.1 webhooks are not called if the call quota is exceeded', async () => {
    const hook = await listening();
    await platform.put('client_applications', 3, { call_quota: 1 });
    await lose();
    await until(async () => {
      expect((await platform.behind('GET', 'deliveries')).body.deliveries[0].status).toBe('cancelled');
    });
    expect(received()).toEqual([]);
    await platform.put('client_applications', 3, { call_quota: 0 });
    expect((await hook.deliveries())[0]).toMatchObject({ status: 'cancelled', last_send_at: null });
  });

  it('6.1 payload size counts towards the quota, and webhooks are not called if the quota is exceeded', async () => {
    const hook = await listening();
    await lose();
    await hook.first('delivered');
    const bytes = received()[0]!.raw.length;
    // Quota for one more payload of this size, not for two.
    const byte_quota = bytes * 2 + Math.floor(bytes / 2);
    await platform.put('client_applications', 3, { byte_quota });
    await lose(882);
    await until(() => expect(received()).toHaveLength(2));
    await lose(883);
    await until(async () => expect((await hook.deliveries())[2].status).toBe('cancelled'));
    expect(received()).toHaveLength(2);
  });

  it('6.1 payload size is counted in bytes, not characters', async () => {
    await platform.webhook(['asset_updated']);
    await platform.put('client_applications', 3, { byte_quota: 1000 });
    platform.sandbox.changes.updateAsset(881, { description: 'ü'.repeat(450) });
    await until(async () => {
      expect((await platform.behind('GET', 'deliveries')).body.deliveries[0].status).not.toBe('pending');
    });
    expect(received()).toEqual([]);
  });

  it('6.1 a webhook receives only events for objects that its technical user can read', async () => {
    const hook = await platform.webhook(['asset_updated']);
    platform.sandbox.changes.updateAsset(920, { description: 'not ours' });
    await platform.take(asset(882), { types: ['can_read'] });
    platform.sandbox.changes.updateAsset(882, { description: 'no longer ours' });
    platform.sandbox.changes.updateAsset(881, { description: 'ours' });
    expect((await hook.told()).map((event) => event.content.asset.id)).toEqual([881]);
  });
});

describe('specification', () => {
  it.each([200, 201, 202, 204, 299])('6.1 a response with %i confirms the delivery', async (status) => {
    platform.receiver.status = status;
    const hook = await listening();
    await lose();
    await hook.first('delivered', 1);
  });

  it.each([300, 302, 304, 400, 401, 404, 410, 500, 503])(
    '6.1 a delivery is retried after a response with %i',
    async (status) => {
      platform.receiver.status = status;
      const hook = await listening();
      await lose();
      await platform.tried(1, status);
      expect((await hook.deliveries())[0].status).toBe('pending');
      platform.receiver.status = 204;
      await platform.advance(60_000);
      await hook.first('delivered', 2);
    },
  );

  it('6.1 a delivery is retried after a timeout', async () => {
    await platform.stop();
    platform = await Platform.start({ webhookTimeoutMs: 100 });
    platform.receiver.isMute = true;
    await listening();
    await lose();
    await platform.tried(1, 'timeout');
    await platform.advance(60_000);
    await platform.tried(2, 'timeout');
  });

  it('6.1 a redirect is not followed', async () => {
    platform.receiver.status = 307;
    await listening();
    await lose();
    await platform.tried(1, 307);
    expect(received()).toHaveLength(1);
  });

  it('6.1 up to 16 attempts are made, with random, exponentially growing delays, over about 3 days', async () => {
    platform.receiver.status = 500;
    const delays: number[] = [];
    await listening();
    await lose();
    for (let attempt = 1; attempt < 16; attempt++) {
      await platform.tried(attempt, 500);
      const delay = platform.reports.at(-1)?.nextInMs ?? 0;
      delays.push(delay);
      // Not before it is due, and then immediately.
      await platform.behind('POST', 'clock', { advanceMs: Math.floor(delay) - 1 });
      expect(received()).toHaveLength(attempt);
      await platform.behind('POST', 'clock', { advanceMs: 2 });
    }
    await platform.tried(16, 500);
    expect(received()).toHaveLength(16);
    expect(platform.reports.at(-1)?.nextInMs).toBeUndefined();
    const growth = delays.slice(1).map((delay, index) => delay / delays[index]!);
    for (const factor of growth) expect(factor).toBeGreaterThan(1);
    expect(new Set(growth.map((factor) => factor.toFixed(3))).size).toBeGreaterThan(1);
    const days = delays.reduce((sum, delay) => sum + delay, 0) / DAY_MS;
    expect(days).toBeGreaterThan(2);
    expect(days).toBeLessThan(4);
  });

  it('6.1 every attempt sends the same bytes', async () => {
    platform.receiver.status = 500;
    await listening();
    await lose();
    await platform.tried(1, 500);
    await platform.advance(60_000);
    await platform.tried(2, 500);
    expect(received()[1]!.raw.equals(received()[0]!.raw)).toBe(true);
  });

  it('6.1 delivery is asynchronous: an unresponsive receiver delays neither the cause nor another webhook', async () => {
    platform.receiver.isMute = true;
    const hook = await platform.webhook(['asset_updated']);
    for (let round = 0; round < 20; round++) {
      platform.sandbox.changes.updateAsset(881, { description: `round ${round}` });
    }
    expect(await hook.deliveries('status=pending')).toHaveLength(20);
  });

  it.each([
    ['x-hub-signature-sha256', 'sha256'],
    ['x-hub-signature', 'sha1'],
  ])(
    '6.1 a delivery contains %s: %s= and the hex HMAC of the raw body with the webhook’s secret',
    async (header, algorithm) => {
      const hook = await listening();
      await lose();
      await until(() => expect(received()).toHaveLength(1));
      const { headers, raw } = received()[0]!;
      expect(headers[header]).toBe(`${algorithm}=${createHmac(algorithm, hook.secret).update(raw).digest('hex')}`);
    },
  );
});

describe('specification', () => {
  it('6.2 an event has event_type, occurred_at as an ISO 8601 timestamp, and content', async () => {
    const hook = await listening();
    await lose();
    const [event] = await hook.told();
    expect(Object.keys(event).sort()).toEqual(['content', 'event_type', 'occurred_at']);
    expect(event.event_type).toBe('asset_disappeared');
    expect(event.occurred_at).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?$/);
    expect(Date.parse(event.occurred_at)).toBe(Date.UTC(2026, 10, 21));
    expect(event.content).toBeTypeOf('object');
  });

  it.each([
    ['created', 'associate', 901],
    ['destroyed', 'dissociate', 881],
  ] as const)(
    '6.2 asset_instrumentation_association_%s contains the time as occured_at',
    async (name, change, asset) => {
      const hook = await platform.webhook([`asset_instrumentation_association_${name}`]);
      platform.sandbox.changes[change](asset, 4711);
      const [event] = await hook.told();
      expect(Object.keys(event).sort()).toEqual(['content', 'event_type', 'occured_at']);
    },
  );

  it('6.2 references are {id, href}', async () => {
    const hook = await platform.webhook(['asset_software_added']);
    platform.sandbox.changes.addSoftware(881, 95);
    expect((await hook.told())[0].content).toEqual({ asset: reference(881), software: reference(95) });
  });
});
