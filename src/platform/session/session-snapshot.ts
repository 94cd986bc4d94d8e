import { codeOf, messageOf, PlatformError, TagferryError } from '../../base/errors.ts';
import { type IssuedToken, type SessionGrant, tokenHint } from './issued-token.ts';

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
  /** Number of consecutive failures of the same kind. */
  failures: number;
  lastError: { code: string; message: string; hint: string | undefined } | undefined;
}

export interface SnapshotSource {
  state: SessionState;
  usable: boolean;
  token: IssuedToken | undefined;
  nextAtMs: number | undefined;
  failures: number;
  error: unknown;
}

export function snapshotOf(source: SnapshotSource, nowMs: number): SessionSnapshot {
  const { state, usable, token, nextAtMs, failures, error } = source;
  const nextInMs = nextAtMs === undefined ? undefined : Math.max(0, nextAtMs - nowMs);
  return {
    state,
    usable,
    grant: token?.grant,
    ageMs: token && nowMs - token.issuedAtMs,
    expiresInMs: token && Math.max(0, token.expiresAtMs - nowMs),
    renewsInMs: state === 'valid' ? nextInMs : undefined,
    retryInMs: state === 'waiting' ? nextInMs : undefined,
    accessTokenHint: token && tokenHint(token.accessToken),
    failures,
    lastError: error === undefined ? undefined : lastErrorOf(error),
  };
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

/** Returns the error for a call without a token. `cause`: error from the latest token request. */
export function noSession(cause: unknown): PlatformError {
  const why = cause === undefined ? '' : `: ${messageOf(cause)}`;
  return new PlatformError(`not signed in to the platform${why}`, {
    code: 'platform.no_session',
    retryable: true,
    cause,
    ...(cause instanceof TagferryError && cause.hint ? { hint: cause.hint } : {}),
  });
}

function lastErrorOf(error: unknown) {
  const hint = error instanceof TagferryError ? error.hint : undefined;
  return { code: codeOf(error) ?? 'unknown', message: messageOf(error), hint };
}
