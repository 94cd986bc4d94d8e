import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface Received {
  headers: IncomingHttpHeaders;
  raw: Buffer;
  // biome-ignore lint/suspicious/noExplicitAny: a foreign payload, looked into member by member
  event: any;
}

/** Webhook receiver on loopback that records deliveries and responds with `status`. */
export class Receiver {
  readonly received: Received[] = [];
  status = 204;
  /** Whether it never responds. */
  isMute = false;
  readonly #server: Server;

  constructor() {
    this.#server = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const raw = Buffer.concat(chunks);
        this.received.push({ headers: request.headers, raw, event: JSON.parse(raw.toString('utf8')) });
        if (!this.isMute) response.writeHead(this.status).end();
      });
    });
  }

  async start(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/webhook`;
  }

  types(): string[] {
    return this.received.map(({ event }) => event.event_type);
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
