/**
 * Messages of a durable pull consumer. A message is acknowledged, with confirmation by the server, once its handler has stored it.
 *
 * Messages keep their order: if the handler rejects one, it and all later messages wait in an `OrderedQueue`, and nothing more is
 * requested. If they wait for half of the consumer's ack wait, they are returned to the server in order, without a request that is open.
 * The server delivers them before anything newer, to this agent or to another one of the consumer.
 *
 * Invariants: no more is requested than may be at work; only stored messages are acknowledged. After a crash the server redelivers
 * unacknowledged messages when the consumer's ack wait ends.
 */
import type { Consumer, ConsumerInfo, JetStreamManager, JsMsg } from '@nats-io/jetstream';
import type { NatsConnection } from '@nats-io/transport-node';
import type { Clock } from '../../base/clock.ts';
import { codeOf, messageOf, SourceStopped } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import type { Redactor } from '../../base/redactor.ts';
import { Repeats } from '../../base/repeats.ts';
import { BrokerError, brokerClosed, noStream } from '../broker-error.ts';
import type { Discards } from '../discards.ts';
import { OrderedQueue } from '../ordered-queue.ts';
import { DISCARDED_HEADER, readDiscarded } from './nats-framing.ts';
import { commonSubject, subjectCovers } from './subject.ts';

/** A message of a stream as it came. */
export interface StreamMessage {
  subject: string;
  payload: Uint8Array;
  /** The first value of a header, whatever its case. */
  header(name: string): string | undefined;
  /** Its number in the stream. */
  seq: number;
  /** When the stream stored it, on the server's clock: tells it from the one of that number before the stream was made anew. */
  storedNs: bigint;
  /** The server gave it to somebody before. */
  redelivered: boolean;
}

export interface PullOptions {
  /** Left out: the one that keeps what is subscribed to. */
  stream: string | undefined;
  durable: string;
  ackWaitMs: number;
  /** One agent at a time pulls, and values keep their order: what was not acknowledged before comes before anything new. */
  ordered: boolean;
  /** What is wanted now; nothing is pulled while it is empty. */
  subjects(): readonly string[];
  /** Resolves when the message is stored or will never be of use. Throws or rejects if it must be retried. */
  handler(message: StreamMessage): Promise<void>;
  /** The server knows that a message was taken. */
  acknowledged?(seq: number): void;
  /** Nothing more comes before something is acknowledged: a commit had better come early. */
  stalled?(): void;
}

export interface PullParts {
  /** Of the broker. */
  name: string;
  clock: Clock;
  logger: Logger;
  redactor: Redactor;
  discards: Discards;
}

/** Two commits' worth, so that one is filled while the other is written. */
const MAX_AT_WORK = 2_000;
const MAX_BYTES_AT_WORK = 16 * 1024 * 1024;
/** Of one request. */
const MAX_BYTES_AT_ONCE = 4 * 1024 * 1024;
/** What the client asks for with a bound of bytes. */
const MAX_MESSAGES_AT_ONCE = 100;
/** How long a request stays with the server, whose heartbeats tell that somebody still leads the consumer. */
const ASK_MS = 5_000;
const HEARTBEAT_MS = 1_000;
const RETRY_MS = 1_000;
const ANSWER_MS = 3_000;
/** Unacknowledged messages of all agents of a consumer that is made here. */
const MAX_UNACKNOWLEDGED = 20_000;
const MADE_HERE = 'made by tagferry';
const NANOS = 1_000_000;

interface Arrival {
  message: JsMsg;
  connection: NatsConnection;
}

export class NatsPull {
  readonly #options: PullOptions;
  readonly #parts: PullParts;
  readonly #repeats = new Repeats();
  readonly #stopping = new AbortController();
  readonly #atWork = { messages: 0, bytes: 0 };
  readonly #queue: OrderedQueue<Arrival>;
  /** Of the consumer in use: time after which the server redelivers an unacknowledged message. */
  #ackWaitMs: number;
  #wakeUp: (() => void) | undefined;
  /** Ends the request that is with the server. */
  #endAsking: (() => void) | undefined;
  /** So many at work may be all that the server gives this agent. */
  #hurryFrom = MAX_AT_WORK;
  /** Why nothing is pulled. */
  problem: string | undefined;
  received = 0;
  refused = 0;

  constructor(options: PullOptions, parts: PullParts) {
    this.#options = options;
    this.#parts = parts;
    this.#ackWaitMs = options.ackWaitMs;
    this.#queue = new OrderedQueue({
      deliver: ({ message }) => options.handler(streamMessageOf(message)),
      isOver: ({ connection }) => this.#stopping.signal.aborted || connection.isClosed(),
      onRefused: ({ message }, error) => this.#tellRefused(message.subject, error),
      clock: parts.clock,
      signal: this.#stopping.signal,
    });
  }

  get atWork(): number {
    return this.#atWork.messages;
  }

  get window(): number {
    return MAX_AT_WORK;
  }

  /** Requests nothing more, and returns waiting messages to the server. */
  close(): void {
    this.#stopping.abort();
    this.#returnWaiting();
    this.#wakeUp?.();
  }

  /** Other subjects are wanted. */
  changed(): void {
    this.#endAsking?.();
    this.#wakeUp?.();
  }

  /** Pulls as long as the connection stands. */
  async run(connection: NatsConnection): Promise<void> {
    const { clock } = this.#parts;
    const { signal } = this.#stopping;
    // Messages of the previous connection: the server redelivers them.
    this.#returnWaiting();
    while (!signal.aborted && !connection.isClosed()) {
      try {
        const wanted = [...this.#options.subjects()];
        if (wanted.length > 0) {
          // With no file to open any more it cannot be loaded: that is waited out like all else.
          const { jetstream, jetstreamManager } = await import('@nats-io/jetstream');
          const manager = await jetstreamManager(connection, { checkAPI: false });
          const { stream_name, name, config } = await this.#consumerFor(manager, wanted);
          this.#hurryFrom = hurryFrom(config.max_ack_pending);
          this.#ackWaitMs = config.ack_wait === undefined ? this.#options.ackWaitMs : config.ack_wait / NANOS;
          const consumer = await jetstream(connection).consumers.get(stream_name, name);
          this.problem = undefined;
          if (this.#options.ordered) await this.#untilGivenAnew(manager, stream_name, name);
          await this.#pullFor(wanted, consumer, connection);
          continue;
        }
      } catch (error) {
        if (connection.isClosed()) break;
        this.#tell(error);
        if (!(await this.#answers(connection))) void connection.close();
      }
      await this.#wait(RETRY_MS, clock);
    }
  }

  /** Whether the server is there: one that hangs, or is cut off, is found out by pings alone after half a minute. */
  async #answers(connection: NatsConnection): Promise<boolean> {
    const answer = connection.flush().then(
      () => true,
      () => false,
    );
    return Promise.race([answer, this.#parts.clock.sleep(ANSWER_MS).then(() => false)]);
  }

  /** The server gives first what it gives anew; so nothing is asked for before the wait for earlier acknowledgements is over. */
  async #untilGivenAnew(manager: JetStreamManager, stream: string, name: string): Promise<void> {
    const { clock } = this.#parts;
    const sinceMs = clock.monotonicMs();
    while (!this.#stopping.signal.aborted) {
      const { num_ack_pending, config } = await manager.consumers.info(stream, name);
      const waitMs = (config.ack_wait ?? 0) / NANOS + RETRY_MS;
      if (num_ack_pending === 0 || clock.monotonicMs() - sinceMs > waitMs) return;
      await this.#wait(RETRY_MS, clock);
    }
  }

  /** Until other subjects are wanted or the connection is over. Rejects where the consumer has gone. */
  async #pullFor(wanted: readonly string[], consumer: Consumer, connection: NatsConnection): Promise<void> {
    const { clock } = this.#parts;
    const { signal } = this.#stopping;
    let isFirst = true;
    let waitingSinceMs: number | undefined;
    while (!signal.aborted && !connection.isClosed() && wanted.join() === this.#options.subjects().join()) {
      if (this.#isFull || this.#queue.waiting > 0) {
        const nowMs = clock.monotonicMs();
        waitingSinceMs = this.#queue.waiting > 0 ? (waitingSinceMs ?? nowMs) : undefined;
        if (waitingSinceMs !== undefined && nowMs - waitingSinceMs >= this.#ackWaitMs / 2) {
          this.#returnWaiting();
          // The server processes requests and returned messages side by side: a request that follows at once may overtake them.
          await clock.sleep(RETRY_MS, signal).catch(() => {});
          continue;
        }
        this.#options.stalled?.();
        await this.#wait(RETRY_MS, clock);
        continue;
      }
      waitingSinceMs = undefined;
      const before = this.received;
      try {
        await this.#pull(consumer, connection);
      } catch (error) {
        // A message that is larger than all that a request may bring would never come with one that has a bound of bytes.
        const isTooLarge = /exceeds maxbytes/i.test(messageOf(error));
        if (isTooLarge && this.received === before) await this.#pull(consumer, connection, 1);
        else if (!isTooLarge && (isFirst || this.received === before)) throw error;
      }
      isFirst = false;
      this.#repeats.end('consumer');
    }
  }

  async #pull(consumer: Consumer, connection: NatsConnection, messages?: number): Promise<void> {
    let left = messages ?? MAX_MESSAGES_AT_ONCE;
    // A server that ignores the bounds of a request.
    const maxBytes = this.#atWork.bytes + MAX_BYTES_AT_ONCE;
    const bounds = messages === undefined ? { max_bytes: MAX_BYTES_AT_ONCE } : { max_messages: messages };
    const some = await consumer.fetch({ ...bounds, expires: ASK_MS, idle_heartbeat: HEARTBEAT_MS });
    const onStop = () => void some.close();
    this.#endAsking = onStop;
    this.#stopping.signal.addEventListener('abort', onStop, { once: true });
    try {
      for await (const message of some) {
        void this.#take(message, connection);
        // Servers before 2.10 do not say that these were all, and the client waits for the rest of its bytes until it misses heartbeats.
        if (--left === 0 || this.#atWork.bytes > maxBytes) break;
      }
    } finally {
      this.#endAsking = undefined;
      this.#stopping.signal.removeEventListener('abort', onStop);
    }
  }

  get #isFull(): boolean {
    return this.#atWork.messages >= MAX_AT_WORK || this.#atWork.bytes >= MAX_BYTES_AT_WORK;
  }

  async #take(message: JsMsg, connection: NatsConnection): Promise<void> {
    if (this.#stopping.signal.aborted) return giveBack(message);
    this.received++;
    if (this.#discard(message)) return;
    const bytes = bytesOf(message);
    this.#atWork.messages++;
    this.#atWork.bytes += bytes;
    if (this.#atWork.messages % this.#hurryFrom === 0) this.#options.stalled?.();
    try {
      await this.#queue.offer({ message, connection });
      // An acknowledgement that nobody confirms may be lost: then it comes again, and is known.
      if (await message.ackAck().catch(() => false)) this.#options.acknowledged?.(message.seq);
    } catch {
      this.refused++;
      giveBack(message);
    } finally {
      this.#atWork.messages--;
      this.#atWork.bytes -= bytes;
      this.#wakeUp?.();
    }
  }

  /** Ends the wait of all messages in the queue: `#take` returns each to the server, in order. */
  #returnWaiting(): void {
    this.#queue.clear(brokerClosed(this.#parts.name));
  }

  /** Ends the redelivery of a message that exceeds a bound. Its bytes were dropped by the framing. */
  #discard(message: JsMsg): boolean {
    const discarded = readDiscarded(message.headers?.get(DISCARDED_HEADER));
    if (discarded === undefined) return false;
    this.#parts.discards.add({ topic: message.subject, ...discarded });
    try {
      // Servers before 2.10.4 ignore a TERM with a reason.
      message.term();
    } catch {
      // The connection is over: the message arrives again and is discarded again.
    }
    return true;
  }

  /** The durable consumer as it is, made where there is none, widened where it was made here and brings less than is wanted. */
  async #consumerFor(manager: JetStreamManager, wanted: readonly string[]): Promise<ConsumerInfo> {
    const { durable, ackWaitMs } = this.#options;
    const stream = this.#options.stream ?? (await streamOf(manager, wanted[0]!));
    const known = await manager.consumers.info(stream, durable).catch(missing);
    if (known === undefined) {
      return manager.consumers.add(stream, {
        durable_name: durable,
        description: MADE_HERE,
        ack_policy: 'explicit',
        deliver_policy: 'all',
        ack_wait: ackWaitMs * NANOS,
        max_ack_pending: MAX_UNACKNOWLEDGED,
        filter_subject: commonSubject(wanted),
      });
    }
    const { ack_policy, deliver_subject, description, filter_subject, filter_subjects } = known.config;
    if (ack_policy !== 'explicit' || deliver_subject) {
      throw new BrokerError(`the consumer ${durable} is no pull consumer with explicit acknowledgement`, {
        code: 'broker.consumer',
        hint: 'Make it with: nats consumer add --pull --ack explicit, or name another in durable:.',
      });
    }
    const brings = [filter_subjects ?? filter_subject ?? '>'].flat();
    const lacking = wanted.filter((subject) => !brings.some((one) => subjectCovers(one, subject)));
    if (lacking.length === 0) return known;
    // Servers of 2.9 go on comparing by whole subjects where the first filter was one.
    const canWiden = description === MADE_HERE && brings.every((one) => /[*>]/.test(one));
    if (!canWiden) {
      throw new BrokerError(`the consumer ${durable} does not bring ${lacking[0]}`, {
        code: 'broker.consumer',
        hint: 'Name another in durable:, or have it made anew: nats consumer rm, once nothing waits in it.',
      });
    }
    return manager.consumers.update(stream, durable, { filter_subject: commonSubject([...brings, ...lacking]) });
  }

  /** Ends early when there is something to look at. */
  async #wait(ms: number, clock: Clock): Promise<void> {
    const woken = new AbortController();
    this.#wakeUp = () => woken.abort();
    await clock.sleep(ms, AbortSignal.any([woken.signal, this.#stopping.signal])).catch(() => {});
    this.#wakeUp = undefined;
  }

  #tell(error: unknown): void {
    const { name, clock, logger, redactor } = this.#parts;
    const text = messageOf(redactor.redact(error instanceof Error ? error.message || error.name : String(error)));
    this.problem = codeOf(error) ?? text;
    const count = this.#repeats.note('consumer', clock.monotonicMs());
    const { durable } = this.#options;
    const fields = { event: 'broker.consumer_away', broker: name, durable, error: text, count };
    logger[count === undefined ? 'debug' : 'warn'](fields, 'the consumer of a stream gives nothing; it is tried again');
  }

  #tellRefused(subject: string, error: unknown): void {
    const { name, clock, logger } = this.#parts;
    const code = codeOf(error);
    const count =
      error instanceof SourceStopped ? undefined : this.#repeats.note(`refused:${code}`, clock.monotonicMs());
    const fields = { event: 'broker.refused', broker: name, topic: subject, code, count };
    logger[count === undefined ? 'debug' : 'warn'](fields, 'message deferred, later messages wait behind it');
  }
}

/** Others may pull from the same consumer, and have their part of what it gives unacknowledged. */
function hurryFrom(maxUnacknowledged: number | undefined): number {
  const max = maxUnacknowledged !== undefined && maxUnacknowledged > 0 ? maxUnacknowledged : MAX_UNACKNOWLEDGED;
  return Math.max(1, Math.floor(Math.min(max, MAX_AT_WORK) / 4));
}

function streamMessageOf(message: JsMsg): StreamMessage {
  const { subject, data, headers, seq, redelivered, timestampNanos: storedNs } = message;
  const header = (name: string) => {
    const spelt = headers?.keys().find((one) => one.toLowerCase() === name.toLowerCase());
    return spelt === undefined ? undefined : headers?.get(spelt);
  };
  return { subject, payload: data, header, seq, storedNs, redelivered };
}

/** The server delivers the message again, to this agent or to another one. */
function giveBack(message: JsMsg): void {
  try {
    message.nak();
  } catch {
    // The connection is over: the server redelivers by itself.
  }
}

/** In memory. */
function bytesOf({ subject, data, headers }: JsMsg): number {
  let bytes = subject.length + data.length;
  for (const [name, values] of headers ?? []) for (const value of values) bytes += name.length + value.length;
  return bytes;
}

async function streamOf(manager: JetStreamManager, subject: string): Promise<string> {
  try {
    return await manager.streams.find(subject);
  } catch (error) {
    throw noStream(subject, error);
  }
}

/** A consumer that is not there is none; anything else is an error. */
function missing(error: unknown): undefined {
  if ((error as { name?: string }).name === 'ConsumerNotFoundError') return undefined;
  throw error;
}
