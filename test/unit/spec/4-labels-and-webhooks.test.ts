import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { asset, type Hook, Platform, until, WEBHOOKS } from './platform.ts';

let platform: Platform;

beforeEach(async () => {
  platform = await Platform.start();
});
afterEach(() => platform.stop());

const call = (method: string, path: string, body?: object) => platform.gateway.call(method, path, body);

describe('specification', () => {
  const PLACES = ['assets/881', 'instrumentations/4711'];

  it.each(PLACES)('4.4 PATCH /v1/%s/display_labels accepts a flat map of keys to strings', async (place) => {
    const reply = await call('PATCH', `/v1/${place}/display_labels`, { flow: 'Inlet' });
    expect([reply.status, reply.body]).toEqual([200, { flow: 'Inlet' }]);
    expect((await call('PATCH', `/v1/${place}/display_labels`, { flow: 1 })).status).toBe(400);
  });

  it.each(PLACES)('4.4 PATCH /v2/%s/display_labels accepts a map of keys to objects', async (place) => {
    const label = { name: 'Inlet', preferred_unit: 'liter_per_minute', precision: 1, is_visible: true };
    const reply = await call('PATCH', `/v2/${place}/display_labels`, { flow: label });
    expect([reply.status, reply.body]).toEqual([200, { flow: label }]);
    expect((await call('PATCH', `/v2/${place}/display_labels`, { flow: 'Inlet' })).status).toBe(400);
  });

  it.each(PLACES)(
    '4.4 v2 requests and responses contain the parameters, and values that were set are kept for %s',
    async (place) => {
      await call('PATCH', `/v2/${place}/display_labels`, { flow: { name: 'Inlet', expected_max: 90 } });
      const reply = await call('PATCH', `/v2/${place}/display_labels`, { flow: { precision: 2 } });
      expect(reply.body).toEqual({ flow: { name: 'Inlet', expected_max: 90, precision: 2 } });
    },
  );

  it('4.4 an asset’s labels do not apply to its instrumentation', async () => {
    await call('PATCH', '/v2/assets/881/display_labels', { flow: { name: 'Inlet' } });
    expect((await call('PATCH', '/v2/instrumentations/4711/display_labels', {})).body).toEqual({});
  });
});

describe('specification', () => {
  const lost = async (status = 204): Promise<Hook> => {
    platform.receiver.status = status;
    const hook = await platform.webhook(['asset_disappeared']);
    await platform.take(asset(881));
    await platform.tried(1, status);
    return hook;
  };

  it('4.5 GET /v1/client_applications?name= returns the applications with that name and their ids', async () => {
    const name = encodeURIComponent((await platform.object('client_applications', 3)).name);
    const { client_applications } = (await call('GET', `/v1/client_applications?name=${name}`)).body;
    expect(client_applications.map((one: { id: number }) => one.id)).toEqual([3]);
    expect((await call('GET', '/v1/client_applications?name=other')).body.client_applications).toEqual([]);
  });

  it('4.5 POST …/webhooks accepts url, event_types and optional properties, and returns the secret', async () => {
    const body = { url: 'https://client.example/hook', event_types: ['asset_updated'] };
    expect((await call('POST', WEBHOOKS, body)).body.secret).toEqual(expect.any(String));
    const filtered = await call('POST', WEBHOOKS, { ...body, properties: { asset_updated: ['status'] } });
    expect([filtered.status, filtered.body.secret]).toEqual([201, expect.any(String)]);
  });

  it.each(['url', 'event_types'])('4.5 POST …/webhooks requires %s', async (name) => {
    const body = { url: 'https://client.example/hook', event_types: ['asset_updated'], [name]: undefined };
    const reply = await call('POST', WEBHOOKS, body);
    expect([reply.status, reply.body.errors[0].attribute]).toEqual([400, name]);
  });

  it('4.5 POST …/webhooks returns 404 for an application that is not the caller’s', async () => {
    const body = { url: 'https://client.example/hook', event_types: ['asset_updated'] };
    expect((await call('POST', '/v1/client_applications/4/webhooks', body)).status).toBe(404);
  });

  it.each([true, false])('4.5 PATCH …/webhooks/{id} accepts {disabled: %s}', async (disabled) => {
    const hook = await platform.webhook(['asset_updated'], {}, { disabled: !disabled });
    expect((await hook.patch({ disabled })).status).toBeLessThan(300);
    expect((await call('GET', hook.path)).body.disabled).toBe(disabled);
    expect((await hook.patch({ disabled: 'no' })).status).toBe(400);
  });

  it('4.5 GET …/events lists the deliveries, optionally by status', async () => {
    const hook = await lost();
    await hook.first('delivered', 1);
    expect(await hook.deliveries()).toHaveLength(1);
    expect(await hook.deliveries('status=delivered')).toHaveLength(1);
    expect(await hook.deliveries('status=failed')).toEqual([]);
  });

  it('4.5 GET …/events has an additional filter for event types', async () => {
    const hook = await lost();
    expect(await hook.deliveries('event_type=asset_disappeared')).toHaveLength(1);
    expect(await hook.deliveries('event_type=asset_appeared')).toEqual([]);
  });

  it('4.5 GET …/events returns only this webhook’s deliveries', async () => {
    const other = await platform.webhook(['asset_appeared']);
    const hook = await lost();
    expect([await hook.deliveries(), await other.deliveries()].map((list) => list.length)).toEqual([1, 0]);
  });

  it('4.5 POST …/events with a list of IDs resends those events', async () => {
    const hook = await lost();
    const { id } = await hook.first('delivered', 1);
    expect((await hook.resend(id)).status).toBeLessThan(300);
    await until(() => expect(platform.receiver.received).toHaveLength(2));
    const [first, second] = platform.receiver.received;
    expect(second?.raw.equals(first!.raw)).toBe(true);
  });

  it('4.5 POST …/events returns 404 for an ID from another webhook', async () => {
    const other = await platform.webhook(['asset_appeared']);
    const { id } = await (await lost()).first('delivered', 1);
    expect((await other.resend(id)).status).toBe(404);
  });

  it('4.5 the change-secret endpoint changes the secret', async () => {
    const hook = await platform.webhook(['asset_updated']);
    const reply = await call('POST', `${hook.path}/reset_secret`);
    expect([reply.status, typeof reply.body.secret]).toEqual([200, 'string']);
    expect(reply.body.secret).not.toBe(hook.secret);
  });
});
