/** Powers of ten that a double holds exactly. */
const POWERS_OF_TEN = Array.from({ length: 23 }, (_, exponent) => 10 ** exponent);

/**
 * The number between `from` and `to`, exactly as `Number` reads it, without cutting the text out; NaN where it is no decimal
 * number (`Infinity`, `0x10`, blanks, nothing). May be infinite where the exponent is too large.
 *
 * Exact because an integer up to 2^53 and a power of ten up to 10^22 are exact doubles, and one division or
 * multiplication rounds once (Clinger's fast path); all others go to `Number`.
 */
export function parseDecimal(text: string, from: number, to: number): number {
  let at = from;
  const sign = text.charCodeAt(at);
  if (sign === 45 || sign === 43) at++;
  let mantissa = 0;
  let digits = 0;
  let decimals = 0;
  for (; at < to; at++) {
    const digit = text.charCodeAt(at) - 48;
    if (!(digit >= 0 && digit <= 9)) break;
    mantissa = mantissa * 10 + digit;
    digits++;
  }
  if (at < to && text.charCodeAt(at) === 46) {
    for (at++; at < to; at++) {
      const digit = text.charCodeAt(at) - 48;
      if (!(digit >= 0 && digit <= 9)) break;
      mantissa = mantissa * 10 + digit;
      digits++;
      decimals++;
    }
  }
  if (digits === 0) return Number.NaN;
  if (at < to) return isExponent(text, at, to) ? Number(text.slice(from, to)) : Number.NaN;
  if (digits > 15 || decimals > 22) return Number(text.slice(from, to));
  const value = decimals === 0 ? mantissa : mantissa / POWERS_OF_TEN[decimals]!;
  return sign === 45 ? -value : value;
}

function isExponent(text: string, from: number, to: number): boolean {
  if ((text.charCodeAt(from) | 32) !== 101) return false;
  let at = from + 1;
  const sign = text.charCodeAt(at);
  if (sign === 45 || sign === 43) at++;
  if (at >= to) return false;
  for (; at < to; at++) {
    const digit = text.charCodeAt(at) - 48;
    if (!(digit >= 0 && digit <= 9)) return false;
  }
  return true;
}
