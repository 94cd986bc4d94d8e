import { REFRESH_TOKEN_LIFE_S } from '../../contract/tokens.ts';
import type { Tokens } from '../grants/token-answer.ts';
import { renewAtMs, usableUntilMs } from './session-timing.ts';

export type SessionGrant = 'password' | 'refresh_token';

/** A pair of tokens in memory. Times are monotonic and count from before the request, so they err on the early side. */
export interface IssuedToken {
  readonly accessToken: string;
  /** `undefined` as soon as it is known or suspected to be dead. */
  refreshToken: string | undefined;
  readonly grant: SessionGrant;
  /** Where the token response reported it. */
  readonly userId: number | undefined;
  readonly issuedAtMs: number;
  readonly lifeMs: number;
  readonly expiresAtMs: number;
  readonly renewAtMs: number;
  /** End of the refresh token, counted from the login: whether a rotation begins new 24 h is not specified. */
  readonly refreshUntilMs: number;
  /** Calls under way with it. */
  inUse: number;
  /** The platform answered 401 to it. */
  refused: boolean;
  /** The platform answered something else than 401 to it. */
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

/** Enough of a token to tell two apart, too little to use: the last 4 characters of a long one. */
export function tokenHint(accessToken: string): string {
  return accessToken.length >= 16 ? `…${accessToken.slice(-4)}` : '…';
}
