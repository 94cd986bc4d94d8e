import { SourceStopped, TagferryError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import type { Broker } from '../../broker/broker.ts';
import type { BrokerSpec } from '../../broker/broker-spec.ts';
import type { Message } from '../../broker/connection.ts';
import type { Filters } from '../../broker/subscriptions.ts';
import { MQTT_TOPICS } from '../../broker/topic-filters.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import { publishValue } from '../messages/message-writes.ts';
import type { MessageValue } from '../messages/payload.ts';
import { readMessage } from '../messages/payload.ts';
import { planFilters, TopicRouter } from '../messages/topic-plan.ts';
import type { Point } from '../points.ts';
import type { RunningSource, SourceContext } from '../source-kind.ts';

type Context = SourceContext<BrokerSpec, MessageValue>;

const FILTERS = 'filters';
const RETAINED_SKIPPED = 'skipped a retained message without a timestamp; to accept it, set retained: take';
const DONE = Promise.resolve();

/**
 * Values from an MQTT broker. A message is acknowledged when its values are on disk. An unreadable message is also
 * acknowledged, and it is logged and counted, because the broker would send the same bytes again. A retained message
 * without a time of its own is skipped unless `retained: take` is set, because its value may be years old.
 *
 * After a crash, the broker redelivers unacknowledged messages, whose values are stored again. A shutdown does not
 * change the session. A reload adds and removes only the subscriptions that differ, in one event loop turn; their
 * filters are stored in a note.
 */
export class MqttSource implements RunningSource {
  #context: Context;
  readonly #broker: Broker;
  readonly #notes: ReadonlyMap<string, string>;
  readonly #trouble: TroubleLog;
  readonly #handler = (message: Message) => this.#receive(message);
  readonly #rejected = new Set<string>();
  #router: TopicRouter;
  #leave: (() => void)[] = [];
  #isStopped = false;

  /** `notes`: session notes stored by a previous process. Throws for an unknown broker. */
  constructor(context: Context, notes: ReadonlyMap<string, string>) {
    const { source, brokers, log, clock } = context;
    const broker = brokers.get(source.name);
    if (!broker) throw new TagferryError(`unknown broker ${source.name}`, { code: 'broker.unknown' });
    this.#context = context;
    this.#broker = broker;
    context.status.broker = broker;
    this.#router = new TopicRouter(context.points, MQTT_TOPICS);
    this.#trouble = new TroubleLog(log, clock, 'topics');
    this.#notes = notes;
  }

  start(): void {
    const { spec } = this.#context.source;
    const session = [spec.url.replace(/\/\/[^/@]*@/, '//'), spec.clientId].join(' ');
    const name = `source/${this.#context.source.name}/${FILTERS}`;
    this.#broker.resume(filtersOf(this.#notes.get(FILTERS), session), (held) => {
      this.#context.gate.record([], [{ name, text: JSON.stringify({ of: session, held: [...held] }) }]);
    });
    this.#subscribe();
  }

  /** Applies a changed set of values from the same broker. Unchanged subscriptions are kept. */
  async follow(context: Context): Promise<boolean> {
    const { source, brokers } = context;
    if (brokers.get(source.name) !== this.#broker) return false;
    this.#context = context;
    this.#router = new TopicRouter(context.points, MQTT_TOPICS);
    this.#rejected.clear();
    this.#subscribe();
    return true;
  }

  async stop(isGone = false): Promise<void> {
    this.#isStopped = true;
    const { gate } = this.#context;
    if (isGone) this.leave();
    gate.commitSoon();
  }

  leave(): void {
    for (const leave of this.#leave.splice(0)) leave();
  }

  write({ spec }: Point, ...rest: [raw: number, guard: () => void, signal: AbortSignal]): Promise<void> {
    return publishValue(this.#context, spec as MessageValue, ...rest);
  }

  /**
   * Subscribes and unsubscribes within one event loop turn, so that only the differences are applied to the session.
   */
  #subscribe(): void {
    const { source, points, gate, isTest } = this.#context;
    const { qos, share }: Pick<BrokerSpec, 'qos' | 'share'> = isTest ? { qos: 0 } : source.spec;
    const before = this.#leave;
    this.#leave = planFilters(points, MQTT_TOPICS, this.#rejected).map((filter) =>
      this.#broker.subscribe(filter, this.#handler, {
        qos,
        ...(share === undefined ? {} : { share }),
        stalled: () => gate.commitSoon(),
        isFull: () => this.#isStopped || gate.isFull,
        rejected: () => this.#subscribeToEachTopic(filter),
      }),
    );
    for (const leave of before) leave();
  }

  /** Subscribes to each topic individually after the broker rejected a wildcard filter. */
  #subscribeToEachTopic(filter: string): void {
    if (this.#rejected.has(filter) || this.#context.points.some(({ spec }) => spec.topic === filter)) return;
    this.#rejected.add(filter);
    this.#subscribe();
  }

  #receive(message: Message): Promise<void> {
    if (this.#isStopped) return Promise.reject(new SourceStopped());
    const { gate, status, clock, source } = this.#context;
    const { topic, retained } = message;
    let points = this.#router.pointsOf(topic);
    if (retained && source.spec.retained !== 'take') {
      for (const point of points) if (!hasOwnTime(point)) status.recordFailure(point, RETAINED_SKIPPED);
      points = points.filter(hasOwnTime);
    }
    if (points.length === 0) return DONE;
    const { readings, problem } = readMessage(message, clock.wallMs(), points);
    if (problem !== undefined) this.#reportUnreadable(topic, problem);
    else this.#trouble.recovered('mqtt.unreadable', { topic }, 'messages on a topic contain values again', topic);
    return gate.write(readings);
  }

  #reportUnreadable(topic: string, error: string): void {
    const { status } = this.#context;
    status.errors++;
    status.recordRejected(`${plain(topic)}: ${error}`);
    const fields = { source: this.#context.source.name, topic, error };
    this.#trouble.report({ event: 'mqtt.unreadable', ...fields }, 'message without a value', topic);
  }
}

/** Whether messages contain the time of the value. */
function hasOwnTime({ spec }: Point<MessageValue>): boolean {
  return spec.time !== undefined || spec.timeProperty !== undefined;
}

/** Returns the filters in a note, if they belong to this session. */
function filtersOf(note: string | undefined, session: string): Filters | undefined {
  if (note === undefined) return undefined;
  const { of, held } = JSON.parse(note) as { of: string; held: [string, 0 | 1 | 2][] };
  return of === session ? new Map(held) : undefined;
}
