import type { Clock } from '../base/clock.ts';
import { codeOf, PlatformError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { deprecationOf, requireBeforeSunset } from '../contract/deprecations.ts';
import { addressOf } from './grants.ts';
import type { HttpBoundary, HttpRequest, PlatformAnswer } from './http-boundary.ts';
import { PlatformClock } from './platform-clock.ts';
import type { RequestBudget, RequestKind } from './request-budget.ts';
import { type CallName, isSuccess, jsonObjectOf, ResponseRecord, reportsDone } from './response-body.ts';
import { CallRefusal, isNeverSent, standInHint } from './response-meanings.ts';

/** API call (platform 4). */
export interface PlatformCall {
  method: HttpRequest['method'];
  /** Path relative to {base_url}, with a leading slash and encoded IDs. */
  path: string;
  query?: Readonly<Record<string, string | number | boolean | undefined>>;
  /**
   * Bytes are sent unchanged, with the content type JSON unless `headers` specify a different type. Objects are
   * serialized as JSON.
   */
  body?: Uint8Array | object;
  headers?: Readonly<Record<string, string>>;
  kind: RequestKind;
  signal?: AbortSignal | undefined;
  /** Whether the status alone determines the result; see `HttpRequest`. */
  statusSuffices?: boolean;
  /** Timeout of the whole call; see `HttpRequest`. */
  deadlineMs?: number;
}

export interface PlatformClientOptions {
  boundary: Pick<HttpBoundary, 'send'>;
  /** The {base_url} in the specification. */
  baseUrl: string;
  tokens: TokenSource;
  /**
   * Request budget; undefined for manual commands. A call of kind `paid` does not acquire a request from the budget. If
   * a request did not reach the platform, the client refunds it, even if the caller acquired it.
   */
  budget?: Pick<RequestBudget, 'acquire' | 'refund' | 'refused'>;
  /** API_KEY_HEADER, and the client ID that the header contains. */
  apiKey?: { header: string; clientId: string } | undefined;
  clock: Clock;
  log: Logger;
}

/** Earlier attempts of a call. */
export interface Attempt {
  /** Number of retries with the same token so far. */
  repeats: number;
  /** Whether the call was rejected with the previous token. */
  isTokenReplaced: boolean;
}

/** Access token that is in use by one call. */
export interface Lease {
  readonly accessToken: string;
  /**
   * Records the status of the response. After a 401, returns the delay before the next retry with the same token, in
   * milliseconds, because a server may not accept a new token immediately. If it returns `undefined`, the token is not
   * used again.
   */
  responded(status: number, attempt?: Attempt): number | undefined;
  /** Whether the token would still be valid on arrival. If omitted, it always is. */
  isUsable?(): boolean;
  /** Ends the use of the token. Must be called exactly once. */
  release(): void;
}

/** Source of access tokens: the session of the technical user or of a person. */
export interface TokenSource {
  /**
   * Returns a token that will still be valid on arrival. Waits for a renewal in progress, and while another call tests a
   * new token. Throws `platform.no_session` (retryable) immediately if there is no token and none is being requested.
   */
  lease(signal?: AbortSignal): Promise<Lease>;
  /** Ends the waits for the test of a new token, because the agent is stopping. */
  endWaits?(): void;
}

/** Time for which an acquired request may wait for a token, in milliseconds. Afterwards, another one is acquired. */
const PAID_FOR_MS = 1_000;
/** API calls used by the resource classes. */
export abstract class ApiCalls {
  /** Platform time, set by token responses. */
  abstract readonly platformClock: PlatformClock;

  /**
   * Makes a call and returns the response, regardless of its status. Throws `PlatformError` if there is no response, and
   * `platform.no_session` immediately if there is no token and none is being requested.
   */
  abstract request(call: PlatformCall): Promise<PlatformAnswer>;

  /**
   * Makes a call and returns the JSON object in the response, if any. Any 2xx response with JSON or an empty body is a
   * success, because many bodies are not documented. Throws `CallRefusal` if the platform rejects the call, or
   * `platform.unreadable` for any other response.
   */
  async act(call: PlatformCall): Promise<Record<string, unknown> | undefined> {
    const answer = await this.request(call);
    expectDone(answer, call);
    return jsonObjectOf(answer);
  }

  /**
   * Makes a call and returns the record in the response. The record is the body itself or its member `wrapper`. Throws
   * the same errors as `act`.
   */
  async record(call: PlatformCall, wrapper: string): Promise<ResponseRecord> {
    return ResponseRecord.single(call, await this.act(call), wrapper);
  }
}

/**
 * Makes API calls for one user. Each call uses one request from the budget and a token that will still be valid on
 * arrival. After a 401 for a new token, the call is retried with the same token. After the token is replaced, the call
 * is repeated once.
 */
export class PlatformClient extends ApiCalls {
  readonly #options: PlatformClientOptions;
  override readonly platformClock: PlatformClock;
  readonly #warned = new Set<string>();
  readonly #stopping = new AbortController();

  constructor(options: PlatformClientOptions) {
    super();
    this.#options = options;
    this.platformClock = new PlatformClock(options.clock);
  }

  override async request(call: PlatformCall): Promise<PlatformAnswer> {
    this.#noteDeprecation(call);
    let { kind } = call;
    let attempt: Attempt = { repeats: 0, isTokenReplaced: false };
    let rejected: PlatformAnswer | undefined;
    for (;;) {
      const lease = await this.#lease(kind, call.signal);
      if (rejected && this.#stopping.signal.aborted) {
        lease.release();
        return rejected;
      }
      const { answer, repeatInMs } = await this.#send(call, lease, attempt);
      if (answer.status !== 401) return answer;
      if (repeatInMs === undefined) {
        if (attempt.isTokenReplaced) return answer;
        attempt = { repeats: 0, isTokenReplaced: true };
      } else {
        if (!(await this.#pause(repeatInMs, call.signal))) return answer;
        attempt = { ...attempt, repeats: attempt.repeats + 1 };
      }
      rejected = answer;
      // The repeated call is a separate request. A `paid` caller has acquired only the first request.
      if (kind === 'paid') kind = 'live';
    }
  }

  /** Calls that are waiting for a retry end with their 401, because the agent is stopping. */
  stopRetries(): void {
    this.#stopping.abort();
    this.#options.tokens.endWaits?.();
  }

  /** Waits before a retry. Returns false if the agent is stopping. Rejects if the call is aborted. */
  async #pause(delayMs: number, signal: AbortSignal | undefined): Promise<boolean> {
    const end = signal ? AbortSignal.any([signal, this.#stopping.signal]) : this.#stopping.signal;
    if (delayMs > 0) await this.#options.clock.sleep(delayMs, end).catch(() => signal?.throwIfAborted());
    return !this.#stopping.signal.aborted;
  }

  /**
   * Returns a token, and acquires a request from the budget. The request is acquired last, because requests that wait
   * for a token would exceed the limit of the minute in which they are sent.
   */
  async #lease(kind: RequestKind, signal: AbortSignal | undefined): Promise<Lease> {
    const { budget, tokens, clock } = this.#options;
    let isAcquired = kind === 'paid';
    for (;;) {
      const startMs = clock.monotonicMs();
      const lease = await tokens.lease(signal).catch((error: unknown) => {
        if (isAcquired) budget?.refund();
        throw error;
      });
      if (isAcquired && clock.monotonicMs() - startMs <= PAID_FOR_MS) return lease;
      if (isAcquired) budget?.refund();
      try {
        await budget?.acquire(kind === 'paid' ? 'live' : kind, signal);
      } catch (error) {
        lease.release();
        throw error;
      }
      if (lease.isUsable?.() ?? true) return lease;
      // A small daily budget can let calls wait for longer than the lifetime of their tokens.
      lease.release();
      isAcquired = true;
    }
  }

  async #send(
    call: PlatformCall,
    lease: Lease,
    attempt: Attempt,
  ): Promise<{ answer: PlatformAnswer; repeatInMs: number | undefined }> {
    const { budget, boundary } = this.#options;
    try {
      const answer = await boundary.send(this.#toHttp(call, lease.accessToken));
      if (answer.status === 429) budget?.refused(this.platformClock.closedMs(answer));
      return { answer, repeatInMs: lease.responded(answer.status, attempt) };
    } catch (error) {
      if (isNeverSent(codeOf(error))) budget?.refund();
      throw error;
    } finally {
      lease.release();
    }
  }

  #toHttp(call: PlatformCall, accessToken: string): HttpRequest {
    const { baseUrl, apiKey } = this.#options;
    const url = addressOf(baseUrl, call.path);
    for (const [name, value] of Object.entries(call.query ?? {})) {
      if (value !== undefined) url.searchParams.set(name, String(value));
    }
    const headers: Record<string, string> = { authorization: `Bearer ${accessToken}` };
    if (apiKey) headers[apiKey.header.toLowerCase()] = apiKey.clientId;
    if (call.body !== undefined) headers['content-type'] = 'application/json';
    for (const [name, value] of Object.entries(call.headers ?? {})) headers[name.toLowerCase()] = value;
    const request: HttpRequest = {
      method: call.method,
      url,
      headers,
      secrets: [accessToken],
      signal: call.signal,
      statusSuffices: call.statusSuffices,
      ...(call.deadlineMs === undefined ? {} : { deadlineMs: call.deadlineMs }),
    };
    if (call.body === undefined) return request;
    return { ...request, body: call.body instanceof Uint8Array ? call.body : JSON.stringify(call.body) };
  }

  /** Warns once per area about a deprecated call, and rejects the call after its sunset date (platform 9). */
  #noteDeprecation(call: PlatformCall): void {
    const deprecation = deprecationOf(call.path);
    if (!deprecation) return;
    const { area, sunset, instead } = deprecation;
    requireBeforeSunset(deprecation, this.platformClock.trustedMs(), instead);
    if (this.#warned.has(area)) return;
    this.#warned.add(area);
    this.#options.log.warn({ event: 'platform.deprecated', area, sunset, instead }, 'deprecated platform call used');
  }
}

/** Throws `CallRefusal` for a status other than 2xx. */
export function expectSuccess(answer: PlatformAnswer, call: CallName): void {
  if (!isSuccess(answer.status)) throw new CallRefusal(answer, nameOf(call));
}

/**
 * Throws `CallRefusal` for a status other than 2xx, or `platform.unreadable` if a 2xx response has a body other than
 * JSON, or JSON with errors.
 */
export function expectDone(answer: PlatformAnswer, call: CallName): void {
  expectSuccess(answer, call);
  // The body is not quoted, because it may contain a secret.
  if (!reportsDone(answer)) throw unreadable(call, 'the body is incomplete, not JSON, or contains errors', answer);
}

/** Returns the call name for error messages. The query is omitted, because it may identify people. */
function nameOf(call: CallName): string {
  return `${call.method} ${call.path}`;
}

/** `answer`: response whose body may be a page from a captive portal. */
export function unreadable(call: CallName, what: string, answer?: PlatformAnswer): PlatformError {
  const usual = 'Check that PLATFORM_URL is the address of the API, and that no proxy responds in its place.';
  return new PlatformError(`unexpected response to ${nameOf(call)}: ${what}`, {
    code: 'platform.unreadable',
    retryable: true,
    hint: (answer && standInHint(answer)) ?? usual,
  });
}
