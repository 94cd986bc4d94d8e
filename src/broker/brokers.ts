import { Broker, type BrokerOptions, type BrokerState } from './broker.ts';
import { brokerUnknown } from './broker-error.ts';

/**
 * The brokers of tags.yaml, one client each, by name. A reload keeps the connection of those whose address did not change.
 */
export class Brokers {
  readonly #shared: Omit<BrokerOptions, 'name' | 'url' | 'clientId'> & { clientId: (name: string) => string };
  readonly #brokers = new Map<string, { url: string; broker: Broker }>();
  #started = false;

  constructor(shared: Omit<BrokerOptions, 'name' | 'url' | 'clientId'> & { clientId: (name: string) => string }) {
    this.#shared = shared;
  }

  /**
   * Sets which brokers there are; new ones connect if `start` was called, those that are gone or moved are stopped.
   * Returns the names whose subscriptions have to be made anew.
   */
  async set(sources: Iterable<{ name: string; url: string }>): Promise<string[]> {
    const wanted = new Map([...sources].map((source) => [source.name, source.url]));
    const gone = [...this.#brokers].filter(([name, one]) => wanted.get(name) !== one.url);
    for (const [name] of gone) this.#brokers.delete(name);
    await Promise.all(gone.map(([, one]) => one.broker.stop()));
    const fresh: string[] = [];
    for (const [name, url] of wanted) {
      if (this.#brokers.has(name)) continue;
      const { clientId, ...rest } = this.#shared;
      const broker = new Broker({ ...rest, name, url, clientId: clientId(name) });
      this.#brokers.set(name, { url, broker });
      fresh.push(name);
      if (this.#started) broker.start();
    }
    return fresh;
  }

  start(): void {
    this.#started = true;
    for (const { broker } of this.#brokers.values()) broker.start();
  }

  async stop(budgetMs?: number): Promise<void> {
    await Promise.all([...this.#brokers.values()].map(({ broker }) => broker.stop(budgetMs)));
  }

  get(name: string): Broker | undefined {
    return this.#brokers.get(name)?.broker;
  }

  /** Throws `broker.unknown`, and what `Broker.publish` throws. */
  async publish(
    name: string,
    topic: string,
    payload: string | Uint8Array,
    options: { retain?: boolean; signal?: AbortSignal } = {},
  ): Promise<void> {
    const broker = this.get(name);
    if (!broker) throw brokerUnknown(name);
    await broker.publish(topic, payload, options);
  }

  states(): BrokerState[] {
    return [...this.#brokers.values()].map(({ broker }) => broker.state());
  }
}
