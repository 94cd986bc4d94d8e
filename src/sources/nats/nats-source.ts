import { SourceStopped, TagferryError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import type { NatsBroker } from '../../broker/nats/nats-broker.ts';
import type { NatsPull, StreamMessage } from '../../broker/nats/nats-pull.ts';
import type { NatsSpec } from '../../broker/nats/nats-spec.ts';
import { NATS_SUBJECTS } from '../../broker/topic-filters.ts';
import { isTrusted, StreamTimes } from '../intake/stamps.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import { publishValue } from '../messages/message-writes.ts';
import { type MessageValue, readMessage } from '../messages/payload.ts';
import { planFilters, TopicRouter } from '../messages/topic-plan.ts';
import type { Point } from '../points.ts';
import type { RunningSource, SourceContext } from '../source-kind.ts';

type Context = SourceContext<NatsSpec, MessageValue>;

const NS_OF_MS = 1_000_000n;
/**
 * Values from a NATS stream. A message is acknowledged when its values are on disk. After a crash, the server redelivers
 * unacknowledged messages, and their values are stored again with the same times: their own, or the time at which the
 * stream stored the message.
 */
export class NatsSource implements RunningSource {
  #context: Context;
  readonly #broker: NatsBroker;
  readonly #trouble: TroubleLog;
  #pull: NatsPull | undefined;
  #router: TopicRouter;
  #subjects: readonly string[];
  #isStopped = false;
  readonly #times = new StreamTimes();

  /** Throws for an unknown broker. */
  constructor(context: Context) {
    const { source, brokers, log, clock } = context;
    const broker = brokers.nats(source.name);
    if (!broker) throw new TagferryError(`unknown broker ${source.name}`, { code: 'broker.unknown' });
    this.#context = context;
    this.#broker = broker;
    context.status.broker = broker;
    this.#router = new TopicRouter(context.points, NATS_SUBJECTS);
    this.#subjects = planFilters(context.points, NATS_SUBJECTS);
    this.#trouble = new TroubleLog(log, clock, 'subjects');
  }

  start(): void {
    const { stream, durable, ordered } = this.#context.source.spec;
    this.#pull = this.#broker.pull({
      stream,
      durable,
      ordered,
      subjects: () => this.#subjects,
      handler: (message) => this.#receive(message),
      isFull: () => this.#context.gate.isFull,
      stalled: () => this.#context.gate.commitSoon(),
    });
  }

  /** Applies a changed set of values from the same consumer. */
  async follow(context: Context): Promise<boolean> {
    const { source, brokers } = context;
    if (brokers.nats(source.name) !== this.#broker) return false;
    this.#context = context;
    this.#router = new TopicRouter(context.points, NATS_SUBJECTS);
    this.#subjects = planFilters(context.points, NATS_SUBJECTS);
    this.#pull?.changed();
    return true;
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    const { gate } = this.#context;
    if (this.#pull) this.#broker.drop(this.#pull);
    gate.commitSoon();
  }

  write({ spec }: Point, ...rest: [raw: number, guard: () => void, signal: AbortSignal]): Promise<void> {
    return publishValue(this.#context, spec as MessageValue, ...rest);
  }

  #receive({ subject, payload, seq, storedNs }: StreamMessage): Promise<void> {
    if (this.#isStopped) return Promise.reject(new SourceStopped());
    const { gate, clock } = this.#context;
    const points = this.#router.pointsOf(subject);
    if (points.length === 0) return Promise.resolve();
    const storedMs = Number(storedNs / NS_OF_MS);
    // Ignore the stored time if the server clock was not set.
    const timeOf = isTrusted(storedMs)
      ? (series: number, afterMs?: number) => this.#times.of(series, seq, storedMs, afterMs)
      : undefined;
    const { readings, problem } = readMessage({ payload }, clock.wallMs(), points, timeOf);
    if (problem !== undefined) this.#reportUnreadable(subject, problem);
    else this.#trouble.recovered('nats.unreadable', { subject }, 'messages on a subject contain values again', subject);
    return gate.write(readings);
  }

  #reportUnreadable(subject: string, error: string): void {
    const { status } = this.#context;
    status.errors++;
    status.recordRejected(`${plain(subject)}: ${error}`);
    const fields = { source: this.#context.source.name, subject, error };
    this.#trouble.report({ event: 'nats.unreadable', ...fields }, 'message without a value', subject);
  }
}
