import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { removeDurably, writeDurably } from '../../base/durable-file.ts';
import { codeOf, messageOf, StoreError, TagferryError } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import type { Redactor } from '../../base/redactor.ts';
import { fullJitterMs } from '../../base/retry.ts';
import { ACCESS_TOKEN_LIFE_S, REFRESH_TOKEN_LIFE_S } from '../../contract/tokens.ts';

export type SessionGrant = 'password' | 'refresh_token';

/** Token pair that must be revoked once it is no longer needed. Times are monotonic. */
export interface LiveToken {
  readonly accessToken: string;
  /** Undefined if the server issued none, or after the refresh token was exchanged for a new one. */
  refreshToken: string | undefined;
  readonly expiresAtMs: number;
  /** Expiry of the refresh token. */
  readonly refreshUntilMs: number;
  /** Whether a previous run issued the pair, so that its remaining lifetime is unknown. */
  readonly isLeftover?: boolean;
  /** Number of calls in progress that use this token. */
  inUse: number;
  /** Set once the pair must be revoked. */
  retired?: { failures: number; notBeforeMs: number };
}

/** Token pair in `session.json`. */
export type StoredToken = Pick<LiveToken, 'accessToken' | 'refreshToken'>;

export interface LiveTokensOptions {
  file: Pick<SessionFile, 'read' | 'write'>;
  clock: Clock;
  log: Logger;
  redactor: Redactor;
  /** Revokes one token. Throws if the revocation is not confirmed. */
  revoke(text: string, signal: AbortSignal): Promise<void>;
}

const RETRY = { baseMs: 1_000, capMs: 60_000 };

/**
 * List of all token pairs that may be valid, oldest first: the tokens of a previous run, the replaced tokens and the
 * current token. The list is stored in the session file before the first use of a token, so that the next startup can
 * revoke all tokens after a crash.
 *
 * A replaced token is retired with its refresh token, unless the current token has the same refresh token, which the
 * revocation would invalidate (platform 3.1). A retired token is revoked as soon as no call uses it, one at a time.
 * While the platform is unavailable, the revocation is retried until both tokens of the pair have expired. If the
 * platform rejects the revocation, the pair is dropped.
 */
export class LiveTokens<Token extends LiveToken & { grant: SessionGrant }> {
  readonly #options: LiveTokensOptions;
  readonly #ending = new AbortController();
  #tokens: LiveToken[] = [];
  #current: Token | undefined;
  #isEnding = false;
  #working: Promise<void> | undefined;
  #cancelTimer: (() => void) | undefined;
  #storeFailed = false;

  constructor(options: LiveTokensOptions) {
    this.#options = options;
  }

  get current(): Token | undefined {
    return this.#current;
  }

  /** Stores a token, makes it the current token, and retires its predecessors. */
  async adopt(next: Token): Promise<void> {
    this.#options.redactor.learn(next.accessToken, next.refreshToken);
    // A server may reissue the same access token, which must then not be revoked.
    this.#tokens = this.#tokens.filter(({ accessToken }) => accessToken !== next.accessToken);
    this.#tokens.push(next);
    await this.#store();
    // If `end` was called in the meantime, the token has been revoked.
    if (this.#isEnding) return;
    this.#current = next;
    const isRefreshed = next.grant === 'refresh_token';
    for (const token of this.#tokens) {
      if (token === next || token.retired) continue;
      if (isRefreshed && token.refreshToken !== undefined && token.refreshToken === next.refreshToken) continue;
      // The refresh token has been exchanged for a new one.
      if (isRefreshed) token.refreshToken = undefined;
      token.retired = { failures: 0, notBeforeMs: 0 };
    }
    this.#tokens = this.#tokens.filter((token) => token === next || !this.#hasEnded(token));
    this.revokeDue();
  }

  /** Schedules the revocation of tokens from a previous run. */
  async revokeLeftovers(): Promise<void> {
    const { file, clock, log, redactor } = this.#options;
    let left: StoredToken[] = [];
    try {
      left = await file.read();
    } catch (error) {
      const fields = { event: 'session.file_unreadable', error: messageOf(error) };
      log.warn(fields, 'failed to read tokens from the previous run');
    }
    if (left.length === 0) return;
    log.info({ event: 'session.leftovers', tokens: left.length }, 'revoking tokens from the previous run');
    const nowMs = clock.monotonicMs();
    const life = {
      expiresAtMs: nowMs + ACCESS_TOKEN_LIFE_S * 1000,
      refreshUntilMs: nowMs + REFRESH_TOKEN_LIFE_S * 1000,
    };
    for (const { accessToken, refreshToken } of left) {
      redactor.learn(accessToken, refreshToken);
      const retired = { failures: 0, notBeforeMs: 0 };
      this.#tokens.push({ accessToken, refreshToken, ...life, isLeftover: true, inUse: 0, retired });
    }
    this.revokeDue();
  }

  /** Revokes the next token that is due. Called when a call or a revocation has ended, or a token was retired. */
  revokeDue(): void {
    if (this.#isEnding || this.#working) return;
    const { clock } = this.#options;
    this.#cancelTimer?.();
    const unused = this.#tokens.filter(({ retired, inUse }) => retired && inUse === 0);
    const [next] = unused.sort((a, b) => a.retired!.notBeforeMs - b.retired!.notBeforeMs);
    if (!next) return;
    const delayMs = next.retired!.notBeforeMs - clock.monotonicMs();
    if (delayMs > 0) this.#cancelTimer = clock.after(delayMs, () => this.revokeDue());
    else {
      this.#working = this.#revoke(next).finally(() => {
        this.#working = undefined;
        this.revokeDue();
      });
    }
  }

  /** Revokes all tokens within the budget, even if they are in use or still being stored. The current one is last. */
  async end(budgetMs: number): Promise<void> {
    const { clock, log } = this.#options;
    const cancel = clock.after(budgetMs, () => this.#ending.abort());
    this.#isEnding = true;
    this.#cancelTimer?.();
    await this.#working;
    const last = this.#current;
    this.#current = undefined;
    this.#tokens = this.#tokens.filter((token) => !this.#hasEnded(token));
    for (const token of [...this.#tokens].sort((a, b) => Number(a === last) - Number(b === last))) {
      if (this.#ending.signal.aborted) break;
      await this.#revoke(token);
    }
    cancel();
    if (this.#tokens.length > 0) {
      const fields = { event: 'session.not_revoked', tokens: this.#tokens.length };
      log.warn(fields, 'tokens not revoked, they will be revoked on the next startup');
    }
    await this.#store();
  }

  async #revoke(token: LiveToken): Promise<void> {
    const { clock, log, revoke } = this.#options;
    if (this.#hasEnded(token)) {
      log.info({ event: 'session.revoke_missed' }, 'replaced token expired before it was revoked');
      return this.#drop(token);
    }
    const rejections: unknown[] = [];
    const texts = this.#tokensToRevoke(token);
    for (const text of texts) {
      try {
        await revoke(text, this.#ending.signal);
      } catch (error) {
        if (this.#ending.signal.aborted) return;
        if (error instanceof TagferryError && error.retryable) {
          const failures = token.retired?.failures ?? 0;
          const delayMs = fullJitterMs(failures, RETRY, () => clock.random(), 500);
          token.retired = { failures: failures + 1, notBeforeMs: clock.monotonicMs() + delayMs };
          log.debug({ event: 'session.revoke_failed', code: error.code }, 'failed to revoke a token, retrying');
          return;
        }
        // An expired access token may be rejected while its refresh token is still valid.
        rejections.push(error);
      }
    }
    if (rejections.length < texts.length) log.debug({ event: 'session.revoked' }, 'token revoked');
    else {
      const fields = { event: 'session.revoke_refused', code: codeOf(rejections[0]), error: messageOf(rejections[0]) };
      log.warn(fields, 'failed to revoke a token');
    }
    this.#drop(token);
  }

  /**
   * Returns the tokens to send to the revocation endpoint: the access token, whose revocation also invalidates the
   * refresh token (platform 3.3), the refresh token if the access token has expired, or both if the expiry is unknown.
   */
  #tokensToRevoke(token: LiveToken): string[] {
    const { accessToken, refreshToken, isLeftover } = token;
    if (refreshToken === undefined) return [accessToken];
    if (isLeftover) return [accessToken, refreshToken];
    return this.#isExpired(token) ? [refreshToken] : [accessToken];
  }

  #isExpired(token: LiveToken): boolean {
    return token.expiresAtMs <= this.#options.clock.monotonicMs();
  }

  /** Whether both tokens of the pair have expired. A refresh token counts only for the latest pair that contains it. */
  #hasEnded(token: LiveToken): boolean {
    const { refreshToken, refreshUntilMs } = token;
    if (!this.#isExpired(token)) return false;
    if (refreshToken === undefined || refreshUntilMs <= this.#options.clock.monotonicMs()) return true;
    return this.#tokens.findLast((other) => other.refreshToken === refreshToken) !== token;
  }

  #drop(token: LiveToken): void {
    this.#tokens = this.#tokens.filter((other) => other !== token);
    // `end` stores the list once.
    if (!this.#isEnding) void this.#store();
  }

  /** Stores all tokens. Disk errors are logged and do not affect the session. */
  async #store(): Promise<void> {
    const { file, log } = this.#options;
    try {
      await file.write(this.#tokens.map(({ accessToken, refreshToken }) => ({ accessToken, refreshToken })));
      this.#storeFailed = false;
    } catch (error) {
      if (this.#storeFailed) return;
      this.#storeFailed = true;
      const fields = { event: 'session.file_failed', error: messageOf(error) };
      log.warn(fields, 'failed to store the session, a crash would leave its tokens unrevoked');
    }
  }
}

export const SESSION_FILE = 'session.json';

/**
 * `session.json` in the state folder (mode 0600). Stored tokens are only revoked, never used to continue a session.
 * Writes are serialized and durable, so a crash leaves either the old or the new file.
 */
export class SessionFile {
  readonly #path: string;
  #last: Promise<unknown> = Promise.resolve();

  constructor(stateDir: string) {
    this.#path = join(stateDir, SESSION_FILE);
  }

  /** Returns the tokens of the previous run. Throws `StoreError` if the file exists and cannot be read. */
  async read(): Promise<StoredToken[]> {
    let text: string;
    try {
      text = await readFile(this.#path, 'utf8');
    } catch (error) {
      if (codeOf(error) === 'ENOENT') return [];
      throw this.#error('cannot be read', error);
    }
    try {
      const { tokens } = JSON.parse(text) as { tokens: StoredToken[] };
      return tokens.map(({ accessToken, refreshToken }) => ({ accessToken, refreshToken }));
    } catch {
      // The parser error is not attached as the cause, because its message quotes the text, which contains tokens.
      throw this.#error('does not contain tokens', undefined);
    }
  }

  /** Replaces the file, or removes it if there are no tokens. */
  write(tokens: readonly StoredToken[]): Promise<void> {
    const text = `${JSON.stringify({ version: 1, tokens })}\n`;
    const next = this.#last
      .then(() => (tokens.length === 0 ? removeDurably(this.#path) : writeDurably(this.#path, text)))
      .catch((error: unknown) => {
        throw this.#error('cannot be written', error);
      });
    this.#last = next.catch(() => undefined);
    return next;
  }

  #error(what: string, cause: unknown): StoreError {
    return new StoreError(`${this.#path} ${what}`, {
      code: 'session.file',
      retryable: true,
      cause,
      hint: 'Check the owner, mode and free space of STATE_DIR.',
    });
  }
}
