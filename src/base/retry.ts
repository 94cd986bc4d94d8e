import pRetry from 'p-retry';
import { TagferryError } from './errors.ts';

/**
 * Delay before a retry, with full jitter, so that gateways that failed at the same time do not retry at the same time.
 */
export interface Backoff {
  /** Upper limit of the first delay, in milliseconds. */
  baseMs: number;
  /** Upper limit of all delays, in milliseconds. */
  capMs: number;
}

/**
 * Returns a uniformly random delay in [floor, min(cap, base × 2^attempt)]. `attempt` starts at 0. Full jitter spreads
 * retries more widely than equal jitter for the same mean.
 */
export function fullJitterMs(attempt: number, backoff: Backoff, random: () => number, floorMs = 0): number {
  const bound = Math.min(backoff.capMs, backoff.baseMs * 2 ** Math.min(attempt, 40));
  return Math.max(floorMs, Math.round(random() * bound));
}

/**
 * Returns `Retry-After` (RFC 9110 section 10.2.3) in milliseconds from now, for whole seconds or an HTTP-date, or
 * `undefined` if it is invalid. The value is not limited, so callers must limit it.
 */
export function retryAfterMs(header: string | undefined, wallMs: number): number | undefined {
  if (header === undefined) return undefined;
  const text = header.trim();
  if (/^\d+$/.test(text)) return Math.min(Number(text) * 1000, Number.MAX_SAFE_INTEGER);
  const at = httpDateMs(text);
  return at === undefined ? undefined : Math.max(0, at - wallMs);
}

const MONTHS = 'Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec'.split(' ');
/**
 * Date formats of RFC 9110 section 5.6.7: the current format and two obsolete formats. `Date.parse` is too lenient: it
 * accepts `-5`.
 */
const HTTP_DATES = [
  /^[A-Z][a-z]{2}, (?<day>\d{2}) (?<month>[A-Z][a-z]{2}) (?<year>\d{4}) (?<time>\d{2}:\d{2}:\d{2}) GMT$/,
  /^[A-Z][a-z]{5,8}, (?<day>\d{2})-(?<month>[A-Z][a-z]{2})-(?<year>\d{2}) (?<time>\d{2}:\d{2}:\d{2}) GMT$/,
  /^[A-Z][a-z]{2} (?<month>[A-Z][a-z]{2}) (?<day>[ \d]\d) (?<time>\d{2}:\d{2}:\d{2}) (?<year>\d{4})$/,
];

/** Returns an HTTP-date in milliseconds since 1970, or `undefined` if it is invalid. */
export function httpDateMs(text: string): number | undefined {
  for (const form of HTTP_DATES) {
    const parts = form.exec(text)?.groups;
    if (!parts) continue;
    const month = MONTHS.indexOf(parts.month!);
    const [hour, minute, second] = parts.time!.split(':').map(Number) as [number, number, number];
    if (month < 0 || hour > 23 || minute > 59 || second > 60) return undefined;
    // A two-digit year is in this century, because servers do not send dates from the previous century.
    const year = parts.year!.length === 2 ? 2000 + Number(parts.year) : Number(parts.year);
    return Date.UTC(year, month, Number(parts.day), hour, minute, second);
  }
  return undefined;
}

export interface BoundedRetry {
  /** Number of retries after the first attempt. */
  retries: number;
  /** Delay before the first retry, in milliseconds, doubled for each further retry. Default: 500. */
  minTimeout?: number;
  signal?: AbortSignal | undefined;
}

/**
 * Retries `work` while its errors are retryable, up to a limit, because a user or the shutdown is waiting for it.
 * Throws the final error.
 */
export function retryBounded<Result>(work: () => Promise<Result>, { retries, minTimeout = 500, signal }: BoundedRetry) {
  return pRetry(work, {
    retries,
    minTimeout,
    randomize: true,
    shouldRetry: ({ error }) => error instanceof TagferryError && error.retryable,
    ...(signal ? { signal } : {}),
  });
}
