import type { Reading } from './reading.ts';

/** Durations and sizes as docs/interface.md writes them. */

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

/** For JSON Schemas too: what `readDuration` takes, up to its bounds. */
export const DURATION_PATTERN = '^(0|[0-9]+(\\.[0-9]+)?(ms|s|m|h|d))$';
const DURATION_EXAMPLES = '500ms, 10s, 5m, 24h or 7d';
const SIZE_EXAMPLES = '480kB, 20MiB or 2GiB';
/** Longer than any gateway lives; keeps sums of times exact. */
const MAX_MS = 3650 * 86_400_000;

/** `500ms`, `10s`, `5m`, `24h`, `7d`, or `0`; milliseconds, whole. */
export function readDuration(text: string): Reading<number> {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)?$/.exec(text.trim());
  const amount = Number(match?.[1]);
  if (match === null) return { reason: 'is not a duration', instead: `write ${DURATION_EXAMPLES}` };
  const unit = match[2];
  if (unit === undefined) {
    if (amount === 0) return { value: 0 };
    return { reason: 'has no unit', instead: `write ${match[1]}s for seconds or ${match[1]}ms for milliseconds` };
  }
  const value = Math.round(amount * MS_OF[unit]!);
  if (value > MAX_MS) return { reason: 'is longer than ten years', instead: `write ${DURATION_EXAMPLES}` };
  if (value === 0 && amount > 0) return { reason: 'is less than a millisecond', instead: `write ${DURATION_EXAMPLES}` };
  return { value };
}

/** `480kB` (1,000), `2GiB` (1,024), a bare number is bytes; whole bytes. */
export function readSize(text: string): Reading<number> {
  const match = /^(\d+(?:\.\d+)?) ?([A-Za-z]*)$/.exec(text.trim());
  if (match === null) return { reason: 'is not a size', instead: `write ${SIZE_EXAMPLES}` };
  const [, digits, unit] = match as unknown as [string, string, string];
  const factor = unit === '' ? 1 : BYTES_OF[unit.toLowerCase()];
  if (factor === undefined) {
    if (/^[kmgt]i?$/i.test(unit)) {
      const letter = unit[0]!.toLowerCase() === 'k' ? 'k' : unit[0]!.toUpperCase();
      const binary = `${letter.toUpperCase()}iB`;
      return {
        reason: 'does not say which bytes it counts',
        instead: `write ${digits}${letter}B (1,000s) or ${digits}${binary} (1,024s)`,
      };
    }
    return { reason: 'is not a size', instead: `write ${SIZE_EXAMPLES}` };
  }
  const value = Math.floor(Number(digits) * factor);
  if (!Number.isSafeInteger(value)) return { reason: 'is larger than any disk', instead: `write ${SIZE_EXAMPLES}` };
  return { value };
}

/** A size, or a share of the file system: `5%`. */
export function readSizeOrShare(text: string): Reading<{ bytes: number } | { share: number }> {
  const percent = /^(\d+(?:\.\d+)?) ?%$/.exec(text.trim());
  if (percent !== null) {
    const share = Number(percent[1]) / 100;
    if (share < 1) return { value: { share } };
    return { reason: 'leaves nothing for the buffer', instead: 'write less than 100%, for example 5%' };
  }
  const size = readSize(text);
  return 'value' in size
    ? { value: { bytes: size.value } }
    : { ...size, instead: `${size.instead}, or a share like 5%` };
}
