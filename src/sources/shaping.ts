/** Pure: what becomes of a reading (docs/interface.md, tags.yaml, "every kind"). */
import type { Shaping } from '../config/tags.ts';

/** What was last sent of a value. */
export interface LastSent {
  value: number;
  isBad: boolean;
  /** Monotonic. */
  atMs: number;
}

/** raw x scale + offset, as a technician reckons: 3 x 0.1 is 0.3. */
export function scaledOf(raw: number, { scale, offset }: Pick<Shaping, 'scale' | 'offset'>): number {
  if (scale === 1 && offset === 0) return raw;
  const value = raw * scale + offset;
  return Number.isFinite(value) ? Number(value.toPrecision(15)) : value;
}

/** Whether a value goes out; `last` is what went out before it. */
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

/** The last digits of a difference are chance: 0.4 lies no further than 0.1 from 0.3. */
const CHANCE = 1 + 1e-9;

function isBeyond(deadband: NonNullable<Shaping['deadband']>, from: number, value: number): boolean {
  const units = 'units' in deadband ? deadband.units : Math.abs(from) * deadband.share;
  return Math.abs(value - from) > units * CHANCE;
}
