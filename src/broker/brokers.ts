import { silentLogger } from '../base/logger.ts';
import { Broker, type BrokerOptions, inspectionName, type Publishing } from './broker.ts';
import { BrokerError, brokerUnknown } from './broker-error.ts';
import type { BrokerSpec } from './broker-spec.ts';
import type { NatsBroker } from './nats/nats-broker.ts';
import type { NatsSpec } from './nats/nats-spec.ts';
import type { InspectionClient } from './subscriptions.ts';

interface Configured {
  /** The specification as text, for comparison. */
  configuration: string;
  spec: BrokerSpec | NatsSpec;
  broker: Broker | NatsBroker;
}

/**
 * MQTT and NATS brokers in tags.yaml by name, with one client each. A reload keeps the connections of brokers whose
 * address has not changed.
 */
export class Brokers {
  readonly #shared: Omit<BrokerOptions, 'name' | 'spec' | 'clientId'> & { clientId: (name: string) => string };
  readonly #brokers = new Map<string, Configured>();

  constructor(shared: Omit<BrokerOptions, 'name' | 'spec' | 'clientId'> & { clientId: (name: string) => string }) {
    this.#shared = shared;
  }

  /**
   * Applies the configured brokers. Stops removed and changed brokers; new brokers connect when `start` is called,
   * after their subscribers have been created. Returns the names of the brokers whose subscriptions must be recreated.
   */
  async set(sources: Iterable<{ name: string; spec: BrokerSpec | NatsSpec }>): Promise<string[]> {
    const wanted = new Map([...sources].map(({ name, spec }) => [name, { spec, configuration: JSON.stringify(spec) }]));
    const ended = [...this.#brokers].filter(([name, one]) => wanted.get(name)?.configuration !== one.configuration);
    for (const [name] of ended) this.#brokers.delete(name);
    // A recreated broker keeps its session; the session of a removed broker is ended.
    await Promise.all(ended.map(([name, { broker }]) => (wanted.has(name) ? broker.stop() : broker.leave())));
    const created: string[] = [];
    for (const [name, { spec, configuration }] of wanted) {
      if (this.#brokers.has(name)) continue;
      const broker = await this.#make(name, spec);
      this.#brokers.set(name, { configuration, spec, broker });
      created.push(name);
    }
    return created;
  }

  async #make(name: string, spec: BrokerSpec | NatsSpec): Promise<Broker | NatsBroker> {
    const { clientId, ...rest } = this.#shared;
    if (!('servers' in spec)) return new Broker({ ...rest, name, spec, clientId: clientId(name) });
    // Loaded only if NATS is configured.
    const { NatsBroker } = await import('./nats/nats-broker.ts');
    return new NatsBroker({ ...rest, name, spec, clientId: clientId(name) });
  }

  /** Connects all brokers that are not connected yet. */
  start(): void {
    for (const { broker } of this.#brokers.values()) broker.start();
  }

  async stop(budgetMs?: number): Promise<void> {
    await Promise.all([...this.#brokers.values()].map(({ broker }) => broker.stop(budgetMs)));
  }

  /** Returns an MQTT broker. */
  get(name: string): Broker | undefined {
    const broker = this.#brokers.get(name)?.broker;
    return broker instanceof Broker ? broker : undefined;
  }

  /** Returns a NATS broker. */
  nats(name: string): NatsBroker | undefined {
    const broker = this.#brokers.get(name)?.broker;
    return broker instanceof Broker ? undefined : broker;
  }

  /**
   * Returns a separate client for the broker of a source, if it has one, with its own client ID, no group, a session
   * that ends with it, and QoS 0. It neither consumes nor acknowledges messages of the agent's session and does not
   * publish the agent's presence. The caller starts the client, and ends it with `set([])`.
   */
  async inspection(name: string): Promise<Brokers> {
    const { nameTaken: _, ...shared } = this.#shared;
    const clientId = inspectionName(shared.clock);
    const separate = new Brokers({ ...shared, clientId: () => clientId, logger: silentLogger() });
    const spec = this.#brokers.get(name)?.spec;
    if (spec === undefined || 'servers' in spec) return separate;
    const { share: __, presence: ___, ...rest } = spec;
    await separate.set([{ name, spec: { ...rest, qos: 0, sessionExpiryMs: 0, clientId } }]);
    return separate;
  }

  /** Returns a short-lived client for inspecting a NATS server. */
  async inspectionNats(name: string, spec: NatsSpec): Promise<InspectionClient> {
    const { InspectionNats } = await import('./nats/inspection-nats.ts');
    const { clock, platformCaFile } = this.#shared;
    return new InspectionNats({ name, spec, clock, platformCaFile });
  }

  /**
   * Publishes and waits for the broker's acknowledgement. Headers are MQTT 5 user properties. Throws `broker.unknown`,
   * and the errors thrown by either client's `publish`.
   */
  async publish(name: string, topic: string, payload: string | Uint8Array, options: Publishing = {}): Promise<void> {
    const broker = this.#brokers.get(name)?.broker;
    if (!broker) throw brokerUnknown(name);
    if (!(broker instanceof Broker) && options.retain) {
      throw new BrokerError('NATS does not support retained messages', { code: 'broker.retain' });
    }
    await broker.publish(topic, payload, options);
  }
}
