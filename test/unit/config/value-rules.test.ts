import { describe, expect, it } from 'vitest';
import { check } from './folder.ts';

const TAGS = `tags:
  FT-101:
    asset: 881
    instrumentation: 4711
    values: { flow: {}, Level: { group: process }, a: { group: x }, A2: {} }
`;

/** A rule with this `if`, on line 4, and further members. */
const checkRule = (condition: string, more = '') =>
  check({
    'tags.yaml': TAGS,
    'reactions.yaml': `reactions:\n  - name: r\n    on: value\n    if: ${condition}\n    do: [{ log: warn }]\n${more}`,
  });

const FLOW = 'tag: FT-101, key: flow';

describe('value rule', () => {
  it.each([
    [`{ ${FLOW}, above: 80 }`, { kind: 'above', raise: 80 }, 0],
    [`{ ${FLOW}, above: 80, clear_below: 75, for: 5s }`, { kind: 'above', raise: 80, clear: 75 }, 5_000],
    [`{ ${FLOW}, below: 10, clear_above: 15 }`, { kind: 'below', raise: 10, clear: 15 }, 0],
    [`{ ${FLOW}, outside: [10, 90] }`, { kind: 'outside', low: 10, high: 90 }, 0],
    [`{ ${FLOW}, changes: true }`, { kind: 'changes' }, 0],
    [`{ ${FLOW}, quality: bad }`, { kind: 'bad' }, 0],
    [`{ ${FLOW}, silent: 60s }`, { kind: 'silent', ms: 60_000 }, 0],
    [`{ ${FLOW}, rate_above: { change: 2, per: 1s } }`, { kind: 'rate', change: 2, perMs: 1_000 }, 0],
  ])('is read from %s', (condition, expected, forMs) => {
    const { configuration, lines } = checkRule(condition);
    expect(lines).toEqual([]);
    expect(configuration!.reactions).toMatchObject([
      {
        name: 'r',
        on: ['value_raised'],
        conditions: [{ kind: 'equals', path: 'rule', anyOf: ['r'] }],
        rule: { tag: 'FT-101', asset: 881, instrumentation: 4711, key: 'flow', condition: expected, forMs },
      },
    ]);
  });

  it('adds a reaction that runs when it clears if on_clear is given', () => {
    const { configuration, lines } = checkRule(`{ ${FLOW}, above: 80 }`, '    on_clear: [{ log: info }]\n');
    expect(lines).toEqual([]);
    const [, cleared] = configuration!.reactions;
    expect(cleared).toMatchObject({ name: 'r', on: ['value_cleared'], actions: [{ kind: 'log', level: 'info' }] });
    expect(cleared!.rule).toBeUndefined();
  });

  it('finds the key and its group regardless of case', () => {
    const { configuration } = checkRule('{ tag: FT-101, key: LEVEL, above: 1 }');
    expect(configuration!.reactions[0]!.rule).toMatchObject({ key: 'level', group: 'process' });
  });

  it.each([
    [`{ ${FLOW} }`, 'the rule has no condition'],
    [`{ ${FLOW}, above: 1, below: 2 }`, 'a rule on values must have one condition, not above and below'],
    ['{ tag: [T], key: flow, above: 1 }', 'a rule on values must have one tag, not a list'],
    ['{ key: flow, above: 1 }', 'tag is missing'],
    ['{ tag: FT-101, above: 1 }', 'key is missing'],
    ['{ tag: FT-102, key: flow, above: 1 }', 'tags.yaml contains no tag "FT-102"'],
    ['{ tag: FT-101, key: flew, above: 1 }', 'the tag "FT-101" has no value "flew"'],
    [`{ ${FLOW}, above: high }`, 'above must be a number'],
    [`{ ${FLOW}, above: 80, clear_below: 85 }`, 'clear_below 85 overlaps with above 80'],
    [`{ ${FLOW}, below: 10, clear_above: 5 }`, 'clear_above 5 overlaps with below 10'],
    [`{ ${FLOW}, above: 80, clear_above: 75 }`, '"clear_above" does not apply to above'],
    [`{ ${FLOW}, outside: [90, 10] }`, 'outside must be two numbers in ascending order'],
    [`{ ${FLOW}, changes: false }`, 'changes must be true'],
    [`{ ${FLOW}, quality: good }`, 'quality must be bad'],
    [`{ ${FLOW}, silent: 60 }`, 'silent "60" has no unit'],
    [`{ ${FLOW}, silent: 60s, for: 5s }`, '"for" does not apply to silent'],
    [`{ ${FLOW}, above: 1, for: 0s }`, 'for "0s" must be longer than 0'],
    [`{ ${FLOW}, rate_above: 2 }`, 'rate_above requires change and per'],
  ])('is rejected with its line: %s', (condition, reason) => {
    const { errors } = checkRule(condition);
    expect(errors).toEqual([expect.stringContaining(`DIR/reactions.yaml:4: ${reason}, `)]);
  });

  it('cannot have on_clear if it is never cleared', () => {
    const { errors } = checkRule(`{ ${FLOW}, changes: true }`, '    on_clear: [{ log: info }]\n');
    expect(errors).toEqual(['DIR/reactions.yaml:6: a rule with changes is never cleared, remove on_clear']);
  });
});

describe('reaction to platform events', () => {
  it('cannot have on_clear or rate_above', () => {
    const { errors } = check({
      'reactions.yaml':
        'reactions:\n  - name: r\n    on: threshold_reached\n    if: { data.value: { change: 1 } }\n    do: [{ log: warn }]\n    on_clear: [{ log: info }]\n',
    });
    expect(errors).toEqual([
      'DIR/reactions.yaml:4: "data.value" can only be compared with above and below, use a value such as { above: 20 }',
      'DIR/reactions.yaml:6: on_clear requires on: value, remove on_clear',
    ]);
  });
});
