import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { silentLogger } from '../../../src/base/logger.ts';
import { Redactor } from '../../../src/base/redactor.ts';
import { PlatformClient } from '../../../src/platform/client.ts';
import { createDispatcher } from '../../../src/platform/dispatcher.ts';
import { HttpBoundary } from '../../../src/platform/http-boundary.ts';
import type { ManualClock } from '../doubles/manual-clock.ts';

/** Behaviour of the server: `head` is called after the headers of a request, `whole` after its body. */
export interface Manners {
  head?(socket: Socket, contentLength: number): void;
  whole?(socket: Socket): void;
}

export const NO_CONTENT = 'HTTP/1.1 204 No Content\r\n\r\n';
export const WELL_BEHAVED: Manners = { whole: (socket) => void socket.write(NO_CONTENT) };

/** TCP server that can send any bytes, and the real client. */
export class HostilePlatform {
  manners: Manners = WELL_BEHAVED;
  /** Numbers of the values in each complete body, in order. */
  readonly bodies: number[][] = [];
  readonly heads: string[] = [];
  connections = 0;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #boundary: HttpBoundary;
  client!: PlatformClient;
  readonly #clock: ManualClock;

  constructor(clock: ManualClock) {
    this.#clock = clock;
    this.#server = createServer((socket) => this.#serve(socket));
    this.#boundary = new HttpBoundary({
      redactor: new Redactor(),
      sockets: createDispatcher({ connections: 4 }),
      clock,
      userAgent: 'tagferry/test',
    });
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async open(): Promise<this> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    const lease = { accessToken: 'secret-token', responded: () => undefined, release: () => {} };
    this.client = new PlatformClient({
      boundary: this.#boundary,
      baseUrl: `http://127.0.0.1:${this.port}`,
      tokens: { lease: async () => lease },
      clock: this.#clock,
      log: silentLogger(),
    });
    return this;
  }

  async close(): Promise<void> {
    await this.#boundary.close();
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #serve(socket: Socket): void {
    this.connections++;
    this.#sockets.add(socket);
    socket.on('error', () => {}).on('close', () => this.#sockets.delete(socket));
    let read = Buffer.alloc(0);
    let contentLength: number | undefined;
    socket.on('data', (chunk) => {
      read = Buffer.concat([read, chunk]);
      for (;;) {
        if (contentLength === undefined) {
          const end = read.indexOf('\r\n\r\n');
          if (end < 0) return;
          const head = read.subarray(0, end).toString('latin1');
          this.heads.push(head);
          contentLength = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
          read = read.subarray(end + 4);
          this.manners.head?.(socket, contentLength);
        }
        if (read.length < contentLength) return;
        const body = read.subarray(0, contentLength);
        read = read.subarray(contentLength);
        contentLength = undefined;
        this.#note(body.toString('utf8'));
        this.manners.whole?.(socket);
      }
    });
  }

  #note(body: string): void {
    const { values } = JSON.parse(body) as { values: { data: { value: number }[] }[] };
    this.bodies.push(values.flatMap(({ data }) => data.map(({ value }) => value)));
  }
}
