import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import type { Dispatcher } from 'undici';
import type { Clock } from '../base/clock.ts';
import { codeOf } from '../base/errors.ts';

const CHANNEL = 'undici:client:sendHeaders';
const RESETS = new Set(['ECONNRESET', 'EPIPE']);
/**
 * How long a connection must outlive a success. A server that closes a connection with unread bytes resets it at once: the
 * reset follows the response within the same burst of packets.
 */
const HANG_UP_MS = 10;
/** Delay of the last byte. A server that responds to the beginning of a post is detected if its response arrives within this time. */
const WITHHOLD_MS = 250;
/** Delay within a rapid series of posts: each is sent within WITHHOLD_MS after another one ended. */
const SERIES_WITHHOLD_MS = 25;
/** Interval at which a connection has a post withheld for WITHHOLD_MS within a series: it costs one fortieth of the throughput. */
const PROOF_INTERVAL_MS = 10_000;

/** The connections that posts are sent on: finds the connection of each post and determines how long its last byte is withheld. */
export class PostConnections {
  readonly #clock: Clock;
  #found: ((socket: Socket) => void) | undefined;
  /** Monotonic time at which the latest post ended that was read, in milliseconds. */
  #latestEndMs = Number.NEGATIVE_INFINITY;
  /** Monotonic time at which the latest post ended that was read and withheld for WITHHOLD_MS, in milliseconds. */
  #provenMs = new WeakMap<Socket, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
    subscribe(CHANNEL, this.#onHeaders);
  }

  /**
   * Called in `onRequestStart`: `found` receives the connection before the first byte is written. undici passes it to its
   * diagnostics channel only, right after `onRequestStart` and in the same call, so the next message belongs to this request.
   */
  next(found: (socket: Socket) => void): void {
    this.#found = found;
  }

  withholdMs(socket: Socket): number {
    const nowMs = this.#clock.monotonicMs();
    const isSeries = nowMs - this.#latestEndMs < WITHHOLD_MS;
    const isProven = nowMs - (this.#provenMs.get(socket) ?? Number.NEGATIVE_INFINITY) < PROOF_INTERVAL_MS;
    return isSeries && isProven ? SERIES_WITHHOLD_MS : WITHHOLD_MS;
  }

  /** A post whose last byte was withheld for `withholdMs` has ended, and the server can have read it. */
  read(socket: Socket, withholdMs: number): void {
    this.#latestEndMs = this.#clock.monotonicMs();
    if (withholdMs === WITHHOLD_MS) this.#provenMs.set(socket, this.#latestEndMs);
  }

  /** A server responded without having read a post: the servers at the other connections may do so too. */
  unread(): void {
    this.#provenMs = new WeakMap();
  }

  close(): void {
    unsubscribe(CHANNEL, this.#onHeaders);
  }

  readonly #onHeaders = (message: unknown): void => {
    const found = this.#found;
    this.#found = undefined;
    found?.((message as { socket: Socket }).socket);
  };
}

/**
 * Detects a server that reports success without having read the whole body of a request. The last byte of the body is sent
 * WITHHOLD_MS or SERIES_WITHHOLD_MS after the kernel accepted the other bytes. A response is early if any byte of it arrives before
 * the last byte is sent, or while bytes of the body are still in this process. A success is also unread if the server resets the
 * connection within HANG_UP_MS. Two kinds of proxies cannot be distinguished from the platform: a proxy that reads the body to its
 * end and discards it, and a proxy whose response arrives after the last byte was sent, without such a reset.
 */
export class BodyReceipt {
  readonly #clock: Clock;
  readonly #connections: PostConnections;
  readonly #bytes: Uint8Array;
  #socket: Socket | undefined;
  /** Bytes received on the connection before this request. */
  #bytesReadBefore = 0;
  #isSent = false;
  #withholdMs = 0;
  #isEarly = false;
  #isHungUp = false;
  #hasEnded = false;
  /** Set while the last byte is withheld. */
  #release: (() => void) | undefined;
  /** Set while a success waits for HANG_UP_MS. */
  #resume: (() => void) | undefined;
  #cancel = () => {};

  constructor(connections: PostConnections, clock: Clock, body: Uint8Array | string) {
    this.#connections = connections;
    this.#clock = clock;
    this.#bytes = typeof body === 'string' ? Buffer.from(body) : body;
  }

  /** Whether the server cannot have read the whole body; final when the response has ended. */
  get isUnread(): boolean {
    return this.#isEarly || this.#isHungUp;
  }

  /** Size of the body, in bytes. Without a `content-length` header undici would use chunked encoding. */
  get length(): number {
    return this.#bytes.length;
  }

  /** The body for undici, which requests the next chunk after the kernel has accepted the previous one. */
  async *body(): AsyncGenerator<Uint8Array> {
    if (this.#bytes.length > 1) {
      yield this.#bytes.subarray(0, -1);
      await this.#withhold();
      if (this.#hasEnded) throw new Error('the response ended before the request was sent');
    }
    this.#isSent = true;
    this.#isEarly ||= (this.#socket?.bytesRead ?? 0) > this.#bytesReadBefore;
    yield this.#bytes.subarray(-1);
  }

  requestStarts(): void {
    this.#connections.next((socket) => {
      this.#socket = socket;
      this.#bytesReadBefore = socket.bytesRead;
      this.#withholdMs = this.#connections.withholdMs(socket);
    });
  }

  /** Delays the end of a success by HANG_UP_MS. A refusal counts as it is: nginx sends 413 before it has read the body. */
  responseStarts(controller: Dispatcher.DispatchController, status: number): void {
    const socket = this.#socket;
    if (!socket) return;
    this.#isEarly ||= !this.#isSent || socket.writableLength > 0;
    if (this.#isEarly || status < 200 || status >= 300) return;
    const onEnd = () => this.endWait();
    // Before undici's own listener, which treats a response that is still paused as incomplete.
    socket.prependOnceListener('end', onEnd);
    const cancelTimer = this.#afterPoll(HANG_UP_MS, onEnd);
    this.#cancel = () => {
      cancelTimer();
      socket.off('end', onEnd);
    };
    this.#resume = () => controller.resume();
    controller.pause();
  }

  /** The success ends now unless its connection is closed: nothing more is waited for. */
  endWait(): void {
    const resume = this.#resume;
    this.#resume = undefined;
    this.#cancel();
    resume?.();
  }

  /** `error` is undefined if the response is complete, or if undici ignores a reset after an announced end. */
  responseEnds(error?: Error): void {
    this.#hasEnded = true;
    this.#release?.();
    if (this.#resume)
      this.#isHungUp = RESETS.has(codeOf(error) ?? '') || RESETS.has(codeOf(this.#socket?.errored) ?? '');
    this.#resume = undefined;
    this.#cancel();
    if (this.isUnread) this.#connections.unread();
    else if (this.#socket) this.#connections.read(this.#socket, this.#withholdMs);
    // The rest of the body is of no use, and the next request cannot be sent before it.
    if (this.#isEarly) this.#socket?.destroy();
  }

  async #withhold(): Promise<void> {
    if (this.#hasEnded) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const cancel = this.#afterPoll(this.#withholdMs, resolve);
    this.#release = resolve;
    await promise;
    this.#release = undefined;
    cancel();
  }

  /** After a stall, timers run before sockets are read: bytes that arrived during the delay are processed first. */
  #afterPoll(delayMs: number, call: () => void): () => void {
    let immediate: NodeJS.Immediate | undefined;
    const cancelTimer = this.#clock.after(delayMs, () => {
      immediate = setImmediate(call);
    });
    return () => {
      cancelTimer();
      clearImmediate(immediate);
    };
  }
}
