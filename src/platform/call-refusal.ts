import { PlatformError } from '../base/errors.ts';
import { type Problem, problemsOf } from './answer-words.ts';
import type { PlatformAnswer } from './http-boundary.ts';

/** An API call that was answered, but not with 2xx. */
export class CallRefusal extends PlatformError {
  readonly status: number;
  readonly problems: readonly Problem[];

  constructor(status: number, problems: readonly Problem[], call: string) {
    const meaning = meaningOf(status);
    const words = problems.map((problem) =>
      problem.attribute ? `${problem.attribute}: ${problem.message}` : problem.message,
    );
    super(
      `the platform answered ${status} (${meaning.what}) to ${call}${words.length > 0 ? `: ${words.join('; ')}` : ''}`,
      {
        code: meaning.code,
        retryable: meaning.retryable,
        ...(meaning.hint === undefined ? {} : { hint: meaning.hint }),
      },
    );
    this.status = status;
    this.problems = problems;
  }
}

export interface StatusMeaning {
  code: string;
  what: string;
  /** Whether the same call may succeed later without anyone's doing. */
  retryable: boolean;
  hint?: string;
}

/** What a status means: decided here, once (platform 10.3). */
const MEANINGS: Readonly<Record<number, StatusMeaning>> = {
  400: {
    code: 'platform.invalid',
    what: 'invalid',
    retryable: false,
    hint: 'Mend what the platform names; the call as it is will not do.',
  },
  401: {
    code: 'platform.unauthorized',
    what: 'token refused',
    retryable: true,
    hint: 'Check the session: `tagferry session show`.',
  },
  402: {
    code: 'platform.quota_exceeded',
    what: 'quota exceeded',
    retryable: true,
    hint: 'The quota of the connect subscription is used up: raise it, or wait for its next period; REQUESTS_PER_DAY keeps below it.',
  },
  403: {
    code: 'platform.forbidden',
    what: 'forbidden',
    retryable: false,
    hint: 'Give the user the permission: `tagferry permissions` shows which there are.',
  },
  404: {
    code: 'platform.not_found',
    what: 'not found, or no permission to see it',
    retryable: false,
    hint: 'Check the id; where it is right, give the user can_read on it.',
  },
  408: { code: 'platform.timeout', what: 'the request took too long', retryable: true },
  409: {
    code: 'platform.conflict',
    what: 'conflict',
    retryable: false,
    hint: 'It exists already, or was changed meanwhile: look again.',
  },
  413: { code: 'platform.too_large', what: 'too large', retryable: false, hint: 'Lower POST_MAX_BYTES.' },
  422: {
    code: 'platform.invalid',
    what: 'invalid',
    retryable: false,
    hint: 'Mend what the platform names; the call as it is will not do.',
  },
  425: { code: 'platform.server_error', what: 'too early', retryable: true },
  429: {
    code: 'platform.rate_limited',
    what: 'too many requests',
    retryable: true,
    hint: 'Lower REQUESTS_PER_MINUTE, or look for another client with the same user or API key.',
  },
};

export function meaningOf(status: number): StatusMeaning {
  const known = MEANINGS[status];
  if (known) return known;
  if (status >= 500) return { code: 'platform.server_error', what: 'the platform is not well', retryable: true };
  if (status >= 300 && status < 400) {
    const hint = 'Redirects are not followed with a token: write the final address in PLATFORM_URL.';
    return { code: 'platform.redirected', what: 'redirect', retryable: false, hint };
  }
  return { code: 'platform.unexpected', what: 'unexpected', retryable: false };
}

/** A non-2xx answer as an error. `call` names it: `POST /v1/assets/1/values`. */
export function problemOf(answer: PlatformAnswer, call: string): CallRefusal {
  return new CallRefusal(answer.status, problemsOf(answer), call);
}

/** Whether the platform may not have this call at all: not every call that is used is in the document. */
export function isMissingCall(error: unknown): boolean {
  return error instanceof CallRefusal && (error.status === 404 || error.status === 405);
}
