import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { EVENT_TYPES, type EventType, recognise } from '../../src/contract/events.ts';
import { audience } from './audience.ts';

const at = audience();

const register = (event_types: readonly string[], properties: object = {}) => at.register(event_types, { properties });
const value = { timestamp: '2026-11-21T00:00:00.000Z', value: 25 };
const change = (name: string, body: object) => at.visitor.call('POST', `/sandbox/changes/${name}`, body);
const condition = { id: 1, diagnosis_code: 'S441', asset_status: 71, channel: 'A' };

const readableEvent = async (id: number) => {
  await change('create-event', { id, name: 'Check', type: 76, assets: [881] });
  at.sandbox.grantPermission({ type: 'Event', id });
};

/** How a person causes each type of platform 6.3 by the admin API. */
const CAUSES: Record<EventType, () => Promise<unknown>> = {
  asset_value_created: () => at.visitor.post(881, 'flow', [value], { unit: { id: 12 }, group: 'process' }),
  asset_values_created: () => at.visitor.post(881, 'flow', [value], { unit: { id: 12 }, group: 'process' }),
  instrumentation_values_created: () => at.visitor.post(881, 'flow', [value], { unit: { id: 12 }, group: 'process' }),
  asset_updated: () => change('update-asset', { asset: 881, changes: { status: 71 } }),
  asset_software_added: () => change('add-software', { asset: 881, software: 95 }),
  asset_instrumentation_association_created: () => change('associate', { asset: 901, instrumentation: 4711 }),
  asset_instrumentation_association_destroyed: () => change('dissociate', { asset: 881, instrumentation: 4711 }),
  edge_device_updated: () => change('update-edge-device', { edge_device: 30, changes: { status: 86 } }),
  asset_appeared: async () => at.sandbox.grantPermission({ type: 'Asset', id: 920 }),
  asset_disappeared: async () => at.sandbox.takePermission({ type: 'Asset', id: 881 }),
  instrumentation_appeared: () =>
    at.visitor
      .call('PUT', '/sandbox/objects/instrumentations/5000', { tag: 'XT-1' })
      .then(() => at.visitor.call('POST', '/sandbox/permissions', { on: { type: 'Instrumentation', id: 5000 } })),
  instrumentation_disappeared: () =>
    at.visitor.call('DELETE', '/sandbox/permissions', { on: { type: 'Instrumentation', id: 4711 } }),
  node_appeared: async () => at.sandbox.grantPermission({ type: 'Node', id: 20 }),
  node_disappeared: async () => {
    at.sandbox.grantPermission({ type: 'Node', id: 20 });
    at.sandbox.takePermission({ type: 'Node', id: 20 });
  },
  asset_specifications_updated: () =>
    change('asset-specifications', { asset: 881, specifications: { range: { value: '10', unit: 'bar' } } }),
  event_specifications_updated: () =>
    readableEvent(500).then(() =>
      change('event-specifications', { event: 500, specifications: { result: { value: 'passed' } } }),
    ),
  event_created: () =>
    change('create-event', {
      name: 'Check',
      type: 76,
      status: 75,
      assets: [881],
      instrumentations: [4711],
      documents: [35],
      responsible: 'Anna',
    }),
  event_document_created: () => readableEvent(501).then(() => change('add-document', { event: 501, document: 35 })),
  asset_health_condition_updated: () =>
    change('health-conditions', { asset: 881, status: 71, conditions: [condition] }),
  product_status_changed: () => change('product-status', { product: 90, status: 81 }),
  threshold_reached: () => {
    at.sandbox.setThreshold({ instrumentation: 4711, type: 'high', value: 20, key: 'flow', unit: 'liter_per_minute' });
    return at.visitor.post(881, 'flow', [value], { unit: { id: 12 } });
  },
  add_on_node_association_created: async () => {
    at.sandbox.grantPermission({ type: 'Node', id: 20 });
    await change('link-add-on', { add_on: 47, node: 20 });
  },
  add_on_node_association_destroyed: async () => {
    at.sandbox.grantPermission({ type: 'Node', id: 20 });
    await change('link-add-on', { add_on: 47, node: 20 });
    await change('unlink-add-on', { add_on: 47, node: 20 });
  },
};

const arrived = async (type: string, count = 1) => {
  await vi.waitFor(
    () => expect(at.receiver.types().filter((one) => one === type).length).toBeGreaterThanOrEqual(count),
    {
      timeout: 10_000,
      interval: 5,
    },
  );
  return at.receiver.received.filter(({ event }) => event.event_type === type).map(({ event }) => event);
};

/** Every path of an object's members, lists by their first entry. */
function paths(thing: unknown, at = ''): string[] {
  if (Array.isArray(thing)) return thing.length === 0 ? [at] : paths(thing[0], `${at}[]`);
  if (typeof thing !== 'object' || thing === null) return [at];
  return Object.entries(thing).flatMap(([name, member]) => paths(member, `${at}.${name}`));
}

describe('platform 6.3: every event type', () => {
  it.each(EVENT_TYPES)('%s is sent with the content of the spec', async (type) => {
    await register([type]);
    await CAUSES[type]();
    const [event] = await arrived(type);
    expect(recognise(event)).not.toBe('unrecognised');
    const file = join(import.meta.dirname, `../fixtures/events/${type}.json`);
    const example = JSON.parse(readFileSync(file, 'utf8'));
    // Specification keys are the site's own; everything else of the content has the spec's names.
    const names = (content: unknown) =>
      paths(content).map((path) => path.replace(/\.specifications\.[^.]+/, '.specifications.*'));
    const known = new Set(names(example.content));
    const surplus = names(event.content).filter((path) => !known.has(path));
    const containers = surplus.filter((path) =>
      [...known].some((one) => one.startsWith(`${path}.`) || one.startsWith(`${path}[`)),
    );
    expect(surplus.filter((path) => !containers.includes(path))).toEqual([]);
    expect(Object.keys(event.content).sort()).toEqual(Object.keys(example.content).sort());
    const stamp = type.startsWith('asset_instrumentation_association') ? 'occured_at' : 'occurred_at';
    expect(Object.keys(event).sort()).toEqual(['content', 'event_type', stamp].sort());
  });
});

describe('platform 6.3: filters by properties', () => {
  it('value keys choose values and silence posts that hold none of them', async () => {
    await register(['asset_values_created'], { asset_values_created: ['Flow'] });
    await at.visitor.post(881, 'temp', [value]);
    await at.visitor.call('POST', '/v1/assets/881/values', {
      values: [
        { key: 'temp', data: [value] },
        { key: 'flow', data: [value] },
      ],
    });
    const events = await arrived('asset_values_created');
    expect(events).toHaveLength(1);
    expect(events[0].content.values.map((one: { key: string }) => one.key)).toEqual(['flow']);
  });

  it.each([
    [
      'asset_updated',
      ['status'],
      () => change('update-asset', { asset: 881, changes: { description: 'x' } }),
      'update-asset',
      { asset: 881, changes: { description: 'y', status: 71 } },
    ],
    [
      'edge_device_updated',
      ['status'],
      () => change('update-edge-device', { edge_device: 30, changes: { type: 'x' } }),
      'update-edge-device',
      { edge_device: 30, changes: { status: 86 } },
    ],
    [
      'asset_specifications_updated',
      ['range'],
      () => change('asset-specifications', { asset: 881, specifications: { other: { value: 1 } } }),
      'asset-specifications',
      { asset: 881, specifications: { range: { value: 1 } } },
    ],
    [
      'event_created',
      ['calibration'],
      () => change('create-event', { name: 'a', type: 76, assets: [881] }),
      'create-event',
      { name: 'b', type: 77, assets: [881] },
    ],
  ] as const)('%s with %j hears only of those', async (type, names, unwanted, wanted, body) => {
    await register([type], { [type]: names });
    await unwanted();
    await change(wanted, body);
    expect(await arrived(type)).toHaveLength(1);
    expect(at.sandbox.deliveries()).toHaveLength(1);
  });
});

describe('platform 6.1 and 6.3: who hears of it', () => {
  it('a webhook is told only of objects that its technical user may read', async () => {
    await register(['asset_updated']);
    await change('update-asset', { asset: 920, changes: { status: 71 } });
    await change('update-asset', { asset: 881, changes: { status: 71 } });
    const events = await arrived('asset_updated');
    expect(events.map((event) => event.content.asset.id)).toEqual([881]);
  });

  it('a lost asset takes its children along, and they come back with it', async () => {
    await register(['asset_disappeared', 'asset_appeared']);
    at.sandbox.takePermission({ type: 'Asset', id: 910 });
    const gone = await arrived('asset_disappeared', 4);
    expect(gone.map((event) => event.content.asset.id).sort()).toEqual([910, 911, 912, 913]);
    at.sandbox.grantPermission({ type: 'Asset', id: 910 });
    expect(await arrived('asset_appeared', 4)).toHaveLength(4);
  });

  it('the destruction of an asset is told to the reporting role alone', async () => {
    await register(['asset_disappeared']);
    await at.visitor.call('DELETE', '/sandbox/objects/assets/882');
    expect(await arrived('asset_disappeared')).toHaveLength(1);
    at.sandbox.site.get('userroles', 61)!.users = [];
    await at.visitor.call('DELETE', '/sandbox/objects/assets/883');
    expect(at.sandbox.deliveries()).toHaveLength(1);
  });

  it('an asset that stays visible by a second path neither disappears nor appears', async () => {
    await register(['asset_disappeared', 'asset_appeared', 'instrumentation_disappeared']);
    at.sandbox.takePermission({ type: 'Instrumentation', id: 4711 }, { direct: true });
    await arrived('instrumentation_disappeared');
    expect(at.receiver.types()).toEqual(['instrumentation_disappeared']);
  });
});

describe('platform 6.3: threshold_reached', () => {
  const post = (number: number, second: number, unit = 12) =>
    at.visitor.post(881, 'flow', [{ timestamp: `2026-11-21T00:00:${10 + second}.000Z`, value: number }], {
      unit: { id: unit },
    });

  it('is sent at the crossing, again only after the value came back', async () => {
    await register(['threshold_reached']);
    at.sandbox.setThreshold({ instrumentation: 4711, type: 'high', value: 20, key: 'flow', name: 'HH' });
    for (const [second, number] of [10, 25, 26, 19, 20].entries()) await post(number, second);
    const events = await arrived('threshold_reached', 2);
    expect(events.map((event) => event.content.data.value)).toEqual([25, 20]);
    expect(events[0].content.threshold).toMatchObject({
      type: 'high',
      name: 'HH',
      value: 20,
      thresholdable_type: 'Instrumentation',
      value_in_threshold_unit: null,
    });
  });

  it('compares in the threshold’s unit and tells the value in it', async () => {
    await register(['threshold_reached']);
    // 100 l/min are 6 m³/h.
    at.sandbox.setThreshold({ instrumentation: 4711, type: 'high', value: 90, key: 'flow', unit: 'liter_per_minute' });
    await post(6, 0);
    const [event] = await arrived('threshold_reached');
    expect(event.content.threshold.value_in_threshold_unit).toBeCloseTo(100, 9);
    expect(event.content.data.unit).toEqual({ code: 'cubic_meter_per_hour', symbol: 'm³/h' });
  });

  it('is not reached by a value whose unit cannot be turned into the threshold’s', async () => {
    await register(['threshold_reached']);
    at.sandbox.setThreshold({ instrumentation: 4711, type: 'high', value: 1, unit: 'bar' });
    await post(500, 0);
    await at.visitor.post(881, 'pressure', [value]);
    const events = await arrived('threshold_reached');
    expect(events.map((event) => event.content.data.key)).toEqual(['pressure']);
  });

  it('names no unit of a threshold that has none', async () => {
    await register(['threshold_reached']);
    at.sandbox.setThreshold({ instrumentation: 4711, type: 'high', value: 1 });
    await post(5, 0);
    const [event] = await arrived('threshold_reached');
    expect(event.content.threshold).toMatchObject({ unit: { code: '', symbol: '' }, value_in_threshold_unit: null });
  });

  it.each([
    ['systems', 'System'],
    ['recipes', 'Recipe'],
  ] as const)('of a destroyed one of %s is gone', async (kind, thresholdable_type) => {
    at.sandbox.setThreshold({ thresholdable_type, thresholdable_id: 36, assets: [881], type: 'high', value: 1 });
    at.sandbox.site.put(kind, { id: 36, name: 'one' });
    at.sandbox.changes.destroy(kind, 36);
    expect(at.sandbox.site.all('thresholds')).toEqual([]);
  });

  it('of a System or Recipe is told for an asset that has no instrumentation as well', async () => {
    await register(['threshold_reached']);
    for (const thresholdable_type of ['System', 'Recipe'] as const) {
      const on = { thresholdable_type, thresholdable_id: 36, assets: [901] };
      at.sandbox.setThreshold({ ...on, type: 'high', value: 20 });
    }
    await at.visitor.post(901, 'flow', [value]);
    const events = await arrived('threshold_reached', 2);
    expect(events.map((event) => event.content.threshold.thresholdable_type).sort()).toEqual(['Recipe', 'System']);
    expect(events[0].content).toMatchObject({ asset: { id: 901 } });
    expect(events[0].content).not.toHaveProperty('instrumentation');
    expect(recognise(events[0])).not.toBe('unrecognised');
  });

  it('low and deviation thresholds look the other way and both ways', async () => {
    await register(['threshold_reached']);
    at.sandbox.setThreshold({ instrumentation: 4711, type: 'low', value: 5 });
    at.sandbox.setThreshold({ instrumentation: 4711, type: 'deviation', value: 50, tolerance: 45 });
    await post(4, 0);
    const events = await arrived('threshold_reached', 2);
    expect(events.map((event) => event.content.threshold.type).sort()).toEqual(['deviation', 'low']);
  });
});
