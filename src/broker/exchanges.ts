/**
 * Requests of this client on one connection and their responses: SUBSCRIBE, UNSUBSCRIBE, PUBLISH with QoS 1.
 *
 * Invariants: a packet ID is free after the broker has responded to it. A publish counts towards the broker's receive
 * maximum from its PUBLISH packet until its PUBACK, even if its caller is no longer waiting (MQTT 5 section 4.9). An
 * unanswered subscription ends the connection, because only the next connection repeats it.
 */
import type { ISubscription, Packet, UserProperties } from 'mqtt-packet';
import type { Clock } from '../base/clock.ts';
import { BrokerError, brokerSilent } from './broker-error.ts';

export interface ExchangeOptions {
  clock: Clock;
  send(packet: Packet): void;
  /** Returns the monotonic time since which the connection has been read; `undefined` while it is paused. */
  readingSinceMs(): number | undefined;
  /** Ends the connection. */
  fail(error: Error): void;
}

const RESPONSE_TIMEOUT_MS = 10_000;
/** Time without a PUBACK after which the connection is replaced if the receive maximum is reached. */
const STALLED_MS = 60_000;
const MAX_IDS = 65_535;
/** Maximum number of unacknowledged publishes per connection. */
const MAX_PLACES = 1_000;
const TOO_LARGE = 0x95;

interface Pending {
  isPublish: boolean;
  sentMs: number;
  resolve(codes: number[]): void;
  reject(error: unknown): void;
}

export class Exchanges {
  readonly #options: ExchangeOptions;
  /** Unanswered requests, in the order in which they were sent. */
  readonly #pending = new Map<number, Pending>();
  /** Callers waiting because the receive maximum is reached. */
  readonly #queue = new Set<PromiseWithResolvers<void>>();
  #places = MAX_PLACES;
  #nextId = 1;
  #ended: { reason: unknown } | undefined;

  constructor(options: ExchangeOptions) {
    this.#options = options;
  }

  /** Sets the number of unacknowledged publishes that the broker accepts (MQTT 5, Receive Maximum). */
  allow(receiveMaximum: number | undefined): void {
    this.#places = Math.min(MAX_PLACES, receiveMaximum ?? MAX_PLACES);
  }

  subscribe(subscriptions: ISubscription[]): Promise<number[]> {
    return this.#require((messageId) => ({ cmd: 'subscribe', messageId, subscriptions }) as Packet);
  }

  async unsubscribe(unsubscriptions: string[]): Promise<void> {
    await this.#require((messageId) => ({ cmd: 'unsubscribe', messageId, unsubscriptions }) as Packet);
  }

  /**
   * Resolves when the broker acknowledges the message. Rejects with a `BrokerError`, the reason why the connection
   * ended, or the abort reason of the signal.
   */
  async publish(
    message: { topic: string; payload: Buffer; retain: boolean; properties?: { userProperties: UserProperties } },
    signal?: AbortSignal,
  ): Promise<void> {
    await this.#reservePlace(signal);
    const packet = (messageId: number) => ({ cmd: 'publish', messageId, qos: 1, dup: false, ...message }) as Packet;
    const [code = 0] = await this.#within(RESPONSE_TIMEOUT_MS, this.#request(packet, true), signal);
    // 0x10: accepted, but there are no subscribers.
    if (code >= 0x80) {
      const why = code === TOO_LARGE ? 'broker.too_large' : 'broker.publish';
      throw new BrokerError(`the broker rejected the message (reason ${code})`, { code: why });
    }
  }

  /** Whether a request has no response yet. */
  get isResponsePending(): boolean {
    return this.#pending.size > 0;
  }

  /** Handles a response. Ignores a response that does not belong to a request. */
  handleResponse(packet: Packet): void {
    const pending = packet.messageId === undefined ? undefined : this.#pending.get(packet.messageId);
    if (!pending) return;
    this.#pending.delete(packet.messageId!);
    if (pending.isPublish) this.#releasePlace();
    const codes = 'granted' in packet ? (packet.granted as (number | { qos: number })[]) : undefined;
    if (codes) pending.resolve(codes.map((code) => (typeof code === 'number' ? code : code.qos)));
    else pending.resolve([Number((packet as { reasonCode?: number }).reasonCode ?? 0)]);
  }

  /** Rejects all pending requests when the connection ends. */
  end(reason: unknown): void {
    this.#ended ??= { reason };
    for (const { reject } of [...this.#pending.values(), ...this.#queue]) reject(reason);
    this.#pending.clear();
    this.#queue.clear();
  }

  async #reservePlace(signal: AbortSignal | undefined): Promise<void> {
    signal?.throwIfAborted();
    if (this.#places > 0) {
      this.#places--;
      return;
    }
    const place = Promise.withResolvers<void>();
    this.#queue.add(place);
    try {
      await this.#within(RESPONSE_TIMEOUT_MS, place.promise, signal);
    } catch (error) {
      // The slot may have been assigned in the same event loop turn as the abort.
      if (!this.#queue.delete(place)) this.#releasePlace();
      this.#endIfStalled();
      throw error;
    }
  }

  #releasePlace(): void {
    const [next] = this.#queue;
    if (next === undefined) this.#places++;
    else {
      this.#queue.delete(next);
      next.resolve();
    }
  }

  #endIfStalled(): void {
    const oldest = [...this.#pending.values()].find(({ isPublish }) => isPublish);
    if (oldest && this.#options.clock.monotonicMs() - oldest.sentMs >= STALLED_MS) this.#options.fail(brokerSilent());
  }

  /** Sends a request that is essential for the connection. */
  async #require(packet: (messageId: number) => Packet): Promise<number[]> {
    const { clock, readingSinceMs, fail } = this.#options;
    const sentMs = clock.monotonicMs();
    const response = this.#request(packet, false);
    for (;;) {
      try {
        return await this.#within(RESPONSE_TIMEOUT_MS, response, undefined);
      } catch (error) {
        if (this.#ended) throw this.#ended.reason;
        // The response cannot be read while the connection is paused.
        const sinceMs = Math.max(sentMs, readingSinceMs() ?? Number.POSITIVE_INFINITY);
        if (clock.monotonicMs() - sinceMs >= RESPONSE_TIMEOUT_MS) {
          fail(brokerSilent());
          throw error;
        }
      }
    }
  }

  #request(packet: (messageId: number) => Packet, isPublish: boolean): Promise<number[]> {
    if (this.#ended) return Promise.reject(this.#ended.reason);
    const messageId = this.#freeId();
    const { promise, resolve, reject } = Promise.withResolvers<number[]>();
    this.#pending.set(messageId, { isPublish, sentMs: this.#options.clock.monotonicMs(), resolve, reject });
    this.#options.send(packet(messageId));
    return promise;
  }

  /** Rejects after `ms` or with the abort reason of the signal. The awaited operation continues. */
  async #within<Result>(ms: number, promise: Promise<Result>, signal: AbortSignal | undefined): Promise<Result> {
    const limit = Promise.withResolvers<never>();
    const onAbort = () => limit.reject(signal?.reason);
    const cancel = this.#options.clock.after(ms, () => limit.reject(brokerSilent()));
    signal?.addEventListener('abort', onAbort, { once: true });
    if (signal?.aborted) onAbort();
    try {
      return await Promise.race([promise, limit.promise]);
    } finally {
      cancel();
      signal?.removeEventListener('abort', onAbort);
    }
  }

  /** Returns an unused packet ID. There are always far fewer requests than IDs. */
  #freeId(): number {
    while (this.#pending.has(this.#nextId)) this.#nextId = (this.#nextId % MAX_IDS) + 1;
    const id = this.#nextId;
    this.#nextId = (id % MAX_IDS) + 1;
    return id;
  }
}
