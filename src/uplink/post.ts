/** One post: the request, how long it may take, and what its answer asks all posts to wait. */
import type { Batch } from '../buffer/lanes.ts';
import type { Clock } from '../clock.ts';
import { PlatformError } from '../errors.ts';
import { retryAfterMs } from '../retry.ts';
import type { ValuesAnswer, ValuesClient } from './ports.ts';
import { type Verdict, verdictOfAnswer, verdictOfError } from './verdict.ts';

const HEADERS = { 'content-type': 'application/json' };

/**
 * Posts a batch. `undefined` where the signal ended it: that says nothing about anyone, unless the signal's reason is
 * a `PlatformError` (a deadline).
 */
export async function postBatch(
  client: ValuesClient,
  path: string,
  batch: Batch,
  signal: AbortSignal,
): Promise<Verdict | undefined> {
  try {
    const request = { method: 'POST', path, body: batch.body, headers: HEADERS } as const;
    const call = { ...request, kind: 'paid', statusSuffices: true, signal } as const;
    return verdictOfAnswer(await client.request(call));
  } catch (error) {
    if (!signal.aborted) return verdictOfError(error);
    return signal.reason instanceof PlatformError ? verdictOfError(signal.reason) : undefined;
  }
}

/** Fills `{asset_id}` and `{instrumentation_id}` into VALUES_PATH. */
export function fillValuesPath(template: string, asset: number, instrumentation: number | undefined): string {
  return template
    .replaceAll('{asset_id}', String(asset))
    .replaceAll('{instrumentation_id}', instrumentation === undefined ? '' : String(instrumentation));
}

const MINUTE_MS = 60_000;
/** The platform's limit is one of minutes: a `Retry-After` beyond this is taken for a mistake, and the platform is asked again. */
const LONGEST_REST_MS = 5 * MINUTE_MS;
/** One of 0, or of a time that is over, must not make a loop. */
const LEAST_REST_MS = 1_000;
const REST_JITTER_MS = 10_000;
const RETRY_AFTER_JITTER_MS = 1_000;

/**
 * How long all posts wait after a 429: as `Retry-After` says, else until the next minute starts by the platform's own
 * clock (its limit is one of minutes), and a random while more, so that not every gateway comes back in that second.
 */
export function restMs(answer: ValuesAnswer, clock: Clock): number {
  const platformMs = Date.parse(answer.header('date') ?? '');
  const wallMs = Number.isNaN(platformMs) ? clock.wallMs() : platformMs;
  const asked = retryAfterMs(answer.header('retry-after'), wallMs);
  if (asked !== undefined) {
    return Math.min(Math.max(asked, LEAST_REST_MS), LONGEST_REST_MS) + clock.random() * RETRY_AFTER_JITTER_MS;
  }
  const toNextMinute = Number.isNaN(platformMs) ? MINUTE_MS : MINUTE_MS - (platformMs % MINUTE_MS);
  return toNextMinute + clock.random() * REST_JITTER_MS;
}

/** What a 5xx asks to wait, 0 where it does not. */
export function askedWaitMs(verdict: Verdict, clock: Clock): number {
  return retryAfterMs(verdict.answer?.header('retry-after'), clock.wallMs()) ?? 0;
}
