import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { removeDurably, writeDurably } from '../../base/durable-file.ts';
import { codeOf, messageOf, StoreError, TagferryError } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import type { Redactor } from '../../base/redactor.ts';
import { fullJitterMs } from '../../base/retry.ts';
import { ACCESS_TOKEN_LIFE_S, REFRESH_TOKEN_LIFE_S } from '../../contract/tokens.ts';
import { revokeByMs } from './session-timing.ts';

export type SessionGrant = 'password' | 'refresh_token';

/** Token pair that must be revoked once it is no longer needed. Times are monotonic. */
export interface LiveToken {
  readonly accessToken: string;
  /** Undefined if the server issued none, or after the refresh token was exchanged for a new one. */
  refreshToken: string | undefined;
  readonly lifetimeMs: number;
  readonly expiresAtMs: number;
  /** Expiry of the refresh token. */
  readonly refreshUntilMs: number;
  /** Number of calls in progress that use this token. */
  inUse: number;
  /** Set once the pair must be revoked. */
  retired?: { failures: number; notBeforeMs: number };
  /** Expiry recorded by a previous run. The remaining lifetime is unknown, because the clock may have jumped. */
  readonly leftUntilWallMs?: number;
}

/** Token pair in `session.json`. */
export interface StoredToken {
  accessToken: string;
  refreshToken: string | undefined;
  /** Wall-clock expiry of the access token. Only a hint, because the clock may be wrong at the next startup. */
  expiresWallMs: number;
}

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
 * List of all token pairs that may be valid: the current token, its predecessors, and the tokens of a previous run. The
 * list is stored in the session file before the first use of a token, so that the next startup can revoke all tokens
 * after a crash.
 *
 * A predecessor is retired with its refresh token, unless the current token has the same refresh token, which the
 * revocation would invalidate (platform 3.1). A retired token is revoked as soon as no call uses it, but at the latest
 * shortly before it expires. One revocation runs at a time, earliest expiry first. While the platform is unavailable,
 * the revocation is retried until both tokens of the pair have expired. If the platform rejects it, the pair is dropped.
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
  /** Whether the tokens of the previous run are being read. Until then, they are stored only in the file. */
  #isReading = false;

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
    this.#dropCovered(this.#current);
    this.#current = next;
    this.#dropCovered(next);
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
    for (const { accessToken, refreshToken, expiresWallMs } of left) {
      redactor.learn(accessToken, refreshToken);
      const lifetimeMs = (refreshToken === undefined ? ACCESS_TOKEN_LIFE_S : REFRESH_TOKEN_LIFE_S) * 1000;
      const endsAtMs = clock.monotonicMs() + lifetimeMs;
      const life = { lifetimeMs, expiresAtMs: endsAtMs, refreshUntilMs: endsAtMs, leftUntilWallMs: expiresWallMs };
      const retired = { failures: 0, notBeforeMs: 0 };
      this.#tokens.push({ accessToken, refreshToken, ...life, inUse: 0, retired });
    }
    this.revokeDue();
  }

  /** Revokes tokens that are due. Called when a call has ended, a timer has expired, or a token was retired. */
  revokeDue(): void {
    if (this.#isEnding || this.#working) return;
    this.#cancelTimer?.();
    this.#working = this.#revokeAllDue().finally(() => {
      this.#working = undefined;
      // A token may have become due after the last check in the loop.
      if (this.#nextDue() !== undefined) this.revokeDue();
      else this.#sleepUntilDue();
    });
  }

  /** Revokes all tokens within the budget, even if they are in use or still being stored. The current one is last. */
  async end(budgetMs: number): Promise<void> {
    const { clock, log } = this.#options;
    const cancel = clock.after(budgetMs, () => this.#ending.abort());
    this.#isEnding = true;
    this.#cancelTimer?.();
    await this.#working;
    const last = this.#current;
    this.#dropCovered(last);
    this.#current = undefined;
    for (const token of [...this.#tokens].sort((a, b) => Number(a === last) - Number(b === last))) {
      if (this.#ending.signal.aborted) break;
      await this.#revoke(token);
    }
    cancel();
    if (this.#tokens.length > 0) {
      const fields = { event: 'session.not_revoked', tokens: this.#tokens.length };
      log.warn(fields, 'tokens not revoked, they will be revoked on the next startup');
    }
    // If the disk hangs and the tokens of the previous run have not been read yet, keep the file for the next startup.
    if (!this.#isReading) await this.#store();
  }

  async #revokeAllDue(): Promise<void> {
    for (let token = this.#nextDue(); token && !this.#isEnding; token = this.#nextDue()) await this.#revoke(token);
  }

  #nextDue(): LiveToken | undefined {
    const nowMs = this.#options.clock.monotonicMs();
    return this.#tokens.filter((token) => dueAtMs(token) <= nowMs).sort((a, b) => a.expiresAtMs - b.expiresAtMs)[0];
  }

  #sleepUntilDue(): void {
    const { clock } = this.#options;
    const atMs = Math.min(...this.#tokens.map(dueAtMs));
    if (this.#isEnding || atMs === Number.POSITIVE_INFINITY) return;
    this.#cancelTimer = clock.after(atMs - clock.monotonicMs(), () => this.revokeDue());
  }

  async #revoke(token: LiveToken): Promise<void> {
    const { clock, log } = this.#options;
    if (this.#hasEnded(token)) {
      log.info({ event: 'session.revoke_missed' }, 'replaced token expired before it was revoked');
      return this.#drop(token);
    }
    try {
      await this.#revokeEach(this.#tokensToRevoke(token));
      log.debug({ event: 'session.revoked' }, 'token revoked');
      this.#drop(token);
    } catch (error) {
      if (this.#ending.signal.aborted) return;
      if (!isRetryable(error)) {
        const fields = { event: 'session.revoke_refused', code: codeOf(error), error: messageOf(error) };
        log.warn(fields, 'failed to revoke a token');
        return this.#drop(token);
      }
      const nowMs = clock.monotonicMs();
      const failures = token.retired?.failures ?? 0;
      const delayMs = fullJitterMs(failures, RETRY, () => clock.random(), 500);
      token.retired = { failures: failures + 1, notBeforeMs: nowMs + delayMs };
      log.debug({ event: 'session.revoke_failed', code: codeOf(error) }, 'failed to revoke a token, retrying');
    }
  }

  /**
   * Returns the tokens to send to the revocation endpoint: the access token, whose revocation also invalidates the
   * refresh token (platform 3.3), or the refresh token if the access token has expired. Returns both if a previous run
   * issued the pair and the access token may have expired.
   */
  #tokensToRevoke({ accessToken, refreshToken, expiresAtMs, leftUntilWallMs }: LiveToken): string[] {
    const { clock } = this.#options;
    if (refreshToken === undefined) return [accessToken];
    if (leftUntilWallMs === undefined) return clock.monotonicMs() < expiresAtMs ? [accessToken] : [refreshToken];
    const leftMs = leftUntilWallMs - clock.wallMs();
    return leftMs > 0 && leftMs < ACCESS_TOKEN_LIFE_S * 1000 ? [accessToken] : [accessToken, refreshToken];
  }

  /**
   * Revokes all given tokens. Continues after a rejected revocation, because an expired access token may be rejected
   * while its refresh token is still valid.
   */
  async #revokeEach(texts: readonly string[]): Promise<void> {
    const refusals: unknown[] = [];
    for (const text of texts) {
      try {
        await this.#options.revoke(text, this.#ending.signal);
      } catch (error) {
        if (isRetryable(error)) throw error;
        refusals.push(error);
      }
    }
    if (refusals.length > 0) throw refusals[0];
  }

  /** Drops expired predecessors with the same refresh token, which is revoked with this token. */
  #dropCovered(by: LiveToken | undefined): void {
    const isCovered = (token: LiveToken) =>
      token !== by && !token.retired && this.#isExpired(token) && token.refreshToken === by?.refreshToken;
    this.#tokens = this.#tokens.filter((token) => !isCovered(token));
  }

  #isExpired(token: LiveToken): boolean {
    return token.expiresAtMs <= this.#options.clock.monotonicMs();
  }

  /** Whether both tokens of the pair have expired. */
  #hasEnded(token: LiveToken): boolean {
    const hasRefreshToken =
      token.refreshToken !== undefined && token.refreshUntilMs > this.#options.clock.monotonicMs();
    return this.#isExpired(token) && !hasRefreshToken;
  }

  #drop(token: LiveToken): void {
    this.#tokens = this.#tokens.filter((other) => other !== token);
    // `end` stores the list once.
    if (!this.#isEnding) void this.#store();
  }

  /** Stores all tokens. Disk errors are logged and do not affect the session. */
  async #store(): Promise<void> {
    const { file, clock, log } = this.#options;
    const nowMs = clock.monotonicMs();
    const stored = this.#tokens.map(({ accessToken, refreshToken, expiresAtMs, leftUntilWallMs }) => {
      const expiresWallMs = leftUntilWallMs ?? Math.round(clock.wallMs() + expiresAtMs - nowMs);
      return { accessToken, refreshToken, expiresWallMs };
    });
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

/** Returns the time at which a token is revoked, or `Infinity` if it is not retired. */
function dueAtMs({ retired, inUse, expiresAtMs, lifetimeMs }: LiveToken): number {
  if (!retired) return Number.POSITIVE_INFINITY;
  return Math.max(inUse === 0 ? 0 : revokeByMs(expiresAtMs, lifetimeMs), retired.notBeforeMs);
}

function isRetryable(error: unknown): boolean {
  return error instanceof TagferryError && error.retryable;
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
      return (JSON.parse(text) as { tokens: unknown[] }).tokens.filter(isStored);
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

function isStored(entry: unknown): entry is StoredToken {
  const token = entry as Partial<StoredToken> | null;
  return (
    typeof token?.accessToken === 'string' &&
    token.accessToken !== '' &&
    (token.refreshToken === undefined || typeof token.refreshToken === 'string') &&
    typeof token.expiresWallMs === 'number'
  );
}
