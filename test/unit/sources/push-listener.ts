import { once } from 'node:events';
import { type Agent, request as httpRequest } from 'node:http';
import { connect, type Socket } from 'node:net';
import type { InboundServer } from '../../../src/base/inbound/inbound-server.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import type { Tag } from '../../../src/config/tags.ts';
import { HttpPush, PUSH_LISTENER, type PushRules } from '../../../src/sources/push/http-push.ts';
import { type InboundPlace, inboundServer, portOf } from '../doubles/inbound-server.ts';
import { type IntakeBench, makeIntakeBench, storeFault } from './sink-double.ts';

export const JSON_TYPE = { 'Content-Type': 'application/json' };
export const NDJSON_TYPE = { 'Content-Type': 'application/x-ndjson' };

interface Problem {
  index: number;
  field: string;
  problem: string;
}

export interface PushResponse {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  text: string;
  body: { error?: string; problems?: Problem[]; [member: string]: unknown };
}

/** Ingest listener with a store in memory. */
export class PushListener {
  readonly bench: IntakeBench;
  push!: HttpPush;
  server!: InboundServer;
  port = 0;
  readonly #sockets: Socket[] = [];

  constructor(tags?: ReadonlyMap<string, Tag>) {
    this.bench = makeIntakeBench(tags);
  }

  async listen(
    rules: Partial<PushRules> = {},
    { bytesUnderWay, ...place }: InboundPlace & { bytesUnderWay?: number } = {},
  ): Promise<void> {
    const { intake, clock } = this.bench;
    this.server = inboundServer(PUSH_LISTENER, { clock, ...place });
    const { server } = this;
    this.push = new HttpPush({
      server,
      rules: { token: undefined, ...rules },
      intake,
      clock,
      log: place.log ?? silentLogger(),
      ...(bytesUnderWay === undefined ? {} : { bytesUnderWay }),
    });
    await server.start();
    this.push.start();
    this.port = portOf(server);
  }

  async stop(): Promise<void> {
    await this.push.stop();
    await this.server.stop();
  }

  async dispose(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.bench.sink.fault ??= storeFault('store.closed');
    this.bench.sink.commit();
    await this.stop();
  }

  get stored(): number[] {
    return this.bench.sink.stored.map(({ value }) => value);
  }

  /** Address and value of everything that is stored. */
  get addresses(): string[] {
    return this.bench.sink.stored.map(({ address, value }) => `${address} ${value}`);
  }

  send(
    path: string,
    body?: string | Uint8Array,
    headers: Record<string, string> = {},
    { method = 'POST', agent, socketPath }: { method?: string; agent?: Agent; socketPath?: string } = {},
  ): Promise<PushResponse> {
    return new Promise((resolve, reject) => {
      const where = socketPath === undefined ? { host: '127.0.0.1', port: this.port } : { socketPath };
      const request = httpRequest({ ...where, path, method, headers, agent: agent ?? false }, (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk) => chunks.push(chunk));
        response.on('end', () => {
          const text = Buffer.concat(chunks).toString();
          const isJson = response.headers['content-type']?.startsWith('application/json');
          const content = isJson ? JSON.parse(text) : {};
          resolve({ status: response.statusCode!, headers: response.headers, text, body: content });
        });
      });
      request.on('error', reject);
      request.end(body);
    });
  }

  values(values: unknown, headers: Record<string, string> = JSON_TYPE, query = ''): Promise<PushResponse> {
    return this.send(`/v1/values${query}`, JSON.stringify({ values }), headers);
  }

  lines(text: string, query = ''): Promise<PushResponse> {
    return this.send(`/api/v2/write${query}`, text);
  }

  /** Opens a connection for raw bytes. */
  async connect(): Promise<{ socket: Socket; received: () => string; closed: () => boolean }> {
    const socket = connect(this.port, '127.0.0.1');
    this.#sockets.push(socket);
    let text = '';
    let isClosed = false;
    socket.on('data', (chunk) => {
      text += chunk;
    });
    socket.on('error', () => {});
    socket.on('close', () => {
      isClosed = true;
    });
    await once(socket, 'connect');
    return { socket, received: () => text, closed: () => isClosed };
  }
}

/** Head of a request whose body is JSON. */
export const headOf = (length: number, more = '') =>
  `POST /v1/values HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n${more}Content-Length: ${length}\r\n\r\n`;
