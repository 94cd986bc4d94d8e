/** One post: the request, its timeout, and the delay that the response requests. */
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { Clock } from '../base/clock.ts';
import { PlatformError } from '../base/errors.ts';
import { retryAfterMs } from '../base/retry.ts';
import type { Batch } from '../buffer/client/lanes.ts';
import type { ValuesCall, ValuesClient } from './ports.ts';
import { type Verdict, verdictOfAnswer, verdictOfError } from './verdict.ts';

/** A post that was sent. */
export interface Posted {
  /** Sequence number of the post. */
  post: number;
  startedMs: number;
  /** Set if the URL contains it. */
  instrumentation: number | undefined;
}

/** A post and its response. */
export interface Answered extends Posted {
  verdict: Verdict;
  /** Delay that the response requests, in milliseconds. */
  askedMs: number;
  /** Number of the next post when the response arrived. */
  at: number;
}

const HEADERS = { 'content-type': 'application/json' };
/** Response timeout for an empty body. The timeout doubles with each failure of the asset. */
const RESPONSE_MS = 30_000;
/** Transmission time of one byte at 64 kbit/s. */
const MS_PER_BYTE = 1 / 8;
const MAX_RESPONSE_MS = 90_000;

/**
 * Returns the response timeout of a post, in milliseconds. `failures` is the number of consecutive failed posts of the
 * asset. Each failure doubles the timeout.
 */
export function responseLimitMs(bytes: number, failures: number): number {
  return Math.min(MAX_RESPONSE_MS, (RESPONSE_MS + bytes * MS_PER_BYTE) * 2 ** failures);
}

/**
 * Posts a batch. Returns `undefined` if the signal aborted the post, unless the signal's reason is a `PlatformError` (a
 * deadline).
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

/** Returns the delay that a 5xx response requests, in milliseconds, or 0. */
export function askedWaitMs(verdict: Verdict, clock: Clock): number {
  return retryAfterMs(verdict.answer?.header('retry-after'), clock.wallMs()) ?? 0;
}

const compress = promisify(gzip);
/** The fastest level reduces the size of readings by nine tenths. Higher levels gain little and take twice as long. */
const LEVEL = 1;

/**
 * Compresses bodies (POST_GZIP) for links that are billed per byte. Off by default, because the platform does not
 * document that it accepts compressed bodies. POST_MAX_BYTES limits the uncompressed body.
 */
export function compressing(client: ValuesClient): ValuesClient {
  return {
    async request(call: ValuesCall) {
      const body = await compress(call.body, { level: LEVEL });
      return client.request({ ...call, body, headers: { ...call.headers, 'content-encoding': 'gzip' } });
    },
  };
}
