import { type ErrorFacts, PlatformError } from '../../base/errors.ts';

/**
 * Kind of failure of a token request. `refused`: the credentials, code or refresh token were rejected. `rate_limited`:
 * too many requests, retry later. `unavailable`: the platform failed. `unreadable`: the response did not come from a
 * token endpoint.
 */
export type GrantFailure = 'refused' | 'rate_limited' | 'unavailable' | 'unreadable';

/**
 * Error for a token request that received a response. The message quotes the response but contains no data from the
 * request.
 */
export class GrantError extends PlatformError {
  readonly failure: GrantFailure;
  readonly status: number;
  /**
   * Error code defined in RFC 6749 section 5.2, such as `invalid_client` or `invalid_grant`, if the response contains
   * one.
   */
  readonly oauthError: string | undefined;
  /** Value of `Retry-After`, in milliseconds, if the response contains this header. */
  readonly retryAfterMs: number | undefined;

  constructor(
    message: string,
    facts: ErrorFacts & {
      failure: GrantFailure;
      status: number;
      oauthError?: string | undefined;
      retryAfterMs?: number | undefined;
    },
  ) {
    super(message, facts);
    this.failure = facts.failure;
    this.status = facts.status;
    this.oauthError = facts.oauthError;
    this.retryAfterMs = facts.retryAfterMs;
  }
}

const CODES: Record<GrantFailure, string> = {
  refused: 'platform.sign_in_refused',
  rate_limited: 'platform.rate_limited',
  unavailable: 'platform.sign_in_unavailable',
  unreadable: 'platform.sign_in_unreadable',
};

export function codeOfGrantFailure(failure: GrantFailure): string {
  return CODES[failure];
}

/**
 * Context of a token request, used to select the hint. Hints for people do not mention the technical user or
 * CLIENT_AUTH.
 */
export interface GrantAsked {
  grant: string;
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

/** Returns the hint for an OAuth error code and the grant that failed. */
export function hintOf(asked: GrantAsked, oauthError: string | undefined, status: number): string {
  const known = asked.person ? personHint(asked.grant, oauthError) : technicalHint(asked, oauthError);
  if (known !== undefined) return known;
  if (status !== 401 && status !== 400) {
    return 'Check that PLATFORM_URL and IDENTITY_URL are the addresses of the platform, and that no proxy responds in its place.';
  }
  return asked.person
    ? 'Check CLIENT_ID, then run `tagferry login`.'
    : 'Check CLIENT_ID, CLIENT_SECRET, TECHNICAL_USERNAME and TECHNICAL_PASSWORD.';
}

function technicalHint(asked: GrantAsked, oauthError: string | undefined): string | undefined {
  const { grant, otherBasicForm, commands } = asked;
  const then = (what: string, command: string | undefined) =>
    command === undefined ? '' : ` To apply a changed ${what}, run ${command}.`;
  switch (oauthError) {
    case 'invalid_client': {
      const check =
        otherBasicForm === undefined
          ? 'Check CLIENT_ID and CLIENT_SECRET, and that the connect subscription is active. Some servers require CLIENT_AUTH=body.'
          : `Check CLIENT_ID and CLIENT_SECRET. They contain characters that servers decode in different ways. Try CLIENT_AUTH=${otherBasicForm}.`;
      return check + then('secret', commands?.clientSecret);
    }
    case 'invalid_grant':
      return grant === 'password'
        ? `Check TECHNICAL_USERNAME and TECHNICAL_PASSWORD. Use the connect subscription's technical user, not a personal account.${then('password', commands?.password)}`
        : 'Sign in again.';
    default:
      return mayNotUse(grant, oauthError);
  }
}

function personHint(grant: string, oauthError: string | undefined): string | undefined {
  switch (oauthError) {
    case 'invalid_client':
      return 'Check CLIENT_ID and CLIENT_SECRET, and that the connect subscription is active.';
    case 'invalid_grant':
      return grant === 'authorization_code'
        ? 'Run `tagferry login` again. A code is valid once, for a few minutes, and only for the registered redirect address.'
        : 'Run `tagferry login`.';
    default:
      return mayNotUse(grant, oauthError);
  }
}

function mayNotUse(grant: string, oauthError: string | undefined): string | undefined {
  if (oauthError !== 'unauthorized_client' && oauthError !== 'unsupported_grant_type') return undefined;
  return `The API key does not allow the ${grant} grant. Check that its type is OAuth, or ask support to enable the grant.`;
}
