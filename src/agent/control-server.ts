import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { messageOf, TagferryError, UsageError } from '../errors.ts';
import { listen } from '../listen.ts';
import { createServer } from '../node-http.ts';

/** One operation that a verb can ask of the running daemon. `write` sends pieces of a long answer as they come. */
export type ControlHandler = (
  params: Record<string, unknown>,
  call: { signal: AbortSignal; write(chunk: string): Promise<void> },
) => Promise<unknown>;

export type ControlRoutes = Readonly<Record<string, ControlHandler>>;

const MOST_BODY_BYTES = 64 * 1024 * 1024;

/**
 * The control socket: JSON over HTTP on a Unix socket that only the service's user and group may open. Verbs let the
 * daemon answer through it, so that an operator's shell needs neither its environment nor its credentials.
 */
export class ControlServer {
  readonly #routes: ControlRoutes;
  readonly #server: Server;
  #path: string | undefined;

  constructor(routes: ControlRoutes) {
    this.#routes = routes;
    this.#server = createServer((request, response) => {
      this.#answer(request, response).catch((error: unknown) => fail(response, error));
    });
  }

  async start(path: string): Promise<void> {
    this.#path = path;
    await listen(this.#server, { path }, { setting: 'STATE_DIR', code: 'control.listen' });
  }

  get path(): string | undefined {
    return this.#path;
  }

  async stop(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const route = this.#routes[(request.url ?? '/').slice(1)];
    if (!route || request.method !== 'POST')
      throw new UsageError(`the daemon does not know ${request.method} ${request.url}`);
    const params = await readParams(request);
    const gone = new AbortController();
    response.on('close', () => gone.abort(new UsageError('the caller is gone')));
    const write = (chunk: string) =>
      new Promise<void>((resolve, reject) => {
        if (!response.headersSent) response.writeHead(200, { 'Content-Type': 'application/x-ndjson' });
        if (gone.signal.aborted) return reject(gone.signal.reason);
        if (response.write(chunk)) return resolve();
        // Whichever comes first: the caller reads on, or it is gone.
        const done = () => {
          response.off('drain', done);
          gone.signal.removeEventListener('abort', done);
          if (gone.signal.aborted) reject(gone.signal.reason);
          else resolve();
        };
        response.once('drain', done);
        gone.signal.addEventListener('abort', done, { once: true });
      });
    const result = await route(params, { signal: gone.signal, write });
    if (!response.headersSent) response.writeHead(200, { 'Content-Type': 'application/json' });
    response.end(result === undefined ? '' : `${JSON.stringify(result)}\n`);
  }
}

async function readParams(request: IncomingMessage): Promise<Record<string, unknown>> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MOST_BODY_BYTES) throw new UsageError('the request is too large');
    chunks.push(chunk);
  }
  const text = Buffer.concat(chunks).toString('utf8');
  if (text === '') return {};
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    throw new UsageError('the request is no JSON');
  }
}

function fail(response: ServerResponse, error: unknown): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const ours = error instanceof TagferryError ? error : undefined;
  const body = { message: messageOf(error), code: ours?.code ?? 'failed', hint: ours?.hint };
  response.writeHead(ours?.code === 'usage' ? 400 : 500, { 'Content-Type': 'application/json' });
  response.end(JSON.stringify(body));
}
