import type { JsMsg } from '@nats-io/jetstream';
import { SourceStopped } from '../../base/errors.ts';
import type { NatsSpec } from '../../broker/broker-spec.ts';
import type { NatsBroker } from '../../broker/nats/nats-broker.ts';
import { NATS_SUBJECTS } from '../../broker/topic-filters.ts';
import { isTrusted, StreamTimes } from '../intake/stamps.ts';
import { MessageReader } from '../messages/message-reader.ts';
import type { MessageValue } from '../messages/payload.ts';
import { planFilters } from '../messages/topic-plan.ts';
import type { Point } from '../points.ts';
import type { RunningSource, SourceContext } from '../source-kind.ts';

type Context = SourceContext<NatsSpec, MessageValue>;

/**
 * Values from a NATS stream. A message is acknowledged when its values are on disk. After a crash, the server redelivers
 * unacknowledged messages, and their values are stored again with the same times: their own, or the time at which the
 * stream stored the message.
 */
export class NatsSource implements RunningSource {
  readonly #context: Context;
  readonly #broker: NatsBroker;
  readonly #reader: MessageReader;
  readonly #times = new StreamTimes();
  #end: () => void = () => {};
  #isStopped = false;

  constructor(context: Context) {
    const { source, brokers, status } = context;
    this.#context = context;
    this.#broker = brokers.get(source.name) as NatsBroker;
    status.broker = this.#broker;
    this.#reader = new MessageReader(context, NATS_SUBJECTS);
  }

  start(): void {
    const { source, points, gate, status, isTest } = this.#context;
    const { stream, durable, ordered } = source.spec;
    const states = this.#reader.availabilityTopics.map((topic) => ({ spec: { topic, template: topic } }));
    this.#end = this.#broker.pull({
      stream,
      durable,
      ordered,
      isTest,
      subjects: planFilters([...points, ...states], NATS_SUBJECTS),
      handler: (message) => this.#receive(message),
      isFull: () => gate.isFull,
      stalled: () => gate.commitSoon(),
      missed: (messages, stream) => {
        status.errors += messages;
        status.recordRejected(`the stream ${stream} deleted messages before they were delivered`, messages);
      },
    });
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#end();
    this.#context.gate.commitSoon();
  }

  /** Publishes the number as text. Resolves when the server has accepted the message. */
  write({ spec }: Point, raw: number, beforeSend: () => void, signal: AbortSignal): Promise<void> {
    const { brokers, source } = this.#context;
    // After a reload, the source may have another broker client.
    return brokers.publish(source.name, (spec as MessageValue).writeTo!, String(raw), { signal, beforeSend });
  }

  #receive({ subject, data: payload, info, seq }: JsMsg): Promise<void> {
    if (this.#isStopped) return Promise.reject(new SourceStopped());
    // The getter `timestampNanos` of the message would parse the delivery information again.
    const storedMs = Math.floor(info.timestampNanos / 1_000_000);
    const timeOf = (series: number, afterMs?: number) => this.#times.of(series, seq, storedMs, afterMs);
    // Without the stream timestamp, the age of the message is unknown.
    const times = isTrusted(storedMs) ? { timeOf, arrivalMs: storedMs } : { isPast: true };
    return this.#reader.write(subject, { payload }, this.#reader.pointsOf(subject) ?? [], times);
  }
}
