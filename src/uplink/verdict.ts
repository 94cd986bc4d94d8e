/** Meaning of a response to a post, defined by a single table, which is also in docs/reference/verdicts.md. */
import { codeOf, messageOf } from '../base/errors.ts';
import { answerWords, foreignWords, hasNoBody, isPage } from '../platform/response-body.ts';
import { noTokenState } from '../platform/response-meanings.ts';

/** Response to a post. */
export interface ValuesAnswer {
  status: number;
  header(name: string): string | undefined;
  text: string;
  /** Removes secrets from response text that is quoted. */
  redact(text: string): string;
  /** Whether the body is incomplete. */
  truncated?: boolean;
}

export type Meaning =
  | 'delivered'
  /** The platform rejects the values: divide the batch. */
  | 'refused'
  /** The user has no access to the asset, or the asset does not exist: hold the asset. */
  | 'no-access'
  /** The renewed token was rejected too: treat as an outage. */
  | 'session'
  | 'quota'
  /** Too many requests: pause all posts. */
  | 'rest'
  /** The response was not sent by the platform: treat like `later`. */
  | 'not-understood'
  /** Retry later. Results for other assets show whether the asset or the platform is at fault. */
  | 'later'
  /** The platform could not be reached. The request does not count against the budget. */
  | 'unreachable';

const RETRIED = 'stay in the buffer; retried with increasing pauses';
const PLATFORM_RETRIED = 'stay in the buffer; retried at least every 60 s';

/**
 * A status, a class of statuses (`5xx`), an error code, or `other status` or `other error`; its meaning; and the effect
 * on the values.
 */
export const VERDICTS: readonly (readonly [response: string, meaning: Meaning, effect: string])[] = [
  ['204', 'delivered', 'delivered; also applies to the statuses in POST_SUCCESS, if the body is empty'],
  [
    '2xx',
    'not-understood',
    'stay in the buffer; retried as for 5xx, because the response does not come from the platform',
  ],
  ['3xx', 'not-understood', 'stay in the buffer; retried as for 2xx; redirects are not followed'],
  ['HTML page', 'not-understood', 'stay in the buffer; retried as for 2xx, if the status is 400, 402, 403, 404 or 422'],
  ['400', 'refused', 'split by series, then in half; a value that is rejected on its own is quarantined'],
  ['413', 'refused', 'split as for 400; later posts are smaller'],
  ['422', 'refused', 'split as for 400'],
  ['401', 'session', 'stay in the buffer; posted again with a new token, then retried as in an outage'],
  ['402', 'quota', 'stay in the buffer; all posts pause for 1 minute, doubling to 1 hour'],
  ['403', 'no-access', 'stay in the buffer; the asset is held and probed with single posts'],
  ['404', 'no-access', 'stay in the buffer; held as for 403'],
  ['408', 'later', RETRIED],
  ['429', 'rest', 'stay in the buffer; all posts pause for `Retry-After`, or until the next minute without it'],
  ['5xx', 'later', RETRIED],
  ['other status', 'later', RETRIED],
  ['platform.connection_refused', 'unreachable', PLATFORM_RETRIED],
  ['platform.dns', 'unreachable', PLATFORM_RETRIED],
  ['platform.unreachable', 'unreachable', PLATFORM_RETRIED],
  ['platform.proxy', 'unreachable', PLATFORM_RETRIED],
  ['platform.tls', 'unreachable', PLATFORM_RETRIED],
  ['platform.no_session', 'unreachable', PLATFORM_RETRIED],
  ['platform.connection_reset', 'later', RETRIED],
  ['platform.timeout', 'later', RETRIED],
  ['other error', 'later', RETRIED],
];

const MEANINGS = new Map(VERDICTS.map(([response, meaning]) => [response, meaning]));

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

/** Returns the verdict on a response. */
export function verdictOfAnswer(answer: ValuesAnswer, success: readonly number[]): Verdict {
  const { status } = answer;
  const meaning = meaningOfAnswer(answer, success);
  return { meaning, code: String(status), status, reason: platformWords(answer), answer };
}

/** Excludes 413, because proxies send it with an HTML page. */
const NEVER_WITH_A_PAGE = new Set([400, 402, 403, 404, 422]);

function meaningOfAnswer(answer: ValuesAnswer, success: readonly number[]): Meaning {
  const { status } = answer;
  if (status >= 200 && status < 300) {
    return success.includes(status) && hasNoBody(answer) ? 'delivered' : MEANINGS.get('2xx')!;
  }
  if (NEVER_WITH_A_PAGE.has(status) && isPage(answer)) return MEANINGS.get('HTML page')!;
  return MEANINGS.get(String(status)) ?? MEANINGS.get(`${Math.floor(status / 100)}xx`) ?? MEANINGS.get('other status')!;
}

/** Returns the verdict on an error without a response. If no token can be requested, its cause counts. */
export function verdictOfError(error: unknown): Verdict {
  const { cause } = error as { cause?: unknown };
  const isWithoutSession =
    codeOf(error) === 'platform.no_session' && noTokenState(codeOf(cause)) === 'platform unavailable';
  const code = codeOf(isWithoutSession ? cause : error) ?? 'unknown';
  const meaning = isWithoutSession ? 'unreachable' : (MEANINGS.get(code) ?? MEANINGS.get('other error')!);
  return { meaning, code, status: 0, reason: foreignWords(messageOf(error)) };
}

/** Responses that proxies between agent and platform may return to large bodies although they forward small ones. */
const MAY_BE_TOO_LARGE = new Set(['408', '502', '504', 'platform.timeout', 'platform.connection_reset']);

/** Whether a smaller post may be accepted although this one was not. */
export function mayBeTooLarge({ code, meaning }: Verdict): boolean {
  return meaning === 'later' && MAY_BE_TOO_LARGE.has(code);
}

/** Returns the text of a response in readable form. */
export function platformWords(answer: ValuesAnswer): string {
  const { status } = answer;
  if (status >= 300 && status < 400) return foreignWords(`status ${status}, a redirect to ${placeOf(answer)}`);
  const reason = answerWords(answer);
  if (status < 200 || status >= 300) return reason || `status ${status}`;
  if (hasNoBody(answer)) return `status ${status}`;
  return foreignWords(`status ${status} with a body${reason && `: ${reason}`}`);
}

/** Redirect target without its query. */
function placeOf(answer: ValuesAnswer): string {
  return answer.redact(answer.header('location') ?? 'nowhere').replace(/[?#].*/s, '');
}
