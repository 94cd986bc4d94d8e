import { silentLogger } from '../base/logger.ts';
import type { Broker } from './broker.ts';
import type { BrokerOptions, Publishing } from './broker-client.ts';
import { BrokerError } from './broker-error.ts';
import type { BrokerSpec, NatsSpec } from './broker-spec.ts';
import type { NatsBroker } from './nats/nats-broker.ts';

export type AnyBrokerSpec = BrokerSpec | NatsSpec;

type SharedOptions = Omit<BrokerOptions, 'name' | 'spec' | 'clientId'> & { clientId: (name: string) => string };

/**
 * MQTT and NATS brokers in tags.yaml by name, with one client each. A reload keeps the connections of brokers whose
 * configuration has not changed.
 */
export class Brokers {
  readonly #shared: SharedOptions;
  readonly #brokers = new Map<string, { spec: AnyBrokerSpec; broker: Broker | NatsBroker }>();

  constructor(shared: SharedOptions) {
    this.#shared = shared;
  }

  /**
   * Applies the configured brokers. Stops removed and changed brokers; new brokers connect when `start` is called,
   * after their subscribers have been created.
   */
  async set(sources: Iterable<{ name: string; spec: AnyBrokerSpec }>): Promise<void> {
    const wanted = new Map([...sources].map(({ name, spec }) => [name, spec]));
    const isSame = (one: unknown, other: unknown) => JSON.stringify(one) === JSON.stringify(other);
    const ended = [...this.#brokers].filter(([name, { spec }]) => !isSame(wanted.get(name), spec));
    for (const [name] of ended) this.#brokers.delete(name);
    // A recreated broker keeps its session; the session of a removed broker is ended.
    await Promise.all(ended.map(([name, { broker }]) => (wanted.has(name) ? broker.stop() : broker.leave())));
    for (const [name, spec] of wanted) {
      if (!this.#brokers.has(name)) this.#brokers.set(name, { spec, broker: await this.#make(name, spec) });
    }
  }

  /** Loads only the client that the broker requires. */
  async #make(name: string, spec: AnyBrokerSpec): Promise<Broker | NatsBroker> {
    const options = { ...this.#shared, name, clientId: this.#shared.clientId(name) };
    if ('servers' in spec) return new (await import('./nats/nats-broker.ts')).NatsBroker({ ...options, spec });
    return new (await import('./broker.ts')).Broker({ ...options, spec });
  }

  /** Connects all brokers that are not connected yet. */
  start(): void {
    for (const { broker } of this.#brokers.values()) broker.start();
  }

  async stop(budgetMs?: number): Promise<void> {
    await Promise.all([...this.#brokers.values()].map(({ broker }) => broker.stop(budgetMs)));
  }

  get(name: string): Broker | NatsBroker | undefined {
    return this.#brokers.get(name)?.broker;
  }

  /**
   * Returns a separate client for the broker of a source, if it has one, with its own client ID. An MQTT client has no
   * group, a session that ends with it, and QoS 0, and does not publish the agent's presence. The caller starts the
   * client, and ends it with `set([])`.
   */
  async inspection(name: string): Promise<Brokers> {
    const { nameTaken: _, ...shared } = this.#shared;
    const clientId = `tagferry-look-${Math.floor(shared.clock.random() * 1e9).toString(36)}`;
    const separate = new Brokers({ ...shared, clientId: () => clientId, logger: silentLogger() });
    const spec = this.#brokers.get(name)?.spec;
    if (spec === undefined) return separate;
    const { share: __, presence: ___, ...rest } = spec as BrokerSpec;
    const ownSession = { ...rest, qos: 0, sessionExpiryMs: 0, clientId } as const;
    await separate.set([{ name, spec: 'servers' in spec ? spec : ownSession }]);
    return separate;
  }

  /**
   * Publishes and waits for the broker's acknowledgement. Throws `broker.unknown`, and the errors thrown by either
   * client's `publish`.
   */
  async publish(name: string, topic: string, payload: string | Uint8Array, options: Publishing = {}): Promise<void> {
    const broker = this.get(name);
    if (broker) return await broker.publish(topic, payload, options);
    const hint = 'Set "to" in "publish: { to: … }" to an MQTT or NATS source in tags.yaml.';
    throw new BrokerError(`unknown broker ${name}`, { code: 'broker.unknown', hint });
  }
}
