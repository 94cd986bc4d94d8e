import type { SchemaObject } from 'ajv';
import { readDuration } from '../base/quantity.ts';
import type { Reading } from '../base/reading.ts';
import { DURATION_SCHEMA } from './duration-schema.ts';
import type { MemberReport, Members, SourceKinds, SourceReading } from './source-kinds.ts';
import { AS_IT_COMES, type Shaping } from './tags.ts';

/** Members that sources and values of every kind have (docs/interface.md, tags.yaml): their shapes and their meaning. */

export function commonSourceMembers(kinds: SourceKinds): Readonly<Record<string, SchemaObject>> {
  const periods = kinds.flatMap(({ kind, everyMs }) => (everyMs === undefined ? [] : [`${kind} ${everyMs / 1000}s`]));
  return {
    every: { ...DURATION_SCHEMA, description: `How often it is read; unless told ${periods.join(', ')}.` },
    time_from: {
      enum: ['arrival', 'source'],
      default: 'source',
      description: 'Whose time counts where a value comes with one: its own (source), or that of its arrival.',
    },
  };
}

const NUMBER = { type: 'number', title: 'a number' };

export const COMMON_VALUE_MEMBERS: Readonly<Record<string, SchemaObject>> = {
  scale: { ...NUMBER, default: 1, description: 'The value is what was read x scale + offset.', examples: [0.1] },
  offset: { ...NUMBER, default: 0, description: 'The value is what was read x scale + offset.', examples: [-40] },
  every: { ...DURATION_SCHEMA, description: 'How often this value is read, where not as often as its source.' },
  deadband: {
    type: ['number', 'string'],
    minimum: 0,
    pattern: '^\\d+(\\.\\d+)?\\s*%$',
    title: 'a number or a share like "1%"',
    description: 'Sent only when it lies further than this from the last one sent.',
    examples: [0.5, '1%'],
  },
  on_change: {
    const: true,
    title: 'true',
    description: 'Sent only when it differs from the last one sent.',
    examples: [true],
  },
  max_silence: {
    ...DURATION_SCHEMA,
    description: 'Sent at least so often, whatever the dead band.',
    examples: ['10m'],
  },
  on_failure: {
    enum: ['skip', 'bad'],
    default: 'skip',
    description: 'What a failure to read sends: nothing, or the last value once more with the status bad.',
  },
};

const MIN_EVERY_MS = 10;
const MAX_EVERY_MS = 7 * 86_400_000;

/** How often something is read; `undefined` where what stands there has a problem. */
export function readEvery(
  raw: Members,
  kind: SourceReading,
  fallback: number,
  report: MemberReport,
): number | undefined {
  const { every } = raw;
  if (every === undefined || kind.everyMs === undefined) return kind.everyMs === undefined ? 0 : fallback;
  const reading = readDuration(String(every));
  const ms = 'value' in reading ? reading.value : Number.NaN;
  if (ms >= MIN_EVERY_MS && ms <= MAX_EVERY_MS) return ms;
  const reason = 'reason' in reading ? reading.reason : ms < MIN_EVERY_MS ? 'is too short' : 'is too long';
  report.problem('every', `every "${every}" ${reason}`, 'write from 10ms to 7d, for example 1s');
  return undefined;
}

/** What becomes of readings; `undefined` where a member has a problem. */
export function readShaping(raw: Members, report: MemberReport): Shaping | undefined {
  const { scale = 1, offset = 0, deadband, on_change: onChange, max_silence: maxSilence, on_failure: onFailure } = raw;
  const shaping: Shaping = { ...AS_IT_COMES, scale: scale as number, offset: offset as number };
  if (scale === 0 || !Number.isFinite(scale)) {
    report.problem('scale', `scale ${scale} leaves nothing of the value`, 'write for example 0.1, or leave it out');
    return undefined;
  }
  if (!Number.isFinite(offset)) {
    report.problem('offset', `offset ${offset} leaves nothing of the value`, 'write for example -40, or leave it out');
    return undefined;
  }
  if (deadband !== undefined) shaping.deadband = deadbandOf(deadband as number | string);
  if (onChange === true) shaping.onChange = true;
  if (onFailure !== undefined) shaping.onFailure = onFailure as Shaping['onFailure'];
  if (maxSilence === undefined) return shaping;
  const silence: Reading<number> = readDuration(String(maxSilence));
  if ('value' in silence && silence.value > 0) return { ...shaping, maxSilenceMs: silence.value };
  const reason = 'reason' in silence ? silence.reason : 'is no time at all';
  report.problem('max_silence', `max_silence "${maxSilence}" ${reason}`, 'write for example 10m, or leave it out');
  return undefined;
}

function deadbandOf(written: number | string): { units: number } | { share: number } {
  return typeof written === 'number' ? { units: written } : { share: Number.parseFloat(written) / 100 };
}
