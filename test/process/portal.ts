import { once } from 'node:events';
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { freePort } from '../../src/base/port-claim.ts';
import { requestBody } from '../doubles/request-body.ts';

/** What stands between the gateway and the platform: lets everything pass, or answers in the platform's place. */
export class Portal {
  readonly #server = createServer((request, response) => this.#serve(request, response));
  readonly #sockets = new Set<Socket>();
  readonly #platform: URL;
  /** `undefined`: let it pass. Else it writes what it likes, the request's body read before. */
  answer: ((request: IncomingMessage, response: ServerResponse, body: string) => void) | undefined;
  /** Response to posts of values whose body is incomplete when its first part has arrived; the connection ends with it. */
  early: string | undefined;
  /** What becomes of the platform's own answer; what was asked is done by then. */
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

  /** Listens, at the same port each time. */
  async start(): Promise<void> {
    this.#port ||= await freePort();
    this.#server.listen(this.#port, '127.0.0.1');
    await once(this.#server, 'listening');
  }

  /** Nobody listens there any more. */
  async stop(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.cut();
    await closed;
  }

  /** Breaks what connections there are. */
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

  /** A post that is complete by now is the platform's: whoever responds has read it. */
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
