import { createHmac } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { Receiver } from './receiver.ts';
import { Visitor } from './visitor.ts';

const BASE = '/v1/client_applications/3/webhooks';
const HOUR_MS = 3_600_000;
let sandbox: Sandbox;
let visitor: Visitor;
let receiver: Receiver;

beforeEach(async () => {
  sandbox = new Sandbox();
  receiver = new Receiver();
  await sandbox.start();
  await receiver.start();
  visitor = await Visitor.signedIn(sandbox);
});
afterEach(async () => {
  await sandbox.stop();
  await receiver.stop();
});

const register = (event_types: string[], more: object = {}) =>
  visitor.call('POST', BASE, { url: receiver.url, event_types, ...more });
const lose = () => sandbox.takePermission({ type: 'Asset', id: 881 });
const until = (condition: () => void) => vi.waitFor(condition, { timeout: 10_000, interval: 5 });

describe('spec 2.4 and 4.5: webhooks', () => {
  it('are created with 201, Location and a secret that no reading gives again', async () => {
    const created = await register(['asset_appeared'], { properties: { asset_updated: ['status'] } });
    expect(created.status).toBe(201);
    expect(created.headers.get('location')).toBe(`${BASE}/${created.body.id}`);
    expect(created.body.secret).toEqual(expect.any(String));
    const read = (await visitor.get(`${BASE}/${created.body.id}`)).body;
    expect(read).toEqual({
      id: created.body.id,
      url: receiver.url,
      event_types: ['asset_appeared'],
      properties: { asset_updated: ['status'] },
      disabled: false,
      force_sorted_delivery: false,
    });
    expect((await visitor.get(BASE)).text).not.toContain(created.body.secret);
  });

  it('are changed and deleted with 204, and get a new secret by reset_secret', async () => {
    const { id, secret } = (await register(['asset_appeared'])).body;
    expect((await visitor.call('PATCH', `${BASE}/${id}`, { disabled: true })).status).toBe(204);
    expect((await visitor.get(`${BASE}/${id}`)).body.disabled).toBe(true);
    const reset = await visitor.call('POST', `${BASE}/${id}/reset_secret`);
    expect(reset.status).toBe(200);
    expect(reset.body.secret).not.toBe(secret);
    expect((await visitor.call('DELETE', `${BASE}/${id}`)).status).toBe(204);
    expect((await visitor.get(`${BASE}/${id}`)).status).toBe(404);
  });

  it('need an https address unless it is loopback, and known event types', async () => {
    const url = 'http://client.example/hook';
    expect((await visitor.call('POST', BASE, { url, event_types: ['asset_appeared'] })).status).toBe(400);
    expect((await register(['no_such_event'])).status).toBe(400);
    expect((await register([])).status).toBe(400);
  });

  it('of another client application are not found', async () => {
    expect((await visitor.get('/v1/client_applications/4/webhooks')).status).toBe(404);
  });
});

describe('spec 6.1: delivery', () => {
  it('carries both signatures over the raw body', async () => {
    const { secret } = (await register(['asset_disappeared'])).body;
    lose();
    await until(() => expect(receiver.received).toHaveLength(1));
    const { headers, raw, event } = receiver.received[0]!;
    const hmac = (algorithm: string) => createHmac(algorithm, secret).update(raw).digest('hex');
    expect(headers['x-hub-signature-sha256']).toBe(`sha256=${hmac('sha256')}`);
    expect(headers['x-hub-signature']).toBe(`sha1=${hmac('sha1')}`);
    expect(headers['content-type']).toBe('application/json');
    expect(event).toMatchObject({ event_type: 'asset_disappeared', occurred_at: expect.stringMatching(/Z$/) });
  });

  it('is tried again on anything but 2XX, 16 times over about three days, then failed', async () => {
    receiver.status = 500;
    await register(['asset_disappeared']);
    const gaps: number[] = [];
    let startedMs = 0;
    sandbox.onDelivery(({ nextInMs }) => {
      startedMs ||= sandbox.clock.wallMs();
      if (nextInMs === undefined) return;
      gaps.push(nextInMs);
      setImmediate(() => sandbox.clock.advance(nextInMs));
    });
    lose();
    await until(() => expect(sandbox.deliveries()[0]?.status).toBe('failed'));
    expect(receiver.received).toHaveLength(16);
    expect(new Set(receiver.received.map(({ raw }) => raw.toString())).size).toBe(1);
    for (const [index, gap] of gaps.entries()) if (index > 0) expect(gap).toBeGreaterThan(gaps[index - 1]!);
    const days = (sandbox.clock.wallMs() - startedMs) / (24 * HOUR_MS);
    expect(days).toBeGreaterThan(2.2);
    expect(days).toBeLessThan(3.8);
  });

  it('a receiver that does not answer in time is a failed attempt', async () => {
    const impatient = new Sandbox({ webhookTimeoutMs: 50 });
    await impatient.start();
    receiver.isMute = true;
    const guest = await Visitor.signedIn(impatient);
    await guest.call('POST', BASE, { url: receiver.url, event_types: ['asset_disappeared'] });
    impatient.takePermission({ type: 'Asset', id: 881 });
    await until(() => expect(impatient.deliveries()[0]?.lastAnswer).toBe('timeout'));
    expect(impatient.deliveries()[0]?.status).toBe('pending');
    await impatient.stop();
  });

  it('after the receiver is well again the next attempt delivers', async () => {
    receiver.status = 503;
    await register(['asset_disappeared']);
    lose();
    await until(() => expect(receiver.received).toHaveLength(1));
    await until(() => expect(sandbox.deliveries()[0]?.lastAnswer).toBe(503));
    receiver.status = 200;
    sandbox.clock.advance(60_000);
    await until(() => expect(sandbox.deliveries()[0]?.status).toBe('delivered'));
  });

  it('does not reach webhooks that are disabled, of other types, or whose quota is spent', async () => {
    const { id } = (await register(['asset_disappeared'])).body;
    await register(['asset_appeared']);
    await visitor.call('PATCH', `${BASE}/${id}`, { disabled: true });
    lose();
    expect(sandbox.deliveries()).toEqual([]);
    sandbox.plant.get('client_applications', 3)!.call_quota = 1;
    sandbox.grantPermission({ type: 'Asset', id: 881 });
    await until(() => expect(sandbox.deliveries()[0]?.status).toBe('cancelled'));
    expect(receiver.received).toEqual([]);
  });

  it('with force_sorted_delivery a later event waits for the earlier one', async () => {
    receiver.status = 500;
    await register(['asset_disappeared', 'asset_appeared'], { force_sorted_delivery: true });
    lose();
    sandbox.grantPermission({ type: 'Asset', id: 881 });
    await until(() => expect(sandbox.deliveries()[0]?.lastAnswer).toBe(500));
    expect(sandbox.deliveries()[1]?.attempts).toBe(0);
    receiver.status = 204;
    sandbox.clock.advance(60_000);
    await until(() => expect(sandbox.deliveries()[1]?.status).toBe('delivered'));
    expect(receiver.types()).toEqual(['asset_disappeared', 'asset_disappeared', 'asset_appeared']);
  });
});

describe('spec 3.2: a webhook that fails for more than two weeks', () => {
  it('is disabled and the contact person is told', async () => {
    receiver.status = 500;
    const { id } = (await register(['asset_disappeared', 'asset_appeared'])).body;
    lose();
    await until(() => expect(sandbox.deliveries()[0]?.lastAnswer).toBe(500));
    sandbox.clock.advance(13 * 24 * HOUR_MS);
    await until(() => expect(sandbox.deliveries()[0]?.attempts).toBe(2));
    await until(() => expect(sandbox.webhooks()[0]?.disabled).toBe(false));
    sandbox.clock.advance(2 * 24 * HOUR_MS);
    await until(() => expect(sandbox.webhooks()[0]?.disabled).toBe(true));
    expect(sandbox.notes).toEqual([
      { at: expect.any(String), contact: 'anna@sandbox.example', text: expect.stringContaining(`webhook ${id}`) },
    ]);
  });
});

describe('spec 2.5 and 3.3: delivery records', () => {
  it('are listed with their payload, filtered, ordered and paged', async () => {
    const { id } = (await register(['asset_disappeared', 'asset_appeared'])).body;
    lose();
    sandbox.clock.advance(10_000);
    sandbox.grantPermission({ type: 'Asset', id: 881 });
    await until(() => expect(sandbox.deliveries().every(({ status }) => status === 'delivered')).toBe(true));
    const all = (await visitor.get(`${BASE}/${id}/events?order_by=-id`)).body;
    expect(all.events.map((one: { id: number }) => one.id)).toEqual([2, 1]);
    expect(all.events[1]).toEqual({
      id: 1,
      status: 'delivered',
      payload: receiver.received.find(({ event }) => event.event_type === 'asset_disappeared')!.event,
      last_send_at: expect.any(String),
      retries: 0,
    });
    expect(all.pagination.total_count).toBe(2);
    const from = new Date(sandbox.clock.wallMs() - 5000).toISOString();
    const count = async (query: string) => (await visitor.get(`${BASE}/${id}/events?${query}`)).body.events.length;
    expect(await count('status=failed')).toBe(0);
    expect(await count('event_type=asset_appeared')).toBe(1);
    expect(await count(`occurred_at_from=${encodeURIComponent(from)}`)).toBe(1);
    expect(await count(`occurred_at_to=${encodeURIComponent(from)}`)).toBe(1);
    expect((await visitor.get(`${BASE}/${id}/events?occurred_at=yesterday`)).status).toBe(400);
  });

  it('a resend starts the same schedule again, and pending ones are ignored', async () => {
    receiver.status = 500;
    const { id } = (await register(['asset_disappeared'])).body;
    lose();
    await until(() => expect(sandbox.deliveries()[0]?.lastAnswer).toBe(500));
    const resend = () => visitor.call('POST', `${BASE}/${id}/events`, { webhook_events: [{ id: 1 }] });
    expect((await resend()).status).toBe(204);
    expect(sandbox.deliveries()[0]?.attempts).toBe(1);
    receiver.status = 204;
    sandbox.clock.advance(60_000);
    await until(() => expect(sandbox.deliveries()[0]?.status).toBe('delivered'));
    expect((await resend()).status).toBe(204);
    await until(() => expect(receiver.received).toHaveLength(3));
  });

  it('are gone after six months, and can then not be sent again', async () => {
    const { id } = (await register(['asset_disappeared'])).body;
    lose();
    await until(() => expect(sandbox.deliveries()[0]?.status).toBe('delivered'));
    sandbox.clock.advance(184 * 24 * HOUR_MS);
    visitor.token = (await visitor.login()).body.access_token;
    expect((await visitor.get(`${BASE}/${id}/events`)).body.events).toEqual([]);
    const again = await visitor.call('POST', `${BASE}/${id}/events`, { webhook_events: [{ id: 1 }] });
    expect(again.status).toBe(404);
  });
});
