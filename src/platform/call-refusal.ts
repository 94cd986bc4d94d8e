import { PlatformError } from '../base/errors.ts';
import { type Problem, problemsOf } from './answer-words.ts';
import type { PlatformAnswer } from './http-boundary.ts';

/** Non-2xx response to an API call. */
export class CallRefusal extends PlatformError {
  readonly status: number;
  readonly problems: readonly Problem[];

  constructor(status: number, problems: readonly Problem[], call: string) {
    const meaning = meaningOf(status);
    const words = problems.map((problem) =>
      problem.attribute ? `${problem.attribute}: ${problem.message}` : problem.message,
    );
    super(
      `the platform responded ${status} (${meaning.what}) to ${call}${words.length > 0 ? `: ${words.join('; ')}` : ''}`,
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
  /** Whether the same call may succeed later without user intervention. */
  retryable: boolean;
  hint?: string;
}

/** Meanings of the response statuses (platform 10.3), defined only here. */
const MEANINGS: Readonly<Record<number, StatusMeaning>> = {
  400: {
    code: 'platform.invalid',
    what: 'invalid',
    retryable: false,
    hint: 'Correct the input that the platform rejected.',
  },
  401: {
    code: 'platform.unauthorized',
    what: 'token rejected',
    retryable: true,
    hint: 'Run `tagferry session show`.',
  },
  402: {
    code: 'platform.quota_exceeded',
    what: 'quota exceeded',
    retryable: true,
    hint: 'Increase the quota of the connect subscription, or wait for its next period. To stay below the quota, set REQUESTS_PER_DAY.',
  },
  403: {
    code: 'platform.forbidden',
    what: 'forbidden',
    retryable: false,
    hint: 'Grant the permission to the user. Use `tagferry permissions` to list permissions.',
  },
  404: {
    code: 'platform.not_found',
    what: 'not found, or no permission to see it',
    retryable: false,
    hint: 'Check the ID. If it is correct, grant can_read to the user.',
  },
  408: { code: 'platform.timeout', what: 'the request took too long', retryable: true },
  409: {
    code: 'platform.conflict',
    what: 'conflict',
    retryable: false,
    hint: 'The object already exists or has changed. Read it again.',
  },
  413: { code: 'platform.too_large', what: 'too large', retryable: false, hint: 'Lower POST_MAX_BYTES.' },
  422: {
    code: 'platform.invalid',
    what: 'invalid',
    retryable: false,
    hint: 'Correct the input that the platform rejected.',
  },
  425: { code: 'platform.server_error', what: 'too early', retryable: true },
  429: {
    code: 'platform.rate_limited',
    what: 'too many requests',
    retryable: true,
    hint: 'Lower REQUESTS_PER_MINUTE, or check for another client with the same user or API key.',
  },
};

export function meaningOf(status: number): StatusMeaning {
  const known = MEANINGS[status];
  if (known) return known;
  if (status >= 500) return { code: 'platform.server_error', what: 'server error', retryable: true };
  if (status >= 300 && status < 400) {
    const hint = 'Set PLATFORM_URL to the final address. Redirects are not followed.';
    return { code: 'platform.redirected', what: 'redirect', retryable: false, hint };
  }
  return { code: 'platform.unexpected', what: 'unexpected', retryable: false };
}

/** Converts a non-2xx response to an error. `call` is the call name, for example `POST /v1/assets/1/values`. */
export function problemOf(answer: PlatformAnswer, call: string): CallRefusal {
  return new CallRefusal(answer.status, problemsOf(answer), call);
}

/** Returns whether the platform may not support this call, because some calls that the agent uses are undocumented. */
export function isMissingCall(error: unknown): boolean {
  return error instanceof CallRefusal && (error.status === 404 || error.status === 405);
}
