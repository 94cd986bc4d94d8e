import { describe, expect, it, vi } from 'vitest';
import { recognise } from '../../../src/contract/events.ts';
import { audience } from './audience.ts';

const at = audience();

const register = (event_types: readonly string[], properties: object = {}) => at.register(event_types, { properties });
const value = { timestamp: '2026-11-21T00:00:00.000Z', value: 25 };
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

describe('platform 6.1 and 6.3: event receivers', () => {
  it('are only users with the reporting role if the asset is deleted', async () => {
    await register(['asset_disappeared']);
    await at.visitor.call('DELETE', '/sandbox/objects/assets/882');
    expect(await arrived('asset_disappeared')).toHaveLength(1);
    at.sandbox.site.get('userroles', 61)!.users = [];
    await at.visitor.call('DELETE', '/sandbox/objects/assets/883');
    expect(at.sandbox.deliveries()).toHaveLength(1);
  });
});

describe('platform 6.3: threshold_reached', () => {
  const post = (number: number, second: number, unit = 12) =>
    at.visitor.post(881, 'flow', [{ timestamp: `2026-11-21T00:00:${10 + second}.000Z`, value: number }], {
      unit: { id: unit },
    });

  it('is sent again only after the value has returned across the threshold', async () => {
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

  it('compares and reports the value in the threshold’s unit', async () => {
    await register(['threshold_reached']);
    // 100 l/min are 6 m³/h.
    at.sandbox.setThreshold({ instrumentation: 4711, type: 'high', value: 90, key: 'flow', unit: 'liter_per_minute' });
    await post(6, 0);
    const [event] = await arrived('threshold_reached');
    expect(event.content.threshold.value_in_threshold_unit).toBeCloseTo(100, 9);
    expect(event.content.data.unit).toEqual({ code: 'cubic_meter_per_hour', symbol: 'm³/h' });
  });

  it('ignores a value in an incompatible unit', async () => {
    await register(['threshold_reached']);
    at.sandbox.setThreshold({ instrumentation: 4711, type: 'high', value: 1, unit: 'bar' });
    await post(500, 0);
    await at.visitor.post(881, 'pressure', [value]);
    const events = await arrived('threshold_reached');
    expect(events.map((event) => event.content.data.key)).toEqual(['pressure']);
  });

  it('has no unit if the threshold has none', async () => {
    await register(['threshold_reached']);
    at.sandbox.setThreshold({ instrumentation: 4711, type: 'high', value: 1 });
    await post(5, 0);
    const [event] = await arrived('threshold_reached');
    expect(event.content.threshold).toMatchObject({ unit: { code: '', symbol: '' }, value_in_threshold_unit: null });
  });

  it.each([
    ['systems', 'System'],
    ['recipes', 'Recipe'],
  ] as const)('is not sent for a deleted threshold of %s', async (kind, thresholdable_type) => {
    at.sandbox.setThreshold({ thresholdable_type, thresholdable_id: 36, assets: [881], type: 'high', value: 1 });
    at.sandbox.site.put(kind, { id: 36, name: 'one' });
    at.sandbox.changes.destroy(kind, 36);
    expect(at.sandbox.site.all('thresholds')).toEqual([]);
  });

  it('for a System or Recipe is also sent for an asset without an instrumentation', async () => {
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

  it('is sent below a low threshold and on either side of a deviation threshold', async () => {
    await register(['threshold_reached']);
    at.sandbox.setThreshold({ instrumentation: 4711, type: 'low', value: 5 });
    at.sandbox.setThreshold({ instrumentation: 4711, type: 'deviation', value: 50, tolerance: 45 });
    await post(4, 0);
    const events = await arrived('threshold_reached', 2);
    expect(events.map((event) => event.content.threshold.type).sort()).toEqual(['deviation', 'low']);
  });
});
