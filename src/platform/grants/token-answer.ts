import { retryAfterMs } from '../../base/retry.ts';
import { ACCESS_TOKEN_LIFE_S } from '../../contract/tokens.ts';
import { isPage, isSuccess, jsonObjectOf } from '../answer-body.ts';
import { problemsOf, quoted } from '../answer-words.ts';
import type { PlatformAnswer } from '../http-boundary.ts';
import { codeOfGrantFailure, type GrantAsked, GrantError, type GrantFailure, hintOf } from './grant-error.ts';

/** A token response (platform 2.1) as the client uses it. `created_at` is not included: clocks differ. */
export interface Tokens {
  accessToken: string;
  /** Absent where the server gave none: then the next token comes from a login. */
  refreshToken: string | undefined;
  /** Life of the access token from the moment of the answer. */
  expiresInMs: number;
  /** The user the token belongs to, where the server reports it. The document shows no such member (2.1). */
  userId?: number;
}

/** What stands in a header as it is; longer ones no server takes. */
const BEARER_TEXT = /^[\x21-\x7e]{1,8192}$/;
/** A token that claims to live longer than a day is renewed after one. */
const MAX_LIFE_S = 24 * 3600;
/** A shorter life is not believed, as one that is no number. */
const MIN_LIFE_S = 1;
/** Codes of RFC 6749 (4.1.2.1, 5.2) and RFC 7009: public words, in which nothing that was sent is looked for. */
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
/** The most of the platform's words that goes into a message. */
const MAX_WORDS = 200;

/**
 * Reads what a token endpoint answered; throws `GrantError` for everything that is no token response.
 */
export function processTokenAnswer(answer: PlatformAnswer, context: Context): Tokens {
  const body = jsonObjectOf(answer);
  if (answer.status !== 200 && answer.status !== 201) throw refusalOf(answer, body, context);
  const unreadable = (what: string) => {
    const type = quoted(answer, answer.header('content-type')?.split(';')[0] ?? 'no content type', MAX_WORDS);
    return failure(
      'unreadable',
      `the token endpoint answered ${answer.status}, but ${what} (${type})`,
      answer,
      context,
    );
  };
  if (body === undefined) throw unreadable('not in JSON');
  if (body.error !== undefined || body.errors !== undefined) throw unreadable('with an error');
  const { access_token: access, refresh_token: refresh, token_type: type, expires_in: life } = body;
  if (typeof access !== 'string' || !BEARER_TEXT.test(access)) throw unreadable('without a usable access token');
  if (type !== undefined && (typeof type !== 'string' || type.toLowerCase() !== 'bearer')) {
    throw unreadable('with a token that is no bearer token');
  }
  return {
    accessToken: access,
    refreshToken: typeof refresh === 'string' && BEARER_TEXT.test(refresh) ? refresh : undefined,
    expiresInMs: lifeMs(life),
    ...userOf(body),
  };
}

/**
 * Reads the response of a revocation endpoint. Its body is unspecified (platform 4.1), so every 2xx means that the token is revoked,
 * except a page for people, which a portal sends, and JSON that contains an error. Throws `GrantError` otherwise.
 */
export function processRevokeAnswer(answer: PlatformAnswer, context: Omit<Context, 'grant'>): void {
  const body = jsonObjectOf(answer);
  const isError = body?.error !== undefined || body?.errors !== undefined;
  if (isSuccess(answer.status) && !isPage(answer) && !isError) return;
  throw refusalOf(answer, body, { ...context, grant: 'revoke' });
}

/** Members by which token servers commonly report the user: `user_id`, `resource_owner_id`, `user: {id}`. */
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

function refusalOf(answer: PlatformAnswer, body: Record<string, unknown> | undefined, context: Context): GrantError {
  const { status } = answer;
  const oauthError = typeof body?.error === 'string' ? oauthErrorOf(answer, body.error) : undefined;
  const words =
    typeof body?.error_description === 'string' ? quoted(answer, body.error_description, MAX_WORDS) : undefined;
  // The API's own error body instead of OAuth's.
  const api = problemsOf(answer).map(({ message }) => message);
  const said = [oauthError, words].filter((part) => part !== undefined).join(': ') || api.join('; ');
  const message = `the token endpoint answered ${status}${said ? ` (${said})` : ''} to the ${context.grant} grant`;
  const kind = isPage(answer) && status < 429 ? 'unreadable' : failureOf(status, body, oauthError);
  return failure(kind, message, answer, context, oauthError);
}

/** By status, then by whether a token server said it: a portal's 403 in HTML says nothing about the credentials. */
function failureOf(status: number, body: unknown, oauthError: string | undefined): GrantFailure {
  if (status === 429) return 'rate_limited';
  if (status >= 500 || status === 408) return 'unavailable';
  if (status === 401) return 'refused';
  if (oauthError === 'temporarily_unavailable' || oauthError === 'server_error') return 'unavailable';
  if (status >= 400 && oauthError !== undefined) return 'refused';
  // The API's own error body: still the platform that speaks.
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
    // Later, with the same credentials: only a person can make a refused login succeed, but a person may do it anywhere.
    retryable: kind !== 'refused',
    ...(kind === 'refused' || kind === 'unreadable' ? { hint: hintOf(context, oauthError, answer.status) } : {}),
  });
}

function oauthErrorOf(answer: PlatformAnswer, code: string): string {
  return OAUTH_ERRORS.has(code) ? code : quoted(answer, code, MAX_WORDS);
}
