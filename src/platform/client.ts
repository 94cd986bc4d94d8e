import type { Clock } from '../clock.ts';
import { deprecationOf, isSunset } from '../contract/deprecations.ts';
import { codeOf, PlatformError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { problemOf } from './call-refusal.ts';
import { addressOf } from './grants/form-request.ts';
import type { HttpBoundary, HttpRequest, PlatformAnswer } from './http-boundary.ts';
import { PlatformClock } from './platform-clock.ts';
import type { RequestAllowance } from './request-allowance.ts';
import type { RequestKind } from './request-budget.ts';
import type { Lease, TokenSource } from './token-source.ts';

/** One API call (spec section 4). */
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
}

export interface PlatformClientOptions {
  boundary: Pick<HttpBoundary, 'send'>;
  /** The spec's {base_url}. */
  baseUrl: string;
  tokens: TokenSource;
  /** Absent: no budget (a person's verbs). A call of kind `paid` neither takes from it nor gives back to it. */
  budget?: RequestAllowance;
  /** API_KEY_HEADER and the client id it carries. */
  apiKey?: { header: string; clientId: string } | undefined;
  clock: Clock;
  log: Logger;
}

/** The request did not reach the platform: it counts for no one. */
const NOT_COUNTED = new Set([
  'platform.connection_refused',
  'platform.no_session',
  'platform.dns',
  'platform.unreachable',
  'platform.tls',
  'platform.proxy',
]);

/**
 * Calls of the API as one user. Each takes from the request budget, carries a token that is valid when it arrives, and
 * comes back with whatever the platform answered. A 401 is met once: the token is replaced and the call repeated.
 */
export class PlatformClient {
  readonly #options: PlatformClientOptions;
  /** The platform's clock, by its answers. */
  readonly platformClock: PlatformClock;
  readonly #warned = new Set<string>();

  constructor(options: PlatformClientOptions) {
    this.#options = options;
    this.platformClock = new PlatformClock(options.clock);
  }

  /**
   * Makes a call and gives its answer, whatever the status. Throws `PlatformError` where there was none, at once with
   * `platform.no_session` where there is no token and none is being asked for (see `Session.whenValid` to wait for one).
   */
  async request(call: PlatformCall): Promise<PlatformAnswer> {
    this.#heedDeprecation(call);
    const first = await this.#once(call, call.kind);
    if (first.status !== 401) return first;
    // The repeat is a request of its own; one who paid has paid for the first.
    return await this.#once(call, call.kind === 'paid' ? 'live' : call.kind);
  }

  /** Makes a call and gives the JSON of its answer, `undefined` where it has none. Throws `CallRefusal` for all but 2xx. */
  async call<Body>(call: PlatformCall): Promise<Body | undefined> {
    return readBody<Body>(await this.answered(call), call);
  }

  /** Makes a call that must be answered 2xx; gives the whole answer. */
  async answered(call: PlatformCall): Promise<PlatformAnswer> {
    const answer = await this.request(call);
    if (answer.status < 200 || answer.status >= 300) throw problemOf(answer, nameOf(call));
    return answer;
  }

  async #once(call: PlatformCall, kind: RequestKind): Promise<PlatformAnswer> {
    const { budget, tokens, boundary, clock } = this.#options;
    if (kind !== 'paid') await budget?.acquire(kind, call.signal);
    let lease: Lease | undefined;
    try {
      lease = await tokens.lease(call.signal);
      const answer = await boundary.send(this.#toHttp(call, lease.accessToken));
      this.platformClock.observe(answer);
      if (answer.status === 401) lease.refused();
      else lease.accepted();
      if (answer.status === 429) budget?.restUntil(clock.monotonicMs() + this.platformClock.restMs(answer));
      return answer;
    } catch (error) {
      const counted = lease !== undefined && !NOT_COUNTED.has(codeOf(error) ?? '');
      // Who has paid by himself also takes back by himself.
      if (!counted && kind !== 'paid') budget?.giveBack();
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
      signal: call.signal,
      statusSuffices: call.statusSuffices,
    };
    if (call.body === undefined) return request;
    return { ...request, body: call.body instanceof Uint8Array ? call.body : JSON.stringify(call.body) };
  }

  /** Spec 9: a deprecated call warns once for each area, and is not made any more after its sunset. */
  #heedDeprecation(call: PlatformCall): void {
    const deprecation = deprecationOf(call.path);
    if (!deprecation) return;
    const { clock, log } = this.#options;
    const { area, sunset, instead } = deprecation;
    if (isSunset(deprecation, clock.wallMs())) {
      throw new PlatformError(`v1 of ${area} ended on ${sunset}`, {
        code: 'platform.sunset',
        hint: `Use v2: ${instead}`,
      });
    }
    if (this.#warned.has(area)) return;
    this.#warned.add(area);
    log.warn({ event: 'platform.deprecated', area, sunset, instead }, 'a deprecated call of the platform is used');
  }
}

/** How a call is named in errors: without its query, which may name people. */
export function nameOf(call: Pick<PlatformCall, 'method' | 'path'>): string {
  return `${call.method} ${call.path}`;
}

function readBody<Body>(answer: PlatformAnswer, call: PlatformCall): Body | undefined {
  if (answer.status === 204 || answer.text.trim() === '') return undefined;
  if (answer.truncated) throw unreadable(call, 'more than can be read at once');
  try {
    return JSON.parse(answer.text) as Body;
  } catch {
    // The parser's message quotes the body, so it is no cause: the body may hold a secret.
    throw unreadable(call, 'something else than JSON');
  }
}

export function unreadable(call: Pick<PlatformCall, 'method' | 'path'>, what: string): PlatformError {
  return new PlatformError(`the platform answered ${nameOf(call)} with ${what}`, {
    code: 'platform.unreadable',
    retryable: true,
    hint: 'Check that PLATFORM_URL is the address of the API, and what stands between.',
  });
}
