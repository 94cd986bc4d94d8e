import { Ajv } from 'ajv';
import { describe, expect, it, vi } from 'vitest';
import { eventSchema } from '../../../src/contract/events/shapes.ts';
import { EVENT_TYPES, recognise } from '../../../src/contract/events.ts';
import { audience } from './audience.ts';
import { CONTENT_SHAPES, differences } from './content-shapes.ts';

const at = audience();

const cause = (type: string, request: object = {}) => at.visitor.call('POST', `/sandbox/causes/${type}`, request);
const arrived = async (type: string) => {
  await vi.waitFor(() => expect(at.receiver.types()).toContain(type), { timeout: 10_000, interval: 5 });
  return at.receiver.received.filter(({ event }) => event.event_type === type).map(({ event }) => event);
};

describe('platform 6.3: event triggered without options', () => {
  it.each(EVENT_TYPES)('%s is sent with valid content, and the response contains the delivery count', async (type) => {
    await at.register([type]);
    const reply = await cause(type);
    expect([reply.status, reply.text]).toEqual([200, expect.any(String)]);
    expect(reply.body).toMatchObject({ event_type: type, object: { id: expect.any(Number) } });
    expect(reply.body.deliveries).toBeGreaterThanOrEqual(1);
    const events = await arrived(type);
    const check = new Ajv({ strict: false }).compile(eventSchema(type));
    for (const event of events) {
      expect(check(event), JSON.stringify(check.errors)).toBe(true);
      expect(recognise(event)).not.toBe('unrecognised');
    }
  });

  it.each(EVENT_TYPES)('%s can be triggered repeatedly', async (type) => {
    await at.register([type]);
    for (let i = 0; i < 3; i++) expect((await cause(type)).body.deliveries, `time ${i}`).toBeGreaterThanOrEqual(1);
  });
});

describe('platform 6.3: event triggered with every member', () => {
  /** Causes with all members, including those that are omitted by default. */
  const FULL: Partial<Record<(typeof EVENT_TYPES)[number], () => Promise<unknown>>> = {
    asset_value_created: () => post(),
    asset_values_created: () => post(),
    instrumentation_values_created: () => post(),
    event_created: async () =>
      at.sandbox.changes.createEvent({
        name: 'Check',
        type: 76,
        status: 75,
        responsible: 'Anna',
        assets: [881],
        instrumentations: [4711],
        documents: [35],
      }),
    asset_health_condition_updated: async () => {
      await cause('asset_health_condition_updated', { name: 'S441', status: 'failure' });
      await cause('asset_health_condition_updated', { name: 'M412', status: 'failure' });
    },
    threshold_reached: async () => {
      at.sandbox.setThreshold({
        instrumentation: 4711,
        type: 'high',
        value: 100,
        key: 'flow',
        unit: 'liter_per_minute',
      });
      await post(90);
    },
  };
  const post = (value = 12.5) =>
    at.visitor.post(881, 'flow', [{ timestamp: '2026-11-21T00:00:00.000Z', value }], {
      unit: { id: 12 },
      group: 'process',
    });

  it.each(EVENT_TYPES)('%s has exactly the members in the specification', async (type) => {
    await at.register([type]);
    await (FULL[type] ?? (() => cause(type)))();
    const events = await arrived(type);
    for (const event of events) expect(differences(event.content, CONTENT_SHAPES[type])).toEqual([]);
    const last = events.at(-1);
    if (type === 'asset_health_condition_updated') {
      await vi.waitFor(() => expect(at.receiver.received).toHaveLength(2));
      const both = at.receiver.received.map(({ event }) => event.content.previous_health_conditions.length).sort();
      expect(both).toEqual([0, 1]);
    }
    if (type === 'threshold_reached') expect(last.content.instrumentation.id).toBe(4711);
    if (type === 'event_created') expect(last.content.event.documents).toHaveLength(1);
  });
});

describe('sandbox event trigger', () => {
  it('accepts an object, value, unit and status', async () => {
    await at.register(['threshold_reached', 'asset_updated', 'asset_instrumentation_association_created']);
    await cause('threshold_reached', { object: 4712, value: 31, key: 'temperature', unit: 'degree_celsius' });
    const [reached] = await arrived('threshold_reached');
    expect(reached.content).toMatchObject({
      instrumentation: { id: 4712 },
      data: { value: 31, key: 'temperature', unit: { code: 'degree_celsius' } },
    });
    await cause('asset_updated', { object: 882, status: 'failure' });
    expect((await arrived('asset_updated'))[0].content.asset).toMatchObject({ id: 882, status: { id: 71 } });
    await cause('asset_instrumentation_association_created', { object: 901, to: 4711 });
    const [associated] = await arrived('asset_instrumentation_association_created');
    expect(associated.content).toMatchObject({ asset: { id: 901 }, instrumentation: { id: 4711 } });
  });

  it.each(['asset', 'instrumentation', 'node'])(
    'sends disappearance and appearance events for the %s with different timestamps',
    async (what) => {
      await at.register([`${what}_appeared`, `${what}_disappeared`]);
      const id = { asset: 920, instrumentation: 4711, node: 20 }[what];
      await cause(`${what}_disappeared`, { object: id });
      await cause(`${what}_disappeared`, { object: id });
      await cause(`${what}_appeared`, { object: id });
      await cause(`${what}_appeared`, { object: id });
      const times = at.sandbox.deliveries().map(({ occurredAtMs }) => Math.floor(occurredAtMs));
      for (const type of ['appeared', 'disappeared']) {
        expect(at.sandbox.deliveries().some(({ eventType }) => eventType.endsWith(`_${type}`))).toBe(true);
      }
      const coming = at.sandbox.deliveries().filter(({ eventType }) => eventType === `${what}_appeared`);
      const going = at.sandbox.deliveries().filter(({ eventType }) => eventType === `${what}_disappeared`);
      const shared = coming.filter((one) =>
        going.some((other) => Math.floor(other.occurredAtMs) === Math.floor(one.occurredAtMs)),
      );
      expect(times.length).toBeGreaterThan(2);
      expect(shared.map(({ id }) => id)).toEqual([]);
    },
  );

  it('reports why no webhook received the event', async () => {
    expect((await cause('asset_updated')).body).toMatchObject({
      deliveries: 0,
      note: expect.stringContaining('no webhook'),
    });
    await at.register(['asset_updated']);
    const unseen = await cause('asset_updated', { object: 920 });
    expect(unseen.body).toMatchObject({ deliveries: 0, note: expect.any(String) });
  });

  it('rejects unknown types, objects and members, and invalid values', async () => {
    expect((await cause('asset_exploded')).status).toBe(404);
    expect((await cause('asset_updated', { object: 1 })).status).toBe(404);
    expect((await cause('asset_updated', { objct: 881 })).status).toBe(400);
    expect((await cause('asset_updated', { changes: { colour: 'red' } })).status).toBe(400);
    expect((await cause('asset_updated', { changes: { status: 9999 } })).status).toBe(404);
    expect((await cause('threshold_reached', { value: 'much' })).status).toBe(400);
    expect(at.sandbox.site.get('assets', 881)).not.toHaveProperty('colour');
  });
});
