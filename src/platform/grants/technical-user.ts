import { REVOKE_PATH, TOKEN_PATH } from '../../contract/tokens.ts';
import type { HttpBoundary, HttpRequest } from '../http-boundary.ts';
import { processRevokeAnswer, processTokenAnswer, type SecretCommands, type Tokens } from '../response-meanings.ts';
import { addressOf, formRequest } from './form-request.ts';

/** API key and secret of a connect subscription. */
export interface ClientCredentials {
  clientId: string;
  clientSecret: string;
  /**
   * Transmission of the credentials (platform 5.2): an unencoded Basic header, an encoded Basic header (RFC 6749
   * 2.3.1), or form fields.
   */
  clientAuth: 'basic' | 'basic-encoded' | 'body';
}

/** Credentials of the technical user, read for each request so that a reload takes effect. */
export interface SessionCredentials {
  client: ClientCredentials;
  user: { username: string; password: string };
  /** Commands for hints; omitted if no agent is running. */
  commands?: SecretCommands;
}

/** Token requests for devices and machines at {base_url} (platform 4.1, 5.2): login, refresh and revocation. */
export class TokenRequests {
  readonly #boundary: Pick<HttpBoundary, 'send'>;
  readonly #baseUrl: string;
  readonly #credentials: () => SessionCredentials;

  constructor(boundary: Pick<HttpBoundary, 'send'>, baseUrl: string, credentials: () => SessionCredentials) {
    this.#boundary = boundary;
    this.#baseUrl = baseUrl;
    this.#credentials = credentials;
  }

  /** `credentials`: credentials that are not in use yet. Default: the current credentials. */
  async login(signal: AbortSignal, credentials = this.#credentials()): Promise<Tokens> {
    const { client, user, commands } = credentials;
    const { username, password } = user;
    const form = { grant_type: 'password', username, password };
    const answer = await this.#boundary.send(this.#request(TOKEN_PATH, form, signal, client));
    return processTokenAnswer(answer, { grant: 'password', otherBasicForm: otherBasicForm(client), commands });
  }

  async refresh(refreshToken: string, signal: AbortSignal): Promise<Tokens> {
    const form = { grant_type: 'refresh_token', refresh_token: refreshToken };
    const answer = await this.#boundary.send(this.#request(TOKEN_PATH, form, signal));
    return processTokenAnswer(answer, { grant: 'refresh_token', refreshToken });
  }

  /** Revokes an access token, which also invalidates its refresh token (platform 3.3). */
  async revoke(token: string, signal: AbortSignal): Promise<void> {
    processRevokeAnswer(await this.#boundary.send(this.#request(REVOKE_PATH, { token }, signal)));
  }

  #request(
    path: string,
    fields: Record<string, string>,
    signal: AbortSignal,
    { clientId, clientSecret, clientAuth } = this.#credentials().client,
  ): HttpRequest {
    const form = new URLSearchParams(fields);
    const headers: Record<string, string> = {};
    if (clientAuth === 'body') {
      form.set('client_id', clientId);
      form.set('client_secret', clientSecret);
    } else {
      const encode = clientAuth === 'basic' ? (text: string) => text : formEncode;
      headers.authorization = basicCredentials(encode(clientId), encode(clientSecret));
    }
    return { ...formRequest(addressOf(this.#baseUrl, path), form, headers, [clientSecret]), signal };
  }
}

/** Returns the value of CLIENT_AUTH that would result in a different Basic header, if any. */
function otherBasicForm({ clientId, clientSecret, clientAuth }: ClientCredentials) {
  if (clientAuth === 'body') return undefined;
  if (formEncode(clientId) === clientId && formEncode(clientSecret) === clientSecret) return undefined;
  return clientAuth === 'basic' ? 'basic-encoded' : 'basic';
}

/** Returns the Basic header: the Base64 encoding of the key, a colon and the secret (platform 5.2). */
export function basicCredentials(clientId: string, clientSecret: string): string {
  return `Basic ${Buffer.from(`${clientId}:${clientSecret}`, 'utf8').toString('base64')}`;
}

/** Encodes text according to RFC 6749 appendix B. */
export function formEncode(text: string): string {
  return new URLSearchParams([['', text]]).toString().slice(1);
}
