import { silentLogger } from '../base/logger.ts';
import { brokerBeside } from './beside.ts';
import { Broker, type BrokerOptions } from './broker.ts';
import { BrokerError, brokerUnknown } from './broker-error.ts';
import type { BrokerSpec } from './broker-spec.ts';
import type { Listening } from './listening.ts';
import type { NatsBroker } from './nats/nats-broker.ts';
import type { NatsSpec } from './nats/nats-spec.ts';

/**
 * The brokers of tags.yaml, MQTT and NATS, one client each, by name. A reload keeps the connection of those whose address did not change.
 */
export class Brokers {
  readonly #shared: Omit<BrokerOptions, 'name' | 'spec' | 'clientId'> & { clientId: (name: string) => string };
  readonly #brokers = new Map<string, { made: string; broker: Broker | NatsBroker }>();

  constructor(shared: Omit<BrokerOptions, 'name' | 'spec' | 'clientId'> & { clientId: (name: string) => string }) {
    this.#shared = shared;
  }

  /**
   * Sets which brokers there are; those that are gone or moved are stopped, new ones connect at `start`, once somebody takes what comes.
   * Returns the names whose subscriptions have to be made anew.
   */
  async set(sources: Iterable<{ name: string; spec: BrokerSpec | NatsSpec }>): Promise<string[]> {
    const wanted = new Map([...sources].map(({ name, spec }) => [name, { spec, made: JSON.stringify(spec) }]));
    const gone = [...this.#brokers].filter(([name, one]) => wanted.get(name)?.made !== one.made);
    for (const [name] of gone) this.#brokers.delete(name);
    // One that is made anew goes on with its session; of one that is gone it takes leave.
    await Promise.all(gone.map(([name, { broker }]) => (wanted.has(name) ? broker.stop() : broker.leave())));
    const fresh: string[] = [];
    for (const [name, { spec, made }] of wanted) {
      if (this.#brokers.has(name)) continue;
      const broker = await this.#make(name, spec);
      this.#brokers.set(name, { made, broker });
      fresh.push(name);
    }
    return fresh;
  }

  async #make(name: string, spec: BrokerSpec | NatsSpec): Promise<Broker | NatsBroker> {
    const { clientId, ...rest } = this.#shared;
    if (!('servers' in spec)) return new Broker({ ...rest, name, spec, clientId: clientId(name) });
    // Only here: an agent without NATS does not load it.
    const { NatsBroker } = await import('./nats/nats-broker.ts');
    return new NatsBroker({ ...rest, name, spec, clientId: clientId(name) });
  }

  /** Connects those that are not yet. */
  start(): void {
    for (const { broker } of this.#brokers.values()) broker.start();
  }

  async stop(budgetMs?: number): Promise<void> {
    await Promise.all([...this.#brokers.values()].map(({ broker }) => broker.stop(budgetMs)));
  }

  /** One that speaks MQTT. */
  get(name: string): Broker | undefined {
    const broker = this.#brokers.get(name)?.broker;
    return broker instanceof Broker ? broker : undefined;
  }

  /** One that speaks NATS. */
  nats(name: string): NatsBroker | undefined {
    const broker = this.#brokers.get(name)?.broker;
    return broker instanceof Broker ? undefined : broker;
  }

  /** A client beside that of a broker, for who looks; it is started and left by who asked for it. */
  beside(name: string, spec: BrokerSpec): Broker {
    const { clientId: _, nameTaken: __, ...rest } = this.#shared;
    return brokerBeside({ ...rest, name, spec, logger: silentLogger() });
  }

  /** The same of NATS. */
  async natsBeside(name: string, spec: NatsSpec): Promise<Listening> {
    const { NatsBeside } = await import('./nats/nats-beside.ts');
    const { clock, platformCaFile } = this.#shared;
    return new NatsBeside({ name, spec, clock, platformCaFile });
  }

  /**
   * Publishes and awaits the broker's word. Headers are user properties of MQTT 5. Throws `broker.unknown`, and what `publish` of either
   * throws.
   */
  async publish(name: string, topic: string, payload: string | Uint8Array, options: Publishing = {}): Promise<void> {
    const broker = this.#brokers.get(name)?.broker;
    if (!broker) throw brokerUnknown(name);
    if (!(broker instanceof Broker) && options.retain) {
      throw new BrokerError('NATS retains nothing', { code: 'broker.retain' });
    }
    await broker.publish(topic, payload, options);
  }
}

interface Publishing {
  retain?: boolean;
  headers?: Readonly<Record<string, string>>;
  /** The same for the same message: a stream of NATS keeps one of them. */
  id?: string;
  /** Of NATS: fails where no stream keeps the subject. */
  mustKeep?: boolean;
  signal?: AbortSignal;
}
