import { DURATION_SCHEMA } from '../../config/duration-schema.ts';
import type { Members } from '../../config/source-kinds.ts';
import { readDurationMember } from '../duration-member.ts';
import type { SourceKind } from '../source-kind.ts';
import type { SimulateSpec, SimulateValue } from './simulate-source.ts';

const PERIOD = { minMs: 1, maxMs: Number.POSITIVE_INFINITY, range: 'greater than 0', example: '1m' };

/** A simulated plant: `play: { simulate: true }`. */
export const SIMULATE: SourceKind<SimulateSpec, SimulateValue> = {
  kind: 'simulate',
  sourceMembers: {
    simulate: { const: true, title: 'true', description: 'Generated values for trials.', examples: [true] },
    period: { ...DURATION_SCHEMA, description: 'Simulate: period of a sine or ramp. Default: 1m.' },
  },
  valueMembers: {
    shape: {
      enum: ['sine', 'ramp', 'walk', 'noise', 'step'],
      default: 'sine',
      description: 'Simulate: shape of the curve.',
    },
    low: { type: 'number', default: 0, title: 'a number', description: 'Simulate: the lowest value.', examples: [0] },
    high: {
      type: 'number',
      default: 100,
      title: 'a number',
      description: 'Simulate: the highest value.',
      examples: [100],
    },
  },
  everyMs: 1_000,
  readSource(raw: Members, report) {
    const periodMs = readDurationMember(raw, 'period', 60_000, PERIOD, report);
    return periodMs === undefined ? undefined : { periodMs };
  },
  readValue(raw: Members, report) {
    const [low, high] = [Number(raw.low ?? 0), Number(raw.high ?? 100)];
    if (low < high) return { shape: (raw.shape ?? 'sine') as SimulateValue['shape'], low, high };
    const member = raw.low === undefined ? 'high' : 'low';
    return report.problem(member, `low ${low} must be less than high ${high}`, 'set a low that is less than high');
  },
  addressOf: (_, { shape }) => shape,
  async open(context) {
    const { SimulateSource } = await import('./simulate-source.ts');
    return new SimulateSource(context);
  },
};
