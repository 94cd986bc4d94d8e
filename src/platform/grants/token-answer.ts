import { retryAfterMs } from '../../base/retry.ts';
import { ACCESS_TOKEN_LIFE_S } from '../../contract/tokens.ts';
import { isPage, isSuccess, jsonObjectOf } from '../answer-body.ts';
import { problemsOf, quoted } from '../answer-words.ts';
import type { PlatformAnswer } from '../http-boundary.ts';
import { codeOfGrantFailure, type GrantAsked, GrantError, type GrantFailure, hintOf } from './grant-error.ts';

/** Content of a token response (platform 2.1) that the client uses. `created_at` is not used, because clocks differ. */
export interface Tokens {
  accessToken: string;
  /** Undefined if the server returned no refresh token. The next token then requires a login. */
  refreshToken: string | undefined;
  /** Lifetime of the access token, starting with the response, in milliseconds. */
  expiresInMs: number;
  /**
   * ID of the token's user, if the server reports it. The specification does not mention this member (platform 2.1).
   */
  userId?: number;
}

/**
 * Characters that a header can contain without encoding. The length is limited because servers do not accept longer
 * tokens.
 */
const BEARER_TEXT = /^[\x21-\x7e]{1,8192}$/;
/** Maximum lifetime, in seconds. A token with a longer lifetime is renewed as if it expired after a day. */
const MAX_LIFE_S = 24 * 3600;
/** Minimum lifetime, in seconds. Shorter lifetimes and values that are not numbers are ignored. */
const MIN_LIFE_S = 1;
/**
 * Error codes defined in RFC 6749 (4.1.2.1, 5.2) and RFC 7009. They are public and therefore not searched for secrets.
 */
const OAUTH_ERRORS: ReadonlySet<string> = new Set([
  'access_denied',
  'invalid_client',
  'invalid_grant',
  'invalid_request',
  'invalid_scope',
  'server_error',
  'temporarily_unavailable',
  'unauthorized_client',
  'unsupported_grant_type',
  'unsupported_token_type',
]);
/** Maximum length of platform text quoted in a message, in characters. */
const MAX_WORDS = 200;

/** Processes the response of a token endpoint. Throws `GrantError` if the response contains no token. */
export function processTokenAnswer(answer: PlatformAnswer, context: Context): Tokens {
  const body = jsonObjectOf(answer);
  if (answer.status !== 200 && answer.status !== 201) throw rejectionOf(answer, body, context);
  const unreadable = (what: string) => {
    const type = quoted(answer, answer.header('content-type')?.split(';')[0] ?? 'no content type', MAX_WORDS);
    return failure(
      'unreadable',
      `the token endpoint responded ${answer.status}, but ${what} (${type})`,
      answer,
      context,
    );
  };
  if (body === undefined) throw unreadable('not in JSON');
  if (body.error !== undefined || body.errors !== undefined) throw unreadable('with an error');
  const { access_token: access, refresh_token: refresh, token_type: type, expires_in: life } = body;
  if (typeof access !== 'string' || !BEARER_TEXT.test(access)) throw unreadable('without a usable access token');
  if (type !== undefined && (typeof type !== 'string' || type.toLowerCase() !== 'bearer')) {
    throw unreadable('with a token that is not a bearer token');
  }
  return {
    accessToken: access,
    refreshToken: typeof refresh === 'string' && BEARER_TEXT.test(refresh) ? refresh : undefined,
    expiresInMs: lifeMs(life),
    ...userOf(body),
  };
}

/**
 * Processes the response of a revocation endpoint. The body is unspecified (platform 4.1), so any 2xx response confirms
 * the revocation, except for an HTML page, which a captive portal may send, and JSON that contains an error. Throws
 * `GrantError` otherwise.
 */
export function processRevokeAnswer(answer: PlatformAnswer, context: Omit<Context, 'grant'>): void {
  const body = jsonObjectOf(answer);
  const isError = body?.error !== undefined || body?.errors !== undefined;
  if (isSuccess(answer.status) && !isPage(answer) && !isError) return;
  throw rejectionOf(answer, body, { ...context, grant: 'revoke' });
}

/**
 * Returns the user ID from the members that token servers commonly use: `user_id`, `resource_owner_id`, `user: {id}`.
 */
function userOf({ user_id, resource_owner_id, user }: Record<string, unknown>): { userId?: number } {
  const nested = (user as { id?: unknown } | null | undefined)?.id;
  const userId = [user_id, resource_owner_id, nested].find((id) => Number.isSafeInteger(id) && (id as number) > 0);
  return userId === undefined ? {} : { userId: userId as number };
}

function lifeMs(life: unknown): number {
  const seconds = typeof life === 'string' && /^\d{1,9}$/.test(life) ? Number(life) : life;
  const known = typeof seconds === 'number' && Number.isFinite(seconds) && seconds >= MIN_LIFE_S;
  return Math.min(known ? seconds : ACCESS_TOKEN_LIFE_S, MAX_LIFE_S) * 1000;
}

interface Context extends GrantAsked {
  wallMs: number;
}

function rejectionOf(answer: PlatformAnswer, body: Record<string, unknown> | undefined, context: Context): GrantError {
  const { status } = answer;
  const oauthError = typeof body?.error === 'string' ? oauthErrorOf(answer, body.error) : undefined;
  const words =
    typeof body?.error_description === 'string' ? quoted(answer, body.error_description, MAX_WORDS) : undefined;
  // Errors in the API format instead of the OAuth format.
  const api = problemsOf(answer).map(({ message }) => message);
  const said = [oauthError, words].filter((part) => part !== undefined).join(': ') || api.join('; ');
  const message = `the token endpoint responded ${status}${said ? ` (${said})` : ''} to the ${context.grant} grant`;
  const kind = isPage(answer) && status < 429 ? 'unreadable' : failureOf(status, body, oauthError);
  return failure(kind, message, answer, context, oauthError);
}

/**
 * Classifies a response by its status and by whether it came from a token endpoint. A 403 with HTML from a captive
 * portal is unrelated to the credentials.
 */
function failureOf(status: number, body: unknown, oauthError: string | undefined): GrantFailure {
  if (status === 429) return 'rate_limited';
  if (status >= 500 || status === 408) return 'unavailable';
  if (status === 401) return 'refused';
  if (oauthError === 'temporarily_unavailable' || oauthError === 'server_error') return 'unavailable';
  if (status >= 400 && oauthError !== undefined) return 'refused';
  // A JSON body in the API format also comes from the platform.
  if ((status === 400 || status === 403) && body !== undefined) return 'refused';
  return 'unreadable';
}

function failure(
  kind: GrantFailure,
  message: string,
  answer: PlatformAnswer,
  context: Context,
  oauthError?: string,
): GrantError {
  return new GrantError(message, {
    code: codeOfGrantFailure(kind),
    failure: kind,
    status: answer.status,
    oauthError,
    retryAfterMs: retryAfterMs(answer.header('retry-after'), context.wallMs),
    // A retry with the same credentials can succeed unless they were rejected, which requires user intervention,
    // possibly on a different system.
    retryable: kind !== 'refused',
    ...(kind === 'refused' || kind === 'unreadable' ? { hint: hintOf(context, oauthError, answer.status) } : {}),
  });
}

function oauthErrorOf(answer: PlatformAnswer, code: string): string {
  return OAUTH_ERRORS.has(code) ? code : quoted(answer, code, MAX_WORDS);
}
