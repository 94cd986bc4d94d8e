import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import { answerEarly, BodyError, promisedBytes, readBody } from '../../base/inbound/body.ts';
import { hostRule } from '../../base/inbound/host-rule.ts';
import type { InboundKind, InboundServer } from '../../base/inbound/inbound-server.ts';
import { MemoryBudget, type Reservation } from '../../base/inbound/memory-budget.ts';
import { SharedToken } from '../../base/inbound/shared-token.ts';
import type { Logger } from '../../base/logger.ts';
import { releaseMemory } from '../../base/release-memory.ts';
import type { Intake } from '../intake/intake.ts';
import { textOf } from '../intake/text-parsers.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import { encodingOf, inflate } from './bodies.ts';
import { type BodyFormat, ENDPOINTS, type Endpoint, type LineSettings } from './endpoints.ts';
import {
  errorResponse,
  INFLUX_HEADERS,
  noRoom,
  PushRejection,
  partialWrite,
  rejectionOf,
  tooLarge,
} from './responses.ts';

/** HTTP listener for pushed values (docs/interface.md, "Pushing values in"). */
export interface HttpPushOptions {
  server: InboundServer;
  rules: PushRules;
  intake: Intake;
  clock: Clock;
  log: Logger;
  /**
   * Limit for the total size of requests that are being read or are waiting for the disk. Depends on the unit's memory
   * limit. Excludes the memory for parsing one JSON body (`MAX_JSON_BYTES`).
   */
  bytesUnderWay?: number;
}

/** Rules for accepting requests. After a reload, the new rules apply to all later requests. */
export interface PushRules {
  /** `INGEST_TOKEN`; `undefined` means that no token is required. */
  token: string | undefined;
  /** `INGEST_HOSTS`: host names accepted in addition to loopback names if no token is required. */
  hosts?: readonly string[] | undefined;
  lines?: LineSettings;
}

export const PUSH_LISTENER = {
  name: 'ingest',
  setting: 'INGEST_LISTEN',
  code: 'ingest.address_in_use',
  limits: {
    connections: 1_024,
    requestMs: 60_000,
    // Longer than the 10 s flush interval of collectors, so that they reuse connections.
    keepAliveMs: 75_000,
    stopMs: 10_000,
  },
} as const satisfies InboundKind;

const BYTES_UNDER_WAY = 48 * 1024 * 1024;
/** Approximate memory use of a waiting request in addition to its values: sockets, headers and promises. */
const BYTES_OF_REQUEST = 4_096;
const BYTES_OF_VALUE = 21;
/**
 * Maximum number of values in one request. Columns with this number of values use 5.5 MB. Typical requests reach the byte
 * limit first.
 */
const MAX_VALUES = 262_144;

/**
 * States: stopped, started. Each request is read and validated completely and passed to the sink. The response is sent
 * when all values are on disk. Until then, a request occupies only a few numeric columns. Many requests share one commit.
 * If the agent crashes, the client receives no 204 and sends the values again; the platform replaces duplicates.
 */
export class HttpPush {
  readonly #options: HttpPushOptions;
  readonly #memory: MemoryBudget;
  readonly #trouble: TroubleLog;
  #rules: PushRules;
  #token: SharedToken | undefined;

  constructor(options: HttpPushOptions) {
    this.#options = options;
    this.#rules = options.rules;
    this.setRules(options.rules);
    this.#trouble = new TroubleLog(options.log, options.clock);
    const { server, bytesUnderWay: maxBytes = BYTES_UNDER_WAY } = options;
    this.#memory = new MemoryBudget({ maxBytes, bodies: server.bodies, makeRoom: () => server.freeMemory() });
  }

  setRules(rules: PushRules): void {
    this.#rules = rules;
    this.#token = rules.token === undefined ? undefined : new SharedToken(rules.token);
  }

  /** Starts accepting requests. The server must be listening. */
  start(): void {
    const { server, log } = this.#options;
    const { configuredAddress: address } = server;
    server.handle({
      serve: (request, response, expectsContinue) => this.#serve(request, response, expectsContinue),
      hosts: () => (this.#token === undefined ? hostRule(address, 'INGEST_HOSTS', this.#rules.hosts) : undefined),
    });
    const at = 'path' in address ? address : { ...address, port: (server.socketAddress as AddressInfo).port };
    log.info({ event: 'ingest.listening', ...at }, 'listening for values');
  }

  /** Stops accepting requests, and completes requests that are waiting for the disk. */
  stop(): Promise<void> {
    return this.#options.server.suspend();
  }

  /** Memory used by pending requests, in bytes. */
  get bytesUnderWay(): number {
    return this.#memory.usedBytes;
  }

  async #serve(request: IncomingMessage, response: ServerResponse, expectsContinue: boolean): Promise<void> {
    const memory = this.#memory.reserve();
    // The target can contain the host (RFC 9112 section 3.2.2).
    const [path = '', ...search] = (request.url ?? '').replace(/^https?:\/\/[^/?]*/i, '').split('?');
    const endpoint = ENDPOINTS.get(path);
    const requestBody = () => {
      if (expectsContinue && promisedBytes(request) !== 0) response.writeContinue();
    };
    try {
      if (endpoint === undefined) throw new PushRejection(404, 'not found', 'Send values to /v1/values or /write.');
      const query = new URLSearchParams(search.join('?'));
      this.#admit(request, endpoint, query);
      const format = endpoint.format?.(request.headers['content-type'], query, this.#rules.lines ?? {});
      if (format === undefined) {
        requestBody();
        const body = textOf(await readBody(request, BYTES_OF_REQUEST, memory));
        respond(response, INFLUX_HEADERS, endpoint.probe?.(query, body));
        return;
      }
      const encoding = encodingOf(request.headers['content-encoding']);
      if ((promisedBytes(request) ?? 0) > format.maxBytes) throw tooLarge();
      if (!memory.grow(BYTES_OF_REQUEST)) throw noRoom();
      requestBody();
      await this.#acceptValues(request, response, endpoint, format, encoding, memory);
    } catch (error) {
      // If the connection was closed by the agent, the response and the log entry have already been written.
      if (error instanceof BodyError && error.fault === 'given-up') return;
      const rejection = rejectionOf(error) ?? new PushRejection(500, 'internal error');
      this.#logRejection(rejection, request, error);
      answerEarly(request, response, errorResponse(rejection, endpoint?.isInflux ?? false), this.#options.clock);
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
    if (endpoint.methods.includes('HEAD')) return;
    if (this.#token === undefined) {
      // Browsers send the page's origin. Web pages must not be able to push values to a listener that requires no
      // token.
      if (request.headers.origin !== undefined)
        throw new PushRejection(403, 'requests from web pages are not allowed', 'Set INGEST_TOKEN.');
    } else if (!this.#token.isShown(request.headers.authorization, endpoint.isInflux ? query.get('p') : null)) {
      throw new PushRejection(401, 'missing or invalid token', 'Send the header Authorization: Bearer INGEST_TOKEN.', {
        'WWW-Authenticate': 'Bearer realm="tagferry"',
      });
    }
  }

  /** Reads a body, and responds when its values are on disk. */
  async #acceptValues(
    request: IncomingMessage,
    response: ServerResponse,
    { isInflux }: Endpoint,
    { maxBytes, isPartial, read, rejectedLines }: BodyFormat,
    encoding: string | undefined,
    memory: Reservation,
  ): Promise<void> {
    const { intake } = this.#options;
    let bytes = await readBody(request, maxBytes, memory);
    if (encoding !== undefined) {
      bytes = await inflate(bytes, encoding, maxBytes, memory);
      memory.set(BYTES_OF_REQUEST + bytes.length);
    }
    const draft = intake.draft({ textBytes: bytes.length, isPartial, maxValues: MAX_VALUES });
    try {
      read(bytes, draft);
    } finally {
      releaseMemory(bytes);
    }
    memory.set(BYTES_OF_REQUEST + draft.accepted * BYTES_OF_VALUE);
    const accepted = await intake.submit(draft, isInflux ? 'influx' : 'http');
    if (accepted > 0) this.#trouble.recovered('ingest.store_refused', {}, 'pushed values are accepted again');
    const { count: refused, listed: problems } = draft.problems;
    if (refused > 0 && accepted > 0) {
      const fields = { accepted, refused, first: problems[0]?.problem };
      this.#trouble.report({ event: 'ingest.taken_in_part', ...fields }, 'some pushed values were rejected');
    }
    if (rejectedLines !== undefined && rejectedLines.count > 0) {
      const rejection = partialWrite(rejectedLines);
      if (accepted === 0) throw rejection;
      answerEarly(request, response, errorResponse(rejection, isInflux), this.#options.clock);
    } else if (rejectedLines !== undefined || !isPartial) {
      respond(response, isInflux ? INFLUX_HEADERS : {});
    } else {
      const outcome = { accepted, refused, problems };
      if (refused > 0 && accepted === 0)
        throw new PushRejection(422, 'no value in the request is valid', undefined, {}, outcome);
      respond(response, {}, outcome);
    }
  }

  #logRejection({ status, message }: PushRejection, request: IncomingMessage, error: unknown): void {
    const path = (request.url ?? '').split('?', 1)[0]!.slice(0, 64);
    const fields = { status, path, from: request.socket.remoteAddress, error: message };
    if (status === 500) {
      const details = { ...fields, event: 'ingest.failed', error: messageOf(error) };
      this.#options.log.error(details, 'internal error while handling a push request');
    } else if (status === 503) {
      const trouble = { event: 'ingest.store_refused', ...fields };
      this.#trouble.report(trouble, 'pushed values rejected: the store is unavailable');
    } else {
      this.#trouble.report({ event: 'ingest.refused', ...fields }, 'pushed values rejected', String(status));
    }
  }
}

/** Responds with 200 and a body, or with 204. */
function respond(response: ServerResponse, headers: Readonly<Record<string, string>>, body?: object): void {
  if (body === undefined) {
    response.writeHead(204, headers).end();
    return;
  }
  const text = `${JSON.stringify(body)}\n`;
  const length = Buffer.byteLength(text);
  response.writeHead(200, { ...headers, 'Content-Type': 'application/json', 'Content-Length': length }).end(text);
}
