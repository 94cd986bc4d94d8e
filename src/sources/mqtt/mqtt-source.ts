import { SourceStopped, TagferryError } from '../../base/errors.ts';
import type { Broker } from '../../broker/broker.ts';
import type { BrokerSpec } from '../../broker/broker-spec.ts';
import type { Message } from '../../broker/connection.ts';
import { hashOf } from '../../broker/unconfirmed.ts';
import type { Point } from '../points.ts';
import type { RunningSource, ScanStep, SourceContext, SourceState } from '../source-kind.ts';
import { TroubleLog } from '../trouble-log.ts';
import { KeptNotes } from './kept-session.ts';
import { MAX_PAYLOAD_BYTES, readMessage } from './message-reading.ts';
import type { MqttValue } from './mqtt-value.ts';
import { scanMqtt } from './scan.ts';
import { planFilters, TopicRouter } from './topic-plan.ts';

type Context = SourceContext<BrokerSpec, MqttValue>;

const DONE = Promise.resolve();

/**
 * Values that a broker brings. A message is confirmed when its values are on disk; one that cannot be read is confirmed too, said
 * and counted, because the same bytes would come again. A retained message is taken as the last known value, but not a second
 * time when the subscription is made anew.
 *
 * What is on disk and not confirmed stands on disk with its values, so that after a crash a broker that sends it again is answered and
 * nothing is stored twice. A stop leaves the session as it is; a reload changes its subscriptions by the difference, in one turn.
 */
export class MqttSource implements RunningSource {
  #context: Context;
  readonly #broker: Broker;
  readonly #kept: KeptNotes;
  readonly #trouble: TroubleLog;
  readonly #handler = (message: Message) => this.#take(message);
  readonly #refused = new Set<string>();
  #router: TopicRouter;
  #leave: (() => void)[] = [];
  #isStopped = false;
  #errors = 0;

  /** `notes`: what an earlier process knew of the session. Throws where there is no such broker. */
  constructor(context: Context, notes: ReadonlyMap<string, string>) {
    const { source, brokers, log, clock } = context;
    const broker = brokers.get(source.name);
    if (!broker) throw new TagferryError(`there is no broker ${source.name}`, { code: 'broker.unknown' });
    this.#context = context;
    this.#broker = broker;
    this.#router = new TopicRouter(context.points);
    this.#trouble = new TroubleLog(log, clock, 'topics');
    this.#kept = new KeptNotes(source.name, notes);
  }

  start(): void {
    const { spec } = this.#context.source;
    const session = [spec.url.replace(/\/\/[^/@]*@/, '//'), spec.clientId].join(' ');
    this.#broker.resume(this.#kept.session(session), (held) => {
      this.#context.gate.note(this.#kept.filters(session, held));
    });
    this.#subscribe();
  }

  /** Other values of the same broker: what both want is left alone. */
  async follow(context: Context): Promise<boolean> {
    const { source, brokers } = context;
    if (brokers.get(source.name) !== this.#broker) return false;
    this.#context = context;
    this.#router = new TopicRouter(context.points);
    this.#refused.clear();
    this.#subscribe();
    return true;
  }

  async stop(isGone = false): Promise<void> {
    this.#isStopped = true;
    const { gate } = this.#context;
    if (isGone) this.leave();
    gate.note(...this.#forgotten(), ...this.#kept.rest());
    gate.hurry();
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
      retaken,
      certificateEndsMs,
    } = this.#broker.state();
    return {
      connected,
      sinceMs,
      ...(problem === undefined ? {} : { problem }),
      errors: this.#errors + failures + dropped + discarded,
      window,
      redelivered: { known: redelivered, taken: retaken },
      pollsLate: 0,
      ...(certificateEndsMs === undefined ? {} : { certificateEndsMs }),
    };
  }

  /** By a client of its own: the session is left alone. */
  scan(what: readonly string[], waitMs: number, signal: AbortSignal): AsyncGenerator<ScanStep> {
    const { source, brokers, clock } = this.#context;
    return scanMqtt({ broker: brokers.beside(source.name, source.spec), what, waitMs, clock, signal });
  }

  /** All within one turn, so that the session's subscriptions change by the difference. */
  #subscribe(): void {
    const { source, points, gate } = this.#context;
    const { qos, share } = source.spec;
    const before = this.#leave;
    this.#leave = planFilters(points, this.#refused).map((filter) =>
      this.#broker.subscribe(filter, this.#handler, {
        qos,
        ...(share === undefined ? {} : { share }),
        stalled: () => gate.hurry(),
        refused: () => this.#subscribeSingly(filter),
      }),
    );
    for (const leave of before) leave();
  }

  /** A broker may allow each topic, and not the wildcard that stands for them. */
  #subscribeSingly(filter: string): void {
    if (this.#refused.has(filter) || this.#context.points.some(({ spec }) => spec.topic === filter)) return;
    this.#refused.add(filter);
    this.#subscribe();
  }

  /** Gives the same promise for all that go to the disk together. Throws what is to be tried again. */
  #take(message: Message): Promise<void> {
    const { gate } = this.#context;
    const { topic, payload, retained } = message;
    if (this.#isStopped) throw new SourceStopped();
    const points = this.#router.pointsOf(topic);
    if (points.length === 0) return DONE;
    gate.demandRoom();
    if (payload.length > MAX_PAYLOAD_BYTES) {
      for (const point of points) gate.fail(point, 'the message is larger than 1 MiB');
      this.#sayUnreadable(topic, 'it is larger than 1 MiB');
      return DONE;
    }
    const hash = message.hash ?? hashOf(message);
    if (retained && this.#kept.isKnown(topic, hash)) return DONE;
    const isTaken = this.#read(message, points);
    const last = this.#kept.took(topic, hash, retained, isTaken);
    if (isTaken) {
      gate.note(...this.#forgotten());
      if (message.messageId !== undefined) gate.note(...this.#kept.record(message.messageId, hash));
      gate.note(...last);
    }
    return gate.committed();
  }

  /** Gives whether any value goes to the disk. */
  #read(message: Message, points: readonly Point<MqttValue>[]): boolean {
    const { gate, clock } = this.#context;
    const { topic } = message;
    const { isTaken, problem } = readMessage(gate, message, clock.wallMs(), points);
    if (problem !== undefined) this.#sayUnreadable(topic, problem);
    else this.#trouble.over('mqtt.unreadable', { topic }, 'messages of a topic can be read again', topic);
    return isTaken;
  }

  #forgotten() {
    return this.#kept.forget(this.#broker.takeForgotten());
  }

  #sayUnreadable(topic: string, error: string): void {
    this.#errors++;
    const fields = { source: this.#context.source.name, topic, error };
    this.#trouble.again({ event: 'mqtt.unreadable', ...fields }, 'a message holds no value', topic);
  }
}
