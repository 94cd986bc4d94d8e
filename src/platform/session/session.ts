import type { Clock } from '../../base/clock.ts';
import { codeOf, messageOf, PlatformError, TagferryError } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import type { Redactor } from '../../base/redactor.ts';
import { GrantError } from '../grants/grant-error.ts';
import type { Tokens } from '../grants/token-answer.ts';
import type { HttpBoundary } from '../http-boundary.ts';
import type { Lease, TokenSource } from '../token-source.ts';
import { type IssuedToken, issueToken, isUsable, type SessionGrant } from './issued-token.ts';
import type { SessionFile } from './session-file.ts';
import { type SessionSnapshot, type SessionState, snapshotOf } from './session-snapshot.ts';
import { MIN_RENEWAL_MS, maxRestMs, nextGrant, retryDelayMs, type Trouble, unprovenDelayMs } from './session-timing.ts';
import { SignInFailureLog } from './sign-in-failure-log.ts';
import { TokenKeeper } from './token-keeper.ts';
import { isSignInRefused, refreshTokenSurvives, type SessionCredentials, TokenRequests } from './token-requests.ts';

/**
 * The technical user's session: the one pair of tokens that every call to the platform uses.
 *
 * States:
 * - `none`      before `start`.
 * - `renewing`  one token request is under way, never two; a token that is still good goes on being handed out beside it.
 * - `valid`     a token is there; its renewal is scheduled at a jittered point well before its end.
 * - `waiting`   the last request failed; the next is scheduled. The token before may still be good.
 * - `revoked`   stopped. Nothing is asked for any more.
 *
 *   none ──start──► renewing ──tokens──► valid ──time, 401, renew()──► renewing
 *                      └────failure───► waiting ──time, tryNow()─────► renewing
 *   any ──stop──► revoked
 *
 * Invariants:
 * 1. A token is handed out only while enough of its life is left to arrive valid, by the monotonic clock alone.
 * 2. Everyone who asks during a renewal waits for that one.
 * 3. A refresh token of which it is not certain that it is good is never used again: the next grant is a login.
 * 4. New tokens are on disk before anyone gets them. Their predecessor is handed to `TokenKeeper` after that, so it is
 *    revoked when no call uses it; not where both share a refresh token, which revoking would end: such predecessors are
 *    revoked with the last of their line.
 * 5. A 401 invalidates only the token it was said to.
 *
 * A crash leaves `session.json`: the next start revokes what it names and logs in anew. A crash between the platform's
 * answer and the file leaves tokens that nobody knows; they end by themselves.
 */
export interface SessionOptions {
  boundary: Pick<HttpBoundary, 'send'>;
  /** The spec's {base_url}. */
  baseUrl: string;
  credentials: () => SessionCredentials;
  file: SessionFile;
  clock: Clock;
  log: Logger;
  /** Learns every token before anyone uses it. */
  redactor: Redactor;
  /** Counts renewals: `tagferry_session_renewals_total{grant}`. */
  onRenewal?: (grant: SessionGrant) => void;
  /** A token that had worked was rejected before its end, and the next one works: somebody else has revoked it. */
  onRevokedElsewhere?: () => void;
}

/** Stop has 20 s for everything (docs/interface.md): a token request under way gets half of this, revocation the rest. */
const STOP_BUDGET_MS = 5_000;
const MIN_REVOKE_BUDGET_MS = 500;
/** A 401 is the first again when none came for this long. */
const REFUSAL_MEMORY_MS = 60_000;
/** A 401 so shortly before the end of a token says nothing: clocks differ. */
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
  /** Tokens in a row that were refused before they ever worked. */
  #unproven = 0;
  /** A token that had worked was rejected before its end; not known yet whether the next one works. */
  #isRejectedEarly = false;

  constructor(options: SessionOptions) {
    this.#options = options;
    const { boundary, baseUrl, credentials, file, clock, log, redactor } = options;
    this.#requests = new TokenRequests(boundary, baseUrl, credentials, clock);
    this.#failureLog = new SignInFailureLog(clock, log);
    const revoke = (text: string, signal: AbortSignal) => this.#requests.revoke(text, signal);
    this.#keeper = new TokenKeeper({ file, clock, log, redactor, revoke });
  }

  /** Takes up what a crash left and begins the first login; does not wait for it. When the signal fires, no more is asked. */
  async start(signal: AbortSignal): Promise<void> {
    if (this.#state !== 'none') throw new Error('a session starts once');
    this.#signal = signal;
    // As an attempt: a stop waits for it, else it would remove the file whose tokens are just being read.
    this.#begin(this.#keeper.takeUpLeftovers());
    await this.#attempt;
    this.#renew();
  }

  /** Lets a token request under way end, revokes every token within the budget, and answers no one any more. */
  async stop(budgetMs = STOP_BUDGET_MS): Promise<void> {
    if (this.#state === 'revoked') return;
    const { clock } = this.#options;
    const startMs = clock.monotonicMs();
    this.#enter('revoked');
    // Never started: the session file may be that of another daemon, whose state folder this one was refused.
    if (!this.#signal) return;
    // Tokens whose answer is under way would be nobody's: better to wait for them and revoke them too.
    const cancel = clock.after(budgetMs / 2, () => this.#ending.abort());
    // One that is not over by then waits for a disk: its tokens are the keeper's.
    await raced(this.#attempt ?? Promise.resolve(), this.#ending.signal).catch(() => {});
    cancel();
    await this.#keeper.end(Math.max(MIN_REVOKE_BUDGET_MS, budgetMs - (clock.monotonicMs() - startMs)));
  }

  async lease(signal?: AbortSignal): Promise<Lease> {
    for (let waited = false; ; waited = true) {
      signal?.throwIfAborted();
      const token = this.#usable();
      if (token) return this.#leaseOf(token);
      // A timer that came late (a machine that slept): the renewal is overdue.
      if (this.#state === 'valid' && this.#isDue()) this.#renew();
      if (this.#state !== 'renewing' || waited) throw this.#noSession();
      await raced(this.#attempt ?? Promise.resolve(), signal);
    }
  }

  /** Called after every change of state; the function it returns ends that. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** SIGHUP: where the last attempt failed, the next is now, and the schedule starts again. */
  tryNow(): void {
    if (this.#state !== 'waiting') return;
    this.#trouble = undefined;
    this.#renew();
  }

  /** `session renew`: new tokens now. Rejects with what went wrong; the session then goes on by its schedule. */
  async renewNow(): Promise<SessionSnapshot> {
    if (this.#state === 'revoked' || this.#state === 'none') throw this.#noSession();
    this.#trouble = undefined;
    this.#renew();
    await this.#attempt;
    if (this.#lastError !== undefined) throw this.#lastError;
    return this.snapshot();
  }

  /** `session revoke`: the tokens of now are replaced by those of a new login and revoked. */
  async revokeNow(): Promise<SessionSnapshot> {
    // After a renewal that is under way: its tokens are those of now.
    await this.#attempt;
    if (this.#keeper.current) this.#keeper.current.refreshToken = undefined;
    return this.renewNow();
  }

  /** Whether there is a token that the platform takes. */
  get isUsable(): boolean {
    return this.#usable() !== undefined;
  }

  /** The user of the token in use, where the token response reported it. */
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
    return {
      accessToken: token.accessToken,
      accepted: () => {
        token.proven = true;
        if (token === this.#keeper.current) this.#tokenAccepted();
      },
      refused: () => this.#refuse(token),
      release: () => {
        if (released) return;
        released = true;
        token.inUse--;
        this.#keeper.released(token);
      },
    };
  }

  /** The platform accepted the token in use. */
  #tokenAccepted(): void {
    this.#unproven = 0;
    if (!this.#isRejectedEarly) return;
    this.#isRejectedEarly = false;
    this.#options.onRevokedElsewhere?.();
  }

  /** 401: the token is not handed out again, and replaced; at once where it ever worked, with growing rests where not. */
  #refuse(token: IssuedToken): void {
    if (token.refused) return;
    token.refused = true;
    if (token !== this.#keeper.current || this.#isStopped()) return;
    this.#unproven = token.proven ? 0 : this.#unproven + 1;
    this.#isRejectedEarly ||= token.proven && token.expiresAtMs - this.#options.clock.monotonicMs() > NEAR_END_MS;
    const fields = { event: 'session.token_refused', unproven: this.#unproven };
    this.#options.log.info(fields, 'the platform refused the access token');
    const nowMs = this.#options.clock.monotonicMs();
    // A token may work and be dead a moment later, time and again: only the first is replaced at once.
    const again = nowMs - this.#lastRefusalMs < REFUSAL_MEMORY_MS;
    const restMs = again ? token.issuedAtMs + MIN_RENEWAL_MS - nowMs : 0;
    const delayMs = Math.max(unprovenDelayMs(this.#unproven), restMs, 0);
    this.#lastRefusalMs = nowMs;
    if (delayMs === 0) {
      this.#renew();
    } else if (!this.#attempt) {
      this.#lastError = new PlatformError('the platform answers 401 to tokens that it has just given', {
        code: 'platform.fresh_token_refused',
        retryable: true,
        hint: 'Check API_KEY_HEADER, and that PLATFORM_URL is the address that gave the token.',
      });
      this.#failureLog.failed(this.#lastError, false, delayMs);
      this.#enter('waiting', delayMs);
    }
  }

  /** Begins a token request unless one is under way. The state is `renewing` from this moment on. */
  #renew(): void {
    if (this.#attempt || this.#isStopped() || this.#signal?.aborted) return;
    this.#enter('renewing');
    this.#begin(this.#obtain());
  }

  /** What a stop waits for. */
  #begin(work: Promise<void>): void {
    this.#attempt = work.finally(() => {
      this.#attempt = undefined;
    });
  }

  /** One attempt from request to schedule; never rejects. */
  async #obtain(): Promise<void> {
    const { clock, onRenewal } = this.#options;
    try {
      const { tokens, grant, askedAtMs } = await this.#ask();
      const next = issueToken(tokens, grant, askedAtMs, this.#keeper.current, () => clock.random());
      await this.#keeper.adopt(next);
      onRenewal?.(grant);
      this.#failureLog.recovered(grant);
      this.#trouble = undefined;
      this.#lastError = undefined;
      if (!this.#isStopped()) this.#enter('valid', next.renewAtMs - clock.monotonicMs());
    } catch (error) {
      if (!this.#isStopped()) this.#failed(error);
    }
  }

  /** A refresh where its token is surely good, else, and where that fails, a login. */
  async #ask(): Promise<{ tokens: Tokens; grant: SessionGrant; askedAtMs: number }> {
    const { clock, log } = this.#options;
    const { signal } = this.#ending;
    const token = this.#keeper.current;
    const askedAtMs = clock.monotonicMs();
    if (token?.refreshToken !== undefined && nextGrant(token, askedAtMs) === 'refresh_token') {
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
    this.#lastError = error;
    this.#failureLog.failed(error, kind === 'refused', delayMs);
    this.#enter('waiting', delayMs);
  }

  #enter(state: SessionState, nextInMs?: number): void {
    const { clock } = this.#options;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#state = state;
    this.#nextAtMs = nextInMs === undefined ? undefined : clock.monotonicMs() + nextInMs;
    if (nextInMs !== undefined) this.#cancelTimer = clock.after(nextInMs, () => this.#renew());
    for (const listener of [...this.#listeners]) this.#tell(listener);
  }

  /** A listener that fails must not change what becomes of the session. */
  #tell(listener: () => void): void {
    try {
      listener();
    } catch (error) {
      this.#options.log.error({ event: 'session.listener_failed', error: messageOf(error) }, 'a listener failed');
    }
  }

  #isStopped(): boolean {
    return this.#state === 'revoked';
  }

  #noSession(): PlatformError {
    const error = this.#lastError;
    const why = error === undefined ? '' : `: ${messageOf(error)}`;
    return new PlatformError(`there is no session with the platform now${why}`, {
      code: 'platform.no_session',
      retryable: true,
      cause: error,
      ...(error instanceof TagferryError && error.hint ? { hint: error.hint } : {}),
    });
  }
}

/** Waits for a promise or for the signal's reason, whichever comes first. */
async function raced(promise: Promise<void>, signal: AbortSignal | undefined): Promise<void> {
  if (!signal) return promise;
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const onAbort = () => reject(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}
