import { beforeEach, describe, expect, it } from 'vitest';
import { silentLogger } from '../../../src/base/logger.ts';
import type { ValueCondition, ValueRule } from '../../../src/config/reactions.ts';
import type { ValueStatus } from '../../../src/contract/values.ts';
import {
  type RuleStore,
  type StoredRule,
  type ValueEvent,
  ValueRules,
} from '../../../src/reactions/values/value-rules.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const SERIES = 1;
let clock: ManualClock;
let stored: Map<string, StoredRule>;
let events: ValueEvent[];
let failures: number;
let rules: ValueRules;

const store: RuleStore = {
  read: async (rule) => stored.get(rule),
  add: async (event, rule, state) => {
    if (failures-- > 0) throw new Error('disk full');
    stored.set(rule, state);
    events.push(event);
  },
};

beforeEach(() => {
  clock = new ManualClock();
  stored = new Map();
  events = [];
  failures = 0;
  restart();
});

/** Starts a new run on the same store. */
function restart(): void {
  rules = new ValueRules({ store, clock, log: silentLogger() });
}

const ruleOf = (condition: ValueCondition, forMs = 0): ValueRule => ({
  name: 'high-flow',
  tag: 'FT-101',
  asset: 881,
  instrumentation: 4711,
  key: 'flow',
  condition,
  forMs,
});

async function use(condition: ValueCondition, forMs = 0): Promise<void> {
  await rules.replace([{ rule: ruleOf(condition, forMs), series: SERIES }]);
}

/** Accepts values one second apart. A number, or a value with a status. */
async function accept(...values: (number | [number, ValueStatus])[]): Promise<void> {
  for (const one of values) {
    const [value, status] = typeof one === 'number' ? [one, undefined] : one;
    rules.observe(SERIES, value, clock.wallMs(), status);
    await clock.advance(1_000);
  }
}

/** Transitions so far, with their values. */
const transitions = () =>
  events.map(({ eventType, payload }) => {
    const { value } = (JSON.parse(payload) as { content: { data: { value: number } } }).content.data;
    return `${eventType.slice(6)} ${value}`;
  });

describe('value rule', () => {
  it.each<[string, ValueCondition, (number | [number, ValueStatus])[], string[]]>([
    [
      'above a threshold',
      { kind: 'above', raise: 80 },
      [79, 80, 81, 90, 80, 81],
      ['raised 81', 'cleared 80', 'raised 81'],
    ],
    [
      'above, with hysteresis',
      { kind: 'above', raise: 80, clear: 75 },
      [81, 77, 75, 82, 74],
      ['raised 81', 'cleared 74'],
    ],
    ['below a threshold', { kind: 'below', raise: 10 }, [10, 9, 10, 11], ['raised 9', 'cleared 10']],
    ['below, with hysteresis', { kind: 'below', raise: 10, clear: 15 }, [9, 12, 15, 16], ['raised 9', 'cleared 16']],
    ['outside a range', { kind: 'outside', low: 0, high: 10 }, [0, 10, 11, -1, 5], ['raised 11', 'cleared 5']],
    ['each change', { kind: 'changes' }, [1, 1, 0, 0, 1], ['raised 0', 'raised 1']],
    ['the status bad', { kind: 'bad' }, [1, [2, 'bad'], [3, 'bad'], [4, 'uncertain']], ['raised 2', 'cleared 4']],
    ['the rate of change', { kind: 'rate', change: 2, perMs: 1_000 }, [0, 2, 5, 6], ['raised 5', 'cleared 6']],
  ])('is raised and cleared once per crossing: %s', async (_name, condition, values, expected) => {
    await use(condition);
    await accept(...values);
    expect(transitions()).toEqual(expected);
  });

  it('ignores values with status bad if its condition compares numbers', async () => {
    await use({ kind: 'above', raise: 80 });
    await accept([90, 'bad'], [90, 'uncertain'], [10, 'bad']);
    expect(transitions()).toEqual(['raised 90']);
  });

  it('is triggered once the condition has been met for the entire `for` duration', async () => {
    await use({ kind: 'above', raise: 80 }, 5_000);
    await accept(81, 82, 79, 83);
    await clock.advance(3_000);
    expect(transitions()).toEqual([]);
    await clock.advance(1_000);
    expect(transitions()).toEqual(['raised 83']);
    await accept(79);
    expect(transitions()).toEqual(['raised 83', 'cleared 79']);
  });

  it('is triggered if no value arrives in time, and cleared by the next value', async () => {
    await use({ kind: 'silent', ms: 60_000 });
    await accept(1);
    await clock.advance(58_000);
    await accept(2);
    await clock.advance(58_000);
    expect(transitions()).toEqual([]);
    await clock.advance(2_000);
    expect(transitions()).toEqual(['raised 2']);
    await accept(3);
    expect(transitions()).toEqual(['raised 2', 'cleared 3']);
  });

  it('is triggered even if no value ever arrives', async () => {
    await use({ kind: 'silent', ms: 60_000 });
    await clock.advance(60_000);
    expect(transitions()).toEqual(['raised null']);
  });

  it('creates an event in the platform format', async () => {
    await use({ kind: 'above', raise: 80 });
    const occurred_at = new Date(clock.wallMs()).toISOString();
    await accept([82.1, 'good']);
    expect(JSON.parse(events[0]!.payload)).toEqual({
      event_type: 'value_raised',
      occurred_at,
      content: {
        rule: 'high-flow',
        tag: 'FT-101',
        asset: { id: 881 },
        instrumentation: { id: 4711 },
        data: { key: 'flow', value: 82.1, timestamp: occurred_at, status: 'good' },
      },
    });
  });
});

describe('rule state', () => {
  it('survives a restart without a false transition', async () => {
    await use({ kind: 'above', raise: 80, clear: 75 });
    await accept(81);
    restart();
    await use({ kind: 'above', raise: 80, clear: 75 });
    await accept(90, 74);
    expect(transitions()).toEqual(['raised 81', 'cleared 74']);
  });

  it('includes the latest transition, so that a transition during a restart is reported', async () => {
    await use({ kind: 'changes' });
    await accept(0, 1);
    restart();
    await use({ kind: 'changes' });
    await accept(1, 0);
    expect(transitions()).toEqual(['raised 1', 'raised 0']);
  });

  it('is reset by a reload only if the condition changes', async () => {
    await use({ kind: 'above', raise: 80 });
    await accept(90);
    await use({ kind: 'above', raise: 80 });
    await accept(91);
    expect(transitions()).toEqual(['raised 90']);
    await use({ kind: 'above', raise: 85 });
    await accept(92);
    expect(transitions()).toEqual(['raised 90', 'raised 92']);
    expect(stored.get('high-flow')?.serial).toBe(2);
  });

  it('is deleted along with its rule, including timers', async () => {
    await use({ kind: 'silent', ms: 60_000 });
    await rules.replace([]);
    await clock.advance(120_000);
    expect(events).toEqual([]);
    expect(rules.uses(SERIES)).toBe(false);
  });

  it('is written in order after the store recovers, and delays only values in the same series', async () => {
    await use({ kind: 'above', raise: 80 });
    failures = 3;
    const stored = [81, 90, 79].map((value) => rules.observe(SERIES, value, clock.wallMs(), undefined));
    expect(rules.observe(SERIES + 1, 81, clock.wallMs(), undefined)).toBeUndefined();
    await clock.advance(1_000);
    expect(transitions()).toEqual([]);
    await clock.advance(3_000);
    await Promise.all(stored);
    expect(stored).toEqual([expect.any(Promise), expect.any(Promise), expect.any(Promise)]);
    expect(transitions()).toEqual(['raised 81', 'cleared 79']);
    expect(rules.observe(SERIES, 78, clock.wallMs(), undefined)).toBeUndefined();
  });

  it('is reported with its latest value', async () => {
    await use({ kind: 'above', raise: 80 }, 5_000);
    await accept(81);
    expect(rules.reports()).toEqual([
      {
        name: 'high-flow',
        tag: 'FT-101',
        key: 'flow',
        state: 'pending',
        sampledAgoMs: 1_000,
        value: 81,
        transitions: 0,
      },
    ]);
    await rules.stop();
  });
});
