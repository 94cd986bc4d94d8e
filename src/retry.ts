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

/** `Retry-After` (RFC 9110 section 10.2.3) in milliseconds from now: seconds or an HTTP date; `undefined` where unreadable. */
export function retryAfterMs(header: string | undefined, wallMs: number): number | undefined {
  if (header === undefined) return undefined;
  const text = header.trim();
  if (/^\d{1,9}$/.test(text)) return Number(text) * 1000;
  const at = Date.parse(text);
  return Number.isNaN(at) ? undefined : Math.max(0, at - wallMs);
}
