/** Shaping of readings: mapping, scaling and dead bands (docs/interface.md, tags.yaml, "every kind"). Pure. */
import type { Shaping, ValueMap } from '../../config/tags.ts';
import type { Point } from '../points.ts';
import { quote } from './address-book.ts';
import { parseDecimal, unpadded } from './text-parsers.ts';

/** Reading as contained in the device, message or file. */
export type RawReading = number | string | boolean;

/** Advice for a text whose value has no map. */
export const TEXTS_NEED_MAP = 'for texts, set map in tags.yaml';

/** Returns the problem of a text that is not a number, with advice if it contains no digit. */
export function notANumber(text: string): string {
  return /^\P{L}*$|\d/u.test(text) ? 'is not a number' : `is not a number; ${TEXTS_NEED_MAP}`;
}

/** Maximum number of texts of a map in a problem. */
const MAX_LISTED = 10;

/**
 * Returns the number of a reading: the one in `map` for its text, otherwise its own. Returns `undefined` for a text
 * that is not a number, and for a number that a map with other numbers does not contain.
 */
export function numberOf(raw: RawReading, map: ValueMap | undefined): number | undefined {
  if (typeof raw === 'number' && map === undefined) return raw;
  const text = unpadded(String(raw));
  if (map !== undefined && Object.hasOwn(map.numbers, text)) return map.numbers[text];
  if (map === undefined) {
    const number = plainNumber(text);
    return Number.isNaN(number) ? undefined : number;
  }
  const number = typeof raw === 'number' ? raw : parseDecimal(text);
  const known = String(number);
  if (Object.hasOwn(map.numbers, known)) return map.numbers[known];
  return map.passesNumbers && Number.isFinite(number) ? number : undefined;
}

/** Whether texts of the value are read: those in its map, and those that mean "no value". */
export function readsTexts({ map, shaping }: Pick<Point, 'map' | 'shaping'>): boolean {
  return map !== undefined || shaping.noValue?.some((code) => typeof code === 'string') === true;
}

/** Returns the number in a text; `true` and `false` are 1 and 0. */
function plainNumber(text: string): number {
  if (text === 'true') return 1;
  return text === 'false' ? 0 : parseDecimal(text);
}

/** Describes a reading for which `numberOf` returns `undefined`. */
export function problemOfReading(raw: RawReading, map: ValueMap | undefined): string {
  const shown = typeof raw === 'string' ? quote(unpadded(raw)) : String(raw);
  if (map === undefined) return `${shown} ${notANumber(String(raw))}`;
  const texts = Object.keys(map.numbers);
  const listed = texts.slice(0, MAX_LISTED).map(quote);
  const more = texts.length > listed.length ? ', …' : '';
  return `${shown} is not in map (known: ${listed.join(', ')}${more})`;
}

/** Latest sent value of a series. */
export interface LastSent {
  value: number;
  isBad: boolean;
  /** Monotonic time. */
  atMs: number;
}

/** Reason why a reading is not a measurement, and suffix of the log event. */
export type NoMeasurement = 'not_a_number' | 'no_value' | 'out_of_range';

/**
 * Returns the number before scaling and the value to send for a raw reading. Applies codes for "no value", map, number
 * parsing, `exponent` (power of ten from a scale register), scale, offset and range, in this order. `isSent` then
 * determines whether the dead band suppresses the value.
 */
export function shape(
  raw: RawReading,
  { map, shaping }: Pick<Point, 'map' | 'shaping'>,
  exponent = 0,
): { number: number; value: number } | { problem: string; fault: NoMeasurement } {
  const number = numberOf(raw, map);
  const { noValue, range } = shaping;
  if (noValue !== undefined) {
    const forms = [number, numberOf(raw, undefined), typeof raw === 'string' ? unpadded(raw) : raw];
    // A device with 32-bit numbers sends 3276.7 as 3276.699951171875.
    const isCode = noValue.some(
      (code) => forms.includes(code) || (typeof code === 'number' && forms.includes(Math.fround(code))),
    );
    if (isCode) return { problem: `${raw} means "no value" (no_value)`, fault: 'no_value' };
  }
  if (number === undefined) return { problem: problemOfReading(raw, map), fault: 'not_a_number' };
  const value = scaledOf(exponent === 0 ? number : shifted(number, exponent), shaping);
  if (!Number.isFinite(value)) {
    return { problem: `${raw} is not a finite number after scaling`, fault: 'not_a_number' };
  }
  if (range !== undefined && (value < range[0] || value > range[1])) {
    return { problem: `${value} is outside range [${range[0]}, ${range[1]}]`, fault: 'out_of_range' };
  }
  return { number, value };
}

/** Returns a number x 10^exponent. A division by a power of ten is rounded correctly: 2346 / 10 is 234.6. */
function shifted(number: number, exponent: number): number {
  return exponent < 0 ? number / 10 ** -exponent : number * 10 ** exponent;
}

/** Returns raw x scale + offset, calculated in decimal arithmetic: 3 x 0.1 is 0.3. */
export function scaledOf(raw: number, { scale, offset }: Pick<Shaping, 'scale' | 'offset'>): number {
  if (scale === 1 && offset === 0) return raw;
  const value = raw * scale + offset;
  return Number.isFinite(value) ? Number(value.toPrecision(15)) : value;
}

/** Returns whether a value is sent, given the previously sent value. */
export function isSent(
  shaping: Shaping,
  last: LastSent | undefined,
  value: number,
  isBad: boolean,
  nowMs: number,
): boolean {
  if (last === undefined || last.isBad !== isBad) return true;
  const { deadband, onChange, maxSilenceMs } = shaping;
  if (deadband === undefined && !onChange) return true;
  if (maxSilenceMs !== undefined && nowMs - last.atMs >= maxSilenceMs) return true;
  if (onChange && value === last.value) return false;
  return deadband === undefined || isBeyond(deadband, last.value, value);
}

/** Tolerance for rounding errors in a difference: 0.4 and 0.3 must not differ by more than 0.1. */
const CHANCE = 1 + 1e-9;

function isBeyond(deadband: NonNullable<Shaping['deadband']>, from: number, value: number): boolean {
  const units = 'units' in deadband ? deadband.units : Math.abs(from) * deadband.share;
  return Math.abs(value - from) > units * CHANCE;
}
