/** The `writable` member of a value: the limits within which the agent may write the value. */
import type { SchemaObject } from 'ajv';
import { readDuration } from '../base/quantity.ts';
import { DURATION_SCHEMA } from './duration-schema.ts';
import type { MemberReport, Members, SourceKinds, SourceReading } from './source-kinds.ts';
import type { Shaping, Writable } from './tags.ts';

const NUMBER = { type: 'number', title: 'a number' };

export const WRITABLE_SCHEMA: SchemaObject = {
  type: 'object',
  title: 'a mapping with min and max',
  description: 'Allows reactions and `tagferry write` to write the value within these limits. Requires WRITES=on.',
  examples: [{ min: 0, max: 100 }],
  additionalProperties: false,
  required: ['min', 'max'],
  properties: {
    min: { ...NUMBER, description: 'Lowest value that may be written.', examples: [0] },
    max: { ...NUMBER, description: 'Highest value that may be written.', examples: [100] },
    max_rate: {
      type: 'object',
      title: 'a mapping with change and per',
      description: 'Maximum change by writes within a period.',
      examples: [{ change: 10, per: '1m' }],
      additionalProperties: false,
      required: ['change', 'per'],
      properties: {
        change: { ...NUMBER, minimum: 0, description: 'Maximum change of the value.', examples: [10] },
        per: { ...DURATION_SCHEMA, description: 'Period.', examples: ['1m'] },
      },
    },
    verify: {
      type: 'boolean',
      default: true,
      title: 'true or false',
      description: 'Whether the value is read back after a write.',
    },
    tolerance: {
      ...NUMBER,
      minimum: 0,
      default: 0,
      description: 'Maximum difference between the value written and the value read back.',
      examples: [0.5],
    },
  },
};

interface RawWritable {
  min: number;
  max: number;
  max_rate?: { change: number; per: string | number };
  verify?: boolean;
  tolerance?: number;
}

/**
 * Targets of the writable values read so far. Two values that write one target would bypass each other's range, rate
 * and order.
 */
export class WrittenTargets<Owner> {
  readonly #owners = new Map<string, Owner>();

  /** Adds the targets of a value. If another value writes one of them, adds nothing and returns that value. */
  claim(targets: readonly string[], owner: Owner): Owner | undefined {
    const other = targets.map((target) => this.#owners.get(target)).find((found) => found !== undefined);
    if (other === undefined) for (const target of targets) this.#owners.set(target, owner);
    return other;
  }
}

const MAX_PERIOD_MS = 7 * 86_400_000;

/** Returns the raw number that a device receives for a value: the inverse of `scaledOf`, in decimal arithmetic. */
export function rawOf(value: number, { scale, offset }: Pick<Shaping, 'scale' | 'offset'>): number {
  if (scale === 1 && offset === 0) return value;
  return Number(((value - offset) / scale).toPrecision(15));
}

/** Reads a value's write limits. Returns `undefined` after reporting a problem. */
export function readWritable(
  raw: Members,
  { kind, kinds, shaping, spec }: { kind: SourceReading; kinds: SourceKinds; shaping: Shaping; spec: unknown },
  report: MemberReport,
): Writable | undefined {
  const written = raw.writable as RawWritable;
  if (kind.writing === undefined) {
    const supported = kinds.filter(({ writing }) => writing !== undefined).map((one) => one.kind);
    const instead = `remove it; values of these kinds can be written: ${supported.join(', ')}`;
    report.problem('writable', `values of ${kind.kind} sources cannot be written`, instead);
    return undefined;
  }
  if (raw.map !== undefined) {
    report.problem('writable', 'a value with map cannot be written', 'remove map or writable');
    return undefined;
  }
  const refusal = kind.writing.problem(spec);
  if (refusal !== undefined) {
    report.problem('writable', refusal.reason, refusal.instead);
    return undefined;
  }
  const { min, max, max_rate: rate, verify = true, tolerance = 0 } = written;
  if (min > max) {
    report.problem('writable', `min ${min} is greater than max ${max}`, `use at most ${max}`);
    return undefined;
  }
  for (const [member, bound] of [['min', min] as const, ['max', max] as const]) {
    if (kind.writing.storedFor(spec, rawOf(bound, shaping)) !== undefined) continue;
    const reason = `${member} ${bound} does not fit the type of the value`;
    report.problem('writable', reason, 'use a number that the type can contain, after scale and offset');
    return undefined;
  }
  if (rate === undefined) return { min, max, verify, tolerance };
  const period = readDuration(String(rate.per));
  const perMs = 'value' in period ? period.value : Number.NaN;
  if (perMs > 0 && perMs <= MAX_PERIOD_MS) {
    return { min, max, maxRate: { change: rate.change, perMs }, verify, tolerance };
  }
  const reason = 'reason' in period ? period.reason : 'must be between 1ms and 7d';
  report.problem('writable', `per "${rate.per}" ${reason}`, 'use a value such as 1m');
  return undefined;
}
