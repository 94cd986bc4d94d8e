/** What an answer means for a batch: one table, mirrored in docs/verdicts.md (a test compares them). */
import { codeOf, messageOf } from '../base/errors.ts';
import { hasNoBody, isPage } from '../platform/answer-body.ts';
import { answerWords, foreignWords } from '../platform/answer-words.ts';
import type { ValuesAnswer } from './ports.ts';

export type Meaning =
  | 'delivered'
  /** The platform does not want these values: divide. */
  | 'refused'
  /** This user may not post to the asset, or it is not there: hold it. */
  | 'no-access'
  /** The client renewed and repeated in vain: as if the platform were away. */
  | 'session'
  | 'quota'
  /** Too many requests: nobody posts for a while. */
  | 'rest'
  /** No answer of the platform's: something stands in its place. As `later`. */
  | 'not-understood'
  /** Later; whether the asset or the platform is in trouble, the others will show. */
  | 'later'
  /** Nobody was reached: the platform is away. The request does not count. */
  | 'unreachable';

export interface VerdictRow {
  /** A status, a class of statuses (`5xx`), the code of an error, or `other status`, `other error`. */
  answer: string;
  meaning: Meaning;
  /** What becomes of the values. */
  values: string;
}

export const VERDICTS: readonly VerdictRow[] = [
  { answer: '204', meaning: 'delivered', values: 'settled; so for what POST_SUCCESS names, with an empty body' },
  {
    answer: '2xx',
    meaning: 'not-understood',
    values: 'kept; as for 5xx: no answer of the platform’s, whatever it says',
  },
  { answer: '3xx', meaning: 'not-understood', values: 'kept; as for 2xx; redirects are not followed' },
  { answer: 'a page', meaning: 'not-understood', values: 'kept; as for 2xx: HTML with 400, 402, 403, 404 or 422' },
  { answer: '400', meaning: 'refused', values: 'divided by series, then by halves; a lone value goes to quarantine' },
  { answer: '413', meaning: 'refused', values: 'divided as for 400; later posts are made smaller' },
  { answer: '422', meaning: 'refused', values: 'divided as for 400' },
  {
    answer: '401',
    meaning: 'session',
    values: 'kept; the client has renewed and repeated; tried again as after an outage',
  },
  { answer: '402', meaning: 'quota', values: 'kept; all posts pause, 1 minute growing to 1 hour' },
  { answer: '403', meaning: 'no-access', values: 'kept; the asset is held and tried again with one post' },
  { answer: '404', meaning: 'no-access', values: 'kept; as for 403' },
  { answer: '408', meaning: 'later', values: 'kept; tried again with growing pauses' },
  { answer: '429', meaning: 'rest', values: 'kept; all posts wait for `Retry-After`, else for the next minute' },
  { answer: '5xx', meaning: 'later', values: 'kept; tried again with growing pauses' },
  { answer: 'other status', meaning: 'later', values: 'kept; tried again with growing pauses' },
  { answer: 'platform.connection_refused', meaning: 'unreachable', values: 'kept; tried again at least every 60 s' },
  { answer: 'platform.dns', meaning: 'unreachable', values: 'kept; tried again at least every 60 s' },
  { answer: 'platform.unreachable', meaning: 'unreachable', values: 'kept; tried again at least every 60 s' },
  { answer: 'platform.proxy', meaning: 'unreachable', values: 'kept; tried again at least every 60 s' },
  { answer: 'platform.tls', meaning: 'unreachable', values: 'kept; tried again at least every 60 s' },
  { answer: 'platform.no_session', meaning: 'unreachable', values: 'kept; tried again at least every 60 s' },
  {
    answer: 'platform.body_unread',
    meaning: 'not-understood',
    values: 'kept; as for 2xx: a success from a server that cannot have read the whole post',
  },
  { answer: 'platform.connection_reset', meaning: 'later', values: 'kept; tried again with growing pauses' },
  { answer: 'platform.timeout', meaning: 'later', values: 'kept; tried again with growing pauses' },
  { answer: 'other error', meaning: 'later', values: 'kept; tried again with growing pauses' },
];

const MEANINGS = new Map(VERDICTS.map((row) => [row.answer, row.meaning]));

export interface Verdict {
  meaning: Meaning;
  /** The status as text, or the code of the error: what logs and metrics show. */
  code: string;
  /** 0 where there was no answer. */
  status: number;
  /** The platform's words, or the error's, bounded. */
  words: string;
  answer?: ValuesAnswer;
}

/** What an answer of any status means. */
export function verdictOfAnswer(answer: ValuesAnswer, success: readonly number[]): Verdict {
  const { status } = answer;
  const meaning = meaningOfAnswer(answer, success);
  return { meaning, code: String(status), status, words: platformWords(answer), answer };
}

/** 413 stands apart: a proxy before the platform says it with a page, and means it. */
const NEVER_WITH_A_PAGE = new Set([400, 402, 403, 404, 422]);

function meaningOfAnswer(answer: ValuesAnswer, success: readonly number[]): Meaning {
  const { status } = answer;
  if (status >= 200 && status < 300) {
    return success.includes(status) && hasNoBody(answer) ? 'delivered' : MEANINGS.get('2xx')!;
  }
  if (NEVER_WITH_A_PAGE.has(status) && isPage(answer)) return MEANINGS.get('a page')!;
  return MEANINGS.get(String(status)) ?? MEANINGS.get(`${Math.floor(status / 100)}xx`) ?? MEANINGS.get('other status')!;
}

/** What a thrown error means: there was no answer. */
export function verdictOfError(error: unknown): Verdict {
  const code = codeOf(error) ?? 'unknown';
  const meaning = MEANINGS.get(code) ?? MEANINGS.get('other error')!;
  return { meaning, code, status: 0, words: foreignWords(messageOf(error)) };
}

/** What a person reads of an answer: its words, or what stands for them. */
export function platformWords(answer: ValuesAnswer): string {
  const { status } = answer;
  if (status >= 300 && status < 400) return foreignWords(`status ${status}, a redirect to ${placeOf(answer)}`);
  const words = answerWords(answer);
  if (status < 200 || status >= 300) return words || `status ${status}`;
  if (hasNoBody(answer)) return `status ${status}`;
  return foreignWords(`status ${status} with a body${words && `: ${words}`}`);
}

/** Without its query, which may contain anything. */
function placeOf(answer: ValuesAnswer): string {
  return answer.redact(answer.header('location') ?? 'nowhere').replace(/[?#].*/s, '');
}
