import type { Session } from './session.ts';

/** The session as `status`, health and `session show` print it. */
export function sessionReport(session: Session) {
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
