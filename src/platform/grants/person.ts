import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { PlatformError } from '../../base/errors.ts';
import { IDENTITY_REVOKE_PATH, IDENTITY_TOKEN_PATH, SIGN_IN_PATH } from '../../contract/tokens.ts';
import type { HttpRequest } from '../http-boundary.ts';
import { foreignWords } from '../response-body.ts';
import { addressOf, formRequest } from './form-request.ts';

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
export function challengeOf(codeVerifier: string, encoding: 'base64url' | 'base64' = 'base64url'): string {
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
