/**
 * HTTP server used by all agent listeners: fair connection limits, timeouts for heads, bodies and responses, TLS with
 * live certificate renewal, and graceful shutdown. Requests are passed to the handler when their head has arrived.
 *
 * States: created, listening, stopping, stopped. While listening, requests are passed to the handler in the options or to
 * the one set with `handle`. No state survives a crash.
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
import { Connections, closeAfter, maxBodies } from './connections.ts';
import { type HostRule, hostRefusal } from './host-rule.ts';
import { SocketFile } from './socket-file.ts';

export interface InboundLimits {
  connections: number;
  headerBytes: number;
  /** Approximate time limit for a request head and a TLS handshake, in milliseconds. */
  headerMs: number;
  /** Time limit for a body, in milliseconds. */
  requestMs: number;
  /** Time limit for a peer that does not read its response, in milliseconds. */
  unreadMs: number;
  keepAliveMs: number;
  /** Number of retries, one second apart, if the address is in use, because a previous instance may be shutting down. */
  listenRetries: number;
  /** Time that `stop` waits for responses before it closes connections, in milliseconds. */
  stopMs: number;
}

const INBOUND_LIMITS: InboundLimits = {
  connections: 256,
  headerBytes: 16 * 1024,
  headerMs: 10_000,
  requestMs: 30_000,
  unreadMs: 30_000,
  keepAliveMs: 65_000,
  listenRetries: 10,
  stopMs: 5_000,
};

export interface InboundHandler {
  /**
   * Resolves when the request has been processed. `expectsContinue` means that the client is waiting for permission to send
   * its body (`response.writeContinue()`).
   */
  serve(request: IncomingMessage, response: ServerResponse, expectsContinue: boolean): Promise<void>;
  /** Returns the rule for accepted host names. If unset, all names are accepted. */
  hosts?(): HostRule | undefined;
  /** Called for invalid HTTP and for headers that are too large or arrive too late. */
  malformed?(code: string | undefined): void;
}

/** Kind of listener: the name in log lines, the settings key and code reported if listening fails, and the limits. */
export interface InboundKind {
  name: 'ingest' | 'webhook' | 'ops' | 'control' | 'login';
  setting: string;
  code: string;
  limits?: Partial<InboundLimits>;
}

export interface InboundOptions extends InboundKind, InboundHandler {
  address: ListenAddress;
  tls?: CertificateFiles | undefined;
  clock: Clock;
  log: Logger;
}

export class InboundServer {
  readonly #options: InboundOptions;
  readonly #limits: InboundLimits;
  readonly #connections: Connections;
  readonly #repeats = new Repeats();
  readonly #stopping = new AbortController();
  readonly #inProgress = new Set<Promise<void>>();
  #handler: InboundHandler;
  #server: Server | undefined;
  /** `undefined` for a TCP address. */
  #socketFile: SocketFile | undefined;
  #stopped: Promise<void> | undefined;

  constructor(options: InboundOptions) {
    this.#options = options;
    this.#handler = options;
    this.#limits = { ...INBOUND_LIMITS, ...options.limits };
    const { connections, requestMs, unreadMs } = this.#limits;
    this.#connections = new Connections({
      connections,
      requestMs,
      unreadMs,
      clock: options.clock,
      ended: (why) => {
        const count = this.#note(`ended ${why}`);
        if (count === undefined) return;
        options.log.warn(
          { event: 'listener.connection_ended', listener: options.name, why, count },
          'closed a connection that was idle or too slow',
        );
      },
    });
  }

  /** Starts listening. Throws a `TagferryError` with the configured code, or `listener.certificate`. */
  async start(): Promise<void> {
    const { address, setting, code } = this.#options;
    const { listenRetries: retries } = this.#limits;
    const server = await this.#make();
    // `Connections` enforces the limit. Accept twice as many connections, so that new ones can wait until it has made
    // room.
    server.maxConnections = this.#limits.connections * 2;
    server.on('drop', () => this.#tooMany());
    server.on('connection', (socket: Socket) => this.#admit(socket));
    server.on('secureConnection', (stream: Socket) => this.#connections.secured(stream));
    server.on('request', (request, response) => this.#serve(request, response, false));
    server.on('checkContinue', (request, response) => this.#serve(request, response, true));
    server.on('clientError', (error, socket) => this.#refuseMalformed(error, socket as Socket));
    // Destroy the socket, because data written before the handshake is never sent and would keep the connection open.
    server.on('tlsClientError', (_, socket: Socket) => socket.destroy());
    await listen(server, address, { setting, code, retries });
    server.on('error', (error) => this.#failed(error));
    this.#server = server;
    if ('path' in address) this.#socketFile = this.#watchSocketFile(server, address.path);
    if (this.#stopped) await this.#close();
  }

  /** Passes subsequent requests to the handler, until `suspend`. */
  handle(handler: InboundHandler): void {
    this.#handler = handler;
  }

  /**
   * Passes subsequent requests to the handler in the options. Resolves when the requests in progress have been processed.
   * After `stopMs`, closes all connections instead.
   */
  async suspend(): Promise<void> {
    this.#handler = this.#options;
    const late = Promise.withResolvers<void>();
    const cancel = this.#options.clock.after(this.#limits.stopMs, () => {
      this.#connections.endAll();
      late.resolve();
    });
    await Promise.race([Promise.allSettled(this.#inProgress), late.promise]);
    cancel();
  }

  /** Address in the options. */
  get configuredAddress(): ListenAddress {
    return this.#options.address;
  }

  /** Listening address in the settings format; `undefined` if not listening. */
  get address(): string | undefined {
    return this.#server && listeningAt(this.#server);
  }

  /** Address as reported by the system. */
  get socketAddress(): AddressInfo | string | null {
    return this.#server?.address() ?? null;
  }

  /** Number of open connections. */
  get connections(): number {
    return this.#connections.size;
  }

  /** Maximum number of concurrent bodies. */
  get bodies(): number {
    return maxBodies(this.#limits.connections);
  }

  /** Closes the connection with the largest slow body. Returns `false` if there is none. */
  freeMemory(): boolean {
    return this.#connections.freeMemory();
  }

  /** Rejects new connections, completes pending responses and closes the server. */
  stop(): Promise<void> {
    this.#stopped ??= this.#close();
    return this.#stopped;
  }

  async #close(): Promise<void> {
    this.#stopping.abort();
    this.#connections.stop();
    await this.#socketFile?.close();
    const server = this.#server;
    if (!server?.listening) return;
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    this.#connections.endQuiet();
    const cancel = this.#options.clock.after(this.#limits.stopMs, () => {
      this.#connections.endAll();
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
      // `Connections` enforces the time limit.
      requestTimeout: 0,
      keepAliveTimeout: keepAliveMs,
      // Longer than the default, because each check wakes an idle agent and there are four listeners.
      connectionsCheckingInterval: headerMs / 2,
      noDelay: true,
    };
    if (!tls) return createServer(options);
    const pair = await readCertificate(tls);
    tls.inForce?.(pemEndsMs(pair.cert));
    // The default of two minutes would allow a few silent connections to use all slots.
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
        // `close` deletes the file at the path, which may be the socket of another program.
        if (server.listening && !(await isReplaceable(path)))
          throw new Error('the path is used by another file or program');
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
    // Detect disconnected peers of idle streams.
    socket.setKeepAlive(true, 60_000);
    if (this.#connections.open(socket)) return;
    socket.destroy();
    this.#tooMany();
  }

  #serve(request: IncomingMessage, response: ServerResponse, expectsContinue: boolean): void {
    response.on('error', () => {});
    if (!this.#connections.startRequest(request, response)) return;
    if (this.#stopping.signal.aborted) closeAfter(response);
    const rule = this.#handler.hosts?.();
    const refusal = rule && hostRefusal(request, rule);
    if (refusal) {
      answerEarly(request, response, refusal, this.#options.clock);
      return;
    }
    const processed = this.#handler.serve(request, response, expectsContinue);
    this.#inProgress.add(processed);
    void processed.finally(() => this.#inProgress.delete(processed));
  }

  #refuseMalformed(error: Error, socket: Socket): void {
    const code = codeOf(error);
    const isReset = code === 'ECONNRESET';
    if (!isReset) this.#handler.malformed?.(code);
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
      'connection refused, too many open connections',
    );
  }

  #failed(error: Error): void {
    const count = this.#note('failed');
    if (count === undefined) return;
    this.#options.log.error(
      { event: 'listener.failed', listener: this.#options.name, error: messageOf(error), count },
      'listener error',
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
