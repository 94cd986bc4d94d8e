import { silentLogger } from '../base/logger.ts';
import { brokerBeside } from './beside.ts';
import { Broker, type BrokerOptions, type BrokerState } from './broker.ts';
import { brokerUnknown } from './broker-error.ts';
import type { BrokerSpec } from './broker-spec.ts';

/**
 * The brokers of tags.yaml, one client each, by name. A reload keeps the connection of those whose address did not change.
 */
export class Brokers {
  readonly #shared: Omit<BrokerOptions, 'name' | 'spec' | 'clientId'> & { clientId: (name: string) => string };
  readonly #brokers = new Map<string, { made: string; broker: Broker }>();

  constructor(shared: Omit<BrokerOptions, 'name' | 'spec' | 'clientId'> & { clientId: (name: string) => string }) {
    this.#shared = shared;
  }

  /**
   * Sets which brokers there are; those that are gone or moved are stopped, new ones connect at `start`, once somebody takes what comes.
   * Returns the names whose subscriptions have to be made anew.
   */
  async set(sources: Iterable<{ name: string; spec: BrokerSpec }>): Promise<string[]> {
    const wanted = new Map([...sources].map(({ name, spec }) => [name, { spec, made: JSON.stringify(spec) }]));
    const gone = [...this.#brokers].filter(([name, one]) => wanted.get(name)?.made !== one.made);
    for (const [name] of gone) this.#brokers.delete(name);
    // One that is made anew goes on with its session; of one that is gone it takes leave.
    await Promise.all(gone.map(([name, { broker }]) => (wanted.has(name) ? broker.stop() : broker.leave())));
    const fresh: string[] = [];
    for (const [name, { spec, made }] of wanted) {
      if (this.#brokers.has(name)) continue;
      const { clientId, ...rest } = this.#shared;
      const broker = new Broker({ ...rest, name, spec, clientId: clientId(name) });
      this.#brokers.set(name, { made, broker });
      fresh.push(name);
    }
    return fresh;
  }

  /** Connects those that are not yet. */
  start(): void {
    for (const { broker } of this.#brokers.values()) broker.start();
  }

  async stop(budgetMs?: number): Promise<void> {
    await Promise.all([...this.#brokers.values()].map(({ broker }) => broker.stop(budgetMs)));
  }

  get(name: string): Broker | undefined {
    return this.#brokers.get(name)?.broker;
  }

  /** A client beside that of a broker, for who looks; it is started and left by who asked for it. */
  beside(name: string, spec: BrokerSpec): Broker {
    const { clientId: _, ...rest } = this.#shared;
    return brokerBeside({ ...rest, name, spec, logger: silentLogger() });
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
