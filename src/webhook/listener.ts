import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../base/clock.ts';
import { announce } from '../base/crash-points.ts';
import { codeOf, messageOf, StoreError } from '../base/errors.ts';
import { answerEarly, BodyError, type BodyFault, promisedBytes, readBody } from '../base/inbound/body.ts';
import type { InboundKind, InboundServer } from '../base/inbound/inbound-server.ts';
import { MemoryBudget } from '../base/inbound/memory-budget.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import { SIGNATURE_SHA1_HEADER, SIGNATURE_SHA256_HEADER } from '../contract/webhooks.ts';
import type { Arrivals } from './arrivals.ts';
import { readEvent } from './received-event.ts';
import { SELF_TEST_HEADER } from './self-test.ts';
import { type SignatureHeaders, signaturePresent, verifySignature } from './signature.ts';

export const WEBHOOK_LISTENER = {
  name: 'webhook',
  setting: 'WEBHOOK_LISTEN',
  code: 'webhook.listen',
} as const satisfies InboundKind;

/** Limits for requests. */
export interface RequestLimits {
  /** Maximum body size, in bytes. Larger bodies are rejected with 413. */
  bodyBytes: number;
  /** Maximum sustained number of requests per second: four times the target of 500 deliveries per second. */
  requestsPerSecond: number;
  burst: number;
  /** Maximum memory for request bodies in progress, in bytes. */
  bytesUnderWay: number;
  /**
   * Maximum duration of a commit, in milliseconds. If it is exceeded, the response is 503, before the sender's timeout
   * of 10 s.
   */
  commitMs: number;
}

export const REQUEST_LIMITS: RequestLimits = {
  bodyBytes: 1024 * 1024,
  requestsPerSecond: 2_000,
  burst: 4_000,
  bytesUnderWay: 32 * 1024 * 1024,
  commitMs: 8_000,
};

/** Rate limit that allows bursts. */
export class TokenBucket {
  readonly #perMs: number;
  readonly #max: number;
  #tokens: number;
  #atMs: number;

  constructor(perSecond: number, burst: number, monotonicMs: number) {
    this.#perMs = perSecond / 1000;
    this.#max = burst;
    this.#tokens = burst;
    this.#atMs = monotonicMs;
  }

  tryRemove(monotonicMs: number): boolean {
    this.#tokens = Math.min(this.#max, this.#tokens + (monotonicMs - this.#atMs) * this.#perMs);
    this.#atMs = monotonicMs;
    if (this.#tokens < 1) return false;
    this.#tokens--;
    return true;
  }
}

/**
 * Receives deliveries from the platform (platform 6.1). Responds 204 after the inbox has committed the event, and
 * before any reaction runs. The listener has no state on disk. After a crash, all events with a 204 response are on
 * disk, and the platform sends all other events again.
 *
 * Order of checks and their responses: rate of unsigned requests 429, path 404, method 405, no secret 503, announced
 * size 413, no signature 401. Then the body is read and verified: invalid signature 401, rate 429. Only verified bodies
 * are parsed. Requests without a valid signature have a separate rate limit.
 */
export interface ListenerOptions {
  server: InboundServer;
  /** Path of WEBHOOK_URL, as returned by `pathOf`. */
  path: string;
  acceptSha1: boolean;
  /** Whether signatures are stored with events, for the relay. */
  keepsSignatures?: boolean;
  limits?: Partial<RequestLimits>;
}

export type RejectReason =
  | 'aborted'
  | 'commit'
  | 'malformed'
  | 'method'
  | 'no_secret'
  | 'path'
  | 'rate'
  | 'self_test'
  | 'signature_missing'
  | 'signature_wrong'
  | 'too_large';

export interface ListenerParts {
  arrivals: Pick<Arrivals, 'store' | 'drained'>;
  /** Returns the valid secrets: several during a rotation, none until the first secret is known. */
  secrets: () => readonly string[];
  clock: Clock;
  log: Logger;
  /** `tagferry_events_rejected_total{reason}`. */
  rejected?: (reason: RejectReason) => void;
  /** Called with the body of a request whose signature is invalid. */
  forged?: (body: Uint8Array) => void;
  /** Called when a signature is valid. */
  verified?: () => void;
  /** Returns whether a request with this mark is part of the self-test. Only this process knows the mark. */
  isSelfTest?: (mark: string) => boolean;
}

const WARN_AGAIN_AFTER_MS = 24 * 3_600_000;

/** Returns the path of a WEBHOOK_URL. */
export function pathOf(webhookUrl: string | undefined): string {
  if (!webhookUrl) return '/webhook';
  return new URL(webhookUrl).pathname;
}

export class WebhookListener {
  readonly #options: ListenerOptions;
  readonly #parts: ListenerParts;
  readonly #limits: RequestLimits;
  readonly #verified: TokenBucket;
  readonly #unverified: TokenBucket;
  readonly #repeats = new Repeats();
  readonly #memory: MemoryBudget;
  #sha1WarnedAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: ListenerOptions, parts: ListenerParts) {
    this.#options = options;
    this.#parts = parts;
    this.#limits = { ...REQUEST_LIMITS, ...options.limits };
    const { requestsPerSecond, burst } = this.#limits;
    this.#verified = new TokenBucket(requestsPerSecond, burst, parts.clock.monotonicMs());
    this.#unverified = new TokenBucket(requestsPerSecond, burst, parts.clock.monotonicMs());
    const { server } = options;
    this.#memory = new MemoryBudget({
      maxBytes: this.#limits.bytesUnderWay,
      bodies: server.bodies,
      makeRoom: () => server.freeMemory(),
    });
  }

  /** Starts accepting deliveries. */
  start(): void {
    this.#options.server.handle({
      serve: (request, response, expectsContinue) => this.#respond(request, response, expectsContinue),
      malformed: (code) => this.#count('malformed', code),
    });
  }

  /** Stops accepting deliveries, and completes requests in progress. */
  async stop(): Promise<void> {
    await this.#options.server.suspend();
    await this.#parts.arrivals.drained();
  }

  async #respond(request: IncomingMessage, response: ServerResponse, expectsContinue: boolean): Promise<void> {
    const memory = this.#memory.reserve();
    // If the disk is slow, the insert completes after the response, and its memory is reserved until then.
    let insert: Promise<void> | undefined;
    try {
      const rejection = this.#rejectionByHead(request);
      if (rejection) return this.#reject(request, response, ...rejection);
      if (expectsContinue) response.writeContinue();
      const body = new Uint8Array(await readBody(request, this.#limits.bodyBytes, memory));
      const signatures = signatureHeaders(request);
      const verdict = verifySignature(signatures, body, this.#parts.secrets(), this.#options.acceptSha1);
      const nowMs = this.#parts.clock.monotonicMs();
      if (!verdict.ok) {
        if (!this.#unverified.tryRemove(nowMs)) return this.#reject(request, response, 429, 'rate');
        if (verdict.reason === 'wrong' && !this.#isSelfTest(request)) this.#parts.forged?.(body);
        return this.#reject(request, response, 401, `signature_${verdict.reason}`);
      }
      this.#parts.verified?.();
      if (!this.#verified.tryRemove(nowMs)) return this.#reject(request, response, 429, 'rate');
      if (verdict.algorithm === 'sha1') this.#warnOfSha1();
      const event = readEvent(body, this.#parts.clock.wallMs());
      insert = this.#parts.arrivals.store(this.#options.keepsSignatures ? { ...event, signatures } : event, 'push');
      await this.#inTime(insert);
      response.writeHead(204).end();
      announce('event.undispatched');
    } catch (error) {
      if (error instanceof BodyError) return this.#rejectUnread(request, response, error.fault);
      this.#reject(request, response, 503, 'commit', codeOf(error) ?? messageOf(error));
    } finally {
      await insert?.catch(() => {});
      memory.set(0);
    }
  }

  #rejectUnread(request: IncomingMessage, response: ServerResponse, fault: BodyFault): void {
    if (fault === 'aborted' || fault === 'given-up') this.#count('aborted');
    else if (fault === 'too-large') this.#reject(request, response, 413, 'too_large');
    else this.#reject(request, response, 503, 'rate');
  }

  /** Returns a rejection based on the request head, if any. */
  #rejectionByHead(request: IncomingMessage): [number, RejectReason] | undefined {
    const isSigned = signaturePresent(signatureHeaders(request), this.#options.acceptSha1);
    if (!isSigned && !this.#unverified.tryRemove(this.#parts.clock.monotonicMs())) return [429, 'rate'];
    if (requestPath(request) !== this.#options.path) return [404, 'path'];
    if (request.method !== 'POST') return [405, 'method'];
    if (this.#parts.secrets().length === 0) return [503, 'no_secret'];
    const promised = promisedBytes(request);
    if (promised !== undefined && promised > this.#limits.bodyBytes) return [413, 'too_large'];
    if (!isSigned) return [401, 'signature_missing'];
    return undefined;
  }

  /** Rejects with `inbox.slow` if the insert takes too long. The insert continues. */
  async #inTime(insert: Promise<void>): Promise<void> {
    const giveUp = Promise.withResolvers<never>();
    const cancel = this.#parts.clock.after(this.#limits.commitMs, () =>
      giveUp.reject(new StoreError('commit is taking too long', { code: 'inbox.slow', retryable: true })),
    );
    try {
      await Promise.race([insert, giveUp.promise]);
    } finally {
      cancel();
    }
  }

  #reject(
    request: IncomingMessage,
    response: ServerResponse,
    status: number,
    reason: RejectReason,
    why?: string,
  ): void {
    this.#count(this.#isSelfTest(request) ? 'self_test' : reason, why);
    const headers: Record<string, string> = { 'content-type': 'application/json' };
    if (status === 405) headers.allow = 'POST';
    if (status === 503 || status === 429) headers['retry-after'] = reason === 'rate' ? '1' : '10';
    answerEarly(request, response, { status, headers, text: `{"error":"${reason}"}\n` }, this.#parts.clock);
  }

  #isSelfTest(request: IncomingMessage): boolean {
    const mark = request.headers[SELF_TEST_HEADER];
    return typeof mark === 'string' && this.#parts.isSelfTest?.(mark) === true;
  }

  /** Counts a rejection and logs it. Repetitions are summarized. */
  #count(reason: RejectReason, why?: string): void {
    this.#parts.rejected?.(reason);
    if (reason === 'self_test') {
      this.#parts.log.debug({ event: 'webhook.self_test' }, 'self-test request rejected');
      return;
    }
    const count = this.#repeats.note(reason, this.#parts.clock.monotonicMs());
    if (count === undefined) return;
    const fields = { event: 'webhook.rejected', reason, ...(why ? { why } : {}), count };
    this.#parts.log.warn(fields, 'request to the webhook listener rejected');
  }

  #warnOfSha1(): void {
    const nowMs = this.#parts.clock.monotonicMs();
    if (nowMs - this.#sha1WarnedAtMs < WARN_AGAIN_AFTER_MS) return;
    this.#sha1WarnedAtMs = nowMs;
    this.#parts.log.warn(
      { event: 'webhook.sha1_accepted' },
      'delivery has only the deprecated SHA-1 signature, accepted because of WEBHOOK_ACCEPT_SHA1',
    );
  }
}

function signatureHeaders(request: IncomingMessage): SignatureHeaders {
  const sha256 = request.headers[SIGNATURE_SHA256_HEADER];
  const sha1 = request.headers[SIGNATURE_SHA1_HEADER];
  return { sha256: sha256?.toString(), sha1: sha1?.toString() };
}

/** Returns the path without the query, for all forms of a request target (RFC 9112 section 3.2). */
function requestPath(request: IncomingMessage): string | undefined {
  const target = request.url ?? '';
  if (target.startsWith('/')) return target.split('?', 1)[0];
  return URL.canParse(target) ? new URL(target).pathname : undefined;
}
