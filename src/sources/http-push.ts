import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Clock } from '../clock.ts';
import type { ListenAddress } from '../config/settings.ts';
import { messageOf } from '../errors.ts';
import { listen } from '../listen.ts';
import type { Logger } from '../logger.ts';
import { createServer } from '../node-http.ts';
import { textOf } from './body-text.ts';
import { Connections } from './connections.ts';
import { IngestToken } from './ingest-token.ts';
import type { Intake } from './intake.ts';
import { answerQuery, ENDPOINTS, type Endpoint, HEALTH, INFLUX_HEADERS, type ReadBody } from './push-endpoints.ts';
import { errorBody, PushRefusal, refusalOf, tooLarge, tryLater } from './push-refusal.ts';
import { HeldBytes, Hold, Inflater, readBody } from './request-body.ts';
import { TroubleLog } from './trouble-log.ts';

/** The listener that programs push values to (INTERFACE.md, "Pushing values in"). */
export interface HttpPushOptions {
  listen: ListenAddress;
  /** `INGEST_TOKEN`; `undefined` asks for none. */
  token: string | undefined;
  intake: Intake;
  clock: Clock;
  log: Logger;
  limits?: Partial<PushLimits>;
}

export interface PushLimits {
  /** Of one body, inflated. INTERFACE.md, "Settled details". */
  bodyBytes: number;
  /** Of all requests that are read or wait for the disk. */
  heldBytes: number;
  connections: number;
  headerMs: number;
  /** A whole request, from its first byte to its last. */
  requestMs: number;
  /** How often Node looks for requests that exceed the two. */
  checkEveryMs: number;
  keepAliveMs: number;
  /** How often an address in use is tried again, a second apart. */
  listenRetries: number;
  /** How long `stop` waits for answers under way before it cuts connections. */
  stopMs: number;
}

const LIMITS: PushLimits = {
  bodyBytes: 8 * 1024 * 1024,
  heldBytes: 48 * 1024 * 1024,
  connections: 1_024,
  headerMs: 10_000,
  requestMs: 60_000,
  checkEveryMs: 5_000,
  // Longer than the 10 s at which collectors flush, so that they keep their connection.
  keepAliveMs: 75_000,
  listenRetries: 10,
  stopMs: 10_000,
};

const SPARE_CONNECTIONS = 64;
/** What a request costs while it waits, beside its values: sockets, headers, promises. */
const BYTES_OF_REQUEST = 4_096;
const BYTES_OF_VALUE = 21;
/** A value in a body, about; more values than were made room for cost a copy. */
const BYTES_OF_WRITTEN_VALUE = 80;
const BYTES_READ_PAST = 65_536;
/** How long a refused body is still taken off the wire, so that its sender reads the answer instead of a reset. */
const DRAIN_MS = 2_000;

/**
 * States: made, listening, stopping, stopped. Each request is read whole, checked whole, given to the sink at once, and answered
 * when the sink says that all of it is on disk; meanwhile it is a few columns of numbers. Many wait for the same commit.
 * A crash before the answer leaves the client without a 204: it sends again, and the platform replaces equal values.
 */
export class HttpPush {
  readonly #options: HttpPushOptions;
  readonly #limits: PushLimits;
  #token: IngestToken | undefined;
  readonly #held: HeldBytes;
  readonly #inflater: Inflater;
  readonly #trouble: TroubleLog;
  readonly #connections: Connections;
  #server: Server | undefined;
  #stopping: Promise<void> | undefined;

  constructor(options: HttpPushOptions) {
    this.#options = options;
    this.#limits = { ...LIMITS, ...options.limits };
    this.setToken(options.token);
    this.#held = new HeldBytes(this.#limits.heldBytes);
    this.#inflater = new Inflater(this.#limits.bodyBytes);
    this.#trouble = new TroubleLog(options.log, options.clock);
    this.#connections = new Connections(this.#limits.connections, options.clock, (why) =>
      this.#trouble.again(
        { event: 'ingest.connection_ended', why },
        'A connection that sent too slowly, or nothing, was ended',
      ),
    );
  }

  /** A reload's `INGEST_TOKEN`, for every request from now on; `undefined` asks for none. */
  setToken(token: string | undefined): void {
    this.#token = token === undefined ? undefined : new IngestToken(token);
  }

  /** Resolves when it listens; gives the address with the port that the system chose. Throws a `TagferryError`. */
  async start(signal?: AbortSignal): Promise<ListenAddress> {
    const { listen: address, log } = this.#options;
    const { headerMs, requestMs, checkEveryMs, keepAliveMs, connections } = this.#limits;
    const server = createServer({
      headersTimeout: headerMs,
      requestTimeout: requestMs,
      connectionsCheckingInterval: checkEveryMs,
      keepAliveTimeout: keepAliveMs,
    });
    // Beyond those that keep a place, for newcomers that wait for one to be given up.
    server.maxConnections = connections + SPARE_CONNECTIONS;
    const tooMany = () =>
      this.#trouble.again({ event: 'ingest.too_many_connections' }, 'A connection was refused: too many are open');
    server.on('drop', tooMany);
    server.on('connection', (socket) => {
      if (this.#connections.open(socket)) return;
      socket.destroy();
      tooMany();
    });
    this.#connections.start();
    server.on('request', (request, response) => void this.#serve(request, response, false));
    // A client that asks before it sends gets its refusal before it has sent.
    server.on('checkContinue', (request, response) => void this.#serve(request, response, true));
    await listen(server, address, {
      setting: 'INGEST_LISTEN',
      code: 'ingest.address_in_use',
      retries: this.#limits.listenRetries,
    });
    server.on('error', (error) =>
      this.#trouble.again({ event: 'ingest.listener_failed', error: messageOf(error) }, 'The ingest listener failed'),
    );
    this.#server = server;
    signal?.addEventListener('abort', () => void this.stop(), { once: true });
    const at = 'path' in address ? address : { host: address.host, port: (server.address() as AddressInfo).port };
    log.info({ event: 'ingest.listening', ...at }, 'Listening for values');
    return at;
  }

  /** Takes no more requests, lets those that wait for the disk have their answer, closes every connection. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  /** Open connections. */
  get connections(): number {
    return this.#connections.size;
  }

  /** What is under way: requests hold so many bytes. */
  get heldBytes(): number {
    return this.#held.held;
  }

  #stop(): Promise<void> {
    const server = this.#server;
    if (server === undefined) return Promise.resolve();
    return new Promise((resolve) => {
      const cancel = this.#options.clock.after(this.#limits.stopMs, () => server.closeAllConnections());
      this.#connections.stop();
      server.close(() => {
        cancel();
        resolve();
      });
      server.closeIdleConnections();
    });
  }

  async #serve(request: IncomingMessage, response: ServerResponse, asksFirst: boolean): Promise<void> {
    const hold = new Hold(this.#held);
    this.#connections.sending(request.socket);
    const [path = '', search] = splitOnce(request.url ?? '', '?');
    const endpoint = ENDPOINTS.get(path);
    if (this.#stopping !== undefined) response.setHeader('Connection', 'close');
    try {
      if (endpoint === undefined) throw new PushRefusal(404, 'nothing is here', 'Values go to /v1/values or /write.');
      const query = new URLSearchParams(search);
      this.#admit(request, endpoint, query);
      if (endpoint.reader !== undefined) {
        const read = endpoint.reader(request.headers['content-type'], query);
        await this.#take(request, asksFirst ? response : undefined, endpoint, read, hold);
        this.#answer(response, 204, endpoint.form === 'influx1' ? INFLUX_HEADERS : {});
      } else {
        await this.#look(request, response, path, query, hold);
      }
    } catch (error) {
      this.#refuse(request, response, endpoint, error);
    } finally {
      hold.set(0);
      this.#connections.answered(request.socket);
    }
  }

  /** Everything that can be said before the body is read. */
  #admit(request: IncomingMessage, endpoint: Endpoint, query: URLSearchParams): void {
    if (!endpoint.methods.includes(request.method!)) {
      const allow = endpoint.methods.join(', ');
      throw new PushRefusal(405, `this address takes ${allow}`, undefined, { Allow: allow });
    }
    if (this.#stopping !== undefined) throw tryLater('the agent is stopping', 5_000);
    if (endpoint.methods.includes('HEAD')) return;
    const isInflux = endpoint.form !== 'plain';
    if (this.#token === undefined) {
      // Browsers name the page that sends: no page, local or foreign, may write to a listener without a token.
      if (request.headers.origin !== undefined)
        throw new PushRefusal(403, 'web pages may not send values here', 'Set INGEST_TOKEN.');
    } else if (!this.#token.isShown(request.headers.authorization, isInflux ? query.get('p') : null)) {
      throw new PushRefusal(401, 'the token is missing or wrong', 'Send Authorization: Bearer and INGEST_TOKEN.', {
        'WWW-Authenticate': 'Bearer realm="tagferry"',
      });
    }
    const length = Number(request.headers['content-length'] ?? 0);
    if (length > this.#limits.bodyBytes) throw tooLarge(this.#limits.bodyBytes);
  }

  /** From the wire to the disk. `askedBy` waits for leave to send. */
  async #take(
    request: IncomingMessage,
    askedBy: ServerResponse | undefined,
    endpoint: Endpoint,
    read: ReadBody,
    hold: Hold,
  ): Promise<void> {
    const { intake } = this.#options;
    const encoding = Inflater.check(request.headers['content-encoding']);
    hold.take(BYTES_OF_REQUEST);
    askedBy?.writeContinue();
    let bytes = await readBody(request, this.#limits.bodyBytes, hold);
    this.#connections.waiting(request.socket);
    if (encoding !== undefined) {
      bytes = await this.#inflater.inflate(bytes, encoding);
      hold.set(BYTES_OF_REQUEST + bytes.length);
    }
    const draft = intake.draft(Math.ceil(bytes.length / BYTES_OF_WRITTEN_VALUE));
    read(bytes, draft);
    hold.set(BYTES_OF_REQUEST + draft.count * BYTES_OF_VALUE);
    await intake.submit(draft, endpoint.source);
    this.#trouble.over('ingest.store_refused', {}, 'Pushed values are taken again');
  }

  /** `/ping`, `/health`, `/query`: what collectors ask beside writing. */
  async #look(
    request: IncomingMessage,
    response: ServerResponse,
    path: string,
    query: URLSearchParams,
    hold: Hold,
  ): Promise<void> {
    if (path === '/ping' && query.get('verbose') !== 'true') return this.#answer(response, 204, INFLUX_HEADERS);
    if (path === '/ping')
      return this.#answer(response, 200, INFLUX_HEADERS, { version: INFLUX_HEADERS['X-Influxdb-Version'] });
    if (path === '/health') return this.#answer(response, 200, {}, HEALTH);
    hold.take(BYTES_OF_REQUEST);
    const body = textOf(await readBody(request, BYTES_OF_REQUEST, hold));
    const statement = query.get('q') ?? new URLSearchParams(body).get('q');
    this.#answer(response, 200, INFLUX_HEADERS, answerQuery(statement));
  }

  #answer(response: ServerResponse, status: number, headers: Readonly<Record<string, string>>, body?: object): void {
    if (this.#stopping !== undefined) response.setHeader('Connection', 'close');
    if (body === undefined) {
      response.writeHead(status, headers).end();
      return;
    }
    const text = `${JSON.stringify(body)}\n`;
    const length = Buffer.byteLength(text);
    response.writeHead(status, { ...headers, 'Content-Type': 'application/json', 'Content-Length': length }).end(text);
  }

  #refuse(request: IncomingMessage, response: ServerResponse, endpoint: Endpoint | undefined, error: unknown): void {
    const refusal = refusalOf(error) ?? new PushRefusal(500, 'the agent failed to take the values');
    this.#say(refusal, request, error);
    if (response.destroyed || response.headersSent) return;
    const form = endpoint?.form ?? 'plain';
    const text = errorBody(refusal, form, error);
    const headers: Record<string, string> = { ...refusal.headers, 'Content-Type': 'application/json' };
    headers['Content-Length'] = String(Buffer.byteLength(text));
    if (form === 'influx1') headers['X-Influxdb-Error'] = refusal.message.replaceAll(/[^\x20-\x7e]/g, '?');
    const sendsMore = !request.complete && !endsSoon(request);
    if (sendsMore || this.#stopping !== undefined) headers.Connection = 'close';
    response.writeHead(refusal.status, headers);
    if (!sendsMore) {
      response.end(text);
      return;
    }
    // The answer is whole on the wire, but the connection stays until the sender has stopped or its time is over.
    response.write(text);
    const end = () => {
      cancel();
      response.end();
    };
    const cancel = this.#options.clock.after(DRAIN_MS, end);
    request.once('close', end);
    request.once('end', end);
    request.resume();
  }

  #say(refusal: PushRefusal, request: IncomingMessage, error: unknown): void {
    const { status } = refusal;
    const fields = {
      status,
      path: (request.url ?? '').split('?', 1)[0]!.slice(0, 64),
      from: request.socket.remoteAddress,
      error: refusal.message,
    };
    if (status === 500) {
      this.#options.log.error(
        { ...fields, event: 'ingest.failed', cause: messageOf(error) },
        'A request failed for no reason that was foreseen',
      );
    } else if (status === 503) {
      this.#trouble.again(
        { event: 'ingest.store_refused', ...fields },
        'Pushed values were refused: nothing can be stored now',
      );
    } else {
      this.#trouble.again({ event: 'ingest.refused', ...fields }, 'Pushed values were refused', String(status));
    }
  }
}

/** The rest of the body is short and certain to come: Node reads past it, and the connection goes on. */
function endsSoon(request: IncomingMessage): boolean {
  const { expect, 'content-length': length } = request.headers;
  return expect === undefined && length !== undefined && Number(length) <= BYTES_READ_PAST;
}

function splitOnce(text: string, at: string): [string, string | undefined] {
  const found = text.indexOf(at);
  return found < 0 ? [text, undefined] : [text.slice(0, found), text.slice(found + 1)];
}
