/**
 * Messages of a pull consumer. Each message is acknowledged after its handler has stored it. Messages are requested in
 * batches only while there is room for them, because `consume()` of the client has no back-pressure: it requests more
 * messages when some arrive, not when they are processed. Redelivery is left to the server: unacknowledged messages are
 * delivered again after the ack wait, to this agent or another one, and rejected ones after a second.
 */
import type { Consumer, ConsumerInfo, JetStreamManager, JsMsg } from '@nats-io/jetstream';
import type { NatsConnection } from '@nats-io/transport-node';
import type { Clock } from '../../base/clock.ts';
import { codeOf, messageOf } from '../../base/errors.ts';
import type { Redactor } from '../../base/redactor.ts';
import { BrokerError, noStream, redactedMessage } from '../broker-error.ts';
import type { BrokerLog } from '../broker-log.ts';
import type { ExceededBound } from '../limits.ts';
import { commonSubject, covers, NATS_SUBJECTS } from '../topic-filters.ts';

export interface PullOptions {
  /** Name of the stream. If omitted, the stream that stores the subjects is used. */
  stream: string | undefined;
  /** Name of the consumer; by default, the client ID. */
  durable: string | undefined;
  clientId: string;
  ackWaitMs: number;
  /** One agent pulls at a time, and values keep their order: unacknowledged messages are redelivered before new ones. */
  ordered: boolean;
  /** Reads the latest message of each subject and new messages through a consumer that ends with the connection. */
  isTest?: boolean;
  /** Filter subjects. If the list is empty, no messages are pulled. */
  subjects: readonly string[];
  /** Resolves when the message is stored or can be discarded. Rejects if the server must deliver it again. */
  handler(message: JsMsg): Promise<void>;
  /** Whether no more messages should be requested. */
  isFull?(): boolean;
  /** Called when the server is waiting for an acknowledgement, so that an early commit is useful. */
  stalled?(): void;
}

interface PullParts {
  clock: Clock;
  log: BrokerLog;
  redactor: Redactor;
  counts: { received: number; redelivered: number; discarded: number };
  stopping: AbortSignal;
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
/** Maximum number of unacknowledged messages across all agents, for a consumer created here. */
const MAX_UNACKNOWLEDGED = 20_000;
const CREATED_HERE = 'made by tagferry';
const NANOS = 1_000_000;

export class NatsPull {
  readonly #options: PullOptions;
  readonly #parts: PullParts;
  readonly #closing = new AbortController();
  readonly #signal: AbortSignal;
  readonly #inProgress = { messages: 0, bytes: 0 };
  /** Number of unacknowledged messages at which the server may be waiting for an acknowledgement. */
  #earlyCommitFrom = MAX_IN_PROGRESS;
  /** Reason why no messages are being pulled. */
  problem: string | undefined;

  constructor(options: PullOptions, parts: PullParts) {
    this.#options = options;
    this.#parts = parts;
    this.#signal = AbortSignal.any([parts.stopping, this.#closing.signal]);
  }

  get inProgress(): number {
    return this.#inProgress.messages;
  }

  /** Ends requests. */
  close(): void {
    this.#closing.abort();
  }

  /** Pulls until the connection ends. */
  async run(connection: NatsConnection): Promise<void> {
    const { subjects, durable, clientId } = this.#options;
    const { log, redactor } = this.#parts;
    if (subjects.length === 0) return;
    for (let isFirst = true; !this.#signal.aborted && !connection.isClosed(); isFirst = false) {
      try {
        await this.#pullFrom(await this.#openConsumer(connection), connection, isFirst);
      } catch (error) {
        if (connection.isClosed()) return;
        const text = redactedMessage(error, redactor);
        this.problem = codeOf(error) ?? text;
        const fields = { event: 'broker.consumer_away', durable: durable ?? clientId, error: text };
        log.report(fields, 'consumer unavailable, retrying');
      }
      await this.#wait(RETRY_MS);
    }
  }

  async #openConsumer(connection: NatsConnection): Promise<Consumer> {
    // The import fails if no file descriptors are available; it is retried like any other failure.
    const { jetstream, jetstreamManager } = await import('@nats-io/jetstream');
    const manager = await jetstreamManager(connection, { checkAPI: false });
    const { stream_name, name, config } = await this.#consumerOf(manager);
    // Other agents may pull from the same consumer and share its limit of unacknowledged messages.
    const { max_ack_pending: limit = 0 } = config;
    this.#earlyCommitFrom = Math.ceil((limit > 0 ? Math.min(limit, MAX_IN_PROGRESS) : MAX_IN_PROGRESS) / 4);
    return await jetstream(connection).consumers.get(stream_name, name);
  }

  /** Pulls until the connection ends. Rejects if the consumer is unavailable. */
  async #pullFrom(consumer: Consumer, connection: NatsConnection, isFirst: boolean): Promise<void> {
    const { ordered, isTest, stalled } = this.#options;
    const { log, counts } = this.#parts;
    this.problem = undefined;
    if (isFirst && ordered && !isTest) await this.#waitForRedelivery(consumer);
    for (let pulls = 0; !this.#signal.aborted && !connection.isClosed(); pulls++) {
      if (this.#isFull) stalled?.();
      while (this.#isFull && !this.#signal.aborted) await this.#wait(FULL_CHECK_MS);
      const before = counts.received;
      try {
        await this.#pull(consumer);
      } catch (error) {
        // A message larger than the byte limit of a request is never delivered, so request one without a limit.
        const isTooLarge = /exceeds maxbytes/i.test(messageOf(error));
        if (isTooLarge && counts.received === before) await this.#pull(consumer, 1);
        else if (!isTooLarge && (pulls === 0 || counts.received === before)) throw error;
      }
      log.end('broker.consumer_away');
    }
  }

  /** Waits until the ack wait of earlier messages has expired, because the server redelivers them before new ones. */
  async #waitForRedelivery(consumer: Consumer): Promise<void> {
    const { clock } = this.#parts;
    const sinceMs = clock.monotonicMs();
    while (!this.#signal.aborted) {
      const { num_ack_pending, config } = await consumer.info();
      const waitMs = (config.ack_wait ?? 0) / NANOS + RETRY_MS;
      if (num_ack_pending === 0 || clock.monotonicMs() - sinceMs > waitMs) return;
      await this.#wait(RETRY_MS);
    }
  }

  async #pull(consumer: Consumer, messages?: number): Promise<void> {
    let left = messages ?? MAX_MESSAGES_AT_ONCE;
    // Protects against a server that ignores the limits of a request.
    const maxBytes = this.#inProgress.bytes + MAX_BYTES_AT_ONCE;
    const bounds = messages === undefined ? { max_bytes: MAX_BYTES_AT_ONCE } : { max_messages: messages };
    const batch = await consumer.fetch({ ...bounds, expires: REQUEST_MS, idle_heartbeat: HEARTBEAT_MS });
    const cancel = () => void batch.close();
    this.#signal.addEventListener('abort', cancel, { once: true });
    try {
      if (this.#signal.aborted) cancel();
      for await (const message of batch) {
        void this.#receive(message);
        // Servers before 2.10 do not report that the request is complete, and the client would wait until it misses
        // heartbeats.
        if (--left === 0 || this.#inProgress.bytes > maxBytes) break;
      }
    } finally {
      this.#signal.removeEventListener('abort', cancel);
    }
  }

  get #isFull(): boolean {
    const { messages, bytes } = this.#inProgress;
    return messages >= MAX_IN_PROGRESS || bytes >= MAX_BYTES_IN_PROGRESS || this.#options.isFull?.() === true;
  }

  async #receive(message: JsMsg): Promise<void> {
    const { counts, log } = this.#parts;
    const { subject, data, headers } = message;
    counts.received++;
    if (message.redelivered) counts.redelivered++;
    const [bound, size] = headers?.get(DISCARDED_HEADER).split(' ') ?? [];
    if (bound) {
      counts.discarded++;
      log.reportDiscarded(subject, Number(size), bound as ExceededBound);
      // Ends the redelivery. Servers before 2.10.4 ignore a TERM with a reason.
      return respond(() => message.term());
    }
    let bytes = subject.length + data.length;
    for (const [name, values] of headers ?? []) for (const value of values) bytes += name.length + value.length;
    this.#inProgress.messages++;
    this.#inProgress.bytes += bytes;
    if (this.#inProgress.messages % this.#earlyCommitFrom === 0) this.#options.stalled?.();
    try {
      await this.#options.handler(message);
      respond(() => message.ack());
    } catch (error) {
      respond(() => message.nak(RETRY_MS));
      log.reportRejected(subject, error);
    } finally {
      this.#inProgress.messages--;
      this.#inProgress.bytes -= bytes;
    }
  }

  /** Returns the durable consumer, created if necessary. Widens its filter if necessary and if it was created here. */
  async #consumerOf(manager: JetStreamManager): Promise<ConsumerInfo> {
    const { subjects, clientId, durable = clientId, ackWaitMs, isTest } = this.#options;
    const filter_subject = commonSubject(subjects);
    const find = (subject: string) =>
      manager.streams.find(subject).catch((error: unknown) => {
        throw noStream(subject, error);
      });
    const stream = this.#options.stream ?? (await find(subjects[0]!));
    if (isTest) {
      const ending = { ack_policy: 'none', inactive_threshold: RETRY_MS * NANOS } as const;
      return await manager.consumers.add(stream, { ...ending, deliver_policy: 'last_per_subject', filter_subject });
    }
    const known = await manager.consumers.info(stream, durable).catch((error: Error) => {
      if (error.name !== 'ConsumerNotFoundError') throw error;
    });
    if (!known) {
      return await manager.consumers.add(stream, {
        durable_name: durable,
        description: CREATED_HERE,
        ack_policy: 'explicit',
        deliver_policy: 'all',
        ack_wait: ackWaitMs * NANOS,
        max_ack_pending: MAX_UNACKNOWLEDGED,
        filter_subject,
      });
    }
    const { ack_policy, deliver_subject, description, filter_subject: one, filter_subjects: several } = known.config;
    if (ack_policy !== 'explicit' || deliver_subject) {
      throw new BrokerError(`the consumer ${durable} is not a pull consumer with explicit acknowledgement`, {
        code: 'broker.consumer',
        hint: 'Create it with nats consumer add --pull --ack explicit, or set another durable:.',
      });
    }
    const delivered = [several ?? one ?? '>'].flat();
    const undelivered = subjects.filter((subject) => !delivered.some((wide) => covers(wide, subject, NATS_SUBJECTS)));
    if (undelivered.length === 0) return known;
    // Version 2.9 servers continue to compare whole subjects if the first filter had no wildcard.
    if (description !== CREATED_HERE || !delivered.every((wide) => /[*>]/.test(wide))) {
      throw new BrokerError(`the consumer ${durable} does not deliver ${undelivered[0]}`, {
        code: 'broker.consumer',
        hint: 'Set another durable:, or delete it with nats consumer rm once it is empty; the agent recreates it.',
      });
    }
    return await manager.consumers.update(stream, durable, {
      filter_subject: commonSubject([...delivered, ...undelivered]),
    });
  }

  #wait(ms: number): Promise<void> {
    return this.#parts.clock.sleep(ms, this.#signal).catch(() => {});
  }
}

/** Responds to a message. If the connection has ended, the server delivers the message again. */
function respond(send: () => void): void {
  try {
    send();
  } catch {}
}
