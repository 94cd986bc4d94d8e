import type { Clock } from '../../base/clock.ts';
import { codeOf, messageOf, TagferryError } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import { fullJitterMs } from '../../base/retry.ts';
import type { IssuedToken } from './issued-token.ts';
import { revokeByMs } from './session-timing.ts';

/** Token to be revoked. A token from a previous run is not used by calls, and its remaining lifetime is unknown. */
export interface RetiredToken {
  readonly issued: Pick<IssuedToken, 'accessToken' | 'refreshToken' | 'expiresAtMs' | 'lifeMs' | 'inUse'>;
  /** Monotonic time at which the access token and the refresh token have both expired. */
  readonly endsAtMs: number;
  /**
   * Returns the tokens to send to the revocation endpoint: the access token, whose revocation also
   * invalidates the refresh token (platform 3.3), or the refresh token if the access token has expired. If the expiry
   * of the access token is uncertain, returns both.
   */
  texts(): readonly string[];
  /** Expiry time recorded in the session file. */
  readonly expiresWallMs: number;
}

export interface RetiredTokensOptions {
  clock: Clock;
  log: Logger;
  /** Revokes one token. Throws if the revocation is not confirmed. */
  revoke(text: string, signal: AbortSignal): Promise<void>;
  /** Called when a token has been removed from the list, so that the session file can be rewritten. */
  onGone(): void;
}

interface Entry {
  readonly token: RetiredToken;
  failures: number;
  notBeforeMs: number;
}

const RETRY = { baseMs: 1_000, capMs: 15_000 };
/** Retry delays for refresh tokens, which are valid for up to a day. */
const SLOW_RETRY = { baseMs: 1_000, capMs: 120_000 };
const FAST_BELOW_MS = 3_600_000;

/**
 * Queue of replaced or unused tokens that are waiting to be revoked (platform 5.6).
 *
 * A token is revoked as soon as no call uses it, but at the latest shortly before it expires. Only one revocation runs
 * at a time, earliest expiry first. If the platform is unavailable, the revocation is retried until the token expires.
 * If the platform rejects the revocation, the token is dropped. The list is persisted in the session file in case of a
 * crash.
 */
export class RetiredTokens {
  readonly #options: RetiredTokensOptions;
  #waiting: Entry[] = [];
  #working: Promise<void> | undefined;
  #cancelTimer: (() => void) | undefined;
  #stopped = false;
  readonly #ending = new AbortController();

  constructor(options: RetiredTokensOptions) {
    this.#options = options;
  }

  list(): readonly RetiredToken[] {
    return this.#waiting.map((entry) => entry.token);
  }

  add(token: RetiredToken): void {
    if (this.#waiting.some((entry) => entry.token.issued.accessToken === token.issued.accessToken)) return;
    this.#waiting.push({ token, failures: 0, notBeforeMs: 0 });
    this.revokeDueTokens();
  }

  /**
   * Removes a token from the list, because a server may issue the same access token again, which must not be revoked.
   */
  remove(accessToken: string): void {
    this.#waiting = this.#waiting.filter((entry) => entry.token.issued.accessToken !== accessToken);
  }

  /** Revokes tokens that are due. Called when a call has ended, a timer has expired, or a token was added. */
  revokeDueTokens(): void {
    if (this.#stopped || this.#working) return;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#working = this.#revokeDue().finally(() => {
      this.#working = undefined;
      // A token may have become due after the last check in the loop.
      if (this.#nextDue() !== undefined) this.revokeDueTokens();
      else this.#sleepUntilDue();
    });
  }

  /**
   * Revokes all tokens immediately, even if they are in use, within `budgetMs`. Returns the tokens that could not be
   * revoked.
   */
  async drain(budgetMs: number): Promise<readonly RetiredToken[]> {
    const { clock } = this.#options;
    const cancel = clock.after(budgetMs, () => this.#ending.abort());
    this.#stopped = true;
    this.#cancelTimer?.();
    await this.#working;
    for (const entry of [...this.#waiting]) {
      if (this.#ending.signal.aborted) break;
      await this.#revokeOne(entry);
    }
    cancel();
    return this.list();
  }

  async #revokeDue(): Promise<void> {
    for (let entry = this.#nextDue(); entry && !this.#stopped; entry = this.#nextDue()) await this.#revokeOne(entry);
  }

  #nextDue(): Entry | undefined {
    const nowMs = this.#options.clock.monotonicMs();
    return this.#waiting
      .filter((entry) => this.#dueAtMs(entry) <= nowMs)
      .sort((a, b) => a.token.issued.expiresAtMs - b.token.issued.expiresAtMs)[0];
  }

  #dueAtMs(entry: Entry): number {
    const { issued } = entry.token;
    const idleAtMs = issued.inUse === 0 ? 0 : revokeByMs(issued.expiresAtMs, issued.lifeMs);
    return Math.max(idleAtMs, entry.notBeforeMs);
  }

  #sleepUntilDue(): void {
    if (this.#stopped || this.#waiting.length === 0) return;
    const { clock } = this.#options;
    const atMs = Math.min(...this.#waiting.map((entry) => this.#dueAtMs(entry)));
    this.#cancelTimer = clock.after(atMs - clock.monotonicMs(), () => this.revokeDueTokens());
  }

  async #revokeOne(entry: Entry): Promise<void> {
    const { clock, log } = this.#options;
    const { issued } = entry.token;
    if (clock.monotonicMs() >= entry.token.endsAtMs) {
      log.info({ event: 'session.revoke_missed' }, 'replaced token expired before it was revoked');
      return this.#gone(entry);
    }
    try {
      await this.#revokeAll(entry.token.texts());
      log.debug({ event: 'session.revoked' }, 'token revoked');
      this.#gone(entry);
    } catch (error) {
      if (this.#ending.signal.aborted) return;
      if (!mayPass(error)) {
        const fields = { event: 'session.revoke_refused', code: codeOf(error), error: messageOf(error) };
        log.warn(fields, 'failed to revoke a token');
        return this.#gone(entry);
      }
      const nowMs = clock.monotonicMs();
      const isUrgent = issued.lifeMs < FAST_BELOW_MS && nowMs < issued.expiresAtMs;
      const retry = isUrgent ? RETRY : SLOW_RETRY;
      entry.notBeforeMs = nowMs + fullJitterMs(entry.failures++, retry, () => clock.random(), 500);
      log.debug({ event: 'session.revoke_failed', code: codeOf(error) }, 'failed to revoke a token, retrying');
    }
  }

  /**
   * Revokes all given tokens. Continues after a rejected revocation, because an expired access token may be rejected
   * while its refresh token is still valid.
   */
  async #revokeAll(texts: readonly string[]): Promise<void> {
    const refusals: unknown[] = [];
    for (const text of texts) {
      try {
        await this.#options.revoke(text, this.#ending.signal);
      } catch (error) {
        if (mayPass(error)) throw error;
        refusals.push(error);
      }
    }
    if (refusals.length > 0) throw refusals[0];
  }

  #gone(entry: Entry): void {
    this.#waiting = this.#waiting.filter((other) => other !== entry);
    this.#options.onGone();
  }
}

function mayPass(error: unknown): boolean {
  return error instanceof TagferryError && error.retryable;
}
