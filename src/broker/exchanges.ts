/**
 * Requests of this client on one connection and the broker's responses: SUBSCRIBE, UNSUBSCRIBE, PUBLISH of QoS 1.
 *
 * Invariants: a packet id is free again once the broker has responded to it. A publish occupies one place of the broker's receive maximum
 * from its packet until its PUBACK, whether or not its caller still waits (MQTT 5 section 4.9). A subscription without a response ends the
 * connection, because only the next connection repeats it.
 */
import type { ISubscription, Packet, UserProperties } from 'mqtt-packet';
import type { Clock } from '../base/clock.ts';
import { BrokerError, brokerSilent } from './broker-error.ts';

export interface ExchangeOptions {
  clock: Clock;
  send(packet: Packet): void;
  /** Monotonic time since which the connection has been read; `undefined` while it is paused. */
  readingSinceMs(): number | undefined;
  /** Ends the connection. */
  fail(error: Error): void;
}

const RESPONSE_TIMEOUT_MS = 10_000;
/** A broker that confirms no publish for this long gets a new connection, once all places are occupied. */
const STALLED_MS = 60_000;
const MAX_IDS = 65_535;
/** Unconfirmed publishes on one connection. */
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
  /** Requests without a response, in the order of sending. */
  readonly #pending = new Map<number, Pending>();
  /** Callers that wait for a place. */
  readonly #queue = new Set<PromiseWithResolvers<void>>();
  #places = MAX_PLACES;
  #nextId = 1;
  #ended: { reason: unknown } | undefined;

  constructor(options: ExchangeOptions) {
    this.#options = options;
  }

  /** Sets how many publishes the broker accepts before it has confirmed one (MQTT 5, Receive Maximum). */
  allow(receiveMaximum: number | undefined): void {
    this.#places = Math.min(MAX_PLACES, receiveMaximum ?? MAX_PLACES);
  }

  subscribe(subscriptions: ISubscription[]): Promise<number[]> {
    return this.#require((messageId) => ({ cmd: 'subscribe', messageId, subscriptions }) as Packet);
  }

  async unsubscribe(unsubscriptions: string[]): Promise<void> {
    await this.#require((messageId) => ({ cmd: 'unsubscribe', messageId, unsubscriptions }) as Packet);
  }

  /** Resolves with the broker's confirmation. Rejects with a `BrokerError`, the reason of the connection's end, or the signal's reason. */
  async publish(
    message: { topic: string; payload: Buffer; retain: boolean; properties?: { userProperties: UserProperties } },
    signal?: AbortSignal,
  ): Promise<void> {
    await this.#reservePlace(signal);
    const packet = (messageId: number) => ({ cmd: 'publish', messageId, qos: 1, dup: false, ...message }) as Packet;
    const [code = 0] = await this.#within(RESPONSE_TIMEOUT_MS, this.#request(packet, true), signal);
    // 0x10: accepted, and nobody has subscribed.
    if (code >= 0x80) {
      const why = code === TOO_LARGE ? 'broker.too_large' : 'broker.publish';
      throw new BrokerError(`the broker rejects the message (reason ${code})`, { code: why });
    }
  }

  /** The broker has not responded to every request. */
  get isAnswerPending(): boolean {
    return this.#pending.size > 0;
  }

  /** Ignores a response that belongs to no request. */
  answered(packet: Packet): void {
    const pending = packet.messageId === undefined ? undefined : this.#pending.get(packet.messageId);
    if (!pending) return;
    this.#pending.delete(packet.messageId!);
    if (pending.isPublish) this.#releasePlace();
    const codes = 'granted' in packet ? (packet.granted as (number | { qos: number })[]) : undefined;
    if (codes) pending.resolve(codes.map((code) => (typeof code === 'number' ? code : code.qos)));
    else pending.resolve([Number((packet as { reasonCode?: number }).reasonCode ?? 0)]);
  }

  /** Rejects everything that waits: the connection is over. */
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
      // The place may have arrived in the same turn as the abort.
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

  /** A request without which the connection is of no use. */
  async #require(packet: (messageId: number) => Packet): Promise<number[]> {
    const { clock, readingSinceMs, fail } = this.#options;
    const sentMs = clock.monotonicMs();
    const response = this.#request(packet, false);
    for (;;) {
      try {
        return await this.#within(RESPONSE_TIMEOUT_MS, response, undefined);
      } catch (error) {
        if (this.#ended) throw this.#ended.reason;
        // While the connection is paused the response cannot be read.
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

  /** Rejects after `ms`, or with the signal's reason. What is waited for goes on. */
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

  /** Places and subscriptions are far fewer than ids. */
  #freeId(): number {
    while (this.#pending.has(this.#nextId)) this.#nextId = (this.#nextId % MAX_IDS) + 1;
    const id = this.#nextId;
    this.#nextId = (id % MAX_IDS) + 1;
    return id;
  }
}
