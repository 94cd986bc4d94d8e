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
 * Which tokens are alive: the current one, its predecessors, those of an earlier run; and how each ends.
 *
 * A token is in one of three places: `current`; `sharing`, predecessors that have the current refresh token, which
 * revoking them would end; or on its way to revocation. All of them stand in the session file, and a token stands there
 * before anyone uses it, so that whatever a crash leaves can be revoked by the next start.
 */
export class TokenKeeper {
  readonly #options: TokenKeeperOptions;
  readonly #retired: RetiredTokens;
  #current: IssuedToken | undefined;
  /** Being written down, not used yet. */
  #next: IssuedToken | undefined;
  #sharing: IssuedToken[] = [];
  #storeFailed = false;
  /** The tokens of the last run, of which the file is all there is. */
  #isReading = false;

  constructor(options: TokenKeeperOptions) {
    this.#options = options;
    const { clock, log, revoke } = options;
    this.#retired = new RetiredTokens({ clock, log, revoke, onGone: () => void this.#store() });
  }

  get current(): IssuedToken | undefined {
    return this.#current;
  }

  /** Stores a token, puts it in its predecessor's place, and sends that one on its way. */
  async adopt(next: IssuedToken): Promise<void> {
    const previous = this.#current;
    this.#options.redactor.learn(next.accessToken, next.refreshToken);
    this.#retired.keep(next.accessToken);
    this.#next = next;
    await this.#store();
    // Meanwhile all of them were ended.
    if (this.#next !== next) return;
    this.#current = next;
    this.#next = undefined;
    if (previous && previous.accessToken !== next.accessToken) this.#sharing.push(previous);
    const nowMs = this.#options.clock.monotonicMs();
    const line = this.#sharing.filter((token) => token.expiresAtMs > nowMs);
    const shares = (token: IssuedToken) =>
      next.grant === 'refresh_token' && token.refreshToken !== undefined && token.refreshToken === next.refreshToken;
    this.#sharing = line.filter(shares);
    for (const token of line) if (!shares(token)) this.#retire(token);
  }

  /** A call has ended: a retired token may be free. */
  released(token: IssuedToken): void {
    if (token.inUse === 0 && token !== this.#current) this.#retired.look();
  }

  /** Revokes every token, the current one last, and one that is still being written down, within the budget. */
  async end(budgetMs: number): Promise<void> {
    for (const token of this.#sharing) this.#retire(token);
    const last = [this.#current, this.#next].filter((token) => token !== undefined);
    this.#sharing = [];
    this.#current = this.#next = undefined;
    for (const token of last) this.#retire(token);
    const left = await this.#retired.drain(budgetMs);
    if (left.length > 0) {
      const fields = { event: 'session.not_revoked', tokens: left.length };
      this.#options.log.warn(fields, 'tokens are left for the next start to revoke');
    }
    // Of a disk that hangs nothing has come to be revoked: the next start reads it.
    if (!this.#isReading) await this.#store();
  }

  /** Sends the tokens of an earlier run on their way to revocation. */
  async takeUpLeftovers(): Promise<void> {
    const { file, clock, log, redactor } = this.#options;
    let left: StoredToken[] = [];
    this.#isReading = true;
    try {
      left = await file.read();
    } catch (error) {
      const fields = { event: 'session.file_unreadable', error: messageOf(error) };
      log.warn(fields, 'the tokens of the last run cannot be read');
    }
    this.#isReading = false;
    if (left.length === 0) return;
    log.info({ event: 'session.leftovers', tokens: left.length }, 'revoking the tokens of the last run');
    for (const token of left) {
      redactor.learn(token.accessToken, token.refreshToken);
      this.#retired.add(leftover(token, clock));
    }
  }

  #retire(token: IssuedToken): void {
    this.#retired.add({ issued: token, texts: () => [token.accessToken], expiresWallMs: this.#wallEnd(token) });
  }

  #wallEnd(token: IssuedToken): number {
    const { clock } = this.#options;
    return Math.round(clock.wallMs() + token.expiresAtMs - clock.monotonicMs());
  }

  /** Writes down every token that is alive. A disk that refuses does not end the session. */
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
      log.warn(fields, 'the session cannot be written down: a crash would leave its tokens unrevoked');
    }
  }
}

function storedForm(token: RetiredToken['issued'], expiresWallMs: number): StoredToken {
  return { accessToken: token.accessToken, refreshToken: token.refreshToken, expiresWallMs };
}

/**
 * A token of an earlier run. How long it lives is not known, for clocks may have jumped: it is tried for as long as the
 * pair can live. Where the access token may have expired, and so cannot be revoked, its refresh token is revoked by itself.
 */
function leftover(token: StoredToken, clock: Clock): RetiredToken {
  const { accessToken, refreshToken, expiresWallMs } = token;
  const accessLifeMs = ACCESS_TOKEN_LIFE_S * 1000;
  const lifeMs = refreshToken === undefined ? accessLifeMs : REFRESH_TOKEN_LIFE_S * 1000;
  return {
    issued: { accessToken, refreshToken, expiresAtMs: clock.monotonicMs() + lifeMs, lifeMs, inUse: 0 },
    texts() {
      const wallMs = clock.wallMs();
      const surelyAlive = wallMs < expiresWallMs && wallMs > expiresWallMs - accessLifeMs;
      return surelyAlive || refreshToken === undefined ? [accessToken] : [accessToken, refreshToken];
    },
    expiresWallMs,
  };
}
