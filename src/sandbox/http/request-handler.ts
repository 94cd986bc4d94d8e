import type { IncomingMessage, ServerResponse } from 'node:http';
import { messageOf } from '../../base/errors.ts';
import { hostRefusal } from '../../base/inbound/host-rule.ts';
import { IDENTITY_PATHS } from '../../contract/tokens.ts';
import type { Stage } from '../stage.ts';
import { type Answer, type Call, type Caller, readRequestBody } from './call.ts';
import { deprecationHeaders } from './deprecation-headers.ts';
import type { Host } from './listener.ts';
import { errorBody, Refusal, refusal } from './refusal.ts';
import type { RequestEntry } from './request-log.ts';
import type { Router } from './router.ts';

/** Thrown instead of a response if the connection must be closed. */
const BROKEN = Symbol('broken');

/** Processes requests in these steps: faults, body, route, token, limits, endpoint, response, log. */
export class RequestHandler {
  readonly #router: Router;
  readonly #stage: Stage;

  constructor(router: Router, stage: Stage) {
    this.#router = router;
    this.#stage = stage;
  }

  /** Returns the request listener for a socket that serves one or both hosts. */
  at(host: Host): (request: IncomingMessage, response: ServerResponse) => void {
    return (request, response) => this.#handle(request, response, host);
  }

  #handle(request: IncomingMessage, response: ServerResponse, host: Host): void {
    // Ignore socket errors, which affect only the client.
    request.on('error', () => {});
    response.on('error', () => {});
    this.#serve(request, response, host).catch((err: unknown) => {
      // A response that cannot be written, for example because a fault contains an invalid header, must not stop the
      // sandbox.
      this.#stage.log.error({ event: 'sandbox.answer_failed', err }, 'failed to write a response');
      request.socket.destroy();
    });
  }

  async #serve(request: IncomingMessage, response: ServerResponse, host: Host): Promise<void> {
    const { realClock, clock, log, requests } = this.#stage;
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
    let answer: Answer | typeof BROKEN;
    try {
      if (!url) throw refusal(400, 'the address is not valid');
      mustBeOn(host, path);
      answer = await this.#answer(request, url, entry);
    } catch (error) {
      answer = error === BROKEN ? BROKEN : this.#errorAnswer(error);
      const refused = answer === BROKEN ? undefined : messageIn(answer.body);
      if (refused !== undefined) entry.refused = refused;
    }
    entry.durationMs = Math.round(realClock.monotonicMs() - startedMs);
    // Assign the ID immediately before writing the response, without waiting in between, so that the header and the log
    // contain the same ID.
    entry.id = requests.nextId;
    if (answer === BROKEN) {
      request.socket.destroy();
    } else {
      entry.status = answer.status;
      entry.story ??= answer.story;
      this.#write(response, answer, entry);
    }
    if (path.startsWith('/sandbox/')) return;
    requests.add(entry, request.url ?? '');
    log.debug({ event: 'sandbox.request', ...entry }, 'request processed');
  }

  async #answer(request: IncomingMessage, url: URL, entry: RequestEntry): Promise<Answer> {
    const { faults, realClock, stopping, isLoopback, strict, clock } = this.#stage;
    const { method, path } = entry;
    const isAdmin = path.startsWith('/sandbox/');
    if (isAdmin) refuseForeignPages(request, isLoopback);
    const effect = isAdmin ? undefined : faults.effectOn(method, path);
    if (effect?.latencyMs !== undefined) {
      entry.fault = `delayed by ${effect.latencyMs} ms`;
      await realClock.sleep(effect.latencyMs, stopping.signal).catch(() => {});
    }
    if (effect?.drop === 'before') {
      entry.fault = 'connection closed before processing';
      throw BROKEN;
    }
    // Read the body before rejecting the request, so that a keep-alive connection remains usable.
    const { body, wireBytes } = await readRequestBody(request);
    entry.requestBytes = wireBytes;
    if (!isAdmin) this.#outage(entry);
    if (effect?.status !== undefined) {
      entry.fault = `fault: status ${effect.status}`;
      return faultAnswer(effect.status, effect);
    }
    const found = this.#router.find(method === 'HEAD' ? 'GET' : method, path);
    if ('allowed' in found) {
      if (found.allowed.length === 0) throw refusal(404, `${path} was not found`);
      throw refusal(405, `${method} is not supported here`, undefined, { allow: found.allowed.join(', ') });
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
      const user = this.#stage.site.get('users', call.caller.user);
      entry.user = user?.name ?? user?.email;
      if (found.route.counted) this.#stage.usage.count(call.caller, request.socket.remoteAddress ?? '');
    }
    if (strict.has('json-type') && found.route.auth === 'bearer' && body.length > 0) mustBeJson(call);
    const extra = deprecationHeaders(path, clock.wallMs());
    const answer = await withHeaders(extra, () => found.route.handle(call));
    if (effect?.drop === 'after') {
      entry.fault = 'processed, response lost';
      entry.story = answer.story;
      throw BROKEN;
    }
    return { ...answer, headers: { ...extra, ...answer.headers } };
  }

  #outage(entry: RequestEntry): void {
    const { outage } = this.#stage;
    if (outage === undefined) return;
    entry.fault = 'platform unavailable';
    if (typeof outage === 'string') throw BROKEN;
    const headers: Record<string, string> = {};
    if (outage.retryAfter !== undefined) headers['retry-after'] = String(outage.retryAfter);
    throw refusal(outage.status, 'service unavailable', undefined, headers);
  }

  /** Authenticates a call (platform 5.5). Throws a 401 with a challenge according to RFC 6750 section 3. */
  #authenticate(call: Call): Caller {
    const { tokens, options, site } = this.#stage;
    const { apiKeyHeader = '' } = options;
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
        throw refusal(401, `the header ${apiKeyHeader} must be the client ID of the token`);
      }
    }
    return state;
  }

  #errorAnswer(error: unknown): Answer {
    if (error instanceof Refusal) {
      return { status: error.status, body: error.body, headers: error.headers };
    }
    // The client closed the connection before the end of its body.
    if ((error as { code?: unknown } | undefined)?.code === 'ECONNRESET')
      return { status: 400, body: errorBody(400, 'the body ended early') };
    this.#stage.log.error({ event: 'sandbox.request_failed', err: error }, 'failed to process a request');
    return { status: 500, body: errorBody(500, messageOf(error)) };
  }

  #write(response: ServerResponse, answer: Answer, { id, method }: RequestEntry): void {
    if (response.destroyed) return;
    const headers: Record<string, string | number> = {
      date: new Date(this.#stage.clock.wallMs()).toUTCString(),
      'x-request-id': String(id),
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
  }
}

/** Throws a 404 if the path belongs to the other host. */
function mustBeOn(host: Host, path: string): void {
  const isIdentity = path.startsWith(IDENTITY_PATHS);
  if (host === 'platform' && isIdentity) throw refusal(404, `${path} is on {web_url}, not on {base_url}`);
  if (host === 'identity' && !isIdentity) throw refusal(404, `${path} is on {base_url}, not on {web_url}`);
}

function mustBeJson({ headers }: Call): void {
  const type = (headers['content-type'] ?? '').split(';')[0]!.trim().toLowerCase();
  if (!/^application\/([\w.+-]+\+)?json$/.test(type)) throw refusal(415, 'the body must be application/json');
}

/** Returns the first message in an error body from the API or a token endpoint. */
function messageIn(body: unknown): string | undefined {
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

/**
 * Runs an endpoint. Adds the path's headers to error responses as well, so that rejected clients receive the sunset
 * date.
 */
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
  return { status, body: effect.body ?? errorBody(status, 'set by a fault'), headers };
}

/**
 * Rejects requests from pages of other origins and requests with unknown host names, because the admin API requires no
 * sign-in. Reads are allowed, because browsers do not expose their responses to other origins.
 */
function refuseForeignPages(request: IncomingMessage, isLoopback: boolean): void {
  const found = hostRefusal(request, { isLoopback, hosts: [], setting: '--listen' });
  const isRead = request.method === 'GET' || request.method === 'HEAD';
  if (found === undefined || (found.status === 403 && isRead)) return;
  throw refusal(found.status, 'requests of other origins are not allowed');
}
