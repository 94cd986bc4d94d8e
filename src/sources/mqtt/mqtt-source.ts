import { SourceStopped, TagferryError } from '../../base/errors.ts';
import type { Broker } from '../../broker/broker.ts';
import type { BrokerSpec } from '../../broker/broker-spec.ts';
import type { Message } from '../../broker/connection.ts';
import { MQTT_TOPICS } from '../../broker/topic-filters.ts';
import { hashOf } from '../../broker/unconfirmed.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import { publishValue } from '../messages/message-writes.ts';
import type { MessageValue } from '../messages/payload.ts';
import { MAX_PAYLOAD_BYTES, readMessage } from '../messages/payload.ts';
import { scanMessages } from '../messages/scan.ts';
import { SessionNotes } from '../messages/session-notes.ts';
import { planFilters, TopicRouter } from '../messages/topic-plan.ts';
import type { Point } from '../points.ts';
import type { RunningSource, ScanStep, SourceContext, SourceState } from '../source-kind.ts';

type Context = SourceContext<BrokerSpec, MessageValue>;

const DONE = Promise.resolve();

/**
 * Values from an MQTT broker. A message is acknowledged when its values are on disk. An unreadable message is also
 * acknowledged, and it is logged and counted, because the broker would send the same bytes again. A retained message is
 * stored as the last known value, but is not stored again if the subscription is recreated.
 *
 * Stored but unacknowledged messages are recorded on disk with their values. If the broker redelivers them after a
 * crash, they are acknowledged and not stored again. A shutdown does not change the session. A reload adds and removes
 * only the subscriptions that differ, in one event loop turn.
 */
export class MqttSource implements RunningSource {
  #context: Context;
  readonly #broker: Broker;
  readonly #notes: SessionNotes;
  readonly #trouble: TroubleLog;
  readonly #handler = (message: Message) => this.#receive(message);
  readonly #rejected = new Set<string>();
  #router: TopicRouter;
  #leave: (() => void)[] = [];
  #isStopped = false;
  #errors = 0;

  /** `notes`: session notes stored by a previous process. Throws for an unknown broker. */
  constructor(context: Context, notes: ReadonlyMap<string, string>) {
    const { source, brokers, log, clock } = context;
    const broker = brokers.get(source.name);
    if (!broker) throw new TagferryError(`unknown broker ${source.name}`, { code: 'broker.unknown' });
    this.#context = context;
    this.#broker = broker;
    this.#router = new TopicRouter(context.points, MQTT_TOPICS);
    this.#trouble = new TroubleLog(log, clock, 'topics');
    this.#notes = new SessionNotes(source.name, notes);
  }

  start(): void {
    const { spec } = this.#context.source;
    const session = [spec.url.replace(/\/\/[^/@]*@/, '//'), spec.clientId].join(' ');
    this.#broker.resume(this.#notes.session(session), (held) => {
      this.#context.gate.note(this.#notes.filters(session, held));
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
    gate.note(...this.#forgotten(), ...this.#notes.rest());
    gate.commitSoon();
  }

  leave(): void {
    for (const leave of this.#leave.splice(0)) leave();
  }

  state(): SourceState {
    const {
      connected,
      sinceMs,
      problem,
      failures,
      dropped,
      discarded,
      window,
      redelivered,
      storedAgain,
      certificateEndsMs,
    } = this.#broker.state();
    return {
      connected,
      sinceMs,
      ...(problem === undefined ? {} : { problem }),
      errors: this.#errors + failures + dropped + discarded,
      window,
      redelivered: { known: redelivered, taken: storedAgain },
      pollsLate: 0,
      ...(certificateEndsMs === undefined ? {} : { certificateEndsMs }),
    };
  }

  write({ spec }: Point, ...rest: [raw: number, guard: () => void, signal: AbortSignal]): Promise<void> {
    return publishValue(this.#context, spec as MessageValue, ...rest);
  }

  /** Scans with a separate client that does not use the session. */
  scan(what: readonly string[], waitMs: number, signal: AbortSignal): AsyncGenerator<ScanStep> {
    const { source, brokers, clock } = this.#context;
    const broker = brokers.inspectionBroker(source.name, source.spec);
    return scanMessages({ broker, grammar: MQTT_TOPICS, what, waitMs, clock, signal });
  }

  /**
   * Subscribes and unsubscribes within one event loop turn, so that only the differences are applied to the session.
   */
  #subscribe(): void {
    const { source, points, gate } = this.#context;
    const { qos, share } = source.spec;
    const before = this.#leave;
    this.#leave = planFilters(points, MQTT_TOPICS, this.#rejected).map((filter) =>
      this.#broker.subscribe(filter, this.#handler, {
        qos,
        ...(share === undefined ? {} : { share }),
        stalled: () => gate.commitSoon(),
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

  /**
   * Returns a promise that resolves when the values are on disk; messages in one batch share a promise. Throws if the
   * message must be retried.
   */
  #receive(message: Message): Promise<void> {
    const { gate } = this.#context;
    const { topic, payload, retained } = message;
    if (this.#isStopped) throw new SourceStopped();
    const points = this.#router.pointsOf(topic);
    if (points.length === 0) return DONE;
    gate.throwIfFull();
    if (payload.length > MAX_PAYLOAD_BYTES) {
      for (const point of points) gate.recordFailure(point, 'the message exceeds 1 MiB');
      this.#reportUnreadable(topic, 'it exceeds 1 MiB');
      return DONE;
    }
    const hash = message.hash ?? hashOf(message);
    if (retained && this.#notes.isKnown(topic, hash)) return DONE;
    const isAccepted = this.#read(message, points);
    const last = this.#notes.recordLast(topic, hash, retained, isAccepted);
    if (isAccepted) {
      gate.note(...this.#forgotten());
      if (message.messageId !== undefined) gate.note(...this.#notes.record(message.messageId, hash));
      gate.note(...last);
    }
    return gate.committed();
  }

  /** Returns whether any value will be stored. */
  #read(message: Message, points: readonly Point<MessageValue>[]): boolean {
    const { gate, clock } = this.#context;
    const { topic } = message;
    const { isAccepted, problem } = readMessage(gate, message, clock.wallMs(), points);
    if (problem !== undefined) this.#reportUnreadable(topic, problem);
    else this.#trouble.recovered('mqtt.unreadable', { topic }, 'messages on a topic contain values again', topic);
    return isAccepted;
  }

  #forgotten() {
    return this.#notes.forget(this.#broker.drainAcknowledged());
  }

  #reportUnreadable(topic: string, error: string): void {
    this.#errors++;
    const fields = { source: this.#context.source.name, topic, error };
    this.#trouble.report({ event: 'mqtt.unreadable', ...fields }, 'message without a value', topic);
  }
}
