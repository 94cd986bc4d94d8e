import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import type { Redactor } from '../../base/redactor.ts';
import { ACCESS_TOKEN_LIFE_S, REFRESH_TOKEN_LIFE_S } from '../../contract/tokens.ts';
import type { IssuedToken } from './issued-token.ts';
import { type RetiredToken, RetiredTokens } from './retired-tokens.ts';
import type { SessionFile, StoredToken } from './session-file.ts';

export interface TokenKeeperOptions {
  file: SessionFile;
  clock: Clock;
  log: Logger;
  redactor: Redactor;
  revoke(text: string, signal: AbortSignal): Promise<void>;
}

/**
 * Tracks the valid tokens: the current token, its predecessors, and the tokens of a previous run.
 *
 * A token is `current`, `sharing`, or waiting to be revoked. `sharing` contains predecessors with the current refresh
 * token, which their revocation would invalidate. All tokens are stored in the session file before their first use, so
 * that they can be revoked at the next startup after a crash.
 */
export class TokenKeeper {
  readonly #options: TokenKeeperOptions;
  readonly #retired: RetiredTokens;
  #current: IssuedToken | undefined;
  /** Token that is being stored and has not been used yet. */
  #next: IssuedToken | undefined;
  #sharing: IssuedToken[] = [];
  #storeFailed = false;
  /** Whether the tokens of the previous run are being read. Until then, they are stored only in the file. */
  #isReading = false;

  constructor(options: TokenKeeperOptions) {
    this.#options = options;
    const { clock, log, revoke } = options;
    this.#retired = new RetiredTokens({ clock, log, revoke, onGone: () => void this.#store() });
  }

  get current(): IssuedToken | undefined {
    return this.#current;
  }

  /** Stores a token, makes it the current token, and retires its predecessor. */
  async adopt(next: IssuedToken): Promise<void> {
    const previous = this.#current;
    this.#options.redactor.learn(next.accessToken, next.refreshToken);
    this.#retired.remove(next.accessToken);
    this.#next = next;
    await this.#store();
    // If `end` was called in the meantime, the token has been revoked.
    if (this.#next !== next) return;
    this.#current = next;
    this.#next = undefined;
    const isRefreshed = next.grant === 'refresh_token';
    const line = this.#validSharing();
    if (previous && previous.accessToken !== next.accessToken) line.push(previous);
    this.#sharing = [];
    for (const token of line) {
      if (isRefreshed && token.refreshToken !== undefined && token.refreshToken === next.refreshToken) {
        this.#sharing.push(token);
        continue;
      }
      // The refresh token has been exchanged for a new one.
      if (isRefreshed) token.refreshToken = undefined;
      this.#retire(token);
    }
  }

  /** Returns the sharing tokens without the expired ones. Their refresh token is revoked with the current token. */
  #validSharing(): IssuedToken[] {
    const nowMs = this.#options.clock.monotonicMs();
    return this.#sharing.filter((token) => token.expiresAtMs > nowMs);
  }

  /** Called when a call has ended, because a retired token may no longer be in use. */
  released(token: IssuedToken): void {
    if (token.inUse === 0 && token !== this.#current) this.#retired.revokeDueTokens();
  }

  /**
   * Revokes all tokens within the budget, including a token that is still being stored. The current token is retired
   * last.
   */
  async end(budgetMs: number): Promise<void> {
    for (const token of this.#validSharing()) this.#retire(token);
    const last = [this.#current, this.#next].filter((token) => token !== undefined);
    this.#sharing = [];
    this.#current = this.#next = undefined;
    for (const token of last) this.#retire(token);
    const left = await this.#retired.drain(budgetMs);
    if (left.length > 0) {
      const fields = { event: 'session.not_revoked', tokens: left.length };
      this.#options.log.warn(fields, 'tokens not revoked, they will be revoked on the next startup');
    }
    // If the disk hangs and the tokens of the previous run have not been read yet, keep the file for the next startup.
    if (!this.#isReading) await this.#store();
  }

  /** Schedules the revocation of tokens from a previous run. */
  async revokeLeftovers(): Promise<void> {
    const { file, clock, log, redactor } = this.#options;
    let left: StoredToken[] = [];
    this.#isReading = true;
    try {
      left = await file.read();
    } catch (error) {
      const fields = { event: 'session.file_unreadable', error: messageOf(error) };
      log.warn(fields, 'failed to read tokens from the previous run');
    }
    this.#isReading = false;
    if (left.length === 0) return;
    log.info({ event: 'session.leftovers', tokens: left.length }, 'revoking tokens from the previous run');
    for (const token of left) {
      redactor.learn(token.accessToken, token.refreshToken);
      this.#retired.add(leftover(token, clock));
    }
  }

  /** Schedules the revocation of a token pair, unless both of its tokens have expired. */
  #retire(token: IssuedToken): void {
    const { clock } = this.#options;
    const { accessToken, refreshToken, expiresAtMs, refreshUntilMs } = token;
    const endsAtMs = refreshToken === undefined ? expiresAtMs : Math.max(expiresAtMs, refreshUntilMs);
    if (endsAtMs <= clock.monotonicMs()) return;
    const texts = () =>
      clock.monotonicMs() >= expiresAtMs && refreshToken !== undefined ? [refreshToken] : [accessToken];
    this.#retired.add({ issued: token, endsAtMs, texts, expiresWallMs: this.#wallEnd(token) });
  }

  #wallEnd(token: IssuedToken): number {
    const { clock } = this.#options;
    return Math.round(clock.wallMs() + token.expiresAtMs - clock.monotonicMs());
  }

  /** Stores all valid tokens. Disk errors are logged and do not affect the session. */
  async #store(): Promise<void> {
    const { file, log } = this.#options;
    const issued = [this.#next, this.#current, ...this.#sharing].filter((token) => token !== undefined);
    const stored = issued.map((token) => storedForm(token, this.#wallEnd(token)));
    for (const token of this.#retired.list()) stored.push(storedForm(token.issued, token.expiresWallMs));
    try {
      await file.write(stored);
      this.#storeFailed = false;
    } catch (error) {
      if (this.#storeFailed) return;
      this.#storeFailed = true;
      const fields = { event: 'session.file_failed', error: messageOf(error) };
      log.warn(fields, 'failed to store the session, a crash would leave its tokens unrevoked');
    }
  }
}

function storedForm(token: RetiredToken['issued'], expiresWallMs: number): StoredToken {
  return { accessToken: token.accessToken, refreshToken: token.refreshToken, expiresWallMs };
}

/**
 * Converts a stored token from a previous run. Its remaining lifetime is unknown because the clock may have jumped, so
 * revocation is retried for the maximum lifetime of the pair. If the access token may have expired, the refresh token
 * is revoked as well.
 */
function leftover(token: StoredToken, clock: Clock): RetiredToken {
  const { accessToken, refreshToken, expiresWallMs } = token;
  const accessLifeMs = ACCESS_TOKEN_LIFE_S * 1000;
  const lifeMs = refreshToken === undefined ? accessLifeMs : REFRESH_TOKEN_LIFE_S * 1000;
  const endsAtMs = clock.monotonicMs() + lifeMs;
  return {
    issued: { accessToken, refreshToken, expiresAtMs: endsAtMs, lifeMs, inUse: 0 },
    endsAtMs,
    texts() {
      const wallMs = clock.wallMs();
      const isCertainlyValid = wallMs < expiresWallMs && wallMs > expiresWallMs - accessLifeMs;
      return isCertainlyValid || refreshToken === undefined ? [accessToken] : [accessToken, refreshToken];
    },
    expiresWallMs,
  };
}
