import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Clock } from '../base/clock.ts';
import { codeOf, messageOf, StoreError } from '../base/errors.ts';
import { answerEarly, BodyError, type BodyFault, promisedBytes, readBody } from '../base/inbound/body.ts';
import type { CertificateFiles } from '../base/inbound/certificate.ts';
import { InboundServer } from '../base/inbound/inbound-server.ts';
import { MemoryBudget } from '../base/inbound/memory-budget.ts';
import type { ListenAddress } from '../base/listen.ts';
import type { Logger } from '../base/logger.ts';
import { Repeats } from '../base/repeats.ts';
import { SIGNATURE_SHA1_HEADER, SIGNATURE_SHA256_HEADER } from '../contract/webhooks.ts';
import type { ForeignSecret } from './foreign-secret.ts';
import { GroupCommit, type InsertMany } from './group-commit.ts';
import { LISTENER_LIMITS, type ListenerLimits, TokenBucket } from './listener-limits.ts';
import { arrivalLine, readEvent } from './received-event.ts';
import { SELF_TEST_HEADER } from './self-test.ts';
import { type SignatureHeaders, signaturePresent, verifySignature } from './signature.ts';

/**
 * Takes the platform's deliveries (docs/interface.md, "Webhook listener"; platform 6.1). A delivery is answered 204 only after the
 * inbox has committed it, and before any reaction. The listener keeps nothing: after a crash at any point the platform
 * either has its 204 and the event is on disk, or has none and sends again.
 *
 * Order of refusals, cheapest first: what bears no signature over its rate 429, path 404, method 405, no secret known 503, promised
 * size 413, no signature 401; only then is the body read, and its signature checked: wrong 401, over the rate 429. Only a signed body
 * is parsed. Strangers, with a forged signature or none, have a rate of their own: a flood of theirs crowds out no delivery.
 */
export interface ListenerOptions {
  listen: ListenAddress;
  /** Path of WEBHOOK_URL; `pathOf` makes it. */
  path: string;
  tls?: CertificateFiles | undefined;
  acceptSha1: boolean;
  /** Signatures are kept with their events, for a relay. */
  keepsSignatures?: boolean;
  limits?: Partial<ListenerLimits>;
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
  insertMany: InsertMany;
  /** Every secret that is valid now; several during a rotation, none before the first is known. */
  secrets: () => readonly string[];
  clock: Clock;
  log: Logger;
  /** `tagferry_events_received_total{event_type}`: new ones; `unrecognised` where nobody knows the type. */
  received?: (eventType: string) => void;
  /** `tagferry_events_rejected_total{reason}`. */
  rejected?: (reason: RejectReason) => void;
  /** Something new is in the inbox: the runner may look. */
  inserted?: () => void;
  /** Learns of good and of wrong signatures. */
  foreignSecret?: Pick<ForeignSecret, 'accepted' | 'rejected'>;
  /** Whether a request is one of our own self-test: nobody else can know its mark. Its refusal is what the test wants to see. */
  isSelfTest?: (mark: string) => boolean;
}

const SAY_AGAIN_AFTER_MS = 24 * 3_600_000;

/** The path to listen on for a WEBHOOK_URL. */
export function pathOf(webhookUrl: string | undefined): string {
  if (!webhookUrl) return '/webhook';
  return new URL(webhookUrl).pathname;
}

export class WebhookListener {
  readonly #options: ListenerOptions;
  readonly #parts: ListenerParts;
  readonly #limits: ListenerLimits;
  readonly #commit: GroupCommit;
  readonly #bucket: TokenBucket;
  readonly #strangers: TokenBucket;
  readonly #repeats = new Repeats();
  readonly #server: InboundServer;
  readonly #memory: MemoryBudget;
  #stopped: Promise<void> | undefined;
  #sha1SaidAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: ListenerOptions, parts: ListenerParts) {
    this.#options = options;
    this.#parts = parts;
    this.#limits = { ...LISTENER_LIMITS, ...options.limits };
    this.#commit = new GroupCommit(parts.insertMany, this.#limits.waiting);
    const { requestsPerSecond, burst } = this.#limits;
    this.#bucket = new TokenBucket(requestsPerSecond, burst, parts.clock.monotonicMs());
    this.#strangers = new TokenBucket(requestsPerSecond, burst, parts.clock.monotonicMs());
    this.#server = new InboundServer({
      name: 'webhook',
      address: options.listen,
      setting: 'WEBHOOK_LISTEN',
      code: 'webhook.listen',
      tls: options.tls,
      limits: this.#limits,
      clock: parts.clock,
      log: parts.log,
      serve: (request, response, asksFirst) => void this.#answer(request, response, asksFirst),
      malformed: (code) => this.#count('malformed', code),
    });
    this.#memory = new MemoryBudget({
      maxBytes: this.#limits.bytesUnderWay,
      bodies: this.#server.bodies,
      makeRoom: () => this.#server.freeMemory(),
    });
  }

  /** Listens. Throws `webhook.listen` or `listener.certificate`. Stops when the signal fires. */
  async start(signal?: AbortSignal): Promise<void> {
    await this.#server.start();
    signal?.addEventListener('abort', () => void this.stop(), { once: true });
    if (signal?.aborted) await this.stop();
  }

  /** Where it listens, after `start`. */
  address(): AddressInfo | string | null {
    return this.#server.socketAddress;
  }

  /** Takes no new connections, finishes what is under way within `stopMs`, closes. */
  stop(): Promise<void> {
    this.#stopped ??= this.#server.stop().then(() => this.#commit.drained());
    return this.#stopped;
  }

  async #answer(request: IncomingMessage, response: ServerResponse, expectsContinue: boolean): Promise<void> {
    const memory = this.#memory.reserve();
    // Ends when the event needs no memory, which after a response of 503 for a slow disk comes later than the response.
    let insert: Promise<void> | undefined;
    try {
      const refusal = this.#refusalByHead(request);
      if (refusal) return this.#refuse(request, response, ...refusal);
      if (expectsContinue) response.writeContinue();
      const body = new Uint8Array(await readBody(request, this.#limits.bodyBytes, memory));
      const signatures = signatureHeaders(request);
      const verdict = verifySignature(signatures, body, this.#parts.secrets(), this.#options.acceptSha1);
      const nowMs = this.#parts.clock.monotonicMs();
      if (!verdict.ok) {
        if (!this.#strangers.take(nowMs)) return this.#refuse(request, response, 429, 'rate');
        if (verdict.reason === 'wrong' && !this.#isSelfTest(request)) this.#parts.foreignSecret?.rejected(body);
        return this.#refuse(request, response, 401, `signature_${verdict.reason}`);
      }
      this.#parts.foreignSecret?.accepted();
      if (!this.#bucket.take(nowMs)) return this.#refuse(request, response, 429, 'rate');
      if (verdict.algorithm === 'sha1') this.#saySha1();
      insert = this.#insert(body, signatures);
      await this.#inTime(insert);
      response.writeHead(204).end();
    } catch (error) {
      if (error instanceof BodyError) return this.#refuseUnread(request, response, error.fault);
      this.#refuse(request, response, 503, 'commit', codeOf(error) ?? messageOf(error));
    } finally {
      await insert?.catch(() => {});
      memory.set(0);
    }
  }

  #refuseUnread(request: IncomingMessage, response: ServerResponse, fault: BodyFault): void {
    if (fault === 'aborted' || fault === 'given-up') this.#count('aborted');
    else if (fault === 'too-large') this.#refuse(request, response, 413, 'too_large');
    else this.#refuse(request, response, 503, 'rate');
  }

  /** What can be refused before a byte of the body is read. */
  #refusalByHead(request: IncomingMessage): [number, RejectReason] | undefined {
    const isSigned = signaturePresent(signatureHeaders(request), this.#options.acceptSha1);
    if (!isSigned && !this.#strangers.take(this.#parts.clock.monotonicMs())) return [429, 'rate'];
    if (requestPath(request) !== this.#options.path) return [404, 'path'];
    if (request.method !== 'POST') return [405, 'method'];
    if (this.#parts.secrets().length === 0) return [503, 'no_secret'];
    const promised = promisedBytes(request);
    if (promised !== undefined && promised > this.#limits.bodyBytes) return [413, 'too_large'];
    if (!isSigned) return [401, 'signature_missing'];
    return undefined;
  }

  /** Counts the event when it is on disk, even if the response was 503 by then. */
  async #insert(body: Uint8Array, signatures: SignatureHeaders): Promise<void> {
    const read = readEvent(body, this.#parts.clock.wallMs());
    const event = this.#options.keepsSignatures ? { ...read, signatures } : read;
    if ((await this.#commit.insert(event)) === 'seen') {
      this.#parts.log.debug({ ...arrivalLine(event, 'push'), event: 'webhook.repeated' }, 'an event came again');
      return;
    }
    this.#parts.log.info(arrivalLine(event, 'push'), 'an event is in the inbox');
    this.#parts.received?.(event.unrecognised ? 'unrecognised' : event.eventType);
    this.#parts.inserted?.();
  }

  /** Rejects with `inbox.slow` if the insert takes too long. The insert continues. */
  async #inTime(insert: Promise<void>): Promise<void> {
    const giveUp = Promise.withResolvers<never>();
    const cancel = this.#parts.clock.after(this.#limits.commitMs, () =>
      giveUp.reject(new StoreError('the disk takes too long', { code: 'inbox.slow', retryable: true })),
    );
    try {
      await Promise.race([insert, giveUp.promise]);
    } finally {
      cancel();
    }
  }

  #refuse(
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

  /** Counts a refusal; in the rhythm of all repeats: whoever floods it does not fill the log. */
  #count(reason: RejectReason, why?: string): void {
    this.#parts.rejected?.(reason);
    if (reason === 'self_test') {
      this.#parts.log.debug({ event: 'webhook.self_test' }, 'a request of our own self-test was refused');
      return;
    }
    const count = this.#repeats.note(reason, this.#parts.clock.monotonicMs());
    if (count === undefined) return;
    const fields = { event: 'webhook.rejected', reason, ...(why ? { why } : {}), count };
    this.#parts.log.warn(fields, 'a request to the webhook listener was refused');
  }

  #saySha1(): void {
    const nowMs = this.#parts.clock.monotonicMs();
    if (nowMs - this.#sha1SaidAtMs < SAY_AGAIN_AFTER_MS) return;
    this.#sha1SaidAtMs = nowMs;
    this.#parts.log.warn(
      { event: 'webhook.sha1_accepted' },
      'a delivery came with the deprecated SHA-1 signature alone; it is accepted by WEBHOOK_ACCEPT_SHA1',
    );
  }
}

function signatureHeaders(request: IncomingMessage): SignatureHeaders {
  const sha256 = request.headers[SIGNATURE_SHA256_HEADER];
  const sha1 = request.headers[SIGNATURE_SHA1_HEADER];
  return { sha256: sha256?.toString(), sha1: sha1?.toString() };
}

/** The path without its query, whatever form the request line has (RFC 9112 section 3.2). */
function requestPath(request: IncomingMessage): string | undefined {
  const target = request.url ?? '';
  if (target.startsWith('/')) return target.split('?', 1)[0];
  return URL.canParse(target) ? new URL(target).pathname : undefined;
}
