/** Events over a broker: what this gateway publishes for others (WEBHOOK_TO), or takes from one that does (WEBHOOK_FROM). */
import { isOfAnother, type OwnUser } from '../access/own-access.ts';
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/logger.ts';
import type { Broker } from '../broker/broker.ts';
import type { Brokers } from '../broker/brokers.ts';
import type { NatsBroker } from '../broker/nats/nats-broker.ts';
import type { NatsPull } from '../broker/nats/nats-pull.ts';
import type { Reaction } from '../config/reactions.ts';
import type { Settings } from '../config/settings.ts';
import type { Tags } from '../config/tags.ts';
import type { Metrics } from '../ops/metrics.ts';
import { concernOf } from '../reactions/concern.ts';
import { gatewayName } from '../store/gateway-identity.ts';
import type { Remote } from '../store/store-api.ts';
import { BrokerIntake } from '../webhook/broker-intake.ts';
import { parsedEvent } from '../webhook/event-feed.ts';
import type { Inbox } from '../webhook/inbox.ts';
import { Relay } from '../webhook/relay.ts';
import { RELAYED_NOTE } from '../webhook/relayed-note.ts';

export interface RelayFlowOptions {
  settings: Settings;
  tags: Tags;
  reactions: readonly Reaction[];
  brokers: Brokers;
  inbox: Remote<Inbox>;
  secrets(): readonly string[];
  ownUser(): OwnUser | undefined;
  inserted(): void;
  clock: Clock;
  log: Logger;
  metrics: Pick<Metrics, 'eventsReceived' | 'eventsRejected' | 'eventsPassed' | 'eventsRelayed'>;
}

export class RelayFlow {
  readonly #options: RelayFlowOptions;
  readonly #relay: Relay | undefined;
  readonly #intake: BrokerIntake | undefined;
  #concerns: ReturnType<typeof concernOf>;
  /** At which broker it is subscribed, and what ends that. */
  #subscribed: { at: Broker | NatsBroker; end(): void } | undefined;

  constructor(options: RelayFlowOptions) {
    const { settings, brokers, inbox, clock, log, metrics, secrets, inserted } = options;
    this.#options = options;
    this.#concerns = concernOf(options.tags.tags.values(), options.reactions);
    const { webhookTo, webhookFrom } = settings;
    if (webhookTo) {
      const { broker, topic } = webhookTo;
      this.#relay = new Relay({
        inbox,
        publish: (body, headers, id, signal) =>
          brokers.publish(broker, topic, body, { headers, id, mustKeep: true, signal }),
        secrets,
        clock,
        log,
        relayed: (count) => metrics.eventsRelayed.inc({}, count),
      });
    }
    if (webhookFrom) {
      this.#intake = new BrokerIntake({
        insertMany: (events) => inbox.insertMany(events),
        secrets: (settings.webhookSecret ?? '').split(',').map((secret) => secret.trim()),
        acceptSha1: settings.webhookAcceptSha1,
        concerns: (arrived) => {
          const event = parsedEvent(arrived);
          return this.#concerns(event) && !isOfAnother(event.eventType, event.envelope, options.ownUser());
        },
        clock,
        log,
        received: (eventType) => metrics.eventsReceived.inc({ event_type: eventType }),
        rejected: (reason) => metrics.eventsRejected.inc({ reason }),
        passed: () => metrics.eventsPassed.inc({}),
        inserted,
      });
    }
  }

  /** The brokers are there, and not connected yet: what they kept comes with the connection. */
  async start(): Promise<void> {
    this.follow();
    const { inbox } = this.#options;
    if (this.#relay) await this.#relay.start();
    // What a relay that is no more left in the inbox may fall away.
    else if (await inbox.note(RELAYED_NOTE)) await inbox.setNote(RELAYED_NOTE, '');
  }

  /** Something new is in the inbox. */
  wake(): void {
    this.#relay?.wake();
  }

  /** Other tags and rules, and perhaps another broker of the same name. */
  reload(tags: Tags, reactions: readonly Reaction[]): void {
    this.#concerns = concernOf(tags.tags.values(), reactions);
    this.follow();
  }

  /** Subscribes at the broker as it is now. */
  follow(): void {
    const { settings, brokers } = this.#options;
    const intake = this.#intake;
    if (!settings.webhookFrom || !intake) return;
    const { broker: name, topic } = settings.webhookFrom;
    const at = brokers.get(name) ?? brokers.nats(name);
    if (at === this.#subscribed?.at) return;
    this.#subscribed?.end();
    this.#subscribed = undefined;
    const mqtt = brokers.get(name);
    if (mqtt) {
      const end = mqtt.subscribe(topic, ({ payload, headers }) => intake.take(payload, (one) => headers?.get(one)));
      this.#subscribed = { at: mqtt, end };
      return;
    }
    const nats = brokers.nats(name);
    if (!nats) return;
    const pull: NatsPull = nats.pull({
      stream: undefined,
      durable: gatewayName(settings.stateDir, `${name} events`),
      ordered: false,
      subjects: () => [topic],
      handler: ({ payload, header }) => intake.take(payload, header),
    });
    this.#subscribed = { at: nats, end: () => nats.drop(pull) };
  }

  /** The session at the broker stays, with what is published meanwhile. */
  async stop(): Promise<void> {
    await this.#relay?.stop();
  }
}
