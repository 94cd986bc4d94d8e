import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/errors.ts';
import { hostRule } from '../base/inbound/host-rule.ts';
import type { InboundKind, InboundServer } from '../base/inbound/inbound-server.ts';
import { encodingsOf, type PageFiles } from '../base/inbound/page-files.ts';
import { SharedToken } from '../base/inbound/shared-token.ts';
import { isLocalAddress, type ListenAddress } from '../base/listen.ts';
import type { Settings } from '../config/settings.ts';
import type { SessionReport } from '../platform/session/session.ts';
import { SharedAnswers } from './live/shared-answers.ts';
import type { Sight, Views } from './live/views.ts';

/** Code of a problem, and a sentence that may quote the platform or contain a path. */
interface HealthNote {
  code: string;
  text: string;
}

/** State reported by `/healthz` and `/readyz`. */
export interface Health {
  ok: boolean;
  /** Problems that affect health; empty if healthy. */
  problems: readonly HealthNote[];
  /**
   * Problems that a restart does not fix, such as failed sources and rejected files. These problems do not affect
   * health.
   */
  notes: readonly HealthNote[];
  /** Session state, grant, age and time until renewal. An unavailable platform does not affect health. */
  session: Pick<SessionReport, 'state' | 'usable' | 'failures' | 'last_error'>;
}

/** Returns a note for each sentence. */
export function healthNotes(code: string, texts: readonly string[]): HealthNote[] {
  return texts.map((text) => ({ code, text }));
}

/** Returns the content of `/healthz`. Requests without access to `/status` receive only states, codes and counts. */
export function healthReport({ ok, problems, notes, session }: Health, sight: Sight | Refusal) {
  const isFull = typeof sight === 'string';
  const shown = (found: readonly HealthNote[]) => found.map(({ code, text }) => (isFull ? text : code));
  const { state, usable, failures, last_error: error } = session;
  return {
    status: ok ? 'ok' : 'unavailable',
    problems: shown(problems),
    notes: shown(notes),
    session: isFull ? session : { state, usable, failures, last_error: error && { code: error.code } },
  };
}

export interface LiveRequest {
  /** Cursor from the previous response. */
  after: string | undefined;
  /** Name of a tag and its value: `FT-101/flow`. */
  of: string | undefined;
  sight: Sight;
}

interface LiveRoute {
  /** `all`: the route requires OPS_TOKEN. */
  sight: Sight;
  /** Returns data for JSON, or `undefined` if the subject does not exist. */
  answer(request: LiveRequest): unknown;
}

/** Data of the page: one route below `/live/` for each view. */
export type LiveRoutes = Readonly<Record<keyof Views, LiveRoute>>;

export interface OpsSources {
  health(): Health;
  readiness(): Health;
  /** Content of `tagferry status`. */
  status(): unknown;
  metrics(): Promise<{ contentType: string; text: string }>;
  page: PageFiles;
  live: LiveRoutes;
  clock: Clock;
}

/** Access settings, which a reload can change. Without OPS_TOKEN, status is available only on loopback and sockets. */
export type OpsAccess = Pick<Settings, 'opsToken' | 'opsHosts'>;

export const OPS_LISTENER = {
  name: 'ops',
  setting: 'OPS_LISTEN',
  code: 'ops.listen',
  limits: { connections: 64, headerBytes: 8_192, requestMs: 10_000, keepAliveMs: 5_000, stopMs: 1_000 },
} as const satisfies InboundKind;

const PATHS: ReadonlySet<string> = new Set(['/', '/healthz', '/readyz', '/status', '/metrics']);

/** Read-only server for health, readiness, status, metrics and the page. */
export class OpsServer {
  readonly #sources: OpsSources;
  readonly #server: InboundServer;
  readonly #answers: SharedAnswers;
  #access: OpsAccess;

  constructor(sources: OpsSources, server: InboundServer, access: OpsAccess) {
    this.#sources = sources;
    this.#server = server;
    this.#answers = new SharedAnswers(sources.clock);
    this.#access = access;
  }

  /** Applies reloaded values of OPS_TOKEN and OPS_HOSTS to subsequent requests. */
  setAccess(access: OpsAccess): void {
    this.#access = access;
  }

  get address(): string | undefined {
    return this.#server.address;
  }

  /** Starts responding to requests. */
  start(): void {
    this.#server.handle({
      hosts: () => hostRule(this.#server.configuredAddress, 'OPS_HOSTS', this.#access.opsHosts),
      serve: (request, response) =>
        this.#answer(request, response).catch(() => {
          if (!response.headersSent) response.writeHead(500);
          response.end();
        }),
    });
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { page, live } = this.#sources;
    const [path = '/', query] = (request.url ?? '/').split('?');
    const file = path.startsWith('/page/') ? path.slice('/page/'.length) : undefined;
    const view = path.startsWith('/live/') ? path.slice('/live/'.length) : '';
    const isView = isViewOf(live, view);
    if (file === undefined && !isView && !PATHS.has(path)) return send(response, 404, { error: 'not found' });
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      response.setHeader('Allow', 'GET, HEAD');
      return send(response, 405, { error: 'read-only' });
    }
    if (file !== undefined) {
      if (!(await page.answerFile(request, response, file))) send(response, 404, { error: 'not found' });
      return;
    }
    if (path === '/metrics') {
      const { contentType, text } = await this.#sources.metrics();
      response.writeHead(200, { 'Content-Type': contentType });
      response.end(text);
      return;
    }
    const sight = sightOf(request, this.#access, this.#server.configuredAddress);
    if (path === '/healthz' || path === '/readyz') {
      const health = path === '/healthz' ? this.#sources.health() : this.#sources.readiness();
      return send(response, health.ok ? 200 : 503, healthReport(health, sight));
    }
    // The page contains no plant data. If sent with the status of a rejection, the page shows the token form.
    if (path === '/') return page.answerPage(request, response, typeof sight === 'string' ? 200 : sight.status);
    if (typeof sight !== 'string') return this.#refuse(response, sight, path);
    if (isView) await this.#answerView(request, response, view, new URLSearchParams(query), sight);
    else send(response, 200, await this.#sources.status());
  }

  async #answerView(
    request: IncomingMessage,
    response: ServerResponse,
    view: keyof LiveRoutes,
    query: URLSearchParams,
    sight: Sight,
  ): Promise<void> {
    const { sight: required, answer: compute } = this.#sources.live[view];
    if (required === 'all' && sight !== 'all') return send(response, 403, { error: 'this view requires OPS_TOKEN' });
    const [after, of] = [query.get('after') ?? undefined, query.get('of') ?? undefined];
    try {
      const key = JSON.stringify([view, sight, after, of]);
      const answer = await this.#answers.get(key, () => compute({ after, of, sight }));
      if (answer === undefined) return send(response, 404, { error: 'not found' });
      const isGzip = encodingsOf(request.headers['accept-encoding']).has('gzip');
      const body = isGzip ? answer.gzip : answer.plain;
      response.writeHead(200, {
        'Content-Type': 'application/json',
        'Content-Length': body.length,
        ...(isGzip ? { 'Content-Encoding': 'gzip' } : {}),
        'Cache-Control': 'no-store',
        Vary: 'Accept-Encoding',
      });
      response.end(body);
    } catch (error) {
      send(response, 503, { error: messageOf(error) });
    }
  }

  #refuse(response: ServerResponse, { status, error, hint }: Refusal, path: string): void {
    // With `Basic`, a browser would open a password dialog over the page's form.
    const basic = path === '/status' ? ['Basic realm="tagferry", charset="UTF-8"'] : [];
    if (status === 401) response.setHeader('WWW-Authenticate', ['Bearer realm="tagferry"', ...basic]);
    send(response, status, { error, hint });
  }
}

function isViewOf(routes: LiveRoutes, name: string): name is keyof LiveRoutes {
  return Object.hasOwn(routes, name);
}

/** Returns the data that the request may access, or the rejection. */
export function sightOf(
  request: IncomingMessage,
  { opsToken }: Pick<OpsAccess, 'opsToken'>,
  address: ListenAddress,
): Sight | Refusal {
  if (opsToken === undefined) return isLocalAddress(address) ? 'status' : NO_TOKEN_SET;
  return new SharedToken(opsToken).isShown(request.headers.authorization, null) ? 'all' : NO_TOKEN_SHOWN;
}

interface Refusal {
  status: 401 | 403;
  error: string;
  hint: string;
}

const NO_TOKEN_SET: Refusal = {
  status: 403,
  error: 'available only on loopback while OPS_TOKEN is empty',
  hint: 'Set OPS_TOKEN in agent.env, reload, and send the token as Authorization: Bearer, or as the password in a browser.',
};
const NO_TOKEN_SHOWN: Refusal = {
  status: 401,
  error: 'missing or invalid token',
  hint: 'Send the header Authorization: Bearer with OPS_TOKEN.',
};

function send(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'Content-Type': 'application/json', 'Cache-Control': 'no-store' });
  response.end(`${JSON.stringify(body)}\n`);
}
