/**
 * Meanings of all platform responses: to posts of values (verdicts), other API calls, and token requests. Requests
 * without a response are described in transport-errors.ts.
 */
import { codeOf, messageOf, PlatformError } from '../base/errors.ts';
import { retryAfterMs } from '../base/retry.ts';
import { ACCESS_TOKEN_LIFE_S } from '../contract/tokens.ts';
import type { PlatformAnswer } from './http-boundary.ts';
import {
  answerWords,
  dateOf,
  foreignWords,
  hasNoBody,
  isPage,
  isSuccess,
  jsonObjectOf,
  problemsOf,
  quoted,
} from './response-body.ts';

/** Meaning of a response to a post. */
export type Meaning =
  | 'delivered'
  /** The platform rejects the values: split the batch. */
  | 'refused'
  /** The user has no access to the asset, or the asset does not exist: hold the asset. */
  | 'no-access'
  /** The renewed token was also rejected: treat as an outage. */
  | 'session'
  | 'quota'
  /** Too many requests: pause all posts. */
  | 'rest'
  /** The response was not sent by the platform: treat like `later`. */
  | 'not-understood'
  /** Retry later. Results for other assets show whether the asset or the platform is at fault. */
  | 'later'
  /** The request did not reach the platform, and does not count against the budget. */
  | 'unreachable';

interface ResponseMeaning {
  /** Status, class of statuses (`5xx`), error code, `other status` or `other error`. */
  response: string;
  meaning: Meaning;
  /** Error code of an API call with this status. Default: `platform.unexpected`. */
  code?: string;
  /** Description of the status in error messages. Default: `unexpected`. */
  what?: string;
  /** Whether the same call may succeed later without user intervention. Default: false. */
  retryable?: boolean;
  hint?: string;
}

const INVALID = { code: 'platform.invalid', what: 'invalid', hint: 'Correct the input that the platform rejected.' };

/**
 * Meanings of all responses (platform 10.3), defined only here. docs/reference/verdicts.md contains the same rows, and
 * their effect on the posted values.
 */
export const RESPONSES: readonly ResponseMeaning[] = [
  { response: '204', meaning: 'delivered' },
  { response: '2xx', meaning: 'not-understood' },
  {
    response: '3xx',
    meaning: 'not-understood',
    code: 'platform.redirected',
    what: 'redirect',
    hint: 'Set PLATFORM_URL to the final address. Redirects are not followed.',
  },
  { response: 'HTML page', meaning: 'not-understood' },
  { response: '400', meaning: 'refused', ...INVALID },
  { response: '413', meaning: 'refused', code: 'platform.too_large', what: 'too large', hint: 'Lower POST_MAX_BYTES.' },
  { response: '422', meaning: 'refused', ...INVALID },
  {
    response: '401',
    meaning: 'session',
    code: 'platform.unauthorized',
    what: 'token rejected',
    retryable: true,
    hint: 'Run `tagferry session show`.',
  },
  {
    response: '402',
    meaning: 'quota',
    code: 'platform.quota_exceeded',
    what: 'quota exceeded',
    retryable: true,
    hint: 'Increase the quota of the connect subscription, or wait for its next period. To stay below the quota, set REQUESTS_PER_DAY.',
  },
  {
    response: '403',
    meaning: 'no-access',
    code: 'platform.forbidden',
    what: 'forbidden',
    hint: 'Grant the permission to the user. Use `tagferry permissions` to list permissions.',
  },
  {
    response: '404',
    meaning: 'no-access',
    code: 'platform.not_found',
    what: 'not found, or no permission to see it',
    hint: 'Check the ID. If it is correct, grant can_read to the user.',
  },
  { response: '408', meaning: 'later', code: 'platform.timeout', what: 'the request took too long', retryable: true },
  {
    response: '409',
    meaning: 'later',
    code: 'platform.conflict',
    what: 'conflict',
    hint: 'The object already exists or has changed. Read it again.',
  },
  {
    response: '429',
    meaning: 'rest',
    code: 'platform.rate_limited',
    what: 'too many requests',
    retryable: true,
    hint: 'Lower REQUESTS_PER_MINUTE, or check for another client with the same user or API key.',
  },
  { response: '5xx', meaning: 'later', code: 'platform.server_error', what: 'server error', retryable: true },
  { response: 'other status', meaning: 'later' },
  { response: 'platform.connection_refused', meaning: 'unreachable' },
  { response: 'platform.dns', meaning: 'unreachable' },
  { response: 'platform.unreachable', meaning: 'unreachable' },
  { response: 'platform.proxy', meaning: 'unreachable' },
  { response: 'platform.tls', meaning: 'unreachable' },
  { response: 'platform.no_session', meaning: 'unreachable' },
  { response: 'platform.connection_reset', meaning: 'later' },
  { response: 'platform.timeout', meaning: 'later' },
  { response: 'other error', meaning: 'later' },
];
const BY_RESPONSE = new Map(RESPONSES.map((row) => [row.response, row]));

function rowOf(status: number): ResponseMeaning {
  const ofClass = `${Math.floor(status / 100)}xx`;
  return BY_RESPONSE.get(String(status)) ?? BY_RESPONSE.get(ofClass) ?? BY_RESPONSE.get('other status')!;
}

/** Returns whether a request that failed with this error code certainly did not reach the platform. */
export function isNeverSent(code: string | undefined): boolean {
  return BY_RESPONSE.get(code ?? '')?.meaning === 'unreachable';
}

/* Posts of values */

/** Response to a post. */
export type ValuesAnswer = Pick<PlatformAnswer, 'status' | 'header' | 'text' | 'redact' | 'truncated'>;

export interface Verdict {
  meaning: Meaning;
  /** Status as text, or error code, for logs and metrics. */
  code: string;
  /** 0 if there is no response. */
  status: number;
  /** Text of the response or error, limited in length. */
  reason: string;
  answer?: ValuesAnswer;
}

/** Returns the verdict on a response. `success` are the statuses in POST_SUCCESS. */
export function verdictOfAnswer(answer: ValuesAnswer, success: readonly number[]): Verdict {
  const { status } = answer;
  const meaning = meaningOfAnswer(answer, success);
  return { meaning, code: String(status), status, reason: platformWords(answer), answer };
}

/** Excludes 413, because proxies send it with an HTML page. */
const NEVER_WITH_A_PAGE = new Set([400, 402, 403, 404, 422]);

function meaningOfAnswer(answer: ValuesAnswer, success: readonly number[]): Meaning {
  const { status } = answer;
  if (isSuccess(status)) return success.includes(status) && hasNoBody(answer) ? 'delivered' : meaningIn('2xx');
  return NEVER_WITH_A_PAGE.has(status) && isPage(answer) ? meaningIn('HTML page') : rowOf(status).meaning;
}

function meaningIn(row: '2xx' | 'HTML page'): Meaning {
  return BY_RESPONSE.get(row)!.meaning;
}

/**
 * Returns the verdict on an error without a response. If no token can be requested, the cause determines the verdict.
 */
export function verdictOfError(error: unknown): Verdict {
  const { cause } = error as { cause?: unknown };
  const isWithoutSession =
    codeOf(error) === 'platform.no_session' && noTokenState(codeOf(cause)) === 'platform unavailable';
  const code = codeOf(isWithoutSession ? cause : error) ?? 'unknown';
  const meaning = isWithoutSession ? 'unreachable' : (BY_RESPONSE.get(code)?.meaning ?? 'later');
  return { meaning, code, status: 0, reason: foreignWords(messageOf(error)) };
}

/** Responses that proxies between agent and platform may return to large bodies although they forward small ones. */
const MAY_BE_TOO_LARGE = new Set(['408', '502', '504', 'platform.timeout', 'platform.connection_reset']);

/** Whether a smaller post may be accepted although this one was not. */
export function mayBeTooLarge({ code, meaning }: Verdict): boolean {
  return meaning === 'later' && MAY_BE_TOO_LARGE.has(code);
}

/** Returns the text of a response in readable form. */
function platformWords(answer: ValuesAnswer): string {
  const { status } = answer;
  if (status >= 300 && status < 400) {
    const target = answer.redact(answer.header('location') ?? 'nowhere').replace(/[?#].*/s, '');
    return foreignWords(`status ${status}, a redirect to ${target}`);
  }
  const reason = answerWords(answer);
  if (!isSuccess(status)) return reason || `status ${status}`;
  if (hasNoBody(answer)) return `status ${status}`;
  return foreignWords(`status ${status} with a body${reason && `: ${reason}`}`);
}

/* API calls */

/** Returns the error of an API call with this status. */
export function callErrorOf(status: number) {
  const { code = 'platform.unexpected', what = 'unexpected', retryable = false, hint } = rowOf(status);
  return { code, what, retryable, hint };
}

/** Non-2xx response to an API call. `call` is the call name, for example `POST /v1/assets/1/values`. */
export class CallRefusal extends PlatformError {
  readonly status: number;

  constructor(answer: PlatformAnswer, call: string) {
    const { status } = answer;
    const { code, what, retryable, hint } = callErrorOf(status);
    const words = problemsOf(answer).map(({ attribute, message }) =>
      attribute ? `${attribute}: ${message}` : message,
    );
    const said = words.length > 0 ? `: ${words.join('; ')}` : '';
    const facts = { code, retryable, hint: standInHint(answer) ?? hint };
    super(`the platform responded ${status} (${what}) to ${call}${said}`, facts);
    this.status = status;
  }
}

/** Returns whether the platform may not support this call, because some calls that the agent uses are undocumented. */
export function isMissingCall(error: unknown): boolean {
  return error instanceof CallRefusal && (error.status === 404 || error.status === 405);
}

/** Returns the hint for a response that did not come from the platform, or `undefined`. */
export function standInHint(answer: Pick<PlatformAnswer, 'status' | 'header' | 'text'>): string | undefined {
  if (answer.status === 511) return 'This network requires a sign-in (captive portal). Sign in with a browser.';
  // Proxies in front of the platform add pages to other statuses, such as 413 and 502.
  const isUsual = answer.status > 404 && answer.status !== 407 && answer.status !== 422;
  if (isUsual || !isPage(answer)) return undefined;
  return 'A web page was returned instead of a platform response. Sign in to the network if it has a captive portal, and check that no proxy or firewall intercepts PLATFORM_URL.';
}

/* Token requests */

/**
 * Kind of failure of a token request. `refused`: the credentials, code or refresh token were rejected. `rate_limited`:
 * too many requests, retry later. `unavailable`: the platform failed. `unreadable`: the response did not come from a
 * token endpoint.
 */
type GrantFailure = 'refused' | 'rate_limited' | 'unavailable' | 'unreadable';

const GRANT_CODES: Record<GrantFailure, string> = {
  refused: 'platform.sign_in_refused',
  rate_limited: 'platform.rate_limited',
  unavailable: 'platform.sign_in_unavailable',
  unreadable: 'platform.sign_in_unreadable',
};

/** Error codes of failed requests that do not mean that the platform rejected the credentials. */
const UNAVAILABLE: ReadonlySet<string> = new Set([
  ...RESPONSES.map(({ response }) => response).filter((response) => response.startsWith('platform.')),
  GRANT_CODES.rate_limited,
  GRANT_CODES.unavailable,
  GRANT_CODES.unreadable,
]);

/** Returns why the token request that failed with this code provided no token, in the words of `status`. */
export function noTokenState(code: string | undefined): 'platform unavailable' | 'signed out' {
  return UNAVAILABLE.has(code ?? '') ? 'platform unavailable' : 'signed out';
}

/**
 * Error for a token request that received a response. The message quotes the response but contains no data from the
 * request. `oauthError`: error code defined in RFC 6749 section 5.2, such as `invalid_client`, if the response contains
 * one. `retryAfterMs`: value of `Retry-After`, if the response contains it.
 */
export class GrantError extends PlatformError {
  readonly failure: GrantFailure;
  readonly status: number;
  readonly oauthError: string | undefined;
  readonly retryAfterMs: number | undefined;

  constructor(
    message: string,
    answer: PlatformAnswer,
    context: GrantContext,
    failure: GrantFailure,
    oauthError?: string,
  ) {
    const { status } = answer;
    const needsUser = failure === 'refused' || failure === 'unreadable';
    const isRedirect = status >= 300 && status < 400;
    const cause = standInHint(answer) ?? (isRedirect ? callErrorOf(status).hint : undefined);
    const hint = cause ?? (needsUser ? hintOf(context, oauthError, status) : undefined);
    // A retry with the same credentials can succeed unless they were rejected, which requires user intervention,
    // possibly on a different system.
    super(message, { code: GRANT_CODES[failure], retryable: failure !== 'refused', hint });
    this.failure = failure;
    this.status = status;
    this.oauthError = oauthError === undefined ? undefined : quoted(answer, oauthError, MAX_WORDS);
    // A date is relative to the clock of the server that sent it.
    this.retryAfterMs = retryAfterMs(answer.header('retry-after'), dateOf(answer) ?? Number.POSITIVE_INFINITY);
  }
}

/** Returns whether the platform rejected the credentials. */
export function isSignInRefused(error: unknown): boolean {
  return error instanceof GrantError && error.failure === 'refused';
}

/**
 * Context of a token request, used to select the hint. Hints for people do not mention the technical user or
 * CLIENT_AUTH.
 */
export interface GrantContext {
  grant: 'password' | 'refresh_token' | 'authorization_code' | 'revoke';
  /** Refresh token in the request. It remains valid if the response contains none (RFC 6749 section 6). */
  refreshToken?: string;
  person?: boolean;
  /** Alternative value of CLIENT_AUTH, if it would result in a different Basic header for these credentials. */
  otherBasicForm?: 'basic' | 'basic-encoded' | undefined;
  commands?: SecretCommands | undefined;
}

/** Commands that apply a changed secret, depending on where the secret is stored. */
export interface SecretCommands {
  clientSecret: string;
  password: string;
}

/** Content of a token response (platform 2.1) that the client uses. */
export interface Tokens {
  accessToken: string;
  /** Undefined if the server returned no refresh token. The next token then requires a login. */
  refreshToken: string | undefined;
  /** Lifetime of the access token, starting with the response, in milliseconds. */
  expiresInMs: number;
  /** ID of the token's user, if the server reports it. The specification does not mention this member. */
  userId?: number;
}

/**
 * Characters that a header can contain without encoding. The length is limited because servers do not accept longer
 * tokens.
 */
const BEARER_TEXT = /^[\x21-\x7e]{1,8192}$/;
/** Maximum lifetime, in seconds. A token with a longer lifetime is renewed as if it expired after a day. */
const MAX_LIFE_S = 24 * 3600;
/** Maximum length of platform text quoted in a message, in characters. */
const MAX_WORDS = 200;
/** Processes the response of a token endpoint. Throws `GrantError` if the response contains no token. */
export function processTokenAnswer(answer: PlatformAnswer, context: GrantContext): Tokens {
  const body = jsonObjectOf(answer);
  if (answer.status !== 200 && answer.status !== 201) throw rejectionOf(answer, body, context);
  const unreadable = (what: string) => {
    const type = quoted(answer, answer.header('content-type')?.split(';')[0] ?? 'no content type', MAX_WORDS);
    const message = `the token endpoint responded ${answer.status}, but ${what} (${type})`;
    return new GrantError(message, answer, context, 'unreadable');
  };
  if (body === undefined) throw unreadable('not in JSON');
  if (hasError(body)) throw unreadable('with an error');
  const { access_token: access, refresh_token: refresh, token_type: type, expires_in: life } = body;
  if (typeof access !== 'string' || !BEARER_TEXT.test(access)) throw unreadable('without a usable access token');
  // Vendors add suffixes, such as `BearerToken`.
  if (type !== undefined && !/^bearer/i.test(String(type))) throw unreadable('with a token that is not a bearer token');
  const seconds = typeof life === 'string' && /^\d{1,9}$/.test(life) ? Number(life) : life;
  const isKnown = typeof seconds === 'number' && Number.isFinite(seconds) && seconds >= 1;
  const userId = userOf(body);
  return {
    accessToken: access,
    refreshToken: typeof refresh === 'string' && BEARER_TEXT.test(refresh) ? refresh : context.refreshToken,
    expiresInMs: Math.min(isKnown ? seconds : ACCESS_TOKEN_LIFE_S, MAX_LIFE_S) * 1000,
    ...(userId === undefined ? {} : { userId }),
  };
}

/**
 * Processes the response of a revocation endpoint. The body is unspecified (platform 4.1), so any 2xx response confirms
 * the revocation, except for an HTML page, which a captive portal may send, incomplete JSON, and JSON that contains an
 * error. Throws `GrantError` otherwise.
 */
export function processRevokeAnswer(answer: PlatformAnswer, context: GrantContext = { grant: 'revoke' }): void {
  const body = jsonObjectOf(answer);
  const isIncomplete = body === undefined && /^\s*\{/.test(answer.text);
  if (isSuccess(answer.status) && !isPage(answer) && !isIncomplete && !hasError(body)) return;
  throw rejectionOf(answer, body, context);
}

/** Returns whether a body contains an error. Some servers add an empty `error` to every response. */
function hasError(body: Record<string, unknown> | undefined): boolean {
  return Boolean(body?.error) || (body?.errors ?? undefined) !== undefined;
}

/** Returns the user ID from the members that token servers commonly use. */
function userOf({ user_id, resource_owner_id, user }: Record<string, unknown>): number | undefined {
  const nested = (user as { id?: unknown } | null | undefined)?.id;
  const ids = [user_id, resource_owner_id, nested];
  return ids.find((id): id is number => Number.isSafeInteger(id) && (id as number) > 0);
}

function rejectionOf(
  answer: PlatformAnswer,
  body: Record<string, unknown> | undefined,
  context: GrantContext,
): GrantError {
  const { status } = answer;
  const { error, error_description: description } = body ?? {};
  const oauthError = typeof error === 'string' && error !== '' ? error : undefined;
  const texts = [oauthError, description].filter((text) => typeof text === 'string');
  // Errors in the API format, or a page, instead of the OAuth format.
  const api = () =>
    problemsOf(answer)
      .map(({ message }) => message)
      .join('; ') || (isPage(answer) ? answerWords(answer) : '');
  const said = texts.map((text) => quoted(answer, text, MAX_WORDS)).join(': ') || api();
  const message = `the token endpoint responded ${status}${said ? ` (${said})` : ''} to the ${context.grant} grant`;
  const failure = isPage(answer) && status < 429 ? 'unreadable' : failureOf(status, body, oauthError);
  return new GrantError(message, answer, context, failure, oauthError);
}

/** Classifies a response by its status and by whether it came from a token endpoint. */
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

/** Returns the hint for an OAuth error code and the grant that failed. */
export function hintOf(context: GrantContext, oauthError: string | undefined, status: number): string {
  const { grant, person, otherBasicForm, commands } = context;
  const then = (what: string, command: string | undefined) =>
    command === undefined ? '' : ` To apply a changed ${what}, run ${command}.`;
  switch (oauthError) {
    case 'invalid_client': {
      const check = 'Check CLIENT_ID and CLIENT_SECRET';
      const active = `${check}, and that the connect subscription is active.`;
      if (person) return active;
      const other =
        otherBasicForm === undefined
          ? `${active} Some servers require CLIENT_AUTH=body.`
          : `${check}. They contain characters that servers decode in different ways. Try CLIENT_AUTH=${otherBasicForm}.`;
      return other + then('secret', commands?.clientSecret);
    }
    case 'invalid_grant':
      if (grant === 'authorization_code')
        return 'Run `tagferry login` again. A code is valid once, for a few minutes, and only for the registered redirect address.';
      if (person) return 'Run `tagferry login`.';
      if (grant !== 'password') return 'Sign in again.';
      return `Check TECHNICAL_USERNAME and TECHNICAL_PASSWORD. Use the connect subscription's technical user, not a personal account.${then('password', commands?.password)}`;
    case 'unauthorized_client':
    case 'unsupported_grant_type':
      return `The API key does not allow the ${grant} grant. Check that its type is OAuth, or ask support to enable the grant.`;
  }
  if (status !== 401 && status !== 400) {
    return 'Check that PLATFORM_URL and IDENTITY_URL are the addresses of the platform, and that no proxy responds in its place.';
  }
  return person
    ? 'Check CLIENT_ID, then run `tagferry login`.'
    : 'Check CLIENT_ID, CLIENT_SECRET, TECHNICAL_USERNAME and TECHNICAL_PASSWORD.';
}
