import { createHash } from 'node:crypto';
import { ACCESS_TOKEN_LIFE_S, REFRESH_TOKEN_LIFE_S, type TokenResponse } from '../../contract/tokens.ts';
import type { SandboxClock } from '../sandbox-clock.ts';

export interface TokenOptions {
  /** Life of an access token in seconds of the sandbox; 660 per platform 8. */
  accessTokenLifeS?: number;
  /** Life of a refresh token in seconds of the sandbox; 24 h per platform 8. */
  refreshTokenLifeS?: number;
  /** `false`: a refresh answers with the refresh token it was given, as some servers do. */
  rotateRefreshTokens?: boolean;
  /** Makes tokens; random text unless given. */
  makeToken?: () => string;
}

export type GrantKind = 'password' | 'refresh_token' | 'authorization_code';

interface RefreshToken {
  token: string;
  expiresMs: number;
  /** Used up by a rotation, or ended with its access token. */
  ended: boolean;
}

export interface AccessToken {
  id: number;
  token: string;
  user: number;
  /** Client application, by id. */
  application: number;
  grant: GrantKind;
  createdMs: number;
  expiresMs: number;
  revoked: boolean;
  /** Whether a refresh has to show the client's secret: not where it came by PKCE, whose clients have none. */
  needsSecret: boolean;
  refresh: RefreshToken;
  /** Id of the token at whose grant this line of refreshes began. */
  family: number;
}

/** A token as tests and people see it: never the token itself. */
export interface TokenView {
  id: number;
  user: number;
  application: number;
  grant: GrantKind;
  createdMs: number;
  expiresMs: number;
  state: 'valid' | 'expired' | 'revoked';
  refresh: 'valid' | 'expired' | 'ended';
  /** First 12 hex digits of the SHA-256 of the access token: to recognise one without knowing it. */
  fingerprint: string;
}

/**
 * However fast the sandbox's clock runs, a token lives so long for its client, who runs on a clock of its own: at a speed of 1,000 the 660
 * seconds of platform 8 would be over before they are told, and no token would ever be of use.
 */
const MIN_CLIENT_LIFE_S = 5;

/** Memory: the oldest dead tokens fall away beyond this many. */
const MAX_TOKENS = 20_000;

/**
 * Access and refresh tokens (platform 3.1). An access token is valid, then expired by time or revoked; it is never extended
 * by use. A refresh token belongs to the access token it came with: revoking that one ends it, a refresh uses it up,
 * 24 h end it. A replaced access token stays valid to its end, for the spec names no other: clients revoke it.
 */
export class TokenStore {
  readonly #clock: SandboxClock;
  readonly #options: Required<TokenOptions>;
  readonly #isThere: (user: number, application: number) => boolean;
  readonly #access = new Map<string, AccessToken>();
  readonly #byRefresh = new Map<string, AccessToken>();
  #nextId = 1;
  #issued = 0;
  #revoked = 0;

  /** `isThere`: whether user and client application still are; tokens of those that were destroyed count as revoked. */
  constructor(
    clock: SandboxClock,
    options: TokenOptions,
    makeToken: () => string,
    isThere: (user: number, application: number) => boolean,
  ) {
    this.#clock = clock;
    this.#isThere = isThere;
    this.#options = {
      accessTokenLifeS: options.accessTokenLifeS ?? ACCESS_TOKEN_LIFE_S,
      refreshTokenLifeS: options.refreshTokenLifeS ?? REFRESH_TOKEN_LIFE_S,
      rotateRefreshTokens: options.rotateRefreshTokens ?? true,
      makeToken: options.makeToken ?? makeToken,
    };
  }

  /** Changes lives and rotation for tokens issued from now on. */
  configure(options: Omit<TokenOptions, 'makeToken'>): void {
    Object.assign(this.#options, options);
  }

  /** What tokens are given from now on. */
  get accessTokenLifeS(): number {
    return this.#options.accessTokenLifeS;
  }

  issue(user: number, application: number, grant: GrantKind, needsSecret = false): TokenResponse {
    return this.#issue({ user, application, grant, needsSecret }, this.#newRefreshToken());
  }

  /** The refresh grant; `undefined` where the refresh token is unknown, used, ended, expired or another client's. */
  refresh(refreshToken: string, application: number): TokenResponse | undefined {
    const old = this.#byRefresh.get(refreshToken);
    if (!old || old.application !== application || old.refresh.ended) return undefined;
    const nowMs = this.#clock.wallMs();
    if (old.refresh.expiresMs <= nowMs || !this.#isThere(old.user, application)) return undefined;
    const { user, needsSecret, family } = old;
    const next = { user, application, grant: 'refresh_token', needsSecret, family } as const;
    if (!this.#options.rotateRefreshTokens) return this.#issue(next, old.refresh);
    old.refresh.ended = true;
    return this.#issue(next, this.#newRefreshToken());
  }

  /** Whether this refresh token was given to a client that showed its secret. */
  needsSecret(refreshToken: string): boolean {
    return this.#byRefresh.get(refreshToken)?.needsSecret === true;
  }

  /** The access token's owner, or why it is none. */
  check(token: string): { user: number; application: number } | 'unknown' | 'expired' | 'revoked' {
    const found = this.#access.get(token);
    if (!found) return 'unknown';
    if (found.revoked || !this.#isThere(found.user, found.application)) return 'revoked';
    if (found.expiresMs <= this.#clock.wallMs()) return 'expired';
    return { user: found.user, application: found.application };
  }

  /**
   * Revokes an access token with its refresh token (platform 3.1), or a refresh token with its access token (RFC 7009).
   * An expired access token cannot be revoked (platform 10.3), nor can another client's.
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

  /** Whose an access token is, whether it lives or not: user and client application. */
  ownerOf(token: string): string | undefined {
    const found = this.#access.get(token);
    return found && `${found.user}/${found.application}`;
  }

  familyOf(token: string): number | undefined {
    return this.#access.get(token)?.family;
  }

  /** Revokes the tokens of one grant and all that were renewed from them. */
  revokeFamily(family: number): void {
    for (const token of this.#access.values()) {
      if (token.family !== family) continue;
      token.revoked = true;
      token.refresh.ended = true;
    }
  }

  /** Expires every access token now, and the refresh tokens too where asked: faults on demand. */
  expireAll(andRefreshTokens: boolean): void {
    const nowMs = this.#clock.wallMs();
    for (const token of this.#access.values()) {
      token.expiresMs = Math.min(token.expiresMs, nowMs);
      if (andRefreshTokens) token.refresh.expiresMs = Math.min(token.refresh.expiresMs, nowMs);
    }
  }

  /** Revokes everything of everyone, as an operator who resets the service would. */
  revokeAll(): void {
    for (const token of this.#access.values()) {
      token.revoked = true;
      token.refresh.ended = true;
    }
  }

  /** All tokens still remembered, oldest first. */
  list(): TokenView[] {
    const nowMs = this.#clock.wallMs();
    return [...this.#access.values()].map((token) => viewOf(token, nowMs));
  }

  /** How many access tokens are valid, and the last of them. */
  alive(max: number): { alive: number; last: TokenView[] } {
    const nowMs = this.#clock.wallMs();
    const alive = [...this.#access.values()].filter(({ revoked, expiresMs }) => !revoked && expiresMs > nowMs);
    return { alive: alive.length, last: (max === 0 ? [] : alive.slice(-max)).map((token) => viewOf(token, nowMs)) };
  }

  /** All tokens as they are, for the state file alone. */
  snapshot(): AccessToken[] {
    return [...this.#access.values()];
  }

  restore(tokens: readonly AccessToken[]): void {
    // Without rotation several access tokens share one refresh token, which JSON has taken apart.
    const refreshTokens = new Map<string, RefreshToken>();
    for (const token of tokens) {
      const refresh = refreshTokens.get(token.refresh.token) ?? token.refresh;
      refreshTokens.set(refresh.token, refresh);
      // States of before know no families.
      const restored = { ...token, refresh, family: token.family ?? token.id };
      this.#access.set(token.token, restored);
      this.#byRefresh.set(refresh.token, restored);
      this.#nextId = Math.max(this.#nextId, token.id + 1);
    }
  }

  counts(): { issued: number; revoked: number; alive: number } {
    return { issued: this.#issued, revoked: this.#revoked, alive: this.alive(0).alive };
  }

  /** A life that is usable at the speed of the clock; one that was asked for shorter than that at a speed of 1 stays as short. */
  #usableS(lifeS: number, minClientS: number): number {
    return Math.max(lifeS, Math.min(lifeS, minClientS) * this.#clock.speed);
  }

  #newRefreshToken(): RefreshToken {
    // Twice as long as an access token, or it could not be renewed.
    const lifeS = this.#usableS(this.#options.refreshTokenLifeS, 2 * MIN_CLIENT_LIFE_S);
    const expiresMs = this.#clock.wallMs() + lifeS * 1000;
    return { token: this.#options.makeToken(), expiresMs, ended: false };
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
      token: this.#options.makeToken(),
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
      // Told in the caller's seconds: a client does not run at the sandbox's speed.
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
  return {
    id: token.id,
    user: token.user,
    application: token.application,
    grant: token.grant,
    createdMs: token.createdMs,
    expiresMs: token.expiresMs,
    state: token.revoked ? 'revoked' : token.expiresMs <= nowMs ? 'expired' : 'valid',
    refresh: token.refresh.ended ? 'ended' : token.refresh.expiresMs <= nowMs ? 'expired' : 'valid',
    fingerprint: createHash('sha256').update(token.token).digest('hex').slice(0, 12),
  };
}
