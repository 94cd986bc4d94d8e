import type { Reading } from './reading.ts';

/** Parses durations and sizes (docs/interface.md). */

const MS_OF: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const BYTES_OF: Readonly<Record<string, number>> = {
  b: 1,
  kb: 1000,
  mb: 1000 ** 2,
  gb: 1000 ** 3,
  tb: 1000 ** 4,
  kib: 1024,
  mib: 1024 ** 2,
  gib: 1024 ** 3,
  tib: 1024 ** 4,
};

/** Pattern of the text that `readDuration` accepts. Does not include its limits. Also used in JSON Schemas. */
export const DURATION_PATTERN = '^(0|[0-9]+(\\.[0-9]+)?(ms|s|m|h|d))$';
const DURATION_EXAMPLES = '500ms, 10s, 5m, 24h or 7d';
const SIZE_EXAMPLES = '480kB, 20MiB or 2GiB';
/** Longer than a gateway's lifetime, but small enough that sums of times remain exact. */
const MAX_MS = 3650 * 86_400_000;

/** Parses `500ms`, `10s`, `5m`, `24h`, `7d` or `0` to whole milliseconds. */
export function readDuration(text: string): Reading<number> {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)?$/.exec(text.trim());
  const amount = Number(match?.[1]);
  if (match === null) return { reason: 'is not a duration', instead: `use ${DURATION_EXAMPLES}` };
  const unit = match[2];
  if (unit === undefined) {
    if (amount === 0) return { value: 0 };
    return { reason: 'has no unit', instead: `use ${match[1]}s for seconds or ${match[1]}ms for milliseconds` };
  }
  const value = Math.round(amount * MS_OF[unit]!);
  if (value > MAX_MS) return { reason: 'is longer than ten years', instead: `use ${DURATION_EXAMPLES}` };
  if (value === 0 && amount > 0) return { reason: 'is less than a millisecond', instead: `use ${DURATION_EXAMPLES}` };
  return { value };
}

/** Parses `480kB` (1,000), `2GiB` (1,024) or a number of bytes to whole bytes. */
export function readSize(text: string): Reading<number> {
  const match = /^(\d+(?:\.\d+)?) ?([A-Za-z]*)$/.exec(text.trim());
  if (match === null) return { reason: 'is not a size', instead: `use ${SIZE_EXAMPLES}` };
  const [, digits, unit] = match as unknown as [string, string, string];
  const factor = unit === '' ? 1 : BYTES_OF[unit.toLowerCase()];
  if (factor === undefined) {
    if (/^[kmgt]i?$/i.test(unit)) {
      const letter = unit[0]!.toLowerCase() === 'k' ? 'k' : unit[0]!.toUpperCase();
      const binary = `${letter.toUpperCase()}iB`;
      return {
        reason: 'has an ambiguous unit',
        instead: `use ${digits}${letter}B (1,000s) or ${digits}${binary} (1,024s)`,
      };
    }
    return { reason: 'is not a size', instead: `use ${SIZE_EXAMPLES}` };
  }
  const value = Math.floor(Number(digits) * factor);
  if (!Number.isSafeInteger(value)) return { reason: 'is larger than any disk', instead: `use ${SIZE_EXAMPLES}` };
  return { value };
}

/** Parses a size or a share of the file system, such as `5%`. */
export function readSizeOrShare(text: string): Reading<{ bytes: number } | { share: number }> {
  const percent = /^(\d+(?:\.\d+)?) ?%$/.exec(text.trim());
  if (percent !== null) {
    const share = Number(percent[1]) / 100;
    if (share < 1) return { value: { share } };
    return { reason: 'leaves no space for the buffer', instead: 'use less than 100%, for example 5%' };
  }
  const size = readSize(text);
  return 'value' in size
    ? { value: { bytes: size.value } }
    : { ...size, instead: `${size.instead}, or a percentage such as 5%` };
}
