import { REFRESH_TOKEN_LIFE_S } from '../../contract/tokens.ts';
import type { Tokens } from '../grants/token-answer.ts';
import { renewAtMs, usableUntilMs } from './session-timing.ts';

export type SessionGrant = 'password' | 'refresh_token';

/**
 * Token pair in memory. Times are monotonic and measured from before the token request, so a token never expires
 * earlier than recorded.
 */
export interface IssuedToken {
  readonly accessToken: string;
  /** Undefined once the refresh token is invalid or may be invalid. */
  refreshToken: string | undefined;
  readonly grant: SessionGrant;
  /** User ID, if the token response contained it. */
  readonly userId: number | undefined;
  readonly issuedAtMs: number;
  readonly lifeMs: number;
  readonly expiresAtMs: number;
  readonly renewAtMs: number;
  /**
   * Expiry of the refresh token, measured from the login. It is not documented whether a rotation starts a new period
   * of 24 h.
   */
  readonly refreshUntilMs: number;
  /** Number of calls in progress that use this token. */
  inUse: number;
  /** Whether the platform rejected the token with a 401. */
  refused: boolean;
  /** Whether the platform accepted the token, that is, responded with a status other than 401 and 5xx. */
  proven: boolean;
}

export function issueToken(
  tokens: Tokens,
  grant: SessionGrant,
  askedAtMs: number,
  predecessor: IssuedToken | undefined,
  random: () => number,
): IssuedToken {
  const loginUntilMs = askedAtMs + REFRESH_TOKEN_LIFE_S * 1000;
  return {
    accessToken: tokens.accessToken,
    refreshToken: tokens.refreshToken,
    grant,
    userId: tokens.userId ?? predecessor?.userId,
    issuedAtMs: askedAtMs,
    lifeMs: tokens.expiresInMs,
    expiresAtMs: askedAtMs + tokens.expiresInMs,
    renewAtMs: renewAtMs(askedAtMs, tokens.expiresInMs, random),
    refreshUntilMs: grant === 'refresh_token' && predecessor ? predecessor.refreshUntilMs : loginUntilMs,
    inUse: 0,
    refused: false,
    proven: false,
  };
}

export function isUsable(token: IssuedToken, nowMs: number): boolean {
  return !token.refused && nowMs < usableUntilMs(token.expiresAtMs, token.lifeMs);
}

/** Returns the last 4 characters of a long token, which distinguish tokens but do not reveal them. */
export function tokenHint(accessToken: string): string {
  return accessToken.length >= 16 ? `…${accessToken.slice(-4)}` : '…';
}
