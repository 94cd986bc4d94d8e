/** Numbers as people read them. Times are UTC everywhere, so that a screen and a log line can be laid side by side. */

let numbers: Intl.NumberFormat | undefined;

/** `1,204`. Made when it is first needed, for it loads the world's languages: a twentieth of what a verb takes to start. */
export function countText(count: number): string {
  if (Number.isInteger(count) && count >= 0 && count < 1_000) return String(count);
  numbers ??= new Intl.NumberFormat('en');
  return numbers.format(count);
}

/** `1 event`, `2 events`; with a verb in both forms `1 value is`, `2 values are`. Every count that people read is written here. */
export function counted(count: number, what: string, verbOfOne = '', verbOfMany = verbOfOne): string {
  const verb = count === 1 ? verbOfOne : verbOfMany;
  return `${countText(count)} ${nounFor(count, what)}${verb === '' ? '' : ` ${verb}`}`;
}

/** The noun alone, for a count that is not written. */
export function nounFor(count: number, what: string): string {
  if (count === 1 || what === 'series') return what;
  return /[^aeiou]y$/.test(what) ? `${what.slice(0, -1)}ies` : `${what}s`;
}

/** `480 kB`, `1.2 GB`; 1,000 bytes a kB, as docs/interface.md writes sizes. */
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

/** `42 s`, `8 min 5 s`, `3 h 20 min`, `12 d 4 h`: the two largest units, the smaller one only where it says something. */
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

/** `2026-11-21 03:10:01` of an ISO 8601 text; `-` where there is none. */
export function timeText(iso: string | null | undefined): string {
  return iso ? iso.slice(0, 19).replace('T', ' ') : '-';
}
