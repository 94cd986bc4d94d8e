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
    const { answer } = this;
    if (answer) return void requestBody(request).then((body) => body && answer(request, response, body.toString()));
    this.#forward(request, response);
  }

  #forward(request: IncomingMessage, response: ServerResponse): void {
    const { hostname, port } = this.#platform;
    const { method, url, headers } = request;
    const onward = httpRequest({ hostname, port, method, path: url, headers, agent: false }, (from) => {
      if (this.spoil) return this.spoil(from.resume(), request, response);
      response.writeHead(from.statusCode ?? 502, from.rawHeaders);
      from.pipe(response);
    });
    onward.on('error', () => response.destroy());
    request.pipe(onward);
  }
}
