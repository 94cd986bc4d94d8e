import { fullJitterMs } from '../../base/retry.ts';

/** When things of the session are due. All times are monotonic milliseconds; nothing here knows a wall clock. */

/** Renewal lies somewhere in this part of a token's life: at 660 s between 396 and 495 s, so gateways that started together drift apart. */
const RENEW_FROM = 0.6;
const RENEW_SPREAD = 0.15;
/** Tokens of a very short life are not renewed more often than this: a gap without a token is better than a loop. */
export const MIN_RENEWAL_MS = 5_000;

export function renewAtMs(issuedAtMs: number, lifeMs: number, random: () => number): number {
  return issuedAtMs + Math.max(MIN_RENEWAL_MS, lifeMs * (RENEW_FROM + RENEW_SPREAD * random()));
}

/** A token is handed out only while this much of its life is left, so that it is valid when it arrives over a slow link. */
export function usableUntilMs(expiresAtMs: number, lifeMs: number): number {
  return expiresAtMs - Math.min(60_000, lifeMs / 10);
}

/** A replaced token that calls still use is revoked now at the latest: an expired one cannot be revoked. */
export function revokeByMs(expiresAtMs: number, lifeMs: number): number {
  return expiresAtMs - Math.min(30_000, lifeMs / 20);
}

/**
 * Which grant the next renewal uses. A refresh token that would not see the renewal after this one is left alone: the
 * password login comes before its end (platform 8), not after.
 */
export function nextGrant(
  token: { refreshToken: string | undefined; refreshUntilMs: number; lifeMs: number } | undefined,
  nowMs: number,
): 'password' | 'refresh_token' {
  if (token?.refreshToken === undefined) return 'password';
  return nowMs + token.lifeMs < token.refreshUntilMs ? 'refresh_token' : 'password';
}

/** A run of failures of one kind. */
export interface Trouble {
  /** `refused`: a person has to mend something. `unavailable`: it mends itself. */
  kind: 'refused' | 'unavailable';
  sinceMs: number;
  /** How many failures, this one included. */
  failures: number;
  /** The wait before this failure; 0 before the first. */
  lastDelayMs: number;
}

const REFUSED_FIRST_MS = 5_000;
const REFUSED_CAP_MS = 60_000;
const REFUSED_PATIENCE_MS = 15 * 60_000;
const REFUSED_SLOW_CAP_MS = 3_600_000;
/** With an attempt's own 20 s a platform that was away is tried more often than every 60 s, as docs/interface.md promises. */
const UNAVAILABLE = { baseMs: 1_000, capMs: 30_000 };
const UNAVAILABLE_FLOOR_MS = 500;
/**
 * After so many failures gateways that lost the platform together have drifted apart, and the waits lie between two thirds of the bound and
 * all of it: what comes in the first seconds of the return is then a fifth more than an even spread, and not twice as much, as with full jitter.
 */
const DRIFTED_APART = 8;
const EVEN_FROM = 2 / 3;
/** Longer rests than these are not believed: of a 429, and of a platform that is away, which is tried every 60 s. */
const MAX_RATE_REST_MS = 15 * 60_000;
const MAX_UNAVAILABLE_REST_MS = 60_000;

/** How much of the rest that the platform asked for by `Retry-After` is kept. */
export function maxRestMs(askedMs: number | undefined, isRateLimited: boolean): number {
  return Math.min(askedMs ?? 0, isRateLimited ? MAX_RATE_REST_MS : MAX_UNAVAILABLE_REST_MS);
}

/** How long to wait after a failure. docs/interface.md: refused 5 s, doubling to 60 s; after 15 minutes doubling on to 1 h. */
export function retryDelayMs(trouble: Trouble, nowMs: number, random: () => number, restMs = 0): number {
  if (trouble.kind === 'refused') return refusedDelayMs(trouble, nowMs);
  const floorMs = trouble.failures > DRIFTED_APART ? EVEN_FROM * UNAVAILABLE.capMs : 0;
  const bounds = { ...UNAVAILABLE, capMs: UNAVAILABLE.capMs - floorMs };
  const waitMs = floorMs + fullJitterMs(trouble.failures - 1, bounds, random, UNAVAILABLE_FLOOR_MS);
  return Math.max(waitMs, restMs);
}

function refusedDelayMs(trouble: Trouble, nowMs: number): number {
  if (trouble.lastDelayMs === 0) return REFUSED_FIRST_MS;
  const patient = nowMs - trouble.sinceMs < REFUSED_PATIENCE_MS;
  return Math.min(trouble.lastDelayMs * 2, patient ? REFUSED_CAP_MS : REFUSED_SLOW_CAP_MS);
}

/**
 * How long to wait before another token is asked for, where the platform answered 401 to tokens that never worked:
 * the first is replaced at once, the others ever more slowly, else each call would make a login.
 */
export function unprovenDelayMs(unproven: number): number {
  return unproven <= 1 ? 0 : Math.min(REFUSED_FIRST_MS * 2 ** (unproven - 2), REFUSED_CAP_MS);
}
