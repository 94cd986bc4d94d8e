import { describe, expect, it } from 'vitest';
import { covers, MQTT_TOPICS, NATS_SUBJECTS } from '../../../src/broker/topic-filters.ts';
import { planFilters } from '../../../src/sources/messages/topic-plan.ts';

const pointOf = (topic: string, template = topic) => ({ spec: { topic, template } });
const TEMPLATE = 'plant/{tag}/flow';
const pumps = (count: number) => Array.from({ length: count }, (_, at) => pointOf(`plant/P-${at}/flow`, TEMPLATE));

describe('topic plan', () => {
  it('contains one filter for two thousand tags from a template', () => {
    const points = [...pumps(2_000), pointOf('plant/a/b/flow', TEMPLATE), pointOf('site/ft101'), pointOf('site/ft101')];
    expect(planFilters(points, MQTT_TOPICS)).toEqual(['plant/+/flow', 'plant/a/b/flow', 'site/ft101']);
  });

  it('lists topics individually if there are few or the broker rejects the wildcard', () => {
    expect(planFilters(pumps(9), MQTT_TOPICS)).toHaveLength(9);
    expect(planFilters(pumps(20), MQTT_TOPICS, new Set(['plant/+/flow']))).toHaveLength(20);
    // A template without a fixed level would subscribe to everything.
    const all = Array.from({ length: 20 }, (_, at) => pointOf(`P-${at}`, '{tag}'));
    expect(planFilters(all, MQTT_TOPICS)).toHaveLength(20);
  });

  it('omits topics that are covered by another filter to prevent duplicates', () => {
    const points = [pointOf('site/#'), pointOf('site/a'), pointOf('site/+/b'), pointOf('other')];
    expect(planFilters(points, MQTT_TOPICS)).toEqual(['site/#', 'other']);
  });

  it('includes a NATS subject that its wildcard does not match', () => {
    const points = [pointOf('site.>'), pointOf('site'), pointOf('site.a')];
    expect(planFilters(points, NATS_SUBJECTS)).toEqual(['site.>', 'site']);
  });
});

describe('topic filter', () => {
  it.each([
    { grammar: MQTT_TOPICS, wide: 'a/#', narrow: 'a/+/b', expected: true },
    { grammar: MQTT_TOPICS, wide: 'a/+', narrow: 'a/b', expected: true },
    { grammar: MQTT_TOPICS, wide: 'a/+', narrow: 'a/#', expected: false },
    { grammar: MQTT_TOPICS, wide: '+/b', narrow: 'a/+', expected: false },
    { grammar: MQTT_TOPICS, wide: '#', narrow: '$SYS/x', expected: false },
    { grammar: MQTT_TOPICS, wide: '+/x', narrow: '$SYS/x', expected: false },
    { grammar: MQTT_TOPICS, wide: '$SYS/#', narrow: '$SYS/x', expected: true },
    { grammar: MQTT_TOPICS, wide: '+/+', narrow: '+/b', expected: true },
    { grammar: MQTT_TOPICS, wide: 'a/#', narrow: 'a', expected: true },
    { grammar: MQTT_TOPICS, wide: 'a/+', narrow: 'a/b/c', expected: false },
    { grammar: MQTT_TOPICS, wide: 'a/#', narrow: 'a/b/c', expected: true },
    { grammar: MQTT_TOPICS, wide: 'a/b', narrow: 'a', expected: false },
    { grammar: MQTT_TOPICS, wide: 'a', narrow: 'a/', expected: false },
    { grammar: MQTT_TOPICS, wide: 'a/+', narrow: 'a/', expected: true },
    { grammar: NATS_SUBJECTS, wide: 'site.*', narrow: 'site.a', expected: true },
    { grammar: NATS_SUBJECTS, wide: 'site.>', narrow: 'site.a.b', expected: true },
    { grammar: NATS_SUBJECTS, wide: 'site.>', narrow: 'site', expected: false },
    { grammar: NATS_SUBJECTS, wide: 'site.*', narrow: 'site.>', expected: false },
    { grammar: NATS_SUBJECTS, wide: '>', narrow: 'site.*.b', expected: true },
    { grammar: NATS_SUBJECTS, wide: 'site.*', narrow: 'other.a', expected: false },
  ])('$wide covers the $grammar.name $narrow: $expected', ({ grammar, wide, narrow, expected }) => {
    expect(covers(wide, narrow, grammar)).toBe(expected);
  });
});
