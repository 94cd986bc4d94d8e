import type { Clock } from '../../base/clock.ts';
import { codeOf, messageOf, TagferryError } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import { fullJitterMs } from '../../base/retry.ts';
import type { IssuedToken } from './issued-token.ts';
import { revokeByMs } from './session-timing.ts';

/** A token that is to be revoked. One of an earlier run has no calls and an unknown rest of life. */
export interface RetiredToken {
  readonly issued: Pick<IssuedToken, 'accessToken' | 'refreshToken' | 'expiresAtMs' | 'lifeMs' | 'inUse'>;
  /** What the revocation endpoint is told: the access token, for one of an earlier run perhaps the refresh token too. */
  texts(): readonly string[];
  /** As it stands in the session file. */
  readonly expiresWallMs: number;
}

export interface RetiredTokensOptions {
  clock: Clock;
  log: Logger;
  /** Revokes one token text; throws where that is not known to have happened. */
  revoke(text: string, signal: AbortSignal): Promise<void>;
  /** The list is shorter: the session file can be. */
  onGone(): void;
}

interface Entry {
  readonly token: RetiredToken;
  failures: number;
  notBeforeMs: number;
}

const RETRY = { baseMs: 1_000, capMs: 15_000 };
/** Of an earlier run, where the refresh token may live for a day: no hurry. */
const SLOW_RETRY = { baseMs: 1_000, capMs: 120_000 };
const HURRY_BELOW_MS = 3_600_000;

/**
 * Tokens that were replaced or are no longer needed, on their way to revocation (platform 5.6).
 *
 * Each waits until no call uses it, but never past the point after which it would expire unrevoked; one revocation is
 * under way at a time, the one that expires first goes first. A revocation that fails because the platform is away is
 * tried until the token has expired by itself; one that the platform refuses is given up. A crash leaves the list to
 * the session file.
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
    this.look();
  }

  /** A server may give the same access token again: then it must not be revoked. */
  keep(accessToken: string): void {
    this.#waiting = this.#waiting.filter((entry) => entry.token.issued.accessToken !== accessToken);
  }

  /** A call has ended, time has passed, a token was added: revoke what is due. */
  look(): void {
    if (this.#stopped || this.#working) return;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#working = this.#revokeDue().finally(() => {
      this.#working = undefined;
      // Something may have become due after the last look of the loop.
      if (this.#nextDue() !== undefined) this.look();
      else this.#sleepUntilDue();
    });
  }

  /** Revokes everything now, used or not, within a budget of milliseconds. Gives what could not be revoked. */
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
    this.#cancelTimer = clock.after(atMs - clock.monotonicMs(), () => this.look());
  }

  async #revokeOne(entry: Entry): Promise<void> {
    const { clock, log } = this.#options;
    const { issued } = entry.token;
    if (clock.monotonicMs() >= issued.expiresAtMs) {
      log.info({ event: 'session.revoke_missed' }, 'a replaced token expired before it could be revoked');
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
        log.warn(fields, 'the platform refused to revoke a token');
        return this.#gone(entry);
      }
      entry.notBeforeMs =
        clock.monotonicMs() +
        fullJitterMs(entry.failures++, issued.lifeMs < HURRY_BELOW_MS ? RETRY : SLOW_RETRY, () => clock.random(), 500);
      log.debug({ event: 'session.revoke_failed', code: codeOf(error) }, 'a token is not revoked yet');
    }
  }

  /** One that is refused keeps no other back: an access token that has expired may be, and its refresh token lives on. */
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
