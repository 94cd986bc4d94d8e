/** Subscription to the events that a relay publishes on a broker (WEBHOOK_FROM). */
import { isOfAnother, type OwnUser } from '../access/access-event.ts';
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';
import type { Broker } from '../broker/broker.ts';
import type { Brokers } from '../broker/brokers.ts';
import type { NatsBroker } from '../broker/nats/nats-broker.ts';
import type { Reaction } from '../config/reactions.ts';
import type { Settings } from '../config/settings.ts';
import type { Tags } from '../config/tags.ts';
import type { Metrics } from '../ops/metrics.ts';
import { concernOf } from '../reactions/rules.ts';
import { gatewayName } from '../store/gateway-identity.ts';
import type { Arrivals } from '../webhook/arrivals.ts';
import { BrokerIntake } from '../webhook/broker-intake.ts';
import { envelopeOf } from '../webhook/received-event.ts';

export interface BrokerEventsOptions {
  settings: Settings;
  /** Value of WEBHOOK_FROM. */
  from: NonNullable<Settings['webhookFrom']>;
  tags: Tags;
  reactions: readonly Reaction[];
  brokers: Brokers;
  arrivals: Arrivals;
  ownUser(): OwnUser | undefined;
  clock: Clock;
  log: Logger;
  metrics: Pick<Metrics, 'eventsRejected' | 'eventsPassed'>;
}

export class BrokerEvents {
  readonly #options: BrokerEventsOptions;
  readonly #intake: BrokerIntake;
  #concerns: ReturnType<typeof concernOf>;
  /** Broker of the current subscription, and the function that cancels the subscription. */
  #subscribed: { at: Broker | NatsBroker; end(): void } | undefined;

  constructor(options: BrokerEventsOptions) {
    const { settings, tags, reactions, arrivals, clock, log, metrics, ownUser } = options;
    this.#options = options;
    this.#concerns = concernOf(tags.tags.values(), reactions);
    this.#intake = new BrokerIntake({
      arrivals,
      secrets: (settings.webhookSecret ?? '').split(',').map((secret) => secret.trim()),
      acceptSha1: settings.webhookAcceptSha1,
      concerns: ({ eventType, payload }) => {
        const envelope = envelopeOf(Buffer.from(payload).toString());
        return this.#concerns(eventType, envelope) && !isOfAnother(eventType, envelope, ownUser());
      },
      clock,
      log,
      rejected: (reason) => metrics.eventsRejected.inc({ reason }),
      passed: () => metrics.eventsPassed.inc({}),
    });
  }

  /** Applies new tags and rules. A broker may have been replaced by one with the same name. */
  reload(tags: Tags, reactions: readonly Reaction[]): void {
    this.#concerns = concernOf(tags.tags.values(), reactions);
    this.subscribe();
  }

  /**
   * Subscribes to the current broker, which must not be connected yet, because it sends stored messages as soon as it
   * is connected. The session on the broker is kept at shutdown and stores messages published in the meantime.
   */
  subscribe(): void {
    const { from, brokers, settings } = this.#options;
    const { broker: name, topic } = from;
    const broker = brokers.get(name);
    if (broker === this.#subscribed?.at) return;
    this.#subscribed?.end();
    this.#subscribed = undefined;
    if (broker?.kind === 'mqtt') {
      const end = broker.subscribe([topic], ({ topic: found, payload, headers }) =>
        found === topic ? this.#intake.receive(payload, (header) => headers?.get(header)) : undefined,
      );
      this.#subscribed = { at: broker, end };
    } else if (broker?.kind === 'nats') {
      const end = broker.pull({
        stream: undefined,
        durable: gatewayName(settings.stateDir, `${name} events`),
        ordered: false,
        subjects: [topic],
        handler: ({ data }, headers) =>
          this.#intake.receive(data, (name) => headers?.get(name, 'insensitive') || undefined),
      });
      this.#subscribed = { at: broker, end };
    }
  }
}
