import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { type ListenAddress, listen, listeningAt } from '../listen.ts';
import { createServer } from '../node-http.ts';

/** What `/healthz` and `/readyz` say. */
export interface Health {
  ok: boolean;
  /** Why not, one sentence each; empty where all is well. */
  problems: string[];
  /** The session's state, grant, age and time to renewal: a platform that is away is no fault of the agent's health. */
  session: unknown;
}

export interface OpsSources {
  health(): Health;
  readiness(): Health;
  /** What `tagferry status` shows, too. */
  status(): unknown;
  metrics(): Promise<{ contentType: string; text: string }>;
}

/** Read-only: health, readiness, status and metrics for those who watch. */
export class OpsServer {
  readonly #sources: OpsSources;
  readonly #server: Server;

  constructor(sources: OpsSources) {
    this.#sources = sources;
    this.#server = createServer(
      { maxHeaderSize: 8192, headersTimeout: 10_000, requestTimeout: 10_000 },
      (request, response) => {
        this.#answer(request, response).catch(() => {
          if (!response.headersSent) response.writeHead(500);
          response.end();
        });
      },
    );
    this.#server.maxConnections = 64;
  }

  get address(): string | undefined {
    return listeningAt(this.#server);
  }

  async start(address: ListenAddress): Promise<void> {
    await listen(this.#server, address, { setting: 'OPS_LISTEN', code: 'ops.listen', retries: 10 });
  }

  async stop(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = (request.url ?? '/').split('?')[0];
    if (!['/healthz', '/readyz', '/status', '/metrics'].includes(path!))
      return send(response, 404, { error: 'not found' });
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      response.setHeader('Allow', 'GET, HEAD');
      return send(response, 405, { error: 'read-only' });
    }
    if (path === '/metrics') {
      const { contentType, text } = await this.#sources.metrics();
      response.writeHead(200, { 'Content-Type': contentType });
      response.end(text);
      return;
    }
    if (path === '/status') return send(response, 200, await this.#sources.status());
    const health = path === '/healthz' ? this.#sources.health() : this.#sources.readiness();
    const { ok, problems, session } = health;
    send(response, ok ? 200 : 503, { status: ok ? 'ok' : 'unavailable', problems, session });
  }
}

function send(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'Content-Type': 'application/json', 'Cache-Control': 'no-store' });
  response.end(`${JSON.stringify(body)}\n`);
}
