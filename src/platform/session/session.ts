import { type Clock, raced } from '../../base/clock.ts';
import { codeOf, messageOf, PlatformError } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import type { Redactor } from '../../base/redactor.ts';
import { GrantError } from '../grants/grant-error.ts';
import type { Tokens } from '../grants/token-answer.ts';
import type { HttpBoundary } from '../http-boundary.ts';
import type { Lease, TokenSource } from '../token-source.ts';
import { type IssuedToken, issueToken, isUsable, type SessionGrant } from './issued-token.ts';
import type { SessionFile } from './session-file.ts';
import { noSession, type SessionSnapshot, type SessionState, snapshotOf } from './session-snapshot.ts';
import {
  MIN_RENEWAL_MS,
  maxRestMs,
  NEW_TOKEN_MS,
  NEW_TOKEN_REPEATS_MS,
  newTokenDelayMs,
  nextGrant,
  retryDelayMs,
  type Trouble,
} from './session-timing.ts';
import { SignInFailureLog } from './sign-in-failure-log.ts';
import { TokenKeeper } from './token-keeper.ts';
import { isSignInRefused, refreshTokenSurvives, type SessionCredentials, TokenRequests } from './token-requests.ts';

/**
 * Session of the technical user. Manages the token pair that is used for all platform calls.
 *
 * States:
 * - `none`: before `start`.
 * - `renewing`: one token request is in progress. The current token is used until it expires.
 * - `valid`: a token is available. Its renewal is scheduled at a random time well before its expiry.
 * - `waiting`: the latest request failed and a retry is scheduled. The previous token may still be valid.
 * - `revoked`: stopped. No further tokens are requested.
 *
 *   none ──start──► renewing ──tokens──► valid ──time, 401, renew()──► renewing
 *                      └────failure───► waiting ──time, tryNow()─────► renewing
 *   any ──stop──► revoked
 *
 * Invariants:
 * 1. A token is used only if it will still be valid on arrival, according to the monotonic clock alone.
 * 2. Callers without a valid token wait for a renewal in progress.
 * 3. A refresh token that may be invalid is never used again. The next grant is a login.
 * 4. New tokens are on disk before their first use. `TokenKeeper` then revokes the predecessor when no call uses it. If
 *    both share a refresh token, the revocation would invalidate it, so the predecessor is revoked together with the
 *    last token that shares the refresh token.
 * 5. A 401 invalidates only the token that was rejected. If the token is new, the call is first retried with the
 *    same token.
 *
 * After a crash, the next startup revokes the tokens in `session.json` and logs in again. Tokens that were received but
 * not yet written are not revoked; they expire.
 */
export interface SessionOptions {
  boundary: Pick<HttpBoundary, 'send'>;
  /** The {base_url} in the specification. */
  baseUrl: string;
  credentials: () => SessionCredentials;
  file: SessionFile;
  clock: Clock;
  log: Logger;
  /** Every token is registered as a secret before its first use. */
  redactor: Redactor;
  /** Called for each renewal, for the metric `tagferry_session_renewals_total{grant}`. */
  onRenewal?: (grant: SessionGrant) => void;
  /**
   * Called if a working token was rejected before its expiry although there was no outage, and the next token works. In
   * this case, another client revoked the token.
   */
  onRevokedElsewhere?: () => void;
}

/**
 * Time budget for stopping the session, out of 20 s for the whole shutdown (docs/interface.md). A token request in
 * progress may use half of it; the rest is for revocations.
 */
const STOP_BUDGET_MS = 5_000;
const MIN_REVOKE_BUDGET_MS = 500;
/** Time without a 401 after which the next 401 is treated as the first one. */
const REFUSAL_MEMORY_MS = 60_000;
/** A 401 within this time before a token expires does not count as an early rejection, because clocks differ. */
const NEAR_END_MS = 60_000;

export class Session implements TokenSource {
  readonly #options: SessionOptions;
  readonly #requests: TokenRequests;
  readonly #keeper: TokenKeeper;
  readonly #failureLog: SignInFailureLog;
  readonly #ending = new AbortController();
  readonly #listeners = new Set<() => void>();
  #signal: AbortSignal | undefined;
  #state: SessionState = 'none';
  #attempt: Promise<void> | undefined;
  #cancelTimer: (() => void) | undefined;
  #nextAtMs: number | undefined;
  #trouble: Trouble | undefined;
  #lastError: unknown;
  #lastRefusalMs = Number.NEGATIVE_INFINITY;
  /** Number of consecutive tokens that were rejected before they ever worked. */
  #rejectedNewTokens = 0;
  /** Whether a working token was rejected before its expiry, and the next token has not been confirmed yet. */
  #isRejectedEarly = false;
  /** Whether a call received no response or a 5xx since the platform last accepted a token. */
  #hadOutage = false;
  /** Whether the next token request must be a login, because a refresh does not test changed credentials. */
  #isLoginDue = false;

  constructor(options: SessionOptions) {
    this.#options = options;
    const { boundary, baseUrl, credentials, file, clock, log, redactor } = options;
    this.#requests = new TokenRequests(boundary, baseUrl, credentials, clock);
    this.#failureLog = new SignInFailureLog(clock, log);
    const revoke = (text: string, signal: AbortSignal) => this.#requests.revoke(text, signal);
    this.#keeper = new TokenKeeper({ file, clock, log, redactor, revoke });
  }

  /**
   * Schedules the revocation of tokens from a previous run and starts the first login without waiting for it. After the
   * signal is aborted, no more tokens are requested.
   */
  async start(signal: AbortSignal): Promise<void> {
    if (this.#state !== 'none') throw new Error('the session has already been started');
    this.#signal = signal;
    // Register the work as an attempt, so that `stop` waits for it. Otherwise, `stop` would remove the file while its
    // tokens are being read.
    this.#begin(this.#keeper.revokeLeftovers());
    await this.#attempt;
    this.#renew();
  }

  /**
   * Waits for a token request in progress and revokes all tokens within the budget. Afterwards, no tokens are
   * available.
   */
  async stop(budgetMs = STOP_BUDGET_MS): Promise<void> {
    if (this.#state === 'revoked') return;
    const { clock } = this.#options;
    const startMs = clock.monotonicMs();
    this.#enter('revoked');
    // If the session was never started, the session file may belong to another agent that has locked the state folder.
    if (!this.#signal) return;
    // Wait for a response in progress, because its tokens must also be revoked.
    const cancel = clock.after(budgetMs / 2, () => this.#ending.abort());
    // An attempt that is still running after the abort is waiting for the disk, and the keeper already has its tokens.
    await raced(this.#attempt ?? Promise.resolve(), this.#ending.signal).catch(() => {});
    cancel();
    await this.#keeper.end(Math.max(MIN_REVOKE_BUDGET_MS, budgetMs - (clock.monotonicMs() - startMs)));
  }

  async lease(signal?: AbortSignal): Promise<Lease> {
    for (let waited = false; ; waited = true) {
      signal?.throwIfAborted();
      const token = this.#usable();
      if (token) return this.#leaseOf(token);
      // The timer may be late, for example after a suspend, so that the renewal is overdue.
      if (this.#state === 'valid' && this.#isDue()) this.#renew();
      if (this.#state !== 'renewing' || waited) throw noSession(this.#lastError);
      await raced(this.#attempt ?? Promise.resolve(), signal);
    }
  }

  /** Registers a listener for state changes. Returns a function that removes the listener. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Retries a failed attempt now and resets the retry delays, for SIGHUP. */
  tryNow(): void {
    if (this.#state !== 'waiting') return;
    this.#trouble = undefined;
    this.#renew();
  }

  /**
   * Requests new tokens, for `session renew`. Rejects if the request fails; the session then continues with its
   * schedule.
   */
  async renewNow(): Promise<SessionSnapshot> {
    if (this.#state === 'revoked' || this.#state === 'none') throw noSession(this.#lastError);
    this.#trouble = undefined;
    this.#renew();
    await this.#attempt;
    if (this.#lastError !== undefined) throw this.#lastError;
    return this.snapshot();
  }

  /**
   * Logs in with changed credentials for a reload, and returns the error if the login fails. Calls `accept` after the
   * platform accepts the credentials; the new tokens replace the previous ones. If the platform rejects them, the
   * session does not change. If the platform does not respond, the next attempt is a login with the credentials in
   * use at that time.
   */
  async tryCredentials(credentials: SessionCredentials, accept: () => void): Promise<unknown> {
    while (this.#attempt) await this.#attempt;
    if (this.#state === 'none' || this.#isStopped()) return undefined;
    let failure: unknown;
    const logIn = async () => {
      const askedAtMs = this.#options.clock.monotonicMs();
      const tokens = await this.#requests.login(this.#ending.signal, credentials);
      accept();
      return { tokens, grant: 'password', askedAtMs } as const;
    };
    const failed = (error: unknown) => {
      failure = error;
      if (isSignInRefused(error)) return;
      this.#isLoginDue = true;
      this.#failed(error);
    };
    this.#begin(this.#obtain(logIn, failed));
    await this.#attempt;
    // A renewal may have become due in the meantime.
    if (this.#isDue() || (this.#state === 'valid' && !this.isUsable)) this.#renew();
    return failure;
  }

  /** Logs in again and revokes the previous tokens, for `session revoke`. */
  async revokeNow(): Promise<SessionSnapshot> {
    // Wait for a renewal in progress, because its tokens become the current tokens.
    await this.#attempt;
    if (this.#keeper.current) this.#keeper.current.refreshToken = undefined;
    return this.renewNow();
  }

  /** Whether a valid token is available. */
  get isUsable(): boolean {
    return this.#usable() !== undefined;
  }

  /** User ID of the current token, if the token response contained it. */
  get userId(): number | undefined {
    return this.#keeper.current?.userId;
  }

  snapshot(): SessionSnapshot {
    const source = {
      state: this.#state,
      usable: this.isUsable,
      token: this.#keeper.current,
      nextAtMs: this.#nextAtMs,
      failures: this.#trouble?.failures ?? 0,
      error: this.#lastError,
    };
    return snapshotOf(source, this.#options.clock.monotonicMs());
  }

  #isDue(): boolean {
    return this.#nextAtMs !== undefined && this.#nextAtMs <= this.#options.clock.monotonicMs();
  }

  #usable(): IssuedToken | undefined {
    const token = this.#keeper.current;
    if (!token || this.#isStopped()) return undefined;
    return isUsable(token, this.#options.clock.monotonicMs()) ? token : undefined;
  }

  #leaseOf(token: IssuedToken): Lease {
    token.inUse++;
    let released = false;
    let available = false;
    return {
      accessToken: token.accessToken,
      responded: (status, repeats = 0) => {
        available = status < 500;
        if (status === 401) return this.#repeatInMs(token, repeats) ?? this.#refuse(token);
        if (available) this.#accept(token);
        return undefined;
      },
      release: () => {
        if (released) return;
        released = true;
        if (!available) this.#hadOutage = true;
        token.inUse--;
        this.#keeper.released(token);
      },
    };
  }

  /**
   * Returns the delay before a call that was rejected with 401 is retried with the same token, because the token is new.
   * `repeats`: number of retries so far.
   */
  #repeatInMs(token: IssuedToken, repeats: number): number | undefined {
    const { clock, log } = this.#options;
    const nowMs = clock.monotonicMs();
    const delayMs = NEW_TOKEN_REPEATS_MS[repeats];
    const isCurrent = token === this.#keeper.current && !token.refused && !this.#isStopped();
    if (delayMs === undefined || !isCurrent || nowMs - token.issuedAtMs >= NEW_TOKEN_MS) return undefined;
    if (!isUsable(token, nowMs + delayMs)) return undefined;
    if (repeats === 0) log.info({ event: 'session.token_unknown' }, 'new access token rejected, retrying the call');
    return delayMs;
  }

  /** Records that the platform accepted the token. */
  #accept(token: IssuedToken): void {
    token.proven = true;
    if (token !== this.#keeper.current) return;
    this.#rejectedNewTokens = 0;
    this.#hadOutage = false;
    if (!this.#isRejectedEarly) return;
    this.#isRejectedEarly = false;
    this.#options.onRevokedElsewhere?.();
  }

  /**
   * Handles a 401 that retries did not resolve. The token is not used again. If the token has worked before, it is
   * replaced immediately, otherwise after increasing delays.
   */
  #refuse(token: IssuedToken): undefined {
    if (token.refused) return;
    token.refused = true;
    if (token !== this.#keeper.current || this.#isStopped()) return;
    this.#rejectedNewTokens = token.proven ? 0 : this.#rejectedNewTokens + 1;
    const isEarly = token.expiresAtMs - this.#options.clock.monotonicMs() > NEAR_END_MS;
    // Ignore rejections after an outage, because a platform may lose its tokens when it restarts.
    this.#isRejectedEarly ||= token.proven && isEarly && !this.#hadOutage;
    const fields = { event: 'session.token_refused', rejectedNewTokens: this.#rejectedNewTokens };
    this.#options.log.info(fields, 'access token rejected');
    const nowMs = this.#options.clock.monotonicMs();
    // If tokens repeatedly work and are rejected shortly afterwards, only the first token is replaced immediately.
    const again = nowMs - this.#lastRefusalMs < REFUSAL_MEMORY_MS;
    const restMs = again ? token.issuedAtMs + MIN_RENEWAL_MS - nowMs : 0;
    const delayMs = Math.max(newTokenDelayMs(this.#rejectedNewTokens), restMs, 0);
    this.#lastRefusalMs = nowMs;
    if (delayMs === 0) {
      this.#renew();
    } else if (!this.#attempt) {
      this.#lastError = new PlatformError('new access tokens are rejected with 401', {
        code: 'platform.fresh_token_refused',
        retryable: true,
        hint:
          'Check API_KEY_HEADER, and that PLATFORM_URL is the address that issued the token. If the platform has several ' +
          'servers, check that all of them accept a new token within 15 seconds.',
      });
      this.#failureLog.failed(this.#lastError, false, delayMs);
      this.#enter('waiting', delayMs);
    }
  }

  /** Starts a token request unless one is in progress, and enters the state `renewing`. */
  #renew(): void {
    if (this.#attempt || this.#isStopped() || this.#signal?.aborted) return;
    this.#enter('renewing');
    this.#begin(this.#obtain());
  }

  /** Registers work for which `stop` waits. */
  #begin(work: Promise<void>): void {
    this.#attempt = work.finally(() => {
      this.#attempt = undefined;
    });
  }

  /** Runs one attempt: requests tokens, stores them and schedules the next renewal. Never rejects. */
  async #obtain(ask = () => this.#ask(), failed = (error: unknown) => this.#failed(error)): Promise<void> {
    const { clock, onRenewal } = this.#options;
    try {
      const { tokens, grant, askedAtMs } = await ask();
      const next = issueToken(tokens, grant, askedAtMs, this.#keeper.current, () => clock.random());
      await this.#keeper.adopt(next);
      onRenewal?.(grant);
      this.#failureLog.recovered(grant);
      this.#trouble = undefined;
      this.#lastError = undefined;
      if (grant === 'password') this.#isLoginDue = false;
      if (!this.#isStopped()) this.#enter('valid', next.renewAtMs - clock.monotonicMs());
    } catch (error) {
      if (!this.#isStopped()) failed(error);
    }
  }

  /** Requests tokens with the refresh token if it is certainly valid. Otherwise, or if the refresh fails, logs in. */
  async #ask(): Promise<{ tokens: Tokens; grant: SessionGrant; askedAtMs: number }> {
    const { clock, log } = this.#options;
    const { signal } = this.#ending;
    const token = this.#keeper.current;
    const askedAtMs = clock.monotonicMs();
    if (!this.#isLoginDue && token?.refreshToken !== undefined && nextGrant(token, askedAtMs) === 'refresh_token') {
      try {
        return { tokens: await this.#requests.refresh(token.refreshToken, signal), grant: 'refresh_token', askedAtMs };
      } catch (error) {
        if (refreshTokenSurvives(error)) throw error;
        token.refreshToken = undefined;
        if (this.#isStopped()) throw error;
        const fields = { event: 'session.refresh_failed', code: codeOf(error), error: messageOf(error) };
        log.info(fields, 'refresh failed, logging in instead');
      }
    }
    const loginAtMs = clock.monotonicMs();
    return { tokens: await this.#requests.login(signal), grant: 'password', askedAtMs: loginAtMs };
  }

  #failed(error: unknown): void {
    const { clock } = this.#options;
    const nowMs = clock.monotonicMs();
    const kind: Trouble['kind'] = isSignInRefused(error) ? 'refused' : 'unavailable';
    const before = this.#trouble?.kind === kind ? this.#trouble : { kind, sinceMs: nowMs, failures: 0, lastDelayMs: 0 };
    const trouble: Trouble = { ...before, failures: before.failures + 1 };
    const askedMs = error instanceof GrantError ? error.retryAfterMs : undefined;
    const isRateLimited = error instanceof GrantError && error.failure === 'rate_limited';
    const restMs = maxRestMs(askedMs, isRateLimited);
    const delayMs = retryDelayMs(trouble, nowMs, () => clock.random(), restMs);
    this.#trouble = { ...trouble, lastDelayMs: delayMs };
    if (kind === 'unavailable') this.#isRejectedEarly = false;
    this.#lastError = error;
    this.#failureLog.failed(error, kind === 'refused', delayMs);
    this.#enter('waiting', delayMs);
  }

  /** Enters a state and notifies the listeners, whose errors must not affect the session. */
  #enter(state: SessionState, nextInMs?: number): void {
    const { clock, log } = this.#options;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#state = state;
    this.#nextAtMs = nextInMs === undefined ? undefined : clock.monotonicMs() + nextInMs;
    if (nextInMs !== undefined) this.#cancelTimer = clock.after(nextInMs, () => this.#renew());
    for (const listener of [...this.#listeners]) {
      try {
        listener();
      } catch (error) {
        log.error({ event: 'session.listener_failed', error: messageOf(error) }, 'session listener failed');
      }
    }
  }

  #isStopped(): boolean {
    return this.#state === 'revoked';
  }
}
