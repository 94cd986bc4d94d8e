import { describe, expect, it } from 'vitest';
import { BrokerWindow } from '../../src/broker/window.ts';
import { AS_IT_COMES } from '../../src/config/tags.ts';
import { covers, planFilters, TopicRouter } from '../../src/sources/mqtt/topic-plan.ts';

const pointOf = (topic: string, template = topic) => ({
  name: topic,
  series: 1,
  everyMs: 0,
  shaping: AS_IT_COMES,
  spec: { topic, template },
});
const TEMPLATE = 'plant/{tag}/flow';
const pumps = (count: number) => Array.from({ length: count }, (_, at) => pointOf(`plant/P-${at}/flow`, TEMPLATE));

describe('what a broker is asked for', () => {
  it('is one filter for two thousand tags of a template, and those beside it', () => {
    const points = [...pumps(2_000), pointOf('plant/a/b/flow', TEMPLATE), pointOf('site/ft101'), pointOf('site/ft101')];
    expect(planFilters(points)).toEqual(['plant/+/flow', 'plant/a/b/flow', 'site/ft101']);
  });

  it('is each topic where they are few, or where the broker does not allow the wildcard', () => {
    expect(planFilters(pumps(9))).toHaveLength(9);
    expect(planFilters(pumps(20), new Set(['plant/+/flow']))).toHaveLength(20);
    // Everything that a broker has is nobody's to ask for.
    const all = Array.from({ length: 20 }, (_, at) => pointOf(`P-${at}`, '{tag}'));
    expect(planFilters(all)).toHaveLength(20);
  });

  it('leaves out what another filter brings, because some brokers send a message once for each', () => {
    expect(planFilters([pointOf('site/#'), pointOf('site/a'), pointOf('site/+/b'), pointOf('other')])).toEqual([
      'site/#',
      'other',
    ]);
  });

  it.each([
    ['a/#', 'a/+/b', true],
    ['a/+', 'a/b', true],
    ['a/+', 'a/#', false],
    ['+/b', 'a/+', false],
    ['#', '$SYS/x', false],
    ['+/+', '+/b', true],
    ['a/#', 'a', true],
  ])('%s covers %s: %s', (wide, narrow, expected) => {
    expect(covers(wide, narrow)).toBe(expected);
  });

  it('finds the values of a message, with and without wildcards', () => {
    const router = new TopicRouter([pointOf('a/b'), pointOf('a/+'), pointOf('a/#'), pointOf('c')]);
    expect(router.pointsOf('a/b').map(({ name }) => name)).toEqual(['a/b', 'a/+', 'a/#']);
    expect(router.pointsOf('d')).toEqual([]);
  });
});

describe('the window of a broker', () => {
  /** Gives whether the commit was hurried. */
  function round(window: BrokerWindow, atMs: number, count: number, comesInBurst: boolean): boolean {
    const wasHurried = window.stalled(count);
    window.confirmed(atMs);
    for (let n = 0; n < 5; n++) window.arrived(atMs + (comesInBurst ? n : 100 + n * 50));
    return wasHurried;
  }

  it('is learned from a flow that stops and comes in a burst once what waits was confirmed', () => {
    const window = new BrokerWindow(2_000);
    expect(round(window, 0, 5, true)).toBe(false);
    expect([window.size, round(window, 1_000, 5, true)]).toEqual([5, true]);
  });

  it('of a broker that was only quiet costs one early commit for each size, and no more', () => {
    const window = new BrokerWindow(2_000);
    expect([round(window, 0, 12, false), round(window, 1_000, 12, false)]).toEqual([true, false]);
    expect([round(window, 2_000, 13, false), round(window, 3_000, 13, false)]).toEqual([true, false]);
    expect(window.size).toBeUndefined();
    // 20 was one after all.
    expect([round(window, 4_000, 20, true), round(window, 5_000, 20, true)]).toEqual([true, true]);
    expect(window.size).toBe(20);
  });

  it.each([
    { what: 'learned where a busy machine is late with its burst', comes: [180, 181, 182], size: 20 },
    { what: 'not taken from a flow that is even', comes: [20, 45, 70], size: undefined },
    { what: 'not taken from a burst that was sent long after', comes: [900, 901, 902], size: undefined },
  ])('is $what', ({ comes, size }) => {
    const window = new BrokerWindow(2_000);
    window.stalled(20);
    window.confirmed(0);
    for (const atMs of comes) window.arrived(atMs);
    expect(window.size).toBe(size);
  });

  it('once learned is not forgotten over a quiet moment, and was none where more comes', () => {
    const window = new BrokerWindow(2_000);
    expect([round(window, 0, 20, true), round(window, 1_000, 20, false), round(window, 2_000, 20, true)]).toEqual([
      true,
      true,
      true,
    ]);
    expect([window.size, round(window, 3_000, 33, false), window.size]).toEqual([20, true, undefined]);
  });

  it('is full at what this client allows', () => {
    expect(new BrokerWindow(7).stalled(7)).toBe(true);
  });
});
