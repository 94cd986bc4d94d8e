/**
 * Requests of this client on one connection and their responses: SUBSCRIBE, UNSUBSCRIBE, PUBLISH with QoS 1.
 *
 * Invariants: a packet ID is free after the broker has responded to it. A publish counts towards the broker's receive
 * maximum from its PUBLISH packet until its PUBACK, even if its caller is no longer waiting (MQTT 5 section 4.9).
 */
import type { IPublishPacket, Packet } from 'mqtt-packet';
import { type Clock, raced } from '../base/clock.ts';
import { BrokerError, brokerSilent } from './broker-error.ts';

/** Time within which the broker must respond to a request. */
const RESPONSE_TIMEOUT_MS = 10_000;
/** Interval at which callers check whether the broker accepts another publish, in milliseconds. */
const PLACE_CHECK_MS = 10;
const MAX_IDS = 65_535;
/** Maximum number of unacknowledged publishes per connection. */
const MAX_PUBLISHES = 1_000;
const TOO_LARGE = 0x95;

/** Kind of the requests without a response: any publish, only subscriptions (or their ends), or none. */
export type PendingRequests = 'none' | 'subscriptions' | 'publishes';

interface Pending extends PromiseWithResolvers<number[]> {
  isPublish: boolean;
  sentMs: number;
}

export class Exchanges {
  readonly #clock: Clock;
  readonly #send: (packet: Packet) => void;
  /** Unanswered requests, in the order in which they were sent. */
  readonly #pending = new Map<number, Pending>();
  #publishes = 0;
  #nextId = 1;
  readonly #ending = new AbortController();
  /** Number of unacknowledged publishes that the broker accepts (MQTT 5, Receive Maximum). */
  receiveMaximum = MAX_PUBLISHES;

  constructor(clock: Clock, send: (packet: Packet) => void) {
    this.#clock = clock;
    this.#send = send;
  }

  /**
   * Resolves when the broker acknowledges the message. Rejects with a `BrokerError`, the reason why the connection
   * ended, or the abort reason of the signal.
   */
  async publish(message: Pick<IPublishPacket, 'topic' | 'payload' | 'retain' | 'properties'>, signal?: AbortSignal) {
    const cut = AbortSignal.any([this.#ending.signal, ...(signal ? [signal] : [])]);
    const deadlineMs = this.#clock.monotonicMs() + RESPONSE_TIMEOUT_MS;
    cut.throwIfAborted();
    while (this.#publishes >= Math.min(this.receiveMaximum, MAX_PUBLISHES)) {
      if (this.#clock.monotonicMs() >= deadlineMs) throw brokerSilent();
      await this.#clock.sleep(PLACE_CHECK_MS, cut);
    }
    const [code = 0] = await raced(this.request({ cmd: 'publish', qos: 1, dup: false, ...message }, true), cut);
    // 0x10: accepted, but there are no subscribers.
    if (code >= 0x80) {
      const why = code === TOO_LARGE ? 'broker.too_large' : 'broker.publish';
      throw new BrokerError(`the broker rejected the message (reason ${code})`, { code: why });
    }
  }

  get pending(): PendingRequests {
    if (this.#publishes > 0) return 'publishes';
    return this.#pending.size > 0 ? 'subscriptions' : 'none';
  }

  /** Handles a response. Ignores a response that does not belong to a request. */
  handleResponse(packet: Packet): void {
    const pending = packet.messageId === undefined ? undefined : this.#pending.get(packet.messageId);
    if (!pending) return;
    this.#pending.delete(packet.messageId!);
    if (pending.isPublish) this.#publishes--;
    const { granted, reasonCode = 0 } = packet as { granted?: number[]; reasonCode?: number };
    pending.resolve(granted ?? [reasonCode]);
  }

  /**
   * Rejects publishes without a timely response. Throws `broker.silent` if a subscription has none. `readingSinceMs`:
   * monotonic time since which responses can be read.
   */
  checkResponses(readingSinceMs: number): void {
    const latestMs = this.#clock.monotonicMs() - RESPONSE_TIMEOUT_MS;
    for (const { isPublish, sentMs, reject } of this.#pending.values()) {
      if (Math.max(sentMs, readingSinceMs) > latestMs) continue;
      if (!isPublish) throw brokerSilent();
      reject(brokerSilent());
    }
  }

  /** Rejects all pending requests when the connection ends. */
  end(reason: unknown): void {
    this.#ending.abort(reason);
    for (const { reject } of this.#pending.values()) reject(reason);
  }

  /** Sends a request. Resolves with the reason codes of its response; rejects when the connection ends. */
  async request(packet: object, isPublish = false): Promise<number[]> {
    this.#ending.signal.throwIfAborted();
    // There are always far fewer requests than IDs.
    while (this.#pending.has(this.#nextId)) this.#nextId = (this.#nextId % MAX_IDS) + 1;
    const messageId = this.#nextId;
    this.#send({ ...packet, messageId } as Packet);
    const pending = { ...Promise.withResolvers<number[]>(), isPublish, sentMs: this.#clock.monotonicMs() };
    this.#pending.set(messageId, pending);
    if (isPublish) this.#publishes++;
    return pending.promise;
  }
}
