import { createHmac } from 'node:crypto';
import { describe, expect, it, vi } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { audience, WEBHOOKS } from './audience.ts';
import { Visitor } from './visitor.ts';

const HOUR_MS = 3_600_000;
const at = audience();

const lose = () => at.sandbox.takePermission({ type: 'Asset', id: 881 });
const until = (condition: () => void) => vi.waitFor(condition, { timeout: 10_000, interval: 5 });

describe('platform 2.4 and 4.5: webhooks', () => {
  it('are created with 201, Location and a secret that no reading gives again', async () => {
    const created = await at.register(['asset_appeared'], { properties: { asset_updated: ['status'] } });
    expect(created.status).toBe(201);
    expect(created.headers.get('location')).toBe(`${WEBHOOKS}/${created.body.id}`);
    expect(created.body.secret).toEqual(expect.any(String));
    const read = (await at.visitor.get(`${WEBHOOKS}/${created.body.id}`)).body;
    expect(read).toEqual({
      id: created.body.id,
      url: at.receiver.url,
      event_types: ['asset_appeared'],
      properties: { asset_updated: ['status'] },
      disabled: false,
      force_sorted_delivery: false,
    });
    expect((await at.visitor.get(WEBHOOKS)).text).not.toContain(created.body.secret);
  });

  it('are changed and deleted with 204, and get a new secret by reset_secret', async () => {
    const { id, secret } = (await at.register(['asset_appeared'])).body;
    expect((await at.visitor.call('PATCH', `${WEBHOOKS}/${id}`, { disabled: true })).status).toBe(204);
    expect((await at.visitor.get(`${WEBHOOKS}/${id}`)).body.disabled).toBe(true);
    const reset = await at.visitor.call('POST', `${WEBHOOKS}/${id}/reset_secret`);
    expect(reset.status).toBe(200);
    expect(reset.body.secret).not.toBe(secret);
    expect((await at.visitor.call('DELETE', `${WEBHOOKS}/${id}`)).status).toBe(204);
    expect((await at.visitor.get(`${WEBHOOKS}/${id}`)).status).toBe(404);
  });

  it('are not changed by members that no webhook has', async () => {
    const { id } = (await at.register(['asset_appeared'])).body;
    const reply = await at.visitor.call('PATCH', `${WEBHOOKS}/${id}`, { event_type: ['asset_disappeared'] });
    expect([reply.status, reply.body.errors[0].attribute]).toEqual([400, 'event_type']);
  });

  it('need an https address unless it is loopback, and known event types', async () => {
    const url = 'http://client.example/hook';
    expect((await at.visitor.call('POST', WEBHOOKS, { url, event_types: ['asset_appeared'] })).status).toBe(400);
    expect((await at.register(['no_such_event'])).status).toBe(400);
    expect((await at.register([])).status).toBe(400);
  });

  it('of another client application are not found', async () => {
    expect((await at.visitor.get('/v1/client_applications/4/webhooks')).status).toBe(404);
  });
});

describe('platform 6.1: delivery', () => {
  it('carries both signatures over the raw body', async () => {
    const { secret } = (await at.register(['asset_disappeared'])).body;
    lose();
    await until(() => expect(at.receiver.received).toHaveLength(1));
    const { headers, raw, event } = at.receiver.received[0]!;
    const hmac = (algorithm: string) => createHmac(algorithm, secret).update(raw).digest('hex');
    expect(headers['x-hub-signature-sha256']).toBe(`sha256=${hmac('sha256')}`);
    expect(headers['x-hub-signature']).toBe(`sha1=${hmac('sha1')}`);
    expect(headers['content-type']).toBe('application/json');
    expect(event).toMatchObject({ event_type: 'asset_disappeared', occurred_at: expect.stringMatching(/Z$/) });
  });

  it('is tried again on anything but 2XX, 16 times over about three days, then failed', async () => {
    at.receiver.status = 500;
    await at.register(['asset_disappeared']);
    const gaps: number[] = [];
    let startedMs = 0;
    at.sandbox.onDelivery(({ nextInMs }) => {
      startedMs ||= at.sandbox.clock.wallMs();
      if (nextInMs === undefined) return;
      gaps.push(nextInMs);
      setImmediate(() => at.sandbox.clock.advance(nextInMs));
    });
    lose();
    await until(() => expect(at.sandbox.deliveries()[0]?.status).toBe('failed'));
    expect(at.receiver.received).toHaveLength(16);
    expect(new Set(at.receiver.received.map(({ raw }) => raw.toString())).size).toBe(1);
    for (const [index, gap] of gaps.entries()) if (index > 0) expect(gap).toBeGreaterThan(gaps[index - 1]!);
    const days = (at.sandbox.clock.wallMs() - startedMs) / (24 * HOUR_MS);
    expect(days).toBeGreaterThan(2.2);
    expect(days).toBeLessThan(3.8);
  });

  it('a receiver that does not answer in time is a failed attempt', async () => {
    const impatient = new Sandbox({ webhookTimeoutMs: 50 });
    await impatient.start();
    at.receiver.isMute = true;
    const guest = await Visitor.signedIn(impatient);
    await guest.call('POST', WEBHOOKS, { url: at.receiver.url, event_types: ['asset_disappeared'] });
    impatient.takePermission({ type: 'Asset', id: 881 });
    await until(() => expect(impatient.deliveries()[0]?.lastAnswer).toBe('timeout'));
    expect(impatient.deliveries()[0]?.status).toBe('pending');
    await impatient.stop();
  });

  it('after the receiver is well again the next attempt delivers', async () => {
    at.receiver.status = 503;
    await at.register(['asset_disappeared']);
    lose();
    await until(() => expect(at.receiver.received).toHaveLength(1));
    await until(() => expect(at.sandbox.deliveries()[0]?.lastAnswer).toBe(503));
    at.receiver.status = 200;
    at.sandbox.clock.advance(60_000);
    await until(() => expect(at.sandbox.deliveries()[0]?.status).toBe('delivered'));
  });

  it('does not reach webhooks that are disabled, of other types, or whose quota is spent', async () => {
    const { id } = (await at.register(['asset_disappeared'])).body;
    await at.register(['asset_appeared']);
    await at.visitor.call('PATCH', `${WEBHOOKS}/${id}`, { disabled: true });
    lose();
    expect(at.sandbox.deliveries()).toEqual([]);
    at.sandbox.site.get('client_applications', 3)!.call_quota = 1;
    at.sandbox.grantPermission({ type: 'Asset', id: 881 });
    await until(() => expect(at.sandbox.deliveries()[0]?.status).toBe('cancelled'));
    expect(at.receiver.received).toEqual([]);
  });

  it('with force_sorted_delivery a later event waits for the earlier one', async () => {
    at.receiver.status = 500;
    await at.register(['asset_disappeared', 'asset_appeared'], { force_sorted_delivery: true });
    lose();
    at.sandbox.grantPermission({ type: 'Asset', id: 881 });
    await until(() => expect(at.sandbox.deliveries()[0]?.lastAnswer).toBe(500));
    expect(at.sandbox.deliveries()[1]?.attempts).toBe(0);
    at.receiver.status = 204;
    at.sandbox.clock.advance(60_000);
    await until(() => expect(at.sandbox.deliveries()[1]?.status).toBe('delivered'));
    expect(at.receiver.types()).toEqual(['asset_disappeared', 'asset_disappeared', 'asset_appeared']);
  });
});

describe('platform 3.2: a webhook that fails for more than two weeks', () => {
  it('is disabled and the contact person is told', async () => {
    at.receiver.status = 500;
    const { id } = (await at.register(['asset_disappeared', 'asset_appeared'])).body;
    lose();
    await until(() => expect(at.sandbox.deliveries()[0]?.lastAnswer).toBe(500));
    at.sandbox.clock.advance(13 * 24 * HOUR_MS);
    await until(() => expect(at.sandbox.deliveries()[0]?.attempts).toBe(2));
    await until(() => expect(at.sandbox.webhooks()[0]?.disabled).toBe(false));
    at.sandbox.clock.advance(2 * 24 * HOUR_MS);
    await until(() => expect(at.sandbox.webhooks()[0]?.disabled).toBe(true));
    expect(at.sandbox.notices).toEqual([
      { at: expect.any(String), contact: 'anna@sandbox.example', text: expect.stringContaining(`webhook ${id}`) },
    ]);
  });
});

describe('platform 2.5 and 3.3: delivery records', () => {
  it('are listed with their payload, filtered, ordered and paged', async () => {
    const { id } = (await at.register(['asset_disappeared', 'asset_appeared'])).body;
    lose();
    at.sandbox.clock.advance(10_000);
    at.sandbox.grantPermission({ type: 'Asset', id: 881 });
    await until(() => expect(at.sandbox.deliveries().every(({ status }) => status === 'delivered')).toBe(true));
    const all = (await at.visitor.get(`${WEBHOOKS}/${id}/events?order_by=-id`)).body;
    expect(all.events.map((one: { id: number }) => one.id)).toEqual([2, 1]);
    expect(all.events[1]).toEqual({
      id: 1,
      status: 'delivered',
      payload: at.receiver.received.find(({ event }) => event.event_type === 'asset_disappeared')!.event,
      last_send_at: expect.any(String),
      retries: 0,
    });
    expect(all.pagination.total_count).toBe(2);
    const from = new Date(at.sandbox.clock.wallMs() - 5000).toISOString();
    const count = async (query: string) =>
      (await at.visitor.get(`${WEBHOOKS}/${id}/events?${query}`)).body.events.length;
    expect(await count('status=failed')).toBe(0);
    expect(await count('event_type=asset_appeared')).toBe(1);
    expect(await count(`occurred_at_from=${encodeURIComponent(from)}`)).toBe(1);
    expect(await count(`occurred_at_to=${encodeURIComponent(from)}`)).toBe(1);
    expect((await at.visitor.get(`${WEBHOOKS}/${id}/events?occurred_at=yesterday`)).status).toBe(400);
  });

  it('a resend starts the same schedule again, and pending ones are ignored', async () => {
    at.receiver.status = 500;
    const { id } = (await at.register(['asset_disappeared'])).body;
    lose();
    await until(() => expect(at.sandbox.deliveries()[0]?.lastAnswer).toBe(500));
    const resend = () => at.visitor.call('POST', `${WEBHOOKS}/${id}/events`, { webhook_events: [{ id: 1 }] });
    expect((await resend()).status).toBe(204);
    expect(at.sandbox.deliveries()[0]?.attempts).toBe(1);
    at.receiver.status = 204;
    at.sandbox.clock.advance(60_000);
    await until(() => expect(at.sandbox.deliveries()[0]?.status).toBe('delivered'));
    expect((await resend()).status).toBe(204);
    await until(() => expect(at.receiver.received).toHaveLength(3));
  });

  it('are gone after six months, and can then not be sent again', async () => {
    const { id } = (await at.register(['asset_disappeared'])).body;
    lose();
    await until(() => expect(at.sandbox.deliveries()[0]?.status).toBe('delivered'));
    at.sandbox.clock.advance(184 * 24 * HOUR_MS);
    at.visitor.token = (await at.visitor.login()).body.access_token;
    expect((await at.visitor.get(`${WEBHOOKS}/${id}/events`)).body.events).toEqual([]);
    const again = await at.visitor.call('POST', `${WEBHOOKS}/${id}/events`, { webhook_events: [{ id: 1 }] });
    expect(again.status).toBe(404);
  });
});
