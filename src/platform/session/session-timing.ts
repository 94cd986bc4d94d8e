import { fullJitterMs } from '../../base/retry.ts';

/** Timing of the session. All times are monotonic, in milliseconds, and independent of the wall clock. */

/**
 * Range of the random renewal time, as a fraction of the token lifetime: between 396 and 495 s for a lifetime of 660 s.
 * The renewals of gateways that started at the same time therefore spread out.
 */
const RENEW_FROM = 0.6;
const RENEW_SPREAD = 0.15;
/**
 * Minimum interval between renewals, in milliseconds. For very short lifetimes, a period without a token is better than
 * a renewal loop.
 */
export const MIN_RENEWAL_MS = 5_000;

export function renewAtMs(issuedAtMs: number, lifetimeMs: number, random: () => number): number {
  return issuedAtMs + Math.max(MIN_RENEWAL_MS, lifetimeMs * (RENEW_FROM + RENEW_SPREAD * random()));
}

/**
 * Returns the time until which a token is used. The margin ensures that the token is still valid on arrival over a slow
 * link.
 */
export function usableUntilMs(expiresAtMs: number, lifetimeMs: number): number {
  return expiresAtMs - Math.min(60_000, lifetimeMs / 10);
}

/**
 * Returns the time at which a replaced token must be revoked even if calls still use it, because expired tokens cannot
 * be revoked.
 */
export function revokeByMs(expiresAtMs: number, lifetimeMs: number): number {
  return expiresAtMs - Math.min(30_000, lifetimeMs / 20);
}

/**
 * Returns the grant for the next renewal. A refresh token that would expire before the following renewal is not used,
 * so that the password login takes place before the refresh token expires (platform 8).
 */
export function nextGrant(
  token: { refreshToken: string | undefined; refreshUntilMs: number; lifetimeMs: number } | undefined,
  nowMs: number,
): 'password' | 'refresh_token' {
  if (token?.refreshToken === undefined) return 'password';
  return nowMs + token.lifetimeMs < token.refreshUntilMs ? 'refresh_token' : 'password';
}

/** Consecutive failures of the same kind. */
export interface FailureStreak {
  /** `refused`: requires user intervention. `unavailable`: recovers without intervention. */
  kind: 'refused' | 'unavailable';
  sinceMs: number;
  /** Number of failures, including this one. */
  failures: number;
  /** Delay before this attempt, in milliseconds; 0 for the first attempt. */
  lastDelayMs: number;
}

const REFUSED_FIRST_MS = 5_000;
const REFUSED_CAP_MS = 60_000;
const REFUSED_PATIENCE_MS = 15 * 60_000;
const REFUSED_SLOW_CAP_MS = 3_600_000;
/** With a timeout of 20 s per attempt, an unavailable platform is retried at least every 60 s (docs/interface.md). */
const UNAVAILABLE = { baseMs: 1_000, capMs: 30_000 };
const UNAVAILABLE_FLOOR_MS = 500;
/** Maximum `Retry-After` that is honored: for a 429, and for an unavailable platform, which is retried every 60 s. */
const MAX_RATE_REST_MS = 15 * 60_000;
const MAX_UNAVAILABLE_REST_MS = 60_000;

/** Returns the `Retry-After`, limited to the maximum that is honored. */
export function maxRestMs(retryAfterMs: number | undefined, isRateLimited: boolean): number {
  return Math.min(retryAfterMs ?? 0, isRateLimited ? MAX_RATE_REST_MS : MAX_UNAVAILABLE_REST_MS);
}

/**
 * Returns the delay after a failure. After a rejection, the delay starts at 5 s and doubles up to 60 s, and after 15
 * minutes up to 1 h (docs/interface.md).
 */
export function retryDelayMs(streak: FailureStreak, nowMs: number, random: () => number, restMs = 0): number {
  if (streak.kind === 'refused') return refusedDelayMs(streak, nowMs);
  return Math.max(fullJitterMs(streak.failures - 1, UNAVAILABLE, random, UNAVAILABLE_FLOOR_MS), restMs);
}

function refusedDelayMs(streak: FailureStreak, nowMs: number): number {
  if (streak.lastDelayMs === 0) return REFUSED_FIRST_MS;
  const patient = nowMs - streak.sinceMs < REFUSED_PATIENCE_MS;
  return Math.min(streak.lastDelayMs * 2, patient ? REFUSED_CAP_MS : REFUSED_SLOW_CAP_MS);
}

/**
 * Returns the delay before the next token request after new tokens were rejected with 401, in milliseconds. `rejected`:
 * number of consecutive tokens that never worked. The first token is replaced immediately, and further tokens after
 * increasing delays, so that not every call causes a login.
 */
export function newTokenDelayMs(rejected: number): number {
  return rejected <= 1 ? 0 : Math.min(REFUSED_FIRST_MS * 2 ** (rejected - 2), REFUSED_CAP_MS);
}

/** Maximum age at which a rejected token is retried, because some platform servers accept it late; in milliseconds. */
export const NEW_TOKEN_MS = 60_000;

/** Delays before the retries with a new token that was rejected with 401, in milliseconds. */
export const NEW_TOKEN_REPEATS_MS: readonly number[] = [1_000, 2_000, 4_000, 8_000];
