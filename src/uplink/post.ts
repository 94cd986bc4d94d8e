/** One post: the request, how long its answer may take, and what it asks to wait. */

import type { Clock } from '../base/clock.ts';
import { PlatformError } from '../base/errors.ts';
import { retryAfterMs } from '../base/retry.ts';
import type { Batch } from '../buffer/client/lanes.ts';
import type { ValuesClient } from './ports.ts';
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
  terms: { success: readonly number[]; deadlineMs: number; signal: AbortSignal },
): Promise<Verdict | undefined> {
  const { success, deadlineMs, signal } = terms;
  try {
    const request = { method: 'POST', path, body: batch.body, headers: HEADERS } as const;
    const call = { ...request, kind: 'paid', statusSuffices: true, deadlineMs, signal } as const;
    return verdictOfAnswer(await client.request(call), success);
  } catch (error) {
    if (!signal.aborted) return verdictOfError(error);
    return signal.reason instanceof PlatformError ? verdictOfError(signal.reason) : undefined;
  }
}

/** What a 5xx asks to wait, 0 where it does not. */
export function askedWaitMs(verdict: Verdict, clock: Clock): number {
  return retryAfterMs(verdict.answer?.header('retry-after'), clock.wallMs()) ?? 0;
}
