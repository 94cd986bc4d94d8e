import { type ErrorFacts, PlatformError } from '../../base/errors.ts';

/**
 * What a token endpoint's answer means for what comes next:
 * `refused`: these credentials, this code or this refresh token will not do; `rate_limited`: later; `unavailable`: the
 * platform is not well; `unreadable`: something else than a token server answered, or something between.
 */
export type GrantFailure = 'refused' | 'rate_limited' | 'unavailable' | 'unreadable';

/** A token request that was answered, but not with tokens. Its words are the platform's, without anything we sent. */
export class GrantError extends PlatformError {
  readonly failure: GrantFailure;
  readonly status: number;
  /** RFC 6749 section 5.2: `invalid_client`, `invalid_grant` and so on, where the answer named one. */
  readonly oauthError: string | undefined;
  /** `Retry-After`, in milliseconds, where the answer had one. */
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

/** Whose tokens were asked for decides what can be mended: a person has neither the technical user nor its way to authenticate. */
export interface GrantAsked {
  grant: string;
  person?: boolean;
  /** Another value of CLIENT_AUTH, if it sends these credentials in another Basic header. */
  otherBasicForm?: 'basic' | 'basic-encoded' | undefined;
  commands?: SecretCommands | undefined;
}

/** The command after which a changed secret is in force, which depends on where the secret is stored. */
export interface SecretCommands {
  clientSecret: string;
  password: string;
}

/** What to do about an OAuth error code, by the grant that met it. */
export function hintOf(asked: GrantAsked, oauthError: string | undefined, status: number): string {
  const known = asked.person ? personHint(asked.grant, oauthError) : technicalHint(asked, oauthError);
  if (known !== undefined) return known;
  if (status !== 401 && status !== 400) {
    return 'Check that PLATFORM_URL and IDENTITY_URL are the addresses of the platform, and what stands between.';
  }
  return asked.person
    ? 'Check CLIENT_ID, and sign in again: tagferry login'
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
          : `Check CLIENT_ID and CLIENT_SECRET. They contain characters that servers read in two ways: try CLIENT_AUTH=${otherBasicForm}.`;
      return check + then('secret', commands?.clientSecret);
    }
    case 'invalid_grant':
      return grant === 'password'
        ? `Check TECHNICAL_USERNAME and TECHNICAL_PASSWORD: the technical user of the connect subscription, not a person.${then('password', commands?.password)}`
        : 'Sign in again.';
    default:
      return mayNotUse(grant, oauthError);
  }
}

function personHint(grant: string, oauthError: string | undefined): string | undefined {
  switch (oauthError) {
    case 'invalid_client':
      return 'Check CLIENT_ID, and CLIENT_SECRET where the sign-in uses it; see that the connect subscription is active.';
    case 'invalid_grant':
      return grant === 'authorization_code'
        ? 'Start `tagferry login` again: a code is good once and for minutes, and only for the redirect address that is registered.'
        : 'Sign in again: tagferry login';
    default:
      return mayNotUse(grant, oauthError);
  }
}

function mayNotUse(grant: string, oauthError: string | undefined): string | undefined {
  if (oauthError !== 'unauthorized_client' && oauthError !== 'unsupported_grant_type') return undefined;
  return `The API key may not use the ${grant} grant: check that it is of type OAuth, or ask support to enable it.`;
}
