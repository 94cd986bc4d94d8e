import { describe, expect, it, vi } from 'vitest';
import { audience, WEBHOOKS } from './audience.ts';

const HOUR_MS = 3_600_000;
const at = audience();

const lose = () => at.sandbox.revokePermission({ type: 'Asset', id: 881 });
const until = (condition: () => void) => vi.waitFor(condition, { timeout: 10_000, interval: 5 });

describe('platform 2.4 and 4.5: webhooks', () => {
  it('are created with 201, Location and a secret that is never returned by reads', async () => {
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

  it('are changed and deleted with 204, and receive a new secret from reset_secret', async () => {
    const { id, secret } = (await at.register(['asset_appeared'])).body;
    expect((await at.visitor.call('PATCH', `${WEBHOOKS}/${id}`, { disabled: true })).status).toBe(204);
    expect((await at.visitor.get(`${WEBHOOKS}/${id}`)).body.disabled).toBe(true);
    const reset = await at.visitor.call('POST', `${WEBHOOKS}/${id}/reset_secret`);
    expect(reset.status).toBe(200);
    expect(reset.body.secret).not.toBe(secret);
    expect((await at.visitor.call('DELETE', `${WEBHOOKS}/${id}`)).status).toBe(204);
    expect((await at.visitor.get(`${WEBHOOKS}/${id}`)).status).toBe(404);
  });
});

describe('platform 6.1: delivery', () => {
  it('of a later event waits for the earlier event with force_sorted_delivery', async () => {
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
  it('is disabled, and the contact person is notified', async () => {
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
  it('are listed with their payload, and can be filtered, sorted and paginated', async () => {
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

  it('restart their retry schedule when resent, except for pending records', async () => {
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
});
