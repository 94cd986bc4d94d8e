import { REVOKE_PATH, TOKEN_PATH } from '../../contract/tokens.ts';
import type { HttpRequest, PlatformAnswer } from '../http-boundary.ts';
import { authenticateClient, type ClientCredentials, hasTwoBasicForms } from './client-credentials.ts';
import { addressOf, formRequest } from './form-request.ts';
import type { SecretCommands } from './grant-error.ts';
import { processRevokeAnswer, processTokenAnswer, type Tokens } from './token-answer.ts';

/**
 * Grants for devices and machines at {base_url} (platform 4.1, 5.2). For each grant, one function creates the request
 * and another processes the response. The caller sends the request.
 */
export interface TechnicalUser {
  username: string;
  password: string;
}

export function passwordGrantRequest(baseUrl: string, client: ClientCredentials, user: TechnicalUser): HttpRequest {
  return tokenRequest(baseUrl, TOKEN_PATH, client, {
    grant_type: 'password',
    username: user.username,
    password: user.password,
  });
}

/**
 * `client`: credentials in the request. They determine whether the hint for a rejection suggests a different value of
 * CLIENT_AUTH. `commands`: commands for the hint.
 */
export function processPasswordAnswer(
  answer: PlatformAnswer,
  wallMs: number,
  client?: ClientCredentials,
  commands?: SecretCommands,
): Tokens {
  const otherBasicForm = client && otherBasicFormOf(client);
  return processTokenAnswer(answer, { grant: 'password', otherBasicForm, commands, wallMs });
}

/** Returns the value of CLIENT_AUTH that would result in a different Basic header, if any. */
function otherBasicFormOf(client: ClientCredentials): 'basic' | 'basic-encoded' | undefined {
  if (client.clientAuth === 'body' || !hasTwoBasicForms(client)) return undefined;
  return client.clientAuth === 'basic' ? 'basic-encoded' : 'basic';
}

export function refreshGrantRequest(baseUrl: string, client: ClientCredentials, refreshToken: string): HttpRequest {
  return tokenRequest(baseUrl, TOKEN_PATH, client, { grant_type: 'refresh_token', refresh_token: refreshToken });
}

/**
 * Processes a refresh response. If it contains no refresh token, the previous refresh token remains valid (RFC 6749
 * section 6).
 */
export function processRefreshAnswer(answer: PlatformAnswer, refreshToken: string, wallMs: number): Tokens {
  const tokens = processTokenAnswer(answer, { grant: 'refresh_token', wallMs });
  return { ...tokens, refreshToken: tokens.refreshToken ?? refreshToken };
}

/**
 * Creates a revocation request for an access token (platform 4.1). The revocation also invalidates its refresh token.
 */
export function revokeRequest(baseUrl: string, client: ClientCredentials, token: string): HttpRequest {
  return tokenRequest(baseUrl, REVOKE_PATH, client, { token });
}

export function processRevocation(answer: PlatformAnswer, wallMs: number): void {
  processRevokeAnswer(answer, { wallMs });
}

function tokenRequest(
  baseUrl: string,
  path: string,
  client: ClientCredentials,
  fields: Record<string, string>,
): HttpRequest {
  const form = new URLSearchParams(fields);
  const headers: Record<string, string> = {};
  authenticateClient(client, form, headers);
  return formRequest(addressOf(baseUrl, path), form, headers, [client.clientSecret ?? '']);
}
