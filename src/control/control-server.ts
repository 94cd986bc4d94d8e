import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../base/clock.ts';
import { messageOf, TagferryError, UsageError } from '../base/errors.ts';
import { BodyError, readBody } from '../base/inbound/body.ts';
import { InboundServer } from '../base/inbound/inbound-server.ts';
import { MemoryBudget } from '../base/inbound/memory-budget.ts';
import type { Logger } from '../base/logger.ts';
import { CONTROL_SERVER, FAILURE_TRAILER } from '../base/node-http.ts';
import { pacedWrite } from '../base/paced-write.ts';

/** An operation of the running agent. `write` streams parts of a long response. */
export type ControlHandler = (
  params: Record<string, unknown>,
  call: { signal: AbortSignal; write(chunk: string): Promise<void> },
) => Promise<unknown>;

export type ControlRoutes = Readonly<Record<string, ControlHandler>>;

const STREAM_HEADERS = { 'Content-Type': 'application/x-ndjson', Trailer: FAILURE_TRAILER };

const MAX_BODY_BYTES = 64 * 1024 * 1024;
/** Responses have no timeout, because a pager can pause them for hours. */
const LIMITS = {
  connections: 64,
  requestMs: 600_000,
  unreadMs: Number.POSITIVE_INFINITY,
  keepAliveMs: 5_000,
  listenRetries: 0,
  stopMs: 1_000,
};

export interface ControlServerOptions {
  /** Path of the socket. */
  path: string;
  clock: Clock;
  log: Logger;
}

/**
 * Control socket of the agent: JSON over HTTP on a Unix socket for the user and group of the service. Commands use this
 * socket, so that a shell requires neither the agent's environment nor its credentials.
 */
export class ControlServer {
  readonly #routes: ControlRoutes;
  readonly #server: InboundServer;
  readonly #memory: MemoryBudget;
  readonly #stopping = new AbortController();
  readonly path: string;

  constructor(routes: ControlRoutes, { path, clock, log }: ControlServerOptions) {
    this.#routes = routes;
    this.path = path;
    this.#server = new InboundServer({
      name: 'control',
      address: { path },
      setting: 'STATE_DIR',
      code: 'control.listen',
      limits: LIMITS,
      clock,
      log,
      serve: (request, response) => this.#respond(request, response).catch((error: unknown) => fail(response, error)),
    });
    this.#memory = new MemoryBudget({ maxBytes: 2 * MAX_BODY_BYTES, bodies: this.#server.bodies });
  }

  start(): Promise<void> {
    return this.#server.start();
  }

  /** Ends the calls in progress with an error, then closes the socket. */
  async stop(): Promise<void> {
    this.#stopping.abort(new TagferryError('the agent is stopping', { code: 'agent.stopping' }));
    await this.#server.suspend();
    await this.#server.stop();
  }

  async #respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    response.setHeader('Server', CONTROL_SERVER);
    const route = this.#routes[(request.url ?? '/').slice(1)];
    if (!route || request.method !== 'POST')
      throw new UsageError(`the agent does not support ${request.method} ${request.url}`);
    const params = await this.#readParams(request);
    const disconnected = new AbortController();
    response.on('close', () => disconnected.abort(new UsageError('the caller disconnected')));
    const signal = AbortSignal.any([disconnected.signal, this.#stopping.signal]);
    const write = async (chunk: string) => {
      if (!response.headersSent) response.writeHead(200, STREAM_HEADERS);
      signal.throwIfAborted();
      await pacedWrite(response, chunk);
      signal.throwIfAborted();
    };
    const result = await route(params, { signal, write });
    if (!response.headersSent) response.writeHead(200, { 'Content-Type': 'application/json' });
    response.end(result === undefined ? '' : `${JSON.stringify(result)}\n`);
  }

  async #readParams(request: IncomingMessage): Promise<Record<string, unknown>> {
    const memory = this.#memory.reserve();
    try {
      const text = (await readBody(request, MAX_BODY_BYTES, memory)).toString('utf8');
      return text === '' ? {} : (JSON.parse(text) as Record<string, unknown>);
    } catch (error) {
      if (!(error instanceof BodyError)) throw new UsageError('the request is not valid JSON');
      throw error.fault === 'too-large' ? new UsageError('the request is too large') : error;
    } finally {
      memory.set(0);
    }
  }
}

function fail(response: ServerResponse, error: unknown): void {
  const { code, hint } = error instanceof TagferryError ? error : { code: 'failed', hint: undefined };
  const body = { message: messageOf(error), code, hint };
  if (response.headersSent) {
    response.addTrailers({ [FAILURE_TRAILER]: encodeURIComponent(JSON.stringify(body)) });
    response.end();
    return;
  }
  response.writeHead(code === 'usage' ? 400 : 500, { 'Content-Type': 'application/json' });
  response.end(JSON.stringify(body));
}
