import { type Clock, raced } from '../../base/clock.ts';
import { codeOf, messageOf, PlatformError, TagferryError } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import type { Redactor } from '../../base/redactor.ts';
import { REFRESH_TOKEN_LIFE_S } from '../../contract/tokens.ts';
import type { Attempt, Lease, TokenSource } from '../client.ts';
import { type SessionCredentials, TokenRequests } from '../grants.ts';
import type { HttpBoundary } from '../http-boundary.ts';
import { GrantError, isNeverSent, isSignInRefused, type Tokens } from '../response-meanings.ts';
import { type LiveToken, LiveTokens, type SessionFile, type SessionGrant } from './live-tokens.ts';
import { SignInFailures } from './sign-in-failures.ts';

export interface SessionOptions {
  boundary: Pick<HttpBoundary, 'send'>;
  /** The {base_url} in the specification. */
  baseUrl: string;
  credentials: () => SessionCredentials;
  file: Pick<SessionFile, 'read' | 'write'>;
  clock: Clock;
  log: Logger;
  /** Every token is registered as a secret before its first use. */
  redactor: Redactor;
  /** Called for each renewal, for the metric `tagferry_session_renewals_total{grant}`. */
  onRenewal?: (grant: SessionGrant) => void;
  /**
   * Called if an accepted token was rejected before its expiry without an outage, and the platform accepts the next token
   * for the same call. In this case, another client revoked the token.
   */
  onRevokedElsewhere?: () => void;
}

/** Current token. Lifetimes start when the token is requested, so a token never expires earlier than recorded. */
interface IssuedToken extends LiveToken {
  readonly grant: SessionGrant;
  /** User ID, if the token response contained it. */
  readonly userId: number | undefined;
  readonly issuedAtMs: number;
  readonly lifetimeMs: number;
  /** Whether the platform rejected the token with a 401. */
  isRejected: boolean;
  /** Whether the platform accepted the token: it responded to a call with a status other than 401 and 5xx. */
  isAccepted: boolean;
  /** Set after the first 401 until the token is accepted or replaced. */
  trial?: TokenTrial | undefined;
}

/** Response to a token request. `requestedAtMs`: monotonic time from which the lifetimes are measured. */
interface Issued {
  tokens: Tokens;
  grant: SessionGrant;
  requestedAtMs: number;
}

/**
 * Range of the random renewal time, as a fraction of the token lifetime: between 396 and 495 s for a lifetime of 660 s.
 * The renewals of gateways that started at the same time therefore spread out.
 */
const RENEW_FROM = 0.6;
const RENEW_SPREAD = 0.15;
/**
 * Minimum interval between renewals. For very short lifetimes, a period without a token is better than a renewal loop.
 */
const MIN_RENEWAL_MS = 5_000;
/** Maximum age at which a rejected token is retried, because some platform servers accept it late. */
const NEW_TOKEN_MS = 60_000;
/** Delays before the retries with a new token that was rejected with 401. */
const NEW_TOKEN_REPEATS_MS: readonly number[] = [1_000, 2_000, 4_000, 8_000];
/** After two consecutive tokens that never worked, the delay before the next token request doubles up to a minute. */
const NEW_TOKEN_DELAY_MS = 5_000;
const MAX_NEW_TOKEN_DELAY_MS = 60_000;
/**
 * Time budget for stopping the session, out of 20 s for the whole shutdown (docs/interface.md). A token request in
 * progress may use half of it; the rest is for revocations.
 */
const STOP_BUDGET_MS = 5_000;
const MIN_REVOKE_BUDGET_MS = 500;
/** A 401 within this time before a token expires does not count as an early rejection, because clocks differ. */
const NEAR_END_MS = 60_000;

export type SessionReport = ReturnType<Session['snapshot']>;
type SessionState = 'none' | 'renewing' | 'valid' | 'waiting' | 'revoked';

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
 *                      └────failure───► waiting ──time, retryNow()─────► renewing
 *   any ──stop──► revoked
 *
 * Invariants:
 * 1. A call receives only a token that will still be valid on arrival, according to the monotonic clock alone.
 * 2. Callers without a valid token wait for a renewal in progress.
 * 3. A refresh token that may be invalid is never used again. The next grant is a login.
 * 4. New tokens are on disk before their first use. `LiveTokens` revokes their predecessors.
 * 5. A 401 invalidates only the token that was rejected. If the token is new, a server may not accept it yet. The call is
 *    then retried with the same token after 1, 2, 4 and 8 s. Until the platform accepts the token, the other calls wait
 *    and take turns, so that an endpoint that rejects every token does not delay the others.
 *
 * After a crash, the next startup revokes the tokens in `session.json` and logs in again. Tokens that were received but
 * not yet written are not revoked; they expire.
 */
export class Session implements TokenSource {
  readonly #options: SessionOptions;
  readonly #requests: TokenRequests;
  readonly #tokens: LiveTokens<IssuedToken>;
  readonly #failures: SignInFailures;
  readonly #ending = new AbortController();
  readonly #listeners = new Set<() => void>();
  #signal: AbortSignal | undefined;
  #state: SessionState = 'none';
  #attempt: Promise<void> | undefined;
  #cancelTimer: (() => void) | undefined;
  #nextAtMs: number | undefined;
  /** Number of consecutive tokens that were rejected and never accepted. */
  #rejectedNewTokens = 0;
  /** Whether an accepted token was rejected before its expiry and the call has not been retried with the next token. */
  #isRejectedEarly = false;
  /** Whether a call received no response or a 5xx since the platform last accepted a token. */
  #hadOutage = false;
  /** Whether the next token request must be a login, for example because the refresh token may have been consumed. */
  #isLoginDue = false;
  /** Whether calls may wait until a new token is accepted. */
  #mayWait = true;

  constructor(options: SessionOptions) {
    this.#options = options;
    const { boundary, baseUrl, credentials, file, clock, log, redactor } = options;
    this.#requests = new TokenRequests(boundary, baseUrl, credentials);
    this.#failures = new SignInFailures(clock, log);
    const revoke = (text: string, signal: AbortSignal) => this.#requests.revoke(text, signal);
    this.#tokens = new LiveTokens({ file, clock, log, redactor, revoke });
  }

  /**
   * Schedules the revocation of tokens from a previous run and starts the first login without waiting for it. After the
   * signal is aborted, no more tokens are requested.
   */
  async start(signal: AbortSignal): Promise<void> {
    this.#signal = signal;
    // Register the work as an attempt, so that `stop` waits for it. Otherwise, `stop` would remove the file while its
    // tokens are being read.
    this.#begin(() => this.#tokens.revokeLeftovers());
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
    this.endWaits();
    // If the session was never started, the session file may belong to another agent that has locked the state folder.
    if (!this.#signal) return;
    // Wait for a response in progress, because its tokens must also be revoked.
    const cancel = clock.after(budgetMs / 2, () => this.#ending.abort());
    // An attempt that is still running after the abort is waiting for the disk. The list already contains its tokens.
    await raced(this.#attempt ?? Promise.resolve(), this.#ending.signal).catch(() => {});
    cancel();
    await this.#tokens.end(Math.max(MIN_REVOKE_BUDGET_MS, budgetMs - (clock.monotonicMs() - startMs)));
  }

  async lease(signal?: AbortSignal): Promise<Lease> {
    for (;;) {
      signal?.throwIfAborted();
      const token = this.#usable();
      if (token && (!token.trial || token.trial.enter())) return this.#leaseOf(token);
      // The timer may be late, for example after a suspend, so that the renewal is overdue.
      if (!token && this.#state === 'valid' && this.#isDue()) this.#renew();
      const change = token ? token.trial!.changed : this.#state === 'renewing' && this.#attempt;
      if (!change) throw this.#noSession();
      await raced(change, signal);
    }
  }

  /** Releases all calls that wait until a new token is accepted. Called when the agent stops. */
  endWaits(): void {
    this.#mayWait = false;
    if (this.#tokens.current) endTrial(this.#tokens.current);
  }

  /** Registers a listener for state changes. Returns a function that removes the listener. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Retries a failed attempt now and resets the retry delays, for SIGHUP. */
  retryNow(): void {
    if (this.#state !== 'waiting') return;
    this.#failures.restartDelays();
    this.#renew();
  }

  /**
   * Requests new tokens, for `session renew`. Rejects if the request fails; the session then continues with its
   * schedule.
   */
  async renewNow(): Promise<void> {
    if (this.#state === 'revoked' || this.#state === 'none') throw this.#noSession();
    this.#failures.restartDelays();
    this.#renew();
    await this.#attempt;
    if (this.#failures.latest !== undefined) throw this.#failures.latest;
  }

  /** Logs in again and revokes the previous tokens, for `session revoke`. */
  async revokeNow(): Promise<void> {
    // Wait for a renewal in progress, because its tokens become the current tokens.
    await this.#attempt;
    this.#isLoginDue = true;
    await this.renewNow();
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
    this.#begin(async () => {
      failure = await this.#obtain(async () => {
        const issued = await this.#logIn(credentials);
        accept();
        return issued;
      });
      if (failure === undefined || isSignInRefused(failure)) return;
      this.#isLoginDue = true;
      this.#failed(failure);
    });
    await this.#attempt;
    // A renewal may have become due in the meantime.
    if (this.#isDue() || (this.#state === 'valid' && !this.isUsable)) this.#renew();
    return failure;
  }

  /** Whether a valid token is available. */
  get isUsable(): boolean {
    return this.#usable() !== undefined;
  }

  /** Error code of the latest token request, if it failed. */
  get lastErrorCode(): string | undefined {
    return codeOf(this.#failures.latest);
  }

  /** User ID of the current token, if the token response contained it. */
  get userId(): number | undefined {
    return this.#tokens.current?.userId;
  }

  /** Returns the session in the output format of `status`, health and `session show`. */
  snapshot() {
    const nowMs = this.#options.clock.monotonicMs();
    const state = this.#state;
    const token = this.#tokens.current;
    const error = this.#failures.latest;
    const hint = error instanceof TagferryError ? error.hint : undefined;
    const secondsUntil = (atMs: number | undefined) => atMs && Math.max(0, Math.round((atMs - nowMs) / 1000));
    return {
      state,
      /** Whether a valid token is available for calls. */
      usable: this.isUsable,
      grant: token?.grant,
      age_seconds: token && Math.round((nowMs - token.issuedAtMs) / 1000),
      expires_in_seconds: secondsUntil(token?.expiresAtMs),
      renews_in_seconds: state === 'valid' ? secondsUntil(this.#nextAtMs) : undefined,
      retry_in_seconds: state === 'waiting' ? secondsUntil(this.#nextAtMs) : undefined,
      access_token: token && tokenHint(token.accessToken),
      /** Number of failures since the latest sign-in. */
      failures: this.#failures.count,
      last_error:
        error === undefined ? undefined : { code: codeOf(error) ?? 'unknown', message: messageOf(error), hint },
    };
  }

  #isDue(): boolean {
    return this.#nextAtMs !== undefined && this.#nextAtMs <= this.#options.clock.monotonicMs();
  }

  #usable(): IssuedToken | undefined {
    const token = this.#tokens.current;
    if (!token || this.#isStopped()) return undefined;
    return isUsable(token, this.#options.clock.monotonicMs()) ? token : undefined;
  }

  #leaseOf(token: IssuedToken): Lease {
    const { trial } = token;
    token.inUse++;
    let available = false;
    return {
      accessToken: token.accessToken,
      responded: (status, attempt = { repeats: 0, isTokenReplaced: false }) => {
        available = status < 500;
        // An endpoint that rejects both tokens does not show that the first one was revoked.
        if (attempt.isTokenReplaced && available) this.#endEarlyRejection(status !== 401);
        if (status === 401) return this.#rejected(token, trial, attempt);
        if (available) this.#accept(token);
        return undefined;
      },
      isUsable: () => isUsable(token, this.#options.clock.monotonicMs()),
      release: () => {
        if (!available) {
          this.#hadOutage = true;
          trial?.open();
        }
        token.inUse--;
        if (token.inUse === 0) this.#tokens.revokeDue();
      },
    };
  }

  /**
   * Handles a 401. Returns the delay before the call is retried with the same token, in milliseconds, or `undefined` if
   * the token must not be used again. `entered`: trial in which the call tested the token.
   */
  #rejected(token: IssuedToken, entered: TokenTrial | undefined, attempt: Attempt): number | undefined {
    const { clock, log } = this.#options;
    const nowMs = clock.monotonicMs();
    const isCurrent = token === this.#tokens.current && !token.isRejected && !this.#isStopped();
    // A call that was in progress when another one was rejected waits with the others.
    if (isCurrent && token.trial && token.trial !== entered) return 0;
    const { isAccepted } = token;
    const rejections = isAccepted ? attempt.repeats : (token.trial?.rejections ?? 0);
    const delayMs = NEW_TOKEN_REPEATS_MS[rejections];
    const isNew = isCurrent && this.#mayWait && nowMs - token.issuedAtMs < NEW_TOKEN_MS;
    // The endpoint also rejected the previous token, but other calls with this token were accepted.
    const isEndpointSpecific = attempt.isTokenReplaced && isAccepted;
    if (!isNew || delayMs === undefined || !isUsable(token, nowMs + delayMs)) {
      return isEndpointSpecific ? undefined : this.#invalidate(token);
    }
    if (rejections === 0) log.info({ event: 'session.token_unknown' }, 'new access token rejected, retrying the call');
    if (isAccepted) return delayMs;
    token.trial ??= new TokenTrial();
    token.trial.rejected(clock, delayMs);
    return 0;
  }

  /** Records that the platform accepted the token. */
  #accept(token: IssuedToken): void {
    token.isAccepted = true;
    endTrial(token);
    if (token !== this.#tokens.current) return;
    this.#rejectedNewTokens = 0;
    this.#hadOutage = false;
  }

  /** Records whether the next token was accepted for a call whose token was rejected. */
  #endEarlyRejection(isAccepted: boolean): void {
    if (this.#isRejectedEarly && isAccepted) this.#options.onRevokedElsewhere?.();
    this.#isRejectedEarly = false;
  }

  /**
   * Handles a 401 that retries did not resolve. The token is not used again. A token that was accepted before is
   * replaced immediately, a new one after increasing delays.
   */
  #invalidate(token: IssuedToken): undefined {
    if (token.isRejected) return;
    token.isRejected = true;
    if (token === this.#tokens.current && !this.#isStopped()) this.#replace(token);
    endTrial(token);
  }

  #replace(token: IssuedToken): void {
    const { clock, log } = this.#options;
    this.#rejectedNewTokens = token.isAccepted ? 0 : this.#rejectedNewTokens + 1;
    const isEarly = token.expiresAtMs - clock.monotonicMs() > NEAR_END_MS;
    // Ignore rejections after an outage, because a platform may lose its tokens when it restarts.
    this.#isRejectedEarly ||= token.isAccepted && isEarly && !this.#hadOutage;
    const fields = { event: 'session.token_refused', rejectedNewTokens: this.#rejectedNewTokens };
    log.info(fields, 'access token rejected');
    const isFirst = this.#rejectedNewTokens <= 1;
    if (isFirst) this.#renew();
    if (isFirst || this.#attempt) return;
    const delayMs = Math.min(NEW_TOKEN_DELAY_MS * 2 ** (this.#rejectedNewTokens - 2), MAX_NEW_TOKEN_DELAY_MS);
    const error = new PlatformError('new access tokens are rejected with 401', {
      code: 'platform.fresh_token_refused',
      retryable: true,
      hint:
        'Check API_KEY_HEADER, and that PLATFORM_URL is the address that issued the token. If the platform has several ' +
        'servers, check that all of them accept a new token within 15 seconds.',
    });
    this.#enter('waiting', this.#failures.add(error, delayMs));
  }

  /** Starts a token request unless one is in progress, and enters the state `renewing`. */
  #renew(): void {
    if (this.#attempt || this.#isStopped() || this.#signal?.aborted) return;
    this.#enter('renewing');
    this.#begin(async () => {
      const failure = await this.#obtain(() => this.#requestTokens());
      if (failure !== undefined) this.#failed(failure);
    });
  }

  /** Starts work for which `stop` waits. */
  #begin(work: () => Promise<void>): void {
    this.#attempt = work().finally(() => {
      this.#attempt = undefined;
    });
  }

  /** Requests tokens, stores them and schedules the next renewal. Returns the error if the request fails. */
  async #obtain(request: () => Promise<Issued>): Promise<unknown> {
    const { clock, onRenewal } = this.#options;
    let issued: Issued;
    try {
      issued = await request();
    } catch (error) {
      return error;
    }
    const { tokens, grant, requestedAtMs } = issued;
    const before = this.#tokens.current;
    const lifetimeMs = tokens.expiresInMs;
    await this.#tokens.adopt({
      accessToken: tokens.accessToken,
      refreshToken: tokens.refreshToken,
      grant,
      userId: tokens.userId ?? before?.userId,
      issuedAtMs: requestedAtMs,
      lifetimeMs,
      expiresAtMs: requestedAtMs + lifetimeMs,
      // Measured from the login. The platform does not document whether a rotation starts a new period of 24 h.
      refreshUntilMs:
        grant === 'refresh_token' && before ? before.refreshUntilMs : requestedAtMs + REFRESH_TOKEN_LIFE_S * 1000,
      inUse: 0,
      isRejected: false,
      isAccepted: false,
    });
    onRenewal?.(grant);
    this.#failures.recovered(grant);
    if (grant === 'password') this.#isLoginDue = false;
    if (before) endTrial(before);
    if (this.#isStopped()) return;
    const renewedAfterMs = Math.max(MIN_RENEWAL_MS, lifetimeMs * (RENEW_FROM + RENEW_SPREAD * clock.random()));
    this.#enter('valid', requestedAtMs + renewedAfterMs - clock.monotonicMs());
  }

  /** Requests tokens with the refresh token if it is certainly valid. Otherwise, or if the refresh fails, logs in. */
  async #requestTokens(): Promise<Issued> {
    const { clock, log } = this.#options;
    const token = this.#tokens.current;
    const requestedAtMs = clock.monotonicMs();
    // If the refresh token would expire before the following renewal, log in before the expiry (platform 8).
    const isLasting = token && requestedAtMs + token.lifetimeMs < token.refreshUntilMs;
    if (token?.refreshToken !== undefined && !this.#isLoginDue && isLasting) {
      try {
        const tokens = await this.#requests.refresh(token.refreshToken, this.#ending.signal);
        return { tokens, grant: 'refresh_token', requestedAtMs };
      } catch (error) {
        if (refreshTokenSurvives(error)) throw error;
        this.#isLoginDue = true;
        if (this.#isStopped()) throw error;
        const fields = { event: 'session.refresh_failed', code: codeOf(error), error: messageOf(error) };
        log.info(fields, 'refresh failed, logging in instead');
      }
    }
    return this.#logIn();
  }

  async #logIn(credentials?: SessionCredentials): Promise<Issued> {
    const requestedAtMs = this.#options.clock.monotonicMs();
    return { tokens: await this.#requests.login(this.#ending.signal, credentials), grant: 'password', requestedAtMs };
  }

  #failed(error: unknown): void {
    if (this.#isStopped()) return;
    if (!isSignInRefused(error)) this.#isRejectedEarly = false;
    this.#enter('waiting', this.#failures.add(error));
  }

  /** Enters a state and notifies the listeners. */
  #enter(state: SessionState, nextInMs?: number): void {
    const { clock } = this.#options;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#state = state;
    this.#nextAtMs = nextInMs === undefined ? undefined : clock.monotonicMs() + nextInMs;
    if (nextInMs !== undefined) this.#cancelTimer = clock.after(nextInMs, () => this.#renew());
    for (const listener of [...this.#listeners]) listener();
  }

  #isStopped(): boolean {
    return this.#state === 'revoked';
  }

  /** Returns the error for a call without a token. Its cause is the error of the latest token request. */
  #noSession(): PlatformError {
    const cause = this.#failures.latest;
    const why = cause === undefined ? '' : `: ${messageOf(cause)}`;
    return new PlatformError(`not signed in to the platform${why}`, {
      code: 'platform.no_session',
      retryable: true,
      cause,
      ...(cause instanceof TagferryError && cause.hint ? { hint: cause.hint } : {}),
    });
  }
}

/** Returns the last 4 characters of a long token, which distinguish tokens but do not reveal them. */
function tokenHint(accessToken: string): string {
  return accessToken.length >= 16 ? `…${accessToken.slice(-4)}` : '…';
}

/**
 * Returns whether a token can be sent. The margin ensures that the token is still valid on arrival over a slow link.
 */
function isUsable({ isRejected, expiresAtMs, lifetimeMs }: IssuedToken, nowMs: number): boolean {
  return !isRejected && nowMs < expiresAtMs - Math.min(60_000, lifetimeMs / 10);
}

/**
 * Returns whether the refresh token is certainly still valid: the request did not reach the platform or was rate
 * limited. After any other failure, the platform may have consumed the refresh token.
 */
function refreshTokenSurvives(error: unknown): boolean {
  if (error instanceof GrantError) return error.failure === 'rate_limited';
  return isNeverSent(codeOf(error));
}

/** Lets all waiting calls continue. */
function endTrial(token: IssuedToken): void {
  token.trial?.end();
  token.trial = undefined;
}

/** Retries of a new token that was rejected. One call at a time tests the token; the others wait for `changed`. */
class TokenTrial {
  /** Number of rejections so far. */
  rejections = 0;
  /** Whether the next call may test the token. */
  #isOpen = false;
  #changed = Promise.withResolvers<void>();
  #cancelTimer: (() => void) | undefined;

  /** Settles when the next call may try to enter. */
  get changed(): Promise<void> {
    return this.#changed.promise;
  }

  /** Returns whether the call may test the token now. */
  enter(): boolean {
    const mayEnter = this.#isOpen;
    this.#isOpen = false;
    return mayEnter;
  }

  /** Records a rejection. The next call may enter after the delay. */
  rejected(clock: Clock, delayMs: number): void {
    this.rejections++;
    this.#cancelTimer = clock.after(delayMs, () => this.open());
  }

  /** Lets the next call enter. */
  open(): void {
    this.#isOpen = true;
    this.#changed.resolve();
    this.#changed = Promise.withResolvers<void>();
  }

  end(): void {
    this.#cancelTimer?.();
    this.#changed.resolve();
  }
}
