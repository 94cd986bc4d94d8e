import { SourceStopped, TagferryError } from '../../base/errors.ts';
import type { NatsBroker } from '../../broker/nats/nats-broker.ts';
import type { NatsPull, StreamMessage } from '../../broker/nats/nats-pull.ts';
import type { NatsSpec } from '../../broker/nats/nats-spec.ts';
import { NATS_SUBJECTS } from '../../broker/topic-filters.ts';
import { hashOf, UnconfirmedMessages } from '../../broker/unconfirmed.ts';
import { isTrusted, StreamTimes } from '../intake/stamps.ts';
import { TroubleLog } from '../intake/trouble-log.ts';
import { publishValue } from '../messages/message-writes.ts';
import { MAX_PAYLOAD_BYTES, type MessageValue, PAYLOAD_TOO_LONG, readMessage } from '../messages/payload.ts';
import { scanMessages } from '../messages/scan.ts';
import { SessionNotes } from '../messages/session-notes.ts';
import { planFilters, TopicRouter } from '../messages/topic-plan.ts';
import type { Point } from '../points.ts';
import type { RunningSource, ScanStep, SourceContext, SourceState } from '../source-kind.ts';

type Context = SourceContext<NatsSpec, MessageValue>;

const NS_OF_MS = 1_000_000n;
/**
 * Maximum number of recorded messages whose acknowledgement is not confirmed. Exceeds the number of messages that can
 * be pending.
 */
const MAX_REMEMBERED = 10_000;
/**
 * Number of confirmed messages that are still recognised. Exceeds the number of messages that the server can redeliver
 * before a confirmation.
 */
const MAX_CONFIRMED = 4_000;

/**
 * Values from a NATS stream. A message is acknowledged when its values are on disk. Stored but unacknowledged messages
 * are recorded on disk with their values, by stream sequence number. When they are redelivered after a crash, they are
 * acknowledged but not stored again. Messages that are redelivered to a different agent of the consumer are stored
 * there and counted as possible duplicates.
 */
export class NatsSource implements RunningSource {
  #context: Context;
  readonly #broker: NatsBroker;
  readonly #notes: SessionNotes;
  readonly #trouble: TroubleLog;
  readonly #unconfirmed = new UnconfirmedMessages();
  /** Message hashes by sequence number. */
  readonly #remembered = new Map<number, string>();
  /**
   * Hashes of recently confirmed messages by sequence number. A message is redelivered once more if its acknowledgement
   * arrived after the ack wait.
   */
  readonly #confirmed = new Map<number, string>();
  #pull: NatsPull | undefined;
  #router: TopicRouter;
  #subjects: readonly string[];
  #isStopped = false;
  #errors = 0;
  readonly #redelivered = { known: 0, taken: 0 };
  readonly #times = new StreamTimes();

  /** `notes`: notes stored by a previous process. Throws for an unknown broker. */
  constructor(context: Context, notes: ReadonlyMap<string, string>) {
    const { source, brokers, log, clock } = context;
    const broker = brokers.nats(source.name);
    if (!broker) throw new TagferryError(`unknown broker ${source.name}`, { code: 'broker.unknown' });
    this.#context = context;
    this.#broker = broker;
    this.#router = new TopicRouter(context.points, NATS_SUBJECTS);
    this.#subjects = planFilters(context.points, NATS_SUBJECTS);
    this.#trouble = new TroubleLog(log, clock, 'subjects');
    this.#notes = new SessionNotes(source.name, notes);
    const { unconfirmed } = this.#notes;
    this.#unconfirmed.restore(unconfirmed);
    for (const [seq, hash] of unconfirmed) this.#remembered.set(seq, hash);
  }

  start(): void {
    const { stream, durable, ordered } = this.#context.source.spec;
    this.#pull = this.#broker.pull({
      stream,
      durable,
      ordered,
      subjects: () => this.#subjects,
      handler: (message) => this.#receive(message),
      acknowledged: (seq) => this.#confirm(seq),
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
    gate.note(...this.#notes.forget(this.#unconfirmed.drainAcknowledged()));
    gate.commitSoon();
  }

  write({ spec }: Point, ...rest: [raw: number, guard: () => void, signal: AbortSignal]): Promise<void> {
    return publishValue(this.#context, spec as MessageValue, ...rest);
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

  /** Scans with a separate client that does not use the consumer. */
  async *scan(what: readonly string[], waitMs: number, signal: AbortSignal): AsyncGenerator<ScanStep> {
    const { source, brokers, clock } = this.#context;
    const broker = await brokers.inspectionNats(source.name, source.spec);
    yield* scanMessages({ broker, grammar: NATS_SUBJECTS, what, waitMs, clock, signal });
  }

  /** Throws if the message must be retried. */
  #receive(message: StreamMessage): Promise<void> {
    if (this.#isStopped) throw new SourceStopped();
    const { subject, payload, seq, storedNs } = message;
    const points = this.#router.pointsOf(subject);
    if (points.length === 0) return Promise.resolve();
    const hash = hashOf({ topic: `${subject} ${storedNs}`, payload });
    const before = this.#earlierDelivery(seq, hash);
    if (before === undefined) return this.#store(message, points, hash);
    return before.then(
      () => {
        this.#redelivered.known++;
      },
      () => this.#store(message, points, hash),
    );
  }

  #store(message: StreamMessage, points: readonly Point<MessageValue>[], hash: string): Promise<void> {
    const { gate, clock } = this.#context;
    const { subject, payload, seq, storedNs, redelivered } = message;
    gate.throwIfFull();
    if (payload.length > MAX_PAYLOAD_BYTES) {
      this.#reportUnreadable(subject, PAYLOAD_TOO_LONG);
      return Promise.resolve();
    }
    const storedMs = Number(storedNs / NS_OF_MS);
    // Ignore the stored time if the server clock was not set.
    const timeOf = isTrusted(storedMs)
      ? (series: number, afterMs?: number) => this.#times.of(series, seq, storedMs, afterMs)
      : undefined;
    const { isAccepted, problem } = readMessage(gate, { payload }, clock.wallMs(), points, timeOf);
    if (problem !== undefined) this.#reportUnreadable(subject, problem);
    else this.#trouble.recovered('nats.unreadable', { subject }, 'messages on a subject contain values again', subject);
    if (redelivered && isAccepted) this.#redelivered.taken++;
    if (isAccepted)
      gate.note(...this.#notes.forget(this.#unconfirmed.drainAcknowledged()), ...this.#notes.record(seq, hash));
    const committed = gate.committed();
    if (isAccepted) this.#remember(seq, hash, committed);
    return committed;
  }

  #remember(seq: number, hash: string, committed: Promise<void>): void {
    this.#unconfirmed.begin(seq, hash, committed);
    this.#remembered.set(seq, hash);
    if (this.#remembered.size <= MAX_REMEMBERED) return;
    // The oldest message has certainly been delivered to another agent by now.
    this.#forget(this.#remembered.keys().next().value!);
  }

  /**
   * Returns the result of an earlier delivery, or `undefined` if none is recorded. The server's redelivery flag is not
   * used, because NATS 2.9 may redeliver a message without the flag.
   */
  #earlierDelivery(seq: number, hash: string): Promise<void> | undefined {
    return this.#confirmed.get(seq) === hash ? Promise.resolve() : this.#unconfirmed.find({ messageId: seq, hash });
  }

  #confirm(seq: number): void {
    const hash = this.#remembered.get(seq);
    if (hash !== undefined) this.#confirmed.set(seq, hash);
    if (this.#confirmed.size > MAX_CONFIRMED) this.#confirmed.delete(this.#confirmed.keys().next().value!);
    this.#forget(seq);
  }

  #forget(seq: number): void {
    this.#remembered.delete(seq);
    this.#unconfirmed.confirmed(seq);
  }

  #reportUnreadable(subject: string, error: string): void {
    this.#errors++;
    const fields = { source: this.#context.source.name, subject, error };
    this.#trouble.report({ event: 'nats.unreadable', ...fields }, 'message without a value', subject);
  }
}
