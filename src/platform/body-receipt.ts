import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import type { Dispatcher } from 'undici';
import type { Clock } from '../base/clock.ts';
import { codeOf } from '../base/errors.ts';

const CHANNEL = 'undici:client:sendHeaders';
const RESETS = new Set(['ECONNRESET', 'EPIPE']);
/**
 * Time for which a connection must stay open after a success. If a server closes a connection with unread bytes, it
 * resets the connection immediately, so the reset arrives in the same burst of packets as the response.
 */
const HANG_UP_MS = 10;
/**
 * Delay before the last byte is sent. A response that a server sends before it has read the whole post is detected if
 * it arrives within this time.
 */
const WITHHOLD_MS = 250;
/**
 * Delay before the last byte of a post in a rapid series. In such a series, each post starts within WITHHOLD_MS after
 * the previous post.
 */
const SERIES_WITHHOLD_MS = 25;
/** Interval between posts that use the longer delay on a connection in a rapid series. Reduces throughput by 2.5 %. */
const PROOF_INTERVAL_MS = 10_000;

/**
 * Tracks the connections used for posts. Finds the connection of each post and determines how long its last byte is
 * withheld.
 */
export class PostConnections {
  readonly #clock: Clock;
  #found: ((socket: Socket) => void) | undefined;
  /** End of the latest post that the server may have read; monotonic time in milliseconds. */
  #latestEndMs = Number.NEGATIVE_INFINITY;
  /**
   * End of the latest post that used the longer delay and may have been read, by connection; monotonic time in
   * milliseconds.
   */
  #provenMs = new WeakMap<Socket, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
    subscribe(CHANNEL, this.#onHeaders);
  }

  /**
   * Called in `onRequestStart`. `found` is called with the connection before the first byte is written. undici
   * publishes the connection only on its diagnostics channel, synchronously after `onRequestStart`, so the next message
   * belongs to this request.
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

  /** Records the end of a post that the server may have read. `withholdMs`: delay before its last byte. */
  read(socket: Socket, withholdMs: number): void {
    this.#latestEndMs = this.#clock.monotonicMs();
    if (withholdMs === WITHHOLD_MS) this.#provenMs.set(socket, this.#latestEndMs);
  }

  /**
   * Records that a server responded without having read a post. All connections then use the longer delay again,
   * because other servers may do the same.
   */
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
 * Detects a server that reports success without having read the whole request body. The last byte of the body is sent
 * WITHHOLD_MS or SERIES_WITHHOLD_MS after the kernel has accepted the other bytes. A response is early if part of it
 * arrives before the last byte is sent, or while this process still buffers bytes of the body. A request also counts as
 * unread if the server resets the connection within HANG_UP_MS after a success. Two kinds of proxies cannot be
 * distinguished from the platform: a proxy that reads the whole body and discards it, and a proxy whose response
 * arrives after the last byte was sent and is not followed by a reset.
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

  /** Whether the server cannot have read the whole body. Final once the response has ended. */
  get isUnread(): boolean {
    return this.#isEarly || this.#isHungUp;
  }

  /**
   * Size of the body in bytes, for the `content-length` header. Without this header, undici would use chunked encoding.
   */
  get length(): number {
    return this.#bytes.length;
  }

  /** Yields the body. undici requests the next chunk after the kernel has accepted the previous chunk. */
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

  /**
   * Delays the end of a successful response by HANG_UP_MS. Rejections are not delayed, because for example nginx sends
   * 413 before it has read the body.
   */
  responseStarts(controller: Dispatcher.DispatchController, status: number): void {
    const socket = this.#socket;
    if (!socket) return;
    this.#isEarly ||= !this.#isSent || socket.writableLength > 0;
    if (this.#isEarly || status < 200 || status >= 300) return;
    const onEnd = () => this.endWait();
    // Run before undici's listener, which treats a paused response as incomplete.
    socket.prependOnceListener('end', onEnd);
    const cancelTimer = this.#afterPoll(HANG_UP_MS, onEnd);
    this.#cancel = () => {
      cancelTimer();
      socket.off('end', onEnd);
    };
    this.#resume = () => controller.resume();
    controller.pause();
  }

  /** Ends the delay of a successful response. */
  endWait(): void {
    const resume = this.#resume;
    this.#resume = undefined;
    this.#cancel();
    resume?.();
  }

  /**
   * `error` is undefined if the response is complete, or if undici ignores a reset after the announced length has
   * arrived.
   */
  responseEnds(error?: Error): void {
    this.#hasEnded = true;
    this.#release?.();
    if (this.#resume)
      this.#isHungUp = RESETS.has(codeOf(error) ?? '') || RESETS.has(codeOf(this.#socket?.errored) ?? '');
    this.#resume = undefined;
    this.#cancel();
    if (this.isUnread) this.#connections.unread();
    else if (this.#socket) this.#connections.read(this.#socket, this.#withholdMs);
    // Close the connection, because the next request could be sent only after the rest of this body.
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

  /**
   * Calls `call` after a delay and a subsequent poll of the sockets. After the event loop was blocked, timers run
   * before sockets are read.
   */
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
