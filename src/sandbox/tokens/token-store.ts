import { createHash } from 'node:crypto';
import { ACCESS_TOKEN_LIFE_S, REFRESH_TOKEN_LIFE_S, type TokenResponse } from '../../contract/tokens.ts';
import type { SandboxClock } from '../sandbox-clock.ts';

export interface TokenOptions {
  /** Lifetime of an access token, in sandbox seconds. Default: 660 (platform 8). */
  accessTokenLifeS?: number;
  /** Lifetime of a refresh token, in sandbox seconds. Default: 24 h (platform 8). */
  refreshTokenLifeS?: number;
  /** If `false`, a refresh returns the same refresh token, as some servers do. */
  rotateRefreshTokens?: boolean;
}

export type GrantKind = 'password' | 'refresh_token' | 'authorization_code';

interface RefreshToken {
  token: string;
  expiresMs: number;
  /** Whether the refresh token was used, or was revoked with its access token. */
  ended: boolean;
}

interface AccessToken {
  id: number;
  token: string;
  user: number;
  /** ID of the client application. */
  application: number;
  grant: GrantKind;
  createdMs: number;
  expiresMs: number;
  revoked: boolean;
  /** Whether a refresh requires the client secret. Not required for tokens issued with PKCE. */
  needsSecret: boolean;
  refresh: RefreshToken;
  /** ID of the first token issued for the same grant. */
  family: number;
}

/** Description of a token that does not contain the token itself. */
interface TokenView extends Pick<AccessToken, 'id' | 'user' | 'grant' | 'createdMs' | 'expiresMs'> {
  state: 'valid' | 'expired' | 'revoked';
  refresh: 'valid' | 'expired' | 'ended';
  /** First 12 hex digits of the SHA-256 of the access token. */
  fingerprint: string;
}

/**
 * Minimum lifetime of a token in real seconds. At a speed of 1,000, a lifetime of 660 s (platform 8) would otherwise be
 * over before the client receives the token.
 */
const MIN_CLIENT_LIFE_S = 5;

/** Maximum number of tokens. If it is exceeded, the oldest tokens are removed. */
const MAX_TOKENS = 20_000;

/**
 * Access and refresh tokens (platform 3.1). An access token is valid until it expires or is revoked; its use does not
 * extend its lifetime. A refresh token is valid until its access token is revoked, it is used, or 24 h have elapsed. A
 * replaced access token remains valid until it expires, because the specification does not state otherwise.
 */
export class TokenStore {
  readonly #clock: SandboxClock;
  readonly #options: Required<TokenOptions>;
  readonly #exists: (user: number, application: number) => boolean;
  readonly #makeToken: () => string;
  readonly #access = new Map<string, AccessToken>();
  readonly #byRefresh = new Map<string, AccessToken>();
  #nextId = 1;
  #issued = 0;
  #revoked = 0;

  /**
   * `exists` returns whether the user and client application still exist. Tokens of deleted users and applications
   * count as revoked.
   */
  constructor(
    clock: SandboxClock,
    options: TokenOptions,
    makeToken: () => string,
    exists: (user: number, application: number) => boolean,
  ) {
    this.#clock = clock;
    this.#exists = exists;
    this.#makeToken = makeToken;
    this.#options = {
      accessTokenLifeS: options.accessTokenLifeS ?? ACCESS_TOKEN_LIFE_S,
      refreshTokenLifeS: options.refreshTokenLifeS ?? REFRESH_TOKEN_LIFE_S,
      rotateRefreshTokens: options.rotateRefreshTokens ?? true,
    };
  }

  /** Changes the lifetimes and rotation of new tokens. */
  configure(options: TokenOptions): void {
    Object.assign(this.#options, options);
  }

  issue(user: number, application: number, grant: GrantKind, needsSecret = false): TokenResponse {
    return this.#issue({ user, application, grant, needsSecret }, this.#newRefreshToken());
  }

  /**
   * Issues new tokens for a refresh token. Returns undefined if the refresh token is unknown, used, revoked or expired,
   * or belongs to a different client.
   */
  refresh(refreshToken: string, application: number): TokenResponse | undefined {
    const old = this.#byRefresh.get(refreshToken);
    if (!old || old.application !== application || old.refresh.ended) return undefined;
    const nowMs = this.#clock.wallMs();
    if (old.refresh.expiresMs <= nowMs || !this.#exists(old.user, application)) return undefined;
    const { user, needsSecret, family } = old;
    const next = { user, application, grant: 'refresh_token', needsSecret, family } as const;
    if (!this.#options.rotateRefreshTokens) return this.#issue(next, old.refresh);
    old.refresh.ended = true;
    return this.#issue(next, this.#newRefreshToken());
  }

  /** Returns whether a refresh requires the client secret. */
  needsSecret(refreshToken: string): boolean {
    return this.#byRefresh.get(refreshToken)?.needsSecret === true;
  }

  /** Returns the owner of an access token, or the reason why the token is invalid. */
  check(token: string): { user: number; application: number } | 'unknown' | 'expired' | 'revoked' {
    const found = this.#access.get(token);
    if (!found) return 'unknown';
    if (found.revoked || !this.#exists(found.user, found.application)) return 'revoked';
    if (found.expiresMs <= this.#clock.wallMs()) return 'expired';
    return { user: found.user, application: found.application };
  }

  /**
   * Revokes an access token with its refresh token (platform 3.1), or a refresh token with its access token (RFC 7009).
   * Expired access tokens (platform 10.3) and tokens of a different client cannot be revoked.
   */
  revoke(token: string, application: number): 'revoked' | 'nothing' | 'foreign' {
    const found = this.#access.get(token) ?? this.#byRefresh.get(token);
    if (!found) return 'nothing';
    if (found.application !== application) return 'foreign';
    const isAccess = found.token === token;
    if (found.revoked || (isAccess && found.expiresMs <= this.#clock.wallMs())) return 'nothing';
    found.revoked = true;
    found.refresh.ended = true;
    this.#revoked++;
    return 'revoked';
  }

  familyOf(token: string): number | undefined {
    return this.#access.get(token)?.family;
  }

  /** Revokes all tokens of one grant, including renewed tokens. */
  revokeFamily(family: number): void {
    for (const token of this.#access.values()) {
      if (token.family !== family) continue;
      token.revoked = true;
      token.refresh.ended = true;
    }
  }

  /** Expires all access tokens, and optionally all refresh tokens. */
  expireAll(andRefreshTokens: boolean): void {
    const nowMs = this.#clock.wallMs();
    for (const token of this.#access.values()) {
      token.expiresMs = Math.min(token.expiresMs, nowMs);
      if (andRefreshTokens) token.refresh.expiresMs = Math.min(token.refresh.expiresMs, nowMs);
    }
  }

  /** Revokes all tokens. */
  revokeAll(): void {
    for (const token of this.#access.values()) {
      token.revoked = true;
      token.refresh.ended = true;
    }
  }

  /** Returns all known tokens, oldest first. */
  list(): TokenView[] {
    const nowMs = this.#clock.wallMs();
    return [...this.#access.values()].map((token) => viewOf(token, nowMs));
  }

  counts(): { issued: number; revoked: number; alive: number } {
    const nowMs = this.#clock.wallMs();
    const alive = [...this.#access.values()].filter(({ revoked, expiresMs }) => !revoked && expiresMs > nowMs);
    return { issued: this.#issued, revoked: this.#revoked, alive: alive.length };
  }

  /**
   * Extends a lifetime so that the token can be used for `minClientS` of real time at the clock's speed. A shorter
   * configured lifetime is extended to the same duration in real time.
   */
  #usableS(lifeS: number, minClientS: number): number {
    return Math.max(lifeS, Math.min(lifeS, minClientS) * this.#clock.speed);
  }

  #newRefreshToken(): RefreshToken {
    // The minimum is twice that of an access token, so that the refresh token can be used when the access token has
    // expired.
    const lifeS = this.#usableS(this.#options.refreshTokenLifeS, 2 * MIN_CLIENT_LIFE_S);
    const expiresMs = this.#clock.wallMs() + lifeS * 1000;
    return { token: this.#makeToken(), expiresMs, ended: false };
  }

  #issue(
    wanted: Pick<AccessToken, 'user' | 'application' | 'grant' | 'needsSecret'> & { family?: number },
    refresh: RefreshToken,
  ): TokenResponse {
    const id = this.#nextId++;
    const nowMs = this.#clock.wallMs();
    const lifeS = this.#usableS(this.#options.accessTokenLifeS, MIN_CLIENT_LIFE_S);
    const token: AccessToken = {
      family: id,
      ...wanted,
      id,
      token: this.#makeToken(),
      createdMs: nowMs,
      expiresMs: nowMs + lifeS * 1000,
      revoked: false,
      refresh,
    };
    this.#access.set(token.token, token);
    this.#byRefresh.set(refresh.token, token);
    this.#issued++;
    this.#forgetOldest();
    return {
      access_token: token.token,
      token_type: 'Bearer',
      // Specified in real seconds, because clients do not run at the sandbox's speed.
      expires_in: Math.max(1, Math.floor(lifeS / this.#clock.speed + 1e-6)),
      refresh_token: refresh.token,
      created_at: Math.floor(nowMs / 1000),
    };
  }

  #forgetOldest(): void {
    if (this.#access.size <= MAX_TOKENS) return;
    for (const [name, token] of this.#access) {
      if (this.#access.size <= MAX_TOKENS / 2) break;
      this.#access.delete(name);
      if (this.#byRefresh.get(token.refresh.token) === token) this.#byRefresh.delete(token.refresh.token);
    }
  }
}

function viewOf(token: AccessToken, nowMs: number): TokenView {
  const { id, user, grant, createdMs, expiresMs } = token;
  return {
    ...{ id, user, grant, createdMs, expiresMs },
    state: token.revoked ? 'revoked' : expiresMs <= nowMs ? 'expired' : 'valid',
    refresh: token.refresh.ended ? 'ended' : token.refresh.expiresMs <= nowMs ? 'expired' : 'valid',
    fingerprint: createHash('sha256').update(token.token).digest('hex').slice(0, 12),
  };
}
