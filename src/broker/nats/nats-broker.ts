/**
 * One NATS server or cluster in tags.yaml, shared by stream sources and publishers. `ConnectionLoop` reconnects;
 * `NatsPull` pulls and acknowledges messages.
 */
import type { NatsConnection } from '@nats-io/transport-node';
import type { Clock } from '../../base/clock.ts';
import { messageOf, TagferryError } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import { Redactor } from '../../base/redactor.ts';
import { BrokerError, brokerBusy, brokerClosed, brokerTooLarge, noStream } from '../broker-error.ts';
import { ConnectionLoop } from '../connection-loop.ts';
import { Discards } from '../discards.ts';
import { openNats } from './nats-connection.ts';
import { NatsPull, type PullOptions } from './nats-pull.ts';
import type { NatsSpec } from './nats-spec.ts';

export interface NatsBrokerOptions {
  name: string;
  spec: NatsSpec;
  /** Stable across restarts and unique per gateway. */
  clientId: string;
  clock: Clock;
  logger: Logger;
  platformCaFile?: string | undefined;
}

export interface NatsState {
  connected: boolean;
  sinceMs: number;
  problem: string | undefined;
  failures: number;
  received: number;
  /** Number of messages that the server had delivered before. */
  redelivered: number;
  /** Number of messages returned to the server because they could not be stored. */
  returned: number;
  /** Number of messages that exceed a size limit. */
  discarded: number;
  window: { used: number; size: number | undefined };
  certificateEndsMs: number | undefined;
}

/** Options for a published message. */
export interface PublishedMessage {
  headers?: Readonly<Record<string, string>>;
  /** Message ID. A stream stores only one message per ID. */
  id?: string;
  /** Fails if no stream stores the subject, because offline subscribers would miss the message. */
  mustKeep?: boolean;
  signal?: AbortSignal;
  /** Called once the server is connected, immediately before the message is sent. An exception prevents that. */
  beforeSend?: () => void;
}

const MAX_PUBLISHING = 200;
const CLOSE_MS = 1_000;
/** Duration for which the result of the stream lookup is cached. */
const STREAM_KNOWN_MS = 60_000;
const MAX_KNOWN = 1_000;
/** Client error names for a missing stream or a lookup that is not permitted. */
const NOT_KEPT = new Set(['StreamNotFoundError', 'JetStreamNotEnabled', 'PermissionViolationError']);

export class NatsBroker {
  readonly name: string;
  readonly #options: NatsBrokerOptions;
  readonly #loop: ConnectionLoop<NatsConnection>;
  readonly #redactor = new Redactor();
  readonly #pulls = new Set<NatsPull>();
  readonly #discards: Discards;
  readonly #isKept = new Map<string, { kept: boolean; untilMs: number }>();
  #certificateEndsMs: number | undefined;
  #publishing = 0;
  #isClosed = false;

  constructor(options: NatsBrokerOptions) {
    this.name = options.name;
    this.#options = options;
    this.#discards = new Discards(options);
    this.#loop = new ConnectionLoop({
      name: options.name,
      clock: options.clock,
      logger: options.logger,
      redactor: this.#redactor,
      connect: () => this.#connect(),
      serve: (connection) => this.#serve(connection),
      details: ({ info }) => ({ version: info?.version ?? '' }),
    });
  }

  start(): void {
    this.#loop.start();
  }

  /** Disconnects. The durable consumer and its pending messages remain. */
  async leave(): Promise<void> {
    await this.stop();
  }

  /** Waits up to `budgetMs` for running handlers, so that stored messages are acknowledged. */
  async stop(budgetMs = 2_000): Promise<void> {
    const { clock } = this.#options;
    const deadline = clock.monotonicMs() + budgetMs;
    const connection = this.#loop.current;
    this.#isClosed = true;
    for (const pull of this.#pulls) pull.close();
    const isBusy = () => [...this.#pulls].some(({ inProgress }) => inProgress > 0);
    while (connection && !connection.isClosed() && isBusy() && clock.monotonicMs() < deadline) await clock.sleep(20);
    this.#loop.stop(brokerClosed(this.name));
    if (connection) await Promise.race([connection.flush().catch(() => {}), clock.sleep(CLOSE_MS)]);
    await connection?.close();
    await this.#loop.stopped();
  }

  /** Pulls from a stream, now and on every connection. Call `close` on the result to stop pulling. */
  pull(options: Omit<PullOptions, 'durable' | 'ackWaitMs'> & { durable?: string | undefined }): NatsPull {
    const { name, clientId, clock, logger, spec } = this.#options;
    const durable = options.durable ?? clientId;
    const pull = new NatsPull(
      { ...options, durable, ackWaitMs: spec.ackWaitMs },
      { name, clock, logger, redactor: this.#redactor, discards: this.#discards },
    );
    this.#pulls.add(pull);
    const connection = this.#loop.current;
    if (connection) void pull.run(connection);
    return pull;
  }

  /** Stops pulling. */
  drop(pull: NatsPull): void {
    pull.close();
    this.#pulls.delete(pull);
  }

  /**
   * Publishes a message. Resolves when the stream that stores the subject has acknowledged the message, or when the
   * server has received it if there is no such stream. Throws a `BrokerError`, usually retryable, or the abort reason
   * of the signal.
   */
  async publish(subject: string, payload: string | Uint8Array, options: PublishedMessage = {}): Promise<void> {
    if (this.#publishing >= MAX_PUBLISHING) throw brokerBusy(this.name);
    if (!isSubject(subject)) {
      throw new BrokerError('invalid subject for publishing', { code: 'broker.topic' });
    }
    this.#publishing++;
    try {
      const connection = await this.#loop.untilConnected(options.signal);
      try {
        await this.#publish(connection, subject, payload, options);
      } catch (error) {
        options.signal?.throwIfAborted();
        this.#isKept.delete(subject);
        if (error instanceof TagferryError) throw error;
        if (/max_payload/.test(messageOf(error))) throw brokerTooLarge(this.name, error);
        if (options.mustKeep && NOT_KEPT.has((error as Error).name)) throw noStream(subject, error);
        throw new BrokerError(`the broker ${this.name} did not acknowledge a message`, {
          code: 'broker.publish',
          retryable: true,
          cause: error,
        });
      }
    } finally {
      this.#publishing--;
    }
  }

  async #publish(
    connection: NatsConnection,
    subject: string,
    payload: string | Uint8Array,
    { headers: given, id, mustKeep, signal, beforeSend }: PublishedMessage,
  ): Promise<void> {
    const [{ headers }, { jetstream }] = await Promise.all([
      import('@nats-io/transport-node'),
      import('@nats-io/jetstream'),
    ]);
    const own = headers();
    for (const [name, value] of Object.entries(given ?? {})) own.set(name, value);
    const isKept = mustKeep || (await this.#isKeptByStream(connection, subject));
    signal?.throwIfAborted();
    beforeSend?.();
    if (isKept) {
      await jetstream(connection).publish(subject, payload, {
        headers: own,
        ...(id === undefined ? {} : { msgID: id }),
      });
      return;
    }
    connection.publish(subject, payload, { headers: own });
    await connection.flush();
  }

  /**
   * Checks for a stream first. Without one, the request would never receive a response, and the message would be sent
   * twice.
   */
  async #isKeptByStream(connection: NatsConnection, subject: string): Promise<boolean> {
    const nowMs = this.#options.clock.monotonicMs();
    const known = this.#isKept.get(subject);
    if (known && known.untilMs > nowMs) return known.kept;
    const { jetstreamManager } = await import('@nats-io/jetstream');
    const manager = await jetstreamManager(connection, { checkAPI: false });
    const kept = await manager.streams.find(subject).then(
      () => true,
      (error: Error) => {
        // Any other result is inconclusive: a cluster without a leader would lose the message.
        if (NOT_KEPT.has(error.name)) return false;
        throw error;
      },
    );
    if (this.#isKept.size >= MAX_KNOWN) this.#isKept.clear();
    this.#isKept.set(subject, { kept, untilMs: nowMs + STREAM_KNOWN_MS });
    return kept;
  }

  state(): NatsState {
    const pulls = [...this.#pulls];
    const sum = (of: (pull: NatsPull) => number) => pulls.reduce((all, pull) => all + of(pull), 0);
    const problem = this.#loop.problem ?? pulls.find((pull) => pull.problem !== undefined)?.problem;
    return {
      connected: this.#loop.current !== undefined,
      sinceMs: this.#loop.sinceMs,
      problem,
      failures: this.#loop.failures,
      received: sum(({ received }) => received),
      redelivered: sum(({ redelivered }) => redelivered),
      returned: sum(({ returned }) => returned),
      discarded: this.#discards.count,
      window: { used: sum(({ inProgress }) => inProgress), size: pulls[0]?.window },
      certificateEndsMs: this.#certificateEndsMs,
    };
  }

  async #connect(): Promise<NatsConnection> {
    const { name, clientId, spec, platformCaFile } = this.#options;
    const { connection, certificateEndsMs } = await openNats(name, clientId, spec, platformCaFile, this.#redactor);
    this.#certificateEndsMs = certificateEndsMs;
    return connection;
  }

  async #serve(connection: NatsConnection): Promise<unknown> {
    if (this.#isClosed) void connection.close();
    for (const pull of this.#pulls) void pull.run(connection);
    const reason = await connection.closed();
    return reason ?? new BrokerError('the server closed the connection', { code: 'broker.hung_up', retryable: true });
  }
}

/** Whether the text consists of dot-separated levels, none of which is empty or a wildcard. */
function isSubject(subject: string): boolean {
  return subject.split('.').every((level) => /^[^\s\0*>]+$/.test(level)) && Buffer.byteLength(subject) <= 4_096;
}
