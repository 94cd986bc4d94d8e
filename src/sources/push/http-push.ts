import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { counted } from '../../base/amounts.ts';
import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import { answerEarly, BodyChunks, BodyError, promisedBytes, readBody } from '../../base/inbound/body.ts';
import type { CertificateFiles } from '../../base/inbound/certificate.ts';
import { hostRule } from '../../base/inbound/host-rule.ts';
import { INBOUND_LIMITS, type InboundLimits, InboundServer } from '../../base/inbound/inbound-server.ts';
import { MemoryBudget, type Reservation } from '../../base/inbound/memory-budget.ts';
import { SharedToken } from '../../base/inbound/shared-token.ts';
import type { ListenAddress } from '../../base/listen.ts';
import type { Logger } from '../../base/logger.ts';
import { releaseMemory } from '../../base/release-memory.ts';
import { textOf } from '../formats/body-text.ts';
import { type PartialOutcome, type ReadBody, ValueStream } from '../formats/value-stream.ts';
import type { Intake } from '../intake/intake.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import { encodingOf, inflate, inflated } from './inflater.ts';
import {
  answerQuery,
  ENDPOINTS,
  type Endpoint,
  HEALTH,
  INFLUX_HEADERS,
  type LineSettings,
  type Reading,
} from './push-endpoints.ts';
import { errorBody, noRoom, PushRejection, rejectionOf, tooLarge, tryLater } from './push-rejection.ts';

/** HTTP listener for pushed values (docs/interface.md, "Pushing values in"). */
export interface HttpPushOptions {
  listen: ListenAddress;
  tls?: CertificateFiles | undefined;
  rules: PushRules;
  intake: Intake;
  clock: Clock;
  log: Logger;
  limits?: Partial<PushLimits>;
}

/** Rules for accepting requests. After a reload, the new rules apply to all later requests. */
export interface PushRules {
  /** `INGEST_TOKEN`; `undefined` means that no token is required. */
  token: string | undefined;
  /** `INGEST_HOSTS`: host names accepted in addition to loopback names if no token is required. */
  hosts?: readonly string[] | undefined;
  lines?: LineSettings;
}

export interface PushLimits extends InboundLimits {
  /** Limit for one decompressed body (docs/interface.md, "Settled details"). */
  bodyBytes: number;
  /**
   * Limit for the total size of requests that are being read or are waiting for the disk. Depends on the unit's memory
   * limit.
   */
  bytesUnderWay: number;
}

const LIMITS: PushLimits = {
  ...INBOUND_LIMITS,
  bodyBytes: 8 * 1024 * 1024,
  bytesUnderWay: 48 * 1024 * 1024,
  connections: 1_024,
  requestMs: 60_000,
  // Longer than the 10 s flush interval of collectors, so that they reuse connections.
  keepAliveMs: 75_000,
  stopMs: 10_000,
};

/** Approximate memory use of a waiting request in addition to its values: sockets, headers and promises. */
const BYTES_OF_REQUEST = 4_096;
const BYTES_OF_VALUE = 21;
/**
 * Maximum number of values in one request. Columns with this number of values use 5.5 MB, and an 8 MiB body with its
 * columns uses at most 20 MB. Typical requests reach the byte limit first.
 */
const MAX_VALUES = 262_144;

/**
 * States: created, listening, stopping, stopped. Each request is read and validated completely and passed to the sink.
 * The response is sent when all values are on disk. Until then, a request occupies only a few numeric columns. Many
 * requests share one commit. If the agent crashes, the client receives no 204 and sends the values again; the platform
 * replaces duplicates.
 */
export class HttpPush {
  readonly #options: HttpPushOptions;
  readonly #limits: PushLimits;
  readonly #memory: MemoryBudget;
  readonly #trouble: TroubleLog;
  readonly #server: InboundServer;
  #rules: PushRules;
  #token: SharedToken | undefined;

  constructor(options: HttpPushOptions) {
    this.#options = options;
    this.#rules = options.rules;
    this.#limits = { ...LIMITS, ...options.limits };
    this.setRules(options.rules);
    this.#trouble = new TroubleLog(options.log, options.clock);
    this.#server = new InboundServer({
      name: 'ingest',
      address: options.listen,
      setting: 'INGEST_LISTEN',
      code: 'ingest.address_in_use',
      tls: options.tls,
      hosts: () =>
        this.#token === undefined ? hostRule(options.listen, 'INGEST_HOSTS', this.#rules.hosts) : undefined,
      limits: this.#limits,
      clock: options.clock,
      log: options.log,
      serve: (request, response, expectsContinue) => void this.#serve(request, response, expectsContinue),
    });
    this.#memory = new MemoryBudget({
      maxBytes: this.#limits.bytesUnderWay,
      bodies: this.#server.bodies,
      makeRoom: () => this.#server.freeMemory(),
    });
  }

  setRules(rules: PushRules): void {
    this.#rules = rules;
    this.#token = rules.token === undefined ? undefined : new SharedToken(rules.token);
  }

  /** Resolves with the address, including the assigned port, when the server is listening. Throws a `TagferryError`. */
  async start(signal?: AbortSignal): Promise<ListenAddress> {
    const { listen: address, log } = this.#options;
    await this.#server.start();
    signal?.addEventListener('abort', () => void this.stop(), { once: true });
    const { port } = this.#server.socketAddress as AddressInfo;
    const at = 'path' in address ? address : { host: address.host, port };
    log.info({ event: 'ingest.listening', ...at }, 'listening for values');
    return at;
  }

  /** Stops accepting requests, completes requests that are waiting for the disk, and closes all connections. */
  stop(): Promise<void> {
    return this.#server.stop();
  }

  /** Number of open connections. */
  get connections(): number {
    return this.#server.connections;
  }

  /** Memory used by pending requests, in bytes. */
  get bytesUnderWay(): number {
    return this.#memory.usedBytes;
  }

  async #serve(request: IncomingMessage, response: ServerResponse, expectsContinue: boolean): Promise<void> {
    const memory = this.#memory.reserve();
    const [path = '', search] = splitOnce(request.url ?? '', '?');
    const endpoint = ENDPOINTS.get(path);
    try {
      if (endpoint === undefined) throw new PushRejection(404, 'not found', 'Send values to /v1/values or /write.');
      const query = new URLSearchParams(search);
      this.#admit(request, endpoint, query);
      if (endpoint.reader !== undefined) {
        const reading = endpoint.reader(request.headers['content-type'], query, this.#rules.lines ?? {});
        const encoding = encodingOf(request.headers['content-encoding']);
        if (!reading.isStream) this.#checkSize(request);
        if (!memory.grow(BYTES_OF_REQUEST)) throw noRoom();
        if (reading.isStream && !this.#server.streams(request)) throw tryLater('too many streams are open', 10_000);
        if (expectsContinue) response.writeContinue();
        const outcome = reading.isStream
          ? await this.#acceptStream(request, encoding, endpoint, reading.read)
          : await this.#acceptBody(request, encoding, endpoint, reading, memory);
        this.#respondAccepted(request, response, endpoint, reading, outcome);
      } else {
        await this.#respondToProbe(request, response, path, query, memory);
      }
    } catch (error) {
      // If the connection was closed by the agent, the response and the log entry have already been written.
      if (!(error instanceof BodyError && error.fault === 'given-up'))
        this.#respondRejected(request, response, endpoint, error);
    } finally {
      memory.set(0);
    }
  }

  /** Performs all checks that do not require the body. */
  #admit(request: IncomingMessage, endpoint: Endpoint, query: URLSearchParams): void {
    if (!endpoint.methods.includes(request.method!)) {
      const allow = endpoint.methods.join(', ');
      throw new PushRejection(405, `method not allowed; use ${allow}`, undefined, { Allow: allow });
    }
    if (this.#server.isStopping) throw tryLater('the agent is stopping', 5_000);
    if (endpoint.methods.includes('HEAD')) return;
    const isInflux = endpoint.form !== 'plain';
    if (this.#token === undefined) {
      // Browsers send the page's origin. Web pages must not be able to push values to a listener that requires no
      // token.
      if (request.headers.origin !== undefined)
        throw new PushRejection(403, 'requests from web pages are not allowed', 'Set INGEST_TOKEN.');
    } else if (!this.#token.isShown(request.headers.authorization, isInflux ? query.get('p') : null)) {
      throw new PushRejection(401, 'missing or invalid token', 'Send the header Authorization: Bearer INGEST_TOKEN.', {
        'WWW-Authenticate': 'Bearer realm="tagferry"',
      });
    }
  }

  #checkSize(request: IncomingMessage): void {
    if ((promisedBytes(request) ?? 0) > this.#limits.bodyBytes) throw tooLarge(this.#limits.bodyBytes);
  }

  /** Reads and stores a complete body. Resolves when its values are on disk. */
  async #acceptBody(
    request: IncomingMessage,
    encoding: string | undefined,
    endpoint: Endpoint,
    { read, partial }: Reading,
    memory: Reservation,
  ): Promise<PartialOutcome> {
    const { intake } = this.#options;
    const { bodyBytes } = this.#limits;
    let bytes = await readBody(request, bodyBytes, memory);
    if (encoding !== undefined) {
      bytes = await inflate(bytes, encoding, bodyBytes, memory);
      memory.set(BYTES_OF_REQUEST + bytes.length);
    }
    const draft = intake.draft({
      textBytes: bytes.length,
      isPartial: partial !== undefined,
      maxValues: MAX_VALUES,
    });
    try {
      read(bytes, draft);
    } finally {
      releaseMemory(bytes);
    }
    memory.set(BYTES_OF_REQUEST + draft.count * BYTES_OF_VALUE);
    const accepted = await intake.submit(draft, endpoint.source);
    if (accepted > 0) this.#trouble.recovered('ingest.store_refused', {}, 'pushed values are accepted again');
    return { accepted, refused: draft.problems.count, problems: draft.problems.listed };
  }

  async #acceptStream(
    request: IncomingMessage,
    encoding: string | undefined,
    endpoint: Endpoint,
    read: ReadBody,
  ): Promise<PartialOutcome> {
    const { intake } = this.#options;
    const stream = new ValueStream({
      draft: (textBytes) => intake.draft({ isPartial: true, textBytes }),
      read,
      submit: (draft) => intake.submit(draft, endpoint.source),
      memory: this.#memory.reserve(),
      signal: this.#server.stopping,
    });
    const chunks = new BodyChunks(request);
    try {
      await stream.read(encoding === undefined ? chunks : inflated(chunks, encoding));
    } catch (error) {
      const rejection = rejectionOf(error, this.#limits.bodyBytes) ?? new PushRejection(400, 'incomplete body');
      const { status, message, hint, headers } = rejection;
      throw new PushRejection(status, message.replace(/; nothing of .*/, ''), hint, headers, stream.outcome);
    } finally {
      chunks.release();
    }
    return stream.outcome;
  }

  #respondAccepted(
    request: IncomingMessage,
    response: ServerResponse,
    { form }: Endpoint,
    { partial }: Reading,
    outcome: PartialOutcome,
  ): void {
    const { accepted, refused, problems } = outcome;
    const influx = form === 'influx1' ? INFLUX_HEADERS : {};
    if (partial === undefined || (partial === 'setting' && refused === 0)) {
      this.#respond(response, 204, influx);
      return;
    }
    if (refused > 0) {
      const first = problems[0]?.problem;
      this.#trouble.report(
        { event: 'ingest.taken_in_part', accepted, refused, first },
        'some pushed values were rejected',
      );
    }
    // Telegraf drops InfluxDB 1 values only if the error contains this text; otherwise, it retries the batch.
    const error =
      form === 'influx1' && refused > 0 ? { error: `partial write: ${counted(refused, 'value')} dropped` } : {};
    const nothing = accepted === 0 && refused > 0;
    const body = { ...outcome, ...(nothing ? { error: 'no value in the request is valid' } : error) };
    const text = `${JSON.stringify(body)}\n`;
    const headers = { ...influx, 'Content-Type': 'application/json' };
    answerEarly(request, response, { status: nothing ? 422 : 200, headers, text }, this.#options.clock);
  }

  /** Responds to collector requests other than writes: `/ping`, `/health`, `/query`. */
  async #respondToProbe(
    request: IncomingMessage,
    response: ServerResponse,
    path: string,
    query: URLSearchParams,
    memory: Reservation,
  ): Promise<void> {
    if (path === '/ping' && query.get('verbose') !== 'true') return this.#respond(response, 204, INFLUX_HEADERS);
    if (path === '/ping')
      return this.#respond(response, 200, INFLUX_HEADERS, { version: INFLUX_HEADERS['X-Influxdb-Version'] });
    if (path === '/health') return this.#respond(response, 200, {}, HEALTH);
    const body = textOf(await readBody(request, BYTES_OF_REQUEST, memory));
    const statement = query.get('q') ?? new URLSearchParams(body).get('q');
    this.#respond(response, 200, INFLUX_HEADERS, answerQuery(statement));
  }

  #respond(response: ServerResponse, status: number, headers: Readonly<Record<string, string>>, body?: object): void {
    if (body === undefined) {
      response.writeHead(status, headers).end();
      return;
    }
    const text = `${JSON.stringify(body)}\n`;
    const length = Buffer.byteLength(text);
    response.writeHead(status, { ...headers, 'Content-Type': 'application/json', 'Content-Length': length }).end(text);
  }

  #respondRejected(
    request: IncomingMessage,
    response: ServerResponse,
    endpoint: Endpoint | undefined,
    error: unknown,
  ): void {
    const rejection = rejectionOf(error, this.#limits.bodyBytes) ?? new PushRejection(500, 'internal error');
    this.#logRejection(rejection, request, error);
    const form = endpoint?.form ?? 'plain';
    const text = errorBody(rejection, form, error);
    const headers: Record<string, string> = { ...rejection.headers, 'Content-Type': 'application/json' };
    if (form === 'influx1') headers['X-Influxdb-Error'] = rejection.message.replaceAll(/[^\x20-\x7e]/g, '?');
    answerEarly(request, response, { status: rejection.status, headers, text }, this.#options.clock);
  }

  #logRejection(rejection: PushRejection, request: IncomingMessage, error: unknown): void {
    const { status } = rejection;
    const fields = {
      status,
      path: (request.url ?? '').split('?', 1)[0]!.slice(0, 64),
      from: request.socket.remoteAddress,
      error: rejection.message,
    };
    if (status === 500) {
      this.#options.log.error(
        { ...fields, event: 'ingest.failed', error: messageOf(error) },
        'internal error while handling a push request',
      );
    } else if (status === 503) {
      this.#trouble.report(
        { event: 'ingest.store_refused', ...fields },
        'pushed values rejected: the store is unavailable',
      );
    } else {
      this.#trouble.report({ event: 'ingest.refused', ...fields }, 'pushed values rejected', String(status));
    }
  }
}

function splitOnce(text: string, at: string): [string, string | undefined] {
  const found = text.indexOf(at);
  return found < 0 ? [text, undefined] : [text.slice(0, found), text.slice(found + 1)];
}
