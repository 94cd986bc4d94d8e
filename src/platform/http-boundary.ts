import { gunzipSync } from 'node:zlib';
import type { Clock } from '../base/clock.ts';
import { codeOf, PlatformError } from '../base/errors.ts';
import type { Redactor } from '../base/redactor.ts';
import type { Sockets } from './dispatcher.ts';
import { transportError } from './transport-errors.ts';

/** Outgoing request. `headers` are sent unchanged. */
export interface HttpRequest {
  method: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  url: URL;
  headers?: Readonly<Record<string, string>>;
  body?: Uint8Array | string;
  /** Secrets in the request, without encoding. They are removed from all text quoted from the response. */
  secrets?: readonly string[];
  signal?: AbortSignal | undefined;
  /** Timeout of the whole call, including connecting and receiving the response. Default: `DEADLINE_MS`. */
  deadlineMs?: number;
  /** Maximum size of the response text. Default: 4 MiB. */
  maxAnswerBytes?: number;
  /**
   * Whether the status alone determines the result, as for a post of values. A response is accepted once its status has
   * arrived, even if its body is incomplete.
   */
  statusSuffices?: boolean | undefined;
}

/** Response with any status. */
export interface PlatformAnswer {
  status: number;
  /**
   * Returns the value of a header. Names are case-insensitive; if a header occurs several times, the first value is
   * returned.
   */
  header(name: string): string | undefined;
  /** Body as text, truncated at the limit. */
  text: string;
  /** Removes all known secrets from text in this response. Must be applied to quoted text before it is truncated. */
  redact(text: string): string;
  /** Whether the body exceeded the limit. */
  truncated?: boolean;
}

export interface HttpBoundaryOptions {
  sockets: Sockets;
  clock: Clock;
  redactor: Redactor;
  /** Value of the `User-Agent` header. */
  userAgent: string;
}

/**
 * Default timeout of the whole call. Over a link with 64 kbit/s, a request of 480 kB takes 60 s before the platform can
 * respond. Shorter than the time for which a replaced token remains valid for calls in progress.
 */
const DEADLINE_MS = 90_000;
/** Default maximum size of the response text, larger than a page with a hundred deliveries and their payloads. */
const MAX_ANSWER_BYTES = 4 * 1024 * 1024;
/** Maximum size of the error text if the status alone determines the result. */
const MAX_WORDS_BYTES = 64 * 1024;

/**
 * Sends all HTTP requests to the platform. Sockets are kept alive per origin, and all waiting times and response sizes
 * are limited. Errors from undici and Node are converted to a retryable `PlatformError` with a stable code.
 *
 * A response that exceeds its size limit is truncated instead of rejected, because the status of a post determines the
 * result.
 */
export class HttpBoundary {
  readonly #options: HttpBoundaryOptions;
  /** Origins whose latest response was a 5xx. */
  readonly #failing = new Set<string>();

  constructor(options: HttpBoundaryOptions) {
    this.#options = options;
  }

  /**
   * Sends a request and returns the response, regardless of its status. Throws `PlatformError` if there is no response.
   */
  async send(request: HttpRequest): Promise<PlatformAnswer> {
    const { origin } = request.url;
    if (request.signal?.aborted) throw abortedError(origin, request.signal.reason);
    this.#options.redactor.learn(...(request.secrets ?? []));
    try {
      return await this.#exchange(request);
    } catch (error) {
      throw transportError(error, origin, this.#options.sockets.proxyOf?.(request.url));
    }
  }

  /** Closes all sockets. Calls in progress fail with `platform.aborted`. */
  async close(): Promise<void> {
    await this.#options.sockets.destroy();
  }

  #exchange(request: HttpRequest): Promise<PlatformAnswer> {
    const { sockets, clock, userAgent, redactor } = this.#options;
    const { url, signal, statusSuffices = false } = request;
    const failing = this.#failing;
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
      signal?.removeEventListener('abort', onAbort);
      settle();
    };
    const giveUp = (error: PlatformError) => {
      if (ended) return;
      if (answer && statusSuffices) finish(true);
      else end(() => reject(error));
      abortSocket?.(error);
    };
    const onAbort = () => giveUp(abortedError(url.origin, signal?.reason));
    const cancelDeadline = clock.after(request.deadlineMs ?? DEADLINE_MS, () => {
      const code = answer ? 'UND_ERR_BODY_TIMEOUT' : 'UND_ERR_HEADERS_TIMEOUT';
      giveUp(transportError({ code }, url.origin));
    });
    signal?.addEventListener('abort', onAbort, { once: true });
    // undici releases the socket two event loop turns after the response. A request sent earlier would open another
    // connection.
    const finish = (truncated: boolean) =>
      end(() =>
        setImmediate(setImmediate, () =>
          resolve(toAnswer(answer!, Buffer.concat(chunks), { truncated, maxBytes }, redactor)),
        ),
      );

    sockets.dispatch(
      {
        origin: url.origin,
        path: url.pathname + url.search,
        method: request.method,
        headers: { 'user-agent': userAgent, accept: 'application/json', ...request.headers },
        body: request.body ?? null,
        // The deadline of the call covers headers and body.
        headersTimeout: 0,
        bodyTimeout: 0,
        // After a 5xx, close the connection, because the host name may resolve to another address.
        reset: this.#failing.has(url.origin),
      },
      {
        onRequestStart(controller) {
          // The call ended while it was waiting for a socket, so the request must not be sent.
          if (ended) return controller.abort(abortedError(url.origin, undefined));
          abortSocket = (reason) => controller.abort(reason);
        },
        onResponseStart(_controller, status, headers) {
          // 1xx responses are informational.
          if (status < 200 || ended) return;
          answer = { status, headers: headers as Headers };
          if (status >= 500) failing.add(url.origin);
          else failing.delete(url.origin);
        },
        onResponseData(controller, chunk) {
          if (ended) return;
          const room = maxBytes - bytes;
          chunks.push(chunk.length > room ? chunk.subarray(0, room) : chunk);
          bytes += Math.min(chunk.length, room);
          if (chunk.length <= room) return;
          finish(true);
          controller.abort(new Error('the response exceeds the size limit'));
        },
        onResponseEnd() {
          finish(false);
        },
        onResponseError(_controller, error) {
          if (answer && statusSuffices) return finish(true);
          // Only the CONNECT request to a proxy has this timeout.
          const isProxyTimeout = codeOf(error) === 'UND_ERR_HEADERS_TIMEOUT';
          end(() => reject(isProxyTimeout ? { code: 'UND_ERR_CONNECT_TIMEOUT' } : error));
        },
      },
    );
    return promise;
  }
}

type Headers = Record<string, string | string[] | undefined>;

/**
 * Converts a complete response. Some servers use gzip without being requested. A body that expands beyond `maxBytes` is
 * reported as truncated; a body in another format keeps its `content-encoding`.
 */
function toAnswer(
  head: { status: number; headers: Headers },
  bytes: Buffer,
  { truncated, maxBytes }: { truncated: boolean; maxBytes: number },
  redactor: Redactor,
): PlatformAnswer {
  let { headers } = head;
  const isZipped = /^\s*(x-)?gzip\s*$/i.test(String(headers['content-encoding']));
  let body = bytes;
  let isCut = truncated;
  if (isZipped && bytes.length > 0 && !truncated) {
    try {
      body = gunzipSync(bytes, { maxOutputLength: maxBytes });
    } catch {
      body = Buffer.alloc(0);
      isCut = true;
    }
    headers = { ...headers, 'content-encoding': undefined, 'content-length': String(body.length) };
  }
  return {
    status: head.status,
    header(name) {
      const value = headers[name.toLowerCase()];
      return Array.isArray(value) ? value[0] : value;
    },
    text: body.toString('utf8'),
    redact: (text) => redactor.redact(text),
    ...(isCut ? { truncated: true } : {}),
  };
}

function abortedError(origin: string, reason: unknown): PlatformError {
  return new PlatformError(`request to ${origin} aborted`, {
    code: 'platform.aborted',
    retryable: true,
    cause: reason,
  });
}
