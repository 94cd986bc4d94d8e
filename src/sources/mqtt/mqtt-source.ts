import { SourceStopped } from '../../base/errors.ts';
import type { Broker, SubscribeOptions } from '../../broker/broker.ts';
import { READ_ACCESS } from '../../broker/broker-error.ts';
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

/**
 * Values from an MQTT broker. A message is acknowledged when its values are on disk. A retained message whose timestamp
 * is missing, or ignored because of `time_from: arrival`, is skipped unless `retained: take` is set, because its value
 * may be years old.
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
  /** Wildcards for several topics that the broker rejects. */
  readonly #deniedWildcards = new Set<string>();
  #unsubscribe: () => void = () => {};
  #isStopped = false;

  /** `notes`: notes stored by a previous process. */
  constructor(context: Context, notes: ReadonlyMap<string, string>) {
    const { source, brokers, gate, isTest, status } = context;
    this.#context = context;
    this.#broker = brokers.get(source.name) as Broker;
    status.broker = this.#broker;
    this.#notes = notes;
    this.#reader = new MessageReader(context, MQTT_TOPICS);
    this.#options = {
      qos: isTest ? 0 : source.spec.qos,
      // Each agent in a group has its own latest values, so availability topics are not shared. They precede the value
      // topics, so that retained values of an unavailable device are never stored as good.
      stateTopics: this.#reader.availabilityTopics,
      wantsRetained: source.spec.retained === 'take',
      share: isTest ? undefined : source.spec.share,
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
    this.#subscribe();
  }

  async stop(isGone = false): Promise<void> {
    this.#isStopped = true;
    if (isGone) this.leave();
    this.#context.gate.commitSoon();
  }

  leave(): void {
    this.#unsubscribe();
  }

  /** Publishes the number as text. Resolves when the broker has accepted the message. */
  write({ spec }: Point, raw: number, beforeSend: () => void, signal: AbortSignal): Promise<void> {
    const { brokers, source } = this.#context;
    // After a reload, the source may have another broker client.
    return brokers.publish(source.name, (spec as MessageValue).writeTo!, String(raw), { signal, beforeSend });
  }

  /** Subscribes and unsubscribes within one event loop turn, so that only the differences are applied to the session. */
  #subscribe(): void {
    const before = this.#unsubscribe;
    const filters = planFilters(this.#context.points, MQTT_TOPICS, this.#deniedWildcards);
    this.#unsubscribe = this.#broker.subscribe(filters, (message) => this.#receive(message), this.#options);
    before();
  }

  /** If the broker rejects a wildcard that stands for several topics, subscribes to each topic individually. */
  #setPermitted(filter: string, isPermitted: boolean): void {
    const { points, status } = this.#context;
    const isWild = hasWildcard(filter, MQTT_TOPICS);
    if (!isWild || points.some(({ spec }) => spec.topic === filter)) {
      this.#reader.setPermitted(filter, isPermitted);
      if (isPermitted) return;
      const isDenied = ({ spec }: Point<MessageValue>) => covers(filter, spec.topic, MQTT_TOPICS);
      // A value with a wider wildcard is not affected.
      const denied = (isWild ? points : (this.#reader.pointsOf(filter) ?? [])).filter(isDenied);
      for (const point of denied) status.recordFailure(point, deniedText(new Set([filter])), { hint: READ_ACCESS });
    } else if (!isPermitted) {
      this.#deniedWildcards.add(filter);
      this.#subscribe();
    }
  }

  #receive(message: Message): Promise<void> | undefined {
    const { status, source, gate } = this.#context;
    const { topic, retained } = message;
    const points = this.#reader.pointsOf(topic);
    if (points === undefined) return undefined;
    if (this.#isStopped) return Promise.reject(new SourceStopped());
    if (!retained || source.spec.retained === 'take') {
      return this.#reader.write(topic, message, points, { isPast: retained });
    }
    const isTimed = ({ spec }: Point<MessageValue>) => gate.timeFrom === 'source' && hasOwnTime(spec);
    for (const point of points) if (!isTimed(point)) status.recordFailure(point, RETAINED_SKIPPED);
    const timed = points.filter(isTimed);
    return this.#reader.write(topic, message, timed, { isPast: true });
  }
}
