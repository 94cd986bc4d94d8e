/**
 * Inbound HTTP of every server of the agent: connections within bounds that no stranger can fill for others, time for
 * heads, bodies and answers, TLS with certificates that are renewed in place, and a stop that lets answers under way go out. What
 * a server does with a request is its own: this hands it over when its head has come.
 *
 * States: made, listening, stopping, stopped. Nothing of it outlives a crash.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Server as TlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { pemEndsMs } from '../certificates.ts';
import type { Clock } from '../clock.ts';
import { codeOf, messageOf } from '../errors.ts';
import { isReplaceable, type ListenAddress, listen, listeningAt } from '../listen.ts';
import type { Logger } from '../logger.ts';
import { createServer } from '../node-http.ts';
import { Repeats } from '../repeats.ts';
import { answerEarly } from './body.ts';
import { type CertificateFiles, type CertificatePair, readCertificate, watchCertificate } from './certificate.ts';
import { ConnectionTable, closeAfter } from './connection-table.ts';
import { boundsFor } from './connections.ts';
import { type HostRule, hostRefusal } from './host-rule.ts';
import { SocketFile } from './socket-file.ts';

export interface InboundLimits {
  connections: number;
  headerBytes: number;
  /** For a head to come whole, about, and for a TLS handshake. */
  headerMs: number;
  /** For a body to come whole; streams have no such bound. */
  requestMs: number;
  /** For a peer to read some of its answer; who reads nothing for so long will not. */
  unreadMs: number;
  keepAliveMs: number;
  /** How often an address in use is tried again, a second apart: a predecessor may be on its way out. */
  listenRetries: number;
  /** How long `stop` waits for answers under way before it cuts connections. */
  stopMs: number;
}

export const INBOUND_LIMITS: InboundLimits = {
  connections: 256,
  headerBytes: 16 * 1024,
  headerMs: 10_000,
  requestMs: 30_000,
  unreadMs: 30_000,
  keepAliveMs: 65_000,
  listenRetries: 10,
  stopMs: 5_000,
};

/** `asksFirst`: the client waits for leave to send its body (`response.writeContinue()`). */
type Serve = (request: IncomingMessage, response: ServerResponse, asksFirst: boolean) => void;

export interface InboundOptions {
  /** As log lines call it: `ingest`, `webhook`, `ops`, `control`. */
  name: string;
  address: ListenAddress;
  /** The key that a person changes when it cannot listen, and the code of that error. */
  setting: string;
  code: string;
  tls?: CertificateFiles | undefined;
  limits?: Partial<InboundLimits>;
  clock: Clock;
  log: Logger;
  serve: Serve;
  /** By which names it may be called now, and the setting that adds some; without it every name is good. */
  hosts?: () => HostRule | undefined;
  /** Bytes that are no HTTP, a head too large or too late. */
  malformed?: (code: string | undefined) => void;
}

export class InboundServer {
  readonly #options: InboundOptions;
  readonly #limits: InboundLimits;
  readonly #table: ConnectionTable;
  readonly #repeats = new Repeats();
  readonly #stopping = new AbortController();
  #server: Server | undefined;
  /** `undefined` for a TCP address. */
  #socketFile: SocketFile | undefined;
  #stopped: Promise<void> | undefined;

  constructor(options: InboundOptions) {
    this.#options = options;
    this.#limits = { ...INBOUND_LIMITS, ...options.limits };
    const { connections, requestMs, unreadMs } = this.#limits;
    this.#table = new ConnectionTable({
      connections,
      requestMs,
      unreadMs,
      clock: options.clock,
      ended: (why) => {
        const count = this.#note(`ended ${why}`);
        if (count === undefined) return;
        options.log.warn(
          { event: 'listener.connection_ended', listener: options.name, why, count },
          'a connection that sent too slowly, or nothing, was ended',
        );
      },
    });
  }

  /** Listens. Throws a `TagferryError` with the code that was asked for, or `listener.certificate`. */
  async start(): Promise<void> {
    const { address, setting, code } = this.#options;
    const { listenRetries: retries } = this.#limits;
    const server = await this.#make();
    // The table makes place by itself; this many may wait for it while it does.
    server.maxConnections = this.#limits.connections * 2;
    server.on('drop', () => this.#tooMany());
    server.on('connection', (socket: Socket) => this.#admit(socket));
    server.on('secureConnection', (stream: Socket) => this.#table.secured(stream));
    server.on('request', (request, response) => this.#serve(request, response, false));
    server.on('checkContinue', (request, response) => this.#serve(request, response, true));
    // Anything else that a client expects is not met; without a listener Node would answer by itself.
    server.on('clientError', (error, socket) => this.#refuseMalformed(error, socket as Socket));
    // Before the handshake there is nobody to answer: what is written waits for it, and the connection with it, for ever.
    server.on('tlsClientError', (_, socket: Socket) => socket.destroy());
    await listen(server, address, { setting, code, retries });
    server.on('error', (error) => this.#failed(error));
    this.#server = server;
    if ('path' in address) this.#socketFile = this.#watchSocketFile(server, address.path);
    if (this.#stopped) await this.#close();
  }

  /** Where it listens, as settings write it; `undefined` where it does not. */
  get address(): string | undefined {
    return this.#server && listeningAt(this.#server);
  }

  /** The address as the system tells it. */
  get socketAddress(): AddressInfo | string | null {
    return this.#server?.address() ?? null;
  }

  /** Fires when `stop` begins. */
  get stopping(): AbortSignal {
    return this.#stopping.signal;
  }

  get isStopping(): boolean {
    return this.#stopping.signal.aborted;
  }

  /** Open connections. */
  get connections(): number {
    return this.#table.size;
  }

  /** Bodies that may be under way at once. */
  get bodies(): number {
    return boundsFor(this.#limits.connections).reading;
  }

  /** The body of this request may go on for ever. `false` where too many do. */
  streams(request: IncomingMessage): boolean {
    return this.#table.streams(request);
  }

  /** Ends the largest body under way that comes slowly. Gives whether there was one. */
  freeMemory(): boolean {
    return this.#table.freeMemory();
  }

  /** Takes no new connections, lets answers under way go out, closes. */
  stop(): Promise<void> {
    this.#stopped ??= this.#close();
    return this.#stopped;
  }

  async #close(): Promise<void> {
    this.#stopping.abort();
    this.#table.stop();
    await this.#socketFile?.close();
    const server = this.#server;
    if (!server?.listening) return;
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    this.#table.endQuiet();
    const cancel = this.#options.clock.after(this.#limits.stopMs, () => {
      this.#table.endAll();
      server.closeAllConnections();
    });
    await closed;
    cancel();
  }

  async #make(): Promise<Server> {
    const { tls, clock, log, name: listener } = this.#options;
    const { headerBytes, headerMs, keepAliveMs } = this.#limits;
    const options = {
      maxHeaderSize: headerBytes,
      headersTimeout: headerMs,
      // Bodies are watched by the table, which knows streams from those that only pretend to send.
      requestTimeout: 0,
      keepAliveTimeout: keepAliveMs,
      // Each look wakes an idle agent, four listeners have one each.
      connectionsCheckingInterval: headerMs / 2,
      noDelay: true,
    };
    if (!tls) return createServer(options);
    const pair = await readCertificate(tls);
    tls.inForce?.(pemEndsMs(pair.cert));
    // Node lets a handshake take two minutes: so few connections that say nothing would fill the house.
    const secure = { minVersion: 'TLSv1.2', handshakeTimeout: headerMs } as const;
    const server: TlsServer = process.getBuiltinModule('node:https').createServer({ ...options, ...pair, ...secure });
    const { signal } = this.#stopping;
    const apply = (next: CertificatePair) => {
      server.setSecureContext({ ...next, minVersion: 'TLSv1.2' });
      tls.inForce?.(pemEndsMs(next.cert));
    };
    void watchCertificate(tls, pair, apply, { listener, clock, log, signal });
    return server;
  }

  #watchSocketFile(server: Server, path: string): SocketFile {
    const { clock, log, name: listener, setting, code } = this.#options;
    return new SocketFile({
      path,
      clock,
      isListening: () => server.listening,
      restore: async () => {
        // `close` deletes the file at the path, so that a socket of another program must be left alone.
        if (server.listening && !(await isReplaceable(path)))
          throw new Error('the path belongs to another file or program');
        server.close();
        await listen(server, { path }, { setting, code });
      },
      restored: () => {
        this.#repeats.end('socket');
        log.warn(
          { event: 'listener.socket_restored', listener, path },
          'socket file was deleted or replaced, listening again',
        );
      },
      failed: (error) => {
        const count = this.#note('socket');
        const fields = { event: 'listener.socket_lost', listener, path, error: messageOf(error), count };
        if (count !== undefined) log.error(fields, 'socket file was deleted or replaced, failed to recreate it');
      },
    });
  }

  #admit(socket: Socket): void {
    // A peer that is gone without a word is noticed, however long a stream is silent.
    socket.setKeepAlive(true, 60_000);
    if (this.#table.open(socket)) return;
    socket.destroy();
    this.#tooMany();
  }

  #serve(request: IncomingMessage, response: ServerResponse, asksFirst: boolean): void {
    response.on('error', () => {});
    if (!this.#table.began(request, response)) return;
    if (this.isStopping) closeAfter(response);
    const rule = this.#options.hosts?.();
    const refusal = rule && hostRefusal(request, rule);
    if (refusal) answerEarly(request, response, refusal, this.#options.clock);
    else this.#options.serve(request, response, asksFirst);
  }

  #refuseMalformed(error: Error, socket: Socket): void {
    const code = codeOf(error);
    const isReset = code === 'ECONNRESET';
    if (!isReset) this.#options.malformed?.(code);
    if (isReset || !socket.writable) {
      socket.destroy();
      return;
    }
    socket.end(`HTTP/1.1 ${MALFORMED[code ?? ''] ?? '400 Bad Request'}\r\n${NO_MORE}`, () => socket.destroy());
  }

  #tooMany(): void {
    const count = this.#note('too many');
    if (count === undefined) return;
    this.#options.log.warn(
      { event: 'listener.too_many_connections', listener: this.#options.name, count },
      'a connection was refused: too many are open',
    );
  }

  #failed(error: Error): void {
    const count = this.#note('failed');
    if (count === undefined) return;
    this.#options.log.error(
      { event: 'listener.failed', listener: this.#options.name, error: messageOf(error), count },
      'a listener has a problem',
    );
  }

  #note(what: string): number | undefined {
    return this.#repeats.note(what, this.#options.clock.monotonicMs());
  }
}

const MALFORMED: Readonly<Record<string, string>> = {
  HPE_HEADER_OVERFLOW: '431 Request Header Fields Too Large',
  ERR_HTTP_REQUEST_TIMEOUT: '408 Request Timeout',
};
const NO_MORE = 'Connection: close\r\nContent-Length: 0\r\n\r\n';
