import type { Readable } from 'node:stream';
import type { Clock } from '../base/clock.ts';
import { PlatformError } from '../base/errors.ts';
import type { Redactor } from '../base/redactor.ts';
import { BodyReceipt, PostConnections } from './body-receipt.ts';
import type { Sockets } from './dispatcher.ts';
import { transportError } from './transport-errors.ts';

/** One request as it goes out. `headers` are sent as they stand. */
export interface HttpRequest {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  url: URL;
  headers?: Readonly<Record<string, string>>;
  body?: Uint8Array | string;
  /** Secrets in the request, as they are before any encoding. Anything that quotes an answer has them removed. */
  secrets?: readonly string[];
  signal?: AbortSignal | undefined;
  /** Bound of the whole call, connection and answer included; `DEADLINE_MS` unless told. */
  deadlineMs?: number;
  /** Bound of the answer's text; 4 MiB unless told. */
  maxAnswerBytes?: number;
  /**
   * The status alone decides, as for a post of values: a response counts as soon as its status has arrived, however its body
   * ends. A success counts only if the server can have read the whole request (`platform.body_unread` otherwise).
   */
  statusSuffices?: boolean | undefined;
}

/** An answer of any status. */
export interface PlatformAnswer {
  status: number;
  /** A header's value by its name in any case; of several of one name the first. */
  header(name: string): string | undefined;
  /** The body as text, cut at the bound. */
  text: string;
  /** Removes every known secret from text of this answer. Everything that quotes an answer passes through it, before it is truncated. */
  redact(text: string): string;
  /** Whether the body was longer than the bound. */
  truncated?: boolean;
}

export interface HttpBoundaryOptions {
  sockets: Sockets;
  clock: Clock;
  redactor: Redactor;
  /** `User-Agent` of every call. */
  userAgent: string;
  headersTimeoutMs?: number;
  bodyTimeoutMs?: number;
}

/** A post of 480 kB over a 64 kbit/s link takes 60 s until the platform can begin to answer. */
const HEADERS_TIMEOUT_MS = 90_000;
/** Between two pieces of an answer. */
const BODY_TIMEOUT_MS = 30_000;
/** Of the whole call: against answers that drip. Less than the time that a renewed token leaves to its predecessor's calls. */
const DEADLINE_MS = 120_000;
/** A page of a hundred deliveries with their payloads stays below this. */
const MAX_ANSWER_BYTES = 4 * 1024 * 1024;
/** Where the status suffices: enough for the platform's words, and how long they are waited for. */
const MAX_WORDS_BYTES = 64 * 1024;
const WORDS_WITHIN_MS = 5_000;

/**
 * The one place where HTTP goes out: sockets are kept alive by origin, every wait is bounded, the answer's text is
 * bounded, and everything that undici and Node throw arrives as a `PlatformError` with a stable code, retryable.
 *
 * An answer whose body is longer than its bound still counts: the status decides what became of a post, whose answer counts
 * however its body ends.
 */
export class HttpBoundary {
  readonly #options: HttpBoundaryOptions;
  readonly #connections: PostConnections;
  #inFlight = 0;
  #closed = false;

  constructor(options: HttpBoundaryOptions) {
    this.#options = options;
    this.#connections = new PostConnections(options.clock);
  }

  /** Calls that have no answer yet. */
  get inFlight(): number {
    return this.#inFlight;
  }

  /** Sends one request and gives its answer, whatever the status. Throws `PlatformError` where there was none. */
  async send(request: HttpRequest): Promise<PlatformAnswer> {
    const { origin } = request.url;
    if (this.#closed) throw transportError({ code: 'UND_ERR_CLOSED' }, origin);
    if (request.signal?.aborted) throw abortedError(origin, request.signal.reason);
    this.#options.redactor.learn(...(request.secrets ?? []));
    this.#inFlight++;
    try {
      return await this.#exchange(request);
    } catch (error) {
      throw transportError(error, origin, this.#options.sockets.proxyOf?.(request.url));
    } finally {
      this.#inFlight--;
    }
  }

  /** Ends the sockets; calls under way fail as aborted. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#connections.close();
    await this.#options.sockets.destroy();
  }

  #exchange(request: HttpRequest): Promise<PlatformAnswer> {
    const { sockets, clock, userAgent, redactor } = this.#options;
    const { url, signal, statusSuffices = false } = request;
    const receipt =
      statusSuffices && request.body?.length ? new BodyReceipt(this.#connections, clock, request.body) : undefined;
    const maxBytes = request.maxAnswerBytes ?? (statusSuffices ? MAX_WORDS_BYTES : MAX_ANSWER_BYTES);
    const { promise, resolve, reject } = Promise.withResolvers<PlatformAnswer>();
    let ended = false;
    let abortSocket: ((reason: Error) => void) | undefined;
    let answer: { status: number; headers: Headers } | undefined;
    const chunks: Buffer[] = [];
    let bytes = 0;

    const end = (settle: () => void) => {
      if (ended) return;
      ended = true;
      cancelDeadline();
      cancelTail();
      signal?.removeEventListener('abort', onAbort);
      settle();
    };
    const giveUp = (error: PlatformError) => {
      if (!ended) receipt?.endWait();
      if (ended) return;
      if (answer && statusSuffices) finish(true);
      else end(() => reject(error));
      abortSocket?.(error);
    };
    let cancelTail = () => {};
    const onAbort = () => giveUp(abortedError(url.origin, signal?.reason));
    // A process that stood still, or a loop that is late, comes to its timers before it looks at its sockets: what has come by then counts.
    const cancelDeadline = clock.after(request.deadlineMs ?? DEADLINE_MS, () =>
      setImmediate(() => giveUp(answerTimeout())),
    );
    const answerTimeout = () =>
      transportError({ code: answer ? 'UND_ERR_BODY_TIMEOUT' : 'UND_ERR_HEADERS_TIMEOUT' }, url.origin);
    signal?.addEventListener('abort', onAbort, { once: true });
    // undici frees the socket two turns of the loop after the answer: a caller that sends its next request before that
    // would open another connection.
    const finish = (truncated: boolean) => end(() => setImmediate(setImmediate, () => settle(truncated)));
    const settle = (truncated: boolean) => {
      const { status } = answer!;
      // A success with a body is no success of a post, and its words are worth reading.
      const claimsSuccess = status >= 200 && status < 300 && bytes === 0;
      if (claimsSuccess && receipt?.isUnread) reject(unreadError(url.origin, status));
      else resolve(toAnswer(answer!, chunks, truncated, redactor));
    };

    sockets.dispatch(
      {
        origin: url.origin,
        path: url.pathname + url.search,
        method: request.method,
        headers: {
          'user-agent': userAgent,
          accept: 'application/json',
          ...request.headers,
          ...(receipt ? { 'content-length': String(receipt.length) } : {}),
        },
        // undici accepts any async iterable; its types name streams only.
        body: receipt ? (receipt.body() as unknown as Readable) : (request.body ?? null),
        headersTimeout: this.#options.headersTimeoutMs ?? HEADERS_TIMEOUT_MS,
        bodyTimeout: this.#options.bodyTimeoutMs ?? BODY_TIMEOUT_MS,
      },
      {
        onRequestStart(controller) {
          // Given up while it waited for a socket: it must not go out any more.
          if (ended) return controller.abort(abortedError(url.origin, undefined));
          abortSocket = (reason) => controller.abort(reason);
          receipt?.requestStarts();
        },
        onResponseStart(controller, status, headers) {
          // 1xx are no answers.
          if (status < 200 || ended) return;
          answer = { status, headers: headers as Headers };
          if (statusSuffices) cancelTail = clock.after(WORDS_WITHIN_MS, () => giveUp(answerTimeout()));
          receipt?.responseStarts(controller, status);
        },
        onResponseData(controller, chunk) {
          if (ended) return;
          const room = maxBytes - bytes;
          chunks.push(chunk.length > room ? chunk.subarray(0, room) : chunk);
          bytes += Math.min(chunk.length, room);
          if (chunk.length <= room) return;
          finish(true);
          controller.abort(new Error('the answer is longer than its bound'));
        },
        onResponseEnd() {
          receipt?.responseEnds();
          finish(false);
        },
        onResponseError(_controller, error) {
          receipt?.responseEnds(error);
          if (answer && statusSuffices) finish(true);
          else end(() => reject(error));
        },
      },
    );
    return promise;
  }
}

type Headers = Record<string, string | string[] | undefined>;

function toAnswer(
  head: { status: number; headers: Headers },
  chunks: Buffer[],
  truncated: boolean,
  redactor: Redactor,
): PlatformAnswer {
  return {
    status: head.status,
    header(name) {
      const value = head.headers[name.toLowerCase()];
      return Array.isArray(value) ? value[0] : value;
    },
    text: Buffer.concat(chunks).toString('utf8'),
    redact: (text) => redactor.redact(text),
    ...(truncated ? { truncated } : {}),
  };
}

function unreadError(origin: string, status: number): PlatformError {
  return new PlatformError(`${origin} responded with ${status} without reading the whole request`, {
    code: 'platform.body_unread',
    retryable: true,
    hint: 'Check for a proxy or firewall that responds in place of the platform.',
  });
}

function abortedError(origin: string, reason: unknown): PlatformError {
  return new PlatformError(`${origin} is not waited for any more`, {
    code: 'platform.aborted',
    retryable: true,
    cause: reason,
  });
}
