import { once } from 'node:events';
import { createServer, request as httpRequest, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';

/** Request that arrived at the proxy, with the response to it. */
export interface Exchange {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  /** 0 until the response is complete, or if the connection ended without a response. */
  status: number;
  response: string;
}

/** HTTP proxy between the agent and the platform that records requests and responses, and can respond by itself. */
export class HttpProxy {
  readonly exchanges: Exchange[] = [];
  readonly #server = createServer((request, response) => {
    const { method = '', url: path = '', headers } = request;
    const early = this.rejectsEarly?.(path, headers);
    if (early !== undefined) {
      this.exchanges.push({ method, path, headers, body: '', status: early, response: '' });
      response.writeHead(early, { 'content-length': 0 }).end();
      return;
    }
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const bytes = Buffer.concat(chunks);
      const body = bytes.toString();
      const exchange = { method, path, headers, body, status: 0, response: '' };
      this.exchanges.push(exchange);
      if (this.answer?.(exchange, response) !== true) this.#forward(exchange, bytes, response);
    });
  });
  readonly #sockets = new Set<Socket>();
  readonly #platform: URL;
  /** Writes a response and returns true, or returns false to forward the request. */
  answer: ((exchange: Exchange, response: ServerResponse) => boolean) | undefined;
  /** Called when the platform has responded. The response is forwarded when the promise resolves. */
  hold: ((exchange: Exchange) => Promise<void>) | undefined;

  /** Returns the status of a response that is sent before the body of the request is read. */
  rejectsEarly: ((path: string, headers: IncomingHttpHeaders) => number | undefined) | undefined;
  /** Returns whether the connection is reset after the complete response. */
  resets: ((exchange: Exchange) => boolean) | undefined;

  private constructor(platform: string) {
    this.#platform = new URL(platform);
    this.#server.on('connection', (socket) => {
      this.#sockets.add(socket);
      socket.on('error', () => {}).on('close', () => this.#sockets.delete(socket));
    });
  }

  static async start(platform: string): Promise<HttpProxy> {
    const proxy = new HttpProxy(platform);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  #forward(exchange: Exchange, bytes: Buffer, response: ServerResponse): void {
    const { hostname, port } = this.#platform;
    const { method, path, headers } = exchange;
    const onward = httpRequest({ hostname, port, method, path, headers, agent: false }, (from) => {
      from.setEncoding('utf8').on('data', (text: string) => {
        exchange.response += text;
      });
      // Recorded before it is sent, so that a client never knows more than the record.
      from.on('end', async () => {
        exchange.status = from.statusCode ?? 0;
        await this.hold?.(exchange);
        response.writeHead(from.statusCode ?? 502, from.rawHeaders).end(exchange.response, () => {
          if (this.resets?.(exchange)) response.socket?.resetAndDestroy();
        });
      });
      from.on('error', () => response.destroy());
    });
    onward.on('error', () => response.destroy());
    onward.end(bytes);
  }
}
