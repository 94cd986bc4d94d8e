import { randomBytes } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import { hostRefusal } from '../../base/inbound/host-rule.ts';
import type { Logger } from '../../base/logger.ts';
import { IDENTITY_PATHS } from '../../contract/tokens.ts';
import type { Faults } from '../faults.ts';
import type { Exchange } from '../requests/exchange.ts';
import type { SandboxClock } from '../sandbox-clock.ts';
import type { SiteModel } from '../site/site-model.ts';
import type { TokenStore } from '../tokens/token-store.ts';
import type { Answer, Call, Caller } from './call.ts';
import { corsHeaders, isPreflight } from './cors.ts';
import { errorBody, Refusal, refusal } from './refusal.ts';
import { readRequestBody } from './request-body.ts';
import type { RequestEntry } from './request-entry.ts';
import type { RequestLog } from './request-log.ts';
import type { Router } from './router.ts';
import type { Usage } from './usage.ts';

export interface RequestHandlerParts {
  router: Router;
  tokens: TokenStore;
  usage: Usage;
  faults: Faults;
  site: SiteModel;
  log: RequestLog;
  logger: Logger;
  /** The sandbox's clock: `Date` headers. */
  clock: SandboxClock;
  /** The machine's: latency and durations are real. */
  realClock: Clock;
  /** Header that must carry the client id beside the token; empty: none (platform 10.3). */
  apiKeyHeader: string;
  /** JSON has to come as JSON: 415 for a body of another type. */
  isJsonTypeNeeded: boolean;
  /** Origins of web pages that may call, or `*`; `undefined`: none. */
  corsOrigin: string | undefined;
  /** Answers every request of the platform like this while set. */
  outage(): { status: number; retryAfter?: number | string } | 'drop' | undefined;
  /** Headers that belong to an answer of this path: deprecations. May throw the `Refusal` that ends an endpoint. */
  pathHeaders(path: string): Record<string, string>;
  /** It listens where this machine alone reaches it. */
  isLoopback: boolean;
  signal: AbortSignal;
}

/** {base_url} and {web_url} (spec, address placeholders), each on an address of its own, or both on one. */
export type Host = 'platform' | 'identity' | 'both';

/** The body as far as it was read to its end, for the log. */
interface ReadBody {
  body: Buffer | undefined;
}

/** The page's stream (live/page-endpoints.ts). */
const STREAM_PATH = '/sandbox/live';

/** Thrown instead of an answer: the connection is broken. */
const BROKEN = Symbol('broken');

/** Takes a request from the socket to its answer: faults, body, route, token, limits, endpoint, answer, log. */
export class RequestHandler {
  readonly #parts: RequestHandlerParts;

  constructor(parts: RequestHandlerParts) {
    this.#parts = parts;
  }

  /** What takes the requests of a socket: those of the whole service, or of one of its two hosts. */
  at(host: Host): (request: IncomingMessage, response: ServerResponse) => void {
    return (request, response) => this.#take(request, response, host);
  }

  #take(request: IncomingMessage, response: ServerResponse, host: Host): void {
    // A socket that breaks is the client's affair.
    request.on('error', () => {});
    response.on('error', () => {});
    this.#serve(request, response, host).catch((err: unknown) => {
      // An answer that cannot be written (a fault with a header that is none) must not end the sandbox.
      this.#parts.logger.error({ event: 'sandbox.answer_failed', err }, 'an answer could not be written');
      request.socket.destroy();
    });
  }

  async #serve(request: IncomingMessage, response: ServerResponse, host: Host): Promise<void> {
    const { realClock, clock, log, logger } = this.#parts;
    const startedMs = realClock.monotonicMs();
    const url = URL.canParse(request.url ?? '', 'http://sandbox') ? new URL(request.url!, 'http://sandbox') : undefined;
    const path = url?.pathname ?? '/';
    const entry: RequestEntry = {
      id: 0,
      at: new Date(clock.wallMs()).toISOString(),
      method: request.method ?? 'GET',
      path,
      status: 0,
      durationMs: 0,
      requestBytes: 0,
      user: undefined,
      story: undefined,
      fault: undefined,
    };
    const read: ReadBody = { body: undefined };
    let answer: Answer | typeof BROKEN;
    try {
      if (!url) throw refusal(400, 'the address cannot be read');
      mustBeOn(host, path);
      answer = await this.#answer(request, url, entry, read);
    } catch (error) {
      answer = error === BROKEN ? BROKEN : this.#errorAnswer(error);
      const refused = answer === BROKEN ? undefined : wordsOf(answer.body);
      if (refused !== undefined) entry.refused = refused;
    }
    const endedMs = realClock.monotonicMs();
    entry.durationMs = Math.round(endedMs - startedMs);
    // Known with the end alone, and nothing waits from here on: the header and the log name the same request.
    entry.id = log.nextId;
    let written: Exchange['answer'];
    if (answer === BROKEN) {
      request.socket.destroy();
    } else if (answer.write) {
      await answer.write(request, response);
    } else {
      entry.status = answer.status;
      entry.story ??= answer.story;
      written = this.#write(response, answer, entry);
    }
    if (path.startsWith('/sandbox/')) return;
    const { rawHeaders } = request;
    const whole = { entry, startedMs, endedMs, target: request.url ?? '', rawHeaders };
    log.add({ ...whole, body: read.body, answer: written });
    logger.debug({ event: 'sandbox.request', ...entry }, 'request answered');
  }

  async #answer(request: IncomingMessage, url: URL, entry: RequestEntry, read: ReadBody): Promise<Answer> {
    const { faults, router, realClock, signal } = this.#parts;
    const { method, path } = entry;
    const isAdmin = path.startsWith('/sandbox/');
    if (isAdmin) refuseForeignPages(request, this.#parts.isLoopback);
    const effect = isAdmin ? undefined : faults.effectOn(method, path);
    if (effect?.latencyMs !== undefined) {
      entry.fault = `waited ${effect.latencyMs} ms`;
      await realClock.sleep(effect.latencyMs, signal).catch(() => {});
    }
    if (effect?.drop === 'before') {
      entry.fault = 'connection broken before the request was done';
      throw BROKEN;
    }
    // Read before anything is refused, so that a keep-alive connection stays usable.
    const { body, wireBytes } = await readRequestBody(request);
    entry.requestBytes = wireBytes;
    read.body = body;
    if (!isAdmin) this.#outage(entry);
    if (effect?.status !== undefined) {
      entry.fault = `told to answer ${effect.status}`;
      return faultAnswer(effect.status, effect);
    }
    if (this.#parts.corsOrigin !== undefined && isPreflight(request)) return { status: 204 };
    const found = router.find(method === 'HEAD' ? 'GET' : method, path);
    if ('allowed' in found) {
      if (found.allowed.length === 0) throw refusal(404, `${path} was not found`);
      throw refusal(405, `${method} is not offered here`, undefined, { allow: found.allowed.join(', ') });
    }
    const call: Call = {
      method,
      path,
      params: found.params,
      query: url.searchParams,
      headers: request.headers,
      raw: body,
      caller: { user: 0, application: 0 },
      bearer: /^Bearer\s+(\S+)\s*$/i.exec(request.headers.authorization ?? '')?.[1],
    };
    if (found.route.auth === 'bearer') {
      call.caller = this.#authenticate(call);
      const user = this.#parts.site.get('users', call.caller.user);
      entry.user = user?.name ?? user?.email;
      if (found.route.counted) this.#parts.usage.count(call.caller, request.socket.remoteAddress ?? '');
    }
    if (!isAdmin && this.#parts.isJsonTypeNeeded && found.route.auth === 'bearer' && body.length > 0) mustBeJson(call);
    const extra = this.#parts.pathHeaders(path);
    const answer = await withHeaders(extra, () => found.route.handle(call));
    if (effect?.drop === 'after') {
      entry.fault = 'done, but the answer was lost';
      entry.story = answer.story;
      throw BROKEN;
    }
    const headers = { ...extra, ...answer.headers };
    if (effect?.state === 'foreign' && headers.location !== undefined) {
      headers.location = withForeignState(headers.location);
      entry.fault = 'sent back with a state of somebody else';
    }
    return { ...answer, headers };
  }

  #outage(entry: RequestEntry): void {
    const outage = this.#parts.outage();
    if (outage === undefined) return;
    entry.fault = 'the platform is away';
    if (outage === 'drop') throw BROKEN;
    const headers: Record<string, string> = {};
    if (outage.retryAfter !== undefined) headers['retry-after'] = String(outage.retryAfter);
    throw refusal(outage.status, 'the service is not available', undefined, headers);
  }

  /** Platform 5.5; the 401's words follow RFC 6750 section 3. */
  #authenticate(call: Call): Caller {
    const { tokens, apiKeyHeader, site } = this.#parts;
    const state = call.bearer === undefined ? 'missing' : tokens.check(call.bearer);
    if (typeof state === 'string') {
      const detail = state === 'missing' ? '' : `, error="invalid_token", error_description="token ${state}"`;
      throw refusal(401, `the access token is ${state}`, undefined, {
        'www-authenticate': `Bearer realm="sandbox"${detail}`,
      });
    }
    if (apiKeyHeader !== '') {
      const key = site.apiKey(String(call.headers[apiKeyHeader.toLowerCase()] ?? ''));
      if (key?.client_application !== state.application) {
        throw refusal(401, `the header ${apiKeyHeader} does not hold the token's client id`);
      }
    }
    return state;
  }

  #errorAnswer(error: unknown): Answer {
    if (error instanceof Refusal) {
      return { status: error.status, body: error.body, headers: error.headers };
    }
    // A client that went away in the middle of its body is no fault of the service.
    if ((error as { code?: unknown } | undefined)?.code === 'ECONNRESET')
      return { status: 400, body: errorBody(400, 'the body ended early') };
    this.#parts.logger.error({ event: 'sandbox.request_failed', err: error }, 'a request met an error of the sandbox');
    return { status: 500, body: errorBody(500, messageOf(error)) };
  }

  /** Gives what was written. */
  #write(response: ServerResponse, answer: Answer, { id, method }: RequestEntry): Exchange['answer'] {
    if (response.destroyed) return undefined;
    const headers: Record<string, string | number> = {
      date: new Date(this.#parts.clock.wallMs()).toUTCString(),
      'x-request-id': String(id),
      ...corsHeaders(this.#parts.corsOrigin, response.req),
      ...answer.headers,
    };
    let body: Buffer | undefined;
    if (answer.text !== undefined) body = Buffer.from(answer.text);
    else if (answer.body !== undefined) {
      headers['content-type'] ??= 'application/json; charset=utf-8';
      body = Buffer.from(JSON.stringify(answer.body));
    }
    if (body) headers['content-length'] = body.length;
    response.sendDate = false;
    response.writeHead(answer.status, headers);
    response.end(method === 'HEAD' ? undefined : body);
    return { status: answer.status, headers, body };
  }
}

/** A client that mixes the two hosts up fails here, and not at the customer. */
function mustBeOn(host: Host, path: string): void {
  const isIdentity = path.startsWith(IDENTITY_PATHS);
  if (host === 'platform' && isIdentity) throw refusal(404, `${path} is on {web_url}, and this is {base_url}`);
  if (host === 'identity' && !isIdentity) throw refusal(404, `${path} is on {base_url}, and this is {web_url}`);
}

function mustBeJson({ headers }: Call): void {
  const type = (headers['content-type'] ?? '').split(';')[0]!.trim().toLowerCase();
  if (!/^application\/([\w.+-]+\+)?json$/.test(type)) throw refusal(415, 'the body is no application/json');
}

/** The first message of an error body, of the API or of the token endpoints, for the story. */
function wordsOf(body: unknown): string | undefined {
  const { errors, error_description } = (body ?? {}) as {
    errors?: { message: string; attribute?: string }[];
    error_description?: string;
  };
  const first = errors?.[0];
  if (first)
    return [first.attribute, first.message]
      .filter((word) => word !== undefined)
      .join(' ')
      .slice(0, 160);
  return error_description?.slice(0, 160);
}

/** A refusal carries the path's headers as well: a client that is told no should still hear of the sunset. */
async function withHeaders(extra: Record<string, string>, act: () => Answer | Promise<Answer>): Promise<Answer> {
  try {
    return await act();
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    throw new Refusal(error.status, error.body, { ...extra, ...error.headers });
  }
}

function faultAnswer(
  status: number,
  effect: { body?: unknown; contentType?: string; retryAfter?: number | string },
): Answer {
  const headers: Record<string, string> = {};
  if (effect.retryAfter !== undefined) headers['retry-after'] = String(effect.retryAfter);
  if (effect.contentType !== undefined) headers['content-type'] = effect.contentType;
  if (status === 204 || status === 304) return { status, headers };
  if (typeof effect.body === 'string') return { status, text: effect.body, headers };
  return { status, body: effect.body ?? errorBody(status, 'told to by a fault'), headers };
}

function withForeignState(location: string): string {
  const redirect = new URL(location);
  redirect.searchParams.set('state', randomBytes(24).toString('base64url'));
  return redirect.href;
}

/**
 * What acts behind the scenes needs no login: a page that a browser on this machine shows must not reach it, by its own origin or by
 * a name that it lets point here. Reading is left to the browser, which shows no page the answers of another.
 */
function refuseForeignPages(request: IncomingMessage, isLoopback: boolean): void {
  const found = hostRefusal(request, { isLoopback, hosts: [], setting: '--listen' });
  const isRead = request.method === 'GET' || request.method === 'HEAD';
  // A stream is held open whether its answers may be read or not.
  if (found === undefined || (found.status === 403 && isRead && !request.url?.startsWith(STREAM_PATH))) return;
  throw refusal(found.status, 'web pages of other origins may not act on the sandbox');
}
