/** What this side asks of a broker on one connection, and the answers: SUBSCRIBE, UNSUBSCRIBE, PUBLISH of QoS 1. */
import type { ISubscription, Packet, UserProperties } from 'mqtt-packet';
import { BrokerError } from './broker-error.ts';

const ANSWER_TIMEOUT_MS = 10_000;
const MAX_IDS = 65_535;
const TOO_LARGE = 0x95;

interface Waiting {
  resolve(codes: number[]): void;
  reject(error: unknown): void;
}

export class Exchanges {
  readonly #send: (packet: Packet) => void;
  readonly #waiting = new Map<number, Waiting>();
  #nextId = 1;
  #ended: { reason: unknown } | undefined;
  /** Publishes that the broker takes unconfirmed, and those who wait for a place. */
  #places = MAX_IDS;
  #queue: (() => void)[] = [];

  constructor(send: (packet: Packet) => void) {
    this.#send = send;
  }

  /** How many messages the broker takes before it has confirmed one (MQTT 5, Receive Maximum). */
  allow(receiveMaximum: number | undefined): void {
    this.#places = Math.min(MAX_IDS, receiveMaximum ?? MAX_IDS);
  }

  subscribe(subscriptions: ISubscription[]): Promise<number[]> {
    return this.#ask((messageId) => ({ cmd: 'subscribe', messageId, subscriptions }) as Packet);
  }

  async unsubscribe(unsubscriptions: string[]): Promise<void> {
    await this.#ask((messageId) => ({ cmd: 'unsubscribe', messageId, unsubscriptions }) as Packet);
  }

  async publish(
    message: { topic: string; payload: Buffer; retain: boolean; properties?: { userProperties: UserProperties } },
    signal?: AbortSignal,
  ): Promise<void> {
    while (this.#places === 0) await new Promise<void>((resolve) => this.#queue.push(resolve));
    this.#places--;
    try {
      const packet = (messageId: number) => ({ cmd: 'publish', messageId, qos: 1, dup: false, ...message }) as Packet;
      const [code = 0] = await this.#ask(packet, signal);
      // 0x10 is: taken, and nobody listens.
      if (code >= 0x80) {
        const why = code === TOO_LARGE ? 'broker.too_large' : 'broker.publish';
        throw new BrokerError(`the broker refuses the message (reason ${code})`, { code: why });
      }
    } finally {
      this.#places++;
      this.#queue.shift()?.();
    }
  }

  /** An answer came; one that nobody waits for any more means nothing. */
  answered(packet: Packet): void {
    const { messageId } = packet;
    const waiting = messageId === undefined ? undefined : this.#waiting.get(messageId);
    if (!waiting) return;
    this.#waiting.delete(messageId!);
    const codes = 'granted' in packet ? (packet.granted as (number | { qos: number })[]) : undefined;
    if (codes) waiting.resolve(codes.map((code) => (typeof code === 'number' ? code : code.qos)));
    else waiting.resolve([Number((packet as { reasonCode?: number }).reasonCode ?? 0)]);
  }

  /** The connection is over. */
  end(reason: unknown): void {
    this.#ended ??= { reason };
    for (const { reject } of this.#waiting.values()) reject(reason);
    this.#waiting.clear();
    for (const go of this.#queue.splice(0)) go();
  }

  async #ask(packet: (messageId: number) => Packet, signal?: AbortSignal): Promise<number[]> {
    if (this.#ended) throw this.#ended.reason;
    const messageId = this.#freeId();
    const cut = AbortSignal.any([AbortSignal.timeout(ANSWER_TIMEOUT_MS), ...(signal ? [signal] : [])]);
    let onAbort = () => {};
    try {
      return await new Promise<number[]>((resolve, reject) => {
        onAbort = () => reject(cut.reason);
        cut.addEventListener('abort', onAbort, { once: true });
        this.#waiting.set(messageId, { resolve, reject });
        this.#send(packet(messageId));
      });
    } finally {
      // The id of one that was not answered is not used again on this connection while it is remembered.
      cut.removeEventListener('abort', onAbort);
    }
  }

  #freeId(): number {
    for (let tries = 0; tries < MAX_IDS; tries++) {
      const id = this.#nextId;
      this.#nextId = id === MAX_IDS ? 1 : id + 1;
      if (!this.#waiting.has(id)) return id;
    }
    throw new BrokerError('the broker answers nothing', { code: 'broker.busy', retryable: true });
  }
}
