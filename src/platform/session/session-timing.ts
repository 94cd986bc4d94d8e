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
const MIN_RENEWAL_MS = 5_000;

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
 * Returns whether the next renewal may use the refresh token. A refresh token that would expire before the following
 * renewal is not used, so that the password login takes place before the refresh token expires (platform 8).
 */
export function outlastsRenewal(token: { refreshUntilMs: number; lifetimeMs: number }, nowMs: number): boolean {
  return nowMs + token.lifetimeMs < token.refreshUntilMs;
}

/**
 * Returns the delay before the next token request after new tokens were rejected with 401, in milliseconds. `rejected`:
 * number of consecutive tokens that never worked. The first token is replaced immediately, and further tokens after
 * increasing delays, so that not every call causes a login.
 */
export function newTokenDelayMs(rejected: number): number {
  return rejected <= 1 ? 0 : Math.min(5_000 * 2 ** (rejected - 2), 60_000);
}

/** Maximum age at which a rejected token is retried, because some platform servers accept it late; in milliseconds. */
export const NEW_TOKEN_MS = 60_000;

/** Delays before the retries with a new token that was rejected with 401, in milliseconds. */
export const NEW_TOKEN_REPEATS_MS: readonly number[] = [1_000, 2_000, 4_000, 8_000];
