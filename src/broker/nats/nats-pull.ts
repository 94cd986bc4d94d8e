/**
 * Messages of a durable pull consumer. Each message is acknowledged after its handler has stored it. Messages are
 * requested in batches only while there is room for them, because `consume()` of the client has no back-pressure: it
 * requests more messages when some arrive, not when they are processed. Redelivery is left to the server: unacknowledged
 * messages are delivered again after the ack wait, to this agent or another one, and rejected ones after a second.
 */
import type { Consumer, ConsumerInfo, JetStreamManager, JsMsg } from '@nats-io/jetstream';
import type { NatsConnection } from '@nats-io/transport-node';
import type { Clock } from '../../base/clock.ts';
import { codeOf, messageOf } from '../../base/errors.ts';
import type { Redactor } from '../../base/redactor.ts';
import { reportRefused } from '../broker.ts';
import { BrokerError, noStream, redactedMessage } from '../broker-error.ts';
import type { BrokerLog } from '../broker-log.ts';
import { type ExceededBound, reportDiscarded } from '../discards.ts';
import { commonSubject, covers, NATS_SUBJECTS } from '../topic-filters.ts';

/** A message of a stream. */
export interface StreamMessage {
  subject: string;
  payload: Uint8Array;
  /** Returns the first value of a header; the name is not case-sensitive. */
  header(name: string): string | undefined;
  /** Sequence number in the stream. */
  seq: number;
  /** Time at which the server stored the message. Distinguishes equal sequence numbers of a recreated stream. */
  storedNs: bigint;
}

export interface PullOptions {
  /** Name of the stream. If omitted, the stream that stores the subjects is used. */
  stream: string | undefined;
  durable: string;
  ackWaitMs: number;
  /** One agent pulls at a time, and values keep their order: unacknowledged messages are redelivered before new ones. */
  ordered: boolean;
  /** Returns the subjects to pull. Nothing is pulled while the list is empty. */
  subjects(): readonly string[];
  /** Resolves when the message is stored or can be discarded. Rejects if the server must deliver it again. */
  handler(message: StreamMessage): Promise<void>;
  /** Whether no more messages should be requested. */
  isFull?(): boolean;
  /** Called when the server is waiting for an acknowledgement, so that an early commit is useful. */
  stalled?(): void;
}

/** Header that replaces a message over a size limit: the exceeded limit and the size of the message. */
export const DISCARDED_HEADER = 'Tagferry-Discarded';

/** Number of values in two commits, so that one can be filled while the other is written. */
export const MAX_IN_PROGRESS = 2_000;
const MAX_BYTES_IN_PROGRESS = 16 * 1024 * 1024;
/** Byte limit of one request. */
const MAX_BYTES_AT_ONCE = 4 * 1024 * 1024;
/** Number of messages that the client requests with a byte limit. */
const MAX_MESSAGES_AT_ONCE = 100;
/** Duration of a request. Server heartbeats show that the consumer has a leader. */
const REQUEST_MS = 5_000;
const HEARTBEAT_MS = 1_000;
const RETRY_MS = 1_000;
/** Interval at which a full subscriber is checked, in milliseconds. */
const FULL_CHECK_MS = 10;
const RESPONSE_MS = 3_000;
/** Maximum number of unacknowledged messages across all agents, for a consumer created here. */
const MAX_UNACKNOWLEDGED = 20_000;
const CREATED_HERE = 'made by tagferry';
const NANOS = 1_000_000;

export class NatsPull {
  readonly #options: PullOptions;
  readonly #clock: Clock;
  readonly #log: BrokerLog;
  readonly #redactor: Redactor;
  readonly #stopping = new AbortController();
  readonly #inProgress = { messages: 0, bytes: 0 };
  readonly counts = { received: 0, redelivered: 0, returned: 0, discarded: 0 };
  /** Ends the open request. */
  #cancelRequest: (() => void) | undefined;
  /** Number of unacknowledged messages at which the server may be waiting for an acknowledgement. */
  #earlyCommitFrom = MAX_IN_PROGRESS;
  /** Reason why no messages are being pulled. */
  problem: string | undefined;

  constructor(options: PullOptions, { clock, log, redactor }: { clock: Clock; log: BrokerLog; redactor: Redactor }) {
    this.#options = options;
    this.#clock = clock;
    this.#log = log;
    this.#redactor = redactor;
  }

  get inProgress(): number {
    return this.#inProgress.messages;
  }

  /** Ends requests. */
  close(): void {
    this.#stopping.abort();
    this.changed();
  }

  /** Called when the subjects have changed. */
  changed(): void {
    this.#cancelRequest?.();
  }

  /** Pulls until the connection ends. */
  async run(connection: NatsConnection): Promise<void> {
    while (!this.#stopping.signal.aborted && !connection.isClosed()) {
      try {
        if (this.#options.subjects().length > 0) await this.#pullSubjects(connection);
      } catch (error) {
        if (connection.isClosed()) break;
        const text = redactedMessage(error, this.#redactor);
        this.problem = codeOf(error) ?? text;
        const fields = { event: 'broker.consumer_away', durable: this.#options.durable, error: text };
        this.#log.report(fields, 'consumer unavailable, retrying');
        if (!(await this.#responds(connection))) void connection.close();
      }
      await this.#wait(RETRY_MS);
    }
  }

  /** Pulls until the connection ends. Rejects if the consumer is unavailable. */
  async #pullSubjects(connection: NatsConnection): Promise<void> {
    const { signal } = this.#stopping;
    // The import fails if no file descriptors are available; it is retried like any other failure.
    const { jetstream, jetstreamManager } = await import('@nats-io/jetstream');
    const manager = await jetstreamManager(connection, { checkAPI: false });
    for (let isFirst = true; !signal.aborted && !connection.isClosed(); isFirst = false) {
      const wanted = [...this.#options.subjects()];
      if (wanted.length === 0) return;
      const { stream_name, name, config } = await this.#consumerFor(manager, wanted);
      // Other agents may pull from the same consumer and share its limit of unacknowledged messages.
      const { max_ack_pending: limit = 0 } = config;
      this.#earlyCommitFrom = Math.ceil((limit > 0 ? Math.min(limit, MAX_IN_PROGRESS) : MAX_IN_PROGRESS) / 4);
      const consumer = await jetstream(connection).consumers.get(stream_name, name);
      this.problem = undefined;
      if (isFirst && this.#options.ordered) await this.#waitForRedelivery(consumer);
      await this.#pullFor(wanted, consumer, connection);
    }
  }

  /** Whether the server responds. The client's pings detect a disconnected server only after half a minute. */
  async #responds(connection: NatsConnection): Promise<boolean> {
    const silence = this.#clock.sleep(RESPONSE_MS).then(() => false);
    return Promise.race([connection.flush().then(() => true), silence]).catch(() => false);
  }

  /** Waits until the ack wait of earlier messages has expired, because the server redelivers them before new ones. */
  async #waitForRedelivery(consumer: Consumer): Promise<void> {
    const sinceMs = this.#clock.monotonicMs();
    while (!this.#stopping.signal.aborted) {
      const { num_ack_pending, config } = await consumer.info();
      const waitMs = (config.ack_wait ?? 0) / NANOS + RETRY_MS;
      if (num_ack_pending === 0 || this.#clock.monotonicMs() - sinceMs > waitMs) return;
      await this.#wait(RETRY_MS);
    }
  }

  /** Pulls until the subjects change or the connection ends. Rejects if the consumer was deleted. */
  async #pullFor(wanted: readonly string[], consumer: Consumer, connection: NatsConnection): Promise<void> {
    const { signal } = this.#stopping;
    const isWanted = () => wanted.join() === this.#options.subjects().join();
    for (let isFirst = true; !signal.aborted && !connection.isClosed() && isWanted(); isFirst = false) {
      if (this.#isFull) this.#options.stalled?.();
      while (this.#isFull && !signal.aborted) await this.#wait(FULL_CHECK_MS);
      const before = this.counts.received;
      try {
        await this.#pull(consumer);
      } catch (error) {
        // A message larger than the byte limit of a request is never delivered, so request one without a limit.
        const isTooLarge = /exceeds maxbytes/i.test(messageOf(error));
        if (isTooLarge && this.counts.received === before) await this.#pull(consumer, 1);
        else if (!isTooLarge && (isFirst || this.counts.received === before)) throw error;
      }
      this.#log.end('broker.consumer_away');
    }
  }

  async #pull(consumer: Consumer, messages?: number): Promise<void> {
    const { signal } = this.#stopping;
    let left = messages ?? MAX_MESSAGES_AT_ONCE;
    // Protects against a server that ignores the limits of a request.
    const maxBytes = this.#inProgress.bytes + MAX_BYTES_AT_ONCE;
    const bounds = messages === undefined ? { max_bytes: MAX_BYTES_AT_ONCE } : { max_messages: messages };
    const batch = await consumer.fetch({ ...bounds, expires: REQUEST_MS, idle_heartbeat: HEARTBEAT_MS });
    this.#cancelRequest = () => void batch.close();
    try {
      if (signal.aborted) this.#cancelRequest();
      for await (const message of batch) {
        void this.#receive(message);
        // Servers before 2.10 do not report that the request is complete, and the client would wait until it misses
        // heartbeats.
        if (--left === 0 || this.#inProgress.bytes > maxBytes) break;
      }
    } finally {
      this.#cancelRequest = undefined;
    }
  }

  get #isFull(): boolean {
    const { messages, bytes } = this.#inProgress;
    return messages >= MAX_IN_PROGRESS || bytes >= MAX_BYTES_IN_PROGRESS || this.#options.isFull?.() === true;
  }

  async #receive(message: JsMsg): Promise<void> {
    this.counts.received++;
    if (message.redelivered) this.counts.redelivered++;
    const discarded = readDiscarded(message);
    if (discarded) {
      this.counts.discarded++;
      reportDiscarded(this.#log, { topic: message.subject, ...discarded });
      // Ends the redelivery. Servers before 2.10.4 ignore a TERM with a reason.
      return respond(() => message.term());
    }
    const bytes = bytesOf(message);
    this.#inProgress.messages++;
    this.#inProgress.bytes += bytes;
    if (this.#inProgress.messages % this.#earlyCommitFrom === 0) this.#options.stalled?.();
    try {
      await this.#options.handler(streamMessageOf(message));
      respond(() => message.ack());
    } catch (error) {
      this.counts.returned++;
      respond(() => message.nak(RETRY_MS));
      reportRefused(this.#log, message.subject, error);
    } finally {
      this.#inProgress.messages--;
      this.#inProgress.bytes -= bytes;
    }
  }

  /** Returns the durable consumer, created if necessary. Widens its filter if necessary and if it was created here. */
  async #consumerFor(manager: JetStreamManager, wanted: readonly string[]): Promise<ConsumerInfo> {
    const { durable, ackWaitMs } = this.#options;
    const find = async (subject: string) =>
      manager.streams.find(subject).catch((error: unknown) => {
        throw noStream(subject, error);
      });
    const stream = this.#options.stream ?? (await find(wanted[0]!));
    const known = await manager.consumers.info(stream, durable).catch(missing);
    if (known === undefined) {
      return manager.consumers.add(stream, {
        durable_name: durable,
        description: CREATED_HERE,
        ack_policy: 'explicit',
        deliver_policy: 'all',
        ack_wait: ackWaitMs * NANOS,
        max_ack_pending: MAX_UNACKNOWLEDGED,
        filter_subject: commonSubject(wanted),
      });
    }
    const { ack_policy, deliver_subject, description, filter_subject, filter_subjects } = known.config;
    if (ack_policy !== 'explicit' || deliver_subject) {
      throw new BrokerError(`the consumer ${durable} is not a pull consumer with explicit acknowledgement`, {
        code: 'broker.consumer',
        hint: 'Create it with nats consumer add --pull --ack explicit, or set another durable:.',
      });
    }
    const delivered = [filter_subjects ?? filter_subject ?? '>'].flat();
    const undelivered = wanted.filter((subject) => !delivered.some((one) => covers(one, subject, NATS_SUBJECTS)));
    if (undelivered.length === 0) return known;
    // Version 2.9 servers continue to compare whole subjects if the first filter had no wildcard.
    if (description !== CREATED_HERE || !delivered.every((one) => /[*>]/.test(one))) {
      throw new BrokerError(`the consumer ${durable} does not deliver ${undelivered[0]}`, {
        code: 'broker.consumer',
        hint: 'Set another durable:, or delete it with nats consumer rm once it is empty; the agent recreates it.',
      });
    }
    return manager.consumers.update(stream, durable, { filter_subject: commonSubject([...delivered, ...undelivered]) });
  }

  #wait(ms: number): Promise<void> {
    return this.#clock.sleep(ms, this.#stopping.signal).catch(() => {});
  }
}

/** Responds to a message. If the connection has ended, the server delivers the message again. */
function respond(send: () => void): void {
  try {
    send();
  } catch {}
}

function streamMessageOf(message: JsMsg): StreamMessage {
  const { subject, data, headers, seq, timestampNanos: storedNs } = message;
  const header = (name: string) => {
    const spelt = headers?.keys().find((one) => one.toLowerCase() === name.toLowerCase());
    return spelt === undefined ? undefined : headers?.get(spelt);
  };
  return { subject, payload: data, header, seq, storedNs };
}

/** Returns the limit that a message exceeded and its size; `undefined` if it passed unchanged. */
function readDiscarded({ headers }: JsMsg): { bound: ExceededBound; bytes: number } | undefined {
  const [bound, bytes] = headers?.get(DISCARDED_HEADER).split(' ') ?? [];
  return bound ? { bound: bound as ExceededBound, bytes: Number(bytes) } : undefined;
}

/** Returns the size of a message in memory. */
function bytesOf({ subject, data, headers }: JsMsg): number {
  let bytes = subject.length + data.length;
  for (const [name, values] of headers ?? []) for (const value of values) bytes += name.length + value.length;
  return bytes;
}

/** Returns `undefined` if the consumer does not exist; rethrows any other error. */
function missing(error: Error): undefined {
  if (error.name !== 'ConsumerNotFoundError') throw error;
}
