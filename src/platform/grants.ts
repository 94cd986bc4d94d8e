/** Requests to the token endpoints (platform 4.1): for the technical user, and for people. */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { PlatformError } from '../base/errors.ts';
import {
  IDENTITY_REVOKE_PATH,
  IDENTITY_TOKEN_PATH,
  REVOKE_PATH,
  SIGN_IN_PATH,
  TOKEN_PATH,
} from '../contract/tokens.ts';
import type { HttpBoundary, HttpRequest } from './http-boundary.ts';
import { foreignWords } from './response-body.ts';
import { processRevokeAnswer, processTokenAnswer, type SecretCommands, type Tokens } from './response-meanings.ts';

/**
 * Timeout of a token request, in milliseconds. If the platform takes longer, it is considered unavailable and retried
 * every 60 s (docs/interface.md).
 */
const TOKEN_DEADLINE_MS = 20_000;
/**
 * Maximum response size. A token response has a few hundred bytes, but a captive portal page can have several
 * megabytes.
 */
const MAX_TOKEN_ANSWER_BYTES = 64 * 1024;

const SECRET_FIELDS = ['password', 'refresh_token', 'client_secret', 'code', 'code_verifier', 'token'];

/**
 * Creates a form request to a token endpoint (platform 4). `secrets`: additional secrets that the headers contain in
 * encoded form.
 */
function formRequest(
  url: URL,
  form: URLSearchParams,
  headers: Record<string, string>,
  secrets: readonly string[] = [],
): HttpRequest {
  const credentials = headers.authorization?.split(' ')[1] ?? '';
  const fields = SECRET_FIELDS.map((field) => form.get(field) ?? '');
  return {
    method: 'POST',
    url,
    headers: { 'content-type': 'application/x-www-form-urlencoded', ...headers },
    body: form.toString(),
    secrets: [...new Set([...fields, credentials, ...secrets])].filter(Boolean),
    deadlineMs: TOKEN_DEADLINE_MS,
    maxAnswerBytes: MAX_TOKEN_ANSWER_BYTES,
  };
}

/** Joins `{base_url}` or `{web_url}`, which may contain a path, with a path from the specification. */
export function addressOf(base: string, path: string): URL {
  return new URL(base.replace(/\/+$/, '') + path);
}

/* Technical user */

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

/* People */

/**
 * Grants for people at {web_url}/app/id (platform 4.1, 5.3, 5.4): the web flow if a client secret is configured,
 * otherwise PKCE. Client credentials are sent as form fields, as shown in the table in the specification.
 */
export interface PersonClient {
  clientId: string;
  /** Undefined with PKCE. */
  clientSecret?: string | undefined;
  /**
   * PKCE only. Default: base64url without padding, which RFC 7636 requires. The platform specification requires
   * "base64" (platform 5.4).
   */
  challengeEncoding?: 'base64url' | 'base64' | undefined;
}

/** State of a sign-in between the request and the redirect. */
export interface SignIn {
  /** Address to open in the browser. */
  address: URL;
  state: string;
  redirectUri: string;
  /** PKCE only. */
  codeVerifier: string | undefined;
}

/**
 * 64 random bytes result in 86 base64url characters, which are all allowed. The permitted length is 43 to 128 (platform
 * 5.4).
 */
const VERIFIER_BYTES = 64;
const STATE_BYTES = 32;

/** Starts a sign-in with a new state and, for PKCE, a new verifier and its S256 challenge. */
export function beginSignIn(webUrl: string, client: PersonClient, redirectUri: string): SignIn {
  const state = randomBytes(STATE_BYTES).toString('base64url');
  const codeVerifier =
    client.clientSecret === undefined ? randomBytes(VERIFIER_BYTES).toString('base64url') : undefined;
  const address = addressOf(webUrl, SIGN_IN_PATH);
  address.searchParams.set('response_type', 'code');
  address.searchParams.set('client_id', client.clientId);
  address.searchParams.set('redirect_uri', redirectUri);
  address.searchParams.set('state', state);
  if (codeVerifier !== undefined) {
    address.searchParams.set('code_challenge', challengeOf(codeVerifier, client.challengeEncoding));
    address.searchParams.set('code_challenge_method', 'S256');
  }
  return { address, state, redirectUri, codeVerifier };
}

/** Returns the code challenge according to RFC 7636 section 4.2. */
function challengeOf(codeVerifier: string, encoding: 'base64url' | 'base64' = 'base64url'): string {
  return createHash('sha256').update(codeVerifier, 'ascii').digest(encoding);
}

/** Returns whether a redirect contains the state of this sign-in (platform 5.3). The comparison takes constant time. */
export function carriesState(redirect: URL, signIn: Pick<SignIn, 'state'>): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(redirect.searchParams.get('state') ?? ''), digest(signIn.state));
}

/**
 * Returns the code in a redirect. Throws `platform.sign_in_redirect` if the state does not match, the platform rejected
 * the sign-in, or the code is missing.
 */
export function codeOfRedirect(redirect: URL, signIn: SignIn): string {
  const { searchParams } = redirect;
  const fail = (message: string, hint: string) =>
    new PlatformError(message, { code: 'platform.sign_in_redirect', hint });
  if (!carriesState(redirect, signIn)) {
    throw fail(
      'the redirect does not contain the state parameter of this sign-in',
      'Run `tagferry login` again and open the URL that it prints.',
    );
  }
  const error = searchParams.get('error');
  if (error !== null) {
    const words = searchParams.get('error_description') ?? '';
    throw fail(
      `the sign-in was rejected: ${foreignWords(`${error} ${words}`, 200)}`,
      'Sign in with an account that has access to this application.',
    );
  }
  const code = searchParams.get('code');
  if (!code) throw fail('the redirect does not contain a code', 'Paste the complete address from the browser.');
  return code;
}

export function codeGrantRequest(webUrl: string, client: PersonClient, signIn: SignIn, code: string): HttpRequest {
  return identityRequest(webUrl, client, {
    grant_type: 'authorization_code',
    code,
    redirect_uri: signIn.redirectUri,
    ...(signIn.codeVerifier === undefined ? {} : { code_verifier: signIn.codeVerifier }),
  });
}

export function personRefreshRequest(webUrl: string, client: PersonClient, refreshToken: string): HttpRequest {
  return identityRequest(webUrl, client, { grant_type: 'refresh_token', refresh_token: refreshToken });
}

/**
 * Creates a revocation request with a bearer header (platform 4.1). With PKCE, the form also contains the client ID.
 */
export function personRevokeRequest(webUrl: string, client: PersonClient, accessToken: string): HttpRequest {
  const form = new URLSearchParams({ token: accessToken });
  if (client.clientSecret === undefined) form.set('client_id', client.clientId);
  return formRequest(addressOf(webUrl, IDENTITY_REVOKE_PATH), form, { authorization: `Bearer ${accessToken}` });
}

function identityRequest(webUrl: string, client: PersonClient, fields: Record<string, string>): HttpRequest {
  const form = new URLSearchParams({ ...fields, client_id: client.clientId });
  if (client.clientSecret !== undefined) form.set('client_secret', client.clientSecret);
  return formRequest(addressOf(webUrl, IDENTITY_TOKEN_PATH), form, {});
}
