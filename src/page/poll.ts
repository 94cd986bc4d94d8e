/**
 * Polls a view of the gateway every second while the page is visible.
 *
 *     request ──► answer ──► 1 s ──► request …
 *        ├──────► failure: the latest answer is kept, and the interval grows
 *        └──────► refusal (401, 403): ends until the user enters a token
 */
import { createContext } from 'preact';
import { useContext, useEffect, useState } from 'preact/hooks';
import type { Growing } from '../ops/live/views.ts';

/** OPS_TOKEN. A new object repeats the requests, even with the same text. */
export interface Token {
  text: string;
}

/** Token in this tab's memory; `undefined` if none was entered. */
export const TokenContext = createContext<Token | undefined>(undefined);

export interface Refusal {
  status: 401 | 403;
  error: string;
  hint: string;
}

/** Result of a request. `isAnswered`: whether the gateway responded with an error. */
type Result = { body: unknown } | { refusal: Refusal } | { problem: string; isAnswered: boolean };

export interface Poll<Data> {
  data: Data | undefined;
  /** Value of `pageMs` at the latest answer, or at the first request. */
  answeredMs: number;
  /** Reason why the latest request failed. */
  problem: string | undefined;
  /** Whether the gateway responded with the problem. */
  isAnswered: boolean;
  refusal: Refusal | undefined;
}

export interface PollOptions<Answer, Data> {
  /** Adds an answer to the previous data. Default: the answer replaces the data. */
  merge?: (before: Data | undefined, answer: Answer) => Data;
  /** Time between an answer and the next request, in milliseconds. Default: one second. */
  everyMs?: number;
}

/** Returns the number of milliseconds since the page was opened, independent of the wall clock. */
export const pageMs = (): number => performance.now();

const POLL_MS = 1_000;
/** Time before the request for more data, so that other viewers of the gateway are served. */
const MORE_MS = 50;
const MAX_RETRY_MS = 5_000;
/** Time limits for the beginning of a response, and for its body, which takes longer on a slow link, in milliseconds. */
const ANSWER_MS = 8_000;
const BODY_MS = 60_000;

/** Polls an address relative to the page; `undefined` does not poll. The options must not change. */
export function usePoll<Answer, Data = Answer>(
  address: string | undefined,
  options: PollOptions<Answer, Data> = {},
): Poll<Data> {
  const token = useContext(TokenContext);
  const [poll, setPoll] = useState<Poll<Data>>(noAnswer);
  useEffect(() => {
    const stop = new AbortController();
    setPoll(noAnswer);
    if (address !== undefined) void run(address, token, options, setPoll, stop.signal);
    return () => stop.abort();
  }, [address, token]);
  return poll;
}

function noAnswer() {
  return { data: undefined, answeredMs: pageMs(), problem: undefined, isAnswered: false, refusal: undefined };
}

async function run<Answer, Data>(
  address: string,
  token: Token | undefined,
  { merge = (_, answer) => answer as unknown as Data, everyMs = POLL_MS }: PollOptions<Answer, Data>,
  show: (poll: Poll<Data>) => void,
  signal: AbortSignal,
): Promise<void> {
  let poll: Poll<Data> = noAnswer();
  let next: string | undefined;
  let failures = 0;
  while (!signal.aborted && !poll.refusal) {
    await visible(signal);
    const result = await request(nextAddress(address, next), token, signal);
    if (signal.aborted) return;
    let waitMs = everyMs;
    if ('body' in result) {
      const answer = result.body as Answer & Partial<Growing>;
      poll = { ...noAnswer(), data: merge(poll.data, answer) };
      next = answer.next;
      failures = 0;
      if (answer.more) waitMs = MORE_MS;
    } else {
      poll = { ...poll, ...result };
      waitMs = Math.min(MAX_RETRY_MS, POLL_MS * 2 ** failures++);
    }
    show(poll);
    await sleep(waitMs, signal);
  }
}

function nextAddress(address: string, next: string | undefined): string {
  return next === undefined ? address : `${address}${address.includes('?') ? '&' : '?'}after=${next}`;
}

/** Sends one request. `answerMs`: time limit for the beginning of the response. */
export async function request(
  address: string,
  token: Token | undefined,
  signal: AbortSignal,
  answerMs = ANSWER_MS,
): Promise<Result> {
  const late = new AbortController();
  const abort = () => late.abort(new Error('timeout'));
  let timer = window.setTimeout(abort, answerMs);
  try {
    const response = await fetch(address, {
      headers: token === undefined ? {} : { Authorization: `Bearer ${token.text}` },
      cache: 'no-store',
      credentials: 'omit',
      signal: AbortSignal.any([signal, late.signal]),
    });
    window.clearTimeout(timer);
    timer = window.setTimeout(abort, BODY_MS);
    // A proxy responds with HTML.
    const body = response.ok ? await response.json() : await response.json().catch(() => ({}));
    return resultOf(response.status, body);
  } catch (error) {
    return { problem: error instanceof Error ? error.message : String(error), isAnswered: false };
  } finally {
    window.clearTimeout(timer);
  }
}

function resultOf(status: number, body: { error?: string; hint?: string; problems?: string[] }): Result {
  if (status === 200) return { body };
  const { error = '', hint = '', problems = [] } = body;
  if (status === 401 || status === 403) return { refusal: { status, error, hint } };
  return { problem: error || problems.join(', ') || `response ${status}`, isAnswered: true };
}

/** Resolves when the tab is visible. */
function visible(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const check = () => {
      if (document.visibilityState === 'hidden' && !signal.aborted) return;
      document.removeEventListener('visibilitychange', check);
      signal.removeEventListener('abort', check);
      resolve();
    };
    document.addEventListener('visibilitychange', check);
    signal.addEventListener('abort', check);
    check();
  });
}

function sleep(delayMs: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = window.setTimeout(end, delayMs);
    function end() {
      window.clearTimeout(timer);
      signal.removeEventListener('abort', end);
      resolve();
    }
    signal.addEventListener('abort', end);
  });
}
