/** Formats numbers for display. All times are UTC, so that screens and logs can be compared. */

let numbers: Intl.NumberFormat | undefined;

/**
 * Formats a count as `1,204`. The formatter is created on first use, because it loads locale data, which takes 5 % of a
 * command's startup time.
 */
export function countText(count: number): string {
  if (Number.isInteger(count) && count >= 0 && count < 1_000) return String(count);
  numbers ??= new Intl.NumberFormat('en');
  return numbers.format(count);
}

/**
 * Formats `1 event` or `2 events`, and with both verb forms `1 value is` or `2 values are`. Used for all displayed
 * counts.
 */
export function counted(count: number, what: string, verbOfOne = '', verbOfMany = verbOfOne): string {
  const verb = count === 1 ? verbOfOne : verbOfMany;
  return `${countText(count)} ${nounFor(count, what)}${verb === '' ? '' : ` ${verb}`}`;
}

/** Returns the singular or plural noun without the count. */
export function nounFor(count: number, what: string): string {
  if (count === 1 || what === 'series') return what;
  return /[^aeiou]y$/.test(what) ? `${what.slice(0, -1)}ies` : `${what}s`;
}

/** Formats sizes as `480 kB` or `1.2 GB`, with 1,000 bytes per kB (docs/interface.md). */
export function bytesText(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  let amount = bytes;
  let unit = 'B';
  for (unit of ['kB', 'MB', 'GB', 'TB']) {
    amount /= 1000;
    if (amount < 999.5) break;
  }
  return `${amount < 10 ? amount.toFixed(1) : Math.round(amount)} ${unit}`;
}

const UNITS: readonly [seconds: number, name: string][] = [
  [86_400, 'd'],
  [3600, 'h'],
  [60, 'min'],
  [1, 's'],
];

/**
 * Formats durations as `42 s`, `8 min 5 s`, `3 h 20 min` or `12 d 4 h`. Uses the two largest units, without the smaller
 * one if it is insignificant.
 */
export function durationText(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const at = UNITS.findIndex(([size]) => whole >= size);
  if (at < 0) return '0 s';
  const [size, name] = UNITS[at]!;
  const text = `${Math.floor(whole / size)} ${name}`;
  const next = UNITS[at + 1];
  const rest = next ? Math.floor((whole % size) / next[0]) : 0;
  return rest === 0 ? text : `${text} ${rest} ${next![1]}`;
}

/** Formats an ISO 8601 time as `2026-11-21 03:10:01`, or `-` if there is none. */
export function timeText(iso: string | null | undefined): string {
  return iso ? iso.slice(0, 19).replace('T', ' ') : '-';
}

/** Returns a wall-clock time as ISO 8601, or `undefined` if it is unknown or not representable. */
export function isoTime(ms: number | undefined): string | undefined {
  return ms === undefined || !(Math.abs(ms) <= 8.64e15) ? undefined : new Date(ms).toISOString();
}
