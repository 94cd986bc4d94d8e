import type { SourceKind } from '../../../../src/sources/source-kind.ts';
import type { CounterSpec, CounterValue } from './counter-source.ts';

/** Example of a source kind: counts polls. `lamp: { counter: 10, every: 1s }`, `from: lamp, step: 2`. */
export const COUNTER: SourceKind<CounterSpec, CounterValue> = {
  kind: 'counter',
  sourceMembers: {
    counter: { type: 'integer', title: 'a number', description: 'Counter: first number.', examples: [10] },
  },
  valueMembers: {
    step: { type: 'integer', minimum: 1, title: 'a step of at least 1', description: 'Counter: step.', examples: [2] },
  },
  needs: { member: 'step', example: 'step: 1' },
  everyMs: 1_000,
  readSource: ({ counter }) => ({ first: Number(counter) }),
  readValue({ step }, report) {
    if (Number(step) % 7 !== 0) return { step: Number(step) };
    report.problem('step', `step ${step} is a multiple of seven`, 'use another step');
    return undefined;
  },
  addressOf: ({ first }, { step }) => `from ${first} by ${step}`,
  async open(context) {
    const { CounterSource } = await import('./counter-source.ts');
    return new CounterSource(context);
  },
};
