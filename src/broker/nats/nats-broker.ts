/**
 * One NATS server or cluster in tags.yaml, and the pull consumers of its streams.
 *
 * A message is acknowledged after its handler has stored it. The server redelivers unacknowledged messages after the
 * ack wait, to this agent or another one, and rejected messages after a second.
 */
import {
  type Consumer,
  type ConsumerInfo,
  type ConsumerMessages,
  type JetStreamManager,
  type JsMsg,
  jetstream,
  jetstreamManager,
} from '@nats-io/jetstream';
import {
  headers as createHeaders,
  credsAuthenticator,
  type MsgHdrs,
  type NatsConnection,
  NatsConnectionImpl,
  setTransportFactory,
} from '@nats-io/transport-node';
import { nodeResolveHost } from '@nats-io/transport-node/lib/node_transport.js';
import { earlierMs, peerEndsMs } from '../../base/certificates.ts';
import { messageOf, TagferryError } from '../../base/errors.ts';
import type { Redactor } from '../../base/redactor.ts';
import { BrokerClient, type BrokerOptions, type BrokerState, type Publishing } from '../broker-client.ts';
import {
  BrokerError,
  brokerHungUp,
  brokerTooLarge,
  noStream,
  notAcknowledged,
  redactedMessage,
  retryable,
  streamNotFound,
} from '../broker-error.ts';
import { NATS_PORTS, type NatsSpec, placeOf } from '../broker-spec.ts';
import { readCredentials } from '../credentials.ts';
import { type ExceededBound, MAX_PACKET_BYTES } from '../limits.ts';
import { commonSubject, covers, NATS_SUBJECTS } from '../topic-filters.ts';
import { BoundedTransport, DISCARDED_HEADER } from './nats-transport.ts';

export interface PullOptions {
  /** Name of the stream. If omitted, the stream that stores the subjects is used. */
  stream: string | undefined;
  /** Name of the consumer; by default, the client ID. */
  durable: string | undefined;
  /** One agent pulls at a time, and values keep their order: unacknowledged messages are redelivered before new ones. */
  ordered: boolean;
  /** Reads the latest message of each subject and new messages through a consumer that ends with the connection. */
  isTest?: boolean;
  /** Filter subjects. If the list is empty, no messages are pulled. */
  subjects: readonly string[];
  /** Resolves when the message is stored or can be discarded. Rejects if the server must deliver it again. */
  handler(message: JsMsg, headers: MsgHdrs | undefined): Promise<void>;
  /** Whether no more messages should be requested. */
  isFull?(): boolean;
  /** Called when the server is waiting for an acknowledgement, so that an early commit is useful. */
  stalled?(): void;
  /** Called with the number of messages that the stream deleted before they were delivered. */
  missed?(messages: number, stream: string): void;
}

/** A pull consumer and its messages in progress. */
interface Pull {
  options: PullOptions;
  /** Aborted when no more messages are accepted. */
  signal: AbortSignal;
  messages: number;
  bytes: number;
  /** Number of unacknowledged messages at which the server may be waiting for an acknowledgement. */
  earlyCommitFrom: number;
  /** Reason why no messages are being pulled. */
  problem: string | undefined;
  /** Reason why some messages never arrive. */
  partial: string | undefined;
}

const CONNECT_TIMEOUT_MS = 10_000;
/** A server that responds to no ping is detected after three intervals. */
const PING_EVERY_MS = 4_000;
const CLOSE_MS = 1_000;
const LOGIN_ERRORS = new Set(['AuthorizationError', 'UserAuthenticationExpiredError', 'PermissionViolationError']);
/** Client error names for a missing stream or a lookup that is not permitted. */
const NOT_KEPT = new Set(['StreamNotFoundError', 'JetStreamNotEnabled', 'PermissionViolationError']);
/** Number of values in two commits, so that one can be filled while the other is written. */
const MAX_IN_PROGRESS = 2_000;
const MAX_BYTES_IN_PROGRESS = 16 * 1024 * 1024;
/** Limit for the total size of requested messages, in bytes, which the client queues while a handler is full. */
const MAX_BYTES_REQUESTED = 48 * 1024 * 1024;
const MAX_REQUESTED = 500;
/** Duration of a request. Server heartbeats show that the consumer has a leader. */
const REQUEST_MS = 5_000;
const HEARTBEAT_MS = 1_000;
const RETRY_MS = 1_000;
/** Maximum time for reading the configuration of a stream. Without the permission, there is no response. */
const CHECK_MS = 1_000;
/** Interval at which a full subscriber is checked, in milliseconds. */
const FULL_CHECK_MS = 10;
/** Maximum number of unacknowledged messages across all agents, for a consumer created here. */
const MAX_UNACKNOWLEDGED = 20_000;
const CREATED_HERE = 'made by tagferry';
const NANOS = 1_000_000;

export class NatsBroker extends BrokerClient<NatsConnection, NatsSpec> {
  readonly kind = 'nats';
  readonly #pulls = new Set<Pull>();

  /** Pulls from a stream, now and on every connection. Returns a function that stops pulling. */
  pull(options: PullOptions): () => void {
    const closing = new AbortController();
    const signal = AbortSignal.any([this.stopping.signal, closing.signal]);
    const begun = { options, signal, messages: 0, bytes: 0, earlyCommitFrom: MAX_IN_PROGRESS };
    const pull = { ...begun, problem: undefined, partial: undefined };
    this.#pulls.add(pull);
    if (this.connection) void this.#consume(pull, this.connection);
    return () => {
      closing.abort();
      this.#pulls.delete(pull);
    };
  }

  /**
   * Publishes a message. Resolves when the stream that stores the subject has acknowledged the message, or when the
   * server has received it if there is no such stream. Throws a `BrokerError`, usually retryable, or the abort reason
   * of the signal.
   */
  async publish(subject: string, payload: string | Uint8Array, options: Publishing = {}): Promise<void> {
    if (options.retain) throw new BrokerError('NATS does not support retained messages', { code: 'broker.retain' });
    const isSubject = subject.split('.').every((level) => /^[^\s\0*>]+$/.test(level));
    if (!isSubject || Buffer.byteLength(subject) > 4_096) {
      throw new BrokerError('invalid subject for publishing', { code: 'broker.topic' });
    }
    const connection = await this.connected(options.signal);
    try {
      await this.#publish(connection, subject, payload, options);
    } catch (error) {
      options.signal?.throwIfAborted();
      if (error instanceof TagferryError) throw error;
      if (/max_payload/.test(messageOf(error))) throw brokerTooLarge(this.name, error);
      if (options.mustKeep && NOT_KEPT.has((error as Error).name)) throw noStream(subject, error);
      throw notAcknowledged(this.name, error);
    }
  }

  async #publish(
    connection: NatsConnection,
    subject: string,
    payload: string | Uint8Array,
    { headers: given = {}, id: msgID, mustKeep, signal, beforeSend }: Publishing,
  ): Promise<void> {
    const headers = createHeaders();
    for (const [name, value] of Object.entries(given)) headers.set(name, value);
    const { streams } = await jetstreamManager(connection, { checkAPI: false });
    // Without a stream, `publish` would wait for a response in vain, and the message would be sent twice. Other errors
    // are inconclusive: a cluster without a leader would lose the message.
    const find = () =>
      streams.find(subject).catch((error: Error) => {
        if (!NOT_KEPT.has(error.name)) throw error;
      });
    const isKept = mustKeep || (await find()) !== undefined;
    signal?.throwIfAborted();
    beforeSend?.();
    if (isKept) await jetstream(connection).publish(subject, payload, { headers, ...(msgID && { msgID }) });
    else connection.publish(subject, payload, { headers });
    if (!isKept) await connection.flush();
  }

  override state(): BrokerState {
    const state = super.state();
    const problems = [...this.#pulls].flatMap((pull) => [pull.problem, pull.partial]);
    const problem = problems.find((one) => one !== undefined);
    const size = this.#pulls.size > 0 ? MAX_IN_PROGRESS : undefined;
    return { ...state, problem: state.problem ?? problem, window: { used: this.inProgress, size } };
  }

  protected get inProgress(): number {
    return [...this.#pulls].reduce((sum, { messages }) => sum + messages, 0);
  }

  protected get place(): string {
    const places = this.options.spec.servers.map((server) => placeOf(server, NATS_PORTS));
    return places.map(({ host, port }) => `${host} port ${port}`).join(', ');
  }

  protected versionOf({ info }: NatsConnection): string {
    return info?.version ?? '';
  }

  protected async connect(): Promise<NatsConnection> {
    const { connection, certificateEndsMs } = await openNats(this.options, this.redactor);
    this.certificateEndsMs = certificateEndsMs;
    return connection;
  }

  protected async serve(connection: NatsConnection): Promise<unknown> {
    for (const pull of this.#pulls) void this.#consume(pull, connection);
    return (await connection.closed()) ?? brokerHungUp();
  }

  protected async close(connection: NatsConnection): Promise<void> {
    await Promise.race([connection.flush().catch(() => {}), this.options.clock.sleep(CLOSE_MS)]);
    await connection.close();
  }

  /** Receives messages until the connection ends. */
  async #consume(pull: Pull, connection: NatsConnection): Promise<void> {
    const { subjects, ordered, isTest, durable = this.options.clientId } = pull.options;
    if (subjects.length === 0) return;
    const isOpen = () => !pull.signal.aborted && !connection.isClosed();
    for (let isFirst = true; isOpen(); isFirst = false) {
      try {
        const consumer = await this.#openConsumer(pull, connection);
        if (isFirst && ordered && !isTest) await this.#waitForRedelivery(pull, consumer);
        const largest = Math.min(connection.info?.max_payload ?? MAX_PACKET_BYTES, MAX_PACKET_BYTES);
        await this.#receiveFrom(
          pull,
          await consumer.consume({
            max_messages: Math.min(MAX_REQUESTED, Math.floor(MAX_BYTES_REQUESTED / largest)),
            expires: REQUEST_MS,
            idle_heartbeat: HEARTBEAT_MS,
          }),
        );
      } catch (error) {
        if (!isOpen()) return;
        pull.problem = redactedMessage(error, this.redactor);
        const fields = { event: 'broker.consumer_away', durable, error: pull.problem };
        this.report(fields, 'consumer unavailable, retrying');
      }
      await this.#wait(pull, RETRY_MS);
    }
  }

  async #openConsumer(pull: Pull, connection: NatsConnection): Promise<Consumer> {
    const manager = await jetstreamManager(connection, { checkAPI: false });
    const { stream } = pull.options;
    const found = await this.#consumerOf(pull.options, manager).catch((error: Error) => {
      throw stream !== undefined && error.name === 'StreamNotFoundError' ? streamNotFound(stream, error) : error;
    });
    const { stream_name, name, config } = found;
    // Other agents may pull from the same consumer and share its limit of unacknowledged messages.
    const { max_ack_pending: limit = 0 } = config;
    pull.earlyCommitFrom = Math.ceil((limit > 0 ? Math.min(limit, MAX_IN_PROGRESS) : MAX_IN_PROGRESS) / 4);
    // The check is omitted if this client is not allowed to read the configuration of the stream.
    if (!pull.options.isTest) await this.#checkStream(pull, connection, found).catch(() => {});
    return await jetstream(connection).consumers.get(stream_name, name);
  }

  /**
   * Reports subjects that the stream does not store, and messages that its limits deleted before they were delivered.
   * Deleted messages can only be counted if the consumer delivers all subjects of the stream.
   */
  async #checkStream(pull: Pull, connection: NatsConnection, consumer: ConsumerInfo): Promise<void> {
    const { stream_name: stream, config, delivered } = consumer;
    const { filter_subject: one, filter_subjects: several } = config;
    const manager = await jetstreamManager(connection, { checkAPI: false, timeout: CHECK_MS });
    const { state, config: stored } = await manager.streams.info(stream);
    const kept = stored.subjects ?? [];
    // A stream without subjects is a copy of others.
    if (kept.length === 0) return;
    const doCover = (wide: string, narrow: string) => covers(wide, narrow, NATS_SUBJECTS);
    const absent = pull.options.subjects.filter(
      (subject) => !kept.some((wide) => doCover(wide, subject) || doCover(subject, wide)),
    );
    pull.partial = absent.length === 0 ? undefined : `the stream ${stream} does not store ${absent.join(', ')}`;
    const missed = state.first_seq - delivered.stream_seq - 1;
    const filters = [several ?? one ?? '>'].flat();
    const isCounted = kept.every((subject) => filters.some((wide) => doCover(wide, subject)));
    if (delivered.consumer_seq === 0 || missed <= 0 || !isCounted) return;
    pull.options.missed?.(missed, stream);
    const hint = 'Raise the limits of the stream (max_age, max_msgs, max_bytes).';
    this.report({ event: 'broker.missed', stream, messages: missed, hint }, 'messages deleted before their delivery');
  }

  /** Waits until the ack wait of earlier messages has expired, because the server redelivers them before new ones. */
  async #waitForRedelivery(pull: Pull, consumer: Consumer): Promise<void> {
    const { clock } = this.options;
    const sinceMs = clock.monotonicMs();
    while (!pull.signal.aborted) {
      const { num_ack_pending, config } = await consumer.info();
      const waitMs = (config.ack_wait ?? 0) / NANOS + RETRY_MS;
      if (num_ack_pending === 0 || clock.monotonicMs() - sinceMs > waitMs) return;
      await this.#wait(pull, RETRY_MS);
    }
  }

  /**
   * Receives messages until their requests end. The client sends the next request only after this loop has read the
   * previous messages, so a full handler receives only the requested messages. Rejects if the consumer is unavailable.
   */
  async #receiveFrom(pull: Pull, messages: ConsumerMessages): Promise<void> {
    const { stalled, isFull } = pull.options;
    const isPullFull = () =>
      pull.messages >= MAX_IN_PROGRESS || pull.bytes >= MAX_BYTES_IN_PROGRESS || isFull?.() === true;
    const close = () => void messages.close();
    pull.signal.addEventListener('abort', close, { once: true });
    const watched = this.#watch(pull, messages);
    try {
      for await (const message of messages) {
        this.#recover(pull);
        this.#receive(pull, message);
        if (isPullFull()) stalled?.();
        while (isPullFull() && !pull.signal.aborted) await this.#wait(pull, FULL_CHECK_MS);
      }
    } finally {
      pull.signal.removeEventListener('abort', close);
    }
    const problem = await watched;
    if (problem !== undefined) throw new Error(problem);
  }

  /**
   * Closes the messages if heartbeats are missing, or if the consumer rejects the requests. Returns why the consumer is
   * unavailable; `undefined` if it responded, because the requests of a full handler expire.
   */
  async #watch(pull: Pull, messages: ConsumerMessages): Promise<string | undefined> {
    let problem: string | undefined;
    for await (const status of messages.status()) {
      if (status.type === 'heartbeat') this.#recover(pull);
      else if (status.type === 'exceeded_limits') problem = status.description;
      else if (status.type !== 'heartbeats_missed') continue;
      else if (messages.getReceived() === 0) problem = 'no response to requests for messages';
      if (status.type !== 'heartbeat') void messages.close();
    }
    return problem;
  }

  /** Ends a problem with the consumer, which has sent a message or a heartbeat. */
  #recover(pull: Pull): void {
    if (pull.problem === undefined) return;
    pull.problem = undefined;
    const { durable = this.options.clientId } = pull.options;
    this.reportOver('broker.consumer_away', { event: 'broker.connected', durable }, 'consumer restored');
  }

  /** Uses callbacks instead of `async` to save memory, because thousands of messages can wait for a commit. */
  #receive(pull: Pull, message: JsMsg): void {
    const { counts } = this;
    const { subject, data } = message;
    const headers = headersOf(message);
    counts.received++;
    const discarded = headers?.get(DISCARDED_HEADER);
    if (discarded) {
      const [bound, size] = discarded.split(' ');
      this.reportDiscarded(subject, Number(size), bound as ExceededBound);
      // Ends the redelivery. Servers before 2.10.4 ignore a TERM with a reason.
      respond(() => message.term());
      return;
    }
    let bytes = subject.length + data.length;
    if (headers) for (const [name, values] of headers) for (const value of values) bytes += name.length + value.length;
    pull.messages++;
    pull.bytes += bytes;
    if (pull.messages % pull.earlyCommitFrom === 0) pull.options.stalled?.();
    const end = (send: () => void) => {
      respond(send);
      pull.messages--;
      pull.bytes -= bytes;
    };
    let stored: Promise<void>;
    try {
      // `redelivered` throws an error if the reply subject is not that of a consumer.
      if (message.redelivered) counts.redelivered++;
      stored = pull.options.handler(message, headers);
    } catch (error) {
      stored = Promise.reject(error);
    }
    stored.then(
      () => end(() => message.ack()),
      (error: unknown) => {
        end(() => message.nak(RETRY_MS));
        this.reportRejected(subject, error);
      },
    );
  }

  /** Returns the durable consumer, created if necessary. Widens its filter if necessary and if it was created here. */
  async #consumerOf(options: PullOptions, manager: JetStreamManager): Promise<ConsumerInfo> {
    const { subjects, durable = this.options.clientId, isTest } = options;
    const filter_subject = commonSubject(subjects);
    const find = (subject: string) =>
      manager.streams.find(subject).catch((error: unknown) => {
        throw noStream(subject, error);
      });
    const stream = options.stream ?? (await find(subjects[0]!));
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
        ack_wait: this.options.spec.ackWaitMs * NANOS,
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

  #wait({ signal }: Pull, ms: number): Promise<void> {
    return this.options.clock.sleep(ms, signal).catch(() => {});
  }
}

/** Returns the headers of a message; `undefined` if the client cannot read them, for example if a name has a space. */
function headersOf(message: JsMsg): MsgHdrs | undefined {
  try {
    return message.headers;
  } catch {
    return undefined;
  }
}

/** Responds to a message. If the connection has ended, the server delivers the message again. */
function respond(send: () => void): void {
  try {
    send();
  } catch {}
}

/**
 * Opens one connection to a NATS server. The client never reconnects, because `BrokerClient` does. Returns the earliest
 * certificate expiry as wall-clock time. Rejects with a `BrokerError` or a client error.
 */
export async function openNats(
  {
    name,
    spec,
    clientId,
    platformCaFile,
  }: Pick<BrokerOptions<NatsSpec>, 'name' | 'spec' | 'clientId' | 'platformCaFile'>,
  redactor: Redactor,
): Promise<{ connection: NatsConnection; certificateEndsMs: number | undefined }> {
  const credentials = await readCredentials(name, spec, platformCaFile, redactor);
  const { username: user, password: pass, ca, cert, key, creds } = credentials;
  const urls = spec.servers.map((server) => new URL(server));
  // In NATS addresses, a user name without a password is a token.
  const token = pass === undefined ? { token: user } : { user, pass };
  const isSecure = urls.some(({ protocol }) => protocol === 'tls:') || spec.caFile !== undefined || cert !== undefined;
  const tls = { ...(ca && { ca: [ca].flat().join('\n') }), ...(cert && { cert }), ...(key && { key }) };
  // Same as the client's `connect` function, which does not accept another transport.
  setTransportFactory({ factory: () => new BoundedTransport(), dnsResolveFn: nodeResolveHost });
  const connection = await NatsConnectionImpl.connect({
    servers: urls.map(({ hostname, port }) => `${hostname}:${port || '4222'}`),
    name: clientId,
    reconnect: false,
    timeout: CONNECT_TIMEOUT_MS,
    pingInterval: PING_EVERY_MS,
    maxPingOut: 2,
    noAsyncTraces: true,
    ...(creds === undefined ? {} : { authenticator: credsAuthenticator(new TextEncoder().encode(creds)) }),
    ...(user === undefined ? {} : (token as { token: string })),
    ...(isSecure ? { tls } : {}),
  }).catch((error: Error) => {
    if (!LOGIN_ERRORS.has(error.name)) throw error;
    const hint =
      "Check username, password_file and creds of the source, and this client's access rights on the server.";
    throw retryable('broker.login', 'the NATS server rejected this client', hint, error);
  });
  const { transport } = (connection as unknown as { protocol: { transport: { socket?: object } } }).protocol;
  const serverEndsMs = transport.socket && peerEndsMs(transport.socket);
  return { connection, certificateEndsMs: earlierMs(credentials.endsMs, serverEndsMs) };
}
