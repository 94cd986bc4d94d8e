import { once } from 'node:events';
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { freePort } from '../../../src/base/port-claim.ts';
import { requestBody } from '../../unit/doubles/request-body.ts';

/** Proxy between gateway and platform that forwards everything or responds instead of the platform. */
export class Portal {
  readonly #server = createServer((request, response) => this.#serve(request, response));
  readonly #sockets = new Set<Socket>();
  readonly #platform: URL;
  /** `undefined`: forward. Otherwise it writes any response after reading the request body. */
  answer: ((request: IncomingMessage, response: ServerResponse, body: string) => void) | undefined;
  /** Response to a post of values whose body is incomplete after its first part; the connection is then closed. */
  early: string | undefined;
  /** Handles the platform's response, after the request has been processed. */
  spoil: ((from: IncomingMessage, request: IncomingMessage, response: ServerResponse) => void) | undefined;
  #port = 0;

  constructor(platform: string) {
    this.#platform = new URL(platform);
    this.#server.on('connection', (socket) => {
      this.#sockets.add(socket);
      socket.on('error', () => {}).on('close', () => this.#sockets.delete(socket));
    });
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** Listens on the same port every time. */
  async start(): Promise<void> {
    this.#port ||= await freePort();
    this.#server.listen(this.#port, '127.0.0.1');
    await once(this.#server, 'listening');
  }

  /** Stops listening. */
  async stop(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.cut();
    await closed;
  }

  /** Resets all connections. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    if (this.early !== undefined && request.method === 'POST' && request.url?.endsWith('/values')) {
      request.once('data', (first: Buffer) => this.#respondEarly(first, request.pause(), response));
      return;
    }
    const { answer } = this;
    if (answer) return void requestBody(request).then((body) => body && answer(request, response, body.toString()));
    this.#forward(request, response);
  }

  /** A complete post has been forwarded to the platform before the response. */
  #respondEarly(first: Buffer, request: IncomingMessage, response: ServerResponse): void {
    const isComplete = first.length >= Number(request.headers['content-length']);
    if (this.early === undefined || isComplete) this.#forward(request, response, first);
    else request.socket.write(this.early, () => request.socket.destroy());
  }

  #forward(request: IncomingMessage, response: ServerResponse, first?: Buffer): void {
    const { hostname, port } = this.#platform;
    const { method, url, headers } = request;
    const onward = httpRequest({ hostname, port, method, path: url, headers, agent: false }, (from) => {
      if (this.spoil) return this.spoil(from.resume(), request, response);
      response.writeHead(from.statusCode ?? 502, from.rawHeaders);
      from.pipe(response);
    });
    onward.on('error', () => response.destroy());
    if (first) onward.write(first);
    request.pipe(onward);
  }
}
