import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { PlatformError } from '../../base/errors.ts';
import { IDENTITY_REVOKE_PATH, IDENTITY_TOKEN_PATH, SIGN_IN_PATH } from '../../contract/tokens.ts';
import { foreignWords } from '../answer-words.ts';
import type { HttpRequest, PlatformAnswer } from '../http-boundary.ts';
import { addressOf, formRequest } from './form-request.ts';
import { processRevokeAnswer, processTokenAnswer, type Tokens } from './token-answer.ts';

/**
 * The grants of people on {web_url}/app/id (platform 4.1, 5.3, 5.4): the web flow with a client secret, PKCE without.
 * Client credentials travel in the form here, as the spec's table has it.
 */
export interface PersonClient {
  clientId: string;
  /** Absent: PKCE. */
  clientSecret?: string | undefined;
  /** PKCE only. The document says "base64" (platform 5.4), RFC 7636 base64url without padding, which is the default. */
  challengeEncoding?: 'base64url' | 'base64' | undefined;
}

/** What a sign-in needs to remember between the redirect out and the redirect back. */
export interface SignIn {
  /** Where the browser goes. */
  address: URL;
  state: string;
  redirectUri: string;
  /** PKCE only. */
  codeVerifier: string | undefined;
}

/** 64 random bytes are 86 characters of base64url: within 43 to 128, and all of them allowed (platform 5.4). */
const VERIFIER_BYTES = 64;
const STATE_BYTES = 32;

/** Begins a sign-in: a fresh state, and with PKCE a fresh verifier with its S256 challenge. */
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

/** RFC 7636 section 4.2. */
export function challengeOf(codeVerifier: string, encoding: 'base64url' | 'base64' = 'base64url'): string {
  return createHash('sha256').update(codeVerifier, 'ascii').digest(encoding);
}

/** Whether a redirect answers this sign-in: its state compared in constant time (platform 5.3). */
export function carriesState(redirect: URL, signIn: Pick<SignIn, 'state'>): boolean {
  return sameText(redirect.searchParams.get('state') ?? '', signIn.state);
}

/**
 * The code in the address that the browser was sent back to. Throws `platform.sign_in_redirect` where `state` is not
 * ours (compared in constant time), where the platform says no, or where there is no code.
 */
export function codeOfRedirect(redirect: URL, signIn: SignIn): string {
  const { searchParams } = redirect;
  const fail = (message: string, hint: string) =>
    new PlatformError(message, { code: 'platform.sign_in_redirect', hint });
  if (!carriesState(redirect, signIn)) {
    throw fail(
      'the redirect does not carry the state of this sign-in',
      'Start `tagferry login` again and use its address.',
    );
  }
  const error = searchParams.get('error');
  if (error !== null) {
    const words = searchParams.get('error_description') ?? '';
    throw fail(
      `the sign-in was refused: ${foreignWords(`${error} ${words}`, 200)}`,
      'Sign in again, with an account that may use this application.',
    );
  }
  const code = searchParams.get('code');
  if (!code) throw fail('the redirect carries no code', 'Paste the whole address that the browser was sent to.');
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

/** For both grants of people. A refresh that answers without a refresh token leaves the old one in force. */
export function processPersonAnswer(answer: PlatformAnswer, wallMs: number, refreshToken?: string): Tokens {
  const grant = refreshToken === undefined ? 'authorization_code' : 'refresh_token';
  const tokens = processTokenAnswer(answer, { grant, person: true, wallMs });
  return { ...tokens, refreshToken: tokens.refreshToken ?? refreshToken };
}

/** Platform 4.1: the bearer form; PKCE also names the client. */
export function personRevokeRequest(webUrl: string, client: PersonClient, accessToken: string): HttpRequest {
  const form = new URLSearchParams({ token: accessToken });
  if (client.clientSecret === undefined) form.set('client_id', client.clientId);
  return formRequest(addressOf(webUrl, IDENTITY_REVOKE_PATH), form, { authorization: `Bearer ${accessToken}` });
}

export function processPersonRevocation(answer: PlatformAnswer, wallMs: number): void {
  processRevokeAnswer(answer, { person: true, wallMs });
}

function identityRequest(webUrl: string, client: PersonClient, fields: Record<string, string>): HttpRequest {
  const form = new URLSearchParams({ ...fields, client_id: client.clientId });
  if (client.clientSecret !== undefined) form.set('client_secret', client.clientSecret);
  return formRequest(addressOf(webUrl, IDENTITY_TOKEN_PATH), form, {});
}

/** Constant-time comparison; lengths are no secret. */
function sameText(a: string, b: string): boolean {
  const left = createHash('sha256').update(a).digest();
  const right = createHash('sha256').update(b).digest();
  return timingSafeEqual(left, right);
}
