/**
 * Readings are decimals that happen to be held in doubles: 20.37 is the whole number 2037 with two digits behind the
 * point, and stored so it takes two bytes instead of eight. Only where that is exact: `wholeOf` and back gives the
 * same double bit for bit, or it is not used.
 */

/** 10^0 … 10^12 are exact doubles, and so is the division by them. More digits than twelve behind the point are no reading. */
export const POWERS_OF_TEN: readonly number[] = [1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12];
export const MAX_DIGITS = 12;

/** Beyond this a difference of two no longer fits a varint. */
const MAX_WHOLE = 2 ** 50;

/** Stands for "no whole number is exactly this": -0, too large, too many digits. */
const NOT_WHOLE = Number.NaN;

/** `value` × 10^`digits` where that is whole and exact in both directions, else `NOT_WHOLE`. */
export function wholeOf(value: number, digits: number): number {
  const power = POWERS_OF_TEN[digits]!;
  const whole = Math.round(value * power);
  if (whole / power !== value || whole > MAX_WHOLE || whole < -MAX_WHOLE) return NOT_WHOLE;
  // -0 divides and compares like 0 but is not 0.
  if (Object.is(value, -0)) return NOT_WHOLE;
  return whole;
}

/** The fewest digits with which `value` is exact; -1 where there are none. */
export function digitsOf(value: number): number {
  for (let digits = 0; digits <= MAX_DIGITS; digits++) {
    if (!Number.isNaN(wholeOf(value, digits))) return digits;
  }
  return -1;
}
