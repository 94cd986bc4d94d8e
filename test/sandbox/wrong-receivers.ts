import { createHmac } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** Receivers as one meets them, each wrong in its own way: what an exam is for. */
export type Receive = (request: IncomingMessage, body: Buffer, secret: string) => number;

const hmac = (algorithm: string, body: string | Buffer, secret: string) =>
  `${algorithm}=${createHmac(algorithm, secret).update(body).digest('hex')}`;

/** Does not look at signatures: whatever comes is confirmed. */
export const trusting: Receive = () => 204;

/** Signs what it has parsed and written anew, as every example does that forgets the raw body; and dies of what is no JSON. */
export const rewriting: Receive = (request, body, secret) => {
  if (request.method !== 'POST') return 405;
  const given = request.headers['x-hub-signature-sha256'];
  if (given === undefined) return 401;
  return given === hmac('sha256', JSON.stringify(JSON.parse(body.toString('utf8'))), secret) ? 200 : 401;
};

/** Knows the deprecated header alone, looks for it in one spelling, and takes nothing that it took before. */
export function outdated(): Receive {
  const seen = new Set<string>();
  return (request, body, secret) => {
    if (request.method !== 'POST') return 405;
    const at = request.rawHeaders.indexOf('x-hub-signature');
    if (at < 0 || request.rawHeaders[at + 1] !== hmac('sha1', body, secret)) return 403;
    const text = body.toString('utf8');
    if (seen.has(text)) return 409;
    seen.add(text);
    return 200;
  };
}

export class WrongReceiver {
  readonly #server: Server;
  readonly secret = 'exam-secret';

  constructor(receive: Receive) {
    this.#server = createServer((request: IncomingMessage, response: ServerResponse) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        try {
          response.writeHead(receive(request, Buffer.concat(chunks), this.secret)).end();
        } catch {
          response.writeHead(500).end();
        }
      });
      request.on('error', () => {});
    });
  }

  async start(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/hook`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
