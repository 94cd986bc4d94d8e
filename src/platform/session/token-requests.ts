import type { Clock } from '../../base/clock.ts';
import { codeOf } from '../../base/errors.ts';
import type { ClientCredentials } from '../grants/client-credentials.ts';
import { GrantError, type SecretCommands } from '../grants/grant-error.ts';
import {
  passwordGrantRequest,
  processPasswordAnswer,
  processRefreshAnswer,
  processRevocation,
  refreshGrantRequest,
  revokeRequest,
  type TechnicalUser,
} from '../grants/technical-user.ts';
import type { Tokens } from '../grants/token-answer.ts';
import type { HttpBoundary, HttpRequest, PlatformAnswer } from '../http-boundary.ts';

/** Credentials of the technical user, read for each request so that a reload takes effect. */
export interface SessionCredentials {
  client: ClientCredentials;
  user: TechnicalUser;
  /** Commands for hints; omitted if no agent is running. */
  commands?: SecretCommands;
}

/** Sends the session's three token requests: login, refresh and revoke. */
export class TokenRequests {
  readonly #boundary: Pick<HttpBoundary, 'send'>;
  readonly #baseUrl: string;
  readonly #credentials: () => SessionCredentials;
  readonly #clock: Clock;

  constructor(
    boundary: Pick<HttpBoundary, 'send'>,
    baseUrl: string,
    credentials: () => SessionCredentials,
    clock: Clock,
  ) {
    this.#boundary = boundary;
    this.#baseUrl = baseUrl;
    this.#credentials = credentials;
    this.#clock = clock;
  }

  /** `credentials`: credentials that are not in use yet. Default: the current credentials. */
  async login(signal: AbortSignal, credentials = this.#credentials()): Promise<Tokens> {
    const { client, user, commands } = credentials;
    const asked = passwordGrantRequest(this.#baseUrl, client, user);
    return processPasswordAnswer(await this.#send(asked, signal), this.#clock.wallMs(), client, commands);
  }

  async refresh(refreshToken: string, signal: AbortSignal): Promise<Tokens> {
    const asked = refreshGrantRequest(this.#baseUrl, this.#credentials().client, refreshToken);
    const answer = await this.#send(asked, signal);
    return processRefreshAnswer(answer, refreshToken, this.#clock.wallMs());
  }

  async revoke(token: string, signal: AbortSignal): Promise<void> {
    const asked = revokeRequest(this.#baseUrl, this.#credentials().client, token);
    processRevocation(await this.#send(asked, signal), this.#clock.wallMs());
  }

  #send(asked: HttpRequest, signal: AbortSignal): Promise<PlatformAnswer> {
    return this.#boundary.send({ ...asked, signal });
  }
}

const NEVER_SENT = new Set([
  'platform.connection_refused',
  'platform.dns',
  'platform.unreachable',
  'platform.tls',
  'platform.proxy',
]);

/**
 * Returns whether the refresh token is certainly still valid: the request did not reach the platform or was rate
 * limited. After any other failure, the platform may have consumed the refresh token.
 */
export function refreshTokenSurvives(error: unknown): boolean {
  if (error instanceof GrantError) return error.failure === 'rate_limited';
  return NEVER_SENT.has(codeOf(error) ?? '');
}

/** Returns whether the platform rejected the credentials. */
export function isSignInRefused(error: unknown): boolean {
  return error instanceof GrantError && error.failure === 'refused';
}
