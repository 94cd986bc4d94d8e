import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { occurredAtMs } from '../../../src/contract/events/occurred-at.ts';
import {
  EVENT_TYPES,
  type EventContents,
  type EventType,
  recognise,
  timestampMs,
} from '../../../src/contract/events.ts';

const FIXTURES = join(import.meta.dirname, '../../fixtures/events');

function fixture(eventType: string): Record<string, unknown> & { content: Record<string, unknown> } {
  return JSON.parse(readFileSync(join(FIXTURES, `${eventType}.json`), 'utf8'));
}

/** Returns the payload with one member set, by path. */
function changed(eventType: string, path: string, to: unknown): unknown {
  const payload = fixture(eventType);
  const steps = path.split('.');
  const last = steps.pop()!;
  let at: Record<string, unknown> = payload;
  for (const step of steps) at = at[step] as Record<string, unknown>;
  if (to === undefined) delete at[last];
  else at[last] = to;
  return payload;
}

describe('platform 6.3 event type', () => {
  it('has exactly one fixture, for each of 23 types', () => {
    const found = readdirSync(FIXTURES).map((file) => file.replace('.json', ''));
    expect(found.sort()).toEqual([...EVENT_TYPES].sort());
  });

  it.each(EVENT_TYPES)('%s is recognised from its fixture, including its time', (eventType) => {
    const event = recognise(fixture(eventType));
    expect(event).toMatchObject({ eventType });
    expect(event).toHaveProperty('occurredAtMs');
    const at = (event as { occurredAtMs: number }).occurredAtMs;
    expect(Math.abs(at - Date.UTC(2026, 10, 21, 0, 0, 1))).toBeLessThan(1000);
  });

  it.each(EVENT_TYPES)('%s requires the time, in either spelling', (eventType) => {
    const { occurred_at, occured_at, ...rest } = fixture(eventType);
    const stamp = occurred_at ?? occured_at;
    expect(recognise({ ...rest, occurred_at: stamp })).toMatchObject({ eventType });
    expect(recognise({ ...rest, occured_at: stamp })).toMatchObject({ eventType });
    expect(recognise(rest)).toBe('unrecognised');
  });

  it.each(EVENT_TYPES)('%s accepts unknown members', (eventType) => {
    const payload = fixture(eventType);
    const content = Object.fromEntries(
      Object.entries(payload.content).map(([key, value]) =>
        typeof value === 'object' && !Array.isArray(value)
          ? [key, { ...value, added_later: [{ a: 1 }] }]
          : [key, value],
      ),
    );
    expect(recognise({ ...payload, added_later: true, content: { ...content, added_later: 5 } })).toMatchObject({
      eventType,
    });
  });

  it.each(EVENT_TYPES)('%s requires an integer id for its object', (eventType) => {
    const payload = fixture(eventType);
    const beside = ['user', 'subscription', 'asset_status'];
    for (const subject of Object.keys(payload.content).filter((key) => !beside.includes(key))) {
      const value = payload.content[subject] as { id?: number };
      if (typeof value.id !== 'number') continue;
      expect(recognise(changed(eventType, `content.${subject}.id`, 'x')), subject).toBe('unrecognised');
      expect(recognise(changed(eventType, `content.${subject}.id`, 1.5)), subject).toBe('unrecognised');
    }
    expect(recognise({ ...payload, content: {} })).toBe('unrecognised');
    expect(recognise({ ...payload, content: null })).toBe('unrecognised');
  });
});

describe('event schema', () => {
  it.each(['high', 'low', 'deviation'])('recognises threshold.type %s', (type) => {
    expect(recognise(changed('threshold_reached', 'content.threshold.type', type))).toMatchObject({
      content: { threshold: { type } },
    });
  });

  it('allows value_in_threshold_unit to be a number, null or missing, but not a string', () => {
    const path = 'content.threshold.value_in_threshold_unit';
    for (const value of [20.1, null, undefined]) {
      expect(recognise(changed('threshold_reached', path, value))).not.toBe('unrecognised');
    }
    expect(recognise(changed('threshold_reached', path, '20.1'))).toBe('unrecognised');
  });

  it('requires data.value to be a number, because a string would be compared incorrectly with a limit', () => {
    expect(recognise(changed('threshold_reached', 'content.data.value', '25.4'))).toBe('unrecognised');
  });

  it('requires an asset or an instrumentation for a system threshold', () => {
    expect(recognise(changed('threshold_reached', 'content.instrumentation', null))).not.toBe('unrecognised');
    expect(recognise(changed('threshold_reached', 'content.asset', undefined))).not.toBe('unrecognised');
    const neither = changed('threshold_reached', 'content.asset', undefined) as { content: Record<string, unknown> };
    neither.content.instrumentation = null;
    expect(recognise(neither)).toBe('unrecognised');
  });
});

/** Minimal content by type: all other members are optional. */
const LEAST: { [Type in EventType]: EventContents[Type] } = {
  asset_value_created: { asset: { id: 1 } },
  asset_values_created: { asset: { id: 1 } },
  instrumentation_values_created: { instrumentation: { id: 1 } },
  asset_updated: { asset: { id: 1 } },
  asset_software_added: { asset: { id: 1 }, software: { id: 2 } },
  asset_instrumentation_association_created: { asset: { id: 1 }, instrumentation: { id: 2 } },
  asset_instrumentation_association_destroyed: { asset: { id: 1 }, instrumentation: { id: 2 } },
  edge_device_updated: { edge_device: { id: 1 } },
  asset_appeared: { asset: { id: 1 } },
  asset_disappeared: { asset: { id: 1 } },
  instrumentation_appeared: { instrumentation: { id: 1 } },
  instrumentation_disappeared: { instrumentation: { id: 1 } },
  node_appeared: { node: { id: 1 } },
  node_disappeared: { node: { id: 1 } },
  asset_specifications_updated: { asset: { id: 1 } },
  event_specifications_updated: { event: { id: 1 } },
  event_created: { event: { id: 1 } },
  event_document_created: { event: { id: 1 }, document: { id: 2 } },
  asset_health_condition_updated: { asset: { id: 1 } },
  product_status_changed: { product: { id: 1 } },
  threshold_reached: { asset: { id: 1 }, data: { value: 1 }, threshold: { type: 'high' } },
  add_on_node_association_created: { add_on: { id: 1 }, node: { id: 2 } },
  add_on_node_association_destroyed: { add_on: { id: 1 }, node: { id: 2 } },
};

describe('schema of event type', () => {
  const payloadOf = (event_type: string, content: unknown) => ({ event_type, occurred_at: '2026-11-21', content });

  it.each(EVENT_TYPES)('%s requires its minimal content', (eventType) => {
    expect(recognise(payloadOf(eventType, LEAST[eventType]))).toMatchObject({ eventType });
    for (const [member, value] of Object.entries(LEAST[eventType] as object)) {
      expect(recognise(payloadOf(eventType, { ...LEAST[eventType], [member]: undefined })), member).toBe(
        'unrecognised',
      );
      expect(recognise(payloadOf(eventType, { ...LEAST[eventType], [member]: null })), member).toBe('unrecognised');
      for (const inner of Object.keys(value)) {
        const without = { ...LEAST[eventType], [member]: { ...value, [inner]: undefined } };
        expect(recognise(payloadOf(eventType, without)), `${member}.${inner}`).toBe('unrecognised');
      }
    }
  });

  it.each(EVENT_TYPES)('%s accepts null for every other member', (eventType) => {
    const nulled = (value: unknown, least: unknown): unknown => {
      if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
      return Object.fromEntries(
        Object.entries(value).map(([name, member]) => {
          const needed = (least as Record<string, unknown> | undefined)?.[name];
          return [name, needed === undefined ? null : nulled(member, needed)];
        }),
      );
    };
    expect(recognise(payloadOf(eventType, nulled(fixture(eventType).content, LEAST[eventType])))).toMatchObject({
      eventType,
    });
  });
});

describe('event members that no reaction requires', () => {
  it.each([
    ['asset_specifications_updated', 'content.asset.specifications.accuracy.unit', { id: 5 }],
    ['asset_specifications_updated', 'content.asset.specifications.accuracy.source_timestamp', 5],
    ['asset_specifications_updated', 'content.asset.specifications.accuracy', 'bare'],
    ['event_specifications_updated', 'content.event.specifications', null],
    ['threshold_reached', 'content.data.unit', 'l/s'],
    ['threshold_reached', 'content.threshold.unit', { code: 5 }],
    ['asset_value_created', 'content.value.unit', 'l/s'],
    ['asset_updated', 'content.asset.status', 'failure'],
    ['asset_disappeared', 'content.user', 55],
    ['asset_health_condition_updated', 'content.asset_status', 4],
  ] as const)('of %s can have a different form: %s is %j', (eventType, path, form) => {
    expect(recognise(changed(eventType, path, form))).toMatchObject({ eventType });
  });
});

describe('unrecognised events', () => {
  it.each([
    null,
    undefined,
    5,
    'threshold_reached',
    [],
    {},
    { event_type: 'constructor' },
    { event_type: '__proto__' },
  ])('include %j', (payload) => {
    expect(recognise(payload)).toBe('unrecognised');
  });

  it('include types that are not listed in the specification', () => {
    expect(recognise({ ...fixture('asset_updated'), event_type: 'asset_exploded' })).toBe('unrecognised');
  });
});

describe('event timestamps', () => {
  const noon = Date.UTC(2026, 10, 21, 12, 0, 0);
  it.each([
    ['2026-11-21T12:00:00Z', noon],
    ['2026-11-21T12:00:00', noon],
    ['2026-11-21T12:00', noon],
    ['2026-11-21 12:00:00 UTC', noon],
    ['2026-11-21T12:00:00.123456Z', noon + 123],
    ['2026-11-21T12:00:00.1', noon + 100],
    ['2026-11-21T13:00:00+01:00', noon],
    ['2026-11-21T13:00:00 +0100', noon],
    ['2026-11-21T04:00:00-08', noon],
    ['2026-11-21', noon - 12 * 3_600_000],
    ['0099-01-01T00:00:00Z', Date.parse('0099-01-01T00:00:00Z')],
  ])('%s is read as UTC if it has no offset, regardless of the gateway’s time zone', (text, at) => {
    expect(timestampMs(text)).toBe(at);
  });

  it.each([
    '',
    'yesterday',
    '2026-02-31T00:00:00Z',
    '2026-13-01',
    '2026-11-21T25:00',
    '1'.repeat(100_000),
    1795262400,
    null,
  ])('reject %j', (text) => {
    expect(timestampMs(text)).toBeUndefined();
  });

  it('are read from the second spelling if the first one is invalid', () => {
    expect(occurredAtMs({ occurred_at: 'soon', occured_at: '2026-11-21T12:00:00Z' })).toBe(noon);
  });
});
