/**
 * Subscriptions of this process. The broker session has the same filters, except while the process is stopped, because
 * shutdown changes nothing, so the broker continues to store messages. After a configuration change, only the
 * differences are sent.
 */
import type { Message } from './connection.ts';
import { covers, hasWildcard, MQTT_TOPICS } from './topic-filters.ts';

/** Handles a message. Resolves when it is stored or can be discarded; rejects if it must be delivered again. */
export type MessageHandler = (message: Message) => Promise<void>;

export interface SubscribeOptions {
  qos?: 0 | 1 | 2;
  /** Group of clients that share the messages of this subscription. */
  share?: string;
  /** Called when the broker is waiting for an acknowledgement, so that an early commit is useful. */
  stalled?(): void;
  /** Called if the broker does not allow this filter. */
  rejected?(): void;
  /** Whether no more messages should be read. */
  isFull?(): boolean;
}

export interface Subscription extends SubscribeOptions {
  /** Filter against which topics are matched. */
  filter: string;
  handler: MessageHandler;
}

/** QoS by filter, as requested from the broker. */
export type Filters = ReadonlyMap<string, 0 | 1 | 2>;

export class Subscriptions {
  readonly #all = new Set<Subscription>();
  /** Subscriptions without wildcards by topic, so that thousands of them require only one lookup. */
  readonly #exact = new Map<string, Set<Subscription>>();
  readonly #wild = new Set<Subscription>();

  add(subscription: Subscription): void {
    this.#all.add(subscription);
    const { filter } = subscription;
    if (hasWildcard(filter, MQTT_TOPICS)) this.#wild.add(subscription);
    else this.#exact.set(filter, (this.#exact.get(filter) ?? new Set()).add(subscription));
  }

  clear(): void {
    for (const one of [...this.#all]) this.delete(one);
  }

  /** Returns `false` if the subscription did not exist. */
  delete(subscription: Subscription): boolean {
    const same = this.#exact.get(subscription.filter);
    if (same?.delete(subscription) && same.size === 0) this.#exact.delete(subscription.filter);
    this.#wild.delete(subscription);
    return this.#all.delete(subscription);
  }

  /** Returns the handlers of a topic, each once even if several of its filters match. */
  handlersOf(topic: string): readonly MessageHandler[] {
    const handlers: MessageHandler[] = [];
    const add = ({ handler }: Subscription) => void (handlers.includes(handler) || handlers.push(handler));
    this.#exact.get(topic)?.forEach(add);
    for (const one of this.#wild) if (covers(one.filter, topic, MQTT_TOPICS)) add(one);
    return handlers;
  }

  /** Returns the filters to subscribe to and to unsubscribe from, given the filters of the session. */
  difference(granted: Filters): { added: [filter: string, qos: 0 | 1 | 2][]; removed: string[] } {
    const wanted = new Map<string, 0 | 1 | 2>();
    for (const one of this.#all) {
      const requested = requestedFilter(one);
      wanted.set(requested, Math.max(one.qos ?? 1, wanted.get(requested) ?? 0) as 0 | 1 | 2);
    }
    return {
      added: [...wanted].filter(([filter, qos]) => granted.get(filter) !== qos),
      removed: [...granted.keys()].filter((filter) => !wanted.has(filter)),
    };
  }

  notifyRejected(requested: string): void {
    for (const one of [...this.#all]) if (requestedFilter(one) === requested) one.rejected?.();
  }

  /** Whether a subscriber cannot accept more messages. */
  get isFull(): boolean {
    for (const one of this.#all) if (one.isFull?.()) return true;
    return false;
  }

  notifyStalled(): void {
    for (const tell of new Set([...this.#all].map(({ stalled }) => stalled))) tell?.();
  }
}

const requestedFilter = ({ filter, share }: Subscription) =>
  share === undefined ? filter : `$share/${share}/${filter}`;

/**
 * Separate client for inspecting the messages that a broker stores and sends. Does not consume the agent's messages.
 */
export interface InspectionClient {
  subscribe(
    filter: string,
    handler: (message: { topic: string; payload: Uint8Array; headers?: ReadonlyMap<string, string> }) => Promise<void>,
    options?: SubscribeOptions,
  ): unknown;
  start(): void;
  state(): { connected: boolean; problem: string | undefined };
  /** Disconnects and leaves no session behind. */
  leave(): Promise<void>;
}
