import type { SessionGrant } from './live-tokens.ts';

export type SessionState = 'none' | 'renewing' | 'valid' | 'waiting' | 'revoked';

/** Session state for `status`, health and `session show`. Durations are in milliseconds. */
export interface SessionSnapshot {
  state: SessionState;
  /** Whether a valid token is available for calls. */
  usable: boolean;
  grant: SessionGrant | undefined;
  ageMs: number | undefined;
  expiresInMs: number | undefined;
  /** Time until the renewal, in state `valid`. */
  renewsInMs: number | undefined;
  /** Time until the next attempt, in state `waiting`. */
  retryInMs: number | undefined;
  /** Last 4 characters of the access token. */
  accessTokenHint: string | undefined;
  /** Number of failures since the latest sign-in. */
  failures: number;
  lastError: { code: string; message: string; hint: string | undefined } | undefined;
}

/** Returns the last 4 characters of a long token, which distinguish tokens but do not reveal them. */
export function tokenHint(accessToken: string): string {
  return accessToken.length >= 16 ? `…${accessToken.slice(-4)}` : '…';
}

/** Returns the session state in the output format of `status`, health and `session show`. */
export function sessionReport(session: { snapshot(): SessionSnapshot }) {
  const now = session.snapshot();
  const seconds = (ms: number | undefined) => (ms === undefined ? undefined : Math.round(ms / 1000));
  return {
    state: now.state,
    usable: now.usable,
    grant: now.grant,
    age_seconds: seconds(now.ageMs),
    expires_in_seconds: seconds(now.expiresInMs),
    renews_in_seconds: seconds(now.renewsInMs),
    retry_in_seconds: seconds(now.retryInMs),
    access_token: now.accessTokenHint,
    failures: now.failures,
    last_error: now.lastError,
  };
}
