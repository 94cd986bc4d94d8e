/**
 * What of a broker somebody here wants, and what its session holds. A stop changes neither: the broker goes on keeping
 * messages. A change of configuration sends the difference alone.
 */
import type { Message } from './connection.ts';
import { topicFits } from './topic-filter.ts';

/** Takes a message. Resolves when it is safe (on disk) or when it never will be of use; rejects to be asked again. */
export type MessageHandler = (message: Message) => Promise<void>;

export interface SubscribeOptions {
  qos?: 0 | 1 | 2;
  /** The group that shares the messages of this subscription. */
  share?: string;
  /** The broker gives nothing more before something is confirmed: a commit had better come early. */
  stalled?(): void;
  /** The broker does not allow this filter. */
  refused?(): void;
}

export interface Subscription extends SubscribeOptions {
  /** What topics are matched with. */
  filter: string;
  handler: MessageHandler;
}

/** As the broker is asked, by what it is asked for: the QoS. */
export type Filters = ReadonlyMap<string, 0 | 1 | 2>;

/** Bound of the cached topics, in characters, with what an entry costs beside its topic. */
const MAX_CACHED = 1024 * 1024;
const ENTRY_COST = 100;

export class Subscriptions {
  readonly #all = new Set<Subscription>();
  /** Those without wildcards by their topic, so that thousands cost a look-up. */
  readonly #exact = new Map<string, Set<Subscription>>();
  readonly #wild = new Set<Subscription>();
  /** Handlers by topic, until a subscription changes: most topics repeat. */
  readonly #cached = new Map<string, readonly MessageHandler[]>();
  #cachedSize = 0;

  add(subscription: Subscription): void {
    this.#clearCache();
    this.#all.add(subscription);
    const { filter } = subscription;
    if (/[+#]/.test(filter)) this.#wild.add(subscription);
    else this.#exact.set(filter, (this.#exact.get(filter) ?? new Set()).add(subscription));
  }

  clear(): void {
    for (const one of [...this.#all]) this.delete(one);
  }

  /** `false` where it was not there. */
  delete(subscription: Subscription): boolean {
    this.#clearCache();
    const same = this.#exact.get(subscription.filter);
    if (same?.delete(subscription) && same.size === 0) this.#exact.delete(subscription.filter);
    this.#wild.delete(subscription);
    return this.#all.delete(subscription);
  }

  /** Who takes a topic: each handler once, however many of its filters fit. */
  handlersOf(topic: string): readonly MessageHandler[] {
    const cached = this.#cached.get(topic);
    if (cached) return cached;
    const handlers = new Set<MessageHandler>();
    for (const { handler } of this.#exact.get(topic) ?? []) handlers.add(handler);
    for (const { filter, handler } of this.#wild) if (topicFits(filter, topic)) handlers.add(handler);
    const found = [...handlers];
    const size = topic.length + ENTRY_COST;
    if (this.#cachedSize + size > MAX_CACHED) this.#clearCache();
    this.#cachedSize += size;
    this.#cached.set(topic, found);
    return found;
  }

  #clearCache(): void {
    this.#cached.clear();
    this.#cachedSize = 0;
  }

  /** What the broker is to be asked for. */
  wanted(): Map<string, 0 | 1 | 2> {
    const wanted = new Map<string, 0 | 1 | 2>();
    for (const one of this.#all) {
      const asked = askedFor(one);
      wanted.set(asked, Math.max(one.qos ?? 1, wanted.get(asked) ?? 0) as 0 | 1 | 2);
    }
    return wanted;
  }

  tellRefused(asked: string): void {
    for (const one of [...this.#all]) if (askedFor(one) === asked) one.refused?.();
  }

  tellStalled(): void {
    for (const tell of new Set([...this.#all].map(({ stalled }) => stalled))) tell?.();
  }
}

const askedFor = ({ filter, share }: Subscription) => (share === undefined ? filter : `$share/${share}/${filter}`);

/** What to ask for and what to take leave of. */
export function differenceOf(wanted: Filters, granted: Filters): { fresh: [string, 0 | 1 | 2][]; gone: string[] } {
  return {
    fresh: [...wanted].filter(([filter, qos]) => granted.get(filter) !== qos),
    gone: [...granted.keys()].filter((filter) => !wanted.has(filter)),
  };
}
