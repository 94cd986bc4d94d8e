import { codeOf, messageOf, TagferryError } from '../../base/errors.ts';
import { type IssuedToken, type SessionGrant, tokenHint } from './issued-token.ts';

export type SessionState = 'none' | 'renewing' | 'valid' | 'waiting' | 'revoked';

/** The session as `status`, health and `session show` tell of it. Durations in milliseconds. */
export interface SessionSnapshot {
  state: SessionState;
  /** Whether calls get a token now. */
  usable: boolean;
  grant: SessionGrant | undefined;
  ageMs: number | undefined;
  expiresInMs: number | undefined;
  /** In state `valid`: until the renewal. */
  renewsInMs: number | undefined;
  /** In state `waiting`: until the next attempt. */
  retryInMs: number | undefined;
  /** The last 4 characters of the access token. */
  accessTokenHint: string | undefined;
  /** Failed attempts of one kind in a row. */
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

function lastErrorOf(error: unknown) {
  const hint = error instanceof TagferryError ? error.hint : undefined;
  return { code: codeOf(error) ?? 'unknown', message: messageOf(error), hint };
}
