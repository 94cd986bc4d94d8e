import { describe, expect, it } from 'vitest';
import type { Condition, Reaction } from '../../../src/config/reactions.ts';
import { EVENT_TYPES } from '../../../src/contract/events.ts';
import { valuesAt } from '../../../src/reactions/content-path.ts';
import { judgeAge, matches, reasonAgainstWrite } from '../../../src/reactions/rules.ts';
import { fillBody, fillTopic, fillValue } from '../../../src/reactions/template.ts';
import { factsOf } from './parts/facts.ts';

function rule(on: Reaction['on'], ...conditions: Condition[]): Reaction {
  return { name: 'rule', on, conditions, cooldownMs: 0, maxAgeMs: 0, actions: [] };
}

describe('rule event types', () => {
  it('match a list, or all types with "*"', () => {
    for (const type of EVENT_TYPES) {
      expect(matches(rule('*'), factsOf(type))).toBe(true);
      expect(matches(rule([type]), factsOf(type))).toBe(true);
      expect(matches(rule(['no_such_type']), factsOf(type))).toBe(false);
    }
  });
});

describe('condition', () => {
  const event = factsOf('threshold_reached');
  const equals = (path: string, ...anyOf: (string | number | boolean | null)[]) =>
    matches(rule('*', { kind: 'equals', path, anyOf }), event);
  const range = (path: string, bounds: { above?: number; below?: number }) =>
    matches(rule('*', { kind: 'range', path, ...bounds }), event);

  it('compares the values at its path in content', () => {
    expect(equals('threshold.type', 'high')).toBe(true);
    expect(equals('threshold.type', 'low', 'high')).toBe(true);
    expect(equals('threshold.type', 'HIGH')).toBe(false);
    expect(equals('content.threshold.type', 'high')).toBe(false);
    expect(equals('data.value', 25.4)).toBe(true);
    expect(equals('data.value', '25.4')).toBe(false);
    expect(equals('__proto__', null)).toBe(true);
    expect(equals('constructor.name', 'Object')).toBe(false);
  });

  it('treats a missing member as null', () => {
    expect(equals('threshold.value_in_threshold_unit', null)).toBe(true);
    expect(equals('threshold.no_such_member', null)).toBe(true);
    expect(equals('threshold.no_such_member', 'x')).toBe(false);
    expect(equals('threshold.type', null)).toBe(false);
  });

  it('treats bounds as exclusive', () => {
    expect(range('data.value', { above: 25.3 })).toBe(true);
    expect(range('data.value', { above: 25.4 })).toBe(false);
    expect(range('data.value', { above: 20, below: 25.4 })).toBe(false);
    expect(range('data.value', { above: 20, below: 30 })).toBe(true);
    expect(range('data.key', { above: 0 })).toBe(false);
    expect(range('nothing', { below: 10 })).toBe(false);
  });

  it('compares numbers formatted as text', () => {
    const value = factsOf('asset_value_created', { asset: { id: 1 }, value: { key: 'flow', value: '25.40' } });
    expect(matches(rule('*', { kind: 'range', path: 'value.value', above: 25 }), value)).toBe(true);
    expect(matches(rule('*', { kind: 'equals', path: 'value.value', anyOf: [25.4] }), value)).toBe(true);
    const word = factsOf('asset_value_created', { asset: { id: 1 }, value: { key: 'flow', value: '' } });
    expect(matches(rule('*', { kind: 'range', path: 'value.value', below: 25 }), word)).toBe(false);
  });

  it('matches list members and names with dots', () => {
    const content = {
      values: [
        { key: 'a', data: [{ value: 1 }, { value: 9 }] },
        { key: 'b', data: [] },
      ],
    };
    expect(valuesAt(content, 'values.data.value')).toEqual([1, 9]);
    expect(valuesAt(content, 'values.0.data.1.value')).toEqual([9]);
    expect(valuesAt(content, 'values.7.key')).toEqual([]);
    expect(valuesAt(content, 'values.key')).toEqual(['a', 'b']);
    const specified = { asset: { specifications: { 'eh.pcps.ph': { value: '7' } } } };
    expect(valuesAt(specified, 'asset.specifications.eh.pcps.ph.value')).toEqual(['7']);
  });
});

describe('tag condition', () => {
  const names = (asset: number, instrumentation?: number): Condition => ({
    kind: 'tag',
    anyOf: [{ tag: 'T', asset, ...(instrumentation === undefined ? {} : { instrumentation }) }],
  });
  const fits = (condition: Condition, type: string, content?: unknown) =>
    matches(rule('*', condition), factsOf(type, content));

  it('compares the instrumentation if the tag and event have one, otherwise the asset', () => {
    const both = { asset: { id: 881 }, instrumentation: { id: 4711 } };
    expect(fits(names(999, 4711), 'threshold_reached', both)).toBe(true);
    expect(fits(names(881, 4712), 'threshold_reached', both)).toBe(false);
    expect(fits(names(881), 'threshold_reached', both)).toBe(true);
    expect(fits(names(881, 4712), 'asset_updated', { asset: { id: 881 } })).toBe(true);
    expect(fits(names(882), 'asset_updated', { asset: { id: 881 } })).toBe(false);
    expect(fits(names(881), 'node_appeared', { node: { id: 881 } })).toBe(false);
  });

  it('matches any tag in a list', () => {
    const list: Condition = {
      kind: 'tag',
      anyOf: [
        { tag: 'A', asset: 881, instrumentation: 4711 },
        { tag: 'B', asset: 882 },
      ],
    };
    const both = (asset: number, instrumentation: number) => ({
      asset: { id: asset },
      instrumentation: { id: instrumentation },
    });
    expect(fits(list, 'threshold_reached', both(881, 4711))).toBe(true);
    expect(fits(list, 'threshold_reached', both(882, 4712))).toBe(true);
    expect(fits(list, 'threshold_reached', both(881, 4712))).toBe(false);
    expect(fits(list, 'asset_updated', { asset: { id: 883 } })).toBe(false);
  });

  it('matches any asset or instrumentation in event_created', () => {
    expect(fits(names(1, 4711), 'event_created')).toBe(true);
    expect(fits(names(881, 5), 'event_created')).toBe(false);
    expect(fits(names(881), 'event_created')).toBe(true);
  });
});

describe('event age', () => {
  const nowMs = Date.UTC(2026, 10, 21);
  const now = { ms: nowMs, clock: 'gateway' } as const;

  it('is measured only with a trusted clock', () => {
    expect(judgeAge(600_000, nowMs - 600_000, now, 0)).toEqual({ age: 'fresh' });
    expect(judgeAge(600_000, nowMs - 600_001, now, 0)).toEqual({ age: 'too-old', clock: 'gateway', ageMs: 600_001 });
    expect(judgeAge(600_000, nowMs + 60_000, now, 0)).toEqual({ age: 'fresh' });
    expect(judgeAge(600_000, nowMs + 60_001, now, 0)).toEqual({ age: 'ahead', clock: 'gateway', ageMs: -60_001 });
    expect(judgeAge(0, 0, now, 0)).toEqual({ age: 'fresh' });
  });

  it('is unknown without a clock until the event has waited longer than its maximum age', () => {
    expect(judgeAge(0, nowMs, undefined, 9e9)).toEqual({ age: 'fresh' });
    expect(judgeAge(600_000, nowMs, undefined, 0)).toEqual({ age: 'unknown' });
    const late = { age: 'too-old', clock: 'monotonic', ageMs: 600_001 };
    expect(judgeAge(600_000, nowMs, undefined, 600_001)).toEqual(late);
    expect(judgeAge(600_000, undefined, now, 7)).toEqual({ ...late, ageMs: 7 });
  });
});

describe('event age for a write', () => {
  const WALL_MS = Date.UTC(2026, 10, 21);
  const event = { eventType: 'value_raised', occurredAtMs: WALL_MS, storedAgoMs: 1_000, isFromEarlierRun: true };
  const against = (more: Partial<typeof event>, wallMs = WALL_MS + 1_000) =>
    reasonAgainstWrite(600_000, { ...event, ...more }, wallMs, { ms: wallMs, clock: 'platform' });

  it('prevents a write by an old event, according to the clock or to the running time', () => {
    expect(against({})).toBeUndefined();
    expect(against({}, WALL_MS + 600_001)).toContain('older than max_age');
    expect(against({ storedAgoMs: 600_001 })).toContain('older than max_age');
    expect(against({ eventType: 'threshold_reached' })).toBeUndefined();
    expect(against({ eventType: 'threshold_reached' }, WALL_MS + 600_001)).toContain('older than max_age');
  });

  it('prevents a write if the clock was set back between two runs', () => {
    expect(against({}, WALL_MS - 3_600_000)).toContain('uncertain');
    expect(against({ occurredAtMs: 5_000 }, 6_000)).toContain('uncertain');
    expect(against({ eventType: 'threshold_reached' }, WALL_MS - 3_600_000)).toContain('uncertain');
  });

  it('does not depend on the clock if the event was created by this process', () => {
    expect(against({ isFromEarlierRun: false }, WALL_MS - 3_600_000)).toBeUndefined();
    expect(against({ isFromEarlierRun: false, occurredAtMs: 5_000 })).toBeUndefined();
  });

  it('prevents a write by a platform event while no clock is trusted', () => {
    const reason = reasonAgainstWrite(600_000, { ...event, eventType: 'threshold_reached' }, WALL_MS, undefined);
    expect(reason).toContain('uncertain');
  });
});

describe('event object', () => {
  it('is the instrumentation, the asset, another object, or the type', () => {
    expect(factsOf('threshold_reached').object).toBe('instrumentation 4711');
    expect(factsOf('asset_updated').object).toBe('asset 881');
    expect(factsOf('node_appeared').object).toMatch(/^node \d+$/);
    expect(factsOf('product_status_changed').object).toMatch(/^product \d+$/);
    expect(factsOf('event_created').object).toBe('instrumentation 4711');
    expect(factsOf('asset_updated', {}).object).toBe('asset_updated');
  });
});

describe('templates', () => {
  const event = factsOf('threshold_reached');

  it('are replaced within text, and keep the original type if a member consists only of a template', () => {
    expect(fillBody('{{content.instrumentation.tag}} is at {{ content.data.value }}{{content.none}}', event)).toEqual({
      text: 'FT-101 is at 25.4',
      isJson: false,
    });
    expect(fillValue({ v: ['{{content.data.value}}'], t: 'x {{event_type}}', n: '{{no}}' }, event.envelope)).toEqual({
      v: [25.4],
      t: 'x threshold_reached',
      n: null,
    });
    expect(fillBody(undefined, event)).toEqual({ text: event.payload, isJson: true });
  });

  it('never let an event add topic levels', () => {
    const sly = factsOf('threshold_reached', { instrumentation: { id: 1, tag: '../#/+\n' } });
    expect(fillTopic('site/{{content.instrumentation.tag}}/alarms', sly.envelope)).toBe('site/.._____/alarms');
  });
});
