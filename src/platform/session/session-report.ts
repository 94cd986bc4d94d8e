import type { Clock } from '../../base/clock.ts';
import { codeOf, messageOf, TagferryError } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import { Repeats } from '../../base/repeats.ts';
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
  /** Number of consecutive failures of the same kind. */
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

/**
 * Log of sign-in failures: the first failure of each kind immediately, later failures at the repeat interval. This keeps
 * the log short during a long outage.
 */
export class SignInFailures {
  readonly #clock: Clock;
  readonly #log: Logger;
  #sinceMs: number | undefined;
  #attempts = 0;
  readonly #repeats = new Repeats();

  constructor(clock: Clock, log: Logger) {
    this.#clock = clock;
    this.#log = log;
  }

  note(error: unknown, refused: boolean, retryInMs: number): void {
    const nowMs = this.#clock.monotonicMs();
    this.#sinceMs ??= nowMs;
    this.#attempts++;
    const code = codeOf(error) ?? 'unknown';
    const fields = {
      code,
      error: messageOf(error),
      hint: error instanceof TagferryError ? error.hint : undefined,
      retryInMs: Math.round(retryInMs),
      attempts: this.#attempts,
      failingForMs: Math.round(nowMs - this.#sinceMs),
    };
    const count = this.#repeats.note(code, nowMs);
    if (count === 1) {
      const level = refused ? 'error' : 'warn';
      this.#log[level]({ event: refused ? 'session.refused' : 'session.failed', ...fields }, 'sign-in failed');
    } else if (count !== undefined) {
      this.#log.warn({ event: 'session.still_failing', ...fields }, 'sign-in still failing');
    } else {
      this.#log.debug({ event: 'session.attempt_failed', ...fields }, 'sign-in attempt failed');
    }
  }

  /** Logs the recovery after failures. */
  recovered(grant: string): void {
    const lastedMs = this.#sinceMs === undefined ? undefined : this.#clock.monotonicMs() - this.#sinceMs;
    const lasted = lastedMs === undefined ? {} : { attempts: this.#attempts, missedForMs: Math.round(lastedMs) };
    const fields = { event: 'session.valid', grant, ...lasted };
    if (grant === 'password' || lastedMs !== undefined) this.#log.info(fields, 'signed in to the platform');
    else this.#log.debug(fields, 'session renewed');
    this.#sinceMs = undefined;
    this.#attempts = 0;
    this.#repeats.end('');
  }
}
