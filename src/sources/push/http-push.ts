import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { counted } from '../../base/amounts.ts';
import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import { giveBack } from '../../base/give-back.ts';
import { answerEarly, BodyChunks, BodyError, promisedBytes, readBody } from '../../base/inbound/body.ts';
import type { CertificateFiles } from '../../base/inbound/certificate.ts';
import { hostRule } from '../../base/inbound/host-rule.ts';
import { INBOUND_LIMITS, type InboundLimits, InboundServer } from '../../base/inbound/inbound-server.ts';
import { MemoryBudget, type Reservation } from '../../base/inbound/memory-budget.ts';
import { SharedToken } from '../../base/inbound/shared-token.ts';
import type { ListenAddress } from '../../base/listen.ts';
import type { Logger } from '../../base/logger.ts';
import type { Intake } from '../intake.ts';
import { TroubleLog } from '../trouble-log.ts';
import { textOf } from './body-text.ts';
import { encodingOf, inflate, inflated } from './inflater.ts';
import {
  answerQuery,
  ENDPOINTS,
  type Endpoint,
  HEALTH,
  INFLUX_HEADERS,
  type LineSettings,
  type ReadBody,
  type Reading,
} from './push-endpoints.ts';
import { errorBody, noRoom, PushRefusal, refusalOf, tooLarge, tryLater } from './push-refusal.ts';
import { type PartialOutcome, ValueStream } from './value-stream.ts';

/** The listener that programs push values to (docs/interface.md, "Pushing values in"). */
export interface HttpPushOptions {
  listen: ListenAddress;
  tls?: CertificateFiles | undefined;
  rules: PushRules;
  intake: Intake;
  clock: Clock;
  log: Logger;
  limits?: Partial<PushLimits>;
}

/** What is asked of a request; a reload changes it for every request from then on. */
export interface PushRules {
  /** `INGEST_TOKEN`; `undefined` asks for none. */
  token: string | undefined;
  /** `INGEST_HOSTS`: names beside those of loopback by which the listener may be called while it has no token. */
  hosts?: readonly string[] | undefined;
  lines?: LineSettings;
}

export interface PushLimits extends InboundLimits {
  /** Of one body, inflated. docs/interface.md, "Settled details". */
  bodyBytes: number;
  /** Of all requests that are read or wait for the disk: follows the memory that the unit allows. */
  bytesUnderWay: number;
}

const LIMITS: PushLimits = {
  ...INBOUND_LIMITS,
  bodyBytes: 8 * 1024 * 1024,
  bytesUnderWay: 48 * 1024 * 1024,
  connections: 1_024,
  requestMs: 60_000,
  // Longer than the 10 s at which collectors flush, so that they keep their connection.
  keepAliveMs: 75_000,
  stopMs: 10_000,
};

/** What a request costs while it waits, beside its values: sockets, headers, promises. */
const BYTES_OF_REQUEST = 4_096;
const BYTES_OF_VALUE = 21;
/** A value in a body, about; more values than were made room for cost a copy. */
const BYTES_OF_WRITTEN_VALUE = 80;
/**
 * Of one request: the columns of so many values take 5.5 MB, and a body of 8 MiB with its columns some 20 at the most, whatever
 * it is made of; values as programs write them reach the bound of bytes first.
 */
const MAX_VALUES = 262_144;

/**
 * States: made, listening, stopping, stopped. Each request is read whole, checked whole, given to the sink at once, and answered
 * when the sink says that all of it is on disk; meanwhile it is a few columns of numbers. Many wait for the same commit.
 * A crash before the answer leaves the client without a 204: it sends again, and the platform replaces equal values.
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
      serve: (request, response, asksFirst) => void this.#serve(request, response, asksFirst),
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

  /** Resolves when it listens; gives the address with the port that the system chose. Throws a `TagferryError`. */
  async start(signal?: AbortSignal): Promise<ListenAddress> {
    const { listen: address, log } = this.#options;
    await this.#server.start();
    signal?.addEventListener('abort', () => void this.stop(), { once: true });
    const { port } = this.#server.socketAddress as AddressInfo;
    const at = 'path' in address ? address : { host: address.host, port };
    log.info({ event: 'ingest.listening', ...at }, 'listening for values');
    return at;
  }

  /** Takes no more requests, lets those that wait for the disk have their answer, closes every connection. */
  stop(): Promise<void> {
    return this.#server.stop();
  }

  /** Open connections. */
  get connections(): number {
    return this.#server.connections;
  }

  /** Memory of what is under way. */
  get bytesUnderWay(): number {
    return this.#memory.usedBytes;
  }

  async #serve(request: IncomingMessage, response: ServerResponse, asksFirst: boolean): Promise<void> {
    const memory = this.#memory.reserve();
    const [path = '', search] = splitOnce(request.url ?? '', '?');
    const endpoint = ENDPOINTS.get(path);
    try {
      if (endpoint === undefined) throw new PushRefusal(404, 'nothing is here', 'Values go to /v1/values or /write.');
      const query = new URLSearchParams(search);
      this.#admit(request, endpoint, query);
      if (endpoint.reader !== undefined) {
        const reading = endpoint.reader(request.headers['content-type'], query, this.#rules.lines ?? {});
        const encoding = encodingOf(request.headers['content-encoding']);
        if (!reading.isStream) this.#demandSize(request);
        if (!memory.grow(BYTES_OF_REQUEST)) throw noRoom();
        if (reading.isStream && !this.#server.streams(request)) throw tryLater('too many streams are open', 10_000);
        if (asksFirst) response.writeContinue();
        const outcome = reading.isStream
          ? await this.#takeStream(request, encoding, endpoint, reading.read)
          : await this.#take(request, encoding, endpoint, reading, memory);
        this.#answerTaken(request, response, endpoint, reading, outcome);
      } else {
        await this.#look(request, response, path, query, memory);
      }
    } catch (error) {
      // Its sender was answered, and the log told, where the connection was ended.
      if (!(error instanceof BodyError && error.fault === 'given-up')) this.#refuse(request, response, endpoint, error);
    } finally {
      memory.set(0);
    }
  }

  /** Everything that can be said before the body is read. */
  #admit(request: IncomingMessage, endpoint: Endpoint, query: URLSearchParams): void {
    if (!endpoint.methods.includes(request.method!)) {
      const allow = endpoint.methods.join(', ');
      throw new PushRefusal(405, `this address takes ${allow}`, undefined, { Allow: allow });
    }
    if (this.#server.isStopping) throw tryLater('the agent is stopping', 5_000);
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
  }

  #demandSize(request: IncomingMessage): void {
    if ((promisedBytes(request) ?? 0) > this.#limits.bodyBytes) throw tooLarge(this.#limits.bodyBytes);
  }

  /** A whole body, from the wire to the disk. */
  async #take(
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
      expected: Math.ceil(bytes.length / BYTES_OF_WRITTEN_VALUE),
      isPartial: partial !== undefined,
      maxValues: MAX_VALUES,
    });
    try {
      read(bytes, draft);
    } finally {
      giveBack(bytes);
    }
    memory.set(BYTES_OF_REQUEST + draft.count * BYTES_OF_VALUE);
    const accepted = await intake.submit(draft, endpoint.source);
    this.#trouble.over('ingest.store_refused', {}, 'pushed values are taken again');
    return { accepted, refused: draft.problems.count, problems: draft.problems.listed };
  }

  async #takeStream(
    request: IncomingMessage,
    encoding: string | undefined,
    endpoint: Endpoint,
    read: ReadBody,
  ): Promise<PartialOutcome> {
    const { intake } = this.#options;
    const stream = new ValueStream({
      draft: () => intake.draft({ isPartial: true }),
      read,
      submit: (draft) => intake.submit(draft, endpoint.source),
      memory: this.#memory.reserve(),
      signal: this.#server.stopping,
    });
    const chunks = new BodyChunks(request);
    try {
      await stream.read(encoding === undefined ? chunks : inflated(chunks, encoding));
    } catch (error) {
      const refusal = refusalOf(error, this.#limits.bodyBytes) ?? new PushRefusal(400, 'the body broke off');
      const { status, message, hint, headers } = refusal;
      throw new PushRefusal(status, message.replace(/; nothing of .*/, ''), hint, headers, stream.outcome);
    } finally {
      chunks.release();
    }
    return stream.outcome;
  }

  #answerTaken(
    request: IncomingMessage,
    response: ServerResponse,
    { form }: Endpoint,
    { partial }: Reading,
    outcome: PartialOutcome,
  ): void {
    const { accepted, refused, problems } = outcome;
    const influx = form === 'influx1' ? INFLUX_HEADERS : {};
    if (partial === undefined || (partial === 'setting' && refused === 0)) {
      this.#answer(response, 204, influx);
      return;
    }
    if (refused > 0) {
      const first = problems[0]?.problem;
      this.#trouble.again(
        { event: 'ingest.taken_in_part', accepted, refused, first },
        'some pushed values were refused',
      );
    }
    // Telegraf gives up on values of InfluxDB 1 only at these words, and repeats the batch otherwise.
    const error =
      form === 'influx1' && refused > 0 ? { error: `partial write: ${counted(refused, 'value')} dropped` } : {};
    const nothing = accepted === 0 && refused > 0;
    const body = { ...outcome, ...(nothing ? { error: 'no value of the request is right' } : error) };
    const text = `${JSON.stringify(body)}\n`;
    const headers = { ...influx, 'Content-Type': 'application/json' };
    answerEarly(request, response, { status: nothing ? 422 : 200, headers, text }, this.#options.clock);
  }

  /** `/ping`, `/health`, `/query`: what collectors ask beside writing. */
  async #look(
    request: IncomingMessage,
    response: ServerResponse,
    path: string,
    query: URLSearchParams,
    memory: Reservation,
  ): Promise<void> {
    if (path === '/ping' && query.get('verbose') !== 'true') return this.#answer(response, 204, INFLUX_HEADERS);
    if (path === '/ping')
      return this.#answer(response, 200, INFLUX_HEADERS, { version: INFLUX_HEADERS['X-Influxdb-Version'] });
    if (path === '/health') return this.#answer(response, 200, {}, HEALTH);
    const body = textOf(await readBody(request, BYTES_OF_REQUEST, memory));
    const statement = query.get('q') ?? new URLSearchParams(body).get('q');
    this.#answer(response, 200, INFLUX_HEADERS, answerQuery(statement));
  }

  #answer(response: ServerResponse, status: number, headers: Readonly<Record<string, string>>, body?: object): void {
    if (body === undefined) {
      response.writeHead(status, headers).end();
      return;
    }
    const text = `${JSON.stringify(body)}\n`;
    const length = Buffer.byteLength(text);
    response.writeHead(status, { ...headers, 'Content-Type': 'application/json', 'Content-Length': length }).end(text);
  }

  #refuse(request: IncomingMessage, response: ServerResponse, endpoint: Endpoint | undefined, error: unknown): void {
    const refusal =
      refusalOf(error, this.#limits.bodyBytes) ?? new PushRefusal(500, 'the agent failed to take the values');
    this.#say(refusal, request, error);
    const form = endpoint?.form ?? 'plain';
    const text = errorBody(refusal, form, error);
    const headers: Record<string, string> = { ...refusal.headers, 'Content-Type': 'application/json' };
    if (form === 'influx1') headers['X-Influxdb-Error'] = refusal.message.replaceAll(/[^\x20-\x7e]/g, '?');
    answerEarly(request, response, { status: refusal.status, headers, text }, this.#options.clock);
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
        { ...fields, event: 'ingest.failed', error: messageOf(error) },
        'a request failed for no reason that was foreseen',
      );
    } else if (status === 503) {
      this.#trouble.again(
        { event: 'ingest.store_refused', ...fields },
        'pushed values were refused: nothing can be stored now',
      );
    } else {
      this.#trouble.again({ event: 'ingest.refused', ...fields }, 'pushed values were refused', String(status));
    }
  }
}

function splitOnce(text: string, at: string): [string, string | undefined] {
  const found = text.indexOf(at);
  return found < 0 ? [text, undefined] : [text.slice(0, found), text.slice(found + 1)];
}
