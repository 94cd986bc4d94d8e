import { SourceStopped, TagferryError } from '../../base/errors.ts';
import type { NatsBroker } from '../../broker/nats/nats-broker.ts';
import type { NatsPull, StreamMessage } from '../../broker/nats/nats-pull.ts';
import type { NatsSpec } from '../../broker/nats/nats-spec.ts';
import { asSubject, asTopic, subjectCovers } from '../../broker/nats/subject.ts';
import { hashOf, UnconfirmedMessages } from '../../broker/unconfirmed.ts';
import { isTrusted } from '../ahead-times.ts';
import { StreamTimes } from '../group-times.ts';
import { KeptNotes } from '../mqtt/kept-session.ts';
import { MAX_PAYLOAD_BYTES, readMessage } from '../mqtt/message-reading.ts';
import type { MqttValue } from '../mqtt/mqtt-value.ts';
import { planFilters, TopicRouter } from '../mqtt/topic-plan.ts';
import type { Point } from '../points.ts';
import type { RunningSource, ScanStep, SourceContext, SourceState } from '../source-kind.ts';
import { TroubleLog } from '../trouble-log.ts';
import type { NatsValue } from './nats-value.ts';
import { scanNats } from './scan-nats.ts';

type Context = SourceContext<NatsSpec, NatsValue>;

const NS_OF_MS = 1_000_000n;
/** Messages on disk of which the server has not said that it knows: more than may be under way. */
const MAX_REMEMBERED = 10_000;
/** Messages of which it has said so that are known all the same: more than it can have given anew before. */
const MAX_CONFIRMED = 4_000;

/**
 * Values that a stream of NATS brings. A message is acknowledged when its values are on disk. What is on disk and not acknowledged
 * stands on disk with its values, by its number in the stream: after a crash it comes again, is answered, and nothing is stored twice,
 * unless another agent of the consumer got it meanwhile. That is counted: what had been given to somebody before, and was taken here.
 */
export class NatsSource implements RunningSource {
  #context: Context;
  readonly #broker: NatsBroker;
  readonly #kept: KeptNotes;
  readonly #trouble: TroubleLog;
  readonly #taken = new UnconfirmedMessages();
  /** Hashes of messages by their number. */
  readonly #remembered = new Map<number, string>();
  /** Those confirmed of late. Where the acknowledgement came after the consumer's wait, one of them is on its way once more. */
  readonly #confirmed = new Map<number, string>();
  #pull: NatsPull | undefined;
  #router: TopicRouter;
  #subjects: readonly string[];
  #isStopped = false;
  #errors = 0;
  readonly #redelivered = { known: 0, taken: 0 };
  readonly #times = new StreamTimes();

  /** `notes`: what an earlier process left. Throws where there is no such broker. */
  constructor(context: Context, notes: ReadonlyMap<string, string>) {
    const { source, brokers, log, clock } = context;
    const broker = brokers.nats(source.name);
    if (!broker) throw new TagferryError(`there is no broker ${source.name}`, { code: 'broker.unknown' });
    this.#context = context;
    this.#broker = broker;
    this.#router = new TopicRouter(context.points);
    this.#subjects = subjectsOf(context.points);
    this.#trouble = new TroubleLog(log, clock, 'topics');
    this.#kept = new KeptNotes(source.name, notes);
    const { unconfirmed } = this.#kept.session('');
    this.#taken.restore(unconfirmed);
    for (const [seq, hash] of unconfirmed) this.#remembered.set(seq, hash);
  }

  start(): void {
    const { stream, durable, ordered } = this.#context.source.spec;
    this.#pull = this.#broker.pull({
      stream,
      durable,
      ordered,
      subjects: () => this.#subjects,
      handler: (message) => this.#take(message),
      acknowledged: (seq) => this.#confirm(seq),
      stalled: () => this.#context.gate.hurry(),
    });
  }

  /** Other values of the same consumer. */
  async follow(context: Context): Promise<boolean> {
    const { source, brokers } = context;
    if (brokers.nats(source.name) !== this.#broker) return false;
    this.#context = context;
    this.#router = new TopicRouter(context.points);
    this.#subjects = subjectsOf(context.points);
    this.#pull?.changed();
    return true;
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    const { gate } = this.#context;
    if (this.#pull) this.#broker.drop(this.#pull);
    gate.note(...this.#kept.forget(this.#taken.takeForgotten()));
    gate.hurry();
  }

  state(): SourceState {
    const { connected, sinceMs, problem, failures, discarded, window, certificateEndsMs } = this.#broker.state();
    return {
      connected,
      sinceMs,
      ...(problem === undefined ? {} : { problem }),
      errors: this.#errors + failures + discarded,
      window,
      redelivered: { ...this.#redelivered },
      pollsLate: 0,
      ...(certificateEndsMs === undefined ? {} : { certificateEndsMs }),
    };
  }

  /** By a client of its own: the consumer is left alone. */
  async *scan(what: readonly string[], waitMs: number, signal: AbortSignal): AsyncGenerator<ScanStep> {
    const { source, brokers, clock } = this.#context;
    const beside = await brokers.natsBeside(source.name, source.spec);
    yield* scanNats(beside, { what, waitMs, clock, signal });
  }

  /** Throws if the message must be retried. */
  #take(message: StreamMessage): Promise<void> {
    if (this.#isStopped) throw new SourceStopped();
    const { subject, payload, seq, storedNs } = message;
    const points = this.#router.pointsOf(asTopic(subject));
    if (points.length === 0) return Promise.resolve();
    const hash = hashOf({ topic: `${subject} ${storedNs}`, payload });
    const before = this.#before(seq, hash);
    if (before === undefined) return this.#store(message, points, hash);
    return before.then(
      () => {
        this.#redelivered.known++;
      },
      () => this.#store(message, points, hash),
    );
  }

  #store(message: StreamMessage, points: readonly Point<MqttValue>[], hash: string): Promise<void> {
    const { gate, clock, source } = this.#context;
    const { subject, payload, seq, storedNs, redelivered } = message;
    gate.demandRoom();
    if (payload.length > MAX_PAYLOAD_BYTES) {
      this.#sayUnreadable(subject, 'it is larger than 1 MiB');
      return Promise.resolve();
    }
    const storedMs = Number(storedNs / NS_OF_MS);
    // A server whose clock is not set tells no time.
    const timeOf = isTrusted(storedMs)
      ? (series: number) => this.#times.of(series, seq, storedMs, source.member)
      : undefined;
    const { isTaken, problem } = readMessage(gate, { payload }, clock.wallMs(), points, timeOf);
    if (problem !== undefined) this.#sayUnreadable(subject, problem);
    else this.#trouble.over('mqtt.unreadable', { topic: subject }, 'messages of a topic can be read again', subject);
    if (redelivered && isTaken) this.#redelivered.taken++;
    if (isTaken) gate.note(...this.#kept.forget(this.#taken.takeForgotten()), ...this.#kept.record(seq, hash));
    const committed = gate.committed();
    if (isTaken) this.#remember(seq, hash, committed);
    return committed;
  }

  #remember(seq: number, hash: string, committed: Promise<void>): void {
    this.#taken.begin(seq, hash, committed);
    this.#remembered.set(seq, hash);
    if (this.#remembered.size <= MAX_REMEMBERED) return;
    // The oldest went to another agent long ago.
    this.#forget(this.#remembered.keys().next().value!);
  }

  /**
   * How it fared before; `undefined` where it was not here, or longer ago than it can have been on its way. The server's word is not asked:
   * 2.9 may give a message anew and then once more as if for the first time.
   */
  #before(seq: number, hash: string): Promise<void> | undefined {
    return this.#confirmed.get(seq) === hash ? Promise.resolve() : this.#taken.find({ messageId: seq, hash });
  }

  #confirm(seq: number): void {
    const hash = this.#remembered.get(seq);
    if (hash !== undefined) this.#confirmed.set(seq, hash);
    if (this.#confirmed.size > MAX_CONFIRMED) this.#confirmed.delete(this.#confirmed.keys().next().value!);
    this.#forget(seq);
  }

  #forget(seq: number): void {
    this.#remembered.delete(seq);
    this.#taken.confirmed(seq);
  }

  #sayUnreadable(topic: string, error: string): void {
    this.#errors++;
    const fields = { source: this.#context.source.name, topic, error };
    this.#trouble.again({ event: 'mqtt.unreadable', ...fields }, 'a message holds no value', topic);
  }
}

/** Few subjects that bring every value. */
function subjectsOf(points: readonly Point<NatsValue>[]): readonly string[] {
  const planned = planFilters(points).map(asSubject);
  // `a.>` does not bring `a`, which as a topic it would.
  const left = points
    .map(({ spec }) => spec.subject)
    .filter((one) => !planned.some((wide) => subjectCovers(wide, one)));
  return [...planned, ...new Set(left)];
}
