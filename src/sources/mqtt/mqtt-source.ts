import { SourceStopped } from '../../base/errors.ts';
import { type Broker, READ_ACCESS, type SubscribeOptions } from '../../broker/broker.ts';
import type { BrokerSpec } from '../../broker/broker-spec.ts';
import type { Message } from '../../broker/connection.ts';
import { covers, hasWildcard, MQTT_TOPICS } from '../../broker/topic-filters.ts';
import { hasOwnTime } from '../messages/message-members.ts';
import { MessageReader } from '../messages/message-reader.ts';
import type { MessageValue } from '../messages/payload.ts';
import { deniedText, planFilters } from '../messages/topic-plan.ts';
import type { Point } from '../points.ts';
import type { RunningSource, SourceContext } from '../source-kind.ts';

type Context = SourceContext<BrokerSpec, MessageValue>;

const FILTERS = 'filters';
const RETAINED_SKIPPED = 'skipped a retained message without a timestamp; to accept it, set retained: take';
const DONE = Promise.resolve();

/**
 * Values from an MQTT broker. A message is acknowledged when its values are on disk. A retained message without a time
 * of its own is skipped unless `retained: take` is set, because its value may be years old.
 *
 * After a crash, the broker redelivers unacknowledged messages, whose values are stored again. A shutdown does not
 * change the session. A reload replaces the source: until the next one has subscribed, messages are rejected, and the
 * broker client delivers them again. The filters of the session are stored in a note, so that a later process can remove
 * those that tags.yaml no longer contains.
 */
export class MqttSource implements RunningSource {
  readonly #context: Context;
  readonly #broker: Broker;
  readonly #notes: ReadonlyMap<string, string>;
  readonly #reader: MessageReader;
  readonly #options: SubscribeOptions;
  readonly #availabilityTopics: readonly string[];
  /** Points by configured topic; empty for availability topics. */
  readonly #byTopic: ReadonlyMap<string, readonly Point<MessageValue>[]>;
  /** Configured topics that the broker rejects. */
  readonly #denied = new Set<string>();
  /** Wildcards for several topics that the broker rejects. */
  readonly #deniedWildcards = new Set<string>();
  #unsubscribe: () => void = () => {};
  #unsubscribeAvailability: () => void = () => {};
  #isStopped = false;

  /** `notes`: notes stored by a previous process. */
  constructor(context: Context, notes: ReadonlyMap<string, string>) {
    const { source, brokers, gate, points, isTest, status } = context;
    this.#context = context;
    this.#broker = brokers.get(source.name) as Broker;
    status.broker = this.#broker;
    this.#notes = notes;
    this.#reader = new MessageReader(context, MQTT_TOPICS);
    this.#availabilityTopics = this.#reader.availabilityPlaces.map(({ spec }) => spec.topic);
    this.#byTopic = new Map<string, readonly Point<MessageValue>[]>([
      ...this.#availabilityTopics.map((topic) => [topic, []] as const),
      ...Map.groupBy(points, ({ spec }) => spec.topic),
    ]);
    this.#options = {
      qos: isTest ? 0 : source.spec.qos,
      stalled: () => gate.commitSoon(),
      isFull: () => this.#isStopped || gate.isFull,
      permitted: (filter, isPermitted) => this.#setPermitted(filter, isPermitted),
    };
  }

  start(): void {
    const { source, gate, isTest } = this.#context;
    const name = `source/${source.name}/${FILTERS}`;
    const stored = JSON.parse(this.#notes.get(FILTERS) ?? '[]') as string[];
    if (!isTest) {
      this.#broker.resume(stored, (filters) => gate.record([], [{ name, text: JSON.stringify([...filters]) }]));
    }
    // Subscribe to availability before values, so that retained values of an unavailable device are never stored as
    // good. Do not use `share`, because each agent in a group has its own latest values.
    if (this.#availabilityTopics.length > 0) {
      const options = { ...this.#options, resendsRetained: true };
      const receive = (message: Message) => this.#receiveAvailability(message);
      this.#unsubscribeAvailability = this.#broker.subscribe(this.#availabilityTopics, receive, options);
    }
    this.#subscribe();
  }

  async stop(isGone = false): Promise<void> {
    this.#isStopped = true;
    if (isGone) this.leave();
    this.#context.gate.commitSoon();
  }

  leave(): void {
    this.#unsubscribe();
    this.#unsubscribeAvailability();
  }

  /** Publishes the number as text. Resolves when the broker has accepted the message. */
  write({ spec }: Point, raw: number, beforeSend: () => void, signal: AbortSignal): Promise<void> {
    return this.#broker.publish((spec as MessageValue).writeTo!, String(raw), { signal, beforeSend });
  }

  /** Subscribes and unsubscribes within one event loop turn, so that only the differences are applied to the session. */
  #subscribe(): void {
    const { source, points, isTest } = this.#context;
    const before = this.#unsubscribe;
    const filters = planFilters(points, MQTT_TOPICS, this.#deniedWildcards);
    const options = isTest ? this.#options : { ...this.#options, share: source.spec.share };
    this.#unsubscribe = this.#broker.subscribe(filters, (message) => this.#receive(message), options);
    before();
  }

  /** If the broker rejects a wildcard that stands for several topics, subscribes to each topic individually. */
  #setPermitted(filter: string, isPermitted: boolean): void {
    const { points, status } = this.#context;
    const configured = this.#byTopic.get(filter);
    if (configured === undefined) {
      if (isPermitted) return;
      this.#deniedWildcards.add(filter);
      this.#subscribe();
    } else if (isPermitted) {
      this.#denied.delete(filter);
      this.#setProblem();
    } else {
      this.#denied.add(filter);
      this.#setProblem();
      const isWild = hasWildcard(filter, MQTT_TOPICS);
      const denied = isWild ? points.filter(({ spec }) => covers(filter, spec.topic, MQTT_TOPICS)) : configured;
      for (const point of denied) status.recordFailure(point, deniedText(new Set([filter])), { hint: READ_ACCESS });
    }
  }

  #setProblem(): void {
    const { status, isTest } = this.#context;
    // A test reports the problems of each value.
    if (isTest) return;
    const denied = deniedText(this.#denied);
    status.problem = denied ?? this.#reader.unavailable;
    status.hint = denied && READ_ACCESS;
  }

  #receiveAvailability({ topic, payload }: Message): Promise<void> {
    if (this.#isStopped) return Promise.reject(new SourceStopped());
    return this.#reader.handle(topic, () => {
      const written = this.#reader.writeAvailability(topic, payload);
      this.#setProblem();
      return written ?? DONE;
    });
  }

  #receive(message: Message): Promise<void> {
    if (this.#isStopped) return Promise.reject(new SourceStopped());
    const { status, source } = this.#context;
    const { topic, retained } = message;
    let points = this.#reader.pointsOf(topic);
    if (retained && source.spec.retained !== 'take') {
      for (const point of points) if (!hasOwnTime(point.spec)) status.recordFailure(point, RETAINED_SKIPPED);
      points = points.filter(({ spec }) => hasOwnTime(spec));
    }
    if (points.length === 0) return DONE;
    return this.#reader.handle(topic, () => this.#reader.write(topic, message, points, { isPast: retained }));
  }
}
