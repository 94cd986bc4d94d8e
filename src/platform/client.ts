import type { Clock } from '../base/clock.ts';
import { codeOf, PlatformError } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { deprecationOf, requireBeforeSunset } from '../contract/deprecations.ts';
import { isSuccess, jsonObjectOf, reportsDone } from './answer-body.ts';
import { problemOf } from './call-refusal.ts';
import { addressOf } from './grants/form-request.ts';
import type { HttpBoundary, HttpRequest, PlatformAnswer } from './http-boundary.ts';
import { PlatformClock } from './platform-clock.ts';
import type { RequestAllowance } from './request-allowance.ts';
import type { RequestKind } from './request-budget.ts';
import { ResponseRecord } from './response-record.ts';
import type { Lease, TokenSource } from './token-source.ts';

/** One API call (platform 4). */
export interface PlatformCall {
  method: HttpRequest['method'];
  /** Below {base_url}, begins with a slash; ids in it are encoded already. */
  path: string;
  query?: Readonly<Record<string, string | number | boolean | undefined>>;
  /** Bytes go out as they are, as JSON unless `headers` say else; an object is written as JSON. */
  body?: Uint8Array | object;
  headers?: Readonly<Record<string, string>>;
  kind: RequestKind;
  signal?: AbortSignal | undefined;
  /** The status alone says what became of it: see `HttpRequest`. */
  statusSuffices?: boolean;
  /** How long its answer may take: see `HttpRequest`. */
  deadlineMs?: number;
}

export interface PlatformClientOptions {
  boundary: Pick<HttpBoundary, 'send'>;
  /** The spec's {base_url}. */
  baseUrl: string;
  tokens: TokenSource;
  /**
   * Undefined for a person's verbs. A call of kind `paid` takes nothing from it. The client alone returns requests that did not
   * reach the platform, also those that its caller has paid for.
   */
  budget?: RequestAllowance;
  /** API_KEY_HEADER and the client id it carries. */
  apiKey?: { header: string; clientId: string } | undefined;
  clock: Clock;
  log: Logger;
}

/** What the platform says where it did what it was asked. Others of 2xx are something else's in its place. */
const SUCCESS: ReadonlySet<number> = new Set([200, 201, 204]);

/** The request did not reach the platform: it counts for no one. */
const NOT_COUNTED = new Set([
  'platform.connection_refused',
  'platform.no_session',
  'platform.dns',
  'platform.unreachable',
  'platform.tls',
  'platform.proxy',
]);

/** Calls of the API, by the one that sends them: what the resources are built on. */
export abstract class ApiCalls {
  /** The platform's clock, by its authenticated responses. */
  abstract readonly platformClock: PlatformClock;

  /** Makes a call and gives its answer, whatever the status. Throws `PlatformError` where there was none. */
  abstract request(call: PlatformCall): Promise<PlatformAnswer>;

  /**
   * Makes a call and returns the JSON of the response, `undefined` for no body. Members are read by `ResponseRecord`. Throws
   * `CallRefusal` if the platform rejects the call, `platform.unreadable` for any other response.
   */
  async call(call: PlatformCall): Promise<unknown> {
    return readBody(await this.answered(call), call);
  }

  /** Makes a call and returns the record in the response, as the body or as its member `wrapper`. Throws as `call` does. */
  async record(call: PlatformCall, wrapper: string): Promise<ResponseRecord> {
    return ResponseRecord.single(call, await this.call(call), wrapper);
  }

  /**
   * Makes a call whose response body is not documented: any 2xx with JSON or no body is success. Returns the JSON object in the
   * response, if there is one. Throws as `call` does.
   */
  async act(call: PlatformCall): Promise<Record<string, unknown> | undefined> {
    const answer = await this.request(call);
    expectDone(answer, call);
    return jsonObjectOf(answer);
  }

  /** Makes a call that must be answered 200, 201 or 204, as the platform does; gives the whole answer. */
  async answered(call: PlatformCall): Promise<PlatformAnswer> {
    const answer = await this.request(call);
    expectSuccess(answer, call);
    return answer;
  }
}

/**
 * Calls of the API as one user. Each takes from the request budget, carries a token that is valid when it arrives, and
 * comes back with whatever the platform answered. A 401 is met once: the token is replaced and the call repeated.
 */
export class PlatformClient extends ApiCalls {
  readonly #options: PlatformClientOptions;
  override readonly platformClock: PlatformClock;
  readonly #warned = new Set<string>();

  constructor(options: PlatformClientOptions) {
    super();
    this.#options = options;
    this.platformClock = new PlatformClock(options.clock);
  }

  /**
   * Makes a call and gives its answer, whatever the status. Throws `PlatformError` where there was none, at once with
   * `platform.no_session` where there is no token and none is being asked for.
   */
  override async request(call: PlatformCall): Promise<PlatformAnswer> {
    this.#heedDeprecation(call);
    const first = await this.#once(call, call.kind);
    if (first.status !== 401) return first;
    // The repeat is a request of its own; one who paid has paid for the first.
    return await this.#once(call, call.kind === 'paid' ? 'live' : call.kind);
  }

  async #once(call: PlatformCall, kind: RequestKind): Promise<PlatformAnswer> {
    const { budget, tokens, boundary, clock } = this.#options;
    if (kind !== 'paid') await budget?.acquire(kind, call.signal);
    let lease: Lease | undefined;
    try {
      lease = await tokens.lease(call.signal);
      const answer = await boundary.send(this.#toHttp(call, lease.accessToken));
      if (answer.status === 401) lease.refused();
      else lease.accepted();
      if (isOwn(answer)) this.platformClock.witness(answer);
      // One rule for every call, a post's too: who has paid by himself reads from the budget how long it rests.
      if (answer.status !== 429) budget?.accepted();
      else if (budget) {
        budget.refused(this.platformClock.closedMs(answer));
        budget.restUntil(clock.monotonicMs() + this.platformClock.restMs(answer));
      }
      return answer;
    } catch (error) {
      const counted = lease !== undefined && !NOT_COUNTED.has(codeOf(error) ?? '');
      if (!counted) budget?.giveBack();
      throw error;
    } finally {
      lease?.release();
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

  /** Warns once per area about a deprecated call, and rejects the call from its sunset on (platform 9). */
  #heedDeprecation(call: PlatformCall): void {
    const deprecation = deprecationOf(call.path);
    if (!deprecation) return;
    const { area, sunset, instead } = deprecation;
    requireBeforeSunset(deprecation, this.platformClock.trustedMs(), instead);
    if (this.#warned.has(area)) return;
    this.#warned.add(area);
    this.#options.log.warn({ event: 'platform.deprecated', area, sunset, instead }, 'deprecated platform call used');
  }
}

/** A success as the platform gives it: empty or JSON. */
function isOwn(answer: PlatformAnswer): boolean {
  return SUCCESS.has(answer.status) && reportsDone(answer);
}

/** Throws `CallRefusal` where the platform says no, `platform.unreadable` for a success that it does not know. */
export function expectSuccess(answer: PlatformAnswer, call: Pick<PlatformCall, 'method' | 'path'>): void {
  const { status } = answer;
  if (SUCCESS.has(status)) return;
  throw isSuccess(status) ? unreadable(call, `status ${status}`) : problemOf(answer, nameOf(call));
}

/** Throws `CallRefusal` unless the response is a 2xx, `platform.unreadable` if such a response has a body other than JSON. */
export function expectDone(answer: PlatformAnswer, call: Pick<PlatformCall, 'method' | 'path'>): void {
  if (reportsDone(answer)) return;
  throw isSuccess(answer.status) ? unreadable(call, 'a body that is not JSON') : problemOf(answer, nameOf(call));
}

/** How a call is named in errors: without its query, which may name people. */
function nameOf(call: Pick<PlatformCall, 'method' | 'path'>): string {
  return `${call.method} ${call.path}`;
}

function readBody(answer: PlatformAnswer, call: PlatformCall): unknown {
  if (answer.truncated) throw unreadable(call, 'more than can be read at once');
  if (answer.status === 204 || answer.text.trim() === '') return undefined;
  if (jsonObjectOf(answer)?.errors !== undefined) throw unreadable(call, `status ${answer.status} and errors`);
  try {
    return JSON.parse(answer.text);
  } catch {
    // The parser's message quotes the body, so it is no cause: the body may hold a secret.
    throw unreadable(call, 'something else than JSON');
  }
}

export function unreadable(call: Pick<PlatformCall, 'method' | 'path'>, what: string): PlatformError {
  return new PlatformError(`the platform answered ${nameOf(call)} with ${what}`, {
    code: 'platform.unreadable',
    retryable: true,
    hint: "Something answers in the platform's place: check that PLATFORM_URL is the address of the API, and what stands between.",
  });
}
