import type { SchemaObject } from 'ajv';
import { readDuration } from '../base/quantity.ts';
import type { Reading } from '../base/reading.ts';
import { DURATION_SCHEMA } from './duration-schema.ts';
import { shown } from './problem.ts';
import type { MemberReport, Members, SourceKinds, SourceReading } from './source-kinds.ts';
import { type Shaping, UNSHAPED } from './tags.ts';
import { WRITABLE_SCHEMA } from './writable.ts';

/** Schemas and meanings of the members common to all kinds of sources and values (docs/interface.md, tags.yaml). */

export function commonSourceMembers(kinds: SourceKinds): Readonly<Record<string, SchemaObject>> {
  const periods = kinds.flatMap(({ kind, everyMs }) => {
    if (everyMs === undefined) return [];
    return [everyMs === 0 ? `${kind} none (runs continuously)` : `${kind} ${everyMs / 1000}s`];
  });
  return {
    every: { ...DURATION_SCHEMA, description: `Interval between reads. Default: ${periods.join(', ')}.` },
    time_from: {
      enum: ['arrival', 'source'],
      default: 'source',
      description: 'Timestamp of a value: its own (source), or the arrival time.',
    },
  };
}

const NUMBER = { type: 'number', title: 'a number' };

export const COMMON_VALUE_MEMBERS: Readonly<Record<string, SchemaObject>> = {
  scale: { ...NUMBER, default: 1, description: 'Value = raw x scale + offset.', examples: [0.1] },
  offset: { ...NUMBER, default: 0, description: 'Value = raw x scale + offset.', examples: [-40] },
  no_value: {
    type: ['number', 'string', 'array'],
    items: { type: ['number', 'string'], maxLength: 256, title: 'a number, a text or a bit pattern' },
    minItems: 1,
    maxItems: 100,
    title: 'a number, a text, a bit pattern such as 0x8000, or a list of them',
    description:
      'Raw numbers and texts that mean "no value". Modbus: numbers, register bit patterns, or sunspec (SunSpec codes).',
    examples: [-9999, 'NAN', '[0x7FFF, 0x8000]'],
  },
  range: {
    type: 'array',
    items: NUMBER,
    minItems: 2,
    maxItems: 2,
    title: 'a list of the lowest and the highest value',
    description: 'Lowest and highest plausible value after scaling. Other readings are failures.',
    examples: [[-40, 125]],
  },
  every: { ...DURATION_SCHEMA, description: "Interval between reads of this value. Default: the source's interval." },
  deadband: {
    type: ['number', 'string'],
    minimum: 0,
    pattern: '^\\d+(\\.\\d+)?\\s*%$',
    title: 'a number or a percentage such as "1%"',
    description: 'Minimum difference from the previously sent value.',
    examples: [0.5, '1%'],
  },
  on_change: {
    const: true,
    title: 'true',
    description: 'Sends only values that differ from the previously sent value.',
    examples: [true],
  },
  max_silence: {
    ...DURATION_SCHEMA,
    description: 'Maximum time between two values sent, regardless of the dead band.',
    examples: ['10m'],
  },
  on_failure: {
    enum: ['skip', 'bad'],
    default: 'skip',
    description: 'Action after a failed read: skip sends nothing, bad sends the last value once with status bad.',
  },
  writable: WRITABLE_SCHEMA,
};

const MIN_EVERY_MS = 10;
const MAX_EVERY_MS = 7 * 86_400_000;

/** Returns the polling interval, or `undefined` after reporting a problem. */
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
  report.problem('every', `every "${every}" ${reason}`, 'use a duration from 10ms to 7d, for example 1s');
  return undefined;
}

/** Returns how readings are processed, or `undefined` after reporting a problem. */
export function readShaping(raw: Members, report: MemberReport): Shaping | undefined {
  const { scale = 1, offset = 0, deadband, on_change: onChange, max_silence: maxSilence, on_failure: onFailure } = raw;
  const shaping: Shaping = { ...UNSHAPED, scale: scale as number, offset: offset as number };
  if (scale === 0 || !Number.isFinite(scale)) {
    report.problem(
      'scale',
      `scale ${scale} reduces every value to zero or overflows`,
      'use a value such as 0.1, or omit it',
    );
    return undefined;
  }
  if (!Number.isFinite(offset)) {
    report.problem(
      'offset',
      `offset ${offset} exceeds the precision of a value`,
      'use a value such as -40, or omit it',
    );
    return undefined;
  }
  if (raw.range !== undefined) {
    const [low, high] = raw.range as [number, number];
    if (low >= high) {
      const instead = low === high ? 'set the lowest and the highest value' : `use range: [${high}, ${low}]`;
      report.problem('range', `range [${low}, ${high}] must begin with the lower value`, instead);
      return undefined;
    }
    shaping.range = [low, high];
  }
  if (deadband !== undefined) shaping.deadband = deadbandOf(deadband as number | string);
  if (onChange === true) shaping.onChange = true;
  if (onFailure !== undefined) shaping.onFailure = onFailure as Shaping['onFailure'];
  if (maxSilence === undefined) return shaping;
  if (deadband === undefined && onChange !== true) {
    const reason = 'max_silence has no effect without deadband or on_change';
    report.problem('max_silence', reason, 'add one of them, such as on_change: true, or omit max_silence');
    return undefined;
  }
  const silence: Reading<number> = readDuration(String(maxSilence));
  if ('value' in silence && silence.value > 0) return { ...shaping, maxSilenceMs: silence.value };
  const reason = 'reason' in silence ? silence.reason : 'is zero';
  report.problem('max_silence', `max_silence "${maxSilence}" ${reason}`, 'use a value such as 10m, or omit it');
  return undefined;
}

/**
 * Returns the raw numbers and texts that mean "no value", or `undefined` after reporting a problem. `textOf` returns a number as
 * written, by its pointer below the member: 0x8000 is a bit pattern, although YAML reads it as 32768.
 */
export function readNoValue<Spec>(
  raw: Members,
  kind: SourceReading<unknown, Spec>,
  spec: Spec,
  report: MemberReport,
  textOf: (pointer: string) => string | undefined,
): readonly (number | string)[] | undefined {
  const codes: (number | string)[] = [];
  const isList = Array.isArray(raw.no_value);
  for (const [index, written] of ([raw.no_value].flat() as (number | string)[]).entries()) {
    const text = typeof written === 'string' ? written.trim() : (textOf(isList ? `/${index}` : '') ?? '');
    const isNumber = text !== '' && Number.isFinite(Number(text)) && !isPattern(text);
    const pattern = isPattern(text) ? text : written;
    const code = isNumber ? Number(text) : pattern;
    if (kind.noValueOf !== undefined) {
      const found = kind.noValueOf(spec, code);
      if ('numbers' in found) {
        codes.push(...found.numbers);
        continue;
      }
      report.problem('no_value', `no_value ${shown(code)} ${found.reason}`, found.instead);
      return undefined;
    }
    if (isPattern(text) || text === 'sunspec') {
      const what = isPattern(text) ? 'is a bit pattern' : 'represents register codes';
      const reason = `no_value ${shown(code)} ${what}, which only Modbus sources support`;
      report.problem('no_value', reason, 'use a number that the source sends, such as -9999');
      return undefined;
    }
    codes.push(isNumber ? Number(text) : text);
  }
  return codes;
}

const isPattern = (text: string) => /^0x/i.test(text);

function deadbandOf(written: number | string): { units: number } | { share: number } {
  return typeof written === 'number' ? { units: written } : { share: Number.parseFloat(written) / 100 };
}
