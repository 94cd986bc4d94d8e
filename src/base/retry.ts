import pRetry from 'p-retry';
import { TagferryError } from './errors.ts';

/** How long to wait before the next attempt: full jitter, so that gateways that failed together do not return together. */
export interface Backoff {
  /** Upper bound of the first wait. */
  baseMs: number;
  /** Upper bound of every wait. */
  capMs: number;
}

/**
 * A uniform wait in [floor, min(cap, base × 2^attempt)]. `attempt` counts from 0.
 * Full jitter rather than equal steps: it spreads a common outage's returns widest for the same mean.
 */
export function fullJitterMs(attempt: number, backoff: Backoff, random: () => number, floorMs = 0): number {
  const bound = Math.min(backoff.capMs, backoff.baseMs * 2 ** Math.min(attempt, 40));
  return Math.max(floorMs, Math.round(random() * bound));
}

/**
 * `Retry-After` (RFC 9110 section 10.2.3) in milliseconds from now: whole seconds or an HTTP-date; `undefined` for anything
 * else. May be as long as it likes: who waits by it bounds it.
 */
export function retryAfterMs(header: string | undefined, wallMs: number): number | undefined {
  if (header === undefined) return undefined;
  const text = header.trim();
  if (/^\d+$/.test(text)) return Math.min(Number(text) * 1000, Number.MAX_SAFE_INTEGER);
  const at = httpDateMs(text);
  return at === undefined ? undefined : Math.max(0, at - wallMs);
}

const MONTHS = 'Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec'.split(' ');
/** The forms of RFC 9110 section 5.6.7: as it is to be written, and the two that are obsolete. `Date.parse` takes `-5` for one. */
const HTTP_DATES = [
  /^[A-Z][a-z]{2}, (?<day>\d{2}) (?<month>[A-Z][a-z]{2}) (?<year>\d{4}) (?<time>\d{2}:\d{2}:\d{2}) GMT$/,
  /^[A-Z][a-z]{5,8}, (?<day>\d{2})-(?<month>[A-Z][a-z]{2})-(?<year>\d{2}) (?<time>\d{2}:\d{2}:\d{2}) GMT$/,
  /^[A-Z][a-z]{2} (?<month>[A-Z][a-z]{2}) (?<day>[ \d]\d) (?<time>\d{2}:\d{2}:\d{2}) (?<year>\d{4})$/,
];

/** An HTTP-date in milliseconds since 1970; `undefined` where it is none. */
export function httpDateMs(text: string): number | undefined {
  for (const form of HTTP_DATES) {
    const parts = form.exec(text)?.groups;
    if (!parts) continue;
    const month = MONTHS.indexOf(parts.month!);
    const [hour, minute, second] = parts.time!.split(':').map(Number) as [number, number, number];
    if (month < 0 || hour > 23 || minute > 59 || second > 60) return undefined;
    // Two digits of a year: this century, as no server sends dates of the last.
    const year = parts.year!.length === 2 ? 2000 + Number(parts.year) : Number(parts.year);
    return Date.UTC(year, month, Number(parts.day), hour, minute, second);
  }
  return undefined;
}

export interface BoundedRetry {
  /** Attempts after the first. */
  retries: number;
  /** Wait before the first retry, in milliseconds; doubled for each further one. Default: 500. */
  minTimeout?: number;
  signal?: AbortSignal | undefined;
}

/** Retries work that a person or a shutdown waits for, as long as its errors are retryable. Throws the last error. */
export function retryBounded<Result>(work: () => Promise<Result>, { retries, minTimeout = 500, signal }: BoundedRetry) {
  return pRetry(work, {
    retries,
    minTimeout,
    randomize: true,
    shouldRetry: ({ error }) => error instanceof TagferryError && error.retryable,
    ...(signal ? { signal } : {}),
  });
}
